#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <string>
#include <string_view>
#include <type_traits>

#include "ikebana/core/error.hpp"
#include "ikebana/module/context.hpp"
#include "ikebana/module/describe.hpp"
#include "ikebana/module/extent.hpp"
#include "ikebana/module/module.hpp"
#include "ikebana/module/named.hpp"
#include "ikebana/module/option_set.hpp"
#include "ikebana/module/options.hpp"
#include "ikebana/module/parameter.hpp"
#include "ikebana/module/symbol.hpp"
#include "ikebana/nn/detail/spatial.hpp"

namespace ikebana {

/// Puts values back where max_pool with return_indices<true> found them, and zeros elsewhere, as
/// PyTorch's MaxUnpool: the inputs are values and their indices within a plane, both of [N, C,
/// spatial...] or [C, spatial...]. Where an index is given twice, the later value stays. Each
/// extent becomes (extent - 1) stride - 2 padding + kernel, or that of output_size<..>. Options:
/// kernel<..> (required), stride<..> (default: the kernel), padding<..> (0), output_size<..>.
///
/// Throws error for an index outside of the plane, when the module runs. O(output elements); no
/// allocation.
template <std::size_t Spatial, class... Options>
struct max_unpool {
  static_assert(Spatial >= 1 && Spatial <= 3);
  static_assert(detail::times_given<detail::kernel_option, Options...> > 0,
                "ikebana: unpooling needs the option kernel<..>");
  static_assert(
      detail::option_set<kernel<>, stride<>, padding<>,
                         output_size<>>::template accepts<Options...>,
      "ikebana: unpooling takes the options kernel, stride, padding and output_size, each once");

  using kernel_given = detail::option_or<kernel<1>, Options...>;
  using stride_given =
      std::conditional_t<detail::times_given<detail::stride_option, Options...> == 0, kernel_given,
                         detail::option_or<stride<1>, Options...>>;
  static constexpr auto kernel_size = detail::spatial<Spatial, kernel_given>();
  static constexpr auto strides = detail::spatial<Spatial, stride_given>();
  static constexpr auto paddings =
      detail::spatial<Spatial, detail::option_or<padding<0>, Options...>>();
  static constexpr bool has_size = detail::times_given<detail::output_size_option, Options...> > 0;
  static constexpr auto size =
      detail::spatial<Spatial, detail::option_or<output_size<1>, Options...>>();
  static_assert(detail::all_at_least(kernel_size, 1) && detail::all_at_least(strides, 1) &&
                    detail::all_at_least(paddings, 0) && detail::all_at_least(size, 1),
                "ikebana: unpooling needs a kernel, stride and output_size of at least 1, padding "
                "of at least 0");

  static constexpr std::string_view kind =
      detail::joined<"max_unpool", detail::digit<Spatial>, "d">;
  static constexpr kept keeps = kept::input;

  constexpr inferred infer(const shape_list& in) const {
    if (in.size() != 2)
      return diagnostic{says<" expects values and indices, {expected} inputs, got {got} (input "
                             "{input})">,
                        2, static_cast<dim_t>(in.size()), in[0]};
    if (in[0].rank() != Spatial + 1 && in[0].rank() != Spatial + 2)
      return diagnostic{
          says<" expects an input of ", detail::digit<Spatial + 1>, " (unbatched) or ",
               detail::digit<Spatial + 2>, " dimensions, got {got} (input {input})">,
          Spatial + 2, static_cast<dim_t>(in[0].rank()), in[0]};
    if (in[0].rank() != in[1].rank())
      return diagnostic{says<" expects indices of {expected} dimensions, got {got} (input "
                             "{input})">,
                        static_cast<dim_t>(in[0].rank()), static_cast<dim_t>(in[1].rank()), in[1]};
    shape out = in[0];
    for (std::size_t i = 0; i < out.rank(); ++i)
      if (!fits(in[0][i], in[1][i]))
        return diagnostic{says<" expects indices in the shape of the values, needs an extent of "
                               "{expected}, got {got} (input {input})">,
                          in[0][i], in[1][i], in[1]};
    for (std::size_t i = 0; i < Spatial; ++i) {
      dim_t& extent = out[out.rank() - Spatial + i];
      if (has_size)
        extent = size[i];
      else if (extent >= 0)
        extent = (extent - 1) * strides[i] - 2 * paddings[i] + kernel_size[i];
      if (extent == 0 || extent < dynamic)
        return diagnostic{
            says<" expects an output of at least {expected} element, got {got} (input {input})">, 1,
            extent, in[0]};
    }
    return out;
  }

  constexpr dim_t multiply_adds(const shape_list&, const shape_list&) const { return 0; }
  void describe(description& d) const {
    d.add("kernel_size", kernel_size).add("stride", strides).add("padding", paddings);
    if (has_size) d.add("output_size", size);
  }

  template <class T>
  void forward(const context<T>& c) const {
    std::fill_n(c.output(), c.output_shape().numel(), T{0});
    const dim_t area = area_of(c.output_shape());
    for_each_place(c, [&](dim_t i, dim_t plane, T place) {
      if (!(place >= T{0} && place < static_cast<T>(area))) refuse(area, place);
      c.output()[plane * area + static_cast<dim_t>(place)] = c.input()[i];
    });
  }

  /// Indices have no gradient.
  template <class T>
  void backward(const context<T>& c) const {
    if (c.input_gradient(1) != nullptr)
      std::fill_n(c.input_gradient(1), c.input_shape(1).numel(), T{0});
    if (c.input_gradient() == nullptr) return;
    const dim_t area = area_of(c.output_shape());
    for_each_place(c, [&](dim_t i, dim_t plane, T place) {
      c.input_gradient()[i] = c.output_gradient()[plane * area + static_cast<dim_t>(place)];
    });
  }

  template <class... X>
  constexpr auto operator()(const X&... x) const {
    return apply(*this, x...);
  }

 private:
  template <detail::literal... Text>
  static constexpr const char* says =
      detail::joined<"max_unpool", detail::digit<Spatial>, "d", Text...>;

  static dim_t area_of(const shape& s) { return s.numel(s.rank() - Spatial, s.rank()); }

  /// Calls f(i, plane, place) for the values.
  template <class T, class F>
  static void for_each_place(const context<T>& c, F&& f) {
    const dim_t n = c.input_shape().numel(), area = area_of(c.input_shape());
    for (dim_t i = 0; i < n; ++i) f(i, i / area, c.input(1)[i]);
  }
  template <class T>
  [[noreturn, gnu::cold]] static void refuse(dim_t area, T place) {
    throw_error(error(std::string(kind) + " expects indices from 0 to " + std::to_string(area - 1) +
                      ", got " + std::to_string(place)));
  }
};

/// Unpooling of [N, C, length] or [C, length].
template <class... Options>
using max_unpool1d = max_unpool<1, Options...>;
/// Unpooling of [N, C, height, width] or [C, height, width].
template <class... Options>
using max_unpool2d = max_unpool<2, Options...>;
/// Unpooling of [N, C, depth, height, width] or [C, depth, height, width].
template <class... Options>
using max_unpool3d = max_unpool<3, Options...>;

}  // namespace ikebana
