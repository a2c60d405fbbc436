// Training of LeNet, as the compiler sees it.
#include <ikebana/ikebana.hpp>

namespace ike = ikebana;
using namespace ike::literals;

constexpr auto lenet = ike::sequential(
    "conv1"_m = ike::lazy_conv2d<6, ike::kernel<5>, ike::padding<2>>{}, ike::relu{},
    ike::max_pool2d<ike::kernel<2>>{}, "conv2"_m = ike::lazy_conv2d<16, ike::kernel<5>>{},
    ike::relu{}, ike::max_pool2d<ike::kernel<2>>{}, ike::flatten{},
    "fc1"_m = ike::lazy_linear<120>{}, ike::relu{}, "fc2"_m = ike::lazy_linear<84>{}, ike::relu{},
    "fc3"_m = ike::lazy_linear<10>{});

int main() {
  auto model = ike::initialize<float, ike::shape{32, 1, 28, 28}>(lenet, ike::seed{1});
  ike::sgd optimizer{model, {.lr = 0.01f}};
  const auto x = ike::ones<float, ike::shape{32, 1, 28, 28}>();
  const auto t = ike::zeros<std::int64_t, ike::shape{32}>();
  return model.train_step(x, t, ike::cross_entropy{}, optimizer) > 0 ? 0 : 1;
}
