#include "ikebana/core/views.hpp"

#include <doctest/doctest.h>

#include <array>
#include <cstdint>
#include <limits>
#include <span>
#include <vector>

#include "ikebana/core/compare.hpp"
#include "ikebana/core/rearrange.hpp"

using namespace ikebana;

TEST_CASE("as_tensor is a view of the elements of a container") {
  std::vector<float> v{1, 2, 3, 4, 5, 6};
  const auto x = as_tensor<shape{dynamic, 3}>(v);
  static_assert(std::is_same_v<decltype(x), const tensor_view<float, shape{dynamic, 3}>>);
  CHECK(x.extents() == shape{2, 3});
  CHECK(x(1, 0) == 4);
  x(1, 0) = 7;
  CHECK(v[3] == 7);
  const std::vector<float>& fixed = v;
  static_assert(
      std::is_same_v<decltype(as_tensor<shape{6}>(fixed)), tensor_view<const float, shape{6}>>);
  std::span<const float> part(v.data(), 4);
  CHECK(as_tensor<shape{2, dynamic}>(part).extents() == shape{2, 2});
  std::array<double, 2> a{1, 2};
  CHECK(as_tensor<shape{2}>(a)[1] == 2);
  double plain[] = {1, 2, 3};
  CHECK(as_tensor<shape{dynamic}>(plain).extents() == shape{3});
  std::vector<float> none;
  CHECK(as_tensor<shape{dynamic, 3}>(none).extents() == shape{0, 3});
  CHECK_THROWS_WITH_AS(static_cast<void>(as_tensor<shape{dynamic, 4}>(v)),
                       "a view of shape [dynamic, 4] cannot have 6 elements", shape_error);
  CHECK_THROWS_AS(static_cast<void>(as_tensor<shape{5}>(v)), shape_error);
  CHECK_THROWS_AS(static_cast<void>(as_tensor<shape{dynamic, 0}>(v)), shape_error);
}

TEST_CASE("reshape, slice and select are views") {
  auto x = tensor_of<float, shape{2, 3, 2}>({0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11});
  const auto flat = reshape<shape{2, dynamic}>(x);
  CHECK(flat.extents() == shape{2, 6});
  CHECK(flat.data() == x.data());
  const auto second = select(x, 1);
  static_assert(decltype(second)::static_shape == shape{3, 2});
  CHECK(second(0, 1) == 7);
  second(0, 1) = -7;
  CHECK(x(1, 0, 1) == -7);
  const auto rows = slice(second, 1, 3);
  CHECK(rows.extents() == shape{2, 2});
  CHECK(rows(1, 1) == 11);
  CHECK(slice(x, 1, 1).extents() == shape{0, 3, 2});
  CHECK(select(select(select(x, 0), 2), 1).size() == 1);
  const auto& fixed = x;
  static_assert(std::is_same_v<decltype(select(fixed, 0).data()), const float*>);
  CHECK_THROWS_WITH_AS(
      static_cast<void>(slice(x, 0, 3)),
      "a slice ends within the 2 elements of the first dimension, got 3 (of [2, 3, 2])",
      shape_error);
  CHECK_THROWS_WITH_AS(
      static_cast<void>(slice(x, -1, 1)),
      "a slice ends within the 2 elements of the first dimension, got -1 (of [2, 3, 2])",
      shape_error);
  CHECK_THROWS_WITH_AS(static_cast<void>(select(x, 2)), "index 2 is not in [0, 2) (of [2, 3, 2])",
                       shape_error);
  CHECK_THROWS_AS(static_cast<void>((reshape<shape{5, dynamic}>(x))), shape_error);
}

TEST_CASE("at is checked in every build") {
  auto x = tensor_of<float, shape{2, 2}>({0, 1, 2, 3});
  CHECK(at(x, 1, 0) == 2);
  at(x, 1, 0) = 5;
  CHECK(x(1, 0) == 5);
  CHECK_THROWS_WITH_AS(at(x, 0, 2), "index 2 of a tensor of shape [2, 2] is not in [0, 2)", error);
  CHECK_THROWS_WITH_AS(at(x, -1, 0), "index -1 of a tensor of shape [2, 2] is not in [0, 2)",
                       error);
}

TEST_CASE("cast and permute copy") {
  std::vector<std::uint8_t> pixels{0, 51, 102, 153, 204, 255, 10, 20, 30, 40, 50, 60};
  // [1, 2, 2, 3]: height, width and channels last.
  const auto image =
      permute<0, 3, 1, 2>(cast<float>(as_tensor<shape{dynamic, 2, 2, 3}>(pixels), 1 / 255.f));
  static_assert(decltype(image)::static_shape == shape{dynamic, 3, 2, 2});
  CHECK(image.extents() == shape{1, 3, 2, 2});
  CHECK(image(0, 0, 0, 0) == 0);
  CHECK(image(0, 1, 0, 0) == doctest::Approx(0.2));
  CHECK(image(0, 2, 0, 1) == doctest::Approx(1));
  CHECK(image(0, 0, 1, 1) == doctest::Approx(40 / 255.));
  const auto m = tensor_of<double, shape{2, 3}>({1, 2, 3, 4, 5, 6});
  const auto t = transpose(m);
  static_assert(decltype(t)::static_shape == shape{3, 2});
  CHECK(t(2, 1) == 6);
  CHECK(t(0, 1) == 4);
  CHECK(permute<1, 0>(zeros<float, shape{0, 3}>()).extents() == shape{3, 0});
  CHECK(permute<>(full<float, shape{}>(3.f))[0] == 3);
  CHECK(cast<std::int64_t>(tensor_of<double, shape{2}>({1.9, -1.9}))[1] == -1);
}

TEST_CASE("allclose is PyTorch's") {
  const auto a = tensor_of<double, shape{3}>({1, 2, -3});
  CHECK(allclose(a, tensor_of<double, shape{3}>({1 + 1e-6, 2, -3})));
  CHECK_FALSE(allclose(a, tensor_of<double, shape{3}>({1 + 1e-4, 2, -3})));
  CHECK(allclose(a, tensor_of<float, shape{3}>({1, 2, -2.9f}), {.atol = 0.11}));
  // torch.allclose(a, b) weighs by |b|.
  const auto zero = zeros<double, shape{1}>();
  const auto tiny = full<double, shape{1}>(1e-7);
  CHECK_FALSE(allclose(zero, tiny));
  CHECK(allclose(zero, tiny, {.rtol = 1}));
  CHECK_FALSE(allclose(tiny, zero, {.rtol = 1}));
  constexpr double inf = std::numeric_limits<double>::infinity(),
                   nan = std::numeric_limits<double>::quiet_NaN();
  CHECK(allclose(full<double, shape{1}>(inf), full<double, shape{1}>(inf)));
  CHECK_FALSE(allclose(full<double, shape{1}>(inf), full<double, shape{1}>(-inf)));
  CHECK_FALSE(allclose(full<double, shape{1}>(1.), full<double, shape{1}>(inf)));
  CHECK_FALSE(allclose(full<double, shape{1}>(nan), full<double, shape{1}>(nan)));
  CHECK(allclose(full<double, shape{1}>(nan), full<double, shape{1}>(nan), {.equal_nan = true}));
  CHECK_THROWS_AS(allclose(a, zero), shape_error);
}

TEST_CASE("argmax is taken along a dimension") {
  const auto x = tensor_of<float, shape{2, 3}>({1, 5, 5, 9, -1, 2});
  const auto best = argmax(x);
  static_assert(decltype(best)::static_shape == shape{2});
  CHECK(best[0] == 1);
  CHECK(best[1] == 0);
  const auto columns = argmax<0>(x);
  CHECK(columns[0] == 1);
  CHECK(columns[1] == 0);
  CHECK(columns[2] == 0);
  const auto odd = tensor_of<float, shape{3}>({1, std::numeric_limits<float>::quiet_NaN(), 9});
  CHECK(argmax(odd)[0] == 1);
  CHECK_THROWS_AS(static_cast<void>(argmax<0>(zeros<float, shape{0, 3}>())), shape_error);
  CHECK(argmax<1>(zeros<float, shape{0, 3}>()).size() == 0);
}
