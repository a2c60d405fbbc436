#pragma once

#include "ikebana/core/language.hpp"

namespace ikebana::detail {

/// Calls f(name, option) for every option that the updates depend on, by PyTorch's names: all of
/// them for the library's own optimizers, for others the ones that have these names.
template <class Options, class F>
void for_each_option(Options& o, F&& f) {
  if constexpr (requires { o.lr; }) f("lr", o.lr);
  if constexpr (requires { o.momentum; }) f("momentum", o.momentum);
  if constexpr (requires { o.dampening; }) f("dampening", o.dampening);
  if constexpr (requires { o.beta1; }) f("beta1", o.beta1);
  if constexpr (requires { o.beta2; }) f("beta2", o.beta2);
  if constexpr (requires { o.eps; }) f("eps", o.eps);
  if constexpr (requires { o.weight_decay; }) f("weight_decay", o.weight_decay);
  if constexpr (requires { o.amsgrad; }) f("amsgrad", o.amsgrad);
  if constexpr (requires { o.nesterov; }) f("nesterov", o.nesterov);
  if constexpr (requires { o.maximize; }) f("maximize", o.maximize);
  if constexpr (requires { o.alpha; }) f("alpha", o.alpha);
  if constexpr (requires { o.centered; }) f("centered", o.centered);
  if constexpr (requires { o.lr_decay; }) f("lr_decay", o.lr_decay);
  if constexpr (requires { o.rho; }) f("rho", o.rho);
  if constexpr (requires { o.momentum_decay; }) f("momentum_decay", o.momentum_decay);
  if constexpr (requires { o.lambd; }) f("lambd", o.lambd);
  if constexpr (requires { o.t0; }) f("t0", o.t0);
  if constexpr (requires { o.etaminus; }) f("etaminus", o.etaminus);
  if constexpr (requires { o.etaplus; }) f("etaplus", o.etaplus);
  if constexpr (requires { o.step_size_min; }) f("step_size_min", o.step_size_min);
  if constexpr (requires { o.step_size_max; }) f("step_size_max", o.step_size_max);
  if constexpr (requires { o.max_norm; }) f("max_norm", o.max_norm);
}

}  // namespace ikebana::detail
