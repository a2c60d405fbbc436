#pragma once

#include <array>
#include <cstdint>
#include <limits>

#include "ikebana/cpu/optim_rules.hpp"
#include "ikebana/optim/elementwise_optimizer.hpp"

namespace ikebana {

/// Options of adagrad: those of PyTorch with its defaults, and clipping by norm.
struct adagrad_options {
  double lr = 1e-2;
  double lr_decay = 0;
  double weight_decay = 0;  ///< L2 penalty: added to the gradient, times the parameter.
  double initial_accumulator_value = 0;
  double eps = 1e-10;
  bool maximize = false;
  double max_norm = std::numeric_limits<double>::infinity();  ///< Clips by norm, see adam.
  bool error_if_nonfinite = false;  ///< Throws error if the norm of the gradients is not finite.
};

namespace detail {

struct adagrad_rule {
  using options = adagrad_options;
  static constexpr const char* name = "adagrad";

  static void check(const options& o) {
    check_option(o.eps >= 0, name, "epsilon value", o.eps);
    check_option(o.weight_decay >= 0, name, "weight_decay value", o.weight_decay);
    check_option(o.lr_decay >= 0, name, "lr_decay value", o.lr_decay);
    check_option(o.initial_accumulator_value >= 0, name, "initial_accumulator_value value",
                 o.initial_accumulator_value);
  }
  static constexpr auto arrays([[maybe_unused]] const options& o) {
    return std::array{state_array{"sum", true, o.initial_accumulator_value}};
  }
  static auto factors(const options& o, [[maybe_unused]] std::int64_t step) {
    return std::array{o.lr / (1 + static_cast<double>(step - 1) * o.lr_decay), o.eps};
  }
  static bool keeps_zeros(const options& o) { return o.weight_decay == 0; }
  static double weight_decay([[maybe_unused]] const options& o) { return o.weight_decay; }
  template <class T>
  static void step(const cpu::optimizer_arrays<T>& a) {
    cpu::adagrad_step<T>(a);
  }
};

}  // namespace detail

/// Adagrad (Duchi, Hazan and Singer, Adaptive Subgradient Methods for Online Learning and
/// Stochastic Optimization, 2011), as in PyTorch 1.13. The model must outlive it. Options may be
/// changed between steps. State: sum, step.
template <class T>
class adagrad : public detail::elementwise_optimizer<T, detail::adagrad_rule> {
 public:
  /// Allocates one array of the size of the parameters. Throws error for invalid options.
  template <optimizable Model, detail::option_group... Groups>
  explicit adagrad(Model& model, const adagrad_options& options = {}, const Groups&... groups)
      : detail::elementwise_optimizer<T, detail::adagrad_rule>{options} {
    this->take(model, groups...);
  }
};

// Refusals at compile time, selected by the deduction guides.
template <class Misuse>
requires(!floating<Misuse>) class adagrad<Misuse>;
template <class Model>
adagrad(Model&)
    -> adagrad<detail::number_or<Model, detail::misuse::optimizer_needs_an_initialized_model>>;
template <class Model, detail::option_group... Groups>
adagrad(Model&, const adagrad_options&, const Groups&...) -> adagrad<
    detail::number_or<Model, detail::misuse::optimizer_needs_an_initialized_model, Groups...>>;
template <class Model>
adagrad(const Model&&)
    -> adagrad<detail::misuse::optimizer_needs_a_model_that_outlives_it<detail::later<Model>>>;
template <class Model, detail::option_group... Groups>
adagrad(const Model&&, const adagrad_options&, const Groups&...)
    -> adagrad<detail::misuse::optimizer_needs_a_model_that_outlives_it<detail::later<Model>>>;
template <bool Lazy = false>
adagrad(...) -> adagrad<detail::misuse::optimizer_takes_a_model_and_its_options_in_braces<Lazy>>;

}  // namespace ikebana
