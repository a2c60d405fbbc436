#pragma once

#include <array>
#include <cstddef>
#include <span>
#include <string_view>

#include "ikebana/cpu/layer_norm.hpp"
#include "ikebana/module/context.hpp"
#include "ikebana/module/describe.hpp"
#include "ikebana/module/extent.hpp"
#include "ikebana/module/module.hpp"
#include "ikebana/module/option_set.hpp"
#include "ikebana/module/options.hpp"
#include "ikebana/module/parameter.hpp"
#include "ikebana/module/symbol.hpp"

namespace ikebana {

/// y = (x - mean) / sqrt(variance + eps) * weight + bias, with mean and (biased) variance computed
/// over each of num_groups groups of channels of each sample of [N, num_channels, ...] (Wu, He,
/// Group Normalization, 2018). A group of one element normalises to 0, so that y is the bias.
/// O(elements); no allocation.
///
/// Parameters: weight (num_channels), bias (num_channels) unless affine<false>. Groups is a number
/// that divides C, which is a number, `lazy` or `dynamic`. Option: affine<bool> (true).
template <dim_t Groups, dim_t C, class... Options>
struct group_norm {
  static_assert(detail::option_set<affine<true>>::template accepts<Options...>,
                "ikebana: group norm takes the option affine<bool>");
  static_assert(Groups >= 1 && (C < 0 || C % Groups == 0),
                "ikebana: group norm needs num_channels divisible by num_groups, at least 1");

  static constexpr std::string_view kind = "group_norm";
  static constexpr bool is_lazy = C == lazy;
  static constexpr kept keeps = kept::input;
  static constexpr bool is_affine = detail::option_or<affine<true>, Options...>::value;

  double eps = 1e-5;
  [[no_unique_address]] extent<C> num_channels{};

  constexpr inferred infer(const shape& in) const {
    if (in.rank() < 2)
      return diagnostic{
          "group_norm expects an input of at least {expected} dimensions, got {got} (input "
          "{input})",
          2, static_cast<dim_t>(in.rank()), in};
    if (!fits(num_channels.value(), in[1]))
      return diagnostic{"group_norm expects num_channels = {expected}, got {got} (input {input})",
                        num_channels.value(), in[1], in};
    if (in[1] >= 0 && in[1] % Groups != 0)
      return diagnostic{
          "group_norm expects num_channels divisible by num_groups = {expected}, got {got} (input "
          "{input})",
          Groups, in[1], in};
    return in;
  }

  template <shape Input>
  constexpr auto become() const {
    return group_norm<Groups, Input[1], Options...>{eps, {}};
  }

  constexpr void bind(const shape_list& in) { num_channels.bind(in[0][1]); }

  constexpr void bind_state(std::span<const shape> parameters, std::span<const shape>) {
    if (is_affine) num_channels.bind(parameters[0][0]);
  }

  constexpr std::array<parameter_spec, 2> parameters() const requires(is_affine) {
    const shape each{num_channels.value()};
    return {parameter_spec{"weight", each, initializer::constant(1)},
            parameter_spec{"bias", each, initializer::constant(0)}};
  }

  /// Means and 1 / sqrt(variance + eps).
  constexpr std::array<saved_spec, 2> saved(const shape_list& in) const {
    const saved_spec each{0, shape{in[0][0], Groups}};
    return {each, each};
  }

  constexpr dim_t multiply_adds(const shape_list& in, const shape_list&) const {
    return in[0].numel();
  }

  void describe(description& d) const {
    d.add("num_groups", Groups)
        .add("num_channels", num_channels.value())
        .add("eps", eps)
        .add("affine", is_affine);
  }

  template <class T>
  void forward(const context<T>& c) const {
    const sizes n(c.input_shape());
    const T* weight = is_affine ? c.parameter(0) : nullptr;
    const T* bias = is_affine ? c.parameter(1) : nullptr;
    // Without spatial dimensions, a group is a row with its own weights.
    if (n.inner == 1)
      cpu::layer_norm_forward<T>(n.batch * Groups, n.channels / Groups, Groups, c.input(), weight,
                                 bias, static_cast<T>(eps), c.output(), c.template saved<T>(0),
                                 c.template saved<T>(1));
    else
      cpu::group_norm_forward<T>(n.batch, n.channels, n.inner, Groups, c.input(), weight, bias,
                                 static_cast<T>(eps), c.output(), c.template saved<T>(0),
                                 c.template saved<T>(1));
  }

  template <class T>
  void backward(const context<T>& c) const {
    const sizes n(c.input_shape());
    const T* weight = is_affine ? c.parameter(0) : nullptr;
    T* dweight = is_affine ? c.parameter_gradient(0) : nullptr;
    T* dbias = is_affine ? c.parameter_gradient(1) : nullptr;
    if (n.inner == 1)
      cpu::layer_norm_backward<T>(n.batch * Groups, n.channels / Groups, Groups, c.input(),
                                  c.output_gradient(), weight, c.template saved<T>(0),
                                  c.template saved<T>(1), c.input_gradient(), dweight, dbias,
                                  c.accumulate());
    else
      cpu::group_norm_backward<T>(n.batch, n.channels, n.inner, Groups, c.input(),
                                  c.output_gradient(), weight, c.template saved<T>(0),
                                  c.template saved<T>(1), c.input_gradient(), dweight, dbias,
                                  c.accumulate());
  }

  template <class... X>
  constexpr auto operator()(const X&... x) const {
    return apply(*this, x...);
  }

 private:
  struct sizes {
    dim_t batch, channels, inner;
    explicit sizes(const shape& in)
        : batch{in[0]}, channels{in[1]}, inner{in.numel(2, in.rank())} {}
  };
};

/// A group norm whose num_channels come from the first input.
template <dim_t Groups, class... Options>
using lazy_group_norm = group_norm<Groups, lazy, Options...>;

}  // namespace ikebana
