#pragma once

#include <array>
#include <cmath>
#include <cstdint>
#include <limits>
#include <utility>

#include "ikebana/cpu/optim_rules.hpp"
#include "ikebana/optim/elementwise_optimizer.hpp"

namespace ikebana {

/// Options of adamax: those of PyTorch with its defaults, and clipping by norm.
struct adamax_options {
  double lr = 2e-3;
  std::pair<double, double> betas{0.9, 0.999};
  double eps = 1e-8;
  double weight_decay = 0;  ///< L2 penalty: added to the gradient, times the parameter.
  bool maximize = false;
  double max_norm = std::numeric_limits<double>::infinity();  ///< Clips by norm, see adam.
  bool error_if_nonfinite = false;  ///< Throws error if the norm of the gradients is not finite.
};

namespace detail {

struct adamax_rule {
  using options = adamax_options;
  static constexpr const char* name = "adamax";

  static void check(const options& o) {
    check_option(o.eps >= 0, name, "epsilon value", o.eps);
    check_option(o.betas.first >= 0 && o.betas.first < 1, name, "beta parameter at index 0",
                 o.betas.first);
    check_option(o.betas.second >= 0 && o.betas.second < 1, name, "beta parameter at index 1",
                 o.betas.second);
    check_option(o.weight_decay >= 0, name, "weight_decay value", o.weight_decay);
  }
  static constexpr auto arrays([[maybe_unused]] const options& o) {
    return std::array{state_array{"exp_avg"}, state_array{"exp_inf"}};
  }
  static auto factors(const options& o, [[maybe_unused]] std::int64_t step) {
    const double correction1 = cpu::one_less_power(o.betas.first, step);
    return std::array{o.lr / correction1, o.betas.first, 1 - o.betas.first, o.betas.second, o.eps};
  }
  static double weight_decay([[maybe_unused]] const options& o) { return o.weight_decay; }
  template <class T>
  static void step(const cpu::optimizer_arrays<T>& a) {
    cpu::adamax_step<T>(a);
  }
};

}  // namespace detail

/// Adamax, Adam by the largest gradient (Kingma and Ba, Adam: A Method for Stochastic Optimization,
/// 2015, section 7.1), as in PyTorch 1.13. The model must outlive it. Options may be changed
/// between steps. State: exp_avg, exp_inf, step.
template <class T>
class adamax : public detail::elementwise_optimizer<T, detail::adamax_rule> {
 public:
  /// Allocates two arrays of the size of the parameters. Throws error for invalid options.
  template <optimizable Model, detail::option_group... Groups>
  explicit adamax(Model& model, const adamax_options& options = {}, const Groups&... groups)
      : detail::elementwise_optimizer<T, detail::adamax_rule>{options} {
    this->take(model, groups...);
  }
};

// Refusals at compile time, selected by the deduction guides.
template <class Misuse>
requires(!floating<Misuse>) class adamax<Misuse>;
template <class Model>
adamax(Model&)
    -> adamax<detail::number_or<Model, detail::misuse::optimizer_needs_an_initialized_model>>;
template <class Model, detail::option_group... Groups>
adamax(Model&, const adamax_options&, const Groups&...) -> adamax<
    detail::number_or<Model, detail::misuse::optimizer_needs_an_initialized_model, Groups...>>;
template <class Model>
adamax(const Model&&)
    -> adamax<detail::misuse::optimizer_needs_a_model_that_outlives_it<detail::later<Model>>>;
template <class Model, detail::option_group... Groups>
adamax(const Model&&, const adamax_options&, const Groups&...)
    -> adamax<detail::misuse::optimizer_needs_a_model_that_outlives_it<detail::later<Model>>>;
template <bool Lazy = false>
adamax(...) -> adamax<detail::misuse::optimizer_takes_a_model_and_its_options_in_braces<Lazy>>;

}  // namespace ikebana
