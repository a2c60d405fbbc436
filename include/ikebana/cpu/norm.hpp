#pragma once

#include "ikebana/core/shape.hpp"
#include "ikebana/cpu/reduce.hpp"

#define IKEBANA_CPU_BODY "ikebana/cpu/norm-inl.hpp"
#include "ikebana/cpu/detail/foreach_target.hpp"

/// Batch normalization (Ioffe and Szegedy, 2015) of arrays (batch, channels, inner). `gamma` and
/// `beta` may be null (1 and 0), as may `dx`, `dgamma`, `dbeta`. With `relu`, what would come out
/// negative is 0. None allocates or throws.
namespace ikebana::cpu {

/// y = gamma (x - mean) / sqrt(variance + eps) + beta per channel; the biased variance, of parts of
/// x about their own means, joined in double. Stores mean and 1 / sqrt(variance + eps). Running
/// statistics, where given, move by `momentum`, the variance towards the unbiased one, as in
/// PyTorch. y may be x.
template <class T>
void batch_norm_forward_train(dim_t batch, dim_t channels, dim_t inner, const T* x, const T* gamma,
                              const T* beta, T eps, T* y, T* save_mean, T* save_invstd,
                              T* running_mean, T* running_var, T momentum, bool relu = false) {
  IKEBANA_CPU_DISPATCH(normalize_batch<T>)
  (batch, channels, inner, x, gamma, beta, eps, relu, y, save_mean, save_invstd, running_mean,
   running_var, momentum);
}

template <class T>
void batch_norm_forward_eval(dim_t batch, dim_t channels, dim_t inner, const T* x, const T* gamma,
                             const T* beta, T eps, const T* running_mean, const T* running_var,
                             T* y, bool relu = false) {
  IKEBANA_CPU_DISPATCH(normalize_by_running<T>)
  (batch, channels, inner, x, gamma, beta, eps, running_mean, running_var, relu, y);
}

/// The gradient through the batch's own statistics. dx may be dy.
template <class T>
void batch_norm_backward(dim_t batch, dim_t channels, dim_t inner, const T* x, const T* dy,
                         const T* gamma, const T* save_mean, const T* save_invstd, T* dx, T* dgamma,
                         T* dbeta, bool accumulate) {
  IKEBANA_CPU_DISPATCH(normalize_backward<T>)
  (batch, channels, inner, x, dy, gamma, save_mean, save_invstd, T(0), true, dx, dgamma, dbeta,
   accumulate);
}

/// The gradient where the running statistics are constants.
template <class T>
void batch_norm_backward_eval(dim_t batch, dim_t channels, dim_t inner, const T* x, const T* dy,
                              const T* gamma, T eps, const T* running_mean, const T* running_var,
                              T* dx, T* dgamma, T* dbeta, bool accumulate) {
  IKEBANA_CPU_DISPATCH(normalize_backward<T>)
  (batch, channels, inner, x, dy, gamma, running_mean, running_var, eps, false, dx, dgamma, dbeta,
   accumulate);
}

IKEBANA_CPU_KERNEL(batch_norm_forward_train)
IKEBANA_CPU_KERNEL(batch_norm_forward_eval)
IKEBANA_CPU_KERNEL(batch_norm_backward)
IKEBANA_CPU_KERNEL(batch_norm_backward_eval)

}  // namespace ikebana::cpu
