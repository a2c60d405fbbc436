#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <type_traits>
#include <utility>

#include "ikebana/core/shape.hpp"
#include "ikebana/cpu/activate.hpp"
#include "ikebana/cpu/activation.hpp"
#include "ikebana/cpu/detail/caches.hpp"
#include "ikebana/cpu/detail/math.hpp"
#include "ikebana/cpu/detail/scratch.hpp"
#include "ikebana/cpu/detail/vec.hpp"
#include "ikebana/cpu/dispatch.hpp"
#include "ikebana/cpu/final_activation.hpp"
#include "ikebana/cpu/gemm/costs.hpp"
#include "ikebana/cpu/gemm/plan.hpp"
#include "ikebana/cpu/parallel.hpp"
#include "ikebana/cpu/transpose.hpp"

namespace ikebana::cpu {

/// What a product adds to its result and makes of it before it leaves the cache:
/// c = function(alpha op(a) op(b) + beta c + bias + row_bias + residual), then, for backward, c
/// times the slope of a function whose result is `slope_of`.
template <class T>
struct gemm_epilogue {
  const T* bias = nullptr;      ///< One for each column.
  const T* residual = nullptr;  ///< m x n.
  dim_t ld_residual = 0;
  final_activation<T> function{};
  const T* slope_of = nullptr;  ///< m x n.
  dim_t ld_slope = 0;
  activation slope = activation::none;  ///< relu, tanh or sigmoid.
  const T* row_bias = nullptr;          ///< One for each row.
};

/// The arguments of a product (`gemm`).
template <class T>
struct gemm_call {
  dim_t m, n, k;
  const T* a;
  dim_t lda;
  const T* b;
  dim_t ldb;
  T* c;
  dim_t ldc;
  const gemm_epilogue<T>* then;
  T alpha, beta;
  transpose ta, tb;
  gemm_order order = gemm_order::by_all_sizes;
};

/// How a tile begins: at zero, at what `init` points to (rows `init_row` apart, which is 0 for a
/// bias of columns), or each row at one number of `init`.
enum class tile_start : unsigned char { zero, matrix, rows };

/// One tile: c[i, j] = start + the sum over p of a[i * a_row + p * a_step] * b[p * b_step + j].
/// Vectors of columns follow each other but for the last, which begins at column `last` and may
/// overlap the one before. In a tile of one vector, `last` is the number of its columns instead. As
/// many tiles follow each other as `tiles` says, with pointers `next` further each time; t is left
/// at the last one.
template <class T>
struct tile_task {
  const T *a, *b, *init;
  T* c;
  dim_t a_row, a_step, b_step, c_row, init_row;
  dim_t depth, last;
  dim_t tiles = 1;
  struct {
    dim_t a, b, c, init;
  } next;
  tile_start start;
  bool relu;

  /// From what a row begins with to what the next does.
  [[gnu::always_inline]] dim_t init_step() const {
    return start == tile_start::matrix ? init_row : start == tile_start::rows ? 1 : 0;
  }
};

namespace detail {
template <class T>
inline constexpr gemm_epilogue<T> no_epilogue{};

/// Whether a product begins with zero or a bias and is small: it runs without a plan and on one
/// thread, since a call takes as long as the arithmetic. In the caller most of this is known to the
/// compiler.
template <class T>
[[gnu::always_inline]] inline bool is_small(const gemm_call<T>& p) {
  using size = std::uint64_t;
  const gemm_epilogue<T>& then = *p.then;
  return size(p.m) - 1 < size(gemm_costs::most_small_rows) &&
         size(p.n) - 1 < size(gemm_costs::most_small_columns) &&
         size(p.k) - 1 < size(gemm_costs::most_small_depth) &&
         p.m * p.n * p.k <= 2 * gemm_costs::products_for_thread && p.alpha == T(1) &&
         p.beta == T(0) && then.residual == nullptr && then.row_bias == nullptr &&
         then.function <= activation::relu && then.slope_of == nullptr;
}
/// Its tile, but for the columns.
template <class T>
[[gnu::always_inline]] inline void begin_small(tile_task<T>& t, const gemm_call<T>& p) {
  const bool by_rows = p.ta == transpose::no;
  t.a = p.a;
  t.b = p.b;
  t.c = p.c;
  t.init = p.then->bias;
  t.a_row = by_rows ? p.lda : 1;
  t.a_step = by_rows ? 1 : p.lda;
  t.b_step = p.ldb;
  t.c_row = p.ldc;
  t.init_row = 0;
  t.depth = p.k;
  t.start = p.then->bias != nullptr ? tile_start::matrix : tile_start::zero;
  t.relu = p.then->function == activation::relu;
}
/// What a small product is beside its tile.
struct small_form {
  transpose ta, tb;
  gemm_order order;
};

/// A product of one step. Its factors stand by rows and by columns alike: where they have no gaps,
/// they are taken as they are for more steps.
template <class T>
[[gnu::always_inline]] inline gemm_call<T> with_one_step(gemm_call<T> call) {
  if (call.ta == transpose::no && call.lda == 1) {
    call.ta = transpose::yes;
    call.lda = call.m;
  }
  if (call.tb == transpose::yes && call.ldb == 1) {
    call.tb = transpose::no;
    call.ldb = call.n;
  }
  return call;
}
}  // namespace detail

}  // namespace ikebana::cpu

#define IKEBANA_CPU_BODY "ikebana/cpu/gemm/epilogue-inl.hpp"
#include "ikebana/cpu/detail/foreach_target.hpp"
#define IKEBANA_CPU_BODY "ikebana/cpu/gemm/tile-inl.hpp"
#include "ikebana/cpu/detail/foreach_target.hpp"
#define IKEBANA_CPU_BODY "ikebana/cpu/gemm/pack-inl.hpp"
#include "ikebana/cpu/detail/foreach_target.hpp"
#define IKEBANA_CPU_BODY "ikebana/cpu/gemm/result-inl.hpp"
#include "ikebana/cpu/detail/foreach_target.hpp"
#define IKEBANA_CPU_BODY "ikebana/cpu/gemm/dots-inl.hpp"
#include "ikebana/cpu/detail/foreach_target.hpp"
#define IKEBANA_CPU_BODY "ikebana/cpu/gemm/tiles-inl.hpp"
#include "ikebana/cpu/detail/foreach_target.hpp"
#define IKEBANA_CPU_BODY "ikebana/cpu/gemm/product-inl.hpp"
#include "ikebana/cpu/detail/foreach_target.hpp"

namespace ikebana::cpu {

namespace detail {

template <class T>
void run_small(tile_task<T>& t, dim_t m, dim_t n, small_form form) {
  IKEBANA_CPU_DISPATCH(small_product<T>)(t, m, n, form);
}
IKEBANA_CPU_KERNEL(run_small)

template <class T>
void run_gemm(const gemm_call<T>& call) {
  IKEBANA_CPU_DISPATCH(planned_product<T>)(call);
}
IKEBANA_CPU_KERNEL(run_gemm)

template <class T>
gemm_algorithm gemm_algorithm_of(const gemm_call<T>& call) {
  return IKEBANA_CPU_DISPATCH(algorithm_of<T>)(call);
}
IKEBANA_CPU_KERNEL(gemm_algorithm_of)

template <class T>
void run_gemm_part(gemm_algorithm whole, const gemm_call<T>& call) {
  IKEBANA_CPU_DISPATCH(product_part<T>)(whole, call);
}
IKEBANA_CPU_KERNEL(run_gemm_part)

/// For tests: whether the algorithm applies; if so, it makes the product.
template <class T>
bool run_gemm_by(gemm_algorithm algorithm, const gemm_call<T>& call) {
  if (!IKEBANA_CPU_DISPATCH(algorithm_applies<T>)(algorithm, call)) return false;
  IKEBANA_CPU_DISPATCH(product_by<T>)(algorithm, call);
  return true;
}
IKEBANA_CPU_KERNEL(run_gemm_by)

using gemm_costs::products_for_thread;

/// A product on several threads: each has columns of the result, so that none packs what another
/// packs, or rows. The order of summation is that of `whole`.
template <class T>
[[gnu::noinline]] void share_gemm_as(gemm_algorithm whole, const gemm_call<T>& call) {
  namespace costs = gemm_costs;
  const bool by_columns = call.m >= costs::least_shared_rows &&
                          call.n >= costs::least_shared_columns && 2 * call.n >= call.m;
  const dim_t size = by_columns ? call.n : call.m, other = by_columns ? call.m : call.n,
              unit = by_columns                    ? costs::column_unit
                     : call.n < costs::column_unit ? costs::short_row_unit
                                                   : costs::row_unit,
              units = size / unit, most = (units + 2 * num_threads() - 1) / (2 * num_threads()),
              least = products_for_thread / (unit * other * call.k) + 1;
  if (units < 2) return run_gemm_part(whole, call);
  parallel_for(0, units, most > least ? most : least, [&](dim_t from, dim_t to) {
    const dim_t begin = from * unit, end = to == units ? size : to * unit;
    gemm_call<T> part = call;
    gemm_epilogue<T> then = *call.then;
    part.then = &then;
    if (by_columns) {
      part.n = end - begin;
      part.b += begin * (call.tb == transpose::no ? 1 : call.ldb);
      part.c += begin;
      if (then.bias != nullptr) then.bias += begin;
      if (then.residual != nullptr) then.residual += begin;
      if (then.slope_of != nullptr) then.slope_of += begin;
    } else {
      part.m = end - begin;
      part.a += begin * (call.ta == transpose::no ? call.lda : 1);
      part.c += begin * call.ldc;
      if (then.row_bias != nullptr) then.row_bias += begin;
      if (then.residual != nullptr) then.residual += begin * then.ld_residual;
      if (then.slope_of != nullptr) then.slope_of += begin * then.ld_slope;
    }
    run_gemm_part(whole, part);
  });
}

template <class T>
[[gnu::noinline]] void share_gemm(const gemm_call<T>& given) {
  const gemm_call<T> call = given.k == 1 ? with_one_step(given) : given;
  share_gemm_as(gemm_algorithm_of(call), call);
}
IKEBANA_CPU_KERNEL(share_gemm)

}  // namespace detail

/// c = alpha * op(a) * op(b) + beta * c, then what `then` says: row-major, op(a) of m x k, op(b)
/// of k x n, c of m x n. `lda`, not negative, is the distance of rows of `a` as stored (m x k, or
/// k x m where transposed); likewise `ldb`. Where beta is 0, c is written and never read. Any size
/// may be 0. The same bits for the same sizes and instruction set, whatever the caches and the
/// number of threads; with gemm_order::by_columns_and_terms, a row has the same bits whatever m is
/// (op(a) must not be transposed). O(m n k); allocates only each thread's packing buffer, at its
/// first use.
template <class T>
[[gnu::always_inline]] inline void gemm(transpose ta, transpose tb, dim_t m, dim_t n, dim_t k,
                                        T alpha, const T* a, dim_t lda, const T* b, dim_t ldb,
                                        T beta, T* c, dim_t ldc, const gemm_epilogue<T>& then,
                                        gemm_order order = gemm_order::by_all_sizes) {
  const gemm_call<T> call{m, n, k, a, lda, b, ldb, c, ldc, &then, alpha, beta, ta, tb, order};
  if (detail::is_small(call)) {
    tile_task<T> t;
    detail::begin_small(t, call);
    return detail::run_small(t, m, n, {ta, tb, order});
  }
  if (m * n * k > 2 * detail::products_for_thread && num_threads() > 1) [[unlikely]]
    return detail::share_gemm(call);
  detail::run_gemm(call);
}
/// As above with bias[j], if there is one, added to column j.
template <class T>
[[gnu::always_inline]] inline void gemm(transpose ta, transpose tb, dim_t m, dim_t n, dim_t k,
                                        T alpha, const T* a, dim_t lda, const T* b, dim_t ldb,
                                        T beta, T* c, dim_t ldc, const T* bias = nullptr) {
  if (bias == nullptr)
    return gemm<T>(ta, tb, m, n, k, alpha, a, lda, b, ldb, beta, c, ldc, detail::no_epilogue<T>);
  gemm<T>(ta, tb, m, n, k, alpha, a, lda, b, ldb, beta, c, ldc, gemm_epilogue<T>{.bias = bias});
}

namespace detail {

/// `gemm` by address.
template <class T>
void make_product(const gemm_call<T>& p) {
  gemm<T>(p.ta, p.tb, p.m, p.n, p.k, p.alpha, p.a, p.lda, p.b, p.ldb, p.beta, p.c, p.ldc, *p.then,
          p.order);
}
IKEBANA_CPU_KERNEL(make_product)

/// The same in the order of summation of `whole`, as a part of a larger product or as several.
template <class T>
void make_product_part(gemm_algorithm whole, const gemm_call<T>& p) {
  if (p.m * p.n * p.k > 2 * products_for_thread && num_threads() > 1)
    share_gemm_as(whole, p);
  else
    run_gemm_part(whole, p);
}
IKEBANA_CPU_KERNEL(make_product_part)

template <class T>
void run_gemm_batch(dim_t count, const gemm_call<T>& first, dim_t step_a, dim_t step_b,
                    dim_t step_c) {
  IKEBANA_CPU_DISPATCH(product_batch<T>)(count, first, step_a, step_b, step_c);
}
IKEBANA_CPU_KERNEL(run_gemm_batch)

}  // namespace detail

/// `gemm` by address, for tables of what may run.
template <class T>
constexpr auto gemm_by_address() {
  return &detail::make_product<T>;
}

/// `count` products as `gemm` makes them, whose operands follow each other at the distances
/// `step_a`, `step_b` and `step_c`; a step of 0 means the same matrix in each (not for c).
template <class T>
void gemm_batched(dim_t count, transpose ta, transpose tb, dim_t m, dim_t n, dim_t k, T alpha,
                  const T* a, dim_t lda, dim_t step_a, const T* b, dim_t ldb, dim_t step_b, T beta,
                  T* c, dim_t ldc, dim_t step_c) {
  const gemm_call<T> first{m,     n,    k,  a, lda, b, ldb, c, ldc, &detail::no_epilogue<T>,
                           alpha, beta, ta, tb};
  const dim_t each = m * n * k;
  if (each * count <= 2 * detail::products_for_thread || num_threads() <= 1)
    return detail::run_gemm_batch(count, first, step_a, step_b, step_c);
  parallel_for(0, count, detail::products_for_thread / (each + 1) + 1, [&](dim_t from, dim_t to) {
    gemm_call<T> part = first;
    part.a += from * step_a;
    part.b += from * step_b;
    part.c += from * step_c;
    detail::run_gemm_batch(to - from, part, step_a, step_b, step_c);
  });
}

}  // namespace ikebana::cpu
