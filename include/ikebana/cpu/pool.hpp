#pragma once

#include <cstddef>
#include <cstdint>

#include "ikebana/core/shape.hpp"
#include "ikebana/cpu/detail/targets.hpp"
#include "ikebana/cpu/pool/plan.hpp"

#if IKEBANA_CPU_HERE
#include "ikebana/cpu/dispatch.hpp"
#include "ikebana/cpu/parallel.hpp"
#include "ikebana/cpu/pool/run.hpp"
#endif

/// Pooling with PyTorch's semantics. None throws, nor allocates but for the thread's packing
/// buffer, at its first use. Only algorithms of `Set` (pool/plan.hpp) are run, and built.
namespace ikebana::cpu {

/// y is the maximum of each window, not-a-number if any of it is; `indices`, where given, the place
/// of the maximum within its input plane: the first of equals, or the last that is not a number.
template <class T, pool_set Set = all_pool_algorithms>
void max_pool_forward(const pool_geometry& all, const T* x, T* y, std::int32_t* indices);
/// Overwrites dx.
template <class T, pool_set Set = all_pool_algorithms>
void max_pool_backward(const pool_geometry& all, const T* dy, const std::int32_t* indices, T* dx);
/// Each window's sum divided by `divisor_override`, or where that is 0 by its size, with or without
/// the padding in it. Windows must not be dilated.
template <class T, pool_set Set = all_pool_algorithms>
void avg_pool_forward(const pool_geometry& all, const T* x, T* y, bool count_include_pad,
                      dim_t divisor_override);
/// Overwrites dx.
template <class T, pool_set Set = all_pool_algorithms>
void avg_pool_backward(const pool_geometry& all, const T* dy, T* dx, bool count_include_pad,
                       dim_t divisor_override);

}  // namespace ikebana::cpu

#if IKEBANA_CPU_HERE
IKEBANA_CPU_BEGIN_SMALL
namespace ikebana::cpu::detail {

/// f(geometry, offset of the input, offset of the output) for parts of the planes.
template <class F>
void share_planes(const pool_geometry& g, const F& f) {
  const dim_t in = g.input_plane(), out = g.output_plane(),
              cost = in + out * conv_geometry::volume(g.kernel);
  if (g.planes * cost <= elements_for_thread || num_threads() <= 1) return f(g, 0, 0);
  const auto range = [&](dim_t begin, dim_t end) {
    pool_geometry part = g;
    part.planes = end - begin;
    f(part, begin * in, begin * out);
  };
  ikebana::detail::share_ranges<decltype(range)>(0, g.planes, rows_for_thread(cost), range);
}

/// What all windows' sums are multiplied by; 0 where that differs.
template <class T>
T common_factor(const pool_geometry& g, bool count_include_pad, dim_t divisor_override) {
  if (divisor_override != 0) return T(1) / static_cast<T>(divisor_override);
  for (std::size_t d = 0; d < 3; ++d) {
    const dim_t end = (g.out[d] - 1) * g.stride[d] - g.padding[d] + g.kernel[d];
    if (end > g.in[d] + (count_include_pad ? g.padding[d] : 0)) return T(0);
    if (!count_include_pad && g.padding[d] != 0) return T(0);
  }
  return T(1) / static_cast<T>(conv_geometry::volume(g.kernel));
}

}  // namespace ikebana::cpu::detail

namespace ikebana::cpu {

template <class T, pool_set Set>
void max_pool_forward(const pool_geometry& all, const T* x, T* y, std::int32_t* indices) {
  using enum pool_work;
  detail::share_planes(all, [=](const pool_geometry& g, dim_t in, dim_t out) {
    if (indices == nullptr)
      detail::run_pool<maximum, Set, T>(g, {x + in, y + out});
    else
      detail::run_pool<maximum_with_place, Set, T>(g, {x + in, y + out, indices + out});
  });
}
template <class T, pool_set Set>
void max_pool_backward(const pool_geometry& all, const T* dy, const std::int32_t* indices, T* dx) {
  detail::share_planes(all, [=](const pool_geometry& g, dim_t in, dim_t out) {
    detail::run_pool<pool_work::maximum_backward, Set, T>(
        g, {dy + out, dx + in, nullptr, T(1), true, 0, indices + out});
  });
}

template <class T, pool_set Set>
void avg_pool_forward(const pool_geometry& all, const T* x, T* y, bool count_include_pad,
                      dim_t divisor_override) {
  const T factor = detail::common_factor<T>(all, count_include_pad, divisor_override);
  detail::share_planes(all, [=](const pool_geometry& g, dim_t in, dim_t out) {
    detail::run_pool<pool_work::average, Set, T>(
        g, {x + in, y + out, nullptr, factor, count_include_pad, divisor_override});
  });
}
template <class T, pool_set Set>
void avg_pool_backward(const pool_geometry& all, const T* dy, T* dx, bool count_include_pad,
                       dim_t divisor_override) {
  const T factor = detail::common_factor<T>(all, count_include_pad, divisor_override);
  detail::share_planes(all, [=](const pool_geometry& g, dim_t in, dim_t out) {
    detail::run_pool<pool_work::average_backward, Set, T>(
        g, {dy + out, dx + in, nullptr, factor, count_include_pad, divisor_override});
  });
}

}  // namespace ikebana::cpu
IKEBANA_CPU_END_SMALL
#endif

namespace ikebana::cpu {

IKEBANA_CPU_KERNEL(max_pool_forward, max_pool_backward, avg_pool_forward, avg_pool_backward)

}  // namespace ikebana::cpu
