#include "ikebana/nn/init.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <cstring>

#include "ikebana/core/tensor.hpp"

using namespace ikebana;

namespace {

struct moments {
  double mean = 0, deviation = 0, least = 0, most = 0;
};

template <class X>
moments moments_of(const X& x) {
  moments m{.least = static_cast<double>(x[0]), .most = static_cast<double>(x[0])};
  double squares = 0;
  for (auto e : x) {
    const auto v = static_cast<double>(e);
    m.mean += v;
    squares += v * v;
    m.least = std::min(m.least, v);
    m.most = std::max(m.most, v);
  }
  const auto n = static_cast<double>(x.size());
  m.mean /= n;
  m.deviation = std::sqrt(squares / n - m.mean * m.mean);
  return m;
}

/// 100 * 20 * 9 = 18,000 elements, fan_in 180, fan_out 900.
template <class T>
using weights = tensor<T, shape{100, 20, 3, 3}>;

template <class T, class F>
moments drawn(F&& f) {
  weights<T> x, same, other;
  f(x, seed{1});
  f(same, seed{1});
  f(other, seed{2});
  CHECK(std::memcmp(x.data(), same.data(), x.span().size_bytes()) == 0);
  CHECK(std::memcmp(x.data(), other.data(), x.span().size_bytes()) != 0);
  return moments_of(x);
}

/// Uniform in [a, b), to what 18,000 numbers tell.
void check_uniform(const moments& m, double a, double b) {
  const double width = b - a;
  CHECK(std::abs(m.mean - (a + b) / 2) < 0.01 * width);
  CHECK(std::abs(m.deviation - width / std::sqrt(12.0)) < 0.01 * width);
  CHECK((m.least >= a - 1e-6 * width && m.least < a + 0.01 * width));
  CHECK((m.most <= b + 1e-6 * width && m.most > b - 0.01 * width));
}

void check_normal(const moments& m, double mean, double deviation) {
  CHECK(std::abs(m.mean - mean) < 0.03 * deviation);
  CHECK(std::abs(m.deviation - deviation) < 0.03 * deviation);
  CHECK(m.most > mean + 3 * deviation);
  CHECK(m.least < mean - 3 * deviation);
}

}  // namespace

TEST_CASE("gains are those of PyTorch") {
  using init::calculate_gain;
  using enum init::nonlinearity;
  CHECK(calculate_gain(linear) == 1);
  CHECK(calculate_gain(conv) == 1);
  CHECK(calculate_gain(sigmoid) == 1);
  CHECK(calculate_gain(tanh) == 5.0 / 3);
  CHECK(calculate_gain(relu) == std::sqrt(2.0));
  CHECK(calculate_gain(leaky_relu) == std::sqrt(2 / (1 + 0.01 * 0.01)));
  CHECK(calculate_gain(leaky_relu, 0.5) == std::sqrt(2 / 1.25));
  CHECK(calculate_gain(selu) == 0.75);
}

TEST_CASE_TEMPLATE("uniform and normal numbers have the moments that were asked for", T, float,
                   double) {
  check_uniform(drawn<T>([](auto& x, seed s) { init::uniform(x, s); }), 0, 1);
  check_uniform(drawn<T>([](auto& x, seed s) { init::uniform(x, s, 3, 5); }), 3, 5);
  check_normal(drawn<T>([](auto& x, seed s) { init::normal(x, s); }), 0, 1);
  check_normal(drawn<T>([](auto& x, seed s) { init::normal(x, s, 3, 0.5); }), 3, 0.5);
}

TEST_CASE_TEMPLATE("xavier and kaiming take their scale from the fans", T, float, double) {
  const double xavier = std::sqrt(2.0 / (180 + 900));
  check_uniform(drawn<T>([](auto& x, seed s) { init::xavier_uniform(x, s, 2); }),
                -2 * xavier * std::sqrt(3.0), 2 * xavier * std::sqrt(3.0));
  check_normal(drawn<T>([](auto& x, seed s) { init::xavier_normal(x, s); }), 0, xavier);
  const double relu = std::sqrt(2.0 / 180), slope = std::sqrt(2 / 1.25 / 900);
  check_uniform(drawn<T>([](auto& x, seed s) {
                  init::kaiming_uniform(x, s, {.nonlinearity = init::nonlinearity::relu});
                }),
                -relu * std::sqrt(3.0), relu * std::sqrt(3.0));
  check_normal(drawn<T>([](auto& x, seed s) {
                 init::kaiming_normal(x, s, {.a = 0.5, .mode = init::fan::out});
               }),
               0, slope);
}

TEST_CASE_TEMPLATE("truncated normal numbers are within their bounds", T, float, double) {
  const moments m = drawn<T>([](auto& x, seed s) { init::trunc_normal(x, s); });
  CHECK(m.least >= -2);
  CHECK(m.most <= 2);
  CHECK(m.least < -1.95);
  CHECK(m.most > 1.95);
  // sqrt(1 - 2 * 2 phi(2) / (2 Phi(2) - 1)), of the standard normal within 2 deviations.
  CHECK(std::abs(m.deviation - 0.8796) < 0.01);
  CHECK(std::abs(m.mean) < 0.02);
  const moments tail = drawn<T>([](auto& x, seed s) { init::trunc_normal(x, s, 1, 0.5, 2, 9); });
  CHECK(tail.least >= 2);
  CHECK(tail.most < 4);
  // mean + std phi(2) / (1 - Phi(2)).
  CHECK(std::abs(tail.mean - (1 + 0.5 * 2.3732)) < 0.01);
}

TEST_CASE("the inverse of erf is that of the standard library's") {
  for (double y = -4; y <= 4; y += 0.0625)
    CHECK(init::detail::inverse_erf(std::erf(y)) == doctest::Approx(y).epsilon(1e-6));
}

TEST_CASE_TEMPLATE("orthogonal makes rows or columns orthonormal", T, float, double) {
  const auto check = [](auto&& x) {
    init::orthogonal(x, seed{3}, 2);
    const dim_t rows = x.extents()[0], columns = x.size() / rows;
    const bool by_rows = rows <= columns;
    const dim_t count = by_rows ? rows : columns, length = by_rows ? columns : rows;
    double most = 0;
    for (dim_t i = 0; i < count; ++i)
      for (dim_t j = 0; j < count; ++j) {
        double dot = 0;
        for (dim_t k = 0; k < length; ++k)
          dot += static_cast<double>(by_rows ? x[i * columns + k] : x[k * columns + i]) *
                 static_cast<double>(by_rows ? x[j * columns + k] : x[k * columns + j]);
        most = std::max(most, std::abs(dot - (i == j ? 4 : 0)));
      }
    CHECK(most <= (sizeof(T) == 4 ? 2e-6 : 1e-14));
  };
  check(tensor<T, shape{5, 9}>{});
  check(tensor<T, shape{9, 5}>{});
  check(tensor<T, shape{40, 40}>{});
  check(tensor<T, shape{6, 2, 3, 3}>{});
  check(tensor<T, shape{1, 1}>{});
  tensor<T, shape{0, 3}> none;
  init::orthogonal(none, seed{1});
  // The first numbers of both signs occur.
  int positive = 0;
  for (std::uint64_t s = 0; s < 64; ++s) {
    tensor<T, shape{3, 3}> x;
    init::orthogonal(x, seed{s});
    positive += x[0] > 0;
  }
  CHECK((positive > 16 && positive < 48));
}

TEST_CASE("sparse leaves the given share of each column") {
  tensor<float, shape{50, 7}> x;
  init::sparse(x, seed{4}, 0.33, 2);
  double squares = 0;
  for (dim_t j = 0; j < 7; ++j) {
    int zeros = 0;
    for (dim_t i = 0; i < 50; ++i) {
      zeros += x(i, j) == 0;
      squares += static_cast<double>(x(i, j)) * static_cast<double>(x(i, j));
    }
    CHECK(zeros == 17);
  }
  CHECK(std::sqrt(squares / (33 * 7)) == doctest::Approx(2).epsilon(0.15));
  CHECK_THROWS_AS(init::sparse(x, seed{1}, 1.5), error);
}

TEST_CASE("eye, dirac, constants") {
  tensor<float, shape{2, 3}> m;
  init::eye(m);
  CHECK(std::ranges::equal(m, tensor_of<float, shape{2, 3}>({1, 0, 0, 0, 1, 0})));
  init::ones(m);
  CHECK(moments_of(m).least == 1);
  init::constant(m.view(), 2.5);
  CHECK(moments_of(m).least == 2.5);
  init::zeros(m);
  CHECK(moments_of(m).most == 0);

  tensor<float, shape{4, 2, 3}> w;
  init::dirac(w);
  auto expected = zeros<float, shape{4, 2, 3}>();
  expected(0, 0, 1) = expected(1, 1, 1) = 1;
  CHECK(std::ranges::equal(w, expected));
  init::dirac(w, 2);
  expected(1, 1, 1) = 1;
  expected(2, 0, 1) = expected(3, 1, 1) = 1;
  CHECK(std::ranges::equal(w, expected));
  tensor<double, shape{2, 2, 3, 5}> plane;
  init::dirac(plane);
  CHECK(plane(0, 0, 1, 2) == 1);
  CHECK(plane(1, 1, 1, 2) == 1);
  CHECK(moments_of(plane).mean * 60 == doctest::Approx(2));
}

TEST_CASE("shapes without fans, and others that do not fit, are refused before anything changed") {
  auto vector = full<float, shape{5}>(7.0F);
  auto matrix = full<float, shape{4, 4}>(7.0F);
  auto kernels = full<float, shape{4, 2, 3}>(7.0F);
  CHECK_THROWS_WITH_AS(init::xavier_uniform(vector, seed{1}),
                       "fan_in and fan_out need a tensor of at least 2 dimensions, got [5]",
                       shape_error);
  CHECK_THROWS_AS(init::kaiming_normal(vector, seed{1}), shape_error);
  CHECK_THROWS_AS(init::orthogonal(vector, seed{1}), shape_error);
  CHECK_THROWS_AS(init::eye(vector), shape_error);
  CHECK_THROWS_AS(init::eye(kernels), shape_error);
  CHECK_THROWS_AS(init::sparse(kernels, seed{1}, 0.5), shape_error);
  CHECK_THROWS_AS(init::dirac(matrix), shape_error);
  CHECK_THROWS_WITH_AS(init::dirac(kernels, 3),
                       "dirac: the first extent of [4, 2, 3] is not a multiple of 3 groups",
                       shape_error);
  CHECK(moments_of(vector).deviation == 0);
  CHECK(moments_of(matrix).deviation == 0);
  CHECK(moments_of(kernels).deviation == 0);
}
