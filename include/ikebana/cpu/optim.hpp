#pragma once

#include <cstddef>
#include <cstdint>

#include "ikebana/core/shape.hpp"
#include "ikebana/cpu/detail/vec.hpp"
#include "ikebana/cpu/dispatch.hpp"
#include "ikebana/cpu/parallel.hpp"
#include "ikebana/cpu/reduce.hpp"

namespace ikebana::cpu {

/// 1 - beta^step by repeated squaring, for 0 <= beta < 1: at most a few units in the last place
/// from what std::pow gives.
constexpr double one_less_power(double beta, std::int64_t step) {
  double power = 1;
  for (; step > 0; step >>= 1, beta *= beta) {
    if (beta < 0x1p-60) return 1;
    // No branch, for bits are not foreseen.
    const double factors[] = {1, beta};
    power *= factors[step & 1];
  }
  return 1 - power;
}

namespace detail {

/// What one Adam step multiplies by, computed once in double as PyTorch does.
template <class T>
struct adam_factors {
  T gradient_scale, weight_decay, parameter_scale, beta1, one_minus_beta1, beta2, one_minus_beta2,
      eps, step_size, inverse_correction2_sqrt;
};

}  // namespace detail

}  // namespace ikebana::cpu

#define IKEBANA_CPU_BODY "ikebana/cpu/optim-inl.hpp"
#define IKEBANA_CPU_SETS 1
#include "ikebana/cpu/detail/foreach_target.hpp"

IKEBANA_CPU_BEGIN_SMALL
/// Optimizer updates, one pass over flat buffers. Formulas and their order are PyTorch 1.13's
/// (torch/optim/sgd.py, adam.py, adamw.py). Gradients are taken times `gradient_scale`: the factor
/// that clips their norm, what undoes the scale of a loss, or both, without a pass of their own.
/// None allocates or throws.
namespace ikebana::cpu {

/// `momentum_buffer` may be null where momentum is 0. On `first_step` the buffer becomes the
/// gradient.
template <class T>
void sgd_step(dim_t n, T* params, const T* grads, T* momentum_buffer, T lr, T momentum, T dampening,
              T weight_decay, bool nesterov, bool first_step, bool maximize,
              T gradient_scale = T(1)) {
  detail::run_rows(n, 1, IKEBANA_CPU_DISPATCH_ONE_WIDTH(sgd_update<T>), params, grads,
                   momentum_buffer, lr, momentum, dampening, weight_decay, nesterov, first_step,
                   maximize ? -gradient_scale : gradient_scale);
}

/// m, v: first and second moments; `vmax` (AMSGrad) may be null. `decoupled` is AdamW. `step`
/// counts from 1.
template <class T>
void adam_step(dim_t n, T* params, const T* grads, T* m, T* v, T* vmax, double lr, double beta1,
               double beta2, double eps, double weight_decay, bool decoupled, std::int64_t step,
               bool maximize, double gradient_scale = 1) {
  const double correction1 = one_less_power(beta1, step);
  const double correction2 = one_less_power(beta2, step);
  const detail::adam_factors<T> f{
      .gradient_scale = static_cast<T>(maximize ? -gradient_scale : gradient_scale),
      .weight_decay = decoupled ? T(0) : static_cast<T>(weight_decay),
      .parameter_scale = decoupled ? static_cast<T>(1 - lr * weight_decay) : T(1),
      .beta1 = static_cast<T>(beta1),
      .one_minus_beta1 = static_cast<T>(1 - beta1),
      .beta2 = static_cast<T>(beta2),
      .one_minus_beta2 = static_cast<T>(1 - beta2),
      .eps = static_cast<T>(eps),
      .step_size = static_cast<T>(lr / correction1),
      .inverse_correction2_sqrt = static_cast<T>(1 / __builtin_sqrt(correction2))};
  detail::share_rows(n, 1, IKEBANA_CPU_DISPATCH_ONE_WIDTH(adam_update<T>),
                     [=](auto* kernel, dim_t b, dim_t e) {
                       // Every other step from the end on, where the last one left its numbers in a
                       // cache that does not hold all of them.
                       constexpr dim_t near = 8192;
                       const dim_t size = step % 2 == 0 && e > b ? e - b : near;
                       for (dim_t i = b + (e - b - 1) / size * size; i >= b; i -= size)
                         kernel(i, e - i < size ? e : i + size, params, grads, m, v, vmax, f);
                     });
}

IKEBANA_CPU_KERNEL(sgd_step)
IKEBANA_CPU_KERNEL(adam_step)

}  // namespace ikebana::cpu
IKEBANA_CPU_END_SMALL
