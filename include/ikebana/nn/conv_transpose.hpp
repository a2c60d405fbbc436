#pragma once

#include <array>
#include <cstddef>
#include <span>
#include <string_view>

#include "ikebana/core/saturated.hpp"
#include "ikebana/cpu/conv.hpp"
#include "ikebana/module/context.hpp"
#include "ikebana/module/describe.hpp"
#include "ikebana/module/extent.hpp"
#include "ikebana/module/module.hpp"
#include "ikebana/module/option_set.hpp"
#include "ikebana/module/options.hpp"
#include "ikebana/module/parameter.hpp"
#include "ikebana/module/symbol.hpp"
#include "ikebana/nn/detail/conv_options.hpp"
#include "ikebana/nn/detail/spatial.hpp"

namespace ikebana {

/// The transposed convolution: the gradient of a convolution with respect to its input, as a
/// module. An input [N, in_channels, spatial...], or unbatched [in_channels, spatial...], gives [N,
/// out_channels, out...]; each spatial extent becomes (extent - 1) stride - 2 padding + dilation
/// (kernel - 1) + output_padding + 1.
///
/// Parameters: weight (in_channels, out_channels / groups, kernel...), bias (out_channels) unless
/// bias<false>. In is a number, `lazy` or `dynamic`. Options: kernel<..> (required), stride<..>
/// (default 1), padding<..> (0), output_padding<..> (0), dilation<..> (1), each with one number for
/// all spatial dimensions or one for each; groups<N> (1), bias<bool> (true). Instead of
/// output_padding<..>, output_size<..> gives the spatial extents themselves; each must be reachable
/// with an output_padding below the stride.
///
/// O(input elements * out_channels / groups * kernel) multiply-adds; no allocation.
template <std::size_t Spatial, dim_t In, dim_t Out, class... Options>
struct conv_transpose {
  static_assert(
      detail::option_set<ikebana::kernel<>, ikebana::stride<>, ikebana::padding<>,
                         ikebana::output_padding<>, ikebana::output_size<>, ikebana::dilation<>,
                         ikebana::groups<1>, ikebana::bias<true>>::template accepts<Options...>,
      "ikebana: a transposed convolution takes the options kernel, stride, padding, "
      "output_padding or output_size, dilation, groups and bias, each once");
  static_assert(detail::times_given<detail::kernel_option, Options...> > 0,
                "ikebana: a transposed convolution needs the option kernel<..>");
  static_assert(Out >= 0, "ikebana: a transposed convolution needs out_channels, a number");

  using options = detail::conv_options<Spatial, Options...>;
  static constexpr std::string_view kind =
      detail::joined<"conv_transpose", detail::digit<Spatial>, "d">;
  static constexpr bool is_lazy = In == lazy;
  static constexpr kept keeps = kept::input;
  static constexpr auto output_paddings =
      detail::spatial<Spatial, detail::option_or<output_padding<0>, Options...>>();
  static constexpr bool has_output_size =
      detail::times_given<detail::output_size_option, Options...> > 0;
  static constexpr auto output_sizes =
      detail::spatial<Spatial, detail::option_or<output_size<0>, Options...>>();

  static_assert(options::are_sane && detail::all_at_least(options::padding, 0),
                "ikebana: a transposed convolution needs a kernel, stride, dilation and groups of "
                "at least 1, padding of at least 0");
  static constexpr bool pads_output_sanely = [] {
    for (std::size_t i = 0; i < Spatial; ++i)
      if (output_paddings[i] < 0 ||
          (output_paddings[i] >= options::stride[i] && output_paddings[i] >= options::dilation[i]))
        return false;
    return true;
  }();
  static_assert(
      pads_output_sanely,
      "ikebana: a transposed convolution needs an output_padding smaller than its stride or its "
      "dilation");
  static_assert(!has_output_size ||
                    (detail::all_at_least(output_sizes, 1) &&
                     detail::times_given<detail::output_padding_option, Options...> == 0),
                "ikebana: a transposed convolution takes an output_size of numbers, and then no "
                "output_padding");

  static constexpr std::size_t plan_bytes = options::plan_end(cpu::conv_direction::weights);

  [[no_unique_address]] extent<In> in_channels{};

  constexpr inferred infer(const shape& in) const {
    if (const diagnostic wrong = detail::check_conv_channels<"conv_transpose", Spatial>(
            in, in_channels.value(), Out, options::groups);
        !wrong.ok())
      return wrong;
    const std::size_t c = options::channel_dim(in);
    shape out = in.with(c, Out);
    for (std::size_t i = 0; i < Spatial; ++i) {
      const dim_t extent = in[c + 1 + i];
      if (has_output_size) out[c + 1 + i] = output_sizes[i];
      if (extent < 0) continue;
      if (extent == 0)
        return diagnostic{says<" expects spatial extents of at least 1 (input {input})">, 1, 0, in};
      const dim_t unpadded = extent_product(extent - 1, options::stride[i]) + options::reach[i];
      const dim_t most_added = has_output_size ? options::stride[i] - 1 : output_paddings[i];
      if (unpadded + most_added - 2 * options::padding[i] < 1)
        return diagnostic{says<" expects padding of at most {expected}, which leaves an output, "
                               "got {got} (input {input})">,
                          (unpadded + most_added - 1) / 2, options::padding[i], in};
      const dim_t least = unpadded - 2 * options::padding[i];
      if (!has_output_size) {
        out[c + 1 + i] = least + output_paddings[i];
        continue;
      }
      if (output_sizes[i] < least)
        return diagnostic{says<" expects an output_size of at least {expected}, got {got} (input "
                               "{input})">,
                          least, output_sizes[i], in};
      if (output_sizes[i] > least + most_added)
        return diagnostic{says<" expects an output_size of at most {expected}, got {got} (input "
                               "{input})">,
                          least + most_added, output_sizes[i], in};
    }
    return out;
  }

  template <shape Input>
  constexpr auto become() const {
    return conv_transpose<Spatial, Input[options::channel_dim(Input)], Out, Options...>{};
  }

  constexpr void bind(const shape_list& in) {
    in_channels.bind(in[0][options::channel_dim(in[0])]);
  }

  constexpr void bind_state(std::span<const shape> parameters, std::span<const shape>) {
    in_channels.bind(parameters[0][0]);
  }

  /// Initialised as in PyTorch, whose fan_in is out_channels / groups times the kernel's size here
  /// too.
  constexpr std::array<parameter_spec, options::bias ? 2 : 1> parameters() const {
    shape extents{in_channels.value(), Out / options::groups};
    for (dim_t k : options::kernel) extents.push_back(k);
    const initializer drawn = initializer::kaiming_uniform(Out / options::groups * options::taps);
    const parameter_spec weight{"weight", extents, drawn};
    if constexpr (options::bias)
      return {weight, parameter_spec{"bias", shape{Out}, drawn}};
    else
      return {weight};
  }

  /// The same with a bias, into which inference folds a norm.
  constexpr auto with_bias() const {
    return conv_transpose<Spatial, In, Out, detail::set_option<ikebana::bias<true>, Options>...>{
        in_channels};
  }
  static constexpr dim_t transposed_groups = options::groups;

  constexpr dim_t multiply_adds(const shape_list& in, const shape_list&) const {
    return (saturated{in[0].numel()} * (Out / options::groups) * options::taps).value;
  }

  void describe(description& d) const {
    d.add("in_channels", in_channels.value()).add("out_channels", Out);
    d.add("kernel_size", options::kernel).add("stride", options::stride);
    if (!detail::all_equal_to(options::padding, 0)) d.add("padding", options::padding);
    if (!detail::all_equal_to(options::dilation, 1)) d.add("dilation", options::dilation);
    if (!detail::all_equal_to(output_paddings, 0)) d.add("output_padding", output_paddings);
    if (has_output_size) d.add("output_size", output_sizes);
    if (options::groups != 1) d.add("groups", options::groups);
    if (!options::bias) d.add("bias", false);
  }

  /// By which the last forward ran; "" if none is kept.
  static const char* algorithm(std::span<const std::byte> plans) {
    return options::algorithm(plans, cpu::conv_direction::data);
  }

  template <class T>
  void forward(const context<T>& c) const {
    const cpu::conv_geometry g = geometry(c.input_shape(), c.output_shape());
    const T* const bias = options::bias ? c.parameter(1) : nullptr;
    constexpr auto direction = cpu::conv_direction::data;
    constexpr auto others = options::template needed<T>(direction, options::geometry(), Out, In);
    cpu::conv_backward_data<T>(g, c.input(), c.parameter(0), c.output(), bias,
                               cpu::conv_algorithms_of<T, direction, others>(),
                               options::plan(c, direction));
  }

  template <class T>
  void backward(const context<T>& c) const {
    const cpu::conv_geometry g = geometry(c.input_shape(), c.output_shape());
    const T* dy = c.output_gradient();
    // The convolution of which this is the transpose reads what this module writes.
    constexpr auto to_weights =
        options::template needed<T>(cpu::conv_direction::weights, options::geometry(), Out, In);
    cpu::conv_backward_weights<T>(
        g, dy, c.input(), c.parameter_gradient(0), c.accumulate(),
        cpu::conv_algorithms_of<T, cpu::conv_direction::weights, to_weights>(),
        options::plan(c, cpu::conv_direction::weights));
    if constexpr (options::bias)
      cpu::channel_sums<T>(g.batch, Out, cpu::conv_geometry::volume(g.in), dy,
                           c.parameter_gradient(1), c.accumulate());
    if (c.input_gradient() == nullptr) return;
    constexpr auto direction = cpu::conv_direction::forward;
    constexpr auto to_data = options::template needed<T>(direction, options::geometry(), Out, In);
    cpu::conv_forward<T>(g, dy, c.parameter(0), nullptr, c.input_gradient(), {},
                         cpu::conv_algorithms_of<T, direction, to_data>(),
                         options::plan(c, direction));
  }

  template <class... X>
  constexpr auto operator()(const X&... x) const {
    return apply(*this, x...);
  }

 private:
  template <detail::literal... Text>
  static constexpr const char* says =
      detail::joined<"conv_transpose", detail::digit<Spatial>, "d", Text...>;

  /// The geometry of the convolution from `out` to `in`.
  static cpu::conv_geometry geometry(const shape& in, const shape& out) {
    static constexpr cpu::conv_geometry like = options::geometry();
    return detail::conv_between(like, Spatial, out, in);
  }
};

/// A transposed convolution over [N, in_channels, length] or [in_channels, length].
template <dim_t In, dim_t Out, class... NamedOptions>
using conv_transpose1d = conv_transpose<1, In, Out, NamedOptions...>;

/// A transposed convolution over [N, in_channels, height, width] or [in_channels, height, width].
template <dim_t In, dim_t Out, class... NamedOptions>
using conv_transpose2d = conv_transpose<2, In, Out, NamedOptions...>;

/// A transposed convolution over [N, in_channels, depth, height, width] or [in_channels, depth,
/// height, width].
template <dim_t In, dim_t Out, class... NamedOptions>
using conv_transpose3d = conv_transpose<3, In, Out, NamedOptions...>;

/// A conv_transpose1d whose in_channels are inferred from the first input.
template <dim_t Out, class... NamedOptions>
using lazy_conv_transpose1d = conv_transpose<1, lazy, Out, NamedOptions...>;

/// A conv_transpose2d whose in_channels are inferred from the first input.
template <dim_t Out, class... NamedOptions>
using lazy_conv_transpose2d = conv_transpose<2, lazy, Out, NamedOptions...>;

/// A conv_transpose3d whose in_channels are inferred from the first input.
template <dim_t Out, class... NamedOptions>
using lazy_conv_transpose3d = conv_transpose<3, lazy, Out, NamedOptions...>;

}  // namespace ikebana
