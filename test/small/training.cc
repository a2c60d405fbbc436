// A program that trains an MLP and compiles its own kernels: a test measures them.
#include <cstdint>

#include "ikebana/ikebana.hpp"

namespace ike = ikebana;
using namespace ike::literals;

constexpr auto net = ike::sequential("fc1"_m = ike::lazy_linear<128>{}, ike::relu{},
                                     "fc2"_m = ike::lazy_linear<64>{}, ike::relu{},
                                     "fc3"_m = ike::lazy_linear<10>{});

int main() {
  auto model = ike::initialize<float, ike::shape{32, 784}>(net, ike::seed{1});
  auto optimizer = ike::sgd{model, {.lr = 1e-2}};
  const ike::tensor<float, ike::shape{32, 784}> x;
  const ike::tensor<std::int64_t, ike::shape{32}> t;
  return model.train_step(x, t, ike::cross_entropy{}, optimizer) > 0 ? 0 : 1;
}
