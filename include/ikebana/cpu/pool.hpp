#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>
#include <type_traits>
#include <utility>

#include "ikebana/core/shape.hpp"
#include "ikebana/cpu/conv/depthwise.hpp"
#include "ikebana/cpu/detail/padded_tiles.hpp"
#include "ikebana/cpu/detail/scratch.hpp"
#include "ikebana/cpu/detail/strided.hpp"
#include "ikebana/cpu/detail/vec.hpp"
#include "ikebana/cpu/dispatch.hpp"
#include "ikebana/cpu/parallel.hpp"
#include "ikebana/cpu/pool_windows.hpp"

namespace ikebana::cpu {

namespace detail {

/// What one block of rows of maxima needs: windows slide over padded copies (padded_tiles.hpp).
template <class T>
struct maximum_job {
  static constexpr std::size_t most_rows = 4;
  const T* image;
  dim_t row_step, block_step, slabs, slab_step, kernel_rows, kernel_columns;
  const dim_t* columns;
  T* out;
  std::int32_t* indices;  // may be null
  dim_t out_step, rows, length;
  // A place is where in the plane a window's first element would be, and of each kernel element how
  // far behind: by slab, row and column. The first that is no padding is that of an empty maximum.
  const dim_t* slab_places;
  dim_t row_places, column_places, stride, base, base_step, first[most_rows];
  const std::int32_t* first_columns;
};

/// Windows of two by two that share nothing.
constexpr bool is_halving(const pool_geometry& g) {
  for (std::size_t d = 0; d < 3; ++d) {
    const dim_t size = d == 0 ? 1 : 2;
    if (g.kernel[d] != size || g.stride[d] != size || g.padding[d] != 0 ||
        g.out[d] * size > g.in[d])
      return false;
  }
  return g.dilation[1] == 1 && g.dilation[2] == 1;
}

template <class T>
struct pool_kernels {
  tile_copying<T> copying;
  void (*maximum)(const maximum_job<T>&);
};

}  // namespace detail
}  // namespace ikebana::cpu

#define IKEBANA_CPU_BODY "ikebana/cpu/pool-inl.hpp"
#include "ikebana/cpu/detail/foreach_target.hpp"

namespace ikebana::cpu::detail {

/// Maxima by blocks of rows. False, having done nothing, if a row does not fit the scratch.
template <class T>
bool maxima_by_tiles(const pool_kernels<T>& kernels, const pool_geometry& p, const T* x, T* y,
                     std::int32_t* indices) {
  const conv_geometry g{p.planes, 1, 1, 1, p.in, p.out, p.kernel, p.stride, p.padding, p.dilation};
  if (conv_geometry::volume(g.in) <= 0 || conv_geometry::volume(g.out) <= 0) return true;
  padded_tiles<T> tiles{kernels.copying, g, false};
  tiles.fill = -std::numeric_limits<T>::infinity();
  tiles.block = static_cast<dim_t>(maximum_job<T>::most_rows);
  const dim_t room = static_cast<dim_t>((packed_a_bytes + packed_b_bytes) / sizeof(T));
  if (!tiles.fit(g.kernel[0], room * 3 / 4)) return false;

  std::byte *at = thread_scratch(), *const end = at + packed_a_bytes + packed_b_bytes;
  const auto take = [&](auto*& to, dim_t n) {
    to = reinterpret_cast<std::remove_reference_t<decltype(to)>>(at);
    const dim_t bytes = rounded_up(n * static_cast<dim_t>(sizeof *to), 64);
    if (bytes > end - at) return false;
    at += bytes;
    return true;
  };
  column_span* spans = nullptr;
  dim_t *columns = nullptr, *slab_places = nullptr;
  std::int32_t* first_columns = nullptr;
  T* copies = nullptr;
  const dim_t copies_size = g.kernel[0] * tiles.slab + tiles.slack();
  if (!take(spans, tiles.phases()) || !take(columns, g.kernel[2]) ||
      !take(slab_places, g.kernel[0]) || !take(first_columns, g.out[2]) ||
      !take(copies, copies_size))
    return false;
  tiles.clear(copies, copies_size);
  for (dim_t k = 0; k < g.kernel[2]; ++k) columns[k] = tiles.column_of(k);
  const auto first_met = [&](std::size_t d, dim_t o) {
    const dim_t start = o * g.stride[d] - g.padding[d], e = g.dilation[d];
    return start >= 0 ? 0 : (-start + e - 1) / e * e;
  };
  for (dim_t o = 0; o < g.out[2]; ++o)
    first_columns[o] = static_cast<std::int32_t>(first_met(2, o));

  const bool whole = tiles.is_whole() && g.out[0] == 1;
  const dim_t width = g.in[2], plane = g.in[1] * width, out_plane = g.out[1] * g.out[2];
  maximum_job<T> job{};
  job.row_step = g.dilation[1] * tiles.row;
  job.block_step = tiles.rows.step * tiles.row;
  job.slab_step = tiles.slab;
  job.kernel_rows = g.kernel[1];
  job.kernel_columns = g.kernel[2];
  job.columns = columns;
  job.out_step = g.out[2];
  job.slab_places = slab_places;
  job.row_places = g.dilation[1] * width;
  job.column_places = g.dilation[2];
  job.stride = g.stride[2];
  job.base_step = g.stride[1] * width;
  dim_t span_of_x = -1;
  // False where what is not finite is met.
  const auto plane_by_tiles = [&](dim_t n) {
    for (dim_t z = 0; z < g.out[0]; ++z)
      for (dim_t r = 0; r < g.out[1]; r += tiles.tile_rows)
        for (dim_t c = 0; c < g.out[2]; c += tiles.tile_columns) {
          if (c != span_of_x) tiles.find_spans(span_of_x = c, spans);
          bool finite = true;
          job.slabs = 0;
          for (dim_t k = 0; k < g.kernel[0]; ++k) {
            const dim_t from = z * g.stride[0] - g.padding[0] + k * g.dilation[0];
            if (from < 0 || from >= g.in[0]) continue;
            finite &=
                tiles.copy(copies + job.slabs * tiles.slab, x + from * plane, r, spans, whole);
            slab_places[job.slabs++] = from * plane;
          }
          if (!finite) return false;
          const dim_t last = g.out[1] - r < tiles.tile_rows ? g.out[1] : r + tiles.tile_rows;
          job.length = g.out[2] - c < tiles.tile_columns ? g.out[2] - c : tiles.tile_columns;
          job.first_columns = first_columns + c;
          for (dim_t row = r; row < last; row += tiles.block) {
            const dim_t o = ((n * g.out[0] + z) * out_plane) + row * g.out[2] + c;
            job.image = copies + (row - r) * job.block_step;
            job.rows = last - row < tiles.block ? last - row : tiles.block;
            job.out = y + o;
            job.indices = indices != nullptr ? indices + o : nullptr;
            job.base = (row * g.stride[1] - g.padding[1]) * width + c * g.stride[2] - g.padding[2];
            for (dim_t i = 0; i < tiles.block; ++i)
              job.first[i] = slab_places[0] + first_met(1, row + i) * width;
            kernels.maximum(job);
          }
        }
    return true;
  };
  pool_geometry one = p;
  one.planes = 1;
  for (dim_t n = 0; n < g.batch; ++n, x += g.in[0] * plane)
    if (!plane_by_tiles(n)) {
      const dim_t o = n * p.output_plane();
      maxima_by_windows(one, x, y + o, indices != nullptr ? indices + o : nullptr);
    }
  return true;
}

/// The same of windows of two by two that share nothing.
template <class T>
void maxima_by_halving(pool_geometry g, const T* x, T* y, std::int32_t* indices) {
  while (g.planes > 0) {
    const dim_t done = IKEBANA_CPU_DISPATCH(halve_by_maximum<T>)(g, x, y, indices);
    if (done == g.planes) return;
    x += done * g.input_plane();
    y += done * g.output_plane();
    if (indices != nullptr) indices += done * g.output_plane();
    pool_geometry one = g;
    one.planes = 1;
    maxima_by_windows(one, x, y, indices);
    x += g.input_plane();
    y += g.output_plane();
    if (indices != nullptr) indices += g.output_plane();
    g.planes -= done + 1;
  }
}

}  // namespace ikebana::cpu::detail

#define IKEBANA_CPU_BODY "ikebana/cpu/pool_average-inl.hpp"
#include "ikebana/cpu/detail/foreach_target.hpp"

namespace ikebana::cpu::detail {

/// Windows that are each a whole plane.
constexpr bool is_global(const pool_geometry& g) {
  for (std::size_t d = 0; d < 3; ++d)
    if (g.out[d] != 1 || g.padding[d] != 0 || g.kernel[d] < g.in[d]) return false;
  return true;
}

/// What all windows' sums are divided by; 0 where that differs.
constexpr dim_t common_divisor(const pool_geometry& g, bool count_include_pad,
                               dim_t divisor_override) {
  if (divisor_override != 0) return divisor_override;
  for (std::size_t d = 0; d < 3; ++d) {
    const dim_t end = (g.out[d] - 1) * g.stride[d] - g.padding[d] + g.kernel[d];
    if (end > g.in[d] + (count_include_pad ? g.padding[d] : 0)) return 0;
    if (!count_include_pad && g.padding[d] != 0) return 0;
  }
  return conv_geometry::volume(g.kernel);
}

/// Windows that overlap, as depthwise convolutions whose weights are all `factor`. False where
/// there is a faster way.
template <class T>
bool average_by_convolution(const pool_geometry& p, bool backward, const T* source, T factor,
                            T* result) {
  constexpr dim_t most_taps = 64, most_groups = 16;
  const dim_t taps = conv_geometry::volume(p.kernel), in = conv_geometry::volume(p.in),
              out = conv_geometry::volume(p.out);
  if (taps > most_taps || p.stride[1] > 2 || p.stride[2] > 2 || in <= 0 || out <= 0) return false;
  T weights[most_taps * most_groups];
  for (dim_t i = 0; i < taps * most_groups; ++i) weights[i] = factor;
  for (dim_t done = 0; done < p.planes;) {
    const dim_t left = p.planes - done, groups = left < most_groups ? left : most_groups,
                batch = left / groups;
    const conv_geometry g{batch, groups,   groups,   groups,    p.in,
                          p.out, p.kernel, p.stride, p.padding, {1, 1, 1}};
    const T* const from = source + done * (backward ? out : in);
    T* const to = result + done * (backward ? in : out);
    if (!(backward ? depthwise_backward_data<T>(g, from, weights, nullptr, to)
                   : depthwise_forward<T>(g, from, weights, nullptr, {}, to)))
      return false;
    done += batch * groups;
  }
  return true;
}

/// f(geometry, offset of the input, offset of the output) for parts of the planes.
template <class F>
void share_planes(const pool_geometry& g, const F& f) {
  const dim_t in = conv_geometry::volume(g.in), out = conv_geometry::volume(g.out),
              cost = in + out * conv_geometry::volume(g.kernel);
  if (g.planes * cost <= elements_for_thread || num_threads() <= 1) return f(g, 0, 0);
  const auto range = [&](dim_t begin, dim_t end) {
    pool_geometry part = g;
    part.planes = end - begin;
    f(part, begin * in, begin * out);
  };
  ikebana::detail::share_ranges<decltype(range)>(0, g.planes, rows_for_thread(cost), range);
}

}  // namespace ikebana::cpu::detail

/// Pooling with PyTorch's semantics. None throws, nor allocates but for the thread's packing
/// buffer, at its first use.
namespace ikebana::cpu {

/// y is the maximum of each window, not-a-number if any of it is; `indices`, where given, the place
/// of the maximum within its input plane (the first of equals).
template <class T>
void max_pool_forward(const pool_geometry& all, const T* x, T* y, std::int32_t* indices) {
  detail::share_planes(all, [=](const pool_geometry& g, dim_t in, dim_t out) {
    std::int32_t* const places = indices == nullptr ? nullptr : indices + out;
    if (detail::is_halving(g))
      detail::maxima_by_halving(g, x + in, y + out, places);
    else if (!detail::maxima_by_tiles<T>(IKEBANA_CPU_DISPATCH(kernels_for_pool<T>)(), g, x + in,
                                         y + out, places))
      detail::maxima_by_windows(g, x + in, y + out, places);
  });
}
/// Overwrites dx.
template <class T>
void max_pool_backward(const pool_geometry& all, const T* dy, const std::int32_t* indices, T* dx) {
  detail::share_planes(all, [=](const pool_geometry& g, dim_t in, dim_t out) {
    // A few elements a row are sooner written one by one.
    if (detail::is_halving(g) && g.out[2] >= 8)
      IKEBANA_CPU_DISPATCH(halve_backward<T>)(g, dy + out, indices + out, dx + in);
    else
      detail::scatter_by_index(g.planes, g.input_plane(), g.output_plane(), dy + out, indices + out,
                               dx + in);
  });
}

/// Each window's sum divided by `divisor_override`, or where that is 0 by its size, with or without
/// the padding in it. Dilation is not read.
template <class T>
void avg_pool_forward(const pool_geometry& all, const T* x, T* y, bool count_include_pad,
                      dim_t divisor_override) {
  const T divisor =
      static_cast<T>(detail::common_divisor(all, count_include_pad, divisor_override));
  detail::share_planes(all, [=](const pool_geometry& g, dim_t in, dim_t out) {
    if (detail::is_halving(g))
      IKEBANA_CPU_DISPATCH(halve_by_average<T>)(g, x + in, T(1) / divisor, y + out);
    else if (divisor != T(0) && detail::is_global(g))
      IKEBANA_CPU_DISPATCH(average_planes<T>)
    (g.planes, conv_geometry::volume(g.in), x + in, divisor, y + out);
    else if (divisor == T(0) ||
             !detail::average_by_convolution(g, false, x + in, T(1) / divisor, y + out))
        IKEBANA_CPU_DISPATCH(pool_average<T>)(g, x + in, y + out, count_include_pad,
                                              divisor_override);
  });
}
/// Overwrites dx.
template <class T>
void avg_pool_backward(const pool_geometry& all, const T* dy, T* dx, bool count_include_pad,
                       dim_t divisor_override) {
  const T divisor =
      static_cast<T>(detail::common_divisor(all, count_include_pad, divisor_override));
  detail::share_planes(all, [=](const pool_geometry& g, dim_t in, dim_t out) {
    if (detail::is_halving(g))
      IKEBANA_CPU_DISPATCH(halve_by_average_backward<T>)(g, dy + out, T(1) / divisor, dx + in);
    else if (divisor == T(0) || detail::is_global(g) ||
             !detail::average_by_convolution(g, true, dy + out, T(1) / divisor, dx + in))
      IKEBANA_CPU_DISPATCH(pool_average_backward<T>)
    (g, dy + out, dx + in, count_include_pad, divisor_override);
  });
}

IKEBANA_CPU_KERNEL(max_pool_forward)
IKEBANA_CPU_KERNEL(max_pool_backward)
IKEBANA_CPU_KERNEL(avg_pool_forward)
IKEBANA_CPU_KERNEL(avg_pool_backward)

}  // namespace ikebana::cpu
