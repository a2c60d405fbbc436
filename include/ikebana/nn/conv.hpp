#pragma once

#include <array>
#include <cstddef>
#include <string_view>

#include "ikebana/cpu/conv.hpp"
#include "ikebana/module/context.hpp"
#include "ikebana/module/describe.hpp"
#include "ikebana/module/extent.hpp"
#include "ikebana/module/module.hpp"
#include "ikebana/module/options.hpp"
#include "ikebana/module/parameter.hpp"
#include "ikebana/module/symbol.hpp"
#include "ikebana/nn/detail/spatial.hpp"

namespace ikebana {

/// The cross-correlation of an input [N, in_channels, spatial...], or unbatched [in_channels,
/// spatial...], with out_channels kernels; each spatial extent becomes floor((extent + 2 padding -
/// dilation (kernel - 1) - 1) / stride) + 1. Parameters: weight (out_channels, in_channels /
/// groups, kernel...), bias (out_channels) unless bias<false>. In is a number, `lazy` or `dynamic`.
/// Options: kernel<..> (required), stride<..> (default 1), padding<..> (0), dilation<..> (1),
/// groups<N> (1), bias<bool> (true); with one number for all spatial dimensions or one for each.
template <std::size_t Spatial, dim_t In, dim_t Out, class... Options>
struct conv {
  static_assert(Spatial >= 1 && Spatial <= 3);
  static_assert(detail::option_set<ikebana::kernel<>, ikebana::stride<>, ikebana::padding<>,
                                   ikebana::dilation<>, ikebana::groups<1>,
                                   ikebana::bias<true>>::template accepts<Options...>,
                "ikebana: a convolution takes the options kernel, stride, padding, dilation, "
                "groups and bias, each once");
  static_assert(detail::times_given<detail::kernel_option, Options...> > 0,
                "ikebana: a convolution needs the option kernel<..>");
  static_assert(Out >= 0, "ikebana: a convolution needs out_channels, a number");

  static constexpr std::string_view kind = detail::joined<"conv", detail::digit<Spatial>, "d">;
  static constexpr bool is_lazy = In == lazy;
  static constexpr kept keeps = kept::input;

  static constexpr auto kernel_size =
      detail::spatial<Spatial, detail::option_or<kernel<1>, Options...>>();
  static constexpr auto strides =
      detail::spatial<Spatial, detail::option_or<stride<1>, Options...>>();
  static constexpr auto paddings =
      detail::spatial<Spatial, detail::option_or<padding<0>, Options...>>();
  static constexpr auto dilations =
      detail::spatial<Spatial, detail::option_or<dilation<1>, Options...>>();
  static constexpr dim_t group_count = detail::option_or<groups<1>, Options...>::value;
  static constexpr bool has_bias = detail::option_or<bias<true>, Options...>::value;

  static_assert(detail::all_at_least(kernel_size, 1) && detail::all_at_least(strides, 1) &&
                    detail::all_at_least(dilations, 1) && detail::all_at_least(paddings, 0) &&
                    group_count >= 1,
                "ikebana: a convolution needs a kernel, stride, dilation and groups of at least 1, "
                "padding of at least 0");

  [[no_unique_address]] extent<In> in_channels{};

  constexpr inferred infer(const shape& in) const {
    if (in.rank() != Spatial + 1 && in.rank() != Spatial + 2)
      return diagnostic{
          says<" expects an input of ", detail::digit<Spatial + 1>, " (unbatched) or ",
               detail::digit<Spatial + 2>, " dimensions, got {got} (input {input})">,
          Spatial + 2, static_cast<dim_t>(in.rank()), in};
    const std::size_t c = in.rank() - Spatial - 1;
    if (!fits(in_channels.value(), in[c]))
      return diagnostic{says<" expects in_channels = {expected}, got {got} (input {input})">,
                        in_channels.value(), in[c], in};
    const dim_t channels = in_channels.value() >= 0 ? in_channels.value() : in[c];
    if (channels >= 0 && channels % group_count != 0)
      return diagnostic{
          says<" expects in_channels divisible by groups = {expected}, got {got} (input {input})">,
          group_count, channels, in};
    if (Out % group_count != 0)
      return diagnostic{
          says<" expects out_channels divisible by groups = {expected}, got {got} (input {input})">,
          group_count, Out, in};
    shape out = in.with(c, Out);
    for (std::size_t i = 0; i < Spatial; ++i) {
      dim_t& extent = out[c + 1 + i];
      if (extent < 0) continue;
      const dim_t needed = detail::reach(kernel_size[i], dilations[i]);
      const dim_t padded = extent + 2 * paddings[i];
      if (padded < needed)
        return diagnostic{says<" expects a padded input of at least {expected} (the reach of the "
                               "kernel), got {got} "
                               "(input {input})">,
                          needed, padded, in};
      extent = (padded - needed) / strides[i] + 1;
    }
    return out;
  }

  template <shape Input>
  constexpr auto become() const {
    return conv<Spatial, Input[Input.rank() - Spatial - 1], Out, Options...>{};
  }

  constexpr void bind(const shape_list& in) { in_channels.bind(in[0][in[0].rank() - Spatial - 1]); }

  constexpr std::array<parameter_spec, has_bias ? 2 : 1> parameters() const {
    const dim_t in = in_channels.value();
    const dim_t per_group = in >= 0 ? in / group_count : in;
    shape extents{Out, per_group};
    dim_t fan_in = per_group;
    for (dim_t k : kernel_size) {
      extents.push_back(k);
      fan_in *= k;
    }
    const parameter_spec weight{"weight", extents, initializer::kaiming_uniform(fan_in)};
    if constexpr (has_bias)
      return {weight, parameter_spec{"bias", shape{Out}, initializer::kaiming_uniform(fan_in)}};
    else
      return {weight};
  }

  constexpr dim_t multiply_adds(const shape_list& in, const shape_list& out) const {
    dim_t each = in[0][in[0].rank() - Spatial - 1] / group_count;
    for (dim_t k : kernel_size) each *= k;
    return out[0].numel() * each;
  }

  void describe(description& d) const {
    d.add("in_channels", in_channels.value()).add("out_channels", Out);
    d.add("kernel_size", kernel_size).add("stride", strides);
    if (!detail::all_equal_to(paddings, 0)) d.add("padding", paddings);
    if (!detail::all_equal_to(dilations, 1)) d.add("dilation", dilations);
    if (group_count != 1) d.add("groups", group_count);
    if (!has_bias) d.add("bias", false);
  }

  template <class T>
  void forward(const context<T>& c) const {
    cpu::conv_forward<T>(geometry(c.input_shape(), c.output_shape()), c.input(), c.parameter(0),
                         has_bias ? c.parameter(1) : nullptr, c.output());
  }

  template <class T>
  void backward(const context<T>& c) const {
    const cpu::conv_geometry g = geometry(c.input_shape(), c.output_shape());
    const T* dy = c.output_gradient();
    cpu::conv_backward_weights<T>(g, c.input(), dy, c.parameter_gradient(0), c.accumulate());
    if constexpr (has_bias)
      cpu::conv_backward_bias<T>(g, dy, c.parameter_gradient(1), c.accumulate());
    if (c.input_gradient() != nullptr)
      cpu::conv_backward_data<T>(g, dy, c.parameter(0), c.input_gradient());
  }

  template <symbolic... X>
  constexpr auto operator()(const X&... x) const {
    return apply(*this, x...);
  }

 private:
  template <detail::literal... Text>
  static constexpr const char* says = detail::joined<"conv", detail::digit<Spatial>, "d", Text...>;

  static cpu::conv_geometry geometry(const shape& in, const shape& out) {
    cpu::conv_geometry g;
    g.batch = in.rank() == Spatial + 2 ? in[0] : 1;
    g.in_channels = in[in.rank() - Spatial - 1];
    g.out_channels = Out;
    g.groups = group_count;
    g.in = detail::spatial_extents<Spatial>(in);
    g.out = detail::spatial_extents<Spatial>(out);
    g.kernel = detail::in_three(kernel_size, 1);
    g.stride = detail::in_three(strides, 1);
    g.padding = detail::in_three(paddings, 0);
    g.dilation = detail::in_three(dilations, 1);
    return g;
  }
};

/// A convolution over [N, in_channels, height, width] or [in_channels, height, width].
template <dim_t In, dim_t Out, class... Options>
using conv2d = conv<2, In, Out, Options...>;

/// A conv2d whose in_channels come from the first input.
template <dim_t Out, class... Options>
using lazy_conv2d = conv<2, lazy, Out, Options...>;

}  // namespace ikebana
