#pragma once

#include <array>
#include <cmath>
#include <cstddef>
#include <string_view>

#include "ikebana/cpu/elementwise.hpp"
#include "ikebana/module/context.hpp"
#include "ikebana/module/describe.hpp"
#include "ikebana/module/module.hpp"
#include "ikebana/module/parameter.hpp"
#include "ikebana/module/symbol.hpp"

namespace ikebana {

/// y = x / (k + alpha / Size * sum of x^2 over Size neighbouring channels)^beta, for [N, C, ...]
/// (Krizhevsky et al., ImageNet Classification with Deep Convolutional Neural Networks, 2012). The
/// channels of y[c] are c - Size / 2 to c + (Size - 1) / 2, those beyond the ends left out.
/// O(elements * Size); no allocation.
template <dim_t Size>
struct local_response_norm {
  static_assert(Size >= 1, "ikebana: local_response_norm takes at least one channel");

  static constexpr std::string_view kind = "local_response_norm";
  static constexpr kept keeps = kept::both;

  double alpha = 1e-4;
  double beta = 0.75;
  double k = 1;

  constexpr inferred infer(const shape& in) const {
    if (in.rank() < 3)
      return diagnostic{
          "local_response_norm expects an input of at least {expected} dimensions, got {got} "
          "(input {input})",
          3, static_cast<dim_t>(in.rank()), in};
    return in;
  }

  /// The denominators before the power; in backward, one channel's sums.
  constexpr std::array<saved_spec, 2> saved(const shape_list& in) const {
    return {saved_spec{0, in[0]}, saved_spec{0, shape{in[0].numel(2, in[0].rank())}}};
  }

  constexpr dim_t multiply_adds(const shape_list&, const shape_list&) const { return 0; }

  void describe(description& d) const {
    d.add("size", Size).add("alpha", alpha).add("beta", beta).add("k", k);
  }

  template <class T>
  void forward(const context<T>& c) const {
    const shape& in = c.input_shape();
    const dim_t channels = in[1], each = in.numel(2, in.rank()), image = channels * each;
    const T* x = c.input();
    T *y = c.output(), *base = c.template saved<T>(0);
    const T scale = static_cast<T>(alpha / static_cast<double>(Size));
    for (dim_t n = 0; n < in[0]; ++n, x += image, y += image, base += image) {
      // y holds the squares until the sums are made.
      cpu::multiply<T>(image, x, x, y);
      cpu::fill<T>(image, base, static_cast<T>(k));
      for (dim_t to = 0; to < channels; ++to)
        for_each_neighbour(to, channels, before, after, [&](dim_t from) {
          cpu::axpy<T>(each, scale, y + from * each, base + to * each);
        });
      power(image, base, -beta, y);
      cpu::multiply<T>(image, x, y, y);
    }
  }

  /// dx = dy / base^beta - 2 alpha beta / Size x (the sum over the channels that x is in of dy y /
  /// base).
  template <class T>
  void backward(const context<T>& c) const {
    T* dx = c.input_gradient();
    if (dx == nullptr) return;
    const shape& in = c.input_shape();
    const dim_t channels = in[1], each = in.numel(2, in.rank()), image = channels * each;
    const T *x = c.input(), *y = c.output(), *dy = c.output_gradient(),
            *base = c.template saved<T>(0);
    T* const sums = c.template saved<T>(1);
    const T scale = static_cast<T>(-2 * alpha * beta / static_cast<double>(Size));
    for (dim_t n = 0; n < in[0];
         ++n, x += image, y += image, dy += image, dx += image, base += image)
      for (dim_t at = 0; at < channels; ++at) {
        cpu::fill<T>(each, sums, T(0));
        for_each_neighbour(at, channels, after, before, [&](dim_t from) {
          const T *const g = dy + from * each, *const o = y + from * each,
                         *const b = base + from * each;
          for (dim_t i = 0; i < each; ++i) sums[i] += g[i] * o[i] / b[i];
        });
        T* const to = dx + at * each;
        power(each, base + at * each, -beta, to);
        cpu::multiply<T>(each, dy + at * each, to, to);
        cpu::multiply<T>(each, x + at * each, sums, sums);
        cpu::axpy<T>(each, scale, sums, to);
      }
  }

  template <class... X>
  constexpr auto operator()(const X&... x) const {
    return apply(*this, x...);
  }

 private:
  static constexpr dim_t before = Size / 2, after = (Size - 1) / 2;

  template <class F>
  static void for_each_neighbour(dim_t at, dim_t channels, dim_t down, dim_t up, const F& f) {
    const dim_t last = at + up < channels ? at + up : channels - 1;
    for (dim_t from = at < down ? 0 : at - down; from <= last; ++from) f(from);
  }

  /// y = x^exponent of positive x.
  template <class T>
  static void power(dim_t n, const T* x, double exponent, T* y) {
    cpu::log<T>(n, x, y);
    cpu::scale<T>(n, static_cast<T>(exponent), y);
    cpu::exp<T>(n, y, y);
  }
};

}  // namespace ikebana
