#pragma once

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <string_view>

#include "ikebana/module/context.hpp"
#include "ikebana/module/describe.hpp"
#include "ikebana/module/extent.hpp"
#include "ikebana/module/module.hpp"
#include "ikebana/module/option_set.hpp"
#include "ikebana/module/options.hpp"
#include "ikebana/module/parameter.hpp"
#include "ikebana/module/symbol.hpp"
#include "ikebana/nn/detail/spatial.hpp"
#include "ikebana/nn/mode.hpp"
#include "ikebana/nn/upsample.hpp"

namespace ikebana {

namespace detail {
struct outside_option;
}

/// What grid_sample reads outside of an image: outside<"zeros">, <"border"> (the nearest element)
/// or <"reflection">. PyTorch's padding_mode.
template <detail::literal How>
struct outside {
  using option = detail::outside_option;
  static constexpr std::string_view value{How.data, How.size()};
};

/// Reads images [N, C, H, W] at the points of a grid [N, h, w, 2] (Jaderberg et al., Spatial
/// Transformer Networks, 2015), as PyTorch's grid_sample: the output is [N, C, h, w]. A point is
/// (x, y); -1 and 1 are the edges of the image, or the centers of its outermost elements with
/// align_corners<true>. Images and grid have gradients. Options: mode<"bilinear"> (default) or
/// <"nearest">, outside<..> ("zeros"), align_corners<bool> (false). Points that are no numbers read
/// zeros. O(output elements); no allocation.
template <class... Options>
struct grid_sample {
  static_assert(
      detail::option_set<mode<"bilinear">, outside<"zeros">,
                         align_corners<false>>::template accepts<Options...>,
      "ikebana: grid_sample takes the options mode, outside and align_corners, each once");

  static constexpr std::string_view kind = "grid_sample";
  static constexpr kept keeps = kept::input;
  static constexpr std::string_view how = detail::option_or<mode<"bilinear">, Options...>::value;
  static constexpr std::string_view beyond = detail::option_or<outside<"zeros">, Options...>::value;
  static constexpr bool aligns = detail::option_or<align_corners<false>, Options...>::value;
  static_assert(how == "bilinear" || how == "nearest",
                "ikebana: grid_sample takes mode<\"bilinear\"> or <\"nearest\">");
  static_assert(beyond == "zeros" || beyond == "border" || beyond == "reflection",
                "ikebana: grid_sample takes outside<\"zeros\">, <\"border\"> or <\"reflection\">");

  constexpr inferred infer(const shape_list& in) const {
    if (in.size() != 2)
      return diagnostic{
          "grid_sample expects images and a grid, {expected} inputs, got {got} "
          "(input {input})",
          2, static_cast<dim_t>(in.size()), in[0]};
    for (std::size_t i = 0; i < 2; ++i)
      if (in[i].rank() != 4)
        return diagnostic{
            "grid_sample expects an input of {expected} dimensions, got {got} (input {input})", 4,
            static_cast<dim_t>(in[i].rank()), in[i]};
    if (!fits(in[0][0], in[1][0]))
      return diagnostic{
          "grid_sample expects a grid for each of {expected} images, got {got} (input {input})",
          in[0][0], in[1][0], in[1]};
    if (!fits(2, in[1][3]))
      return diagnostic{
          "grid_sample expects points of {expected} coordinates, got {got} (input {input})", 2,
          in[1][3], in[1]};
    for (std::size_t i = 2; i < 4; ++i)
      if (in[0][i] == 0)
        return diagnostic{
            "grid_sample expects spatial extents of at least {expected}, got {got} (input {input})",
            1, in[0][i], in[0]};
    return in[0].with(2, in[1][1]).with(3, in[1][2]);
  }

  constexpr dim_t multiply_adds(const shape_list&, const shape_list& out) const {
    return 4 * out[0].numel();
  }
  void describe(description& d) const {
    d.add("mode", how).add("outside", beyond).add("align_corners", aligns);
  }

  template <class T>
  void forward(const context<T>& c) const {
    const shape& in = c.input_shape();
    const dim_t area = in[2] * in[3], points = c.output_shape()[2] * c.output_shape()[3];
    std::fill_n(c.output(), c.output_shape().numel(), T{0});
    for_each_corner(c, [&](dim_t n, dim_t point, dim_t from, T weight, T, T) {
      const T* x = c.input() + n * in[1] * area + from;
      T* y = c.output() + n * in[1] * points + point;
      for (dim_t k = 0; k < in[1]; ++k) y[k * points] += weight * x[k * area];
    });
  }

  template <class T>
  void backward(const context<T>& c) const {
    const shape& in = c.input_shape();
    const dim_t area = in[2] * in[3], points = c.output_shape()[2] * c.output_shape()[3];
    T *const dx = c.input_gradient(0), *const dgrid = c.input_gradient(1);
    if (dx != nullptr) std::fill_n(dx, in.numel(), T{0});
    if (dgrid != nullptr) std::fill_n(dgrid, c.input_shape(1).numel(), T{0});
    if (dx == nullptr && dgrid == nullptr) return;
    for_each_corner(c, [&](dim_t n, dim_t point, dim_t from, T weight, T by_x, T by_y) {
      const T* dy = c.output_gradient() + n * in[1] * points + point;
      const dim_t at = n * in[1] * area + from;
      T sum{};
      for (dim_t k = 0; k < in[1]; ++k) {
        if (dx != nullptr) dx[at + k * area] += weight * dy[k * points];
        sum += c.input()[at + k * area] * dy[k * points];
      }
      if (dgrid == nullptr) return;
      dgrid[2 * (n * points + point)] += by_x * sum;
      dgrid[2 * (n * points + point) + 1] += by_y * sum;
    });
  }

  template <class... X>
  constexpr auto operator()(const X&... x) const {
    return apply(*this, x...);
  }

 private:
  /// A coordinate in elements, and its derivative by that of the grid.
  template <class T>
  struct place {
    T at, slope;
  };

  template <class T>
  static place<T> place_of(T x, dim_t extent) {
    const T size = static_cast<T>(extent);
    place<T> p = aligns ? place<T>{(x + 1) / 2 * (size - 1), (size - 1) / 2}
                        : place<T>{((x + 1) * size - 1) / 2, size / 2};
    if (beyond == "reflection") {
      const T least = aligns ? T(0) : T(-0.5), span = aligns ? size - 1 : size;
      if (span == T(0)) {
        p = {T(0), T(0)};
      } else {
        T away = p.at - least;
        if (away < T(0)) {
          away = -away;
          p.slope = -p.slope;
        }
        const T turns = std::floor(away / span), rest = std::fmod(away, span);
        const bool is_even = std::fmod(turns, T(2)) == T(0);
        p.at = (is_even ? rest : span - rest) + least;
        if (!is_even) p.slope = -p.slope;
      }
    }
    if (beyond != "zeros" && !(p.at > T(0) && p.at < size - 1) && p.at == p.at) {
      p.at = p.at > T(0) ? size - 1 : T(0);
      p.slope = T(0);
    }
    return p;
  }

  /// Calls f(image, point, element within a plane, weight, the derivatives of the weight by x and
  /// y) for the elements that a point reads.
  template <class T, class F>
  static void for_each_corner(const context<T>& c, F&& f) {
    const shape &in = c.input_shape(), &grid = c.input_shape(1);
    const dim_t height = in[2], width = in[3], points = grid[1] * grid[2];
    const auto is_near = [](T at, dim_t extent) {
      return at > T(-1) && at < static_cast<T>(extent);
    };
    for (dim_t i = 0; i < in[0] * points; ++i) {
      const place<T> x = place_of(c.input(1)[2 * i], width),
                     y = place_of(c.input(1)[2 * i + 1], height);
      if (!is_near(x.at, width) || !is_near(y.at, height)) continue;
      const dim_t n = i / points, point = i % points;
      const auto visit = [&](dim_t row, dim_t column, T weight, T by_x, T by_y) {
        if (row >= 0 && row < height && column >= 0 && column < width)
          f(n, point, row * width + column, weight, by_x, by_y);
      };
      if (how == "nearest") {
        visit(static_cast<dim_t>(std::nearbyint(y.at)), static_cast<dim_t>(std::nearbyint(x.at)),
              T(1), T(0), T(0));
        continue;
      }
      const T left = std::floor(x.at), top = std::floor(y.at), right_part = x.at - left,
              lower_part = y.at - top;
      for (dim_t below = 0; below < 2; ++below)
        for (dim_t beside = 0; beside < 2; ++beside) {
          const T wide = beside == 1 ? right_part : 1 - right_part,
                  high = below == 1 ? lower_part : 1 - lower_part;
          visit(static_cast<dim_t>(top) + below, static_cast<dim_t>(left) + beside, wide * high,
                (beside == 1 ? high : -high) * x.slope, (below == 1 ? wide : -wide) * y.slope);
        }
    }
  }
};

/// The grid of an affine map, for grid_sample: matrices [N, 2, 3] become points [N, h, w, 2],
/// matrix (x, y, 1) for the points (x, y) of the output, as PyTorch's affine_grid. Options:
/// output_size<h, w> (required), align_corners<bool> (false). O(output elements); no allocation.
template <class... Options>
struct affine_grid {
  static_assert(
      detail::option_set<output_size<>, align_corners<false>>::template accepts<Options...> &&
          detail::times_given<detail::output_size_option, Options...> == 1,
      "ikebana: affine_grid takes the options output_size and align_corners, each once");

  static constexpr std::string_view kind = "affine_grid";
  static constexpr kept keeps = kept::nothing;
  static constexpr auto size = detail::spatial<2, detail::option_or<output_size<1>, Options...>>();
  static constexpr bool aligns = detail::option_or<align_corners<false>, Options...>::value;
  static_assert(detail::all_at_least(size, 1),
                "ikebana: affine_grid needs output extents of at least 1");

  constexpr inferred infer(const shape& in) const {
    if (in.rank() != 3)
      return diagnostic{
          "affine_grid expects an input of {expected} dimensions, got {got} (input {input})", 3,
          static_cast<dim_t>(in.rank()), in};
    for (std::size_t i = 1; i < 3; ++i)
      if (!fits(static_cast<dim_t>(i) + 1, in[i]))
        return diagnostic{
            "affine_grid expects matrices of 2 x 3, needs an extent of {expected}, got {got} "
            "(input {input})",
            static_cast<dim_t>(i) + 1, in[i], in};
    return shape{in[0], size[0], size[1], 2};
  }

  constexpr dim_t multiply_adds(const shape_list&, const shape_list& out) const {
    return 2 * out[0].numel();
  }
  void describe(description& d) const { d.add("output_size", size).add("align_corners", aligns); }

  template <class T>
  void forward(const context<T>& c) const {
    for_each_point<T>(c.input_shape()[0], [&](dim_t n, dim_t point, T x, T y) {
      const T* m = c.input() + 6 * n;
      T* to = c.output() + 2 * point;
      to[0] = m[0] * x + m[1] * y + m[2];
      to[1] = m[3] * x + m[4] * y + m[5];
    });
  }
  template <class T>
  void backward(const context<T>& c) const {
    T* const dm = c.input_gradient();
    if (dm == nullptr) return;
    std::fill_n(dm, c.input_shape().numel(), T{0});
    for_each_point<T>(c.input_shape()[0], [&](dim_t n, dim_t point, T x, T y) {
      for (dim_t k = 0; k < 2; ++k) {
        const T slope = c.output_gradient()[2 * point + k];
        T* const row = dm + 6 * n + 3 * k;
        row[0] += slope * x;
        row[1] += slope * y;
        row[2] += slope;
      }
    });
  }

  template <class... X>
  constexpr auto operator()(const X&... x) const {
    return apply(*this, x...);
  }

 private:
  template <class T>
  static T coordinate(dim_t i, dim_t extent) {
    const T n = static_cast<T>(extent), at = static_cast<T>(i);
    if (!aligns) return (2 * at + 1) / n - 1;
    return extent > 1 ? 2 * at / (n - 1) - 1 : T(0);
  }
  template <class T, class F>
  static void for_each_point(dim_t batch, F&& f) {
    for (dim_t n = 0, point = 0; n < batch; ++n)
      for (dim_t i = 0; i < size[0]; ++i)
        for (dim_t j = 0; j < size[1]; ++j, ++point)
          f(n, point, coordinate<T>(j, size[1]), coordinate<T>(i, size[0]));
  }
};

}  // namespace ikebana
