#include "ikebana/cpu/elementwise.hpp"

#include <cstring>
#include <limits>

#include "support.hpp"

using namespace cpu_test;
namespace cpu = ikebana::cpu;

namespace {

/// Distance in ulp of T's rounding of `expected`.
template <class T>
double ulps(T got, long double expected) {
  if (std::isnan(expected)) return std::isnan(got) ? 0 : 1e30;
  const T nearest = static_cast<T>(expected);
  if (std::isinf(nearest)) return got == nearest ? 0 : 1e30;
  int e = 0;
  std::frexp(nearest, &e);
  const int least = std::numeric_limits<T>::min_exponent - std::numeric_limits<T>::digits;
  int unit = e - std::numeric_limits<T>::digits;
  if (nearest == T(0) || unit < least) unit = least;
  return static_cast<double>(std::fabs(static_cast<long double>(got) - expected) /
                             std::ldexp(1.0L, unit));
}

/// Numbers of all magnitudes, special ones, and many where the functions bend.
template <class T>
std::vector<T> probes() {
  using limits = std::numeric_limits<T>;
  std::vector<T> x{T(0),
                   -T(0),
                   T(1),
                   T(-1),
                   limits::infinity(),
                   -limits::infinity(),
                   limits::quiet_NaN(),
                   limits::min(),
                   -limits::min(),
                   limits::denorm_min(),
                   -limits::denorm_min(),
                   limits::max(),
                   limits::lowest(),
                   T(88.7),
                   T(-87.4),
                   T(-103.9),
                   T(709.7),
                   T(-745.1),
                   T(-708.5)};
  generator r(11);
  for (int i = 0; i < 4000; ++i)
    x.push_back(static_cast<T>(std::ldexp(r.number(), static_cast<int>(r.below(40)) - 32)));
  for (int i = 0; i < 4000; ++i) x.push_back(static_cast<T>(r.number() * 12));
  for (int i = 0; i < 2000; ++i) {
    std::uint64_t bits = (std::uint64_t{r.word()} << 32) | r.word();
    T any;
    std::memcpy(&any, &bits, sizeof any);
    x.push_back(any);
  }
  return x;
}

template <class T>
void check_accuracy(void (*f)(dim_t, const T*, T*), long double (*reference)(long double),
                    double most, long double least_size = 0) {
  const std::vector<T> x = probes<T>();
  for_each_set([&] {
    std::vector<T> y(x.size());
    f(static_cast<dim_t>(x.size()), x.data(), y.data());
    double worst = 0;
    T at = 0;
    for (std::size_t i = 0; i < x.size(); ++i) {
      const long double expected = reference(static_cast<long double>(x[i]));
      if (std::fabs(expected) < least_size && expected != 0) continue;
      const double e = ulps(y[i], expected);
      if (e > worst) {
        worst = e;
        at = x[i];
      }
    }
    INFO("worst " << worst << " ulp at " << at);
    CHECK(worst <= most);
  });
}

/// Runs f on sizes that leave every kind of tail, and compares with `expected` element-wise.
template <class T, class F, class E>
void check_tails(F f, E expected, double tolerance) {
  generator r(12);
  for_each_set([&] {
    for (dim_t n : {0, 1, 2, 3, 7, 8, 15, 16, 17, 31, 33, 64, 67, 129, 1100}) {
      INFO("n " << n);
      const guarded<T> a(n, r, 3), b(n, r, 3, 3);
      guarded<T> y(n, T(5), 2);
      f(n, a.data(), b.data(), y.data());
      std::vector<double> e(static_cast<std::size_t>(n));
      for (dim_t i = 0; i < n; ++i)
        e[static_cast<std::size_t>(i)] =
            expected(static_cast<double>(a[i]), static_cast<double>(b[i]));
      CHECK(all_close(y, e, tolerance));
      CHECK(y.intact());
    }
  });
}

long double sigmoid_reference(long double x) {
  return x < 0 ? std::exp(x) / (1 + std::exp(x)) : 1 / (1 + std::exp(-x));
}
long double gelu_reference(long double x) {
  return std::isinf(x) && x < 0 ? -std::numeric_limits<long double>::quiet_NaN()
                                : x * std::erfc(-x * 0.70710678118654752440084436L) / 2;
}
double normal_density(double x) {
  return std::exp(-x * x / 2) / std::sqrt(2 * 3.14159265358979323846);
}

}  // namespace

TEST_CASE_TEMPLATE("functions are accurate over the whole range", T, float, double) {
  check_accuracy<T>(
      cpu::exp<T>, [](long double x) { return std::exp(x); }, 1.5);
  check_accuracy<T>(
      cpu::log<T>, [](long double x) { return std::log(x); }, 1.5);
  check_accuracy<T>(
      cpu::tanh_forward<T>, [](long double x) { return std::tanh(x); }, 2);
  check_accuracy<T>(cpu::sigmoid_forward<T>, sigmoid_reference, 2);
  check_accuracy<T>(
      cpu::silu_forward<T>, [](long double x) { return x * sigmoid_reference(x); }, 2);
  check_accuracy<T>(
      cpu::erf<T>, [](long double x) { return std::erf(x); }, 2);
  check_accuracy<T>(cpu::gelu_forward<T>, gelu_reference, 2);
  check_accuracy<T>(
      cpu::gelu_tanh_forward<T>,
      [](long double x) {
        return x * sigmoid_reference(
                       x * (1.595769121605730711759L + 0.07135481627260024877634L * x * x));
      },
      2);
}

TEST_CASE_TEMPLATE("activations and their derivatives, with every tail", T, float, double) {
  const double tolerance = 16 * rounding<T>;
  using P = const T*;
  check_tails<T>([](dim_t n, P a, P, T* y) { cpu::relu_forward(n, a, y); },
                 [](double a, double) { return a > 0 ? a : 0; }, 0);
  check_tails<T>([](dim_t n, P a, P b, T* y) { cpu::relu_backward(n, a, b, y); },
                 [](double a, double b) { return a > 0 ? b : 0; }, 0);
  check_tails<T>([](dim_t n, P a, P, T* y) { cpu::tanh_forward(n, a, y); },
                 [](double a, double) { return std::tanh(a); }, tolerance);
  check_tails<T>([](dim_t n, P a, P b, T* y) { cpu::tanh_backward(n, a, b, y); },
                 [](double a, double b) { return b * (1 - a * a); }, tolerance);
  check_tails<T>([](dim_t n, P a, P b, T* y) { cpu::sigmoid_backward(n, a, b, y); },
                 [](double a, double b) { return b * a * (1 - a); }, tolerance);
  check_tails<T>([](dim_t n, P a, P b, T* y) { cpu::silu_backward(n, a, b, y); },
                 [](double a, double b) {
                   const double e = 1 / (1 + std::exp(-a));
                   return b * e * (1 + a * (1 - e));
                 },
                 tolerance);
  check_tails<T>([](dim_t n, P a, P, T* y) { cpu::gelu_forward(n, a, y); },
                 [](double a, double) { return a * std::erfc(-a / std::sqrt(2.0)) / 2; },
                 tolerance);
  check_tails<T>([](dim_t n, P a, P b, T* y) { cpu::gelu_backward(n, a, b, y); },
                 [](double a, double b) {
                   return b * (std::erfc(-a / std::sqrt(2.0)) / 2 + a * normal_density(a));
                 },
                 tolerance);
  const double c = std::sqrt(2 / 3.14159265358979323846);
  const auto inner = [c](double a) { return std::tanh(c * (a + 0.044715 * a * a * a)); };
  check_tails<T>([](dim_t n, P a, P, T* y) { cpu::gelu_tanh_forward(n, a, y); },
                 [&](double a, double) { return a / 2 * (1 + inner(a)); }, tolerance);
  check_tails<T>([](dim_t n, P a, P b, T* y) { cpu::gelu_tanh_backward(n, a, b, y); },
                 [&](double a, double b) {
                   const double t = inner(a);
                   return b *
                          (0.5 * (1 + t) + a / 2 * (1 - t * t) * c * (1 + 3 * 0.044715 * a * a));
                 },
                 tolerance);
}

TEST_CASE_TEMPLATE("arithmetic on arrays, with every tail", T, float, double) {
  const double tolerance = 2 * rounding<T>;
  using P = const T*;
  check_tails<T>([](dim_t n, P a, P b, T* y) { cpu::add(n, a, b, y); },
                 [](double a, double b) { return a + b; }, tolerance);
  check_tails<T>([](dim_t n, P a, P b, T* y) { cpu::multiply(n, a, b, y); },
                 [](double a, double b) { return a * b; }, tolerance);
  check_tails<T>([](dim_t n, P a, P, T* y) { cpu::axpy(n, T(0.5), a, y); },
                 [](double a, double) { return 5 + a / 2; }, tolerance);
  check_tails<T>([](dim_t n, P, P, T* y) { cpu::scale(n, T(0.5), y); },
                 [](double, double) { return 2.5; }, 0);
  check_tails<T>([](dim_t n, P, P, T* y) { cpu::fill(n, y, T(-0.0)); },
                 [](double, double) { return 0.0; }, 0);
}

TEST_CASE_TEMPLATE("relu lets not-a-number through", T, float, double) {
  for_each_set([] {
    std::vector<T> x(37, std::numeric_limits<T>::quiet_NaN()), y(37);
    cpu::relu_forward<T>(37, x.data(), y.data());
    for (T v : y) CHECK(std::isnan(v));
  });
}

TEST_CASE_TEMPLATE("dropout keeps the same elements on every set, type and offset", T, float,
                   double) {
  const ikebana::random_stream stream(ikebana::seed{42}, ikebana::hash_path("drop"), 7);
  for_each_set([&] {
    for (double p : {0.0, 0.1, 0.5, 0.99, 1.0})
      for (dim_t n : {0, 1, 5, 63, 64, 65, 200, 1031})
        for (std::uint64_t offset :
             {std::uint64_t{0}, std::uint64_t{1}, std::uint64_t{67}, std::uint64_t{4096}}) {
          INFO("p " << p << " n " << n << " offset " << offset);
          const guarded<T> x(n, T(3));
          guarded<T> y(n);
          cpu::dropout(n, x.data(), y.data(), p, stream, offset);
          bool right = true;
          for (dim_t i = 0; i < n; ++i) {
            const std::uint64_t element = offset + static_cast<std::uint64_t>(i);
            const auto word = stream.words(static_cast<std::uint32_t>(element / 4))[element % 4];
            const bool kept = static_cast<double>(word) >= std::floor(p * 0x1p32);
            const T expected = kept ? T(3) * static_cast<T>(1 / (1 - p)) : T(0);
            right = right && y[i] == expected;
          }
          CHECK(right);
          CHECK(y.intact());
        }
  });
}
