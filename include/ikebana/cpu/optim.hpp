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

/// One step of an element-wise optimizer: g = grads * gradient_scale + params * weight_decay, then
/// the parameters and up to three arrays of state of the same length change by a formula with up to
/// nine factors.
template <class T>
struct optimizer_arrays {
  dim_t n = 0;
  T* params = nullptr;
  const T* grads = nullptr;
  T* state[3]{};  ///< Null if the options do not need it.
  T gradient_scale = T(1);
  T weight_decay = T(0);
  T factor[9]{};

  /// The part [begin, end).
  optimizer_arrays part(dim_t begin, dim_t end) const {
    optimizer_arrays p = *this;
    p.n = end - begin;
    p.params += begin;
    p.grads += begin;
    for (T*& s : p.state)
      if (s != nullptr) s += begin;
    return p;
  }
};

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
  const optimizer_arrays<T> a{
      n,
      params,
      grads,
      {m, v, vmax},
      static_cast<T>(maximize ? -gradient_scale : gradient_scale),
      decoupled ? T(0) : static_cast<T>(weight_decay),
      {static_cast<T>(lr / correction1), static_cast<T>(1 / __builtin_sqrt(correction2)),
       static_cast<T>(beta1), static_cast<T>(1 - beta1), static_cast<T>(beta2),
       static_cast<T>(1 - beta2), static_cast<T>(eps),
       decoupled ? static_cast<T>(1 - lr * weight_decay) : T(1)}};
  detail::share_rows(n, 1, IKEBANA_CPU_DISPATCH_ONE_WIDTH(adam_update<T>),
                     [&](auto* kernel, dim_t b, dim_t e) {
                       // Every other step from the end on, where the last one left its numbers in a
                       // cache that does not hold all of them.
                       constexpr dim_t near = 8192;
                       const dim_t size = step % 2 == 0 && e > b ? e - b : near;
                       for (dim_t i = b + (e - b - 1) / size * size; i >= b; i -= size)
                         kernel(a.part(i, e - i < size ? e : i + size));
                     });
}

IKEBANA_CPU_KERNEL(sgd_step, adam_step)

}  // namespace ikebana::cpu
IKEBANA_CPU_END_SMALL
