#pragma once

#include <cstddef>
#include <type_traits>
#include <utility>

#include "ikebana/core/shape.hpp"
#include "ikebana/cpu/gemm.hpp"

#define IKEBANA_CPU_BODY "ikebana/cpu/gemm/fixed-inl.hpp"
#include "ikebana/cpu/detail/foreach_target.hpp"

namespace ikebana::cpu {

/// c = op(a) op(b) of dense row-major matrices whose sizes are known to the compiler: op(a) of
/// M x K, op(b) of K x N, c of M x N. A result that fits into one register tile is computed by that
/// tile without a plan, in the order of k; everything else is as `gemm` does it. In programs that
/// define IKEBANA_EXTERN_KERNELS it is `gemm`.
template <dim_t M, dim_t N, dim_t K, transpose A = transpose::no, transpose B = transpose::no,
          class T>
void fixed_gemm(const T* a, const T* b, T* c) {
  static_assert(M >= 0 && N >= 0 && K >= 0, "ikebana: fixed_gemm needs sizes of at least 0");
#if IKEBANA_CPU_HERE
  if constexpr (M > 0 && N > 0 && !(A == transpose::no && B == transpose::yes)) {
    IKEBANA_CPU_DISPATCH(fixed_product<T, M, N, K, A, B>)(a, b, c);
    return;
  }
#endif
  gemm<T>(A, B, M, N, K, T(1), a, A == transpose::no ? K : M, b, B == transpose::no ? N : K, T(0),
          c, N);
}

}  // namespace ikebana::cpu
