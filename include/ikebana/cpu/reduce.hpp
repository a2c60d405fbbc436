#pragma once

#include <utility>

#include "ikebana/core/shape.hpp"
#include "ikebana/cpu/detail/vec.hpp"
#include "ikebana/cpu/dispatch.hpp"

#define IKEBANA_CPU_BODY "ikebana/cpu/reduce-inl.hpp"
#include "ikebana/cpu/detail/foreach_target.hpp"

/// Sums over arrays. The order of additions depends on n and the instruction set alone. None
/// allocates or throws.
namespace ikebana::cpu {

template <class T>
T sum(dim_t n, const T* x) {
  return IKEBANA_CPU_DISPATCH(sum_array<T>)(n, x);
}
template <class T>
T dot(dim_t n, const T* x, const T* y) {
  return IKEBANA_CPU_DISPATCH(dot_arrays<T>)(n, x, y);
}
template <class T>
T squared_norm(dim_t n, const T* x) {
  return IKEBANA_CPU_DISPATCH(dot_arrays<T>)(n, x, x);
}

/// out[j] = (accumulate ? out[j] : 0) + sum over i of x[i * ldx + j], for i < m, j < n: the
/// gradient of a bias.
template <class T>
void column_sums(dim_t m, dim_t n, const T* x, dim_t ldx, T* out, bool accumulate) {
  IKEBANA_CPU_DISPATCH(sum_columns<T>)(m, n, x, ldx, out, accumulate);
}

/// The sum of (x[i] - t[i])^2; where dx is given, dx[i] = grad_scale (x[i] - t[i]).
template <class T>
T mse(dim_t n, const T* x, const T* t, T* dx, T grad_scale) {
  return IKEBANA_CPU_DISPATCH(sum_squared_difference<T>)(n, x, t, dx, grad_scale);
}

IKEBANA_CPU_KERNEL(sum)
IKEBANA_CPU_KERNEL(dot)
IKEBANA_CPU_KERNEL(squared_norm)
IKEBANA_CPU_KERNEL(column_sums)
IKEBANA_CPU_KERNEL(mse)

}  // namespace ikebana::cpu
