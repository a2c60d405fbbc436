// Training of a transformer encoder of 12 layers.
#include <ikebana/ikebana.hpp>

namespace ike = ikebana;
using namespace ike::literals;

constexpr auto net = ike::sequential(
    "positions"_m = ike::sinusoidal_encoding<>{},
    "encoder"_m = ike::transformer_encoder<12, ike::transformer_encoder_layer<ike::lazy, 4, 64>>{},
    "head"_m = ike::lazy_linear<10>{});

int main() {
  constexpr ike::shape in{16, 2, 32};
  auto model = ike::initialize<float, in>(net, ike::seed{1});
  ike::adam optimizer{model, {.lr = 1e-3f}};
  const auto x = ike::ones<float, in>();
  const auto t = ike::ones<float, ike::shape{16, 2, 10}>();
  return model.train_step(x, t, ike::mse_loss{}, optimizer) >= 0 ? 0 : 1;
}
