#pragma once

#include "ikebana/core/shape.hpp"
#include "ikebana/cpu/norm.hpp"

#define IKEBANA_CPU_BODY "ikebana/cpu/layer_norm-inl.hpp"
#include "ikebana/cpu/detail/foreach_target.hpp"

/// Normalization of each row by its own mean and variance: layer norm (Ba, Kiros, Hinton, 2016),
/// group norm (Wu, He, 2018), instance norm (Ulyanov, Vedaldi, Lempitsky, 2016), and root mean
/// square norm (Zhang, Sennrich, 2019). `gamma` and `beta` may be null (1 and 0), as may `dx`,
/// `dgamma`, `dbeta`. None allocates or throws.
namespace ikebana::cpu {

/// y = gamma[j] (x - mean) / sqrt(variance + eps) + beta[j] for element j of each of `rows` rows of
/// n; the biased variance, taken in a second pass. Row r has part r % groups of gamma and beta,
/// which are (groups, n). Stores mean and 1 / sqrt(variance + eps). y may be x.
template <class T>
void layer_norm_forward(dim_t rows, dim_t n, dim_t groups, const T* x, const T* gamma,
                        const T* beta, T eps, T* y, T* save_mean, T* save_invstd) {
  IKEBANA_CPU_DISPATCH(normalize_rows<T>)
  (rows, n, groups, x, nullptr, nullptr, gamma, beta, eps, y, save_mean, save_invstd);
}
/// The same of total = x + residual, which is stored too and may be either.
template <class T>
void add_layer_norm_forward(dim_t rows, dim_t n, const T* x, const T* residual, T* total,
                            const T* gamma, const T* beta, T eps, T* y, T* save_mean,
                            T* save_invstd) {
  IKEBANA_CPU_DISPATCH(normalize_rows<T>)
  (rows, n, 1, x, residual, total, gamma, beta, eps, y, save_mean, save_invstd);
}
/// dx may be dy.
template <class T>
void layer_norm_backward(dim_t rows, dim_t n, dim_t groups, const T* x, const T* dy, const T* gamma,
                         const T* save_mean, const T* save_invstd, T* dx, T* dgamma, T* dbeta,
                         bool accumulate) {
  IKEBANA_CPU_DISPATCH(normalize_rows_backward<T>)
  (rows, n, groups, x, dy, gamma, save_mean, save_invstd, dx, dgamma, dbeta, accumulate);
}

/// y = gamma[j] x / sqrt(mean of x^2 + eps) for element j of each of `rows` rows of n. Stores the
/// inverse of the root.
template <class T>
void rms_norm_forward(dim_t rows, dim_t n, const T* x, const T* gamma, T eps, T* y,
                      T* save_invrms) {
  IKEBANA_CPU_DISPATCH(normalize_rows<T>)
  (rows, n, 1, x, nullptr, nullptr, gamma, nullptr, eps, y, nullptr, save_invrms);
}
/// The same of total = x + residual, which is stored too and may be either.
template <class T>
void add_rms_norm_forward(dim_t rows, dim_t n, const T* x, const T* residual, T* total,
                          const T* gamma, T eps, T* y, T* save_invrms) {
  IKEBANA_CPU_DISPATCH(normalize_rows<T>)
  (rows, n, 1, x, residual, total, gamma, nullptr, eps, y, nullptr, save_invrms);
}
template <class T>
void rms_norm_backward(dim_t rows, dim_t n, const T* x, const T* dy, const T* gamma,
                       const T* save_invrms, T* dx, T* dgamma, bool accumulate) {
  IKEBANA_CPU_DISPATCH(normalize_rows_backward<T>)
  (rows, n, 1, x, dy, gamma, nullptr, save_invrms, dx, dgamma, nullptr, accumulate);
}

/// The same as layer norm for each of `groups` groups of channels of (batch, channels, inner), with
/// one gamma and beta for each channel. `groups` divides `channels`. Stores (batch, groups) means,
/// 1 / sqrt(variance + eps) and, where asked for, unbiased variances.
template <class T>
void group_norm_forward(dim_t batch, dim_t channels, dim_t inner, dim_t groups, const T* x,
                        const T* gamma, const T* beta, T eps, T* y, T* save_mean, T* save_invstd,
                        T* save_variance = nullptr) {
  IKEBANA_CPU_DISPATCH(normalize_groups<T>)
  (batch, channels, inner, groups, x, gamma, beta, eps, y, save_mean, save_invstd, save_variance);
}
/// dx may be dy.
template <class T>
void group_norm_backward(dim_t batch, dim_t channels, dim_t inner, dim_t groups, const T* x,
                         const T* dy, const T* gamma, const T* save_mean, const T* save_invstd,
                         T* dx, T* dgamma, T* dbeta, bool accumulate) {
  IKEBANA_CPU_DISPATCH(normalize_groups_backward<T>)
  (batch, channels, inner, groups, x, dy, gamma, save_mean, save_invstd, dx, dgamma, dbeta,
   accumulate);
}

IKEBANA_CPU_KERNEL(layer_norm_forward)
IKEBANA_CPU_KERNEL(add_layer_norm_forward)
IKEBANA_CPU_KERNEL(layer_norm_backward)
IKEBANA_CPU_KERNEL(rms_norm_forward)
IKEBANA_CPU_KERNEL(add_rms_norm_forward)
IKEBANA_CPU_KERNEL(rms_norm_backward)
IKEBANA_CPU_KERNEL(group_norm_forward)
IKEBANA_CPU_KERNEL(group_norm_backward)

}  // namespace ikebana::cpu
