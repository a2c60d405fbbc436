#pragma once

// The ways that pools go: where each is taken, and what it is called with.

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>
#include <type_traits>
#include <utility>

#include "ikebana/core/shape.hpp"
#include "ikebana/cpu/conv/depthwise.hpp"
#include "ikebana/cpu/detail/scratch.hpp"
#include "ikebana/cpu/detail/strided.hpp"
#include "ikebana/cpu/detail/vec.hpp"
#include "ikebana/cpu/dispatch.hpp"
#include "ikebana/cpu/parallel.hpp"
#include "ikebana/cpu/pool_rows.hpp"
#include "ikebana/cpu/pool_tiles.hpp"
#include "ikebana/cpu/pool_windows.hpp"

namespace ikebana::cpu {

namespace detail {

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

/// Windows that are each a whole plane.
constexpr bool is_global(const pool_geometry& g) {
  for (std::size_t d = 0; d < 3; ++d)
    if (g.out[d] != 1 || g.padding[d] != 0 || g.kernel[d] < g.in[d]) return false;
  return true;
}

}  // namespace detail
}  // namespace ikebana::cpu

#define IKEBANA_CPU_BODY "ikebana/cpu/pool-inl.hpp"
#include "ikebana/cpu/detail/foreach_target.hpp"

namespace ikebana::cpu::detail {

/// Maxima and their places tile by tile. False, having done nothing, if a tile does not fit the
/// scratch.
template <class T>
bool maxima_by_tiles(const pool_geometry& g, const T* x, T* y, std::int32_t* indices) {
  if (conv_geometry::volume(g.in) <= 0 || conv_geometry::volume(g.out) <= 0) return true;
  pool_geometry one = g;
  one.planes = 1;
  return maxima_of_windows(g, x, y, indices, [&](dim_t n) {
    const dim_t o = n * g.output_plane();
    maxima_by_windows(one, x + n * g.input_plane(), y + o, indices + o);
  });
}

/// Maxima of windows of two by two that share nothing.
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
#define IKEBANA_CPU_BODY "ikebana/cpu/pool_average_small-inl.hpp"
#include "ikebana/cpu/detail/foreach_target.hpp"

namespace ikebana::cpu::detail {

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

/// Whether average_by_convolution may take such windows, of planes as wide.
constexpr bool may_be_by_convolution(const std::array<dim_t, 3>& kernel,
                                     const std::array<dim_t, 3>& stride, dim_t width) {
  const auto is_fast = [&](dim_t k) { return k <= 3 || k == 5 || (k == 4 && width < 13); };
  return kernel[0] == 1 && kernel[1] != 1 && stride[1] <= 2 && stride[2] <= 2 &&
         is_fast(kernel[1]) && is_fast(kernel[2]);
}

/// Windows that overlap, as depthwise convolutions whose weights are all `factor`. False where
/// there is a faster way: those convolutions are fast by two, three and five, and on small planes.
template <class T>
bool average_by_convolution(const pool_geometry& p, bool backward, const T* source, T factor,
                            T* result) {
  constexpr dim_t most_taps = 25, most_groups = 16;
  const dim_t taps = conv_geometry::volume(p.kernel), in = conv_geometry::volume(p.in),
              out = conv_geometry::volume(p.out);
  if (in <= 0 || out <= 0 || !may_be_by_convolution(p.kernel, p.stride, p.in[2])) return false;
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

template <class T>
using average_way = decltype(&average_by_convolution<T>);

/// Windows that sums_by_threes takes.
template <class T>
constexpr bool is_by_threes(const pool_geometry& g) {
  return g.kernel == std::array<dim_t, 3>{1, 3, 3} && g.stride[0] == 1 && g.padding[0] == 0 &&
         g.padding[2] == 1 && g.stride[1] == g.stride[2] && g.stride[1] <= 2 &&
         static_cast<std::size_t>(g.in[2]) * sizeof(T) <= packed_b_bytes;
}

/// Maxima without their places.
template <class T>
bool maxima_alone(pool_geometry g, const T* x, T* y) {
  // By threes, also where there are no columns around planes.
  pool_geometry with_margins = g;
  if (g.padding[2] == 0) with_margins.padding[2] = 1;
  if (!is_by_threes<T>(with_margins) || g.dilation[1] != 1 || g.dilation[2] != 1)
    return windows_by_rows(g, row_work::maximum, T(1), true, x, y);
  g.planes *= g.in[0];
  g.in[0] = g.out[0] = 1;
  const auto by_threes = [&](dim_t planes, const T* from, T* to) {
    return IKEBANA_CPU_DISPATCH(maxima_by_threes<T>)(planes, g.in[1], g.in[2], g.out[1], g.out[2],
                                                     g.stride[1], g.padding[1], g.padding[2] == 1,
                                                     from, to);
  };
  if (by_threes(g.planes, x, y)) return true;
  pool_geometry one = g;
  one.planes = 1;
  for (dim_t n = 0; n < g.planes; ++n, x += g.input_plane(), y += g.output_plane())
    if (!by_threes(1, x, y)) maxima_by_windows<T>(one, x, y, nullptr);
  return true;
}

/// The gradients of averages whose sums are all times `factor`. False, having done nothing, where
/// there is no fast way.
template <class T>
bool spread_averages(const pool_geometry& g, const T* dy, T factor, T* dx,
                     average_way<T> convolution) {
  if (is_halving(g)) {
    IKEBANA_CPU_DISPATCH(halve_by_average_backward<T>)(g, dy, factor, dx);
  } else if (is_global(g)) {
    IKEBANA_CPU_DISPATCH(average_planes_backward<T>)(g.planes, g.input_plane(), dy, factor, dx);
  } else if (is_by_threes<T>(g) && g.stride[1] == 1) {
    // Where no window is left out, its gradients' windows are as many.
    IKEBANA_CPU_DISPATCH(sums_by_threes<T>)
    (g.planes * g.in[0], g.out[1], g.out[2], g.in[1], g.in[2], 1, 2 - g.padding[1], dy, factor, dx);
  } else if (convolution == nullptr || !convolution(g, true, dy, factor, dx)) {
    return windows_by_rows(g, row_work::average_backward, factor, true, dy, dx);
  }
  return true;
}

/// backward(part, divided, 1, dx) for as many planes at a time as stay near, `divided` being their
/// dy, each divided by the size of its window. False if it says so, or if a plane does not fit.
template <class T, class F>
bool divided_apart(pool_geometry g, bool count_include_pad, const T* dy, T* dx, const F& backward) {
  constexpr dim_t near = dim_t{16} * 1024 / static_cast<dim_t>(sizeof(T));
  const dim_t rows = g.out[0] * g.out[1], width = g.out[2], outputs = rows * width,
              planes = g.planes, most = outputs > 0 && outputs < near ? near / outputs : 1;
  auto scratch = monotonic_scratch::of_operand();
  T *const row_factors = scratch.allocate<T>(rows),
           *const column_factors = scratch.allocate<T>(width),
           *const divided = scratch.allocate<T>(most * outputs);
  if (!scratch.fits()) return false;
  const auto share = [&](std::size_t d, dim_t o) {
    const pool_span s = span_of(g, d, o, 1);
    return T(1) / static_cast<T>(count_include_pad ? s.padded : s.end - s.begin);
  };
  for (dim_t r = 0; r < rows; ++r) row_factors[r] = share(0, r / g.out[1]) * share(1, r % g.out[1]);
  for (dim_t c = 0; c < width; ++c) column_factors[c] = share(2, c);
  for (dim_t done = 0; done < planes; done += most) {
    g.planes = planes - done < most ? planes - done : most;
    IKEBANA_CPU_DISPATCH(divide_windows<T>)
    (g.planes, rows, width, row_factors, column_factors, dy + done * outputs, divided);
    if (!backward(g, divided, T(1), dx + done * g.input_plane())) return false;
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
