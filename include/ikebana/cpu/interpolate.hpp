#pragma once

#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include "ikebana/core/shape.hpp"
#include "ikebana/cpu/elementwise.hpp"

namespace ikebana::cpu {

/// How an element of a resized array is made of those of the array: of the one at the lower corner
/// (`nearest`) or at the centre (`nearest_exact`), of two neighbours in each dimension, or of four
/// (Keys, Cubic Convolution Interpolation for Digital Image Processing, 1981, with a = -0.75).
enum class interpolation : unsigned char { nearest, nearest_exact, linear, cubic };

/// The greatest number of elements in one dimension that an element is made of.
constexpr dim_t taps_of(interpolation how) {
  return how == interpolation::cubic ? 4 : how == interpolation::linear ? 2 : 1;
}

/// Planes of extents `in`, resized to `out`. factor[d] is the ratio of what stands between two
/// elements, or 0 for out / in.
struct interpolate_geometry {
  dim_t planes;
  std::array<dim_t, 3> in, out;
  std::array<double, 3> factor;
  interpolation how;
  bool align_corners;
};

namespace detail {

struct interpolation_taps {
  std::array<dim_t, 4> at;
  std::array<double, 4> weight;
};

/// What element o of dimension d is made of.
inline interpolation_taps taps_at(const interpolate_geometry& g, std::size_t d, dim_t o) {
  const dim_t last = g.in[d] - 1;
  const auto inside = [=](dim_t i) { return i < 0 ? 0 : i > last ? last : i; };
  const double factor =
      g.factor[d] > 0 ? g.factor[d] : static_cast<double>(g.out[d]) / static_cast<double>(g.in[d]);
  const double position = static_cast<double>(o);
  if (g.how == interpolation::nearest)
    return {{inside(static_cast<dim_t>(std::floor(position / factor)))}, {1}};
  if (g.how == interpolation::nearest_exact)
    return {{inside(static_cast<dim_t>(std::floor((position + 0.5) / factor)))}, {1}};

  double source = (position + 0.5) / factor - 0.5;
  if (g.align_corners)
    source =
        g.out[d] > 1 ? position * static_cast<double>(last) / static_cast<double>(g.out[d] - 1) : 0;
  if (g.how == interpolation::linear) {
    if (source < 0) source = 0;
    const dim_t i = inside(static_cast<dim_t>(source));
    const double t = source - static_cast<double>(i);
    return {{i, inside(i + 1)}, {1 - t, t}};
  }
  const double below = std::floor(source), t = source - below;
  const auto i = static_cast<dim_t>(below);
  constexpr double a = -0.75;
  const auto near = [=](double s) { return ((a + 2) * s - (a + 3)) * s * s + 1; };
  const auto far = [=](double s) { return ((a * s - 5 * a) * s + 8 * a) * s - 4 * a; };
  return {{inside(i - 1), inside(i), inside(i + 1), inside(i + 2)},
          {far(t + 1), near(t), near(1 - t), far(2 - t)}};
}

/// Calls f(row of the resized planes, row of the planes, weight) for each pair of rows that belong
/// together, those of one resized row in succession, and done(resized row) after each of these.
template <class F, class Done>
void for_each_pair_of_rows(const interpolate_geometry& g, F f, Done done) {
  const auto taps = static_cast<std::size_t>(taps_of(g.how));
  // Of a dimension that does not change, an element is made of itself.
  const std::size_t deep = g.in[0] == 1 && g.out[0] == 1 ? 1 : taps;
  const std::size_t high = g.in[1] == 1 && g.out[1] == 1 ? 1 : taps;
  dim_t row = 0;
  for (dim_t plane = 0; plane < g.planes; ++plane)
    for (dim_t z = 0; z < g.out[0]; ++z) {
      interpolation_taps slices = taps_at(g, 0, z);
      if (deep == 1) slices.weight[0] = 1;
      for (dim_t y = 0; y < g.out[1]; ++y, ++row) {
        interpolation_taps lines = taps_at(g, 1, y);
        if (high == 1) lines.weight[0] = 1;
        for (std::size_t i = 0; i < deep; ++i)
          for (std::size_t j = 0; j < high; ++j)
            f(row, (plane * g.in[0] + slices.at[i]) * g.in[1] + lines.at[j],
              slices.weight[i] * lines.weight[j]);
        done(row);
      }
    }
}

}  // namespace detail

/// Resizes planes. Writes for the last dimension, to be read by interpolate_backward, `index` and
/// `weight` of out[2] taps_of(how) elements each; `row` is scratch memory of in[2] elements. Rows
/// are added up first, then elements of the sum. x and y do not overlap.
template <class T>
void interpolate(const interpolate_geometry& g, const T* x, T* y, std::int32_t* index, T* weight,
                 T* row) {
  const dim_t taps = taps_of(g.how);
  for (dim_t o = 0; o < g.out[2]; ++o) {
    const detail::interpolation_taps t = detail::taps_at(g, 2, o);
    for (dim_t k = 0; k < taps; ++k) {
      index[o * taps + k] = static_cast<std::int32_t>(t.at[static_cast<std::size_t>(k)]);
      weight[o * taps + k] = static_cast<T>(t.weight[static_cast<std::size_t>(k)]);
    }
  }
  fill<T>(g.in[2], row, T(0));
  detail::for_each_pair_of_rows(
      g,
      [&](dim_t, dim_t from, double w) {
        axpy<T>(g.in[2], static_cast<T>(w), x + from * g.in[2], row);
      },
      [&](dim_t to_row) {
        T* const to = y + to_row * g.out[2];
        const std::int32_t* i = index;
        const T* w = weight;
        for (dim_t o = 0; o < g.out[2]; ++o, i += taps, w += taps) {
          T sum = w[0] * row[i[0]];
          for (dim_t k = 1; k < taps; ++k) sum += w[k] * row[i[k]];
          to[o] = sum;
        }
        fill<T>(g.in[2], row, T(0));
      });
}

/// dx = the sums of dy over what each element was used for, each times its weight. Overwrites dx.
template <class T>
void interpolate_backward(const interpolate_geometry& g, const T* dy, T* dx,
                          const std::int32_t* index, const T* weight, T* row) {
  const dim_t taps = taps_of(g.how);
  fill<T>(g.planes * g.in[0] * g.in[1] * g.in[2], dx, T(0));
  dim_t gathered = -1;
  detail::for_each_pair_of_rows(
      g,
      [&](dim_t from_row, dim_t to, double w) {
        if (from_row != gathered) {
          gathered = from_row;
          fill<T>(g.in[2], row, T(0));
          const T* const from = dy + from_row * g.out[2];
          for (dim_t o = 0; o < g.out[2]; ++o)
            for (dim_t k = 0; k < taps; ++k)
              row[index[o * taps + k]] += weight[o * taps + k] * from[o];
        }
        axpy<T>(g.in[2], static_cast<T>(w), row, dx + to * g.in[2]);
      },
      [](dim_t) {});
}

}  // namespace ikebana::cpu
