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
#include "ikebana/module/symbol.hpp"
#include "ikebana/nn/detail/product.hpp"

namespace ikebana {

/// y_o = x1^T W_o x2 + b_o over the last dimensions of two inputs: [..., in1_features] and [...,
/// in2_features] -> [..., out_features]. Parameters: weight (out_features, in1_features,
/// in2_features), bias (out_features) unless bias<false>. In1 and In2 are numbers, `lazy` or
/// `dynamic`. Options: bias<bool> (default true). O(rows * in1 * in2 * out) multiply-adds; scratch
/// for a block of 64 rows; no allocation.
template <dim_t In1, dim_t In2, dim_t Out, class... Options>
struct bilinear {
  static_assert(detail::option_set<bias<true>>::accepts<Options...>,
                "ikebana: bilinear takes the option bias<bool>");
  static_assert(Out >= 0, "ikebana: bilinear needs out_features, a number");

  static constexpr std::string_view kind = "bilinear";
  static constexpr bool is_lazy = In1 == lazy || In2 == lazy;
  static constexpr kept keeps = kept::input;
  static constexpr std::array<std::string_view, 2> input_names{"input1", "input2"};
  static constexpr bool has_bias = detail::option_or<bias<true>, Options...>::value;

  [[no_unique_address]] extent<In1> in1_features{};
  // A type distinct from in1_features', so that [[no_unique_address]] removes both.
  struct second : extent<In2> {};
  [[no_unique_address]] second in2_features{};

  constexpr inferred infer(const shape& in1, const shape& in2) const {
    if (in1.rank() == 0 || in1.rank() != in2.rank())
      return diagnostic{
          "bilinear expects inputs of equally many dimensions, at least 1, got "
          "{input} and {other}",
          static_cast<dim_t>(in1.rank()), static_cast<dim_t>(in2.rank()), in1, in2};
    shape out = in1.with(in1.rank() - 1, Out);
    for (std::size_t i = 0; i + 1 < in1.rank(); ++i) {
      if (!fits(in1[i], in2[i]))
        return diagnostic{
            "bilinear expects inputs that differ in the last dimension alone, got "
            "{input} and {other}",
            in1[i], in2[i], in1, in2};
      if (out[i] < 0) out[i] = in2[i];
    }
    if (!fits(in1_features.value(), in1.back()))
      return diagnostic{"bilinear expects in1_features = {expected}, got {got} (input {input})",
                        in1_features.value(), in1.back(), in1};
    if (!fits(in2_features.value(), in2.back()))
      return diagnostic{"bilinear expects in2_features = {expected}, got {got} (input {input})",
                        in2_features.value(), in2.back(), in2};
    return out;
  }

  template <shape Input1, shape Input2>
  constexpr auto become() const {
    return bilinear<Input1.back(), Input2.back(), Out, Options...>{};
  }

  constexpr void bind(const shape_list& in) {
    in1_features.bind(in[0].back());
    in2_features.bind(in[1].back());
  }

  constexpr void bind_state(std::span<const shape> parameters, std::span<const shape>) {
    in1_features.bind(parameters[0][1]);
    in2_features.bind(parameters[0][2]);
  }

  /// PyTorch's bound: 1 / sqrt(in1_features), for the bias as well.
  constexpr std::array<parameter_spec, has_bias ? 2 : 1> parameters() const {
    const dim_t in1 = in1_features.value();
    const parameter_spec weight{"weight", shape{Out, in1, in2_features.value()},
                                initializer::kaiming_uniform(in1)};
    if constexpr (has_bias)
      return {weight, parameter_spec{"bias", shape{Out}, initializer::kaiming_uniform(in1)}};
    else
      return {weight};
  }

  /// Scratch for one block of rows.
  constexpr std::array<saved_spec, 1> saved(const shape_list& in) const {
    const dim_t rows = in[0].numel(0, in[0].rank() - 1);
    return {saved_spec{0, shape{rows >= 0 && rows < block ? rows : block, in[1].back()}}};
  }

  constexpr dim_t multiply_adds(const shape_list& in, const shape_list&) const {
    return (saturated{in[0].numel()} * (in[1].back() + 1) * Out).value;
  }

  void describe(description& d) const {
    d.add("in1_features", In1 == dynamic ? in1_features.value() : In1)
        .add("in2_features", In2 == dynamic ? in2_features.value() : In2)
        .add("out_features", Out)
        .add("bias", has_bias);
  }

  template <class Context>
  void forward(const Context& c) const {
    using T = typename Context::value_type;
    const sizes n(c);
    T* const xw = c.template saved<T>(0);
    for (dim_t first = 0; first < n.rows; first += block) {
      const dim_t rows = n.rows - first < block ? n.rows - first : block;
      const T *x1 = c.input(0) + first * n.in1, *x2 = c.input(1) + first * n.in2;
      T* const y = c.output() + first * Out;
      for (dim_t o = 0; o < Out; ++o) {
        detail::product(c, cpu::transpose::no, cpu::transpose::no, rows, n.in2, n.in1, x1, n.in1,
                        c.parameter(0) + o * n.in1 * n.in2, n.in2, T{0}, xw, n.in2);
        const T b = has_bias ? c.parameter(1)[o] : T{0};
        for (dim_t r = 0; r < rows; ++r)
          y[r * Out + o] = cpu::dot<T>(n.in2, xw + r * n.in2, x2 + r * n.in2) + b;
      }
    }
  }

  template <class Context>
  void backward(const Context& c) const {
    using T = typename Context::value_type;
    const sizes n(c);
    const T* const dy = c.output_gradient();
    T* const scratch = c.template saved<T>(0);
    if (Out == 0) {
      if (c.input_gradient(0) != nullptr) cpu::fill<T>(n.rows * n.in1, c.input_gradient(0), T{0});
      if (c.input_gradient(1) != nullptr) cpu::fill<T>(n.rows * n.in2, c.input_gradient(1), T{0});
      return;
    }
    if constexpr (has_bias)
      cpu::column_sums<T>(n.rows, Out, dy, Out, c.parameter_gradient(1), c.accumulate());
    // Runs once even without rows, so that the weight's gradient is set to zero.
    dim_t first = 0;
    do {
      const dim_t rows = n.rows - first < block ? n.rows - first : block;
      const T *x1 = c.input(0) + first * n.in1, *x2 = c.input(1) + first * n.in2;
      const T* const g = dy + first * Out;
      for (dim_t o = 0; o < Out; ++o) {
        const T* const w = c.parameter(0) + o * n.in1 * n.in2;
        for (dim_t r = 0; r < rows; ++r)
          for (dim_t j = 0; j < n.in2; ++j)
            scratch[r * n.in2 + j] = g[r * Out + o] * x2[r * n.in2 + j];
        detail::product(c, cpu::transpose::yes, cpu::transpose::no, n.in1, n.in2, rows, x1, n.in1,
                        scratch, n.in2, c.accumulate() || first > 0 ? T{1} : T{0},
                        c.parameter_gradient(0) + o * n.in1 * n.in2, n.in2);
        if (T* const dx1 = c.input_gradient(0); dx1 != nullptr)
          detail::product(c, cpu::transpose::no, cpu::transpose::yes, rows, n.in1, n.in2, scratch,
                          n.in2, w, n.in2, o > 0 ? T{1} : T{0}, dx1 + first * n.in1, n.in1);
        if (T* const dx2 = c.input_gradient(1); dx2 != nullptr) {
          detail::product(c, cpu::transpose::no, cpu::transpose::no, rows, n.in2, n.in1, x1, n.in1,
                          w, n.in2, T{0}, scratch, n.in2);
          if (o == 0) cpu::fill<T>(rows * n.in2, dx2 + first * n.in2, T{0});
          for (dim_t r = 0; r < rows; ++r)
            cpu::axpy<T>(n.in2, g[r * Out + o], scratch + r * n.in2, dx2 + (first + r) * n.in2);
        }
      }
      first += block;
    } while (first < n.rows);
  }

  template <class... X>
  constexpr auto operator()(const X&... x) const {
    return apply(*this, x...);
  }

 private:
  /// Rows processed per pass.
  static constexpr dim_t block = 64;

  struct sizes {
    dim_t rows, in1, in2;
    template <class T>
    explicit sizes(const context<T>& c)
        : rows{c.input_shape(0).numel(0, c.input_shape(0).rank() - 1)},
          in1{c.input_shape(0).back()},
          in2{c.input_shape(1).back()} {}
  };
};

/// A bilinear module whose in1_features and in2_features come from the first inputs.
template <dim_t Out, class... Options>
using lazy_bilinear = bilinear<lazy, lazy, Out, Options...>;

}  // namespace ikebana
