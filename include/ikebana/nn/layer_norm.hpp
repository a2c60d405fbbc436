#pragma once

#include <array>
#include <cstddef>
#include <span>
#include <string_view>

#include "ikebana/cpu/layer_norm.hpp"
#include "ikebana/module/context.hpp"
#include "ikebana/module/describe.hpp"
#include "ikebana/module/module.hpp"
#include "ikebana/module/option_set.hpp"
#include "ikebana/module/options.hpp"
#include "ikebana/module/parameter.hpp"
#include "ikebana/module/symbol.hpp"
#include "ikebana/nn/detail/normalized.hpp"

namespace ikebana {

/// y = (x - mean) / sqrt(variance + eps) * weight + bias, with mean and (biased) variance computed
/// over the last dimensions of the input, those of Normalized: [..., normalized...] -> the same
/// shape (Ba, Kiros, Hinton, Layer Normalization, 2016). O(elements); no allocation.
///
/// Parameters: weight (normalized...), bias (normalized...) unless bias<false>; neither with
/// elementwise_affine<false>. Normalized is one extent, layer_norm<10>, or a shape,
/// layer_norm<shape{5, 7}>; each a number, `lazy` or `dynamic`. Options: elementwise_affine<bool>
/// (true), bias<bool> (true).
template <shape Normalized, class... Options>
struct layer_norm {
  static_assert(
      detail::option_set<elementwise_affine<true>, bias<true>>::template accepts<Options...>,
      "ikebana: layer norm takes the options elementwise_affine and bias, each once");
  static_assert(Normalized.rank() > 0, "ikebana: layer norm needs at least one extent");

  static constexpr std::string_view kind = "layer_norm";
  static constexpr bool skips_parameter_gradients = true;
  static constexpr bool is_lazy = detail::has_lazy(Normalized);
  static constexpr kept keeps = kept::input;
  static constexpr bool adds_before = true;
  static constexpr bool is_affine = detail::option_or<elementwise_affine<true>, Options...>::value;
  static constexpr bool has_bias = is_affine && detail::option_or<bias<true>, Options...>::value;

  double eps = 1e-5;
  [[no_unique_address]] detail::normalized<Normalized> normalized_shape{};

  constexpr inferred infer(const shape& in) const {
    const diagnostic wrong = detail::check_normalized<"layer_norm">(normalized_shape.value(), in);
    if (!wrong.ok()) return wrong;
    return in;
  }

  template <shape Input>
  constexpr auto become() const {
    return layer_norm<detail::last_extents(Input, Normalized.rank()), Options...>{eps, {}};
  }

  constexpr void bind(const shape_list& in) {
    normalized_shape.bind(detail::last_extents(in[0], Normalized.rank()));
  }

  constexpr void bind_state(std::span<const shape> parameters, std::span<const shape>) {
    if (is_affine) normalized_shape.bind(parameters[0]);
  }

  constexpr std::array<parameter_spec, has_bias ? 2 : 1> parameters() const requires(is_affine) {
    const parameter_spec weight{"weight", normalized_shape.value(), initializer::constant(1)};
    if constexpr (has_bias)
      return {weight, parameter_spec{"bias", normalized_shape.value(), initializer::constant(0)}};
    else
      return {weight};
  }

  /// Means and 1 / sqrt(variance + eps).
  constexpr std::array<saved_spec, 2> saved(const shape_list& in) const {
    const saved_spec each{0, shape{in[0].numel(0, in[0].rank() - Normalized.rank())}};
    return {each, each};
  }

  constexpr dim_t multiply_adds(const shape_list& in, const shape_list&) const {
    return in[0].numel();
  }

  void describe(description& d) const {
    detail::add_normalized(d, normalized_shape.value());
    d.add("eps", eps).add("elementwise_affine", is_affine);
    if (is_affine) d.add("bias", has_bias);
  }

  template <class T>
  void forward(const context<T>& c) const {
    const detail::row_sizes n(c.input_shape(), Normalized.rank());
    const T* const gamma = is_affine ? c.parameter(0) : nullptr;
    const T* const beta = has_bias ? c.parameter(1) : nullptr;
    if (c.residual() != nullptr)
      cpu::add_layer_norm_forward<T>(n.rows, n.each, c.input(), c.residual(), c.summed_input(),
                                     gamma, beta, static_cast<T>(eps), c.output(),
                                     c.template saved<T>(0), c.template saved<T>(1));
    else
      cpu::layer_norm_forward<T>(n.rows, n.each, 1, c.input(), gamma, beta, static_cast<T>(eps),
                                 c.output(), c.template saved<T>(0), c.template saved<T>(1));
  }

  template <class T>
  void backward(const context<T>& c) const {
    const detail::row_sizes n(c.input_shape(), Normalized.rank());
    cpu::layer_norm_backward<T>(n.rows, n.each, 1, c.input(), c.output_gradient(),
                                is_affine ? c.parameter(0) : nullptr, c.template saved<T>(0),
                                c.template saved<T>(1), c.input_gradient(),
                                is_affine ? c.parameter_gradient(0) : nullptr,
                                has_bias ? c.parameter_gradient(1) : nullptr, c.accumulate());
  }

  template <class... X>
  constexpr auto operator()(const X&... x) const {
    return apply(*this, x...);
  }
};

/// A layer norm over the last dimension, whose extent is inferred from the first input.
template <class... Options>
using lazy_layer_norm = layer_norm<lazy, Options...>;

}  // namespace ikebana
