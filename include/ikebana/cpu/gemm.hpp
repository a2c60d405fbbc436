#pragma once

#include <cstddef>
#include <cstdint>
#include <utility>

#include "ikebana/core/shape.hpp"
#include "ikebana/cpu/detail/scratch.hpp"
#include "ikebana/cpu/detail/vec.hpp"
#include "ikebana/cpu/dispatch.hpp"

namespace ikebana::cpu {

/// Whether a factor of a matrix product is read as it stands or transposed.
enum class transpose : bool { no, yes };

}  // namespace ikebana::cpu

#define IKEBANA_CPU_BODY "ikebana/cpu/gemm-inl.hpp"
#include "ikebana/cpu/detail/foreach_target.hpp"

namespace ikebana::cpu {

/// c = alpha * op(a) * op(b) + beta * c, plus bias[j] on column j: row-major, op(a) of m x k, op(b)
/// of k x n, c of m x n. `lda` is the distance of rows of `a` as stored (m x k, or k x m where
/// transposed); likewise `ldb`. Where beta is 0, c is written and never read. Any size may be 0.
/// The same bits for the same sizes and instruction set. O(m n k); allocates only the thread's
/// packing buffer, at its first use.
template <class T>
void gemm(transpose ta, transpose tb, dim_t m, dim_t n, dim_t k, T alpha, const T* a, dim_t lda,
          const T* b, dim_t ldb, T beta, T* c, dim_t ldc, const T* bias = nullptr) {
  IKEBANA_CPU_DISPATCH(matrix_product<T>)
  (ta, tb, m, n, k, alpha, a, lda, b, ldb, beta, c, ldc, bias);
}

IKEBANA_CPU_KERNEL(gemm)

}  // namespace ikebana::cpu
