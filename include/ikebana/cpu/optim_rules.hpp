#pragma once

#include <cstddef>

#include "ikebana/core/shape.hpp"
#include "ikebana/cpu/optim.hpp"

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

#define IKEBANA_CPU_RULE(function, kernel)                                 \
  template <class T>                                                       \
  void function(const optimizer_arrays<T>& a) {                            \
    detail::share_optimizer(a, IKEBANA_CPU_DISPATCH_ONE_WIDTH(kernel<T>)); \
  }                                                                        \
  IKEBANA_CPU_KERNEL(function)

/// State: square_avg, momentum_buffer or null, grad_avg (centered) or null. Factors: lr, alpha,
/// 1 - alpha, eps, momentum.
IKEBANA_CPU_RULE(rmsprop_step, rmsprop_update)
/// State: sum. Factors: lr of this step, eps.
IKEBANA_CPU_RULE(adagrad_step, adagrad_update)
/// State: square_avg, acc_delta. Factors: lr, rho, 1 - rho, eps.
IKEBANA_CPU_RULE(adadelta_step, adadelta_update)
/// State: exp_avg, exp_inf. Factors: lr / (1 - beta1^step), beta1, 1 - beta1, beta2, eps.
IKEBANA_CPU_RULE(adamax_step, adamax_update)
/// NAdam and RAdam: p -= (factor 0 * g + factor 1 * exp_avg) / (sqrt(exp_avg_sq) * factor 2 + eps),
/// or without the denominator if factor 2 is 0. State: exp_avg, exp_avg_sq. Factors 3 to 8: beta1,
/// 1 - beta1, beta2, 1 - beta2, eps, and what p is multiplied by before.
IKEBANA_CPU_RULE(mixed_adam_step, mixed_adam_update)
/// State: ax. Factors: eta, 1 - lambd * eta, mu.
IKEBANA_CPU_RULE(asgd_step, asgd_update)
/// State: prev, step_size. Factors: etaminus, etaplus, least and largest step size.
IKEBANA_CPU_RULE(rprop_step, rprop_update)
/// State: exp_avg. Factors: lr, 1 - lr * weight decay, beta1, 1 - beta1, beta2, 1 - beta2.
IKEBANA_CPU_RULE(lion_step, lion_update)
/// What a step of lamb changes parameters by, before its trust ratio: array 2 = factor 0 * exp_avg
/// / (sqrt(exp_avg_sq) * factor 1 + eps) + decay * params. Parameters stay. State: exp_avg,
/// exp_avg_sq, that array. Factors 2 to 7: beta1, 1 - beta1, beta2, 1 - beta2, eps, decay.
IKEBANA_CPU_RULE(lamb_step, lamb_direction)
/// Array 0 = factor 0 * array 0 + factor 1 * g^2. Parameters stay.
IKEBANA_CPU_RULE(square_means_step, square_means)
/// Array 1 = g / sqrt(max(factor 0 * array 0, factor 1)). Parameters stay.
IKEBANA_CPU_RULE(adafactor_step, adafactor_direction)
#undef IKEBANA_CPU_RULE

}  // namespace ikebana::cpu
IKEBANA_CPU_END_SMALL
