#pragma once

#include <array>
#include <cstddef>
#include <span>
#include <string_view>
#include <type_traits>

#include "ikebana/core/saturated.hpp"
#include "ikebana/cpu/conv.hpp"
#include "ikebana/cpu/pad.hpp"
#include "ikebana/module/context.hpp"
#include "ikebana/module/describe.hpp"
#include "ikebana/module/extent.hpp"
#include "ikebana/module/module.hpp"
#include "ikebana/module/option_set.hpp"
#include "ikebana/module/options.hpp"
#include "ikebana/module/parameter.hpp"
#include "ikebana/module/symbol.hpp"
#include "ikebana/nn/detail/border.hpp"
#include "ikebana/nn/detail/conv_options.hpp"
#include "ikebana/nn/detail/spatial.hpp"

namespace ikebana {

/// The values in the padding of a convolution: padding_mode<"zeros">, "reflect" (the image mirrored
/// at its edge), "replicate" (the edge repeated) or "circular" (the opposite side).
template <detail::literal Mode>
struct padding_mode {
  using option = detail::padding_mode_option;
  static constexpr std::string_view value{Mode.data, Mode.size()};
};

/// The cross-correlation of an input [N, in_channels, spatial...], or unbatched [in_channels,
/// spatial...], with out_channels kernels: [N, out_channels, out...]. Each spatial extent becomes
/// floor((extent + 2 padding - dilation (kernel - 1) - 1) / stride) + 1.
///
/// Parameters: weight (out_channels, in_channels / groups, kernel...), bias (out_channels) unless
/// bias<false>. In is a number, `lazy` or `dynamic`. Options: kernel<..> (required), stride<..>
/// (default 1), padding<..> (0), dilation<..> (1), each with one number for all spatial dimensions
/// or one for each; groups<N> (1), bias<bool> (true), padding_mode<..> ("zeros"). Instead of
/// padding<..>: same_padding, which needs stride 1, or valid_padding.
///
/// O(output elements * in_channels / groups * kernel) multiply-adds; no allocation. A padding mode
/// other than zeros first copies the input into a padded one in planned memory.
template <std::size_t Spatial, dim_t In, dim_t Out, class... Options>
struct conv {
  static_assert(detail::option_set<ikebana::kernel<>, ikebana::stride<>, ikebana::padding<>,
                                   ikebana::dilation<>, ikebana::groups<1>, ikebana::bias<true>,
                                   ikebana::padding_mode<"zeros">>::template accepts<Options...>,
                "ikebana: a convolution takes the options kernel, stride, padding, dilation, "
                "groups, bias and padding_mode, each once");
  static_assert(detail::times_given<detail::kernel_option, Options...> > 0,
                "ikebana: a convolution needs the option kernel<..>");
  static_assert(Out >= 0, "ikebana: a convolution needs out_channels, a number");

  using options = detail::conv_options<Spatial, Options...>;
  static constexpr std::string_view kind = detail::joined<"conv", detail::digit<Spatial>, "d">;
  static constexpr bool skips_parameter_gradients = true;
  static constexpr std::string_view mode =
      detail::option_or<padding_mode<"zeros">, Options...>::value;
  static constexpr bool is_lazy = In == lazy;
  static constexpr kept keeps = kept::input;
  static constexpr bool is_affine_in_each_input = true;
  static constexpr bool takes_residual = true;
  static constexpr bool takes_function = true;
  static constexpr bool takes_norm = true;
  static constexpr std::size_t plan_bytes = options::plan_end(cpu::conv_direction::weights);
  static constexpr bool keeps_extents =
      std::is_same_v<detail::option_or<padding<0>, Options...>, same_padding>;

  static_assert(options::are_sane && (keeps_extents || detail::all_at_least(options::padding, 0)),
                "ikebana: a convolution needs a kernel, stride, dilation and groups of at least 1, "
                "padding of at least 0");
  static_assert(!keeps_extents || detail::all_equal_to(options::stride, 1),
                "ikebana: a convolution with same_padding needs a stride of 1");
  static_assert(mode == "zeros" || mode == "reflect" || mode == "replicate" || mode == "circular",
                "ikebana: a convolution takes padding_mode<\"zeros\">, <\"reflect\">, "
                "<\"replicate\"> or <\"circular\">");

  /// Elements of padding before and after the input in each spatial dimension.
  static constexpr auto pads_before = [] {
    auto p = options::padding;
    if (keeps_extents)
      for (std::size_t i = 0; i < Spatial; ++i) p[i] = (options::reach[i] - 1) / 2;
    return p;
  }();
  static constexpr auto pads_after = [] {
    auto p = options::padding;
    if (keeps_extents)
      for (std::size_t i = 0; i < Spatial; ++i) p[i] = options::reach[i] / 2;
    return p;
  }();

  static constexpr bool adds_zeros = mode == "zeros" && !detail::all_equal_to(pads_after, 0);
  /// Whether the kernels' own zero padding suffices.
  static constexpr bool is_zeros = mode == "zeros" || detail::all_equal_to(pads_after, 0);
  static constexpr cpu::border border = mode == "reflect"     ? cpu::border::reflect
                                        : mode == "replicate" ? cpu::border::replicate
                                                              : cpu::border::circular;

  [[no_unique_address]] extent<In> in_channels{};

  constexpr inferred infer(const shape& in) const {
    if (const diagnostic wrong = detail::check_conv_channels<"conv", Spatial>(
            in, in_channels.value(), Out, options::groups);
        !wrong.ok())
      return wrong;
    const std::size_t c = options::channel_dim(in);
    shape out = in.with(c, Out);
    for (std::size_t i = 0; i < Spatial; ++i) {
      dim_t& extent = out[c + 1 + i];
      if (extent < 0) continue;
      if (const diagnostic wrong = check_border(in, extent, pads_after[i]); !wrong.ok())
        return wrong;
      const dim_t padded = extent + pads_before[i] + pads_after[i];
      if (padded < options::reach[i])
        return diagnostic{says<" expects a padded input of at least {expected} (the reach of the "
                               "kernel), got {got} "
                               "(input {input})">,
                          options::reach[i], padded, in};
      extent = (padded - options::reach[i]) / options::stride[i] + 1;
    }
    return out;
  }

  template <shape Input>
  constexpr auto become() const {
    return conv<Spatial, Input[options::channel_dim(Input)], Out, Options...>{};
  }

  constexpr void bind(const shape_list& in) {
    in_channels.bind(in[0][options::channel_dim(in[0])]);
  }

  constexpr void bind_state(std::span<const shape> parameters, std::span<const shape>) {
    in_channels.bind(parameters[0][1] * options::groups);
  }

  constexpr std::array<parameter_spec, options::bias ? 2 : 1> parameters() const {
    const dim_t in = in_channels.value();
    const dim_t per_group = in >= 0 ? in / options::groups : in;
    shape extents{Out, per_group};
    for (dim_t k : options::kernel) extents.push_back(k);
    const initializer drawn = initializer::kaiming_uniform(per_group * options::taps);
    const parameter_spec weight{"weight", extents, drawn};
    if constexpr (options::bias)
      return {weight, parameter_spec{"bias", shape{Out}, drawn}};
    else
      return {weight};
  }

  /// The same with a bias, into which inference folds a norm.
  constexpr auto with_bias() const {
    return conv<Spatial, In, Out, detail::set_option<ikebana::bias<true>, Options>...>{in_channels};
  }

  /// The padded input; in backward, its gradient.
  constexpr std::array<saved_spec, is_zeros ? 0 : 1> saved(const shape_list& in) const {
    if constexpr (is_zeros)
      return {};
    else
      return {saved_spec{0, widened(in[0])}};
  }

  constexpr dim_t multiply_adds(const shape_list& in, const shape_list& out) const {
    return (saturated{out[0].numel()} * (in[0][options::channel_dim(in[0])] / options::groups) *
            options::taps)
        .value;
  }

  void describe(description& d) const {
    d.add("in_channels", in_channels.value()).add("out_channels", Out);
    d.add("kernel_size", options::kernel).add("stride", options::stride);
    if (keeps_extents)
      d.add("padding", std::string_view{"same"});
    else if (!detail::all_equal_to(options::padding, 0))
      d.add("padding", options::padding);
    if (!detail::all_equal_to(options::dilation, 1)) d.add("dilation", options::dilation);
    if (options::groups != 1) d.add("groups", options::groups);
    if (!options::bias) d.add("bias", false);
    if (mode != "zeros") d.add("padding_mode", mode);
  }

  /// By which the last forward ran; "" if none is kept.
  static const char* algorithm(std::span<const std::byte> plans) {
    return options::algorithm(plans, cpu::conv_direction::forward);
  }

  template <class T>
  void forward(const context<T>& c) const {
    const T* bias = options::bias ? c.parameter(1) : nullptr;
    // The epilogue computes scale * (conv + bias) + shift.
    if (T* const shift = c.channel_shift()) {
      if constexpr (options::bias)
        for (dim_t i = 0; i < Out; ++i) shift[i] += bias[i] * c.channel_scale()[i];
      bias = shift;
    }
    const cpu::conv_geometry g = geometry(c.input_shape(), c.output_shape());
    const cpu::conv_epilogue<T> then{c.residual(), c.function(), c.channel_scale()};
    constexpr auto direction = cpu::conv_direction::forward;
    constexpr auto others = options::template needed<T>(direction, kernel_geometry(), In, Out);
    cpu::conv_forward<T>(g, seen(c), c.parameter(0), bias, c.output(), then,
                         cpu::conv_algorithms_of<T, direction, others>(),
                         options::plan(c, direction));
  }

  template <class T>
  void backward(const context<T>& c) const {
    const cpu::conv_geometry g = geometry(c.input_shape(), c.output_shape());
    const T* dy = c.output_gradient();
    if (c.parameter_gradient(0) != nullptr) {
      constexpr auto direction = cpu::conv_direction::weights;
      constexpr auto to_weights =
          options::template needed<T>(direction, kernel_geometry(), In, Out);
      cpu::conv_backward_weights<T>(g, seen(c), dy, c.parameter_gradient(0), c.accumulate(),
                                    cpu::conv_algorithms_of<T, direction, to_weights>(),
                                    options::plan(c, direction));
      if constexpr (options::bias)
        cpu::conv_backward_bias<T>(g, dy, c.parameter_gradient(1), c.accumulate());
    }
    if (c.input_gradient() == nullptr) return;
    T* dx = c.input_gradient();
    if constexpr (!is_zeros) dx = c.template saved<T>(0);
    constexpr auto direction = cpu::conv_direction::data;
    constexpr auto to_data = options::template needed<T>(direction, kernel_geometry(), In, Out);
    cpu::conv_backward_data<T>(g, dy, c.parameter(0), dx, nullptr,
                               cpu::conv_algorithms_of<T, direction, to_data>(),
                               options::plan(c, direction));
    if constexpr (!is_zeros)
      cpu::pad_backward<T>(pads(c.input_shape()), border, c.template saved<T>(0),
                           c.input_gradient());
  }

  template <class... X>
  constexpr auto operator()(const X&... x) const {
    return apply(*this, x...);
  }

 private:
  template <detail::literal... Text>
  static constexpr const char* says = detail::joined<"conv", detail::digit<Spatial>, "d", Text...>;

  static constexpr diagnostic check_border(const shape& in, dim_t extent, dim_t pad) {
    if (is_zeros) return {};
    return detail::check_border<detail::literal{"conv"}, Spatial>(border, in, extent, pad);
  }

  static constexpr shape widened(const shape& in) {
    shape wide = in;
    for (std::size_t i = 0; i < Spatial; ++i) {
      dim_t& extent = wide[options::channel_dim(in) + 1 + i];
      if (extent >= 0) extent += pads_before[i] + pads_after[i];
    }
    return wide;
  }

  static cpu::pad_geometry pads(const shape& in) {
    return {in.numel(0, in.rank() - Spatial), detail::spatial_extents<Spatial>(in),
            detail::in_three(pads_before, 0), detail::spatial_extents<Spatial>(widened(in))};
  }

  /// The geometry that the kernels see: without padding if the input is padded beforehand.
  static constexpr cpu::conv_geometry kernel_geometry() {
    cpu::conv_geometry g = options::geometry();
    g.padding = is_zeros ? detail::in_three(pads_before, 0) : std::array<dim_t, 3>{};
    return g;
  }

  /// The input of the kernel: c.input(), or the padded copy, which is made again.
  template <class T>
  static const T* seen(const context<T>& c) {
    if constexpr (is_zeros) {
      return c.input();
    } else {
      cpu::pad_forward<T>(pads(c.input_shape()), border, c.input(), c.template saved<T>(0));
      return c.template saved<T>(0);
    }
  }

  static cpu::conv_geometry geometry(const shape& in, const shape& out) {
    static constexpr cpu::conv_geometry like = kernel_geometry();
    if constexpr (is_zeros)
      return detail::conv_between(like, Spatial, in, out);
    else
      return detail::conv_between(like, Spatial, widened(in), out);
  }
};

/// A convolution over [N, in_channels, length] or [in_channels, length].
template <dim_t In, dim_t Out, class... NamedOptions>
using conv1d = conv<1, In, Out, NamedOptions...>;

/// A convolution over [N, in_channels, height, width] or [in_channels, height, width].
template <dim_t In, dim_t Out, class... NamedOptions>
using conv2d = conv<2, In, Out, NamedOptions...>;

/// A convolution over [N, in_channels, depth, height, width] or [in_channels, depth, height,
/// width].
template <dim_t In, dim_t Out, class... NamedOptions>
using conv3d = conv<3, In, Out, NamedOptions...>;

/// A conv1d whose in_channels are inferred from the first input.
template <dim_t Out, class... NamedOptions>
using lazy_conv1d = conv<1, lazy, Out, NamedOptions...>;

/// A conv2d whose in_channels are inferred from the first input.
template <dim_t Out, class... NamedOptions>
using lazy_conv2d = conv<2, lazy, Out, NamedOptions...>;

/// A conv3d whose in_channels are inferred from the first input.
template <dim_t Out, class... NamedOptions>
using lazy_conv3d = conv<3, lazy, Out, NamedOptions...>;

}  // namespace ikebana
