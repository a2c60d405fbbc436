#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
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
#include "ikebana/cpu/gemm/narrow_tiles.hpp"
#include "ikebana/cpu/parallel.hpp"
#include "ikebana/cpu/transpose.hpp"

namespace ikebana::cpu {

/// What a product adds to its result and makes of it before it leaves the cache:
/// c = function(alpha op(a) op(b) + beta c + bias + residual), then, for backward, c times the
/// slope of a function whose result is `slope_of`.
template <class T>
struct gemm_epilogue {
  const T* bias = nullptr;      // one for each column
  const T* residual = nullptr;  // m x n
  dim_t ld_residual = 0;
  final_activation<T> function{};
  const T* slope_of = nullptr;  // m x n
  dim_t ld_slope = 0;
  activation slope = activation::none;  // relu, tanh or sigmoid
  // For kernels: four registers of residual's columns serve for all columns, of which there are
  // more. Not with what is shared, nor beside anything else to begin with.
  bool repeats = false;
};

/// The arguments of a product, handed on by address: a call takes as long as a small product. Who
/// is called may change them.
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
};

namespace detail {

template <class T>
inline constexpr gemm_epilogue<T> no_epilogue{};
/// What a tiny product is told of what follows it: null where nothing does.
template <class T>
[[gnu::always_inline]] inline const gemm_epilogue<T>* if_any(const gemm_epilogue<T>& then) {
  return then.bias == nullptr && then.function == activation::none ? nullptr : &then;
}

template <class T>
struct tiny_shape;
/// A product of a tile or a few.
template <class T>
using tiny_function = void (*)(const T* a, const T* b, T* c, dim_t lda, dim_t ldb,
                               const tiny_shape<T>& s);
/// The tiles of up to a register of columns, of which some kinds may be null.
template <class T>
using narrow_table = const tiny_function<T>*;

/// What a product of a tile or a few is told beside its operands and the distances of their rows,
/// that of A being ~lda where it is transposed. A call takes as long as the arithmetic, so there is
/// little of it. Signed and unsigned in turns, lest a compiler stores two by a vector register,
/// which takes longer.
template <class T>
struct tiny_shape {
  dim_t k;
  std::uint64_t columns;
  dim_t ldc;
  std::uint64_t rows;
  const gemm_epilogue<T>* then;  // null where nothing follows the product
  narrow_table<T> narrow;        // for more than a tile, filled in on the way

  /// The same of other columns, or rows: by its members, for to load what was stored as two takes
  /// longer still.
  tiny_shape with_columns(dim_t n) const {
    return {k, static_cast<std::uint64_t>(n), ldc, rows, then, narrow};
  }
  tiny_shape with_rows(dim_t m) const {
    return {k, columns, ldc, static_cast<std::uint64_t>(m), then, narrow};
  }
  dim_t n() const { return static_cast<dim_t>(columns); }
  dim_t m() const { return static_cast<dim_t>(rows); }
};

}  // namespace detail

}  // namespace ikebana::cpu

#define IKEBANA_CPU_BODY "ikebana/cpu/gemm/epilogue-inl.hpp"
#include "ikebana/cpu/detail/foreach_target.hpp"
#define IKEBANA_CPU_BODY "ikebana/cpu/gemm/tile-inl.hpp"
#include "ikebana/cpu/detail/foreach_target.hpp"
#define IKEBANA_CPU_BODY "ikebana/cpu/gemm/pack-inl.hpp"
#include "ikebana/cpu/detail/foreach_target.hpp"
#define IKEBANA_CPU_BODY "ikebana/cpu/gemm/line_reader-inl.hpp"
#include "ikebana/cpu/detail/foreach_target.hpp"
#define IKEBANA_CPU_BODY "ikebana/cpu/gemm/gemv-inl.hpp"
#include "ikebana/cpu/detail/foreach_target.hpp"
#define IKEBANA_CPU_BODY "ikebana/cpu/gemm/dots-inl.hpp"
#include "ikebana/cpu/detail/foreach_target.hpp"
#define IKEBANA_CPU_BODY "ikebana/cpu/gemm/result-inl.hpp"
#include "ikebana/cpu/detail/foreach_target.hpp"
#define IKEBANA_CPU_BODY "ikebana/cpu/gemm/thin-inl.hpp"
#include "ikebana/cpu/detail/foreach_target.hpp"
#define IKEBANA_CPU_BODY "ikebana/cpu/gemm/few-inl.hpp"
#include "ikebana/cpu/detail/foreach_target.hpp"
#define IKEBANA_CPU_BODY "ikebana/cpu/gemm/blocks-inl.hpp"
#include "ikebana/cpu/detail/foreach_target.hpp"
#define IKEBANA_CPU_BODY "ikebana/cpu/gemm-inl.hpp"
#include "ikebana/cpu/detail/foreach_target.hpp"
#define IKEBANA_CPU_BODY "ikebana/cpu/gemm/tiny_vec-inl.hpp"
#include "ikebana/cpu/detail/foreach_target.hpp"
#define IKEBANA_CPU_BODY "ikebana/cpu/gemm/tiny-inl.hpp"
#include "ikebana/cpu/detail/foreach_target.hpp"
#define IKEBANA_CPU_BODY "ikebana/cpu/gemm/short_sums-inl.hpp"
#include "ikebana/cpu/detail/foreach_target.hpp"
#define IKEBANA_CPU_BODY "ikebana/cpu/gemm/tiny_blocks-inl.hpp"
#include "ikebana/cpu/detail/foreach_target.hpp"
#define IKEBANA_CPU_BODY "ikebana/cpu/gemm/tiny_wide-inl.hpp"
#include "ikebana/cpu/detail/foreach_target.hpp"
#define IKEBANA_CPU_BODY "ikebana/cpu/gemm/tiny_choice-inl.hpp"
#include "ikebana/cpu/detail/foreach_target.hpp"
#define IKEBANA_CPU_BODY "ikebana/cpu/gemm/plain-inl.hpp"
#include "ikebana/cpu/detail/foreach_target.hpp"
#define IKEBANA_CPU_BODY "ikebana/cpu/gemm/turned-inl.hpp"
#include "ikebana/cpu/detail/foreach_target.hpp"
#define IKEBANA_CPU_BODY "ikebana/cpu/gemm/small-inl.hpp"
#include "ikebana/cpu/detail/foreach_target.hpp"

namespace ikebana::cpu {

namespace detail {

/// With the tiles of `Narrow` (narrow_tiles.hpp).
template <class T, unsigned Narrow = narrow_tile::all>
void run_gemm(gemm_call<T>& call) {
  IKEBANA_CPU_DISPATCH(product<T, Narrow>)(call);
}
IKEBANA_CPU_KERNEL(run_gemm)

template <class T, unsigned Narrow = narrow_tile::all>
void run_tiny(const T* a, const T* b, T* c, dim_t lda, dim_t ldb, tiny_shape<T>& s) {
  IKEBANA_CPU_DISPATCH(tiny<T, Narrow>)(a, b, c, lda, ldb, s);
}
IKEBANA_CPU_KERNEL(run_tiny)

/// Whether a product goes to run_tiny: one of a tile, or a few.
template <class T>
[[gnu::always_inline]] inline bool is_tiny(transpose tb, dim_t m, dim_t n, dim_t k, T alpha,
                                           T beta) {
  using size = std::uint64_t;
  using bits = std::conditional_t<sizeof(T) == 4, std::uint32_t, std::uint64_t>;
  return size(m) - 1 < 128 && size(n) - 1 < 128 && size(k) - 1 < 31 &&
         (n > 1 || (m > 1 && m * k <= 64)) && tb == transpose::no &&
         std::bit_cast<bits>(alpha) == std::bit_cast<bits>(T(1)) && std::bit_cast<bits>(beta) == 0;
}

/// How many multiply-adds are worth a thread's while.
inline constexpr dim_t products_for_thread = 1 << 20;

/// A product on several threads: each has columns of the result, for then none packs what another
/// packs, or rows. What is summed, and in which order, is the same for every part that has no fewer
/// rows and columns than these.
template <class T>
[[gnu::noinline]] void share_gemm(gemm_call<T>& call, void (*run)(gemm_call<T>&)) {
  const bool by_columns = call.m > 8 && call.n >= 96 && 2 * call.n >= call.m;
  const dim_t size = by_columns ? call.n : call.m, other = by_columns ? call.m : call.n,
              unit = by_columns    ? 48
                     : call.n < 48 ? 192
                                   : 24,
              units = size / unit, most = (units + 2 * num_threads() - 1) / (2 * num_threads()),
              least = products_for_thread / (unit * other * call.k) + 1;
  if (units < 2) return run(call);
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
      if (then.residual != nullptr) then.residual += begin * then.ld_residual;
      if (then.slope_of != nullptr) then.slope_of += begin * then.ld_slope;
    }
    run(part);
  });
}

/// What is not tiny. Of the arguments of `gemm`, in their order, so that a call passes them on
/// where they are.
template <class T, unsigned Narrow>
[[gnu::noinline]] void gemm_beyond_tiny(transpose ta, transpose tb, dim_t m, dim_t n, dim_t k,
                                        T alpha, const T* a, dim_t lda, const T* b, dim_t ldb,
                                        T beta, T* c, dim_t ldc, const gemm_epilogue<T>& then) {
  gemm_call<T> call{m, n, k, a, lda, b, ldb, c, ldc, &then, alpha, beta, ta, tb};
  if (m * n * k > 2 * products_for_thread && num_threads() > 1) [[unlikely]]
    return share_gemm(call, &run_gemm<T, Narrow>);
  run_gemm<T, Narrow>(call);
}

}  // namespace detail

/// c = alpha * op(a) * op(b) + beta * c, then what `then` says: row-major, op(a) of m x k, op(b)
/// of k x n, c of m x n. `lda`, not negative, is the distance of rows of `a` as stored (m x k, or
/// k x m where transposed); likewise `ldb`. Where beta is 0, c is written and never read. Any size
/// may be 0. The same bits for the same sizes and instruction set, on any number of threads. O(m n
/// k); allocates only each thread's packing buffer, at its first use. `Narrow` are the tiles that
/// the caller's sizes may come to (narrow_tiles_of), so that others need not be built.
template <class T, unsigned Narrow = detail::narrow_tile::all>
[[gnu::always_inline]] inline void gemm(transpose ta, transpose tb, dim_t m, dim_t n, dim_t k,
                                        T alpha, const T* a, dim_t lda, const T* b, dim_t ldb,
                                        T beta, T* c, dim_t ldc, const gemm_epilogue<T>& then) {
  if (detail::is_tiny(tb, m, n, k, alpha, beta) && then.residual == nullptr &&
      then.function <= activation::relu && then.slope_of == nullptr) {
    detail::tiny_shape<T> s;
    s.k = k;
    s.columns = static_cast<std::uint64_t>(n);
    s.ldc = ldc;
    s.rows = static_cast<std::uint64_t>(m);
    s.then = detail::if_any(then);
    return detail::run_tiny<T, Narrow>(a, b, c, ta == transpose::yes ? ~lda : lda, ldb, s);
  }
  detail::gemm_beyond_tiny<T, Narrow>(ta, tb, m, n, k, alpha, a, lda, b, ldb, beta, c, ldc, then);
}
/// As above with bias[j], if there is one, added to column j.
template <class T, unsigned Narrow = detail::narrow_tile::all>
[[gnu::always_inline]] inline void gemm(transpose ta, transpose tb, dim_t m, dim_t n, dim_t k,
                                        T alpha, const T* a, dim_t lda, const T* b, dim_t ldb,
                                        T beta, T* c, dim_t ldc, const T* bias = nullptr) {
  if (bias == nullptr)
    return gemm<T, Narrow>(ta, tb, m, n, k, alpha, a, lda, b, ldb, beta, c, ldc,
                           detail::no_epilogue<T>);
  gemm<T, Narrow>(ta, tb, m, n, k, alpha, a, lda, b, ldb, beta, c, ldc, {.bias = bias});
}

namespace detail {

/// `gemm` by address.
template <class T, unsigned Narrow = narrow_tile::all>
void make_product(const gemm_call<T>& p) {
  gemm<T, Narrow>(p.ta, p.tb, p.m, p.n, p.k, p.alpha, p.a, p.lda, p.b, p.ldb, p.beta, p.c, p.ldc,
                  *p.then);
}
IKEBANA_CPU_KERNEL(make_product)

template <class T>
void run_gemm_batch(dim_t count, const gemm_call<T>& first, dim_t step_a, dim_t step_b,
                    dim_t step_c) {
  IKEBANA_CPU_DISPATCH(product_batch<T>)(count, first, step_a, step_b, step_c);
}
IKEBANA_CPU_KERNEL(run_gemm_batch)

}  // namespace detail

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
