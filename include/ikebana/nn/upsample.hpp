#pragma once

#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <string_view>
#include <type_traits>

#include "ikebana/cpu/interpolate.hpp"
#include "ikebana/module/context.hpp"
#include "ikebana/module/describe.hpp"
#include "ikebana/module/module.hpp"
#include "ikebana/module/option_set.hpp"
#include "ikebana/module/options.hpp"
#include "ikebana/module/parameter.hpp"
#include "ikebana/module/symbol.hpp"
#include "ikebana/nn/detail/spatial.hpp"
#include "ikebana/nn/mode.hpp"

namespace ikebana {

namespace detail {
struct scale_factor_option;
struct align_corners_option;

/// A number as a template argument, for compilers that take no floating-point ones.
struct number {
  std::uint64_t bits;
  constexpr number(double value) : bits{std::bit_cast<std::uint64_t>(value)} {}
  constexpr number(int value) : number(static_cast<double>(value)) {}
  constexpr double value() const { return std::bit_cast<double>(bits); }
};
}  // namespace detail

/// The factors of the spatial extents: scale_factor<2>, scale_factor<1.5>, scale_factor<2, 3>.
template <detail::number... Factor>
struct scale_factor {
  using option = detail::scale_factor_option;
  static_assert(((Factor.value() > 0 && Factor.value() < 1e6) && ...),
                "ikebana: scale_factor takes numbers above 0");
  static constexpr std::array<double, sizeof...(Factor)> values{Factor.value()...};
};

/// Whether interpolation puts the first and the last element of an input on those of the output,
/// instead of its edges on edges.
template <bool B>
struct align_corners {
  using option = detail::align_corners_option;
  static constexpr bool value = B;
};

/// Resizes the last one, two or three dimensions of [N, C, spatial...]. Options: output_size<..> or
/// scale_factor<..> (one number for all dimensions or one for each; extents are rounded down),
/// mode<..> ("nearest", the default, and "nearest-exact"; "linear" has one spatial dimension,
/// "bilinear" and "bicubic" two, "trilinear" three), align_corners<bool> (false). O(output elements
/// * elements that each is made of); no allocation.
template <class... Options>
struct upsample {
  static constexpr bool by_size = detail::times_given<detail::output_size_option, Options...> == 1;
  static_assert(detail::option_set<output_size<>, scale_factor<>, mode<"nearest">,
                                   align_corners<false>>::template accepts<Options...> &&
                    by_size + detail::times_given<detail::scale_factor_option, Options...> == 1,
                "ikebana: upsample takes the options output_size or scale_factor, mode and "
                "align_corners, each once");

  static constexpr std::string_view kind = "upsample";
  static constexpr kept keeps = kept::nothing;
  static constexpr std::string_view how = detail::option_or<mode<"nearest">, Options...>::value;
  static constexpr bool aligns = detail::option_or<align_corners<false>, Options...>::value;
  static constexpr auto factors = detail::option_or<scale_factor<1>, Options...>::values;
  static constexpr auto sizes = detail::option_or<output_size<1>, Options...>::values;

  static constexpr bool is_nearest = how == "nearest" || how == "nearest-exact";
  static_assert(is_nearest || how == "linear" || how == "bilinear" || how == "trilinear" ||
                    how == "bicubic",
                "ikebana: upsample takes mode<\"nearest\">, <\"nearest-exact\">, <\"linear\">, "
                "<\"bilinear\">, <\"trilinear\"> or <\"bicubic\">");
  static_assert(!is_nearest || !aligns,
                "ikebana: upsample aligns corners only of modes that interpolate");
  static_assert(detail::all_at_least(sizes, 1),
                "ikebana: upsample needs output extents of at least 1");

  static constexpr cpu::interpolation kernel = how == "nearest" ? cpu::interpolation::nearest
                                               : how == "nearest-exact"
                                                   ? cpu::interpolation::nearest_exact
                                               : how == "bicubic" ? cpu::interpolation::cubic
                                                                  : cpu::interpolation::linear;
  /// The number of spatial dimensions that the options need, or 0 for any.
  static constexpr std::size_t given = by_size ? sizes.size() : factors.size();
  static constexpr std::size_t spatial = how == "linear"      ? 1
                                         : how == "trilinear" ? 3
                                         : !is_nearest        ? 2
                                         : given > 1          ? given
                                                              : 0;
  static_assert(given == 1 || given == spatial,
                "ikebana: upsample takes one number, or one for each spatial dimension");

  constexpr inferred infer(const shape& in) const {
    const std::size_t rank = in.rank();
    if (spatial == 0 ? rank < 3 || rank > 5 : rank != spatial + 2)
      return diagnostic{
          spatial == 0
              ? "upsample expects an input of {expected} to 5 dimensions, got {got} (input {input})"
              : "upsample expects an input of {expected} dimensions, got {got} (input {input})",
          spatial == 0 ? 3 : static_cast<dim_t>(spatial + 2), static_cast<dim_t>(rank), in};
    shape out = in;
    for (std::size_t i = 0; i + 2 < rank; ++i) {
      dim_t& extent = out[i + 2];
      if (extent == 0)
        return diagnostic{
            "upsample expects spatial extents of at least {expected}, got {got} (input {input})", 1,
            extent, in};
      const std::size_t k = given == 1 ? 0 : i;
      if (by_size)
        extent = sizes[k];
      else if (extent > 0) {
        extent = static_cast<dim_t>(static_cast<double>(extent) * factors[k]);
        if (extent == 0)
          return diagnostic{
              "upsample expects spatial extents that its factor leaves at least {expected} of, got "
              "{got} (input {input})",
              1, in[i + 2], in};
      }
    }
    return out;
  }

  /// Of the last dimension, what each element is made of: indices and weights; and one row.
  constexpr std::array<saved_spec, 3> saved(const shape_list& in) const {
    const shape& x = in[0];
    const dim_t width = x[x.rank() - 1], wide = infer(x).output()[x.rank() - 1];
    return {saved_spec{sizeof(std::int32_t), shape{wide, cpu::taps_of(kernel)}},
            saved_spec{0, shape{wide, cpu::taps_of(kernel)}}, saved_spec{0, shape{width}}};
  }

  constexpr dim_t multiply_adds(const shape_list&, const shape_list&) const { return 0; }

  void describe(description& d) const {
    if (by_size)
      d.add("size", sizes);
    else
      for (double f : factors) d.add("scale_factor", f);
    d.add("mode", how);
    if (aligns) d.add("align_corners", true);
  }

  template <class T>
  void forward(const context<T>& c) const {
    cpu::interpolate<T>(geometry(c.input_shape(), c.output_shape()), c.input(), c.output(),
                        c.template saved<std::int32_t>(0), c.template saved<T>(1),
                        c.template saved<T>(2));
  }

  template <class T>
  void backward(const context<T>& c) const {
    if (c.input_gradient() != nullptr)
      cpu::interpolate_backward<T>(geometry(c.input_shape(), c.output_shape()), c.output_gradient(),
                                   c.input_gradient(), c.template saved<std::int32_t>(0),
                                   c.template saved<T>(1), c.template saved<T>(2));
  }

  template <class... X>
  constexpr auto operator()(const X&... x) const {
    return apply(*this, x...);
  }

 private:
  static cpu::interpolate_geometry geometry(const shape& in, const shape& out) {
    const std::size_t n = in.rank() - 2;
    cpu::interpolate_geometry g{in.numel(0, 2), {1, 1, 1}, {1, 1, 1}, {0, 0, 0}, kernel, aligns};
    for (std::size_t i = 0; i < n; ++i) {
      g.in[3 - n + i] = in[2 + i];
      g.out[3 - n + i] = out[2 + i];
      if (!by_size) g.factor[3 - n + i] = factors[given == 1 ? 0 : i];
    }
    return g;
  }
};

/// PyTorch's UpsamplingNearest2d and UpsamplingBilinear2d, which aligns corners.
template <class Size>
using upsampling_nearest2d = upsample<Size, mode<"nearest">>;
template <class Size>
using upsampling_bilinear2d = upsample<Size, mode<"bilinear">, align_corners<true>>;

}  // namespace ikebana
