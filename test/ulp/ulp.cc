// The greatest error of each elementary function over all floats, in units in the last place, and
// where it is: for the instruction set that IKEBANA_ISA names. `ulp [stride [function]]`; stride 1,
// the default, takes every float.
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <limits>
#include <vector>

#include "ikebana/cpu/dispatch.hpp"
#include "ikebana/cpu/elementwise.hpp"

namespace cpu = ikebana::cpu;
using ikebana::dim_t;

namespace {

double sigmoid(double x) {
  const double e = std::exp(-std::fabs(x));
  return (x < 0 ? e : 1) / (1 + e);
}

struct function {
  const char* name;
  void (*computed)(dim_t, const float*, float*);
  double (*reference)(double);
};

const function functions[] = {
    {"exp", cpu::exp<float>, [](double x) { return std::exp(x); }},
    {"log", cpu::log<float>, [](double x) { return std::log(x); }},
    {"tanh", cpu::tanh_forward<float>, [](double x) { return std::tanh(x); }},
    {"sigmoid", cpu::sigmoid_forward<float>, sigmoid},
    {"silu", cpu::silu_forward<float>, [](double x) { return x * sigmoid(x); }},
    {"erf", cpu::erf<float>, [](double x) { return std::erf(x); }},
    {"gelu", cpu::gelu_forward<float>,
     [](double x) { return x * (0.5 * std::erfc(-x * 0.70710678118654752440)); }},
    {"gelu_tanh", cpu::gelu_tanh_forward<float>,
     [](double x) {
       return x * sigmoid(x * (1.59576912160573071176 + 0.07135481627260024878 * x * x));
     }},
};

double power_of_two(int e) {
  const std::uint64_t bits = static_cast<std::uint64_t>(e + 1023) << 52;
  double x;
  std::memcpy(&x, &bits, sizeof x);
  return x;
}

/// |got - expected| in units in the last place of a float of the size of `expected`.
double error_in_ulps(float got, double expected) {
  constexpr double never = std::numeric_limits<double>::infinity();
  if (std::isnan(expected)) return std::isnan(got) ? 0 : never;
  const bool overflows = std::fabs(expected) >= 0x1.ffffffp127;
  if (std::isinf(got) || overflows)
    return std::isinf(got) && overflows && (got > 0) == (expected > 0) ? 0 : never;
  std::uint64_t bits;
  std::memcpy(&bits, &expected, sizeof bits);
  int e = static_cast<int>(bits >> 52 & 2047) - 1023;
  if (e < -126) e = -126;
  return std::fabs(static_cast<double>(got) - expected) * power_of_two(23 - e);
}

void sweep(const function& f, std::uint64_t stride) {
  constexpr std::uint64_t end = std::uint64_t{1} << 32, chunk = 4096;
  std::vector<float> x(chunk), y(chunk);
  double worst = 0;
  float at = 0;
  for (std::uint64_t bits = 0; bits < end;) {
    std::size_t n = 0;
    for (; n < chunk && bits < end; ++n, bits += stride) {
      const auto word = static_cast<std::uint32_t>(bits);
      std::memcpy(&x[n], &word, sizeof word);
    }
    f.computed(static_cast<dim_t>(n), x.data(), y.data());
    for (std::size_t i = 0; i < n; ++i) {
      const double e = error_in_ulps(y[i], f.reference(static_cast<double>(x[i])));
      if (e > worst) {
        worst = e;
        at = x[i];
      }
    }
  }
  std::printf("%-10s %8.4f ulp at %a\n", f.name, worst, static_cast<double>(at));
  std::fflush(stdout);
}

}  // namespace

int main(int argc, char** argv) {
  const std::uint64_t stride = argc > 1 ? std::strtoull(argv[1], nullptr, 10) : 1;
  std::printf("%s\n", cpu::name(cpu::active_instruction_set()));
  for (const function& f : functions)
    if (argc <= 2 || std::strcmp(argv[2], f.name) == 0) sweep(f, stride == 0 ? 1 : stride);
}
