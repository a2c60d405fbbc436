#pragma once

#include <array>
#include <cstddef>
#include <cstdio>

#include "ikebana/core/shape.hpp"
#include "ikebana/cpu/conv_geometry.hpp"
#include "ikebana/cpu/detail/targets.hpp"
#include "ikebana/cpu/dispatch.hpp"
#include "ikebana/cpu/pool/costs.hpp"
#include "ikebana/cpu/verbose.hpp"

namespace ikebana::cpu {

/// Pooling of `planes` (batch times channels) of three spatial extents each; fewer dimensions have
/// leading ones. Rounding up (ceil_mode) is a matter of `out` alone. Every window must hold at
/// least one element of the input.
struct pool_geometry {
  dim_t planes;
  std::array<dim_t, 3> in, out, kernel, stride, padding, dilation;

  constexpr dim_t input_plane() const { return in[0] * in[1] * in[2]; }
  constexpr dim_t output_plane() const { return out[0] * out[1] * out[2]; }
};

/// What is computed: maxima, maxima with their places, averages, and the gradients of the latter
/// two.
enum class pool_work : unsigned char {
  maximum,
  maximum_with_place,
  maximum_backward,
  average,
  average_backward
};
constexpr bool is_of_maxima(pool_work w) { return w <= pool_work::maximum_backward; }
constexpr const char* name(pool_work w) {
  constexpr const char* names[] = {"maximum", "maximum with place", "maximum backward", "average",
                                   "average backward"};
  return names[static_cast<int>(w)];
}

/// How windows are pooled, in the order in which the algorithms are considered.
enum class pool_algorithm : unsigned char {
  whole_planes,  ///< A plane is a window.
  halves,        ///< Two by two that share nothing: pairs are joined in registers.
  neighbours,    ///< Three by three: rows are joined in registers.
  separable,     ///< Rows are joined first, then columns of what came out.
  plain,         ///< Element by element.
};
inline constexpr pool_algorithm pool_algorithms[] = {
    pool_algorithm::whole_planes, pool_algorithm::halves, pool_algorithm::neighbours,
    pool_algorithm::separable, pool_algorithm::plain};

constexpr const char* name(pool_algorithm a) {
  constexpr const char* names[] = {"whole planes", "halves", "neighbours", "separable", "plain"};
  return names[static_cast<int>(a)];
}

/// Whether something holds: `perhaps` only where extents are not known.
enum class pool_fit : unsigned char { never, perhaps, always };

/// What pooling is planned from.
struct pool_problem {
  pool_work work;
  pool_geometry windows;  ///< planes, in and out may be negative: not known.
  bool ceils = false;     ///< Whether windows may pass the end; read where extents are not known.
  pool_fit one_divisor = pool_fit::always;  ///< Whether all sums are divided by one number.

  constexpr bool is_known() const { return windows.out[2] >= 0; }
};

namespace detail {

/// Whether windows are two by two and share nothing.
constexpr bool is_two_by_two(const pool_geometry& g) {
  constexpr std::array<dim_t, 3> size{1, 2, 2}, none{0, 0, 0};
  return g.kernel == size && g.stride == size && g.padding == none && g.dilation[1] == 1 &&
         g.dilation[2] == 1;
}
/// Whether, what is more, none of them passes the end.
constexpr bool are_halves(const pool_geometry& g) {
  return is_two_by_two(g) && 2 * g.out[1] <= g.in[1] && 2 * g.out[2] <= g.in[2];
}
/// Whether windows are of three by three whose neighbours are joined in registers.
constexpr bool are_neighbours(const pool_geometry& g) {
  return g.kernel == std::array<dim_t, 3>{1, 3, 3} && g.stride[0] == 1 && g.padding[0] == 0 &&
         g.stride[2] <= 2 && g.padding[2] <= 1 && g.dilation[1] == 1 && g.dilation[2] == 1;
}

}  // namespace detail

/// Whether an algorithm is written for such work.
constexpr bool computes(pool_algorithm algorithm, pool_work work) {
  switch (algorithm) {
    case pool_algorithm::whole_planes:
    case pool_algorithm::neighbours:
    case pool_algorithm::separable:
      return work != pool_work::maximum_backward;
    default:
      return true;
  }
}

/// Whether the algorithm computes such windows, and is no detour. What applies may still decline,
/// having done nothing, for want of scratch, but for the last algorithm. Never depends on how many
/// planes there are where that could change the bits of averages.
[[gnu::always_inline]] constexpr pool_fit applies(pool_algorithm algorithm, const pool_problem& p) {
  namespace costs = detail::pool_costs;
  using enum pool_fit;
  const pool_geometry& g = p.windows;
  if (!computes(algorithm, p.work)) return never;
  switch (algorithm) {
    case pool_algorithm::whole_planes:
      if (g.padding != std::array<dim_t, 3>{0, 0, 0}) return never;
      if (!p.is_known())
        return conv_geometry::volume(g.kernel) > costs::most_of_window ? perhaps : never;
      for (std::size_t d = 0; d < 3; ++d)
        if (g.out[d] != 1 || g.kernel[d] < g.in[d]) return never;
      return p.work == pool_work::average ? p.one_divisor : always;
    case pool_algorithm::halves: {
      if (!detail::is_two_by_two(g)) return never;
      const bool backward = p.work == pool_work::maximum_backward;
      if (!p.is_known() && (p.ceils || backward)) return perhaps;
      if (p.is_known() && !detail::are_halves(g)) return never;
      if (p.is_known() && backward && g.out[2] < costs::least_halved_row) return never;
      const bool averages = p.work == pool_work::average || p.work == pool_work::average_backward;
      return averages ? p.one_divisor : always;
    }
    case pool_algorithm::neighbours:
      if (!detail::are_neighbours(g)) return never;
      // Backward, with strides of 1, the windows of dx's elements have to be such windows, too.
      if (p.work == pool_work::average_backward &&
          (g.stride[1] != g.stride[2] || (g.stride[2] == 1 && g.padding[2] != 1)))
        return never;
      return p.work == pool_work::average || p.work == pool_work::average_backward ? p.one_divisor
                                                                                   : always;
    default:
      return always;
  }
}

/// The elements that an algorithm joins, those of all windows or, if these are joined along one
/// dimension after the other, of all lines.
constexpr dim_t cost(pool_algorithm algorithm, const pool_problem& p) {
  const pool_geometry& g = p.windows;
  if (algorithm == pool_algorithm::whole_planes) return g.planes * g.input_plane();
  if (algorithm != pool_algorithm::separable)
    return g.planes * g.output_plane() * conv_geometry::volume(g.kernel);
  const dim_t line = g.in[0] * g.in[1] * g.kernel[2], row = g.in[0] * g.out[1] * g.kernel[1];
  return g.planes * g.out[2] * (line + row + g.out[0] * g.out[1] * g.kernel[0]);
}

/// Some of the algorithms, a bit each.
using pool_set = unsigned;
constexpr pool_set only(pool_algorithm a) { return 1U << static_cast<unsigned>(a); }
inline constexpr pool_set all_pool_algorithms = 2 * only(pool_algorithm::plain) - 1;

/// The algorithms that what is known of a problem leaves, up to the first that always applies, and
/// the last: others need not be built. All of them where kernels are built apart.
constexpr pool_set pool_set_of(const pool_problem& p) {
  if (!IKEBANA_CPU_HERE) return all_pool_algorithms;
  pool_set set = only(pool_algorithm::plain);
  for (const pool_algorithm a : pool_algorithms) {
    const pool_fit fit = applies(a, p);
    if (fit != pool_fit::never) set |= only(a);
    if (fit == pool_fit::always) break;
  }
  return set;
}
/// Those for windows that are each a whole plane.
constexpr pool_set whole_plane_set() {
  return IKEBANA_CPU_HERE ? only(pool_algorithm::whole_planes) | only(pool_algorithm::plain)
                          : all_pool_algorithms;
}
/// Those for windows that share nothing, of sizes that are not known.
constexpr pool_set uneven_set() {
  return IKEBANA_CPU_HERE ? all_pool_algorithms & ~only(pool_algorithm::halves) &
                                ~only(pool_algorithm::neighbours)
                          : all_pool_algorithms;
}

namespace detail {

/// A line about the plan of a pool (verbose.hpp).
[[gnu::noinline, gnu::cold]] inline void print_plan(const pool_problem& p,
                                                    pool_algorithm algorithm) {
  const pool_geometry& g = p.windows;
  const auto number = [](dim_t n) { return static_cast<long long>(n); };
  char joined[32];
  std::snprintf(joined, sizeof joined, "%lld elements", number(cost(algorithm, p)));
  print_plan("pool", name(algorithm), joined,
             "%s,%s,%lldx%lldx%lldx%lld to %lldx%lldx%lld kernel %lldx%lldx%lld stride "
             "%lldx%lldx%lld",
             name(active_instruction_set()), name(p.work), number(g.planes), number(g.in[0]),
             number(g.in[1]), number(g.in[2]), number(g.out[0]), number(g.out[1]), number(g.out[2]),
             number(g.kernel[0]), number(g.kernel[1]), number(g.kernel[2]), number(g.stride[0]),
             number(g.stride[1]), number(g.stride[2]));
}

}  // namespace detail

}  // namespace ikebana::cpu
