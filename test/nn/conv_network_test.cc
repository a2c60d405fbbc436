#include <doctest/doctest.h>

#include <cstring>
#include <span>

#include "ikebana/compose/sequential.hpp"
#include "ikebana/model/initialize.hpp"
#include "ikebana/nn/conv.hpp"
#include "ikebana/nn/conv_transpose.hpp"

using namespace ikebana;
using namespace ikebana::literals;

namespace {

constexpr auto coder =
    sequential("in"_m = lazy_conv2d<5, kernel<3>, padding<2>, padding_mode<"reflect">>{},
               "same"_m = lazy_conv2d<4, kernel<4>, same_padding, padding_mode<"circular">>{},
               "out"_m = lazy_conv_transpose2d<2, kernel<3>, stride<2>, output_padding<1>>{});

bool same_bits(std::span<const float> a, std::span<const float> b) {
  return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size_bytes()) == 0;
}

}  // namespace

TEST_CASE("static and dynamic extents give the same bits through padding of every kind") {
  auto fixed = initialize<float, shape{4, 3, 6, 7}>(coder, seed{3});
  auto open = initialize<float, shape{dynamic, 3, dynamic, 7}>(coder, seed{3});
  REQUIRE(same_bits(fixed.parameters(), open.parameters()));
  const auto gy = uniform<float, shape{4, 2, 18, 20}>(seed{9});
  for (std::uint64_t step = 0; step < 2; ++step) {
    const auto x = uniform<float, shape{4, 3, 6, 7}>(seed{step});
    fixed.zero_grad();
    open.zero_grad();
    CHECK(same_bits(fixed(x).span(), open(x).span()));
    fixed.backward(gy);
    open.backward(gy);
    CHECK(same_bits(fixed.gradients(), open.gradients()));
    // Other extents in between, larger and smaller.
    CHECK(open(uniform<float, shape{9, 3, 11, 7}>(seed{1})).extents() == shape{9, 2, 28, 20});
    CHECK(open(uniform<float, shape{1, 3, 3, 7}>(seed{1})).extents() == shape{1, 2, 12, 20});
  }
  CHECK_THROWS_WITH_AS(open(uniform<float, shape{1, 3, dynamic, 7}>(seed{1}, 2)),
                       "in: conv2d expects spatial extents of at least 3 (more than the padding, "
                       "which reflects), got 2 (input [1, 3, 2, 7])",
                       shape_error);
}
