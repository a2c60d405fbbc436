#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string_view>
#include <type_traits>

#include "ikebana/cpu/pool.hpp"
#include "ikebana/module/context.hpp"
#include "ikebana/module/describe.hpp"
#include "ikebana/module/module.hpp"
#include "ikebana/module/option_set.hpp"
#include "ikebana/module/options.hpp"
#include "ikebana/module/parameter.hpp"
#include "ikebana/module/symbol.hpp"
#include "ikebana/nn/detail/spatial.hpp"

namespace ikebana {

namespace detail {

/// What pooling modules share: a window that slides over the last N dimensions. Name is the
/// module's kind without the number of dimensions.
template <literal Name, std::size_t N, class... Options>
struct sliding_window {
  static_assert(N >= 1 && N <= 3);
  static_assert(times_given<kernel_option, Options...> > 0,
                "ikebana: pooling needs the option kernel<..>");

  using kernel_given = option_or<kernel<1>, Options...>;
  using stride_given = std::conditional_t<times_given<stride_option, Options...> == 0, kernel_given,
                                          option_or<stride<1>, Options...>>;

  static constexpr auto kernel_size = spatial<N, kernel_given>();
  static constexpr auto strides = spatial<N, stride_given>();
  static constexpr auto paddings = spatial<N, option_or<padding<0>, Options...>>();
  static constexpr auto dilations = spatial<N, option_or<dilation<1>, Options...>>();
  static constexpr bool ceils = option_or<ceil_mode<false>, Options...>::value;

  static_assert(
      all_at_least(kernel_size, 1) && all_at_least(strides, 1) && all_at_least(dilations, 1) &&
          all_at_least(paddings, 0),
      "ikebana: pooling needs a kernel, stride and dilation of at least 1, padding of at least 0");

  static constexpr std::string_view kind = joined<Name, digit<N>, "d">;
  static constexpr kept keeps = kept::nothing;

  template <literal... Text>
  static constexpr const char* says = joined<Name, digit<N>, "d", Text...>;

  static constexpr inferred infer(const shape& in) {
    if (in.rank() != N + 1 && in.rank() != N + 2)
      return diagnostic{says<" expects an input of ", digit<N + 1>, " (unbatched) or ",
                             digit<N + 2>, " dimensions, got {got} (input {input})">,
                        N + 2, static_cast<dim_t>(in.rank()), in};
    shape out = in;
    for (std::size_t i = 0; i < N; ++i) {
      if (2 * paddings[i] > kernel_size[i])
        return diagnostic{
            says<" expects padding of at most kernel / 2 = {expected}, got {got} (input {input})">,
            kernel_size[i] / 2, paddings[i], in};
      dim_t& extent = out[in.rank() - N + i];
      if (extent < 0) continue;
      if (extent == 0)
        return diagnostic{
            says<" expects spatial extents of at least {expected}, got {got} (input {input})">, 1,
            extent, in};
      const dim_t needed = reach(kernel_size[i], dilations[i]);
      const dim_t padded = extent + 2 * paddings[i];
      const dim_t room = padded - needed + (ceils ? strides[i] - 1 : 0);
      if (room < 0)
        return diagnostic{says<" expects a padded input of at least {expected} (the reach of the "
                               "kernel), got {got} "
                               "(input {input})">,
                          needed, padded, in};
      dim_t count = room / strides[i] + 1;
      // A window that would start in the padding after the input is left out.
      if (ceils && (count - 1) * strides[i] >= extent + paddings[i]) --count;
      for (dim_t start = -paddings[i]; start < 0; start += strides[i]) {
        // The first element of a dilated window that is not in the padding before the input.
        const dim_t first = start + (-start + dilations[i] - 1) / dilations[i] * dilations[i];
        if (first >= extent)
          return diagnostic{says<" expects every window to meet the input, needs an extent of "
                                 "{expected}, got {got} "
                                 "(input {input})">,
                            first + 1, extent, in};
      }
      extent = count;
    }
    return out;
  }

  static constexpr dim_t multiply_adds(const shape_list&, const shape_list&) { return 0; }

  static void describe(description& d) {
    d.add("kernel_size", kernel_size).add("stride", strides).add("padding", paddings);
  }

  /// What is known of its windows.
  static constexpr cpu::pool_problem problem(cpu::pool_work work) {
    constexpr std::array<dim_t, 3> unknown{-1, -1, -1};
    return {work,
            {-1, unknown, unknown, in_three(kernel_size, 1), in_three(strides, 1),
             in_three(paddings, 0), in_three(dilations, 1)},
            ceils};
  }

  static cpu::pool_geometry geometry(const shape& in, const shape& out) {
    static constexpr cpu::pool_geometry like = problem({}).windows;
    cpu::pool_geometry g = like;
    g.planes = in.numel(0, in.rank() - N);
    g.in = spatial_extents<N>(in);
    g.out = spatial_extents<N>(out);
    return g;
  }
};

}  // namespace detail

/// The greatest element of each window over the spatial dimensions of [N, C, spatial...] or
/// unbatched [C, spatial...]; padding counts as minus infinity. Of equal elements, the first in
/// row-major order receives the gradient. Each extent becomes floor((extent + 2 padding - dilation
/// (kernel - 1) - 1) / stride) + 1, or with ceil_mode the ceiling, minus windows that would start
/// beyond the input and the padding before it. Options: kernel<..> (required), stride<..> (default:
/// the kernel), padding<..> (0), dilation<..> (1), ceil_mode<bool> (false), return_indices<bool>
/// (false): then the index of each maximum within its plane is a second output, for max_unpool, as
/// a number of the model's type (exact up to 2^24 elements of float). O(output elements * kernel);
/// no allocation.
template <std::size_t Spatial, class... Options>
struct max_pool : detail::sliding_window<"max_pool", Spatial, Options...> {
  static_assert(
      detail::option_set<kernel<>, stride<>, padding<>, dilation<>, ceil_mode<false>,
                         return_indices<false>>::template accepts<Options...>,
      "ikebana: max pooling takes the options kernel, stride, padding, dilation, ceil_mode and "
      "return_indices, each once");
  using window = typename max_pool::sliding_window;
  static constexpr bool has_indices = detail::option_or<return_indices<false>, Options...>::value;
  static constexpr std::size_t outputs = has_indices ? 2 : 1;
  static constexpr kept keeps = has_indices ? kept::output : kept::nothing;

  static constexpr inferred infer(const shape& in) {
    const inferred made = window::infer(in);
    if constexpr (has_indices)
      if (made.ok()) return shape_list{made.output(), made.output()};
    return made;
  }

  /// Indices of the maxima within their planes.
  constexpr std::array<saved_spec, 1> saved(const shape_list& in) const requires(!has_indices) {
    return {saved_spec{sizeof(std::int32_t), window::infer(in[0]).output()}};
  }

  void describe(description& d) const {
    window::describe(d);
    d.add("dilation", window::dilations).add("ceil_mode", window::ceils);
  }

  template <class T>
  void forward(const context<T>& c) const {
    if constexpr (has_indices) {
      constexpr cpu::pool_problem with_place = window::problem(cpu::pool_work::maximum_with_place);
      // Integers become numbers where they stand, the last one first, since none is longer.
      auto* const places = reinterpret_cast<std::byte*>(c.output(1));
      cpu::max_pool_forward<T, cpu::pool_set_of(with_place)>(
          window::geometry(c.input_shape(), c.output_shape()), c.input(), c.output(),
          reinterpret_cast<std::int32_t*>(places));
      for (dim_t i = c.output_shape().numel(); i-- > 0;) {
        std::int32_t place;
        std::memcpy(&place, places + i * dim_t{sizeof place}, sizeof place);
        const auto number = static_cast<T>(place);
        std::memcpy(places + i * dim_t{sizeof number}, &number, sizeof number);
      }
      return;
    } else {
      constexpr cpu::pool_problem problem = window::problem(cpu::pool_work::maximum_with_place),
                                  evaluation = window::problem(cpu::pool_work::maximum);
      cpu::max_pool_forward<T, cpu::pool_set_of(problem) | cpu::pool_set_of(evaluation)>(
          window::geometry(c.input_shape(), c.output_shape()), c.input(), c.output(),
          c.template saved<std::int32_t>(0));
    }
  }

  template <class T>
  void backward(const context<T>& c) const {
    if (c.input_gradient() == nullptr) return;
    if constexpr (has_indices) {
      const dim_t n = c.input_shape().numel(),
                  area = c.input_shape().numel(c.input_shape().rank() - Spatial,
                                               c.input_shape().rank()),
                  windows = n == 0 ? 0 : c.output_shape().numel() / (n / area);
      std::fill_n(c.input_gradient(), n, T{0});
      for (dim_t plane = 0; windows > 0 && plane < n / area; ++plane)
        for (dim_t i = 0; i < windows; ++i)
          c.input_gradient()[plane * area + static_cast<dim_t>(c.output(1)[plane * windows + i])] +=
              c.output_gradient()[plane * windows + i];
      return;
    } else {
      constexpr cpu::pool_problem problem = window::problem(cpu::pool_work::maximum_backward);
      cpu::max_pool_backward<T, cpu::pool_set_of(problem)>(
          window::geometry(c.input_shape(), c.output_shape()), c.output_gradient(),
          c.template saved<std::int32_t>(0), c.input_gradient());
    }
  }

  template <class... X>
  constexpr auto operator()(const X&... x) const {
    return apply(*this, x...);
  }
};

/// The mean of each window over the spatial dimensions of [N, C, spatial...] or unbatched [C,
/// spatial...]: its sum divided by the number of its elements inside the padded input, or inside
/// the input with count_include_pad<false>, or by divisor_override<D>. Output extents are those of
/// max_pool with dilation 1. Options: kernel<..> (required), stride<..> (default: the kernel),
/// padding<..> (0), ceil_mode<bool> (false), count_include_pad<bool> (true), divisor_override<D>
/// (none; in two and three dimensions). O(output elements * kernel); no allocation.
template <std::size_t Spatial, class... Options>
struct avg_pool : detail::sliding_window<"avg_pool", Spatial, Options...> {
  static_assert(
      detail::option_set<kernel<>, stride<>, padding<>, ceil_mode<false>, count_include_pad<true>,
                         divisor_override<1>>::template accepts<Options...>,
      "ikebana: average pooling takes the options kernel, stride, padding, ceil_mode, "
      "count_include_pad and "
      "divisor_override, each once");
  using window = typename avg_pool::sliding_window;
  static constexpr bool counts_padding =
      detail::option_or<count_include_pad<true>, Options...>::value;
  static constexpr bool has_divisor =
      detail::times_given<detail::divisor_override_option, Options...> > 0;
  /// 0 if there is none.
  static constexpr dim_t divisor = detail::option_or<divisor_override<0>, Options...>::value;
  static_assert(!has_divisor || divisor >= 1, "ikebana: divisor_override is at least 1");
  static_assert(!has_divisor || Spatial > 1, "ikebana: avg_pool1d takes no divisor_override");

  void describe(description& d) const {
    window::describe(d);
    if (window::ceils) d.add("ceil_mode", true);
    if (!counts_padding) d.add("count_include_pad", false);
    if (has_divisor) d.add("divisor_override", divisor);
  }

  template <class T>
  void forward(const context<T>& c) const {
    constexpr cpu::pool_problem problem = problem_of(cpu::pool_work::average);
    cpu::avg_pool_forward<T, cpu::pool_set_of(problem)>(
        window::geometry(c.input_shape(), c.output_shape()), c.input(), c.output(), counts_padding,
        divisor);
  }

  template <class T>
  void backward(const context<T>& c) const {
    // Gradients that are divided apart are spread as all others.
    constexpr cpu::pool_problem problem = window::problem(cpu::pool_work::average_backward);
    if (c.input_gradient() != nullptr)
      cpu::avg_pool_backward<T, cpu::pool_set_of(problem)>(
          window::geometry(c.input_shape(), c.output_shape()), c.output_gradient(),
          c.input_gradient(), counts_padding, divisor);
  }

  template <class... X>
  constexpr auto operator()(const X&... x) const {
    return apply(*this, x...);
  }

 private:
  static constexpr cpu::pool_problem problem_of(cpu::pool_work work) {
    cpu::pool_problem problem = window::problem(work);
    // Whether windows can have different divisors.
    if (!has_divisor &&
        (window::ceils || !(counts_padding || detail::all_equal_to(window::paddings, 0))))
      problem.one_divisor = cpu::pool_fit::perhaps;
    return problem;
  }
};

/// Max pooling over [N, C, length] or [C, length].
template <class... NamedOptions>
using max_pool1d = max_pool<1, NamedOptions...>;

/// Max pooling over [N, C, height, width] or [C, height, width].
template <class... NamedOptions>
using max_pool2d = max_pool<2, NamedOptions...>;

/// Max pooling over [N, C, depth, height, width] or [C, depth, height, width].
template <class... NamedOptions>
using max_pool3d = max_pool<3, NamedOptions...>;

/// Average pooling over [N, C, length] or [C, length].
template <class... NamedOptions>
using avg_pool1d = avg_pool<1, NamedOptions...>;

/// Average pooling over [N, C, height, width] or [C, height, width].
template <class... NamedOptions>
using avg_pool2d = avg_pool<2, NamedOptions...>;

/// Average pooling over [N, C, depth, height, width] or [C, depth, height, width].
template <class... NamedOptions>
using avg_pool3d = avg_pool<3, NamedOptions...>;

}  // namespace ikebana
