#pragma once

#include <array>
#include <cstddef>
#include <span>
#include <string_view>

#include "ikebana/core/saturated.hpp"
#include "ikebana/cpu/elementwise.hpp"
#include "ikebana/cpu/gemm.hpp"
#include "ikebana/cpu/reduce.hpp"
#include "ikebana/module/context.hpp"
#include "ikebana/module/describe.hpp"
#include "ikebana/module/extent.hpp"
#include "ikebana/module/module.hpp"
#include "ikebana/module/option_set.hpp"
#include "ikebana/module/options.hpp"
#include "ikebana/module/parameter.hpp"
#include "ikebana/nn/detail/product.hpp"
#include "ikebana/nn/linear.hpp"

namespace ikebana::detail {

/// A linear module with as many out_features as its second input has features. It becomes a
/// `linear` once that number is static. The second input is not read; its gradient is 0.
template <dim_t In, dim_t Out, class... Options>
struct linear_like {
  static constexpr std::string_view kind = "linear";
  static constexpr bool is_lazy = In == lazy || Out == lazy;
  static constexpr bool out_features_from_second_input = true;
  static constexpr kept keeps = kept::input;
  static constexpr bool has_bias = option_or<bias<true>, Options...>::value;

  [[no_unique_address]] extent<In> in_features{};
  [[no_unique_address]] extent<Out> out_features{};

  constexpr inferred infer(const shape& in, const shape& like) const {
    if (in.rank() == 0 || like.rank() == 0)
      return diagnostic{"linear expects an input of at least 1 dimension, got {input}", 1, 0, in};
    if (!fits(in_features.value(), in.back()))
      return diagnostic{"linear expects in_features = {expected}, got {got} (input {input})",
                        in_features.value(), in.back(), in};
    if (!fits(out_features.value(), like.back()))
      return diagnostic{"linear expects out_features = {expected}, got {got} (for {input})",
                        out_features.value(), like.back(), like};
    return in.with(in.rank() - 1, like.back());
  }

  template <shape Input, shape Like>
  constexpr auto become() const {
    if constexpr (Like.back() >= 0)
      return linear<Input.back(), Like.back(), Options...>{};
    else
      return linear_like<Input.back(), Like.back(), Options...>{};
  }

  constexpr void bind(const shape_list& in) {
    in_features.bind(in[0].back());
    out_features.bind(in[1].back());
  }
  constexpr void bind_state(std::span<const shape> parameters, std::span<const shape>) {
    out_features.bind(parameters[0][0]);
    in_features.bind(parameters[0][1]);
  }

  constexpr std::array<parameter_spec, has_bias ? 2 : 1> parameters() const {
    const dim_t in = in_features.value(), out = out_features.value();
    const parameter_spec weight{"weight", shape{out, in}, initializer::kaiming_uniform(in)};
    if constexpr (has_bias)
      return {weight, parameter_spec{"bias", shape{out}, initializer::kaiming_uniform(in)}};
    else
      return {weight};
  }

  constexpr dim_t multiply_adds(const shape_list& in, const shape_list&) const {
    return (saturated{in[0].numel()} * in[1].back()).value;
  }

  void describe(description& d) const {
    d.add("in_features", in_features.value())
        .add("out_features", out_features.value())
        .add("bias", has_bias);
  }

  template <class Context>
  void forward(const Context& c) const {
    using T = typename Context::value_type;
    const dim_t in = c.input_shape().back(), out = c.output_shape().back();
    const dim_t rows = c.input_shape().numel(0, c.input_shape().rank() - 1);
    product(c, cpu::transpose::no, cpu::transpose::yes, rows, out, in, c.input(), in,
            c.parameter(0), in, T{0}, c.output(), out, has_bias ? c.parameter(1) : nullptr);
  }

  template <class Context>
  void backward(const Context& c) const {
    using T = typename Context::value_type;
    const dim_t in = c.input_shape().back(), out = c.output_shape().back();
    const dim_t rows = c.input_shape().numel(0, c.input_shape().rank() - 1);
    const T* dy = c.output_gradient();
    product(c, cpu::transpose::yes, cpu::transpose::no, out, in, rows, dy, out, c.input(), in,
            c.accumulate() ? T{1} : T{0}, c.parameter_gradient(0), in);
    if constexpr (has_bias)
      cpu::column_sums<T>(rows, out, dy, out, c.parameter_gradient(1), c.accumulate());
    if (c.input_gradient() != nullptr)
      product(c, cpu::transpose::no, cpu::transpose::no, rows, in, out, dy, out, c.parameter(0), in,
              T{0}, c.input_gradient(), in);
    if (c.input_gradient(1) != nullptr)
      cpu::fill<T>(c.input_shape(1).numel(), c.input_gradient(1), T{0});
  }
};

}  // namespace ikebana::detail
