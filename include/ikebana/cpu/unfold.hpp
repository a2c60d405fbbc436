#pragma once

#include <array>
#include <cstddef>
#include <cstring>

#include "ikebana/core/shape.hpp"
#include "ikebana/cpu/detail/targets.hpp"

namespace ikebana::cpu {

/// Windows over planes of extents `in`, at `out` positions.
struct unfold_geometry {
  dim_t planes;
  std::array<dim_t, 2> in, out, kernel, stride, padding, dilation;
};

namespace detail {

/// Calls f(row of positions, row of a plane or -1, first column) for each element of the kernel and
/// each row of positions.
template <class F>
void for_each_window_row(const unfold_geometry& g, F f) {
  dim_t row = 0;
  for (dim_t plane = 0; plane < g.planes; ++plane)
    for (dim_t i = 0; i < g.kernel[0]; ++i)
      for (dim_t j = 0; j < g.kernel[1]; ++j)
        for (dim_t o = 0; o < g.out[0]; ++o, ++row) {
          const dim_t y = o * g.stride[0] - g.padding[0] + i * g.dilation[0];
          f(row, y < 0 || y >= g.in[0] ? -1 : plane * g.in[0] + y,
            j * g.dilation[1] - g.padding[1]);
        }
}

}  // namespace detail

/// im2col: y[planes, kernel positions, out positions] of x[planes, in], 0 beyond the edges.
template <class T>
void unfold(const unfold_geometry& g, const T* x, T* y) {
  detail::for_each_window_row(g, [&](dim_t to_row, dim_t from_row, dim_t column) {
    T* const to = y + to_row * g.out[1];
    const T* const from = x + (from_row < 0 ? 0 : from_row * g.in[1]);
    for (dim_t o = 0; o < g.out[1]; ++o) {
      const dim_t at = column + o * g.stride[1];
      to[o] = from_row < 0 || at < 0 || at >= g.in[1] ? T(0) : from[at];
    }
  });
}

/// col2im, the transposed operation: y[planes, in] is the sum of what unfold would read there.
template <class T>
void fold_patches(const unfold_geometry& g, const T* x, T* y) {
  const dim_t n = g.planes * g.in[0] * g.in[1];
  for (dim_t i = 0; i < n; ++i) y[i] = 0;
  detail::for_each_window_row(g, [&](dim_t from_row, dim_t to_row, dim_t column) {
    if (to_row < 0) return;
    const T* const from = x + from_row * g.out[1];
    T* const to = y + to_row * g.in[1];
    for (dim_t o = 0; o < g.out[1]; ++o) {
      const dim_t at = column + o * g.stride[1];
      if (at >= 0 && at < g.in[1]) to[at] += from[o];
    }
  });
}

}  // namespace ikebana::cpu
