#pragma once

#include <cstdio>

#include "ikebana/core/shape.hpp"
#include "ikebana/cpu/detail/caches.hpp"
#include "ikebana/cpu/dispatch.hpp"
#include "ikebana/cpu/gemm/costs.hpp"
#include "ikebana/cpu/transpose.hpp"
#include "ikebana/cpu/verbose.hpp"

namespace ikebana::cpu {

/// How a product is computed, in the order of gemm_table.
enum class gemm_algorithm : unsigned char {
  dot_products,     ///< Rows of both factors along the summed dimension; lanes are added up last.
  transposed,       ///< Few columns of the result: as the rows of op(b)' op(a)'.
  tiles_in_place,   ///< Register tiles that read op(b) where it stands.
  tiles_of_panels,  ///< Register tiles that read packed panels of op(b).
};

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
    return p.k >= costs::least_dot_vectors * p.lanes &&
           (p.n <= most_columns ||
            (by_row ? p.k >= costs::least_lane_terms * p.lanes : p.m <= costs::most_dot_rows));
  }
  // A factor that stands by columns, of which there are few, is copied to rows.
  if (a == b || p.k < costs::least_copied_vectors * p.lanes) return false;
  const dim_t copied = a ? p.n : p.m, others = a ? p.m : p.n;
  return copied > (a ? 0 : 1) && copied <= (a ? most_columns : costs::most_dot_rows) &&
         (by_row ? a : others >= costs::least_readers) &&
         (copied + 3) * (p.k + p.lanes) * p.element <= costs::most_copied;
}

namespace detail {

// Whether an algorithm computes such products, and the bytes of op(b) that move between the
// second-level cache and beyond, or are copied, as far as algorithms differ in them.

constexpr bool is_always(const gemm_problem&) { return true; }
constexpr dim_t no_cost(const gemm_problem&) { return 0; }

constexpr bool applies_dot_products(const gemm_problem& p) { return sums_in_lanes(p); }
[[gnu::always_inline]] constexpr bool applies_transposed(const gemm_problem& p) {
  return p.lanes > 1 && !p.a_by_rows() && !p.scales && 2 * p.n <= p.lanes && p.n < p.m &&
         p.m >= p.lanes && (p.n == 1 || p.k > 2 * p.n + gemm_costs::most_not_transposed);
}
constexpr bool applies_tiles_in_place(const gemm_problem& p) { return !p.b_by_rows(); }
/// Each strip of rows reads op(b), unless it is near.
constexpr dim_t cost_of_tiles_in_place(const gemm_problem& p) {
  const dim_t bytes = p.k * p.ldb * p.element;
  if (4 * bytes <= gemm_costs::near_quarters * p.caches.second) return 0;
  return (p.m + p.tile_rows - 1) / p.tile_rows * bytes;
}
constexpr dim_t cost_of_tiles_of_panels(const gemm_problem& p) {
  return gemm_costs::moves_of_packing * (p.tb == transpose::yes ? p.n : p.k) * p.ldb * p.element;
}

struct gemm_entry {
  gemm_algorithm algorithm;
  const char* name;
  bool (*applies)(const gemm_problem&);
  dim_t (*cost)(const gemm_problem&);
};

}  // namespace detail

/// The algorithms. The cheapest that applies is run, the first of equals; how is in
/// gemm/product-inl.hpp, for each instruction set.
inline constexpr detail::gemm_entry gemm_table[] = {
    {gemm_algorithm::dot_products, "dot products", &detail::applies_dot_products, &detail::no_cost},
    {gemm_algorithm::transposed, "transposed", &detail::applies_transposed, &detail::no_cost},
    {gemm_algorithm::tiles_in_place, "tiles in place", &detail::applies_tiles_in_place,
     &detail::cost_of_tiles_in_place},
    {gemm_algorithm::tiles_of_panels, "tiles of panels", &detail::is_always,
     &detail::cost_of_tiles_of_panels}};

constexpr const detail::gemm_entry& entry_of(gemm_algorithm a) {
  return gemm_table[static_cast<int>(a)];
}
constexpr const char* name(gemm_algorithm a) { return entry_of(a).name; }

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
    dim_t depth = costs::near_depth;
    if (entry_of(algorithm).cost(p) > 0) {
      depth = costs::far_depth;
      while (p.m <= costs::thin_rows && depth > costs::thin_far_depth &&
             depth * p.ldb * p.element > costs::thin_far_bytes)
        depth /= 2;
    }
    plan.depth = detail::even_block(p.k, depth);
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
constexpr bool sums_in_order(gemm_algorithm a) { return a > gemm_algorithm::dot_products; }

/// The algorithm for a product; of a `part` of one that sums in order, another that does. O(1);
/// does not allocate.
constexpr gemm_algorithm choose_gemm(const gemm_problem& p, bool part = false) {
  const detail::gemm_entry* best = nullptr;
  dim_t least = 0;
  for (const detail::gemm_entry& e : gemm_table) {
    if ((part && !sums_in_order(e.algorithm)) || !e.applies(p)) continue;
    const dim_t cost = e.cost(p);
    if (best != nullptr && cost >= least) continue;
    best = &e;
    if (cost == 0) break;
    least = cost;
  }
  return best->algorithm;
}

namespace detail {

/// A line about the plan of a product (verbose.hpp).
[[gnu::noinline, gnu::cold]] inline void print_plan(const gemm_problem& p,
                                                    gemm_algorithm algorithm) {
  char moved[32];
  std::snprintf(moved, sizeof moved, "%lld bytes",
                static_cast<long long>(entry_of(algorithm).cost(p)));
  const auto letter = [](transpose t) { return t == transpose::yes ? 't' : 'n'; };
  print_plan("gemm", name(algorithm), moved, "%s,f%d,%c%c %lldx%lldx%lld",
             name(active_instruction_set()), static_cast<int>(8 * p.element), letter(p.ta),
             letter(p.tb), static_cast<long long>(p.m), static_cast<long long>(p.n),
             static_cast<long long>(p.k));
}

}  // namespace detail

}  // namespace ikebana::cpu
