#pragma once

#include <array>
#include <cmath>
#include <cstdint>
#include <limits>
#include <utility>

#include "ikebana/cpu/optim_rules.hpp"
#include "ikebana/optim/elementwise_optimizer.hpp"

namespace ikebana {

/// Options of nadam: those of PyTorch with its defaults, and clipping by norm.
struct nadam_options {
  double lr = 2e-3;
  std::pair<double, double> betas{0.9, 0.999};
  double eps = 1e-8;
  double weight_decay = 0;  ///< L2 penalty: added to the gradient, times the parameter.
  bool decoupled_weight_decay =
      false;  ///< Instead, parameters shrink by lr times this (PyTorch 2).
  double momentum_decay = 4e-3;
  bool maximize = false;
  double max_norm = std::numeric_limits<double>::infinity();  ///< Clips by norm, see adam.
  bool error_if_nonfinite = false;  ///< Throws error if the norm of the gradients is not finite.
};

namespace detail {

struct nadam_rule {
  using options = nadam_options;
  static constexpr const char* name = "nadam";

  static void check(const options& o) {
    check_option(o.eps >= 0, name, "epsilon value", o.eps);
    check_option(o.betas.first >= 0 && o.betas.first < 1, name, "beta parameter at index 0",
                 o.betas.first);
    check_option(o.betas.second >= 0 && o.betas.second < 1, name, "beta parameter at index 1",
                 o.betas.second);
    check_option(o.weight_decay >= 0, name, "weight_decay value", o.weight_decay);
    check_option(o.momentum_decay >= 0, name, "momentum_decay value", o.momentum_decay);
  }
  static constexpr auto arrays([[maybe_unused]] const options& o) {
    return std::array{state_array{"exp_avg"}, state_array{"exp_avg_sq"}};
  }
  /// The product of the momenta of all steps, which are those of today's options; 0 once it is
  /// below any rounding error.
  static double product_of_momenta(const options& o, std::int64_t step) {
    const double decay = std::pow(0.96, o.momentum_decay);
    double product = 1, power = 1;
    for (; step > 0 && product > 0x1p-60; --step) {
      power *= decay;
      product *= o.betas.first * (1 - 0.5 * power);
    }
    return product > 0x1p-60 ? product : 0;
  }
  static auto factors(const options& o, [[maybe_unused]] std::int64_t step) {
    const auto momentum = [&](std::int64_t i) {
      return o.betas.first * (1 - 0.5 * std::pow(0.96, static_cast<double>(i) * o.momentum_decay));
    };
    const double mu = momentum(step), next = momentum(step + 1);
    const double product = product_of_momenta(o, step);
    return std::array{o.lr * (1 - mu) / (1 - product),
                      o.lr * next / (1 - product * next),
                      1 / std::sqrt(cpu::one_less_power(o.betas.second, step)),
                      o.betas.first,
                      1 - o.betas.first,
                      o.betas.second,
                      1 - o.betas.second,
                      o.eps,
                      1 - (o.decoupled_weight_decay ? o.lr * o.weight_decay : 0)};
  }
  static double weight_decay(const options& o) {
    return o.decoupled_weight_decay ? 0 : o.weight_decay;
  }
  template <class T>
  static void step(const cpu::optimizer_arrays<T>& a) {
    cpu::mixed_adam_step<T>(a);
  }
};

}  // namespace detail

/// NAdam, Adam with Nesterov momentum (Dozat, Incorporating Nesterov Momentum into Adam, 2016), as
/// in PyTorch 1.13 with `foreach` (without it, that version takes the square of the last momentum).
/// The model must outlive it. Options may be changed between steps. State: exp_avg, exp_avg_sq,
/// step; PyTorch's mu_product follows from the step.
template <class T>
class nadam : public detail::elementwise_optimizer<T, detail::nadam_rule> {
 public:
  /// Allocates two arrays of the size of the parameters. Throws error for invalid options.
  template <optimizable Model, detail::option_group... Groups>
  explicit nadam(Model& model, const nadam_options& options = {}, const Groups&... groups)
      : detail::elementwise_optimizer<T, detail::nadam_rule>{options} {
    this->take(model, groups...);
  }
};

// Refusals at compile time, selected by the deduction guides.
template <class Misuse>
requires(!floating<Misuse>) class nadam<Misuse>;
template <class Model>
nadam(Model&)
    -> nadam<detail::number_or<Model, detail::misuse::optimizer_needs_an_initialized_model>>;
template <class Model, detail::option_group... Groups>
nadam(Model&, const nadam_options&, const Groups&...) -> nadam<
    detail::number_or<Model, detail::misuse::optimizer_needs_an_initialized_model, Groups...>>;
template <class Model>
nadam(const Model&&)
    -> nadam<detail::misuse::optimizer_needs_a_model_that_outlives_it<detail::later<Model>>>;
template <class Model, detail::option_group... Groups>
nadam(const Model&&, const nadam_options&, const Groups&...)
    -> nadam<detail::misuse::optimizer_needs_a_model_that_outlives_it<detail::later<Model>>>;
template <bool Lazy = false>
nadam(...) -> nadam<detail::misuse::optimizer_takes_a_model_and_its_options_in_braces<Lazy>>;

}  // namespace ikebana
