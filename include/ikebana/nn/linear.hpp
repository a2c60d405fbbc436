#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

#include "ikebana/core/saturated.hpp"
#include "ikebana/cpu/dense_layers.hpp"
#include "ikebana/cpu/gemm.hpp"
#include "ikebana/cpu/reduce.hpp"
#include "ikebana/module/context.hpp"
#include "ikebana/module/describe.hpp"
#include "ikebana/module/extent.hpp"
#include "ikebana/module/module.hpp"
#include "ikebana/module/named.hpp"
#include "ikebana/module/option_set.hpp"
#include "ikebana/module/options.hpp"
#include "ikebana/module/parameter.hpp"
#include "ikebana/module/refusal.hpp"
#include "ikebana/module/symbol.hpp"
#include "ikebana/nn/detail/product.hpp"

namespace ikebana {

namespace detail {

// One body for all layers, whatever their sizes.

template <class Context>
[[gnu::noinline]] void linear_forward(const Context& c, dim_t out, bool has_bias) {
  using T = typename Context::value_type;
  const dim_t in = c.input_shape().back();
  const dim_t rows = c.input_shape().numel(0, c.input_shape().rank() - 1);
  product(c, cpu::transpose::no, cpu::transpose::yes, rows, out, in, c.input(), in, c.parameter(0),
          in, T{0}, c.output(), out,
          cpu::gemm_epilogue<T>{.bias = has_bias ? c.parameter(1) : nullptr,
                                .residual = c.residual(),
                                .ld_residual = out,
                                .function = c.function()});
}

template <class Context>
[[gnu::noinline]] void linear_backward(const Context& c, dim_t out, bool has_bias) {
  using T = typename Context::value_type;
  const dim_t in = c.input_shape().back();
  const dim_t rows = c.input_shape().numel(0, c.input_shape().rank() - 1);
  const T* dy = c.output_gradient();
  if (c.parameter_gradient(0) != nullptr) {
    product(c, cpu::transpose::yes, cpu::transpose::no, out, in, rows, dy, out, c.input(), in,
            c.accumulate() ? T{1} : T{0}, c.parameter_gradient(0), in);
    if (has_bias) cpu::column_sums<T>(rows, out, dy, out, c.parameter_gradient(1), c.accumulate());
  }
  if (c.input_gradient() == nullptr) return;
  cpu::gemm_epilogue<T> then;
  if (c.input_slope() != cpu::activation::none)
    then = {.slope_of = c.input(), .ld_slope = in, .slope = c.input_slope()};
  product(c, cpu::transpose::no, cpu::transpose::no, rows, in, out, dy, out, c.parameter(0), in,
          T{0}, c.input_gradient(), in, then);
}

}  // namespace detail

/// y = x W^T + b over the last dimension: [..., in_features] -> [..., out_features].
/// Parameters: weight (out_features, in_features), bias (out_features) unless bias<false>. In is a
/// number, `lazy` or `dynamic`. Options: bias<bool> (default true). O(rows * in_features *
/// out_features) multiply-adds; no allocation.
template <dim_t In, dim_t Out, class... Options>
struct linear {
  static_assert(detail::option_set<bias<true>>::accepts<Options...>,
                "ikebana: linear takes the option bias<bool>");
  static_assert(Out >= 0, "ikebana: linear needs out_features, a number");

  static constexpr std::string_view kind = "linear";
  static constexpr bool skips_parameter_gradients = true;
  static constexpr bool is_lazy = In == lazy;
  static constexpr kept keeps = kept::input;
  static constexpr bool takes_residual = true;
  static constexpr bool takes_function = true;
  static constexpr bool takes_slope = true;
  static constexpr bool is_layer = true;
  static constexpr bool is_affine_in_each_input = true;
  static constexpr bool adds_zeros = false;
  static constexpr bool has_bias = detail::option_or<bias<true>, Options...>::value;

  [[no_unique_address]] extent<In> in_features{};

  constexpr inferred infer(const shape& in) const {
    if (in.rank() == 0)
      return diagnostic{"linear expects an input of at least 1 dimension, got {input}", 1, 0, in};
    if (!fits(in_features.value(), in.back()))
      return diagnostic{"linear expects in_features = {expected}, got {got} (input {input})",
                        in_features.value(), in.back(), in};
    return in.with(in.rank() - 1, Out);
  }

  template <shape Input>
  constexpr auto become() const {
    return linear<Input.back(), Out, Options...>{};
  }

  constexpr void bind(const shape_list& in) { in_features.bind(in[0].back()); }
  constexpr void bind_state(std::span<const shape> parameters, std::span<const shape>) {
    in_features.bind(parameters[0][1]);
  }

  constexpr std::array<parameter_spec, has_bias ? 2 : 1> parameters() const {
    const dim_t in = in_features.value();
    const parameter_spec weight{"weight", shape{Out, in}, initializer::kaiming_uniform(in)};
    if constexpr (has_bias)
      return {weight, parameter_spec{"bias", shape{Out}, initializer::kaiming_uniform(in)}};
    else
      return {weight};
  }

  /// The same with a bias, into which inference folds a norm.
  constexpr auto with_bias() const {
    return linear<In, Out, detail::set_option<bias<true>, Options>...>{in_features};
  }

  constexpr dim_t multiply_adds(const shape_list& in, const shape_list&) const {
    return (saturated{in[0].numel()} * Out).value;
  }

  void describe(description& d) const {
    d.add("in_features", In == dynamic ? in_features.value() : In)
        .add("out_features", Out)
        .add("bias", has_bias);
  }

  template <class Context>
  void forward(const Context& c) const {
    detail::linear_forward(c, Out, has_bias);
  }

  /// The forward of several consecutive linear layers in one call.
  template <class T>
  static void forward_layers(const T* x, cpu::dense_chain<T>& chain, std::uint64_t stamp) {
    cpu::run_dense_chain<T>(x, chain, stamp);
  }

  template <class Context>
  void backward(const Context& c) const {
    detail::linear_backward(c, Out, has_bias);
  }

  template <class... X>
  constexpr auto operator()(const X&... x) const {
    return apply(*this, x...);
  }
};

// Refuses sizes in parentheses.
namespace detail::misuse {
IKEBANA_MISUSE(linear_takes_sizes_in_angle_brackets,
               "linear takes its sizes in angle brackets: linear<20, 32>{}, or lazy_linear<32>{}");
}  // namespace detail::misuse
template <class Misuse>
struct linear<0, 0, detail::no_module<Misuse>>;
template <bool Lazy = false>
linear(...)
    -> linear<0, 0, detail::no_module<detail::misuse::linear_takes_sizes_in_angle_brackets<Lazy>>>;

/// A linear module whose in_features are inferred from the first input.
template <dim_t Out, class... Options>
using lazy_linear = linear<lazy, Out, Options...>;

}  // namespace ikebana
