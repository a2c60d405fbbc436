#pragma once

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <limits>

#include "ikebana/cpu/optim_rules.hpp"
#include "ikebana/optim/elementwise_optimizer.hpp"

namespace ikebana {

/// Options of asgd: those of PyTorch with its defaults, and clipping by norm.
struct asgd_options {
  double lr = 1e-2;
  double lambd = 1e-4;      ///< Parameters shrink by this times the learning rate.
  double alpha = 0.75;      ///< The power by which the learning rate falls.
  double t0 = 1e6;          ///< The step at which averaging begins.
  double weight_decay = 0;  ///< L2 penalty: added to the gradient, times the parameter.
  bool maximize = false;
  double max_norm = std::numeric_limits<double>::infinity();  ///< Clips by norm, see adam.
  bool error_if_nonfinite = false;  ///< Throws error if the norm of the gradients is not finite.
};

namespace detail {

struct asgd_rule {
  using options = asgd_options;
  static constexpr const char* name = "asgd";

  static void check(const options& o) {
    check_option(o.weight_decay >= 0, name, "weight_decay value", o.weight_decay);
  }
  static constexpr auto arrays([[maybe_unused]] const options& o) {
    return std::array{state_array{"ax"}};
  }
  static auto factors(const options& o, [[maybe_unused]] std::int64_t step) {
    const auto before = static_cast<double>(step - 1);
    const double eta = o.lr / std::pow(1 + o.lambd * o.lr * before, o.alpha);
    return std::array{eta, 1 - o.lambd * eta, 1 / std::max(1.0, before - o.t0)};
  }
  static double weight_decay([[maybe_unused]] const options& o) { return o.weight_decay; }
  template <class T>
  static void step(const cpu::optimizer_arrays<T>& a) {
    cpu::asgd_step<T>(a);
  }
};

}  // namespace detail

/// Averaged stochastic gradient descent (Polyak and Juditsky, Acceleration of Stochastic
/// Approximation by Averaging, 1992), as in PyTorch 1.13. The averaged parameters are the state
/// `ax`. The model must outlive it. Options may be changed between steps. State: ax, step;
/// PyTorch's eta and mu follow from the step.
template <class T>
class asgd : public detail::elementwise_optimizer<T, detail::asgd_rule> {
 public:
  /// Allocates one array of the size of the parameters. Throws error for invalid options.
  template <optimizable Model, detail::option_group... Groups>
  explicit asgd(Model& model, const asgd_options& options = {}, const Groups&... groups)
      : detail::elementwise_optimizer<T, detail::asgd_rule>{options} {
    this->take(model, groups...);
  }
};

// Refusals at compile time, selected by the deduction guides.
template <class Misuse>
requires(!floating<Misuse>) class asgd<Misuse>;
template <class Model>
asgd(Model&)
    -> asgd<detail::number_or<Model, detail::misuse::optimizer_needs_an_initialized_model>>;
template <class Model, detail::option_group... Groups>
asgd(Model&, const asgd_options&, const Groups&...) -> asgd<
    detail::number_or<Model, detail::misuse::optimizer_needs_an_initialized_model, Groups...>>;
template <class Model>
asgd(const Model&&)
    -> asgd<detail::misuse::optimizer_needs_a_model_that_outlives_it<detail::later<Model>>>;
template <class Model, detail::option_group... Groups>
asgd(const Model&&, const asgd_options&, const Groups&...)
    -> asgd<detail::misuse::optimizer_needs_a_model_that_outlives_it<detail::later<Model>>>;
template <bool Lazy = false>
asgd(...) -> asgd<detail::misuse::optimizer_takes_a_model_and_its_options_in_braces<Lazy>>;

}  // namespace ikebana
