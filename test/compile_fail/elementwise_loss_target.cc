// expect: huber_loss expects a target of shape \[8, 1\], got \[8, 2\]
#include <ikebana/ikebana.hpp>

namespace ike = ikebana;
using namespace ike::literals;

constexpr auto net = ike::sequential("fc"_m = ike::lazy_linear<1>{});

void train() {
  auto model = ike::initialize<float, ike::shape{8, 3}>(net, ike::seed{1});
  ike::sgd optimizer{model, {.lr = 0.1}};
  const auto x = ike::ones<float, ike::shape{8, 3}>();
#ifdef MENDED
  const auto t = ike::ones<float, ike::shape{8, 1}>();
#else
  const auto t = ike::ones<float, ike::shape{8, 2}>();
#endif
  model.train_step(x, t, ike::huber_loss{.delta = 2}, optimizer);
}
