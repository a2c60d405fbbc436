#pragma once

#include <array>
#include <cstdint>

#include "ikebana/core/shape.hpp"
#include "ikebana/cpu/detail/targets.hpp"
#include "ikebana/cpu/pool.hpp"
#include "ikebana/cpu/pool/plan.hpp"

#if IKEBANA_CPU_HERE
#include "ikebana/cpu/pool/run.hpp"
#endif

/// Pooling with PyTorch's semantics. None throws, nor allocates but for the thread's packing
/// buffer, at its first use.
namespace ikebana::cpu {

/// Pooling to extents that are given: along each dimension window i holds the elements from
/// floor(i in / out) to ceil((i + 1) in / out). No extent of `in` may be 0 where there are windows.
struct adaptive_pool_geometry {
  dim_t planes;
  std::array<dim_t, 3> in, out;
};

/// As max_pool_forward.
template <class T, pool_set Set = all_pool_algorithms>
void adaptive_max_pool_forward(const adaptive_pool_geometry& g, const T* x, T* y,
                               std::int32_t* indices);
/// Overwrites dx.
template <class T>
void adaptive_max_pool_backward(const adaptive_pool_geometry& g, const T* dy,
                                const std::int32_t* indices, T* dx);
/// Each window's sum divided by its size.
template <class T, pool_set Set = all_pool_algorithms>
void adaptive_avg_pool_forward(const adaptive_pool_geometry& g, const T* x, T* y);
/// Overwrites dx.
template <class T, pool_set Set = all_pool_algorithms>
void adaptive_avg_pool_backward(const adaptive_pool_geometry& g, const T* dy, T* dx);

#if IKEBANA_CPU_HERE
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
  return {g.planes, g.in, g.out, {1, 1, 1}, &g, [](const void* geometry, std::size_t d, dim_t o) {
            return span_of(*static_cast<const adaptive_pool_geometry*>(geometry), d, o);
          }};
}

}  // namespace detail

template <class T, pool_set Set>
void adaptive_max_pool_forward(const adaptive_pool_geometry& g, const T* x, T* y,
                               std::int32_t* indices) {
  if (detail::is_even(g)) return max_pool_forward<T, Set>(detail::even_windows(g), x, y, indices);
  const detail::any_windows windows = detail::windows_of(g);
  const detail::pool_job<T> job{x, y, indices};
  if constexpr ((Set & only(pool_algorithm::separable)) != 0)
    if (indices == nullptr ? detail::run_separable<pool_work::maximum>(windows, job)
                           : detail::run_separable<pool_work::maximum_with_place>(windows, job))
      return;
  detail::maxima_by_windows(windows, x, y, indices);
}
template <class T>
void adaptive_max_pool_backward(const adaptive_pool_geometry& g, const T* dy,
                                const std::int32_t* indices, T* dx) {
  detail::scatter_by_index(g.planes, g.in[0] * g.in[1] * g.in[2], g.out[0] * g.out[1] * g.out[2],
                           dy, indices, dx);
}

template <class T, pool_set Set>
void adaptive_avg_pool_forward(const adaptive_pool_geometry& g, const T* x, T* y) {
  if (detail::is_even(g)) return avg_pool_forward<T, Set>(detail::even_windows(g), x, y, true, 0);
  const detail::any_windows windows = detail::windows_of(g);
  if constexpr ((Set & only(pool_algorithm::separable)) != 0)
    if (detail::run_separable<pool_work::average>(windows,
                                                  detail::pool_job<T>{x, y, nullptr, T(0)}))
      return;
  detail::plain_averages(windows, x, y, true, 0);
}
template <class T, pool_set Set>
void adaptive_avg_pool_backward(const adaptive_pool_geometry& g, const T* dy, T* dx) {
  if (detail::is_even(g))
    return avg_pool_backward<T, Set>(detail::even_windows(g), dy, dx, true, 0);
  const detail::any_windows windows = detail::windows_of(g);
  if constexpr ((Set & only(pool_algorithm::separable)) != 0)
    if (detail::run_separable<pool_work::average_backward>(
            windows, detail::pool_job<T>{dy, dx, nullptr, T(0)}))
      return;
  detail::plain_spread(windows, dy, dx, true, 0);
}
#endif

IKEBANA_CPU_KERNEL(adaptive_max_pool_forward, adaptive_max_pool_backward, adaptive_avg_pool_forward,
                   adaptive_avg_pool_backward)

}  // namespace ikebana::cpu
