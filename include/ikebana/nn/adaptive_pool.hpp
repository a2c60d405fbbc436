#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "ikebana/cpu/adaptive_pool.hpp"
#include "ikebana/module/context.hpp"
#include "ikebana/module/describe.hpp"
#include "ikebana/module/module.hpp"
#include "ikebana/module/option_set.hpp"
#include "ikebana/module/options.hpp"
#include "ikebana/module/parameter.hpp"
#include "ikebana/module/symbol.hpp"
#include "ikebana/nn/detail/pool_indices.hpp"
#include "ikebana/nn/detail/spatial.hpp"

namespace ikebana {

namespace detail {

/// What adaptive pooling modules share: windows that divide the last N dimensions into output_size
/// parts. Name is the module's kind without the number of dimensions.
template <literal Name, std::size_t N, class... Options>
struct adaptive_window {
  static_assert(N >= 1 && N <= 3);
  static_assert(option_set<output_size<>, return_indices<false>>::template accepts<Options...>,
                "ikebana: adaptive pooling takes the options output_size and return_indices, each "
                "once");
  static_assert(times_given<output_size_option, Options...> > 0,
                "ikebana: adaptive pooling needs the option output_size<..>");

  static constexpr auto sizes = spatial<N, option_or<output_size<unchanged>, Options...>>();

  static constexpr bool valid_sizes() {
    for (dim_t n : sizes)
      if (n < 0 && n != unchanged) return false;
    return true;
  }
  static_assert(valid_sizes(),
                "ikebana: an output_size is at least 0, or ikebana::unchanged for the input's");

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
      dim_t& extent = out[in.rank() - N + i];
      if (extent == 0)
        return diagnostic{
            says<" expects spatial extents of at least {expected}, got {got} (input {input})">, 1,
            extent, in};
      if (sizes[i] != unchanged) extent = sizes[i];
    }
    return out;
  }

  static constexpr dim_t multiply_adds(const shape_list&, const shape_list&) { return 0; }

  static void describe(description& d) {
    std::string text;
    bool equal = true;
    for (dim_t n : sizes) {
      if (!text.empty()) text += ", ";
      text += n == unchanged ? "unchanged" : std::to_string(n);
      equal = equal && n == sizes[0];
    }
    d.add("output_size",
          std::string_view{equal ? text.substr(0, text.find(',')) : '(' + text + ')'});
  }

  /// The algorithms of pooling that its windows leave.
  static constexpr cpu::pool_set algorithms =
      all_equal_to(sizes, 1) ? cpu::whole_plane_set() : cpu::uneven_set();

  static cpu::adaptive_pool_geometry geometry(const shape& in, const shape& out) {
    return {in.numel(0, in.rank() - N), spatial_extents<N>(in), spatial_extents<N>(out)};
  }
};

}  // namespace detail

/// The mean of each of output_size windows that cover the spatial dimensions of [N, C, spatial...]
/// or unbatched [C, spatial...]. Along each dimension, window i covers floor(i extent / size) to
/// ceil((i + 1) extent / size), exclusive. Options: output_size<..> (required), one number for all
/// spatial dimensions or one for each; `unchanged` stands for the input's extent. O(elements); no
/// allocation.
template <std::size_t Spatial, class... Options>
struct adaptive_avg_pool : detail::adaptive_window<"adaptive_avg_pool", Spatial, Options...> {
  static_assert(detail::times_given<detail::return_indices_option, Options...> == 0,
                "ikebana: a mean has no index; adaptive max pooling returns indices");
  using window = typename adaptive_avg_pool::adaptive_window;

  template <class T>
  void forward(const context<T>& c) const {
    cpu::adaptive_avg_pool_forward<T, window::algorithms>(
        window::geometry(c.input_shape(), c.output_shape()), c.input(), c.output());
  }

  template <class T>
  void backward(const context<T>& c) const {
    if (c.input_gradient() != nullptr)
      cpu::adaptive_avg_pool_backward<T, window::algorithms>(
          window::geometry(c.input_shape(), c.output_shape()), c.output_gradient(),
          c.input_gradient());
  }

  template <class... X>
  constexpr auto operator()(const X&... x) const {
    return apply(*this, x...);
  }
};

/// The greatest element of each of output_size windows, the same as those of adaptive_avg_pool. Of
/// equal elements, the first in row-major order receives the gradient. Options: output_size<..>
/// (required), return_indices<bool> (false), see max_pool. O(elements); no allocation.
template <std::size_t Spatial, class... Options>
struct adaptive_max_pool : detail::adaptive_window<"adaptive_max_pool", Spatial, Options...> {
  using window = typename adaptive_max_pool::adaptive_window;
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

  template <class T>
  void forward(const context<T>& c) const {
    std::int32_t* indices;
    if constexpr (has_indices)
      indices = reinterpret_cast<std::int32_t*>(c.output(1));
    else
      indices = c.template saved<std::int32_t>(0);
    cpu::adaptive_max_pool_forward<T, window::algorithms>(
        window::geometry(c.input_shape(), c.output_shape()), c.input(), c.output(), indices);
    if constexpr (has_indices) detail::indices_to_numbers<T>(c.output_shape().numel(), c.output(1));
  }

  template <class T>
  void backward(const context<T>& c) const {
    if (c.input_gradient() == nullptr) return;
    if constexpr (has_indices) {
      const auto g = window::geometry(c.input_shape(), c.output_shape());
      detail::scatter_to_indices<T>(g.planes, g.in[0] * g.in[1] * g.in[2],
                                    g.out[0] * g.out[1] * g.out[2], c.output_gradient(),
                                    c.output(1), c.input_gradient());
    } else {
      cpu::adaptive_max_pool_backward<T>(window::geometry(c.input_shape(), c.output_shape()),
                                         c.output_gradient(), c.template saved<std::int32_t>(0),
                                         c.input_gradient());
    }
  }

  template <class... X>
  constexpr auto operator()(const X&... x) const {
    return apply(*this, x...);
  }
};

/// Adaptive average pooling over [N, C, length] or [C, length].
template <class... Options>
using adaptive_avg_pool1d = adaptive_avg_pool<1, Options...>;

/// Adaptive average pooling over [N, C, height, width] or [C, height, width].
template <class... Options>
using adaptive_avg_pool2d = adaptive_avg_pool<2, Options...>;

/// Adaptive average pooling over [N, C, depth, height, width] or [C, depth, height, width].
template <class... Options>
using adaptive_avg_pool3d = adaptive_avg_pool<3, Options...>;

/// Adaptive max pooling over [N, C, length] or [C, length].
template <class... Options>
using adaptive_max_pool1d = adaptive_max_pool<1, Options...>;

/// Adaptive max pooling over [N, C, height, width] or [C, height, width].
template <class... Options>
using adaptive_max_pool2d = adaptive_max_pool<2, Options...>;

/// Adaptive max pooling over [N, C, depth, height, width] or [C, depth, height, width].
template <class... Options>
using adaptive_max_pool3d = adaptive_max_pool<3, Options...>;

}  // namespace ikebana
