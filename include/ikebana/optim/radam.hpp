#pragma once

#include <array>
#include <cmath>
#include <cstdint>
#include <limits>
#include <utility>

#include "ikebana/cpu/optim_rules.hpp"
#include "ikebana/optim/elementwise_optimizer.hpp"

namespace ikebana {

/// Options of radam: those of PyTorch with its defaults, and clipping by norm.
struct radam_options {
  double lr = 1e-3;
  std::pair<double, double> betas{0.9, 0.999};
  double eps = 1e-8;
  double weight_decay = 0;  ///< L2 penalty: added to the gradient, times the parameter.
  bool decoupled_weight_decay =
      false;  ///< Instead, parameters shrink by lr times this (PyTorch 2).
  bool maximize = false;
  double max_norm = std::numeric_limits<double>::infinity();  ///< Clips by norm, see adam.
  bool error_if_nonfinite = false;  ///< Throws error if the norm of the gradients is not finite.
};

namespace detail {

struct radam_rule {
  using options = radam_options;
  static constexpr const char* name = "radam";

  static void check(const options& o) {
    check_option(o.eps >= 0, name, "epsilon value", o.eps);
    check_option(o.betas.first >= 0 && o.betas.first < 1, name, "beta parameter at index 0",
                 o.betas.first);
    check_option(o.betas.second >= 0 && o.betas.second < 1, name, "beta parameter at index 1",
                 o.betas.second);
    check_option(o.weight_decay >= 0, name, "weight_decay value", o.weight_decay);
  }
  static constexpr auto arrays([[maybe_unused]] const options& o) {
    return std::array{state_array{"exp_avg"}, state_array{"exp_avg_sq"}};
  }
  static auto factors(const options& o, [[maybe_unused]] std::int64_t step) {
    const double correction1 = cpu::one_less_power(o.betas.first, step);
    const double correction2 = cpu::one_less_power(o.betas.second, step);
    const double longest = 2 / (1 - o.betas.second) - 1;
    const double length = longest - 2 * static_cast<double>(step) * (1 - correction2) / correction2;
    double rate = o.lr / correction1, root = 0;
    if (length > 5) {
      rate *= std::sqrt(correction2 * (length - 4) * (length - 2) * longest /
                        ((longest - 4) * (longest - 2) * length));
      root = 1;
    }
    return std::array{0.0,
                      rate,
                      root,
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

/// RAdam, Adam whose first steps, with too few squares for a variance, do not divide by them (Liu
/// et al., On the Variance of the Adaptive Learning Rate and Beyond, 2020), as in PyTorch 1.13. The
/// model must outlive it. Options may be changed between steps. State: exp_avg, exp_avg_sq, step.
template <class T>
class radam : public detail::elementwise_optimizer<T, detail::radam_rule> {
 public:
  /// Allocates two arrays of the size of the parameters. Throws error for invalid options.
  template <optimizable Model, detail::option_group... Groups>
  explicit radam(Model& model, const radam_options& options = {}, const Groups&... groups)
      : detail::elementwise_optimizer<T, detail::radam_rule>{options} {
    this->take(model, groups...);
  }
};

// Refusals at compile time, selected by the deduction guides.
template <class Misuse>
requires(!floating<Misuse>) class radam<Misuse>;
template <class Model>
radam(Model&)
    -> radam<detail::number_or<Model, detail::misuse::optimizer_needs_an_initialized_model>>;
template <class Model, detail::option_group... Groups>
radam(Model&, const radam_options&, const Groups&...) -> radam<
    detail::number_or<Model, detail::misuse::optimizer_needs_an_initialized_model, Groups...>>;
template <class Model>
radam(const Model&&)
    -> radam<detail::misuse::optimizer_needs_a_model_that_outlives_it<detail::later<Model>>>;
template <class Model, detail::option_group... Groups>
radam(const Model&&, const radam_options&, const Groups&...)
    -> radam<detail::misuse::optimizer_needs_a_model_that_outlives_it<detail::later<Model>>>;
template <bool Lazy = false>
radam(...) -> radam<detail::misuse::optimizer_takes_a_model_and_its_options_in_braces<Lazy>>;

}  // namespace ikebana
