#pragma once

#include <cstddef>
#include <cstdint>
#include <utility>

#include "ikebana/core/shape.hpp"
#include "ikebana/cpu/activation.hpp"
#include "ikebana/cpu/detail/caches.hpp"
#include "ikebana/cpu/detail/math.hpp"
#include "ikebana/cpu/detail/scratch.hpp"
#include "ikebana/cpu/detail/vec.hpp"
#include "ikebana/cpu/dispatch.hpp"

namespace ikebana::cpu {

/// Whether a factor of a matrix product is read as it stands or transposed.
enum class transpose : bool { no, yes };

/// What a product adds to its result and makes of it before it leaves the cache:
/// c = function(alpha op(a) op(b) + beta c + bias + residual), then, for backward, c times the
/// slope of a function whose result is `slope_of`.
template <class T>
struct gemm_epilogue {
  const T* bias = nullptr;      // one for each column
  const T* residual = nullptr;  // m x n
  dim_t ld_residual = 0;
  activation function = activation::none;
  const T* slope_of = nullptr;  // m x n
  dim_t ld_slope = 0;
  activation slope = activation::none;  // relu, tanh or sigmoid
};

}  // namespace ikebana::cpu

#define IKEBANA_CPU_BODY "ikebana/cpu/gemm_epilogue-inl.hpp"
#include "ikebana/cpu/detail/foreach_target.hpp"
#define IKEBANA_CPU_BODY "ikebana/cpu/gemm_tile-inl.hpp"
#include "ikebana/cpu/detail/foreach_target.hpp"
#define IKEBANA_CPU_BODY "ikebana/cpu/gemm_pack-inl.hpp"
#include "ikebana/cpu/detail/foreach_target.hpp"
#define IKEBANA_CPU_BODY "ikebana/cpu/gemv-inl.hpp"
#include "ikebana/cpu/detail/foreach_target.hpp"
#define IKEBANA_CPU_BODY "ikebana/cpu/gemm_result-inl.hpp"
#include "ikebana/cpu/detail/foreach_target.hpp"
#define IKEBANA_CPU_BODY "ikebana/cpu/gemm_thin-inl.hpp"
#include "ikebana/cpu/detail/foreach_target.hpp"
#define IKEBANA_CPU_BODY "ikebana/cpu/gemm-inl.hpp"
#include "ikebana/cpu/detail/foreach_target.hpp"

namespace ikebana::cpu {

namespace detail {

template <class T>
void run_gemm(transpose ta, transpose tb, dim_t m, dim_t n, dim_t k, T alpha, const T* a, dim_t lda,
              const T* b, dim_t ldb, T beta, T* c, dim_t ldc, const gemm_epilogue<T>& then) {
  IKEBANA_CPU_DISPATCH(matrix_product<T>)
  (ta, tb, m, n, k, alpha, a, lda, b, ldb, beta, c, ldc, then);
}
IKEBANA_CPU_KERNEL(run_gemm)

}  // namespace detail

/// c = alpha * op(a) * op(b) + beta * c, then what `then` says: row-major, op(a) of m x k, op(b)
/// of k x n, c of m x n. `lda` is the distance of rows of `a` as stored (m x k, or k x m where
/// transposed); likewise `ldb`. Where beta is 0, c is written and never read. Any size may be 0.
/// The same bits for the same sizes and instruction set. O(m n k); allocates only the thread's
/// packing buffer, at its first use.
template <class T>
void gemm(transpose ta, transpose tb, dim_t m, dim_t n, dim_t k, T alpha, const T* a, dim_t lda,
          const T* b, dim_t ldb, T beta, T* c, dim_t ldc, const gemm_epilogue<T>& then) {
  detail::run_gemm<T>(ta, tb, m, n, k, alpha, a, lda, b, ldb, beta, c, ldc, then);
}
/// As above with bias[j], if there is one, added to column j.
template <class T>
void gemm(transpose ta, transpose tb, dim_t m, dim_t n, dim_t k, T alpha, const T* a, dim_t lda,
          const T* b, dim_t ldb, T beta, T* c, dim_t ldc, const T* bias = nullptr) {
  detail::run_gemm<T>(ta, tb, m, n, k, alpha, a, lda, b, ldb, beta, c, ldc, {.bias = bias});
}

/// `count` products as `gemm` makes them, whose operands follow each other at the distances
/// `step_a`, `step_b` and `step_c`; a step of 0 means the same matrix in each (not for c).
template <class T>
void gemm_batched(dim_t count, transpose ta, transpose tb, dim_t m, dim_t n, dim_t k, T alpha,
                  const T* a, dim_t lda, dim_t step_a, const T* b, dim_t ldb, dim_t step_b, T beta,
                  T* c, dim_t ldc, dim_t step_c) {
  IKEBANA_CPU_DISPATCH(matrix_products<T>)
  (count, ta, tb, m, n, k, alpha, a, lda, step_a, b, ldb, step_b, beta, c, ldc, step_c);
}
IKEBANA_CPU_KERNEL(gemm_batched)

}  // namespace ikebana::cpu
