#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstring>

#include "ikebana/core/shape.hpp"
#include "ikebana/cpu/elementwise.hpp"

namespace ikebana::cpu {

/// What stands beyond the edge of an image: its mirror image without the edge itself, the edge, the
/// opposite edge, or a constant.
enum class border : unsigned char { reflect, replicate, circular, constant };

/// Planes of extents `in`, widened to `out`: position o reads position o - before. Where reflected,
/// nothing may lie as far outside as the extent; where circular, nothing farther.
struct pad_geometry {
  dim_t planes;
  std::array<dim_t, 3> in, before, out;
};

namespace detail {

/// Negative where the constant stands.
constexpr dim_t position_within(border b, dim_t at, dim_t extent) {
  if (at >= 0 && at < extent) return at;
  if (b == border::constant) return -1;
  const bool left = at < 0;
  if (b == border::reflect) return left ? -at : 2 * (extent - 1) - at;
  if (b == border::circular) return left ? at + extent : at - extent;
  return left ? 0 : extent - 1;
}

/// Calls f(row of the padded planes, row of the planes or -1) for each row of the padded ones.
template <class F>
void for_each_padded_row(const pad_geometry& g, border b, F f) {
  dim_t row = 0;
  for (dim_t plane = 0; plane < g.planes; ++plane)
    for (dim_t z = 0; z < g.out[0]; ++z) {
      const dim_t slice = position_within(b, z - g.before[0], g.in[0]);
      for (dim_t y = 0; y < g.out[1]; ++y) {
        const dim_t line = position_within(b, y - g.before[1], g.in[1]);
        f(row++, slice < 0 || line < 0 ? -1 : (plane * g.in[0] + slice) * g.in[1] + line);
      }
    }
}

}  // namespace detail

/// y = x, widened; `constant` stands beyond edges of that kind. x and y do not overlap.
template <class T>
void pad_forward(const pad_geometry& g, border b, const T* x, T* y, T constant = 0) {
  const dim_t width = g.in[2], before = g.before[2], padded = g.out[2];
  detail::for_each_padded_row(g, b, [=](dim_t to_row, dim_t from_row) {
    T* const to = y + to_row * padded;
    if (from_row < 0) {
      std::fill_n(to, padded, constant);
      return;
    }
    const T* const from = x + from_row * width;
    const auto beyond = [=](dim_t i) {
      return b == border::constant ? constant : from[detail::position_within(b, i - before, width)];
    };
    for (dim_t i = 0; i < before; ++i) to[i] = beyond(i);
    if (width > 0) std::memcpy(to + before, from, static_cast<std::size_t>(width) * sizeof(T));
    for (dim_t i = before + width; i < padded; ++i) to[i] = beyond(i);
  });
}

/// dx = the sums of dy over where each element of x went. Overwrites dx.
template <class T>
void pad_backward(const pad_geometry& g, border b, const T* dy, T* dx) {
  const dim_t width = g.in[2], before = g.before[2], padded = g.out[2];
  fill(g.planes * g.in[0] * g.in[1] * width, dx, T(0));
  detail::for_each_padded_row(g, b, [=](dim_t from_row, dim_t to_row) {
    if (to_row < 0) return;
    const T* const from = dy + from_row * padded;
    T* const to = dx + to_row * width;
    axpy(width, T(1), from + before, to);
    if (b == border::constant) return;
    for (dim_t i = 0; i < before; ++i) to[detail::position_within(b, i - before, width)] += from[i];
    for (dim_t i = before + width; i < padded; ++i)
      to[detail::position_within(b, i - before, width)] += from[i];
  });
}

}  // namespace ikebana::cpu
