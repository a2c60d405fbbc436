#pragma once

#include <cstddef>

#include "ikebana/core/shape.hpp"
#include "ikebana/cpu/optim.hpp"

namespace ikebana::cpu {

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

#define IKEBANA_CPU_BODY "ikebana/cpu/optim_rules-inl.hpp"
#define IKEBANA_CPU_SETS 1
#include "ikebana/cpu/detail/foreach_target.hpp"

IKEBANA_CPU_BEGIN_SMALL
// Optimizer updates in one pass. The formulas and their order are those of PyTorch 1.13
// (torch/optim), except for lion, lamb and adafactor. State and factors in the order given; none
// allocates or throws.
namespace ikebana::cpu {

namespace detail {
template <class T, class Kernel>
void share_optimizer(const optimizer_arrays<T>& a, Kernel* kernel) {
  share_rows(a.n, 1, kernel, [&a](Kernel* k, dim_t b, dim_t e) { k(a.part(b, e)); });
}
}  // namespace detail

/// State: square_avg, momentum_buffer or null, grad_avg (centered) or null. Factors: lr, alpha,
/// 1 - alpha, eps, momentum.
template <class T>
void rmsprop_step(const optimizer_arrays<T>& a) {
  detail::share_optimizer(a, IKEBANA_CPU_DISPATCH_ONE_WIDTH(rmsprop_update<T>));
}
/// State: sum. Factors: lr of this step, eps.
template <class T>
void adagrad_step(const optimizer_arrays<T>& a) {
  detail::share_optimizer(a, IKEBANA_CPU_DISPATCH_ONE_WIDTH(adagrad_update<T>));
}
/// State: square_avg, acc_delta. Factors: lr, rho, 1 - rho, eps.
template <class T>
void adadelta_step(const optimizer_arrays<T>& a) {
  detail::share_optimizer(a, IKEBANA_CPU_DISPATCH_ONE_WIDTH(adadelta_update<T>));
}
/// State: exp_avg, exp_inf. Factors: lr / (1 - beta1^step), beta1, 1 - beta1, beta2, eps.
template <class T>
void adamax_step(const optimizer_arrays<T>& a) {
  detail::share_optimizer(a, IKEBANA_CPU_DISPATCH_ONE_WIDTH(adamax_update<T>));
}
/// NAdam and RAdam: p -= (factor 0 * g + factor 1 * exp_avg) / (sqrt(exp_avg_sq) * factor 2 + eps),
/// or without the denominator if factor 2 is 0. State: exp_avg, exp_avg_sq. Factors 3 to 8: beta1,
/// 1 - beta1, beta2, 1 - beta2, eps, and what p is multiplied by before.
template <class T>
void mixed_adam_step(const optimizer_arrays<T>& a) {
  detail::share_optimizer(a, IKEBANA_CPU_DISPATCH_ONE_WIDTH(mixed_adam_update<T>));
}
/// State: ax. Factors: eta, 1 - lambd * eta, mu.
template <class T>
void asgd_step(const optimizer_arrays<T>& a) {
  detail::share_optimizer(a, IKEBANA_CPU_DISPATCH_ONE_WIDTH(asgd_update<T>));
}
/// State: prev, step_size. Factors: etaminus, etaplus, least and largest step size.
template <class T>
void rprop_step(const optimizer_arrays<T>& a) {
  detail::share_optimizer(a, IKEBANA_CPU_DISPATCH_ONE_WIDTH(rprop_update<T>));
}
/// State: exp_avg. Factors: lr, 1 - lr * weight decay, beta1, 1 - beta1, beta2, 1 - beta2.
template <class T>
void lion_step(const optimizer_arrays<T>& a) {
  detail::share_optimizer(a, IKEBANA_CPU_DISPATCH_ONE_WIDTH(lion_update<T>));
}
/// What a step of lamb changes parameters by, before its trust ratio: array 2 = factor 0 * exp_avg
/// / (sqrt(exp_avg_sq) * factor 1 + eps) + decay * params. Parameters stay. State: exp_avg,
/// exp_avg_sq, that array. Factors 2 to 7: beta1, 1 - beta1, beta2, 1 - beta2, eps, decay.
template <class T>
void lamb_step(const optimizer_arrays<T>& a) {
  detail::share_optimizer(a, IKEBANA_CPU_DISPATCH_ONE_WIDTH(lamb_direction<T>));
}
/// Array 0 = factor 0 * array 0 + factor 1 * g^2. Parameters stay.
template <class T>
void square_means_step(const optimizer_arrays<T>& a) {
  detail::share_optimizer(a, IKEBANA_CPU_DISPATCH_ONE_WIDTH(square_means<T>));
}
/// Array 1 = g / sqrt(max(factor 0 * array 0, factor 1)). Parameters stay.
template <class T>
void adafactor_step(const optimizer_arrays<T>& a) {
  detail::share_optimizer(a, IKEBANA_CPU_DISPATCH_ONE_WIDTH(adafactor_direction<T>));
}

IKEBANA_CPU_KERNEL(rmsprop_step)
IKEBANA_CPU_KERNEL(adagrad_step)
IKEBANA_CPU_KERNEL(adadelta_step)
IKEBANA_CPU_KERNEL(adamax_step)
IKEBANA_CPU_KERNEL(mixed_adam_step)
IKEBANA_CPU_KERNEL(asgd_step)
IKEBANA_CPU_KERNEL(rprop_step)
IKEBANA_CPU_KERNEL(lion_step)
IKEBANA_CPU_KERNEL(lamb_step)
IKEBANA_CPU_KERNEL(square_means_step)
IKEBANA_CPU_KERNEL(adafactor_step)

}  // namespace ikebana::cpu
IKEBANA_CPU_END_SMALL
