// Training of an MLP and of LeNet, as the compiler sees it.
#include <ikebana/ikebana.hpp>

namespace ike = ikebana;
using namespace ike::literals;

constexpr auto mlp = ike::sequential("fc1"_m = ike::lazy_linear<128>{}, ike::relu{},
                                     "fc2"_m = ike::lazy_linear<64>{}, ike::relu{},
                                     "fc3"_m = ike::lazy_linear<10>{});
constexpr auto lenet = ike::sequential(
    "conv1"_m = ike::lazy_conv2d<6, ike::kernel<5>, ike::padding<2>>{}, ike::relu{},
    ike::max_pool2d<ike::kernel<2>>{}, "conv2"_m = ike::lazy_conv2d<16, ike::kernel<5>>{},
    ike::relu{}, ike::max_pool2d<ike::kernel<2>>{}, ike::flatten{},
    "fc1"_m = ike::lazy_linear<120>{}, ike::relu{}, "fc2"_m = ike::lazy_linear<84>{}, ike::relu{},
    "fc3"_m = ike::lazy_linear<10>{});

template <auto In, class Network>
float train(const Network& network) {
  auto model = ike::initialize<float, In>(network, ike::seed{1});
  ike::sgd optimizer{model, {.lr = 0.01f}};
  const auto x = ike::ones<float, In>();
  const auto t = ike::zeros<std::int64_t, ike::shape{32}>();
  return static_cast<float>(model.train_step(x, t, ike::cross_entropy{}, optimizer));
}

int main() {
  const float a = train<ike::shape{32, 784}>(mlp);
  const float b = train<ike::shape{32, 1, 28, 28}>(lenet);
  return a > 0 && b > 0 ? 0 : 1;
}
