#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <type_traits>
#include <utility>

#include "ikebana/core/shape.hpp"
#include "ikebana/cpu/detail/padded_tiles.hpp"
#include "ikebana/cpu/detail/quotients.hpp"
#include "ikebana/cpu/detail/scratch.hpp"
#include "ikebana/cpu/detail/strided.hpp"
#include "ikebana/cpu/dispatch.hpp"
#include "ikebana/cpu/pool/windows.hpp"

// Maxima of windows that slide over planes. Rows are copied with what stands around them, one
// margin between two of them, rows and columns sorted by remainder: so that every element of a
// window reads whole registers, of one row of windows or of several.
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
  /// Where in the copies an element of the kernel looks, and how far it is from the first in the
  /// plane.
  struct tap {
    dim_t from, place;
  };
  // The source: `height` rows of each slab, `length` of a row.
  const T* source;
  dim_t source_step, height, length;
  const dim_t* slabs;
  dim_t slab_count;
  // The copies: columns by remainder, and where in a row the first one comes; rows by remainder,
  // and where the first one comes; all of it is filled anew if `is_new`.
  T* copies;
  dim_t phases, phase_size, pitch, skip;
  dim_t row_phases, used_row_phases, row_phase_size, slab_size, first_row;
  bool is_new;
  const tap* taps;
  dim_t tap_count;
  // Where the kernel is three by three, it is swept down the columns, from row `top` on.
  bool is_swept;
  dim_t top, row_stride;
  // The place of the first window, and those of all of them in rows one behind another, if these
  // are too short to be gone through one by one.
  dim_t first_place;
  const std::int32_t* places;
  T* maxima;
  std::int32_t* maxima_places;
  // The result.
  T* result;
  std::int32_t* indices;
  dim_t result_step, row_count, result_length;
};

/// Whether all was finite: else the maxima may be wrong.
template <class T>
struct window_kernel {
  dim_t width;
  bool (*maximum)(const window_tile<T>&);
};

/// Windows of three by three, which are swept down the columns.
template <class Windows>
constexpr bool is_swept(const Windows& g) {
  return g.kernel == std::array<dim_t, 3>{1, 3, 3} && g.dilation[1] == 1 && g.stride[1] <= 3;
}

}  // namespace ikebana::cpu::detail

#define IKEBANA_CPU_BODY "ikebana/cpu/pool/places-inl.hpp"
#include "ikebana/cpu/detail/foreach_target.hpp"
#define IKEBANA_CPU_BODY "ikebana/cpu/pool/tiles-inl.hpp"
#include "ikebana/cpu/detail/foreach_target.hpp"

namespace ikebana::cpu::detail {

/// Maxima and their places tile by tile; refused(plane) for planes with what is not finite. False,
/// having done nothing, if a tile would not fit the scratch. No extent is zero.
template <class T, class F>
bool maxima_of_windows(const pool_geometry& g, window_kernel<T> kernel, const T* x, T* y,
                       std::int32_t* indices, const F& refused) {
  const auto axis = [&](std::size_t d) {
    return window_axis{g.in[d], g.out[d], g.kernel[d], g.stride[d], g.padding[d], g.dilation[d]};
  };
  const window_axis depth = axis(0), rows = axis(1), columns = axis(2);
  const dim_t w = kernel.width, s = columns.stride;
  window_tile<T> t{};
  t.phases = s;
  t.row_stride = rows.stride;
  t.source_step = columns.from;
  t.result_step = columns.to;
  t.is_swept = is_swept(g);

  // Sizes of a tile.
  const dim_t shift = (columns.kernel - 1) * columns.dilation / s;
  constexpr dim_t near = dim_t{24} * 1024 / static_cast<dim_t>(sizeof(T));
  constexpr dim_t room = static_cast<dim_t>((packed_a_bytes + packed_b_bytes) / sizeof(T)) / 2;
  dim_t wide = columns.to, high = rows.to;
  const auto size = [&] {
    const dim_t height = (high - 1) * rows.stride + (rows.kernel - 1) * rows.dilation + 1;
    t.row_phases = t.is_swept ? 1 : least(rows.stride, height);
    t.used_row_phases =
        !t.is_swept && rows.dilation == 1 ? least(rows.kernel, t.row_phases) : t.row_phases;
    t.row_phase_size = parts(height, t.row_phases) * rounded_up(wide + shift + 1, w) + w;
    t.slab_size = t.row_phases * t.row_phase_size;
    t.phase_size = depth.kernel * t.slab_size + 8 * w + rounded_up(shift, w);
    return t.phases * t.phase_size;
  };
  while (size() > near && (high > 1 || wide > 512))
    if (high > 4 || wide <= 512)
      high = (high + 1) / 2;
    else
      wide = rounded_up((wide + 1) / 2, w);
  while (size() > room && wide > w) wide = rounded_up((wide + 1) / 2, w);
  if (size() > room) return false;

  monotonic_scratch scratch = monotonic_scratch::of<T>();
  auto lists = monotonic_scratch::of_lists();
  T* const copies = scratch.allocate<T>(t.phases * t.phase_size + w);
  auto* const taps =
      lists.allocate<typename window_tile<T>::tap>(depth.kernel * rows.kernel * columns.kernel);
  dim_t* const slabs = lists.allocate<dim_t>(depth.kernel);
  // Long rows are gone through one by one.
  const dim_t most = wide > 512 ? 0 : high * rounded_up(wide + shift + 1, w) + 4 * w;
  auto* const places = lists.allocate<std::int32_t>(most);
  scratch.allocate(t.maxima, most);
  lists.allocate(t.maxima_places, most);
  if (!scratch.fits() || !lists.fits()) return false;
  t.taps = taps;
  t.slabs = slabs;

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
    t.first_row = t.is_swept ? 0 : -t.top;
    t.first_place = slabs[0] + low * columns.from + start;
    t.skip = start < 0 ? -start : 0;
    t.length = columns.high(c + now - 1) - start - t.skip;
    t.result_length = now;
    t.source = x + top * columns.from + start + t.skip;
    // What is read behind a row is the margin of the next one.
    const dim_t margin = t.skip / s, ends = (t.skip + t.length - 1) / s + 1,
                read = now + shift - margin;
    t.pitch = read > ends ? read : ends;
    if (t.pitch < now) t.pitch = now;
    const bool by_rows = t.is_swept || 4 * rounded_up(now, w) <= 5 * t.pitch;
    // Rows that begin with a cache line meet fewer of them.
    if (by_rows && 2 * t.pitch > w) t.pitch = rounded_up(t.pitch, w);
    t.copies = copies + rounded_up(margin, w) - margin;
    const bool is_inside =
        low >= 0 &&
        low + (until - r - 1) * rows.stride + (rows.kernel - 1) * rows.dilation < rows.from;
    t.is_new = c != column_known || (r != row_known && !is_inside && !t.is_swept);
    row_known = r;
    column_known = c;
    depth_known = z;
    auto* tap = taps;
    for (dim_t i = 0; i < seen.count; ++i)
      for (dim_t j = 0; j < (t.is_swept ? 1 : rows.kernel); ++j)
        for (dim_t k = 0; k < columns.kernel; ++k) {
          const dim_t row = j * rows.dilation, column = k * columns.dilation;
          *tap++ = {i * t.slab_size + row % t.row_phases * t.row_phase_size +
                        row / t.row_phases * t.pitch + column % s * t.phase_size + column / s,
                    slabs[i] - slabs[0] + row * columns.from + column};
        }
    t.tap_count = tap - taps;
    t.places = by_rows ? nullptr : places;
    if (by_rows) return;
    for (dim_t i = 0; i < t.row_count; ++i)
      for (dim_t j = 0; j < t.pitch; ++j)
        places[i * t.pitch + j] =
            static_cast<std::int32_t>(t.first_place + i * rows.stride * columns.from + j * s);
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
          now.indices = indices + o;
          if (!kernel.maximum(now)) return false;
          t.is_new = false;
        }
    return true;
  };
  for (dim_t n = 0; n < g.planes; ++n)
    if (!one_plane(n)) refused(n);
  return true;
}

/// False, having done nothing, if a tile does not fit the scratch.
template <class T>
bool maxima_of_tiles(const pool_geometry& g, window_kernel<T> kernel, const T* x, T* y,
                     std::int32_t* indices) {
  if (g.input_plane() <= 0 || g.output_plane() <= 0) return true;
  pool_geometry one = g;
  one.planes = 1;
  return maxima_of_windows(g, kernel, x, y, indices, [&](dim_t n) {
    const dim_t o = n * g.output_plane();
    maxima_by_windows(one, x + n * g.input_plane(), y + o, indices + o);
  });
}

}  // namespace ikebana::cpu::detail
