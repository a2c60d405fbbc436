#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <type_traits>
#include <utility>

#include "ikebana/core/shape.hpp"
#include "ikebana/cpu/detail/padded_tiles.hpp"
#include "ikebana/cpu/detail/scratch.hpp"
#include "ikebana/cpu/detail/strided.hpp"
#include "ikebana/cpu/dispatch.hpp"
#include "ikebana/cpu/pool_windows.hpp"

// Maxima of windows that slide over planes. Rows are copied with what stands around them, one
// margin between two of them and columns sorted by remainder: so that every element of a window
// reads whole registers.
namespace ikebana::cpu::detail {

/// One dimension of windows.
struct window_axis {
  dim_t from, to, kernel, stride, padding, dilation;

  dim_t low(dim_t i) const { return i * stride - padding; }
  dim_t high(dim_t i) const {
    const dim_t end = low(i) + (kernel - 1) * dilation + 1;
    return end < from ? end : from;
  }
  /// Positions of the source that window i meets, `dilation` apart.
  struct range {
    dim_t first, count;
  };
  range of(dim_t i) const {
    const dim_t start = low(i), first = start >= 0 ? start : start + rounded_up(-start, dilation);
    return {first, (high(i) - first + dilation - 1) / dilation};
  }
};

/// What one tile of windows needs.
template <class T>
struct window_tile {
  /// A row of the copies, and the place in the plane of a window's first column there.
  struct row {
    dim_t from, place;
  };
  // The source: `height` rows of each slab, `length` of a row.
  const T* source;
  dim_t source_step, height, length;
  const dim_t* slabs;
  dim_t slab_count;
  // The copies: by remainder, and where in a row the first column comes; all of it is filled anew
  // if `is_new`.
  T* copies;
  dim_t phases, phase_size, pitch, skip;
  bool is_new;
  // Where in the copies the kernel's columns look, and how far apart they are in the plane.
  const dim_t* taps;
  dim_t tap_count, tap_places;
  // The rows that each row of the result meets. Where the kernel is three by three, it is
  // swept down instead, from row `top` on.
  const row* rows;
  const dim_t* row_counts;
  bool is_swept;
  dim_t top, top_place, row_stride;
  // The result.
  T* result;
  std::int32_t* indices;  // may be null
  dim_t result_step, row_count, result_length;
};

/// Whether all was finite: else the maxima may be wrong.
template <class T>
struct window_kernels {
  dim_t width;
  bool (*maximum)(const window_tile<T>&);
};

}  // namespace ikebana::cpu::detail

#define IKEBANA_CPU_BODY "ikebana/cpu/pool_tiles-inl.hpp"
#include "ikebana/cpu/detail/foreach_target.hpp"

namespace ikebana::cpu::detail {

/// Maxima tile by tile; refused(plane) for planes with what is not finite. False, having done
/// nothing, if a tile would not fit the scratch. No extent is zero.
template <class T, class F>
bool maxima_of_windows(const pool_geometry& g, const T* x, T* y, std::int32_t* indices,
                       const F& refused) {
  const window_kernels<T>& kernels = IKEBANA_CPU_DISPATCH(kernels_for_windows<T>)();
  const auto axis = [&](std::size_t d) {
    return window_axis{g.in[d], g.out[d], g.kernel[d], g.stride[d], g.padding[d], g.dilation[d]};
  };
  const window_axis depth = axis(0), rows = axis(1), columns = axis(2);
  const dim_t w = kernels.width, s = columns.stride;
  window_tile<T> t{};
  t.phases = s;
  t.row_stride = rows.stride;
  t.tap_count = columns.kernel;
  t.tap_places = columns.dilation;
  t.source_step = columns.from;
  t.result_step = columns.to;
  t.is_swept = rows.kernel == 3 && columns.kernel == 3 && rows.dilation == 1 && rows.stride <= 3 &&
               depth.kernel == 1;

  // Sizes of a tile.
  const dim_t shift = (columns.kernel - 1) * columns.dilation / s;
  constexpr dim_t near = dim_t{24} * 1024 / static_cast<dim_t>(sizeof(T));
  constexpr dim_t room = static_cast<dim_t>((packed_a_bytes + packed_b_bytes) / sizeof(T)) / 2;
  dim_t wide = columns.to, high = rows.to;
  const auto size = [&] {
    dim_t height = (high - 1) * rows.stride + (rows.kernel - 1) * rows.dilation + 1;
    if (height > rows.from) height = rows.from;
    t.phase_size =
        depth.kernel * height * rounded_up(wide + shift + 1, w) + 8 * w + rounded_up(shift, w);
    return t.phases * t.phase_size;
  };
  while (size() > near && (high > 1 || wide > 512))
    if (high > 4 || wide <= 512)
      high = (high + 1) / 2;
    else
      wide = rounded_up((wide + 1) / 2, w);
  while (size() > room && wide > w) wide = rounded_up((wide + 1) / 2, w);
  if (size() > room) return false;

  monotonic_scratch scratch;
  T* const copies = scratch.allocate<T>(t.phases * t.phase_size + w);
  auto* const lines =
      scratch.allocate<typename window_tile<T>::row>(high * rows.kernel * depth.kernel);
  dim_t *const counts = scratch.allocate<dim_t>(high),
               *const taps = scratch.allocate<dim_t>(columns.kernel),
               *const slabs = scratch.allocate<dim_t>(depth.kernel);
  if (!scratch.fits()) return false;
  t.taps = taps;
  t.slabs = slabs;
  t.rows = lines;
  t.row_counts = counts;
  for (dim_t k = 0; k < columns.kernel; ++k) {
    const dim_t c = k * columns.dilation;
    taps[k] = c % s * t.phase_size + c / s;
  }

  const dim_t plane = rows.from * columns.from;
  dim_t row_known = -1, column_known = -1, depth_known = -1;
  const auto plan = [&](dim_t z, dim_t r, dim_t c, dim_t until) {
    const auto seen = depth.of(z);
    t.slab_count = seen.count;
    for (dim_t k = 0; k < seen.count; ++k) slabs[k] = (seen.first + k * depth.dilation) * plane;
    const dim_t now = columns.to - c < wide ? columns.to - c : wide, low = rows.low(r),
                top = low < 0 ? 0 : low, start = columns.low(c);
    t.row_count = until - r;
    t.height = rows.high(until - 1) - top;
    t.top = low - top;
    t.top_place = slabs[0] + low * columns.from + start;
    t.skip = start < 0 ? -start : 0;
    t.length = columns.high(c + now - 1) - start - t.skip;
    t.result_length = now;
    t.source = x + top * columns.from + start + t.skip;
    // What is read behind a row is the margin of the next one.
    const dim_t margin = t.skip / s, ends = (t.skip + t.length - 1) / s + 1,
                read = now + shift - margin;
    t.pitch = read > ends ? read : ends;
    if (t.pitch < now) t.pitch = now;
    // Rows that begin with a cache line meet fewer of them.
    if (2 * t.pitch > w) t.pitch = rounded_up(t.pitch, w);
    t.copies = copies + rounded_up(margin, w) - margin;
    t.is_new = c != column_known;
    row_known = r;
    column_known = c;
    depth_known = z;
    if (t.is_swept) return;
    auto* line = lines;
    for (dim_t i = r; i < until; ++i) {
      const auto of = rows.of(i);
      counts[i - r] = seen.count * of.count;
      for (dim_t k = 0; k < seen.count; ++k)
        for (dim_t j = 0; j < of.count; ++j) {
          const dim_t row = of.first + j * rows.dilation;
          *line++ = {(k * t.height + row - top) * t.pitch, slabs[k] + row * columns.from + start};
        }
    }
  };
  const auto one_plane = [&](dim_t n) {
    for (dim_t z = 0; z < depth.to; ++z)
      for (dim_t r = 0; r < rows.to; r += high)
        for (dim_t c = 0; c < columns.to; c += wide) {
          if (r != row_known || c != column_known || z != depth_known)
            plan(z, r, c, rows.to - r < high ? rows.to : r + high);
          const dim_t o = ((n * depth.to + z) * rows.to + r) * columns.to + c;
          window_tile<T> now = t;
          now.source += n * depth.from * plane;
          now.result = y + o;
          now.indices = indices == nullptr ? indices : indices + o;
          if (!kernels.maximum(now)) return false;
          t.is_new = false;
        }
    return true;
  };
  for (dim_t n = 0; n < g.planes; ++n)
    if (!one_plane(n)) refused(n);
  return true;
}

}  // namespace ikebana::cpu::detail
