// Training of ResNet-18, as the compiler sees it.
#include "examples/networks/resnet18.hpp"

#include <ikebana/ikebana.hpp>

namespace ike = ikebana;

int main() {
  constexpr ike::shape images{2, 3, 224, 224};
  auto model = ike::initialize<float, images>(resnet::resnet18<1000>, ike::seed{1});
  ike::sgd optimizer{model, {.lr = 0.01f}};
  const auto x = ike::ones<float, images>();
  const auto t = ike::zeros<std::int64_t, ike::shape{2}>();
  return model.train_step(x, t, ike::cross_entropy{}, optimizer) > 0 ? 0 : 1;
}
