#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <iterator>
#include <type_traits>
#include <utility>

#include "ikebana/core/shape.hpp"
#include "ikebana/cpu/detail/quotients.hpp"
#include "ikebana/cpu/detail/scratch.hpp"
#include "ikebana/cpu/detail/strided.hpp"
#include "ikebana/cpu/detail/vec.hpp"
#include "ikebana/cpu/dispatch.hpp"
#include "ikebana/cpu/pool/plan.hpp"
#include "ikebana/cpu/pool/windows.hpp"

#define IKEBANA_CPU_BODY "ikebana/cpu/pool/joining-inl.hpp"
#define IKEBANA_CPU_SETS 2
#include "ikebana/cpu/detail/foreach_target.hpp"
#define IKEBANA_CPU_BODY "ikebana/cpu/pool/planes-inl.hpp"
#define IKEBANA_CPU_SETS 2
#include "ikebana/cpu/detail/foreach_target.hpp"
#define IKEBANA_CPU_BODY "ikebana/cpu/pool/halves-inl.hpp"
#define IKEBANA_CPU_SETS 2
#include "ikebana/cpu/detail/foreach_target.hpp"
#define IKEBANA_CPU_BODY "ikebana/cpu/pool/neighbours-inl.hpp"
#define IKEBANA_CPU_SETS 2
#include "ikebana/cpu/detail/foreach_target.hpp"
#define IKEBANA_CPU_BODY "ikebana/cpu/pool/separable-inl.hpp"
#define IKEBANA_CPU_SETS 2
#include "ikebana/cpu/detail/foreach_target.hpp"

IKEBANA_CPU_BEGIN_SMALL
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
bool run_halves(const pool_geometry& g, const pool_job<T>& job) {
  if constexpr (Work == pool_work::maximum_backward || Work == pool_work::average_backward)
    IKEBANA_CPU_DISPATCH_AVX(halve_backward<Work, T>)
  (g, job.source, job.maxima, job.factor, job.result);
  else IKEBANA_CPU_DISPATCH_AVX(halve_planes<Work, T>)(g, job.source, job.factor, job.result,
                                                       job.indices);
  return true;
}

template <pool_work Work, class T>
bool run_neighbours(const pool_geometry& g, const pool_job<T>& job) {
  // A row of nothing has to fit.
  if (static_cast<std::size_t>(std::max(g.in[2], g.out[2])) * sizeof(T) > packed_b_bytes)
    return false;
  pool_geometry of = g;
  if constexpr (Work == pool_work::average_backward) {
    if (g.stride[2] == 2) {
      IKEBANA_CPU_DISPATCH_AVX(spread_threes<T>)(g, job.source, job.factor, job.result);
      return true;
    }
    std::swap(of.in, of.out);
    for (std::size_t d = 1; d < 3; ++d) of.padding[d] = g.kernel[d] - 1 - g.padding[d];
  }
  IKEBANA_CPU_DISPATCH_AVX(join_threes<Work, T>)
  (of, job.source, job.factor, job.result, job.indices);
  return true;
}

template <pool_work Work, class T>
bool run_separable(const any_windows& g, const pool_job<T>& job) {
  constexpr bool backward = Work == pool_work::average_backward;
  if (!backward && g.out[0] * g.out[1] * g.out[2] <= 0) return true;
  // Vectors pass the end by so many elements.
  constexpr dim_t more = 256 / static_cast<dim_t>(sizeof(T));
  window_lines<T> t;
  t.factor = job.factor;
  // Rows of windows follow each other as padded rows do, and backward with zeros between them.
  const dim_t shared = backward && g.stride != 0 ? (g.kernel - 1) / g.stride : 0;
  t.window_pitch = g.out[2] + shared;
  t.row_pitch = std::max(g.in[2], dim_t{1});
  if (g.stride != 0) {
    const dim_t extent = std::max(t.row_pitch + g.padding,
                                  (g.out[2] - 1) * g.stride + (g.kernel - 1) * g.dilation[2] + 1);
    t.window_pitch = std::max(t.window_pitch, parts(extent, g.stride));
    t.row_pitch = t.window_pitch * g.stride;
  }
  t.batch = pool_costs::batch_bytes / static_cast<dim_t>(sizeof(T)) / t.row_pitch;
  t.batch = std::min(std::max(t.batch, dim_t{1}), pool_costs::most_rows);
  monotonic_scratch scratch = monotonic_scratch::of<T>();
  auto lists = monotonic_scratch::of_lists();
  t.rows = scratch.allocate<T>(t.batch * t.row_pitch + 2 * more);
  t.windows = scratch.allocate<T>(rounded_up(shared, more) + t.batch * t.window_pitch + 2 * more);
  if (Work == pool_work::maximum_with_place) {
    scratch.allocate(t.places, t.batch * t.row_pitch + 2 * more);
    scratch.allocate(t.indices, t.batch * t.window_pitch + more);
  }
  std::array<T*, 3> factors{};
  std::array<pool_span*, 3> spans{};
  std::array<typename window_lines<T>::range*, 2> ranges{};
  for (std::size_t d = 0; d < 3; ++d) {
    if (d < 2 || g.stride == 0) lists.allocate(spans[d], g.out[d]);
    if (d < 2 && backward) lists.allocate(ranges[d], g.in[d]);
    if (job.factor == T(0)) scratch.allocate(factors[d], g.out[d] + more);
  }
  if (!scratch.fits() || !lists.fits()) return false;
  t.windows += rounded_up(shared, more);
  for (std::size_t d = 0; d < 3; ++d) {
    if (factors[d] != nullptr) std::fill_n(factors[d], g.out[d] + more, T(0));
    for (dim_t o = 0; o < g.out[d]; ++o) {
      const pool_span s = g.span(d, o);
      if (spans[d] != nullptr) spans[d][o] = s;
      if (factors[d] != nullptr)
        factors[d][o] = T(1) / static_cast<T>(job.count_include_pad ? s.padded : s.end - s.begin);
    }
    t.spans[d] = spans[d];
    t.factors[d] = factors[d];
    if (d == 2 || !backward) continue;
    t.ranges[d] = ranges[d];
    dim_t first = 0, end = 0;
    for (dim_t i = 0; i < g.in[d]; ++i) {
      while (first < g.out[d] && spans[d][first].end <= i) ++first;
      while (end < g.out[d] && spans[d][end].begin <= i) ++end;
      ranges[d][i] = {first, end};
    }
  }
  if constexpr (backward)
    IKEBANA_CPU_DISPATCH_AVX(spread_windows<T>)(g, t, job.source, job.result);
  else
    IKEBANA_CPU_DISPATCH_AVX(join_windows<Work, T>)(g, t, job.source, job.result, job.indices);
  return true;
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
    maxima_by_windows(windows_of(g), job.source, job.result, job.indices);
  return true;
}

/// Runs an algorithm that applies.
template <pool_algorithm Algorithm, pool_work Work, class T>
bool run_pool_by(const pool_geometry& g, const pool_job<T>& job) {
  using enum pool_algorithm;
  if constexpr (Algorithm == whole_planes)
    return run_whole_planes<Work>(g, job);
  else if constexpr (Algorithm == halves)
    return run_halves<Work>(g, job);
  else if constexpr (Algorithm == neighbours)
    return run_neighbours<Work>(g, job);
  else if constexpr (Algorithm == separable)
    return run_separable<Work>(windows_of(g), job);
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

/// Runs this algorithm, for tests: it applies.
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
template <pool_work Work, pool_set Set, class T>
void run_pool(const pool_geometry& g, const pool_job<T>& job) {
  const pool_problem problem{Work, g, false,
                             job.factor != T(0) ? pool_fit::always : pool_fit::never};
  any_pool_algorithm([&](auto a) {
    if constexpr ((Set & only(a)) != 0 && computes(a, Work))
      return applies(a, problem) == pool_fit::always && run_pool_by<a, Work>(g, job) &&
             reported(problem, a);
    else
      return false;
  });
}

}  // namespace ikebana::cpu::detail
IKEBANA_CPU_END_SMALL
