#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <iterator>
#include <type_traits>
#include <utility>

#include "ikebana/core/shape.hpp"
#include "ikebana/cpu/detail/scratch.hpp"
#include "ikebana/cpu/detail/strided.hpp"
#include "ikebana/cpu/detail/vec.hpp"
#include "ikebana/cpu/dispatch.hpp"
#include "ikebana/cpu/pool/lanes.hpp"
#include "ikebana/cpu/pool/plan.hpp"
#include "ikebana/cpu/pool/rows.hpp"
#include "ikebana/cpu/pool/windows.hpp"

#define IKEBANA_CPU_BODY "ikebana/cpu/pool/halves-inl.hpp"
#define IKEBANA_CPU_SETS 2
#include "ikebana/cpu/detail/foreach_target.hpp"
#define IKEBANA_CPU_BODY "ikebana/cpu/pool/planes-inl.hpp"
#define IKEBANA_CPU_SETS 2
#include "ikebana/cpu/detail/foreach_target.hpp"
#define IKEBANA_CPU_BODY "ikebana/cpu/pool/threes-inl.hpp"
#define IKEBANA_CPU_SETS 2
#include "ikebana/cpu/detail/foreach_target.hpp"
#define IKEBANA_CPU_BODY "ikebana/cpu/pool/windows-inl.hpp"
#define IKEBANA_CPU_SETS 2
#include "ikebana/cpu/detail/foreach_target.hpp"

// Each algorithm of pool/plan.hpp, for each work that it does. False, having done nothing, if it
// declines for want of scratch.
namespace ikebana::cpu::detail {

/// `source` is x or, backward, dy, and `result` y or dx.
template <class T>
struct pool_job {
  const T* source;
  T* result;
  std::int32_t* indices = nullptr;  ///< Of maxima.
  T factor = T(1);                  ///< Of every sum; 0 where it differs from window to window.
  bool count_include_pad = true;
  dim_t divisor_override = 0;
  const std::int32_t* maxima = nullptr;  ///< The same, backward.
};

/// done(planes left, their x, y and indices) says how many it has done: it stops at one with what
/// is not finite, which goes element by element.
template <class T, class F>
void maxima_but_of_doubtful_planes(const pool_geometry& g, const pool_job<T>& job, const F& done) {
  pool_geometry one = g;
  one.planes = 1;
  const auto of = [&](dim_t plane) {
    return job.indices == nullptr ? nullptr : job.indices + plane * g.output_plane();
  };
  for (dim_t n = 0; n < g.planes; ++n) {
    const auto at = [&] { return job.source + n * g.input_plane(); };
    const auto to = [&] { return job.result + n * g.output_plane(); };
    n += done(g.planes - n, at(), to(), of(n));
    if (n == g.planes) return;
    maxima_by_windows(one, at(), to(), of(n));
  }
}

template <pool_work Work, class T>
bool run_halves(const pool_geometry& g, const pool_job<T>& job) {
  if constexpr (Work == pool_work::average)
    IKEBANA_CPU_DISPATCH_AVX(halve_by_average<T>)(g, job.source, job.factor, job.result);
  else if constexpr (Work == pool_work::average_backward)
    IKEBANA_CPU_DISPATCH_AVX(halve_by_average_backward<T>)(g, job.source, job.factor, job.result);
  else if constexpr (Work == pool_work::maximum_backward)
    IKEBANA_CPU_DISPATCH_AVX(halve_backward<T>)(g, job.source, job.maxima, job.result);
  else
    maxima_but_of_doubtful_planes(
        g, job, [&](dim_t planes, const T* x, T* y, std::int32_t* indices) -> dim_t {
          pool_geometry some = g;
          some.planes = planes;
          return IKEBANA_CPU_DISPATCH_AVX(halve_by_maximum<T>)(some, x, y, indices);
        });
  return true;
}

template <pool_work Work, class T>
bool run_whole_planes(const pool_geometry& g, const pool_job<T>& job) {
  if constexpr (Work == pool_work::average) IKEBANA_CPU_DISPATCH_AVX(average_planes<T>)
  (g.planes, g.input_plane(), job.source, job.factor, job.result);
  else if constexpr (Work == pool_work::average_backward) IKEBANA_CPU_DISPATCH_AVX(
      average_planes_backward<T>)(g.planes, g.input_plane(), job.source, job.factor, job.result);
  else IKEBANA_CPU_DISPATCH_AVX(maximum_of_planes<T>)(g.planes, g.input_plane(), job.source,
                                                      job.result, job.indices);
  return true;
}

template <pool_work Work, class T>
bool run_threes(const pool_geometry& all, const pool_job<T>& job) {
  // Slices are planes.
  pool_geometry g = all;
  g.planes *= g.in[0];
  g.in[0] = g.out[0] = 1;
  if constexpr (Work == pool_work::maximum_with_place) {
    maxima_but_of_doubtful_planes(
        all, job, [&](dim_t planes, const T* x, T* y, std::int32_t* indices) -> dim_t {
          return IKEBANA_CPU_DISPATCH_AVX(places_by_threes<T>)(all, planes, x, y, indices);
        });
  } else {
    if (static_cast<std::size_t>(g.in[2]) * sizeof(T) > packed_b_bytes) return false;
    if constexpr (Work == pool_work::average) {
      IKEBANA_CPU_DISPATCH_AVX(averages_by_threes<T>)(g, job.source, job.factor, job.result);
    } else if constexpr (Work == pool_work::average_backward) {
      IKEBANA_CPU_DISPATCH_AVX(spread_by_threes<T>)(g, job.source, job.factor, job.result);
    } else if (!IKEBANA_CPU_DISPATCH_AVX(maxima_by_threes<T>)(g, job.source, T(1), job.result)) {
      pool_geometry one = g;
      one.planes = 1;
      maxima_but_of_doubtful_planes(
          g, job, [&](dim_t planes, const T* x, T* y, std::int32_t*) -> dim_t {
            dim_t n = 0;
            while (n < planes && IKEBANA_CPU_DISPATCH_AVX(maxima_by_threes<T>)(
                                     one, x + n * g.input_plane(), T(1), y + n * g.output_plane()))
              ++n;
            return n;
          });
    }
  }
  return true;
}

/// `Stride` as pool_stride_of.
template <pool_work Work, dim_t Stride, class T>
bool run_separable(const pool_geometry& g, const pool_job<T>& job) {
  const auto kernel = [] {
    if constexpr (Work == pool_work::average)
      return IKEBANA_CPU_DISPATCH_AVX(kernel_for_row_averages<T, Stride>)();
    else if constexpr (Work == pool_work::average_backward)
      return IKEBANA_CPU_DISPATCH_AVX(kernel_for_row_spreads<T, Stride>)();
    else
      return IKEBANA_CPU_DISPATCH_AVX(kernel_for_row_maxima<T, Stride>)();
  };
  return windows_by_rows<T>(g, Work, kernel(), job.factor, job.count_include_pad, job.source,
                            job.result);
}

/// Averages and their gradients, of windows of any sizes.
template <pool_work Work, class T>
bool run_any_windows(const any_windows& g, const pool_job<T>& job) {
  monotonic_scratch scratch = monotonic_scratch::of<T>();
  auto lists = monotonic_scratch::of_lists();
  constexpr dim_t register_bytes = 64;
  T* const row = scratch.allocate<T>(g.in[2] + register_bytes / static_cast<dim_t>(sizeof(T)));
  pool_span* const columns = lists.allocate<pool_span>(g.out[2]);
  if (!scratch.fits() || !lists.fits()) return false;
  for (dim_t o = 0; o < g.out[2]; ++o) columns[o] = g.span(2, o);
  if constexpr (Work == pool_work::average) IKEBANA_CPU_DISPATCH_AVX(average_windows<T>)
  (g, columns, row, job.source, job.result, job.count_include_pad, job.divisor_override);
  else IKEBANA_CPU_DISPATCH_AVX(spread_windows<T>)(g, columns, row, job.source, job.result,
                                                   job.count_include_pad, job.divisor_override);
  return true;
}

template <pool_work Work, class T>
bool run_windows(const pool_geometry& g, const pool_job<T>& job) {
  if constexpr (Work == pool_work::maximum_with_place) {
    maxima_but_of_doubtful_planes(
        g, job, [&](dim_t planes, const T* x, T* y, std::int32_t* indices) -> dim_t {
          return IKEBANA_CPU_DISPATCH_AVX(places_by_windows<T>)(g, planes, x, y, indices);
        });
    return true;
  } else {
    return run_any_windows<Work>(windows_of(g), job);
  }
}

template <pool_work Work, class T>
bool run_plain(const pool_geometry& g, const pool_job<T>& job) {
  if constexpr (Work == pool_work::average)
    plain_averages(windows_of(g), job.source, job.result, job.count_include_pad,
                   job.divisor_override);
  else if constexpr (Work == pool_work::average_backward)
    plain_spread(windows_of(g), job.source, job.result, job.count_include_pad,
                 job.divisor_override);
  else if constexpr (Work == pool_work::maximum_backward)
    scatter_by_index(g.planes, g.input_plane(), g.output_plane(), job.source, job.maxima,
                     job.result);
  else
    maxima_by_windows(g, job.source, job.result, job.indices);
  return true;
}

/// Runs an algorithm that applies.
template <pool_algorithm Algorithm, pool_work Work, dim_t Stride = 0, class T>
bool run_pool_by(const pool_geometry& g, const pool_job<T>& job) {
  using enum pool_algorithm;
  if constexpr (Algorithm == halves)
    return run_halves<Work>(g, job);
  else if constexpr (Algorithm == whole_planes)
    return run_whole_planes<Work>(g, job);
  else if constexpr (Algorithm == planes_in_lanes)
    return maxima_in_lanes<T>(dilated_windows_of(g), g.dilation, job.source, job.result,
                              job.indices);
  else if constexpr (Algorithm == threes)
    return run_threes<Work>(g, job);
  else if constexpr (Algorithm == separable)
    return run_separable<Work, Stride>(g, job);
  else if constexpr (Algorithm == windows)
    return run_windows<Work>(g, job);
  else
    return run_plain<Work>(g, job);
}

/// f(an integral_constant) of each algorithm, until one says true.
template <class F>
constexpr bool any_pool_algorithm(const F& f) {
  return [&]<std::size_t... I>(std::index_sequence<I...>) {
    return (f(std::integral_constant<pool_algorithm, pool_algorithms[I]>{}) || ...);
  }
  (std::make_index_sequence<std::size(pool_algorithms)>{});
}

/// Runs this algorithm, for tests: it applies, or is planes_in_lanes.
template <class T>
bool pool_by(pool_algorithm algorithm, pool_work work, const pool_geometry& g,
             const pool_job<T>& job) {
  const auto runs = [&]<pool_work Work>() {
    return work == Work && any_pool_algorithm([&](auto a) {
             if constexpr (computes(a, Work))
               return a == algorithm && run_pool_by<a, Work>(g, job);
             else
               return false;
           });
  };
  using enum pool_work;
  return runs.template operator()<maximum>() || runs.template operator()<maximum_with_place>() ||
         runs.template operator()<maximum_backward>() || runs.template operator()<average>() ||
         runs.template operator()<average_backward>();
}
IKEBANA_CPU_KERNEL(pool_by)

/// True; prints a line about the plan, if wanted (verbose.hpp).
inline bool reported(const pool_problem& p, pool_algorithm algorithm) {
  if (is_verbose()) [[unlikely]]
    print_plan(p, algorithm);
  return true;
}

/// Runs the first algorithm of `Set` that applies and does not decline.
template <pool_work Work, pool_set Set, dim_t Stride, class T>
void run_pool(const pool_geometry& g, const pool_job<T>& job) {
  pool_problem problem{Work, g, false, job.factor != T(0) ? pool_fit::always : pool_fit::never};
  if constexpr ((Set & only(pool_algorithm::planes_in_lanes)) != 0 &&
                computes(pool_algorithm::planes_in_lanes, Work)) {
    const lane_kernel<T> lanes = IKEBANA_CPU_DISPATCH_AVX(kernel_for_lane_maxima<T>)();
    problem.lanes = lanes.width;
  }
  any_pool_algorithm([&](auto a) {
    if constexpr ((Set & only(a)) != 0 && computes(a, Work))
      return applies(a, problem) == pool_fit::always && run_pool_by<a, Work, Stride>(g, job) &&
             reported(problem, a);
    else
      return false;
  });
}

}  // namespace ikebana::cpu::detail
