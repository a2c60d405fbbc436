#include <doctest/doctest.h>

#include <cstring>
#include <span>

#include "ikebana/compose/residual.hpp"
#include "ikebana/compose/sequential.hpp"
#include "ikebana/model/initialize.hpp"
#include "ikebana/nn/activation.hpp"
#include "ikebana/nn/batch_norm.hpp"
#include "ikebana/nn/conv.hpp"
#include "ikebana/nn/dropout.hpp"
#include "ikebana/nn/flatten.hpp"
#include "ikebana/nn/linear.hpp"
#include "ikebana/nn/pool.hpp"
#include "ikebana/nn/softmax.hpp"

using namespace ikebana;
using namespace ikebana::literals;

namespace {

constexpr auto every_module = sequential(
    "conv1"_m = lazy_conv2d<4, kernel<3>, padding<1>, groups<2>>{}, "bn1"_m = lazy_batch_norm2d<>{},
    "relu"_m = relu{}, "pool1"_m = max_pool2d<kernel<2>>{},
    "block"_m = residual("conv"_m = lazy_conv2d<4, kernel<1>, bias<false>>{}),
    "tanh"_m = ikebana::tanh{}, "pool2"_m = avg_pool2d<kernel<3>, stride<2>, padding<1>>{},
    "flatten"_m = flatten{}, "fc1"_m = lazy_linear<7>{}, "gelu"_m = gelu{},
    "drop"_m = dropout{.p = 0.4}, "sigmoid"_m = sigmoid{}, "fc2"_m = lazy_linear<3>{},
    "softmax"_m = softmax{}, "out"_m = log_softmax<dim<1>>{});

template <class T>
bool same_bits(std::span<const T> a, std::span<const T> b) {
  return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size_bytes()) == 0;
}

}  // namespace

TEST_CASE("a static and a dynamic batch give the same bits through every module") {
  constexpr shape fixed_shape{5, 2, 8, 8}, open_shape{dynamic, 2, 8, 8};
  auto fixed = initialize<float, fixed_shape>(every_module, seed{3});
  auto open = initialize<float, open_shape>(every_module, seed{3});
  REQUIRE(same_bits<float>(fixed.parameters(), open.parameters()));
  const auto gy = uniform<float, shape{5, 3}>(seed{9});
  for (std::uint64_t step = 0; step < 3; ++step) {
    const auto x = uniform<float, fixed_shape>(seed{step});
    fixed.zero_grad();
    open.zero_grad();
    const auto y1 = fixed(x);
    const auto y2 = open(x);
    CHECK(same_bits<float>(y1.span(), y2.span()));
    fixed.backward(gy);
    open.backward(gy);
    CHECK(same_bits<float>(fixed.gradients(), open.gradients()));
    CHECK(same_bits<std::byte>(fixed.buffers(), open.buffers()));
  }
  // Another batch, then an empty one.
  CHECK(open(uniform<float, open_shape>(seed{1}, 2)).extents() == shape{2, 3});
  CHECK(open(uniform<float, open_shape>(seed{1}, 0)).extents() == shape{0, 3});
  open.zero_grad();
  open.backward(uniform<float, shape{dynamic, 3}>(seed{1}, 0));
  for (float g : open.gradients()) CHECK(g == 0);
}
