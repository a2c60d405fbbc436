#pragma once

#include <array>
#include <cstddef>
#include <limits>
#include <string_view>

#include "ikebana/cpu/pointwise.hpp"
#include "ikebana/cpu/reduce.hpp"
#include "ikebana/module/context.hpp"
#include "ikebana/module/describe.hpp"
#include "ikebana/module/module.hpp"
#include "ikebana/module/parameter.hpp"
#include "ikebana/module/symbol.hpp"

namespace ikebana {

/// y = x where x > 0, else weight x, with one weight for all elements or, if N > 1, one for each
/// channel of [batch, N, ...] (He et al., Delving Deep into Rectifiers, 2015). Parameter: weight
/// (N), 0.25 at first, or `init`. O(elements); no allocation.
template <dim_t N = 1>
struct prelu {
  static_assert(N >= 1, "ikebana: prelu needs at least one parameter");

  static constexpr std::string_view kind = "prelu";
  static constexpr kept keeps = kept::input;

  double init = 0.25;

  constexpr inferred infer(const shape& in) const {
    if (N == 1) return in;
    if (in.rank() < 2)
      return diagnostic{
          "prelu expects an input of at least {expected} dimensions, got {got} (input {input})", 2,
          static_cast<dim_t>(in.rank()), in};
    if (in[1] >= 0 && in[1] != N)
      return diagnostic{"prelu expects {expected} channels, got {got} (input {input})", N, in[1],
                        in};
    return in;
  }

  constexpr std::array<parameter_spec, 1> parameters() const {
    return {parameter_spec{"weight", shape{N}, initializer::constant(init)}};
  }

  constexpr dim_t multiply_adds(const shape_list&, const shape_list&) const { return 0; }

  void describe(description& d) const { d.add("num_parameters", N); }

  template <class T>
  void forward(const context<T>& c) const {
    const T *x = c.input(), *slope = c.parameter(0);
    T* y = c.output();
    const dim_t each = plane(c.input_shape()), planes = c.input_shape().numel() / at_least_1(each);
    for (dim_t i = 0; i < planes; ++i, x += each, y += each) {
      const T a = slope[i % N];
      if (each >= short_plane)
        cpu::pointwise_forward<T>(cpu::pointwise::leaky_relu, each, a, T{}, T{}, x, y);
      else
        for (dim_t e = 0; e < each; ++e) y[e] = x[e] > 0 ? x[e] : a * x[e];
    }
  }

  template <class T>
  void backward(const context<T>& c) const {
    const T *slope = c.parameter(0), *dy = c.output_gradient();
    const T* x = c.input();
    T *dx = c.input_gradient(), *da = c.parameter_gradient(0);
    const dim_t each = plane(c.input_shape()), planes = c.input_shape().numel() / at_least_1(each);
    if (!c.accumulate())
      for (dim_t k = 0; k < N; ++k) da[k] = 0;
    for (dim_t i = 0; i < planes; ++i, x += each, dy += each) {
      const T a = slope[i % N];
      if (each < short_plane) {
        for (dim_t e = 0; e < each; ++e) {
          if (!(x[e] > 0)) da[i % N] += x[e] * dy[e];
          if (dx != nullptr) *dx++ = x[e] > 0 ? dy[e] : a * dy[e];
        }
        continue;
      }
      da[i % N] += sum_below_zero(each, x, dy);
      if (dx == nullptr) continue;
      cpu::pointwise_backward<T>(cpu::pointwise::leaky_relu, each, a, T{}, T{}, x, dy, dx);
      dx += each;
    }
  }

  template <class... X>
  constexpr auto operator()(const X&... x) const {
    return apply(*this, x...);
  }

 private:
  /// Planes of fewer elements are not worth calls of kernels.
  static constexpr dim_t short_plane = 16;

  static constexpr dim_t at_least_1(dim_t n) { return n < 1 ? 1 : n; }

  /// The number of adjacent elements with one weight.
  static constexpr dim_t plane(const shape& in) {
    return N == 1 ? in.numel() : in.numel(2, in.rank());
  }

  /// The sum of x dy where x is not positive.
  template <class T>
  static T sum_below_zero(dim_t n, const T* x, const T* dy) {
    constexpr dim_t block = 512;
    T below[block];
    double sum = 0;
    for (dim_t i = 0; i < n; i += block) {
      const dim_t count = n - i < block ? n - i : block;
      cpu::pointwise_forward<T>(cpu::pointwise::hardtanh, count,
                                -std::numeric_limits<T>::infinity(), T{0}, T{}, x + i, below);
      sum += static_cast<double>(cpu::dot<T>(count, below, dy + i));
    }
    return static_cast<T>(sum);
  }
};

}  // namespace ikebana
