#pragma once

// The ways that maxima of windows go.

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include "ikebana/core/shape.hpp"
#include "ikebana/cpu/detail/strided.hpp"
#include "ikebana/cpu/detail/vec.hpp"
#include "ikebana/cpu/dispatch.hpp"
#include "ikebana/cpu/pool/lanes.hpp"
#include "ikebana/cpu/pool/rows.hpp"
#include "ikebana/cpu/pool/threes.hpp"
#include "ikebana/cpu/pool/tiles.hpp"
#include "ikebana/cpu/pool/ways.hpp"
#include "ikebana/cpu/pool/windows.hpp"

#define IKEBANA_CPU_BODY "ikebana/cpu/pool-inl.hpp"
#include "ikebana/cpu/detail/foreach_target.hpp"

namespace ikebana::cpu::detail {

/// Maxima of all windows, and their places where those are given. False, having done nothing, where
/// the windows are not of the kind that goes so.
template <class T>
using maximum_way = bool (*)(const pool_geometry&, const T* x, T* y, std::int32_t* indices);

/// Windows of two by two that share nothing.
template <class T>
bool maxima_by_halving(const pool_geometry& all, const T* x, T* y, std::int32_t* indices) {
  if (!is_halving(all)) return false;
  const auto halve = [&](const pool_geometry& g) -> dim_t {
    return IKEBANA_CPU_DISPATCH(halve_by_maximum<T>)(g, x, y, indices);
  };
  dim_t done = halve(all);
  if (done == all.planes) [[likely]]
    return true;
  const auto skip = [&](dim_t planes) {
    x += planes * all.input_plane();
    y += planes * all.output_plane();
    if (indices != nullptr) indices += planes * all.output_plane();
  };
  pool_geometry one = all, rest = all;
  one.planes = 1;
  for (; done < rest.planes; done = halve(rest)) {
    skip(done);
    maxima_by_windows(one, x, y, indices);
    skip(1);
    rest.planes -= done + 1;
  }
  return true;
}

template <class T>
bool maxima_of_planes(const pool_geometry& g, const T* x, T* y, std::int32_t* indices) {
  if (!is_global(g)) return false;
  IKEBANA_CPU_DISPATCH(maximum_of_planes<T>)(g.planes, g.input_plane(), x, y, indices);
  return true;
}

template <class T, class Kernel>
bool maxima_of_threes(const pool_geometry& all, Kernel* kernel, const T* x, T* y) {
  if (!is_by_threes<T>(all) || all.dilation[1] != 1 || all.dilation[2] != 1) return false;
  pool_geometry g = all;
  g.planes *= g.in[0];
  g.in[0] = g.out[0] = 1;
  const auto by_threes = [&](dim_t planes, const T* from, T* to) {
    return kernel(planes, g.in[1], g.in[2], g.out[1], g.out[2], g.stride[1], g.padding[1], from,
                  to);
  };
  if (by_threes(g.planes, x, y)) return true;
  pool_geometry one = g;
  one.planes = 1;
  for (dim_t n = 0; n < g.planes; ++n, x += g.input_plane(), y += g.output_plane())
    if (!by_threes(1, x, y)) maxima_by_windows<T>(one, x, y, nullptr);
  return true;
}
/// Windows of three by three, without their places.
template <class T>
bool maxima_of_padded_threes(const pool_geometry& g, const T* x, T* y, std::int32_t* indices) {
  return indices == nullptr && g.padding[2] == 1 &&
         maxima_of_threes(g, IKEBANA_CPU_DISPATCH(maxima_by_threes<T>), x, y);
}
/// The same where there are no columns around planes.
template <class T>
bool maxima_of_inner_threes(const pool_geometry& g, const T* x, T* y, std::int32_t* indices) {
  return indices == nullptr && g.padding[2] == 0 &&
         maxima_of_threes(g, IKEBANA_CPU_DISPATCH(maxima_by_inner_threes<T>), x, y);
}

/// Planes in lanes, where rows of windows, or those of the planes, are much shorter than registers.
template <class T>
bool maxima_by_lanes(const pool_geometry& g, const T* x, T* y, std::int32_t* indices) {
  const lane_kernel<T> kernel = IKEBANA_CPU_DISPATCH(kernel_for_lane_maxima<T>)();
  const dim_t w = kernel.width;
  if (indices == nullptr ? g.planes < 2 * w || !are_narrow(g, w)
                         : g.planes < 2 * g.out[2] || 2 * g.out[2] > w ||
                               g.output_plane() * conv_geometry::volume(g.kernel) < g.input_plane())
    return false;
  return windows_in_lanes<T>(dilated_windows_of(g), g.dilation, kernel, false, T(1), true, x, y,
                             indices);
}

/// Without their places.
template <class T, dim_t Stride = 0>
bool maxima_by_rows(const pool_geometry& g, const T* x, T* y, std::int32_t* indices) {
  return indices == nullptr &&
         windows_by_rows(g, row_work::maximum,
                         IKEBANA_CPU_DISPATCH(kernel_for_row_maxima<T, Stride>)(), T(1), true, x,
                         y);
}

/// With their places. False, too, if a tile does not fit the scratch.
template <class T, dim_t Stride = 0>
bool maxima_by_tiles(const pool_geometry& g, const T* x, T* y, std::int32_t* indices) {
  return indices != nullptr && !is_swept(g) &&
         maxima_of_tiles(g, IKEBANA_CPU_DISPATCH(kernel_for_windows<T, Stride>)(), x, y, indices);
}
/// The same, of windows of three by three.
template <class T, dim_t Stride = 0>
bool maxima_by_sweeps(const pool_geometry& g, const T* x, T* y, std::int32_t* indices) {
  return indices != nullptr && is_swept(g) &&
         maxima_of_tiles(g, IKEBANA_CPU_DISPATCH(kernel_for_sweeps<T, Stride>)(), x, y, indices);
}

/// What maxima of two by two give back.
template <class T>
bool spread_maxima_by_halving(const pool_geometry& g, const T* dy, const std::int32_t* indices,
                              T* dx) {
  // A few elements a row are sooner written one by one.
  if (g.out[2] < 8 || !is_halving(g)) return false;
  IKEBANA_CPU_DISPATCH(halve_backward<T>)(g, dy, indices, dx);
  return true;
}
template <class T>
using maximum_spread = decltype(&spread_maxima_by_halving<T>);

IKEBANA_CPU_KERNEL(maxima_by_halving)
IKEBANA_CPU_KERNEL(spread_maxima_by_halving)
IKEBANA_CPU_KERNEL(maxima_of_planes)
IKEBANA_CPU_KERNEL(maxima_of_padded_threes)
IKEBANA_CPU_KERNEL(maxima_of_inner_threes)
IKEBANA_CPU_KERNEL(maxima_by_lanes)
IKEBANA_CPU_KERNEL(maxima_by_rows)
IKEBANA_CPU_KERNEL(maxima_by_tiles)
IKEBANA_CPU_KERNEL(maxima_by_sweeps)

/// In the order in which they are asked; null where the caller's windows never go so.
template <class T>
using maximum_ways = std::array<maximum_way<T>, 8>;
template <class T>
inline constexpr maximum_ways<T> all_maximum_ways{
    &maxima_by_halving<T>,      &maxima_of_planes<T>, &maxima_of_padded_threes<T>,
    &maxima_of_inner_threes<T>, &maxima_by_lanes<T>,  &maxima_by_sweeps<T>,
    &maxima_by_rows<T>,         &maxima_by_tiles<T>};

template <class T, window_kind K>
constexpr maximum_ways<T> maximum_ways_of() {
  maximum_ways<T> ways{};
  if constexpr (is_two_by_two(K)) ways[0] = &maxima_by_halving<T>;
  if constexpr (!always_halves(K)) {
    constexpr bool by_threes = is_three_by_three(K) && K.dilation[1] == 1 && K.dilation[2] == 1;
    if constexpr (may_be_global(K)) ways[1] = &maxima_of_planes<T>;
    if constexpr (by_threes && K.padding[2] == 1) ways[2] = &maxima_of_padded_threes<T>;
    if constexpr (by_threes && K.padding[2] == 0) ways[3] = &maxima_of_inner_threes<T>;
    ways[4] = &maxima_by_lanes<T>;
    if constexpr (is_swept(K)) ways[5] = &maxima_by_sweeps<T, known_stride(K)>;
    if constexpr (!by_threes) ways[6] = &maxima_by_rows<T, known_stride(K)>;
    if constexpr (!is_swept(K)) ways[7] = &maxima_by_tiles<T, known_stride(K)>;
  }
  return ways;
}

template <class T, window_kind K>
inline constexpr maximum_ways<T> maximum_ways_for = maximum_ways_of<T, K>();

template <class T, window_kind K>
constexpr maximum_spread<T> maximum_spread_of() {
  if constexpr (is_two_by_two(K))
    return &spread_maxima_by_halving<T>;
  else
    return nullptr;
}

}  // namespace ikebana::cpu::detail
