#pragma once

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string_view>

#include "ikebana/module/context.hpp"
#include "ikebana/module/describe.hpp"
#include "ikebana/module/module.hpp"
#include "ikebana/module/symbol.hpp"
#include "ikebana/nn/detail/spatial.hpp"
#include "ikebana/nn/dropout.hpp"

// Dropout of whole channels, and dropout that keeps mean and variance of self-normalising networks.
// In evaluation they change nothing. Masks are functions of seed, path, step and index, as those of
// dropout. O(elements); no allocation.
namespace ikebana {

namespace detail {

/// What forward computes of an element: scale x + shift if it is kept, else `dropped`.
struct dropout_values {
  double scale, shift, dropped;

  static dropout_values zeros(double p) { return {p < 1 ? 1 / (1 - p) : 0, 0, 0}; }

  /// Klambauer et al., Self-Normalizing Neural Networks, 2017: what is dropped becomes the lower
  /// bound of selu, and a linear function restores mean and variance.
  static dropout_values alpha(double p) {
    if (p == 1) return {0, 0, 0};
    constexpr double bound = -1.7580993408473766;
    const double a = 1 / std::sqrt((1 - p) * (1 + p * bound * bound));
    const double b = -a * p * bound;
    return {a, b, a * bound + b};
  }
};

/// Drops blocks of `each` elements, block i by word i of the module's random stream. Gradients have
/// neither shift nor a value where dropped.
template <class T>
void drop_blocks(const context<T>& c, double p, dim_t each, dropout_values v, const T* from,
                 T* to) {
  const dim_t n = c.output_shape().numel();
  if (!c.training() || p <= 0) {
    if (n > 0 && from != to) std::memcpy(to, from, static_cast<std::size_t>(n) * sizeof(T));
    return;
  }
  const auto scale = static_cast<T>(v.scale), shift = static_cast<T>(v.shift),
             dropped = static_cast<T>(v.dropped);
  const dim_t blocks = each > 0 ? n / each : 0;
  philox4x32::counter_type words{};
  for (dim_t i = 0; i < blocks; ++i, from += each, to += each) {
    if (i % 4 == 0) words = c.random().words(static_cast<std::uint32_t>(i / 4));
    if (words[static_cast<std::size_t>(i % 4)] >= p * 0x1p32)
      for (dim_t e = 0; e < each; ++e) to[e] = scale * from[e] + shift;
    else
      for (dim_t e = 0; e < each; ++e) to[e] = dropped;
  }
}

template <class T>
void drop_blocks_backward(const context<T>& c, double p, dim_t each, dropout_values v) {
  if (c.input_gradient() != nullptr)
    drop_blocks<T>(c, p, each, {v.scale, 0, 0}, c.output_gradient(), c.input_gradient());
}

}  // namespace detail

/// Drops whole channels of [N, C, spatial...] or unbatched [C, spatial...] with probability p and
/// scales the others by 1 / (1 - p) (Tompson et al., Efficient Object Localization Using
/// Convolutional Networks, 2015).
template <std::size_t Spatial>
struct channel_dropout {
  static constexpr std::string_view kind = detail::joined<"dropout", detail::digit<Spatial>, "d">;
  static constexpr kept keeps = kept::nothing;
  static constexpr bool is_random = true;
  static constexpr bool in_place = true;
  static constexpr bool is_identity_in_evaluation = true;

  probability p = 0.5;

  constexpr inferred infer(const shape& in) const {
    if (in.rank() != Spatial + 1 && in.rank() != Spatial + 2)
      return diagnostic{
          detail::joined<"dropout", detail::digit<Spatial>, "d expects an input of ",
                         detail::digit<Spatial + 1>, " (unbatched) or ", detail::digit<Spatial + 2>,
                         " dimensions, got {got} (input {input})">,
          Spatial + 2, static_cast<dim_t>(in.rank()), in};
    return in;
  }
  constexpr dim_t multiply_adds(const shape_list&, const shape_list&) const { return 0; }

  void describe(description& d) const { d.add("p", static_cast<double>(p)); }

  template <class T>
  void forward(const context<T>& c) const {
    detail::drop_blocks<T>(c, p, each(c.input_shape()), detail::dropout_values::zeros(p), c.input(),
                           c.output());
  }

  template <class T>
  void backward(const context<T>& c) const {
    detail::drop_blocks_backward<T>(c, p, each(c.input_shape()), detail::dropout_values::zeros(p));
  }

  template <class... X>
  constexpr auto operator()(const X&... x) const {
    return apply(*this, x...);
  }

 private:
  static dim_t each(const shape& in) { return in.numel(in.rank() - Spatial, in.rank()); }
};

using dropout1d = channel_dropout<1>;
using dropout2d = channel_dropout<2>;
using dropout3d = channel_dropout<3>;

/// Replaces elements with probability p by the lower bound of selu, and restores mean and variance
/// of all by a linear function (Klambauer et al., Self-Normalizing Neural Networks, 2017).
struct alpha_dropout {
  static constexpr std::string_view kind = "alpha_dropout";
  static constexpr kept keeps = kept::nothing;
  static constexpr bool is_random = true;
  static constexpr bool in_place = true;
  static constexpr bool is_identity_in_evaluation = true;

  probability p = 0.5;

  constexpr inferred infer(const shape& in) const { return in; }
  constexpr dim_t multiply_adds(const shape_list&, const shape_list&) const { return 0; }

  void describe(description& d) const { d.add("p", static_cast<double>(p)); }

  template <class T>
  void forward(const context<T>& c) const {
    detail::drop_blocks<T>(c, p, 1, detail::dropout_values::alpha(p), c.input(), c.output());
  }

  template <class T>
  void backward(const context<T>& c) const {
    detail::drop_blocks_backward<T>(c, p, 1, detail::dropout_values::alpha(p));
  }

  template <class... X>
  constexpr auto operator()(const X&... x) const {
    return apply(*this, x...);
  }
};

/// alpha_dropout of whole channels of [N, C, ...].
struct feature_alpha_dropout {
  static constexpr std::string_view kind = "feature_alpha_dropout";
  static constexpr kept keeps = kept::nothing;
  static constexpr bool is_random = true;
  static constexpr bool in_place = true;
  static constexpr bool is_identity_in_evaluation = true;

  probability p = 0.5;

  constexpr inferred infer(const shape& in) const {
    if (in.rank() < 2)
      return diagnostic{
          "feature_alpha_dropout expects an input of at least {expected} dimensions, got {got} "
          "(input {input})",
          2, static_cast<dim_t>(in.rank()), in};
    return in;
  }
  constexpr dim_t multiply_adds(const shape_list&, const shape_list&) const { return 0; }

  void describe(description& d) const { d.add("p", static_cast<double>(p)); }

  template <class T>
  void forward(const context<T>& c) const {
    detail::drop_blocks<T>(c, p, each(c.input_shape()), detail::dropout_values::alpha(p), c.input(),
                           c.output());
  }

  template <class T>
  void backward(const context<T>& c) const {
    detail::drop_blocks_backward<T>(c, p, each(c.input_shape()), detail::dropout_values::alpha(p));
  }

  template <class... X>
  constexpr auto operator()(const X&... x) const {
    return apply(*this, x...);
  }

 private:
  static dim_t each(const shape& in) { return in.numel(2, in.rank()); }
};

}  // namespace ikebana
