#pragma once

#include <type_traits>

#include "ikebana/core/shape.hpp"
#include "ikebana/cpu/gemm.hpp"

namespace ikebana::detail {

/// cpu::gemm in the precision of the model that created the context: operands as they are, or
/// rounded (see model/precision.hpp). Where a is not transposed, its rows are samples or positions:
/// each has the same bits among any number of others.
template <class Context, class T = typename Context::value_type>
[[gnu::always_inline]] inline void product(const Context& c, cpu::transpose ta, cpu::transpose tb,
                                           dim_t m, dim_t n, dim_t k, const T* a, dim_t lda,
                                           const T* b, dim_t ldb, std::type_identity_t<T> beta,
                                           T* to, dim_t ldc, const cpu::gemm_epilogue<T>& then) {
  if constexpr (requires { c.product(ta, tb, m, n, k, a, lda, b, ldb, beta, to, ldc, then); })
    c.product(ta, tb, m, n, k, a, lda, b, ldb, beta, to, ldc, then);
  else
    cpu::gemm<T>(ta, tb, m, n, k, T{1}, a, lda, b, ldb, beta, to, ldc, then,
                 cpu::order_of_rows(ta));
}
template <class Context, class T = typename Context::value_type>
[[gnu::always_inline]] inline void product(const Context& c, cpu::transpose ta, cpu::transpose tb,
                                           dim_t m, dim_t n, dim_t k, const T* a, dim_t lda,
                                           const T* b, dim_t ldb, std::type_identity_t<T> beta,
                                           T* to, dim_t ldc,
                                           const std::type_identity_t<T>* bias = nullptr) {
  product(c, ta, tb, m, n, k, a, lda, b, ldb, beta, to, ldc, cpu::gemm_epilogue<T>{.bias = bias});
}

/// Whether products round their operands.
template <class Context>
constexpr bool rounds_products([[maybe_unused]] const Context& c) {
  if constexpr (requires { c.rounds; })
    return c.rounds;
  else
    return false;
}

}  // namespace ikebana::detail
