#pragma once

#include <cstdio>

#include "ikebana/core/shape.hpp"
#include "ikebana/cpu/detail/caches.hpp"
#include "ikebana/cpu/dispatch.hpp"
#include "ikebana/cpu/transpose.hpp"
#include "ikebana/cpu/verbose.hpp"

namespace ikebana::cpu {

/// How a product is computed, in the order in which the algorithms are considered.
enum class gemm_algorithm : unsigned char {
  dot_products,     ///< Rows of both factors along the summed dimension; lanes are added up last.
  lane_tiles,       ///< The same sums of many rows: a product by register tiles for each lane.
  vector_matrix,    ///< One row of the result: op(b) is streamed once.
  transposed,       ///< Few columns of the result: as the rows of op(b)' op(a)'.
  tiles_in_place,   ///< Register tiles that read op(b) where it stands.
  tiles_of_panels,  ///< Register tiles that read packed panels of op(b).
};
inline constexpr gemm_algorithm gemm_algorithms[] = {
    gemm_algorithm::dot_products, gemm_algorithm::lane_tiles,     gemm_algorithm::vector_matrix,
    gemm_algorithm::transposed,   gemm_algorithm::tiles_in_place, gemm_algorithm::tiles_of_panels};

constexpr const char* name(gemm_algorithm a) {
  constexpr const char* names[] = {"dot products", "tiles of lanes", "vector times matrix",
                                   "transposed",   "tiles in place", "tiles of panels"};
  return names[static_cast<int>(a)];
}

/// Which sizes the order of summation depends on, beside the transpositions, the element type and
/// the vector width: all three, or only the columns and the terms, so that a row of the result has
/// the same bits among any number of others, as the samples of a batch must.
enum class gemm_order : unsigned char { by_all_sizes, by_columns_and_terms };

/// The order for a layer's product, in which the rows of an a that is not transposed are samples or
/// positions.
constexpr gemm_order order_of_rows(transpose ta) {
  return ta == transpose::no ? gemm_order::by_columns_and_terms : gemm_order::by_all_sizes;
}

/// What a product is planned from: op(a) of m x k times op(b) of k x n.
struct gemm_problem {
  dim_t m, n, k, lda, ldb;
  transpose ta, tb;
  bool scales;      ///< alpha is not 1.
  dim_t element;    ///< Bytes of an element.
  dim_t lanes;      ///< Elements of a vector of the instruction set.
  dim_t tile_rows;  ///< Rows of its largest tile of two vectors of columns.
  gemm_order order;
  detail::cache_sizes caches;

  /// Whether the summed dimension runs along the rows of a as stored, and of b. A single row or
  /// column without gaps is both.
  constexpr bool a_by_rows() const { return ta == transpose::no || (m == 1 && lda == 1); }
  constexpr bool b_by_rows() const { return tb == transpose::yes || (n == 1 && ldb == 1); }
};

/// How a product runs: plain data.
struct gemm_plan {
  gemm_algorithm algorithm = gemm_algorithm::tiles_in_place;
  bool packs_a = false;
  dim_t depth = 1;    ///< Steps of the summed dimension in a block.
  dim_t columns = 1;  ///< Columns of op(b) in a block.
  dim_t panel = 0;    ///< Columns of a packed panel.
};

/// The constants of the choice.
namespace detail::gemm_costs {

// The order of summation follows from these, so only sizes are compared with them.
/// Dot products serve results of up to so many rows or columns,
inline constexpr dim_t most_dot_rows = 8;
/// and copy so many bytes of a factor to rows.
inline constexpr dim_t most_copied = dim_t{256} * 1024;
/// Where a row must have the same bits among any number of others, dot products serve sums of at
/// least so many vectors: of these, many rows lose little by tiles of lanes, and one row would lose
/// much by packed panels.
inline constexpr dim_t least_lane_terms = 16;

// These change no bits.
/// From so many rows and columns on, tiles of lanes are faster than dot products, where scratch
/// memory holds a strip of so many rows.
inline constexpr dim_t least_lane_rows = 64, least_lane_columns = 40, least_strip = 4;
/// The columns of a block of a transposed product, which is small enough for the first-level cache.
inline constexpr dim_t transposed_columns = 256;
/// Fewer steps do not pay for transposing the result.
inline constexpr dim_t least_transposed = 8;
/// op(b) is near if it takes so many quarters of the second-level cache.
inline constexpr dim_t near_quarters = 3;
/// How often a packed op(b) is moved: read and written once each.
inline constexpr dim_t moves_of_packing = 2;
/// The steps of a block where op(b) is near, so that the first-level cache holds a strip of a;
/// where it is far, so that the processor prefetches as many rows; the same for one or two rows of
/// a.
inline constexpr dim_t near_depth = 384, far_depth = 64, thin_far_depth = 16;
/// Columns of a are packed where its rows have more bytes: each is another page or set of the
/// cache.
inline constexpr dim_t most_direct_row = 512;
/// A packed op(b) of at most so many bytes is one panel.
inline constexpr dim_t one_panel = dim_t{256} * 1024;

}  // namespace detail::gemm_costs

/// Whether dot products apply. Where they do, the product is summed in lanes, otherwise in order:
/// the order depends on m, n, k, the transpositions, gaps of single columns, the element type and
/// the vector width, with gemm_order::by_columns_and_terms on all of these but m, and on nothing
/// else.
[[gnu::always_inline]] constexpr bool sums_in_lanes(const gemm_problem& p) {
  namespace costs = detail::gemm_costs;
  // One term stands by rows and by columns, whatever the transpositions say. The sum of a single
  // lane is in order.
  if (p.k < 2 || p.lanes == 1) return false;
  const bool a = p.a_by_rows(), b = p.b_by_rows(),
             by_row = p.order == gemm_order::by_columns_and_terms;
  const dim_t most_columns =
      p.lanes / 2 < costs::most_dot_rows ? p.lanes / 2 : costs::most_dot_rows;
  if (a && b) {
    if (p.n == 1 || (p.m == 1 && !by_row)) return 2 * p.k >= p.lanes;
    return p.k >= p.lanes &&
           (p.n <= most_columns ||
            (by_row ? p.k >= costs::least_lane_terms * p.lanes : p.m <= costs::most_dot_rows));
  }
  // A factor that stands by columns, of which there are few, is copied to rows.
  if (a == b || p.k < 2 * p.lanes) return false;
  const dim_t copied = a ? p.n : p.m, others = a ? p.m : p.n;
  return copied > (a ? 0 : 1) && copied <= (a ? most_columns : costs::most_dot_rows) &&
         (by_row ? a : others >= 4) &&
         (copied + 3) * (p.k + p.lanes) * p.element <= costs::most_copied;
}

/// Whether the algorithm computes such products.
[[gnu::always_inline]] constexpr bool applies(gemm_algorithm algorithm, const gemm_problem& p) {
  namespace costs = detail::gemm_costs;
  const bool a = p.a_by_rows(), b = p.b_by_rows();
  switch (algorithm) {
    case gemm_algorithm::dot_products:
      return sums_in_lanes(p);
    case gemm_algorithm::lane_tiles: {
      const dim_t bytes = (p.k + p.lanes) * p.element;
      return p.ta == transpose::no && p.tb == transpose::yes && !p.scales && p.k > 0 &&
             2 * p.lanes * bytes <= p.caches.second / 2 &&
             costs::least_strip * bytes <= p.caches.second / 4 && sums_in_lanes(p);
    }
    case gemm_algorithm::vector_matrix:
      return p.lanes > 1 && p.m == 1 && !b;
    case gemm_algorithm::transposed:
      return p.lanes > 1 && !a && !p.scales && p.n <= p.tile_rows && p.n < p.m && p.m >= p.lanes &&
             (p.n == 1 || p.k >= costs::least_transposed);
    case gemm_algorithm::tiles_in_place:
      return !b;
    case gemm_algorithm::tiles_of_panels:
      return true;
  }
  return false;
}

/// Of the tiles, the bytes of op(b) that move between the second-level cache and beyond.
constexpr dim_t cost(gemm_algorithm algorithm, const gemm_problem& p) {
  namespace costs = detail::gemm_costs;
  const dim_t bytes = p.k * p.ldb * p.element;
  if (algorithm == gemm_algorithm::tiles_of_panels) return costs::moves_of_packing * bytes;
  if (4 * bytes <= costs::near_quarters * p.caches.second) return 0;
  const dim_t strips = (p.m + p.tile_rows - 1) / p.tile_rows;
  return strips * bytes;
}

namespace detail {

/// The largest of equal blocks of at most `most`.
constexpr dim_t even_block(dim_t size, dim_t most) {
  if (size <= most) return size > 0 ? size : 1;
  const dim_t blocks = (size + most - 1) / most;
  return (size + blocks - 1) / blocks;
}

}  // namespace detail

/// The plan of a product by this algorithm, which applies.
constexpr gemm_plan plan_gemm(const gemm_problem& p, gemm_algorithm algorithm) {
  namespace costs = detail::gemm_costs;
  gemm_plan plan;
  plan.algorithm = algorithm;
  if (algorithm < gemm_algorithm::tiles_in_place) return plan;
  plan.packs_a = p.scales || (!p.a_by_rows() && p.lda * p.element > costs::most_direct_row &&
                              p.n > 2 * p.lanes);
  plan.columns = p.n;
  const dim_t panel = 2 * p.lanes;
  if (algorithm == gemm_algorithm::tiles_in_place) {
    const bool far = cost(algorithm, p) > 0;
    plan.depth = detail::even_block(p.k, !far       ? costs::near_depth
                                         : p.m <= 2 ? costs::thin_far_depth
                                                    : costs::far_depth);
  } else {
    plan.depth = detail::even_block(p.k, costs::near_depth);
    const dim_t rounded = (p.n + p.lanes - 1) / p.lanes * p.lanes;
    plan.panel = rounded * plan.depth * p.element <= costs::one_panel ? rounded : panel;
    const dim_t most = p.caches.second / 2 / p.element / plan.depth / panel * panel;
    plan.columns = detail::even_block(p.n, most > panel ? most : panel);
    plan.columns = (plan.columns + panel - 1) / panel * panel;
  }
  return plan;
}

/// Whether an algorithm adds in the order of the summed dimension, so that its bits are those of
/// all others that do.
constexpr bool sums_in_order(gemm_algorithm a) { return a > gemm_algorithm::lane_tiles; }

/// The algorithm for a product; of a `part` of one that sums in order, another that does. Where
/// sums are in lanes, one of the first two. Of the other tiles, the cheaper ones are taken. O(1);
/// does not allocate.
constexpr gemm_algorithm choose_gemm(const gemm_problem& p, bool part = false) {
  using enum gemm_algorithm;
  namespace costs = detail::gemm_costs;
  if (!part && sums_in_lanes(p))
    return p.m >= costs::least_lane_rows && p.n >= costs::least_lane_columns &&
                   applies(lane_tiles, p)
               ? lane_tiles
               : dot_products;
  if (applies(vector_matrix, p)) return vector_matrix;
  if (applies(transposed, p)) return transposed;
  return applies(tiles_in_place, p) && cost(tiles_in_place, p) <= cost(tiles_of_panels, p)
             ? tiles_in_place
             : tiles_of_panels;
}

namespace detail {

/// A line about the plan of a product (verbose.hpp).
[[gnu::noinline, gnu::cold]] inline void print_plan(const gemm_problem& p,
                                                    gemm_algorithm algorithm) {
  char moved[32] = "";
  if (algorithm >= gemm_algorithm::tiles_in_place)
    std::snprintf(moved, sizeof moved, "%lld bytes", static_cast<long long>(cost(algorithm, p)));
  const auto letter = [](transpose t) { return t == transpose::yes ? 't' : 'n'; };
  print_plan("gemm", name(algorithm), moved, "%s,f%d,%c%c %lldx%lldx%lld",
             name(active_instruction_set()), static_cast<int>(8 * p.element), letter(p.ta),
             letter(p.tb), static_cast<long long>(p.m), static_cast<long long>(p.n),
             static_cast<long long>(p.k));
}

}  // namespace detail

}  // namespace ikebana::cpu
