#pragma once

#include <array>
#include <cstddef>
#include <limits>
#include <optional>
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

/// y = x / sqrt(mean of x^2 + eps) * weight, with the mean over the last dimensions of the input,
/// those of Normalized: [..., normalized...] -> the same shape (Zhang, Sennrich, Root Mean Square
/// Layer Normalization, 2019). If eps is not set, it is the machine epsilon of the element type, as
/// in PyTorch's RMSNorm. O(elements); no allocation.
///
/// Parameters: weight (normalized...) unless elementwise_affine<false>. Normalized is one extent,
/// rms_norm<10>, or a shape, rms_norm<shape{5, 7}>; each a number, `lazy` or `dynamic`. Option:
/// elementwise_affine<bool> (true).
template <shape Normalized, class... Options>
struct rms_norm {
  static_assert(detail::option_set<elementwise_affine<true>>::template accepts<Options...>,
                "ikebana: rms norm takes the option elementwise_affine<bool>");
  static_assert(Normalized.rank() > 0, "ikebana: rms norm needs at least one extent");

  static constexpr std::string_view kind = "rms_norm";
  static constexpr bool is_lazy = detail::has_lazy(Normalized);
  static constexpr kept keeps = kept::input;
  static constexpr bool adds_before = true;
  static constexpr bool is_affine = detail::option_or<elementwise_affine<true>, Options...>::value;

  std::optional<double> eps{};
  [[no_unique_address]] detail::normalized<Normalized> normalized_shape{};

  constexpr inferred infer(const shape& in) const {
    const diagnostic wrong = detail::check_normalized<"rms_norm">(normalized_shape.value(), in);
    if (!wrong.ok()) return wrong;
    return in;
  }

  template <shape Input>
  constexpr auto become() const {
    return rms_norm<detail::last_extents(Input, Normalized.rank()), Options...>{eps, {}};
  }

  constexpr void bind(const shape_list& in) {
    normalized_shape.bind(detail::last_extents(in[0], Normalized.rank()));
  }

  constexpr void bind_state(std::span<const shape> parameters, std::span<const shape>) {
    if (is_affine) normalized_shape.bind(parameters[0]);
  }

  constexpr std::array<parameter_spec, 1> parameters() const requires(is_affine) {
    return {parameter_spec{"weight", normalized_shape.value(), initializer::constant(1)}};
  }

  /// 1 / sqrt(mean of x^2 + eps).
  constexpr std::array<saved_spec, 1> saved(const shape_list& in) const {
    return {saved_spec{0, shape{in[0].numel(0, in[0].rank() - Normalized.rank())}}};
  }

  constexpr dim_t multiply_adds(const shape_list& in, const shape_list&) const {
    return in[0].numel();
  }

  void describe(description& d) const {
    detail::add_normalized(d, normalized_shape.value());
    if (eps)
      d.add("eps", *eps);
    else
      d.add("eps", std::string_view{"epsilon"});
    d.add("elementwise_affine", is_affine);
  }

  template <class T>
  void forward(const context<T>& c) const {
    const detail::row_sizes n(c.input_shape(), Normalized.rank());
    const T epsilon = eps ? static_cast<T>(*eps) : std::numeric_limits<T>::epsilon();
    const T* const gamma = is_affine ? c.parameter(0) : nullptr;
    if (c.residual() != nullptr)
      cpu::add_rms_norm_forward<T>(n.rows, n.each, c.input(), c.residual(), c.summed_input(), gamma,
                                   epsilon, c.output(), c.template saved<T>(0));
    else
      cpu::rms_norm_forward<T>(n.rows, n.each, c.input(), gamma, epsilon, c.output(),
                               c.template saved<T>(0));
  }

  template <class T>
  void backward(const context<T>& c) const {
    const detail::row_sizes n(c.input_shape(), Normalized.rank());
    cpu::rms_norm_backward<T>(n.rows, n.each, c.input(), c.output_gradient(),
                              is_affine ? c.parameter(0) : nullptr, c.template saved<T>(0),
                              c.input_gradient(), is_affine ? c.parameter_gradient(0) : nullptr,
                              c.accumulate());
  }

  template <class... X>
  constexpr auto operator()(const X&... x) const {
    return apply(*this, x...);
  }
};

/// An rms norm over the last dimension, whose extent is inferred from the first input.
template <class... Options>
using lazy_rms_norm = rms_norm<lazy, Options...>;

}  // namespace ikebana
