#pragma once

// The ways that averages of windows go, and their gradients, one by one.

#include <array>
#include <cstddef>

#include "ikebana/core/shape.hpp"
#include "ikebana/cpu/conv/depthwise.hpp"
#include "ikebana/cpu/conv/depthwise/ways.hpp"
#include "ikebana/cpu/detail/scratch.hpp"
#include "ikebana/cpu/detail/strided.hpp"
#include "ikebana/cpu/detail/vec.hpp"
#include "ikebana/cpu/dispatch.hpp"
#include "ikebana/cpu/pool/lanes.hpp"
#include "ikebana/cpu/pool/rows.hpp"
#include "ikebana/cpu/pool/threes.hpp"
#include "ikebana/cpu/pool/ways.hpp"
#include "ikebana/cpu/pool/windows.hpp"

#define IKEBANA_CPU_BODY "ikebana/cpu/pool/average-inl.hpp"
#include "ikebana/cpu/detail/foreach_target.hpp"
#define IKEBANA_CPU_BODY "ikebana/cpu/pool/average_small-inl.hpp"
#include "ikebana/cpu/detail/foreach_target.hpp"

namespace ikebana::cpu::detail {

/// Averages of windows, or what they give back: `source` is x or dy, `result` y or dx.
template <class T>
struct average_job {
  const pool_geometry& windows;
  const T* source;
  T* result;
  T factor;  ///< Of every sum; 0 where that differs from window to window.
  bool count_include_pad;
  dim_t all_planes;  ///< Of which these are some: what the choice of a way may depend on.
};
/// False, having done nothing, where the windows are not of the kind that goes so.
template <class T>
using average_way = bool (*)(const average_job<T>&);

template <class T>
bool averages_by_halving(const average_job<T>& job) {
  if (!is_halving(job.windows)) return false;
  IKEBANA_CPU_DISPATCH(halve_by_average<T>)(job.windows, job.source, job.factor, job.result);
  return true;
}
template <class T>
bool spread_by_halving(const average_job<T>& job) {
  if (!is_halving(job.windows)) return false;
  IKEBANA_CPU_DISPATCH(halve_by_average_backward<T>)
  (job.windows, job.source, job.factor, job.result);
  return true;
}

template <class T>
bool averages_of_planes(const average_job<T>& job) {
  const pool_geometry& g = job.windows;
  if (!is_global(g) || job.factor == T(0)) return false;
  IKEBANA_CPU_DISPATCH(average_planes<T>)
  (g.planes, g.input_plane(), job.source, job.factor, job.result);
  return true;
}
template <class T>
bool spread_to_planes(const average_job<T>& job) {
  const pool_geometry& g = job.windows;
  if (!is_global(g)) return false;
  IKEBANA_CPU_DISPATCH(average_planes_backward<T>)
  (g.planes, g.input_plane(), job.source, job.factor, job.result);
  return true;
}

template <class T>
bool averages_of_threes(const average_job<T>& job) {
  const pool_geometry& g = job.windows;
  if (!is_by_threes<T>(g) || g.padding[2] != 1 || job.factor == T(0)) return false;
  IKEBANA_CPU_DISPATCH(sums_by_threes<T>)
  (g.planes * g.in[0], g.in[1], g.in[2], g.out[1], g.out[2], g.stride[1], g.padding[1], job.source,
   job.factor, job.result);
  return true;
}
template <class T>
bool spread_to_threes(const average_job<T>& job) {
  const pool_geometry& g = job.windows;
  if (!is_by_threes<T>(g) || g.padding[2] != 1 || g.stride[1] != 1) return false;
  // Where no window is left out, its gradients' windows are as many.
  IKEBANA_CPU_DISPATCH(sums_by_threes<T>)
  (g.planes * g.in[0], g.out[1], g.out[2], g.in[1], g.in[2], 1, 2 - g.padding[1], job.source,
   job.factor, job.result);
  return true;
}

/// Whether averages_by_convolution may take such windows, of planes as wide.
constexpr bool may_be_by_convolution(const std::array<dim_t, 3>& kernel,
                                     const std::array<dim_t, 3>& stride, dim_t width) {
  const auto is_fast = [&](dim_t k) { return k <= 3 || k == 5 || (k == 4 && width < 13); };
  return kernel[0] == 1 && kernel[1] != 1 && stride[1] <= 2 && stride[2] <= 2 &&
         is_fast(kernel[1]) && is_fast(kernel[2]);
}

/// Whether planes in lanes are faster than what follows.
template <class T>
bool fit_lanes(const average_job<T>& job, dim_t lanes) {
  const pool_geometry& g = job.windows;
  const bool convolved = job.factor != T(0) && may_be_by_convolution(g.kernel, g.stride, g.in[2]);
  return job.all_planes >= 2 * lanes && are_narrow(g, lanes) &&
         (!convolved || (g.in[2] <= 4 && g.kernel[2] > 1));
}
template <class T>
bool averages_by_lanes(const average_job<T>& job) {
  const pool_geometry& g = job.windows;
  const lane_kernel<T> kernel = IKEBANA_CPU_DISPATCH(kernel_for_lane_averages<T>)();
  return fit_lanes(job, kernel.width) &&
         windows_in_lanes<T>(windows_of(g), {1, 1, 1}, kernel, false, job.factor,
                             job.count_include_pad, job.source, job.result, nullptr);
}
template <class T>
bool spread_by_lanes(const average_job<T>& job) {
  const pool_geometry& g = job.windows;
  const lane_kernel<T> kernel = IKEBANA_CPU_DISPATCH(kernel_for_lane_spreads<T>)();
  // Each row of windows adds to all that it meets.
  return g.kernel[0] * g.kernel[1] <= 8 && fit_lanes(job, kernel.width) &&
         windows_in_lanes<T>(windows_of(g), {1, 1, 1}, kernel, true, job.factor,
                             job.count_include_pad, job.source, job.result, nullptr);
}

/// run(part's geometry, weights, its source, its result) for some planes at a time.
template <class T, class F>
bool as_convolutions(const average_job<T>& job, bool backward, const F& run) {
  constexpr dim_t most_taps = 25, most_groups = 16;
  const pool_geometry& p = job.windows;
  const dim_t taps = conv_geometry::volume(p.kernel), in = conv_geometry::volume(p.in),
              out = conv_geometry::volume(p.out);
  if (in <= 0 || out <= 0 || job.factor == T(0) ||
      !may_be_by_convolution(p.kernel, p.stride, p.in[2]))
    return false;
  T weights[most_taps * most_groups];
  for (dim_t i = 0; i < taps * most_groups; ++i) weights[i] = job.factor;
  for (dim_t done = 0; done < p.planes;) {
    const dim_t left = p.planes - done, groups = left < most_groups ? left : most_groups,
                batch = left / groups;
    const conv_geometry g{batch, groups,   groups,   groups,    p.in,
                          p.out, p.kernel, p.stride, p.padding, {1, 1, 1}};
    if (!run(g, static_cast<const T*>(weights), job.source + done * (backward ? out : in),
             job.result + done * (backward ? in : out)))
      return false;
    done += batch * groups;
  }
  return true;
}
/// Whether the convolutions' way for any windows, with channels in lanes, is faster than by rows.
template <class T>
bool are_channels(const average_job<T>& job) {
  return job.all_planes >= 16 && job.windows.out[2] <= 16;
}
/// Windows that overlap, as depthwise convolutions whose weights are all the factor. False where
/// there is a faster way: those convolutions are fast by two, three and five, and on small planes.
/// `Ways` as those of the convolutions.
template <class T, unsigned Ways = depthwise_way::all>
bool averages_by_convolution(const average_job<T>& job) {
  constexpr unsigned by_planes = Ways & ~depthwise_way::lanes;
  const auto run =
      are_channels(job) ? &depthwise_forward<T, Ways> : &depthwise_forward<T, by_planes>;
  return as_convolutions(job, false,
                         [run](const conv_geometry& g, const T* weights, const T* from, T* to) {
                           return run(g, from, weights, nullptr, {}, to);
                         });
}
template <class T, unsigned Ways = depthwise_way::all>
bool spread_by_convolution(const average_job<T>& job) {
  constexpr unsigned by_planes = Ways & ~depthwise_way::lanes;
  const auto run = are_channels(job) ? &depthwise_backward_data<T, Ways>
                                     : &depthwise_backward_data<T, by_planes>;
  return as_convolutions(job, true,
                         [run](const conv_geometry& g, const T* weights, const T* from, T* to) {
                           return run(g, from, weights, nullptr, to);
                         });
}

/// False, too, where the scratch is too small, or windows are wide.
template <class T, dim_t Stride = 0>
bool averages_by_rows(const average_job<T>& job) {
  return windows_by_rows(job.windows, row_work::average,
                         IKEBANA_CPU_DISPATCH(kernel_for_row_averages<T, Stride>)(), job.factor,
                         job.count_include_pad, job.source, job.result);
}
template <class T, dim_t Stride = 0>
bool spread_by_rows(const average_job<T>& job) {
  return windows_by_rows(job.windows, row_work::average_backward,
                         IKEBANA_CPU_DISPATCH(kernel_for_row_spreads<T, Stride>)(), job.factor,
                         true, job.source, job.result);
}

/// backward(job) for as many planes at a time as stay near, dy being divided by the sizes of the
/// windows before. False if it says so, or if a plane does not fit.
template <class T, class F>
bool divided_apart(const average_job<T>& all, const F& backward) {
  const pool_geometry& g = all.windows;
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
    return T(1) / static_cast<T>(all.count_include_pad ? s.padded : s.end - s.begin);
  };
  for (dim_t r = 0; r < rows; ++r) row_factors[r] = share(0, r / g.out[1]) * share(1, r % g.out[1]);
  for (dim_t c = 0; c < width; ++c) column_factors[c] = share(2, c);
  pool_geometry part = g;
  for (dim_t done = 0; done < planes; done += most) {
    part.planes = planes - done < most ? planes - done : most;
    IKEBANA_CPU_DISPATCH(divide_windows<T>)
    (part.planes, rows, width, row_factors, column_factors, all.source + done * outputs, divided);
    if (!backward(average_job<T>{part, divided, all.result + done * g.input_plane(), T(1),
                                 all.count_include_pad, all.all_planes}))
      return false;
  }
  return true;
}

/// Windows of any kind, undilated.
template <class T>
void averages_of_any(const any_windows& g, const T* x, T* y, bool count_include_pad,
                     dim_t divisor_override) {
  IKEBANA_CPU_DISPATCH(pool_average<T>)(g, x, y, count_include_pad, divisor_override);
}
template <class T>
void spread_to_any(const any_windows& g, const T* dy, T* dx, bool count_include_pad,
                   dim_t divisor_override) {
  IKEBANA_CPU_DISPATCH(pool_average_backward<T>)(g, dy, dx, count_include_pad, divisor_override);
}

IKEBANA_CPU_KERNEL(averages_by_halving)
IKEBANA_CPU_KERNEL(spread_by_halving)
IKEBANA_CPU_KERNEL(averages_of_planes)
IKEBANA_CPU_KERNEL(spread_to_planes)
IKEBANA_CPU_KERNEL(averages_of_threes)
IKEBANA_CPU_KERNEL(spread_to_threes)
IKEBANA_CPU_KERNEL(averages_by_lanes)
IKEBANA_CPU_KERNEL(spread_by_lanes)
IKEBANA_CPU_KERNEL(averages_by_convolution)
IKEBANA_CPU_KERNEL(spread_by_convolution)
IKEBANA_CPU_KERNEL(averages_by_rows)
IKEBANA_CPU_KERNEL(spread_by_rows)
IKEBANA_CPU_KERNEL(averages_of_any)
IKEBANA_CPU_KERNEL(spread_to_any)

}  // namespace ikebana::cpu::detail
