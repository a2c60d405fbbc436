#pragma once

#include <type_traits>

#include "ikebana/core/shape.hpp"
#include "ikebana/cpu/activate.hpp"
#include "ikebana/cpu/detail/math.hpp"
#include "ikebana/cpu/final_activation.hpp"
#include "ikebana/cpu/parallel.hpp"
#include "ikebana/cpu/reduce.hpp"

#define IKEBANA_CPU_BODY "ikebana/cpu/norm-inl.hpp"
#define IKEBANA_CPU_SETS 2
#include "ikebana/cpu/detail/foreach_target.hpp"

IKEBANA_CPU_BEGIN_SMALL
/// Batch normalization (Ioffe and Szegedy, 2015) of arrays (batch, channels, inner). `gamma` and
/// `beta` may be null (1 and 0), as may `dx`, `dgamma`, `dbeta`. `function` is applied
/// to what comes out. None allocates or throws.
namespace ikebana::cpu {

namespace detail {
/// kernel(begin, end, arguments...) for ranges of channels: where they are columns of a matrix, for
/// as many as begin and end with a cache line.
template <class Kernel, class... Argument>
[[gnu::always_inline]] inline void run_channels(Kernel* kernel, dim_t batch, dim_t channels,
                                                dim_t inner, Argument... arguments) {
  share_rows(
      channels, batch * inner, kernel,
      [=](Kernel* k, dim_t b, dim_t e) { k(b, e, batch, channels, inner, arguments...); },
      inner == 1 ? 16 : 1);
}
}  // namespace detail

/// y = gamma (x - mean) / sqrt(variance + eps) + beta per channel; the biased variance, of a long
/// channel that of parts about their own means, joined in double. Stores mean and 1 / sqrt(variance
/// + eps). Running statistics, where given, move by `momentum`, the variance towards the unbiased
/// one, as in PyTorch. y may be x.
template <class T>
void batch_norm_forward_train(dim_t batch, dim_t channels, dim_t inner, const T* x, const T* gamma,
                              const T* beta, T eps, T* y, T* save_mean, T* save_invstd,
                              T* running_mean, T* running_var, T momentum,
                              std::type_identity_t<final_activation<T>> function = {}) {
  detail::run_channels(IKEBANA_CPU_DISPATCH_AVX(normalize_batch<T>), batch, channels, inner, x,
                       gamma, beta, eps, function, y, save_mean, save_invstd, running_mean,
                       running_var, momentum);
}

template <class T>
void batch_norm_forward_eval(dim_t batch, dim_t channels, dim_t inner, const T* x, const T* gamma,
                             const T* beta, T eps, const T* running_mean, const T* running_var,
                             T* y, std::type_identity_t<final_activation<T>> function = {}) {
  detail::run_channels(IKEBANA_CPU_DISPATCH_AVX(normalize_by_running<T>), batch, channels, inner, x,
                       gamma, beta, eps, running_mean, running_var, function, y);
}

/// The gradient through the batch's own statistics. dx may be dy.
template <class T>
void batch_norm_backward(dim_t batch, dim_t channels, dim_t inner, const T* x, const T* dy,
                         const T* gamma, const T* save_mean, const T* save_invstd, T* dx, T* dgamma,
                         T* dbeta, bool accumulate) {
  detail::run_channels(IKEBANA_CPU_DISPATCH_AVX(normalize_backward<T>), batch, channels, inner, x,
                       dy, gamma, save_mean, save_invstd, T(0), true, dx, dgamma, dbeta,
                       accumulate);
}

/// The gradient where the running statistics are constants.
template <class T>
void batch_norm_backward_eval(dim_t batch, dim_t channels, dim_t inner, const T* x, const T* dy,
                              const T* gamma, T eps, const T* running_mean, const T* running_var,
                              T* dx, T* dgamma, T* dbeta, bool accumulate) {
  detail::run_channels(IKEBANA_CPU_DISPATCH_AVX(normalize_backward<T>), batch, channels, inner, x,
                       dy, gamma, running_mean, running_var, eps, false, dx, dgamma, dbeta,
                       accumulate);
}

IKEBANA_CPU_KERNEL(batch_norm_forward_train, batch_norm_forward_eval, batch_norm_backward,
                   batch_norm_backward_eval)

}  // namespace ikebana::cpu
IKEBANA_CPU_END_SMALL
