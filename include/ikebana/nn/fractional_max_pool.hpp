#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <ratio>
#include <string_view>

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

struct random_samples_option;
struct output_ratio_option;

template <std::size_t N>
constexpr bool all_between_zero_and_one(const std::array<double, N>& values) {
  for (const double v : values)
    if (!(v > 0 && v < 1)) return false;
  return true;
}

}  // namespace detail

/// Whether the random numbers of a fractional pooling are an input.
template <bool B>
struct random_samples {
  using option = detail::random_samples_option;
  static constexpr bool value = B;
};

/// The output extents of a fractional pooling as fractions of the input's: a std::ratio between 0
/// and 1 for each spatial dimension, or one for all. An extent is rounded down.
template <class... Ratios>
struct output_ratio {
  using option = detail::output_ratio_option;
  static constexpr std::array<double, sizeof...(Ratios)> values{
      static_cast<double>(Ratios::num) / static_cast<double>(Ratios::den)...};
};

/// The greatest element of each of output_size windows of kernel elements whose distances are
/// random, the same along a dimension of a plane (Graham, Fractional Max-Pooling, 2015): with u in
/// [0, 1) and a = (extent - kernel) / (size - 1), window i begins at floor((i + u) a) - floor(u a),
/// the last one at extent - kernel. Of equal elements, the first in row-major order receives the
/// gradient. Input: [N, C, spatial...] or unbatched [C, spatial...].
///
/// The random numbers, one for each plane and dimension, are those of the module's stream: others
/// in each step of training, and the same in all calls of evaluation. With random_samples<true>
/// they are a second input, [N, C, Spatial] or [C, Spatial], as PyTorch's _random_samples (width
/// before height in two dimensions). Options: kernel<..>, and output_size<..> or
/// output_ratio<std::ratio<1, 2>>, one of them (required); return_indices<bool> (false), see
/// max_pool. O(output elements * kernel); no allocation.
template <std::size_t Spatial, class... Options>
struct fractional_max_pool {
  static_assert(Spatial == 2 || Spatial == 3);
  static constexpr bool has_ratio =
      detail::times_given<detail::output_ratio_option, Options...> > 0;
  static_assert(detail::option_set<kernel<>, output_size<>, output_ratio<>, return_indices<false>,
                                   random_samples<false>>::template accepts<Options...>,
                "ikebana: fractional max pooling takes the options kernel, output_size or "
                "output_ratio, return_indices and random_samples, each once");
  static_assert(detail::times_given<detail::kernel_option, Options...> > 0 &&
                    has_ratio != (detail::times_given<detail::output_size_option, Options...> > 0),
                "ikebana: fractional max pooling needs the options kernel<..> and either "
                "output_size<..> or output_ratio<..>");

  static constexpr auto kernels =
      detail::spatial<Spatial, detail::option_or<kernel<1>, Options...>>();
  static constexpr auto sizes =
      detail::spatial<Spatial, detail::option_or<output_size<1>, Options...>>();
  using ratios = detail::option_or<output_ratio<std::ratio<1>>, Options...>;
  static_assert(ratios::values.size() == 1 || ratios::values.size() == Spatial,
                "ikebana: output_ratio takes one ratio, or one for each spatial dimension");
  static_assert(!has_ratio || detail::all_between_zero_and_one(ratios::values),
                "ikebana: output_ratio takes ratios between 0 and 1");
  static_assert(detail::all_at_least(kernels, 1) && detail::all_at_least(sizes, 1),
                "ikebana: the kernel and the output_size of fractional max pooling are at least 1");
  static constexpr bool has_indices = detail::option_or<return_indices<false>, Options...>::value;
  static constexpr bool takes_samples = detail::option_or<random_samples<false>, Options...>::value;

  static constexpr std::string_view kind =
      detail::joined<"fractional_max_pool", detail::digit<Spatial>, "d">;
  static constexpr std::size_t outputs = has_indices ? 2 : 1;
  static constexpr kept keeps = takes_samples ? kept::both : kept::output;
  static constexpr bool is_random = true;

  constexpr inferred infer(const shape_list& all) const {
    const shape& in = all[0];
    if (all.size() != (takes_samples ? 2 : 1))
      return diagnostic{says<" expects {expected} inputs, got {got} (input {input})">,
                        takes_samples ? 2 : 1, static_cast<dim_t>(all.size()), in};
    if (in.rank() != Spatial + 1 && in.rank() != Spatial + 2)
      return diagnostic{
          says<" expects an input of ", detail::digit<Spatial + 1>, " (unbatched) or ",
               detail::digit<Spatial + 2>, " dimensions, got {got} (input {input})">,
          Spatial + 2, static_cast<dim_t>(in.rank()), in};
    shape out = in, samples = in;
    for (std::size_t i = 0; i < Spatial; ++i) {
      dim_t& extent = out[in.rank() - Spatial + i];
      const dim_t size = output_extent(extent, i);
      const dim_t least = (size < 0 ? 1 : size) + kernels[i] - 1;
      if (extent >= 0 && extent < least)
        return diagnostic{
            says<" expects spatial extents of at least {expected}, got {got} (input {input})">,
            least, extent, in};
      extent = size;
    }
    if constexpr (takes_samples) {
      samples = in.rank() == Spatial + 1 ? shape{in[0], dim_t{Spatial}}
                                         : shape{in[0], in[1], dim_t{Spatial}};
      if (!compatible(samples, all[1]))
        return diagnostic{says<" expects random samples {input}, got {other}">, 0, 0, samples,
                          all[1]};
    }
    if constexpr (has_indices) return shape_list{out, out};
    return shape_list{out};
  }

  /// Indices of the maxima within their planes.
  constexpr std::array<saved_spec, 1> saved(const shape_list& in) const requires(!has_indices) {
    return {saved_spec{sizeof(std::int32_t), window_shape(in[0])}};
  }

  constexpr dim_t multiply_adds(const shape_list&, const shape_list&) const { return 0; }
  void describe(description& d) const {
    d.add("kernel", kernels);
    if constexpr (has_ratio)
      d.add("output_ratio", ratios::values);
    else
      d.add("output_size", sizes);
  }

  template <class T>
  void forward(const context<T>& c) const {
    const auto in = detail::spatial_extents<Spatial>(c.input_shape());
    const auto n = detail::spatial_extents<Spatial>(c.output_shape());
    const auto k = detail::in_three(kernels, dim_t{1});
    const dim_t area = in[0] * in[1] * in[2], planes = planes_of(c.input_shape());
    const T* x = c.input();
    T* y = c.output();
    std::int32_t* at;
    if constexpr (has_indices)
      at = reinterpret_cast<std::int32_t*>(c.output(1));
    else
      at = c.template saved<std::int32_t>(0);
    for (dim_t p = 0; p < planes; ++p, x += area) {
      T u[3]{};
      for (std::size_t d = 0; d < Spatial; ++d) {
        // In two dimensions the width is first.
        const std::size_t s = Spatial == 2 ? 1 - d : d;
        u[3 - Spatial + d] = sample(c, p * dim_t{Spatial} + static_cast<dim_t>(s));
      }
      for (dim_t a = 0; a < n[0]; ++a)
        for (dim_t b = 0; b < n[1]; ++b)
          for (dim_t e = 0; e < n[2]; ++e) {
            const dim_t from[3] = {begin(a, u[0], in[0], n[0], k[0]),
                                   begin(b, u[1], in[1], n[1], k[1]),
                                   begin(e, u[2], in[2], n[2], k[2])};
            dim_t best = (from[0] * in[1] + from[1]) * in[2] + from[2];
            for (dim_t i = 0; i < k[0]; ++i)
              for (dim_t j = 0; j < k[1]; ++j)
                for (dim_t l = 0; l < k[2]; ++l) {
                  const dim_t here = ((from[0] + i) * in[1] + from[1] + j) * in[2] + from[2] + l;
                  // A NaN is the greatest.
                  if (x[here] > x[best] || x[here] != x[here]) best = here;
                }
            const auto place = static_cast<std::int32_t>(best);
            std::memcpy(at++, &place, sizeof place);
            *y++ = x[best];
          }
    }
    if constexpr (has_indices) detail::indices_to_numbers<T>(c.output_shape().numel(), c.output(1));
  }

  template <class T>
  void backward(const context<T>& c) const {
    if constexpr (takes_samples)
      if (T* const du = c.input_gradient(1); du != nullptr)
        std::fill_n(du, c.input_shape(1).numel(), T{0});
    T* const dx = c.input_gradient(0);
    if (dx == nullptr) return;
    const dim_t planes = planes_of(c.input_shape());
    const auto in = detail::spatial_extents<Spatial>(c.input_shape());
    const auto out = detail::spatial_extents<Spatial>(c.output_shape());
    const dim_t area = in[0] * in[1] * in[2], windows = out[0] * out[1] * out[2];
    if constexpr (has_indices)
      detail::scatter_to_indices<T>(planes, area, windows, c.output_gradient(), c.output(1), dx);
    else
      detail::scatter_to_indices<T>(planes, area, windows, c.output_gradient(),
                                    c.template saved<std::int32_t>(0), dx);
  }

  template <class... X>
  constexpr auto operator()(const X&... x) const {
    return apply(*this, x...);
  }

 private:
  template <detail::literal... Text>
  static constexpr const char* says =
      detail::joined<"fractional_max_pool", detail::digit<Spatial>, "d", Text...>;

  static constexpr shape window_shape(shape in) {
    for (std::size_t i = 0; i < Spatial; ++i) {
      dim_t& extent = in[in.rank() - Spatial + i];
      extent = output_extent(extent, i);
    }
    return in;
  }
  /// Unknown (negative) where `extent` is and it matters. PyTorch, too, multiplies in double.
  static constexpr dim_t output_extent(dim_t extent, std::size_t i) {
    if (!has_ratio) return sizes[i];
    if (extent < 0) return extent;
    return static_cast<dim_t>(static_cast<double>(extent) *
                              ratios::values[ratios::values.size() == 1 ? 0 : i]);
  }
  static dim_t planes_of(const shape& in) { return in.numel(0, in.rank() - Spatial); }
  template <class T>
  static T sample(const context<T>& c, dim_t i) {
    if constexpr (takes_samples)
      return c.input(1)[i];
    else
      return static_cast<T>(static_cast<float>(c.random().words(static_cast<std::uint32_t>(
                                                   i / 4))[static_cast<std::size_t>(i % 4)] >>
                                               8) *
                            0x1p-24f);
  }
  /// Where window i begins.
  template <class T>
  static dim_t begin(dim_t i, T u, dim_t extent, dim_t size, dim_t width) {
    if (i == size - 1) return extent - width;
    const T step = static_cast<T>(extent - width) / static_cast<T>(size - 1);
    return static_cast<dim_t>((static_cast<T>(i) + u) * step) - static_cast<dim_t>(u * step);
  }
};

/// Fractional max pooling over [N, C, height, width] or [C, height, width].
template <class... Options>
using fractional_max_pool2d = fractional_max_pool<2, Options...>;
/// Fractional max pooling over [N, C, depth, height, width] or [C, depth, height, width].
template <class... Options>
using fractional_max_pool3d = fractional_max_pool<3, Options...>;

}  // namespace ikebana
