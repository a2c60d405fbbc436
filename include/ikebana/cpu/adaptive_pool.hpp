#pragma once

#include <array>
#include <cstdint>

#include "ikebana/core/shape.hpp"
#include "ikebana/cpu/dispatch.hpp"
#include "ikebana/cpu/pool.hpp"
#include "ikebana/cpu/pool/lanes.hpp"

namespace ikebana::cpu {

/// Pooling to extents that are given: along each dimension window i holds the elements from
/// floor(i in / out) to ceil((i + 1) in / out). No extent of `in` may be 0 where there are windows.
struct adaptive_pool_geometry {
  dim_t planes;
  std::array<dim_t, 3> in, out;
};

namespace detail {

/// Whether all windows are of one size and share nothing.
constexpr bool is_even(const adaptive_pool_geometry& g) {
  for (std::size_t d = 0; d < 3; ++d)
    if (g.out[d] <= 0 || g.in[d] <= 0 || g.in[d] % g.out[d] != 0) return false;
  return true;
}
constexpr pool_geometry even_windows(const adaptive_pool_geometry& g) {
  const std::array<dim_t, 3> size{g.in[0] / g.out[0], g.in[1] / g.out[1], g.in[2] / g.out[2]};
  return {g.planes, g.in, g.out, size, size, {0, 0, 0}, {1, 1, 1}};
}

inline pool_span span_of(const adaptive_pool_geometry& g, std::size_t d, dim_t o) {
  const dim_t begin = o * g.in[d] / g.out[d];
  const dim_t end = ((o + 1) * g.in[d] + g.out[d] - 1) / g.out[d];
  return {begin, end, end - begin};
}
inline any_windows windows_of(const adaptive_pool_geometry& g) {
  return {g.planes, g.in, g.out, &g, [](const void* geometry, std::size_t d, dim_t o) {
            return span_of(*static_cast<const adaptive_pool_geometry*>(geometry), d, o);
          }};
}

/// Planes in lanes, for windows of several sizes. False, having done nothing, where these are few,
/// or large.
template <class T>
bool uneven_maxima(const any_windows& g, const T* x, T* y, std::int32_t* indices) {
  const lane_kernel<T> kernel = IKEBANA_CPU_DISPATCH(kernel_for_lane_maxima<T>)();
  return 4 * g.planes >= kernel.width &&
         windows_in_lanes<T>(g, {1, 1, 1}, kernel, false, T(1), true, x, y, indices);
}
/// Averages likewise, for windows that are not wide.
template <class T>
bool fit_lanes(const any_windows& g, lane_kernel<T> kernel) {
  return g.planes >= kernel.width && g.in[2] <= 5 * g.out[2];
}
template <class T>
void uneven_averages(const any_windows& g, const T* x, T* y, bool, dim_t) {
  const lane_kernel<T> kernel = IKEBANA_CPU_DISPATCH(kernel_for_lane_averages<T>)();
  if (!fit_lanes(g, kernel) ||
      !windows_in_lanes<T>(g, {1, 1, 1}, kernel, false, T(0), true, x, y, nullptr))
    averages_of_any<T>(g, x, y, true, 0);
}
template <class T>
void spread_unevenly(const any_windows& g, const T* dy, T* dx, bool, dim_t) {
  const lane_kernel<T> kernel = IKEBANA_CPU_DISPATCH(kernel_for_lane_spreads<T>)();
  if (!fit_lanes(g, kernel) ||
      !windows_in_lanes<T>(g, {1, 1, 1}, kernel, true, T(0), true, dy, dx, nullptr))
    spread_to_any<T>(g, dy, dx, true, 0);
}

IKEBANA_CPU_KERNEL(uneven_maxima)
IKEBANA_CPU_KERNEL(uneven_averages)
IKEBANA_CPU_KERNEL(spread_unevenly)

/// Even windows do not overlap.
template <class T>
inline constexpr average_ways<T> even_average_ways{
    {&averages_by_halving<T>, &averages_of_planes<T>, &averages_by_rows<T>}, &uneven_averages<T>};
template <class T>
inline constexpr average_ways<T> even_spread_ways{
    {&spread_by_halving<T>, &spread_to_planes<T>, &spread_by_rows<T>}, &spread_unevenly<T>};

/// One window for each plane.
template <class T>
inline constexpr maximum_ways<T> global_maximum_ways{&maxima_of_planes<T>};
template <class T>
inline constexpr average_ways<T> global_average_ways{{&averages_of_planes<T>}, nullptr};
template <class T>
inline constexpr average_ways<T> global_spread_ways{{&spread_to_planes<T>}, nullptr};

}  // namespace detail

}  // namespace ikebana::cpu

/// Pooling with PyTorch's semantics. None throws, nor allocates but for the thread's packing
/// buffer, at its first use.
namespace ikebana::cpu {

/// As max_pool_forward.
template <class T>
void adaptive_max_pool_forward(const adaptive_pool_geometry& g, const T* x, T* y,
                               std::int32_t* indices,
                               const detail::maximum_ways<T>& ways = detail::all_maximum_ways<T>) {
  if (detail::is_even(g)) return max_pool_forward<T>(detail::even_windows(g), x, y, indices, ways);
  if (detail::uneven_maxima<T>(detail::windows_of(g), x, y, indices)) return;
  detail::maxima_by_windows(
      g.planes, g.in, g.out, {1, 1, 1},
      [&](std::size_t d, dim_t o) { return detail::span_of(g, d, o); }, x, y, indices);
}
/// Overwrites dx.
template <class T>
void adaptive_max_pool_backward(const adaptive_pool_geometry& g, const T* dy,
                                const std::int32_t* indices, T* dx) {
  detail::scatter_by_index(g.planes, g.in[0] * g.in[1] * g.in[2], g.out[0] * g.out[1] * g.out[2],
                           dy, indices, dx);
}

/// Each window's sum divided by its size.
template <class T>
void adaptive_avg_pool_forward(const adaptive_pool_geometry& g, const T* x, T* y,
                               const detail::average_ways<T>& ways = detail::even_average_ways<T>) {
  if (detail::is_even(g))
    avg_pool_forward<T>(detail::even_windows(g), x, y, true, 0, ways);
  else if (ways.any != nullptr)
    ways.any(detail::windows_of(g), x, y, true, 0);
}
/// Overwrites dx.
template <class T>
void adaptive_avg_pool_backward(const adaptive_pool_geometry& g, const T* dy, T* dx,
                                const detail::average_ways<T>& ways = detail::even_spread_ways<T>) {
  if (detail::is_even(g))
    avg_pool_backward<T>(detail::even_windows(g), dy, dx, true, 0, ways);
  else if (ways.any != nullptr)
    ways.any(detail::windows_of(g), dy, dx, true, 0);
}

IKEBANA_CPU_KERNEL(adaptive_max_pool_forward)
IKEBANA_CPU_KERNEL(adaptive_max_pool_backward)
IKEBANA_CPU_KERNEL(adaptive_avg_pool_forward)
IKEBANA_CPU_KERNEL(adaptive_avg_pool_backward)

}  // namespace ikebana::cpu
