#pragma once

#include <array>
#include <cstddef>
#include <string_view>

#include "ikebana/cpu/unfold.hpp"
#include "ikebana/module/context.hpp"
#include "ikebana/module/describe.hpp"
#include "ikebana/module/module.hpp"
#include "ikebana/module/option_set.hpp"
#include "ikebana/module/options.hpp"
#include "ikebana/module/symbol.hpp"
#include "ikebana/nn/detail/spatial.hpp"

// Windows of images as columns, and back. O(kernel * positions) for each plane; no allocation.
namespace ikebana {

namespace detail {

/// The windows that fold and unfold share.
template <class... Options>
struct unfold_windows {
  static_assert(times_given<kernel_option, Options...> == 1,
                "ikebana: fold and unfold need the option kernel<..>");
  static constexpr auto kernel_size = spatial<2, option_or<kernel<1>, Options...>>();
  static constexpr auto strides = spatial<2, option_or<stride<1>, Options...>>();
  static constexpr auto paddings = spatial<2, option_or<padding<0>, Options...>>();
  static constexpr auto dilations = spatial<2, option_or<dilation<1>, Options...>>();
  static constexpr dim_t taps = kernel_size[0] * kernel_size[1];
  static_assert(
      all_at_least(kernel_size, 1) && all_at_least(strides, 1) && all_at_least(dilations, 1) &&
          all_at_least(paddings, 0),
      "ikebana: fold and unfold need a kernel, stride and dilation of at least 1, padding "
      "of at least 0");

  /// The number of windows along dimension d, at most 0 if none fits.
  static constexpr dim_t positions(std::size_t d, dim_t extent) {
    const dim_t room = extent + 2 * paddings[d] - reach(kernel_size[d], dilations[d]);
    return room < 0 ? 0 : room / strides[d] + 1;
  }

  static cpu::unfold_geometry geometry(dim_t planes, std::array<dim_t, 2> in) {
    return {planes,   in,       {positions(0, in[0]), positions(1, in[1])}, kernel_size, strides,
            paddings, dilations};
  }

  static void describe(description& d) {
    d.add("kernel_size", kernel_size).add("dilation", dilations).add("padding", paddings);
    d.add("stride", strides);
  }
};

}  // namespace detail

/// The windows of [N, C, H, W], or unbatched [C, H, W], as columns (im2col): [N, C kernel,
/// positions]. Options: kernel<..> (required), stride<..> (default 1), padding<..> (0),
/// dilation<..> (1).
template <class... Options>
struct unfold {
  static_assert(
      detail::option_set<kernel<>, stride<>, padding<>, dilation<>>::template accepts<Options...>,
      "ikebana: unfold takes the options kernel, stride, padding and dilation, each once");
  using windows = detail::unfold_windows<Options...>;

  static constexpr std::string_view kind = "unfold";
  static constexpr kept keeps = kept::nothing;

  constexpr inferred infer(const shape& in) const {
    const std::size_t rank = in.rank();
    if (rank != 3 && rank != 4)
      return diagnostic{
          "unfold expects an input of 3 (unbatched) or {expected} dimensions, got {got} (input "
          "{input})",
          4, static_cast<dim_t>(rank), in};
    dim_t count = 1;
    for (std::size_t i = 0; i < 2; ++i) {
      const dim_t extent = in[rank - 2 + i];
      if (extent < 0) {
        count = dynamic;
        continue;
      }
      const dim_t n = windows::positions(i, extent);
      if (n == 0)
        return diagnostic{
            "unfold expects a padded input of at least {expected} (the reach of the kernel), got "
            "{got} (input {input})",
            detail::reach(windows::kernel_size[i], windows::dilations[i]),
            extent + 2 * windows::paddings[i], in};
      if (count >= 0) count *= n;
    }
    const dim_t channels = in[rank - 3];
    shape out;
    if (rank == 4) out.push_back(in[0]);
    out.push_back(channels < 0 ? channels : channels * windows::taps);
    out.push_back(count);
    return out;
  }
  constexpr dim_t multiply_adds(const shape_list&, const shape_list&) const { return 0; }

  void describe(description& d) const { windows::describe(d); }

  template <class T>
  void forward(const context<T>& c) const {
    cpu::unfold<T>(geometry(c.input_shape()), c.input(), c.output());
  }

  template <class T>
  void backward(const context<T>& c) const {
    if (c.input_gradient() != nullptr)
      cpu::fold_patches<T>(geometry(c.input_shape()), c.output_gradient(), c.input_gradient());
  }

  template <class... X>
  constexpr auto operator()(const X&... x) const {
    return apply(*this, x...);
  }

 private:
  static cpu::unfold_geometry geometry(const shape& in) {
    const std::size_t rank = in.rank();
    return windows::geometry(in.numel(0, rank - 2), {in[rank - 2], in[rank - 1]});
  }
};

/// The sum of columns [N, C kernel, positions], or unbatched [C kernel, positions], over the places
/// that unfold takes them from (col2im): [N, C, output_size...]. Options: output_size<..> and
/// kernel<..> (required), stride<..> (default 1), padding<..> (0), dilation<..> (1).
template <class... Options>
struct fold {
  static_assert(
      detail::option_set<output_size<>, kernel<>, stride<>, padding<>,
                         dilation<>>::template accepts<Options...> &&
          detail::times_given<detail::output_size_option, Options...> == 1,
      "ikebana: fold takes the options output_size and kernel, which it needs, stride, padding and "
      "dilation, each once");
  using windows = detail::unfold_windows<Options...>;

  static constexpr std::string_view kind = "fold";
  static constexpr kept keeps = kept::nothing;
  static constexpr auto extents =
      detail::spatial<2, detail::option_or<output_size<1>, Options...>>();
  static constexpr dim_t positions =
      windows::positions(0, extents[0]) * windows::positions(1, extents[1]);
  static_assert(detail::all_at_least(extents, 1) && positions > 0,
                "ikebana: fold needs a padded output of at least the reach of its kernel");

  constexpr inferred infer(const shape& in) const {
    const std::size_t rank = in.rank();
    if (rank != 2 && rank != 3)
      return diagnostic{
          "fold expects an input of 2 (unbatched) or {expected} dimensions, got {got} (input "
          "{input})",
          3, static_cast<dim_t>(rank), in};
    const dim_t rows = in[rank - 2], columns = in[rank - 1];
    if (rows >= 0 && rows % windows::taps != 0)
      return diagnostic{
          "fold expects channels divisible by the kernel's {expected} elements, got {got} (input "
          "{input})",
          windows::taps, rows, in};
    if (columns >= 0 && columns != positions)
      return diagnostic{"fold expects {expected} windows, got {got} (input {input})", positions,
                        columns, in};
    shape out;
    if (rank == 3) out.push_back(in[0]);
    out.push_back(rows < 0 ? rows : rows / windows::taps);
    out.push_back(extents[0]);
    out.push_back(extents[1]);
    return out;
  }
  constexpr dim_t multiply_adds(const shape_list&, const shape_list&) const { return 0; }

  void describe(description& d) const {
    d.add("output_size", extents);
    windows::describe(d);
  }

  template <class T>
  void forward(const context<T>& c) const {
    cpu::fold_patches<T>(geometry(c.output_shape()), c.input(), c.output());
  }

  template <class T>
  void backward(const context<T>& c) const {
    if (c.input_gradient() != nullptr)
      cpu::unfold<T>(geometry(c.output_shape()), c.output_gradient(), c.input_gradient());
  }

  template <class... X>
  constexpr auto operator()(const X&... x) const {
    return apply(*this, x...);
  }

 private:
  static cpu::unfold_geometry geometry(const shape& out) {
    return windows::geometry(out.numel(0, out.rank() - 2), extents);
  }
};

}  // namespace ikebana
