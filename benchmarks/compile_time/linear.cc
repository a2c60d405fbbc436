// A training step of IKEBANA_LINEAR_LAYERS linear layers: compile time should grow linearly.
#include <ikebana/ikebana.hpp>
#include <utility>

namespace ike = ikebana;

template <std::size_t... I>
constexpr auto stack(std::index_sequence<I...>) {
  return ike::sequential((static_cast<void>(I), ike::lazy_linear<8>{})...);
}

int main() {
  constexpr auto net = stack(std::make_index_sequence<IKEBANA_LINEAR_LAYERS>{});
  auto model = ike::initialize<float, ike::shape{4, 8}>(net, ike::seed{1});
  ike::sgd optimizer{model, {.lr = 0.01f}};
  const auto x = ike::ones<float, ike::shape{4, 8}>();
  return model.train_step(x, x, ike::mse_loss{}, optimizer) >= 0 ? 0 : 1;
}
