#include "ikebana/core/tensor.hpp"

#include <doctest/doctest.h>

#include <cmath>
#include <cstdint>
#include <limits>
#include <new>
#include <type_traits>
#include <utility>

#include "ikebana/core/dtype.hpp"

namespace ike = ikebana;
using ike::dynamic;
using ike::shape;

static_assert(ike::dtype_of<float> == ike::dtype::float32 &&
              ike::dtype_of<double> == ike::dtype::float64);
static_assert(ike::dtype_of<std::int64_t> == ike::dtype::int64 &&
              ike::dtype_of<std::int32_t> == ike::dtype::int32);
static_assert(ike::dtype_of<std::uint8_t> == ike::dtype::uint8);
static_assert(!ike::has_dtype<char> && !ike::has_dtype<bool> && !ike::has_dtype<const float>);
static_assert(ike::floating<float> && !ike::floating<int> && !ike::floating<std::uint8_t>);

template <shape To, shape From, class T = float, class U = float>
constexpr bool converts =
    std::is_constructible_v<ike::tensor_view<T, To>, ike::tensor_view<U, From>>;
static_assert(converts<shape{dynamic, 3}, shape{2, 3}> && converts<shape{2, 3}, shape{dynamic, 3}>);
static_assert(!converts<shape{2, 3}, shape{3, 2}> && !converts<shape{2, 3}, shape{2, 3, 1}>);
static_assert(converts<shape{2}, shape{2}, const float, float>);
static_assert(!converts<shape{2}, shape{2}, float, const float>);
static_assert(!converts<shape{2}, shape{2}, double, float>);
static_assert(sizeof(ike::tensor_view<float, shape{2, 3}>) == sizeof(float*));
static_assert(!std::is_default_constructible_v<ike::tensor<float, shape{dynamic}>>);

TEST_CASE("a tensor is zero, aligned and row-major") {
  ike::tensor<float, shape{2, 3}> t;
  for (float x : t) CHECK(x == 0);
  CHECK(reinterpret_cast<std::uintptr_t>(t.data()) % 64 == 0);
  t(1, 2) = 5;
  CHECK(t[5] == 5);
  CHECK(t.size() == 6);
  CHECK(t.extent(1) == 3);
}

TEST_CASE("rank 0 is one element; an extent of 0 is none") {
  ike::tensor<double, shape{}> scalar;
  CHECK(scalar.size() == 1);
  scalar() = 4;
  CHECK(scalar[0] == 4);
  CHECK(scalar.view()() == 4);
  ike::tensor<double, shape{3, 0}> none;
  CHECK(none.size() == 0);
  CHECK(none.begin() == none.end());
  CHECK(none.data() == nullptr);
  const ike::tensor<double, shape{3, 0}> copy = none;
  CHECK(copy.size() == 0);
  ike::tensor<float, shape{dynamic, 4}> rows(shape{0, 4});
  CHECK(rows.size() == 0);
  CHECK(rows.extents() == shape{0, 4});
}

TEST_CASE("extents must be numbers that fit") {
  using rows = ike::tensor<float, shape{dynamic, 4}>;
  CHECK(rows(shape{7, 4}).extent(0) == 7);
  CHECK_THROWS_WITH_AS(rows(shape{7, 5}), "tensor expects [dynamic, 4], got [7, 5]",
                       ike::shape_error);
  CHECK_THROWS_AS(rows(shape{7}), ike::shape_error);
  CHECK_THROWS_AS(rows(shape{dynamic, 4}), ike::shape_error);
  float data[8];
  using view = ike::tensor_view<float, shape{dynamic, 4}>;
  CHECK(view(data, shape{2, 4}).size() == 8);
  CHECK_THROWS_AS(view(data, shape{2, 3}), ike::shape_error);
  CHECK_THROWS_AS(view(data, shape{dynamic, 4}), ike::shape_error);
  const view v(data, shape{2, 4});
  CHECK_THROWS_AS((ike::tensor_view<float, shape{3, 4}>(v)), ike::shape_error);
  CHECK((ike::tensor_view<const float, shape{2, 4}>(v)).data() == data);
}

TEST_CASE("more elements than can be addressed are refused before anything is allocated") {
  constexpr ike::dim_t large = ike::dim_t{1} << 32;
  CHECK_THROWS_WITH_AS((ike::zeros<float, shape{dynamic, dynamic}>(large, large)),
                       "a tensor has at most 2^56 elements, got the shape [4294967296, 4294967296]",
                       ike::shape_error);
  using batch = ike::tensor<double, shape{dynamic, 28, 28}>;
  CHECK_THROWS_AS(batch(shape{large << 26, 28, 28}), ike::shape_error);
  float x = 0;
  using view = ike::tensor_view<float, shape{dynamic, 64}>;
  CHECK_THROWS_AS(view(&x, shape{large << 26, 64}), ike::shape_error);
  using views = ike::tensor_view<float, shape{dynamic, dynamic}>;
  CHECK_THROWS_AS(views(&x, shape{0, large << 30}), ike::shape_error);
}

TEST_CASE("copies are deep, moves take the memory") {
  auto a = ike::uniform<float, shape{dynamic, 3}>(ike::seed{1}, 5);
  auto b = a;
  CHECK(b.data() != a.data());
  b[0] += 1;
  CHECK(a[0] != b[0]);
  const float* at = a.data();
  auto c = std::move(a);
  CHECK(c.data() == at);
  CHECK(a.size() == 0);  // NOLINT(bugprone-use-after-move): documented
  CHECK(a.data() == nullptr);
  a = b;
  CHECK(a.extents() == shape{5, 3});
  CHECK(a[0] == b[0]);
  const auto small = ike::ones<float, shape{dynamic, 3}>(2);
  a = small;
  CHECK(a.extents() == shape{2, 3});
  a = *&a;
  CHECK(a[5] == 1);
}

TEST_CASE("a view is assigned to a tensor as a copy, also a view of itself") {
  auto a = ike::tensor_of<float, shape{3}>({1, 2, 3});
  ike::tensor<float, shape{dynamic}> b(shape{1});
  b = a.view();
  CHECK(b.extents() == shape{3});
  CHECK(b.data() != a.data());
  b = ike::tensor_view<const float, shape{dynamic}>(b.data() + 1, shape{2});
  CHECK(b.extents() == shape{2});
  CHECK(b[0] == 2);
  CHECK(b[1] == 3);
  CHECK_THROWS_AS((a = b.view()), ike::shape_error);
  CHECK(a[2] == 3);
}

TEST_CASE("makers") {
  CHECK(ike::full<double, shape{2}>(3.5)[1] == 3.5);
  CHECK(ike::zeros<float, shape{dynamic, 2, dynamic}>(3, 4).extents() == shape{3, 2, 4});
  const auto t = ike::tensor_of<std::int64_t, shape{2, 2}>({1, 2, 3, 4});
  CHECK(t(1, 0) == 3);
  CHECK_THROWS_WITH_AS((ike::tensor_of<float, shape{3}>({1, 2})),
                       "tensor_of expects 3 elements for [3], got 2", ike::shape_error);
  CHECK_THROWS_AS((ike::zeros<float, shape{dynamic}>(-1)), ike::shape_error);
  const auto u = ike::uniform<double, shape{100}>(ike::seed{2});
  const auto v = ike::uniform<double, shape{50}>(ike::seed{2});
  CHECK(u[49] == v[49]);
  CHECK(ike::tensor(t.view())(1, 1) == 4);
}

TEST_CASE_TEMPLATE("normal draws mean 0 and deviation 1, other numbers for another seed", T, float,
                   double) {
  const auto x = ike::normal<T, shape{dynamic, 7}>(ike::seed{1}, 1001);
  CHECK(x.extents() == shape{1001, 7});
  double sum = 0, squares = 0;
  for (const T each : x) {
    sum += static_cast<double>(each);
    squares += static_cast<double>(each) * static_cast<double>(each);
  }
  const double n = static_cast<double>(x.size());
  CHECK(std::abs(sum / n) < 0.05);
  CHECK(std::abs(squares / n - 1) < 0.07);
  const auto other = ike::normal<T, shape{7}>(ike::seed{2});
  CHECK(x[0] != other[0]);
  CHECK(x[0] == ike::normal<T, shape{1}>(ike::seed{1})[0]);
  CHECK(ike::normal<T, shape{0}>(ike::seed{1}).size() == 0);
}

TEST_CASE("a buffer of an impossible size is refused, and what was moved from is empty") {
  using buffer = ike::aligned_buffer<double>;
  constexpr ike::dim_t most = std::numeric_limits<ike::dim_t>::max();
  CHECK_THROWS_AS(buffer{-1}, std::bad_array_new_length);
  CHECK_THROWS_AS(buffer{most}, std::bad_array_new_length);
  CHECK_THROWS_AS(buffer{most / 8 + 1}, std::bad_array_new_length);
  buffer a(3), b(5);
  const double* at = b.data();
  a = std::move(b);
  CHECK(a.data() == at);
  CHECK(a.size() == 5);
  CHECK(b.empty());  // NOLINT(bugprone-use-after-move): documented
  CHECK(b.data() == nullptr);
  CHECK(buffer{}.span().empty());
}

static_assert(ike::round_up_to_alignment<float>(0) == 0 &&
              ike::round_up_to_alignment<float>(1) == 16);
static_assert(ike::round_up_to_alignment<float>(16) == 16 &&
              ike::round_up_to_alignment<double>(9) == 16);
static_assert(ike::round_up_to_alignment<std::byte>(65) == 128);
