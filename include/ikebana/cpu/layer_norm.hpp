#pragma once

#include <type_traits>

#include "ikebana/core/shape.hpp"
#include "ikebana/cpu/detail/share_rows.hpp"
#include "ikebana/cpu/detail/strided.hpp"
#include "ikebana/cpu/norm.hpp"
#include "ikebana/cpu/parallel.hpp"

#define IKEBANA_CPU_BODY "ikebana/cpu/layer_norm-inl.hpp"
#define IKEBANA_CPU_SETS 2
#include "ikebana/cpu/detail/foreach_target.hpp"

IKEBANA_CPU_BEGIN_SMALL
/// Normalization of each row by its own mean and variance: layer norm (Ba, Kiros, Hinton, 2016),
/// group norm (Wu, He, 2018), instance norm (Ulyanov, Vedaldi, Lempitsky, 2016), and root mean
/// square norm (Zhang, Sennrich, 2019). `gamma` and `beta` may be null (1 and 0), as may `dx`,
/// `dgamma`, `dbeta`. Where the variance (the mean of squares) is above all numbers of T, the row
/// is not a number. None allocates or throws.
namespace ikebana::cpu {

namespace detail {

/// Whole groups of rows, for row r has part r % groups of gamma and beta.
template <class T>
[[gnu::always_inline]] inline void share_row_norm(dim_t rows, dim_t n, dim_t groups, const T* x,
                                                  const T* residual, T* total, const T* gamma,
                                                  const T* beta, T eps, T* y, T* means,
                                                  T* invstds) {
  share_rows(
      rows, n, IKEBANA_CPU_DISPATCH_AVX(normalize_rows<T>),
      [=](auto* kernel, dim_t b, dim_t e) {
        kernel(b, e, n, groups, x, residual, total, gamma, beta, eps, y, means, invstds);
      },
      groups);
}
template <class T>
[[gnu::always_inline]] inline void share_row_norm_backward(dim_t rows, dim_t n, dim_t groups,
                                                           const T* x, const T* dy, const T* gamma,
                                                           const T* means, const T* invstds, T* dx,
                                                           T* dgamma, T* dbeta, bool accumulate) {
  // The kernel takes 32 rows of a group at a time.
  share_rows_of_sums(rows, n, 32 * groups, groups * n, dgamma, dbeta, accumulate,
                     IKEBANA_CPU_DISPATCH_AVX(normalize_rows_backward<T>),
                     [=](auto* kernel, dim_t b, dim_t e, T* gamma_sums, T* beta_sums, bool adds) {
                       kernel(b, e, n, groups, x, dy, gamma, means, invstds, dx, gamma_sums,
                              beta_sums, adds);
                     });
}

}  // namespace detail

/// y = gamma[j] (x - mean) / sqrt(variance + eps) + beta[j] for element j of each of `rows` rows of
/// n; the biased variance, taken in a second pass. Row r has part r % groups of gamma and beta,
/// which are (groups, n). Stores mean and 1 / sqrt(variance + eps). y may be x.
template <class T>
void layer_norm_forward(dim_t rows, dim_t n, dim_t groups, const T* x, const T* gamma,
                        const T* beta, T eps, T* y, T* save_mean, T* save_invstd) {
  detail::share_row_norm<T>(rows, n, groups, x, nullptr, nullptr, gamma, beta, eps, y, save_mean,
                            save_invstd);
}
/// The same of total = x + residual, which is stored too and may be either.
template <class T>
void add_layer_norm_forward(dim_t rows, dim_t n, const T* x, const T* residual, T* total,
                            const T* gamma, const T* beta, T eps, T* y, T* save_mean,
                            T* save_invstd) {
  detail::share_row_norm<T>(rows, n, 1, x, residual, total, gamma, beta, eps, y, save_mean,
                            save_invstd);
}
/// dx may be dy.
template <class T>
void layer_norm_backward(dim_t rows, dim_t n, dim_t groups, const T* x, const T* dy, const T* gamma,
                         const T* save_mean, const T* save_invstd, T* dx, T* dgamma, T* dbeta,
                         bool accumulate) {
  detail::share_row_norm_backward<T>(rows, n, groups, x, dy, gamma, save_mean, save_invstd, dx,
                                     dgamma, dbeta, accumulate);
}

/// y = gamma[j] x / sqrt(mean of x^2 + eps) for element j of each of `rows` rows of n. Stores the
/// inverse of the root.
template <class T>
void rms_norm_forward(dim_t rows, dim_t n, const T* x, const T* gamma, T eps, T* y,
                      T* save_invrms) {
  detail::share_row_norm<T>(rows, n, 1, x, nullptr, nullptr, gamma, nullptr, eps, y, nullptr,
                            save_invrms);
}
/// The same of total = x + residual, which is stored too and may be either.
template <class T>
void add_rms_norm_forward(dim_t rows, dim_t n, const T* x, const T* residual, T* total,
                          const T* gamma, T eps, T* y, T* save_invrms) {
  detail::share_row_norm<T>(rows, n, 1, x, residual, total, gamma, nullptr, eps, y, nullptr,
                            save_invrms);
}
template <class T>
void rms_norm_backward(dim_t rows, dim_t n, const T* x, const T* dy, const T* gamma,
                       const T* save_invrms, T* dx, T* dgamma, bool accumulate) {
  detail::share_row_norm_backward<T>(rows, n, 1, x, dy, gamma, nullptr, save_invrms, dx, dgamma,
                                     nullptr, accumulate);
}

/// The same as layer norm for each of `groups` groups of channels of (batch, channels, inner), with
/// one gamma and beta for each channel. `groups` divides `channels`. Stores (batch, groups) means,
/// 1 / sqrt(variance + eps) and, where asked for, unbiased variances.
template <class T>
void group_norm_forward(dim_t batch, dim_t channels, dim_t inner, dim_t groups, const T* x,
                        const T* gamma, const T* beta, T eps, T* y, T* save_mean, T* save_invstd,
                        T* save_variance = nullptr) {
  detail::run_rows(batch, channels * inner, IKEBANA_CPU_DISPATCH_AVX(normalize_groups<T>), channels,
                   inner, groups, x, gamma, beta, eps, y, save_mean, save_invstd, save_variance);
}
/// dx may be dy.
template <class T>
void group_norm_backward(dim_t batch, dim_t channels, dim_t inner, dim_t groups, const T* x,
                         const T* dy, const T* gamma, const T* save_mean, const T* save_invstd,
                         T* dx, T* dgamma, T* dbeta, bool accumulate) {
  detail::share_rows_of_sums(
      batch, channels * inner, 1, channels, dgamma, dbeta, accumulate,
      IKEBANA_CPU_DISPATCH_AVX(normalize_groups_backward<T>),
      [=](auto* kernel, dim_t b, dim_t e, T* gamma_sums, T* beta_sums, bool adds) {
        kernel(b, e, channels, inner, groups, x, dy, gamma, save_mean, save_invstd, dx, gamma_sums,
               beta_sums, adds);
      });
}

IKEBANA_CPU_KERNEL(layer_norm_forward, add_layer_norm_forward, layer_norm_backward,
                   rms_norm_forward, add_rms_norm_forward, rms_norm_backward, group_norm_forward,
                   group_norm_backward)

}  // namespace ikebana::cpu
IKEBANA_CPU_END_SMALL
