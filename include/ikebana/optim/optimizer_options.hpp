#pragma once

#include "ikebana/core/language.hpp"

namespace ikebana::detail {

/// Calls f(name, second, member) for all options that may differ between parameters, where
/// member(options) is the option. A pair has two names, by which it is saved.
template <class F>
constexpr void for_each_option_name(F&& f) {
  f("lr", nullptr, [](auto& o) -> decltype((o.lr)) { return o.lr; });
  f("momentum", nullptr, [](auto& o) -> decltype((o.momentum)) { return o.momentum; });
  f("dampening", nullptr, [](auto& o) -> decltype((o.dampening)) { return o.dampening; });
  f("beta1", "beta2", [](auto& o) -> decltype((o.betas)) { return o.betas; });
  f("eps", nullptr, [](auto& o) -> decltype((o.eps)) { return o.eps; });
  f("decoupled_weight_decay", nullptr,
    [](auto& o) -> decltype((o.decoupled_weight_decay)) { return o.decoupled_weight_decay; });
  f("use_muon", nullptr, [](auto& o) -> decltype((o.use_muon)) { return o.use_muon; });
  f("weight_decay", nullptr, [](auto& o) -> decltype((o.weight_decay)) { return o.weight_decay; });
  f("nesterov", nullptr, [](auto& o) -> decltype((o.nesterov)) { return o.nesterov; });
  f("maximize", nullptr, [](auto& o) -> decltype((o.maximize)) { return o.maximize; });
  f("alpha", nullptr, [](auto& o) -> decltype((o.alpha)) { return o.alpha; });
  f("centered", nullptr, [](auto& o) -> decltype((o.centered)) { return o.centered; });
  f("lr_decay", nullptr, [](auto& o) -> decltype((o.lr_decay)) { return o.lr_decay; });
  f("rho", nullptr, [](auto& o) -> decltype((o.rho)) { return o.rho; });
  f("momentum_decay", nullptr,
    [](auto& o) -> decltype((o.momentum_decay)) { return o.momentum_decay; });
  f("lambd", nullptr, [](auto& o) -> decltype((o.lambd)) { return o.lambd; });
  f("t0", nullptr, [](auto& o) -> decltype((o.t0)) { return o.t0; });
  f("etaminus", "etaplus", [](auto& o) -> decltype((o.etas)) { return o.etas; });
  f("step_size_min", "step_size_max",
    [](auto& o) -> decltype((o.step_sizes)) { return o.step_sizes; });
}

/// Calls f(name, number) for every option that the updates depend on, by PyTorch's names: all of
/// them for the library's own optimizers, for others the ones that have these names; of a group,
/// those that it sets.
template <class Options, class F>
void for_each_option(Options& o, F&& f) {
  const auto give = [&]<class V>(const char* name, const char* second, V& value) {
    if constexpr (requires { value.first; }) {
      f(name, value.first);
      f(second, value.second);
    } else {
      f(name, value);
    }
  };
  for_each_option_name([&](const char* name, const char* second, auto member) {
    if constexpr (requires { *member(o); }) {
      if (member(o)) give(name, second, *member(o));
    } else if constexpr (requires { member(o); }) {
      give(name, second, member(o));
    }
  });
  if constexpr (requires { o.amsgrad; }) f("amsgrad", o.amsgrad);
  if constexpr (requires { o.beta2_decay; }) {
    f("beta2_decay", o.beta2_decay);
    f("eps1", o.eps1);
    f("eps2", o.eps2);
    f("d", o.d);
  }
  if constexpr (requires { o.ns_steps; }) {
    f("ns_a", o.ns_coefficients[0]);
    f("ns_b", o.ns_coefficients[1]);
    f("ns_c", o.ns_coefficients[2]);
    f("ns_steps", o.ns_steps);
    f("match_rms_adamw", o.match_rms_adamw);
    f("adamw_eps", o.adamw_eps);
  }
  if constexpr (requires { o.max_norm; }) f("max_norm", o.max_norm);
}

}  // namespace ikebana::detail
