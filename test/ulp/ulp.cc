// The largest error of each elementary function in ulp, and where it occurs, for the instruction
// set in IKEBANA_ISA: over all floats, and for some millions of doubles of every magnitude.
// Derivatives (whose names end in ') that have roots are measured in ulp of 1. `ulp [stride
// [function]]`; stride 1, the default, takes every float.
//
// Floats are compared with the C library every 61st time, and wherever the double kernel, which is
// faster, indicates that the error may be the largest so far.
#include <bit>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <limits>
#include <type_traits>
#include <vector>

#include "ikebana/cpu/dispatch.hpp"
#include "ikebana/cpu/elementwise.hpp"

namespace cpu = ikebana::cpu;
using ikebana::dim_t;

namespace {

/// The type of the expected results.
template <class T>
using wide = std::conditional_t<sizeof(T) == 4, double, long double>;

template <class R>
R sigmoid(R x) {
  const R e = std::exp(-std::fabs(x));
  return (x < 0 ? e : 1) / (1 + e);
}
template <class R>
R normal(R x) {
  return std::erfc(-x * static_cast<R>(0.7071067811865475244008L)) / 2;
}
template <class R>
R twice_inner(R x) {
  return x * static_cast<R>(1.595769121605730711760L) * (1 + static_cast<R>(0.044715L) * x * x);
}

template <class T>
struct function {
  using R = wide<T>;
  const char* name;
  void (*computed)(dim_t, const T*, T*);
  R (*expected)(R);
  bool of_one = false;  ///< In ulp of 1.
};

/// A backward function of x, for a gradient of 1.
template <class T, void (*F)(dim_t, const T*, const T*, T*)>
void slope(dim_t n, const T* x, T* y) {
  const std::vector<T> ones(static_cast<std::size_t>(n), T(1));
  F(n, x, ones.data(), y);
}

template <class T>
const std::vector<function<T>>& functions() {
  using R = wide<T>;
  static const std::vector<function<T>> all = {
      {"exp", cpu::exp<T>, [](R x) { return std::exp(x); }},
      {"log", cpu::log<T>, [](R x) { return std::log(x); }},
      {"tanh", cpu::tanh_forward<T>, [](R x) { return std::tanh(x); }},
      {"sigmoid", cpu::sigmoid_forward<T>, [](R x) { return sigmoid(x); }},
      {"silu", cpu::silu_forward<T>, [](R x) { return x * sigmoid(x); }},
      {"erf", cpu::erf<T>, [](R x) { return std::erf(x); }},
      {"gelu", cpu::gelu_forward<T>, [](R x) { return x * normal(x); }},
      {"gelu_tanh", cpu::gelu_tanh_forward<T>, [](R x) { return x * sigmoid(twice_inner(x)); }},
      {"silu'", slope<T, cpu::silu_backward<T>>,
       [](R x) {
         const R s = sigmoid(x);
         return std::isinf(x) ? s : s * (1 + x * sigmoid(-x));
       },
       true},
      {"gelu'", slope<T, cpu::gelu_backward<T>>,
       [](R x) {
         const R density = static_cast<R>(0.3989422804014326779399L) * std::exp(-x * x / 2);
         return density == 0 ? normal(x) : normal(x) + x * density;
       },
       true},
      {"gelu_tanh'", slope<T, cpu::gelu_tanh_backward<T>>,
       [](R x) {
         const R s = sigmoid(twice_inner(x)), t = sigmoid(-twice_inner(x));
         const R inner =
             static_cast<R>(1.595769121605730711760L) * (1 + 3 * static_cast<R>(0.044715L) * x * x);
         return s * t == 0 ? s : s + x * s * t * inner;
       },
       true},
  };
  return all;
}

/// |got - expected| in ulp of a T of the size of `expected`.
template <class T>
double error_in_ulps(T got, wide<T> expected, bool of_one) {
  using limits = std::numeric_limits<T>;
  constexpr double never = std::numeric_limits<double>::infinity();
  if (std::isnan(expected)) return std::isnan(got) ? 0 : never;
  const bool overflows = std::fabs(expected) >=
                         std::ldexp(wide<T>(2) - limits::epsilon() / 2, limits::max_exponent - 1);
  if (std::isinf(got) || overflows)
    return std::isinf(got) && overflows && (got > 0) == (expected > 0) ? 0 : never;
  int e = expected == 0 ? limits::min_exponent - 1 : std::ilogb(expected);
  if (e < limits::min_exponent - 1) e = limits::min_exponent - 1;
  if (of_one) e = 0;
  return static_cast<double>(std::ldexp(std::fabs(got - expected), limits::digits - 1 - e));
}

/// Approximately the same for floats, in a fraction of the time; if in doubt, more.
double rough_error(float got, double expected, bool of_one) {
  const double gap = std::fabs(static_cast<double>(got) - expected);
  const auto bits = std::bit_cast<std::uint64_t>(of_one ? 1.0 : expected) >> 52 & 2047;
  const std::uint64_t exponent = bits < 897 ? 897 : bits;
  const double error = gap * std::bit_cast<double>((2046 + 23 - exponent) << 52);
  return error >= 0 && error < 1e9 ? error : 1e9;
}

template <class T>
void sweep(const function<T>& f, const function<double>& of_double, std::uint64_t count,
           std::uint64_t stride) {
  using bits_type = std::conditional_t<sizeof(T) == 4, std::uint32_t, std::uint64_t>;
  constexpr std::size_t chunk = 4096;
  std::vector<T> x(chunk), y(chunk);
  std::vector<double> wide_x(chunk), wide_y(chunk);
  double worst = 0;
  T at = 0;
  for (std::uint64_t done = 0, bits = 0; done < count;) {
    std::size_t n = 0;
    for (; n < chunk && done < count; ++n, ++done, bits += stride) {
      const auto word = static_cast<bits_type>(bits);
      std::memcpy(&x[n], &word, sizeof word);
    }
    f.computed(static_cast<dim_t>(n), x.data(), y.data());
    if constexpr (sizeof(T) == 4) {
      for (std::size_t i = 0; i < n; ++i) wide_x[i] = static_cast<double>(x[i]);
      of_double.computed(static_cast<dim_t>(n), wide_x.data(), wide_y.data());
    }
    for (std::size_t i = 0; i < n; ++i) {
      if constexpr (sizeof(T) == 4)
        if ((done - n + i) % 61 != 0 && rough_error(y[i], wide_y[i], f.of_one) < worst * 0.999)
          continue;
      const double e = error_in_ulps<T>(y[i], f.expected(static_cast<wide<T>>(x[i])), f.of_one);
      if (e > worst) {
        worst = e;
        at = x[i];
      }
    }
  }
  std::printf("%-6s %-10s %8.4f ulp at %a\n", sizeof(T) == 4 ? "float" : "double", f.name, worst,
              static_cast<double>(at));
  std::fflush(stdout);
}

template <class T>
void sweep_all(std::uint64_t count, std::uint64_t stride, const char* only) {
  for (std::size_t i = 0; i < functions<T>().size(); ++i) {
    const function<T>& f = functions<T>()[i];
    if (only == nullptr || std::strcmp(only, f.name) == 0)
      sweep(f, functions<double>()[i], count, stride);
  }
}

}  // namespace

int main(int argc, char** argv) {
  std::uint64_t stride = argc > 1 ? std::strtoull(argv[1], nullptr, 10) : 1;
  if (stride == 0) stride = 1;
  const char* const only = argc > 2 ? argv[2] : nullptr;
  std::printf("%s\n", cpu::name(cpu::active_instruction_set()));
  sweep_all<float>((std::uint64_t{1} << 32) / stride, stride, only);
  // Steps through all bit patterns by the golden section.
  sweep_all<double>((std::uint64_t{1} << 26) / stride, 0x9E3779B97F4A7C15U, only);
}
