#pragma once

#include <array>
#include <cstdint>
#include <limits>

#include "ikebana/cpu/optim_rules.hpp"
#include "ikebana/optim/elementwise_optimizer.hpp"

namespace ikebana {

/// Options of lion: those of the paper, and clipping by norm.
struct lion_options {
  double lr = 1e-4;
  double beta1 = 0.9;
  double beta2 = 0.99;
  double weight_decay = 0;  ///< Decoupled: parameters shrink by lr times this.
  bool maximize = false;
  double max_norm = std::numeric_limits<double>::infinity();  ///< Clips by norm, see adam.
  bool error_if_nonfinite = false;  ///< Throws error if the norm of the gradients is not finite.
};

namespace detail {

struct lion_rule {
  using options = lion_options;
  static constexpr const char* name = "lion";

  static void check(const options& o) {
    check_option(o.beta1 >= 0 && o.beta1 < 1, name, "beta parameter at index 0", o.beta1);
    check_option(o.beta2 >= 0 && o.beta2 < 1, name, "beta parameter at index 1", o.beta2);
    check_option(o.weight_decay >= 0, name, "weight_decay value", o.weight_decay);
  }
  static constexpr auto arrays([[maybe_unused]] const options& o) {
    return std::array{state_array{"exp_avg"}};
  }
  static auto factors(const options& o, [[maybe_unused]] std::int64_t step) {
    return std::array{o.lr, 1 - o.lr * o.weight_decay, o.beta1, 1 - o.beta1, o.beta2, 1 - o.beta2};
  }
  static double weight_decay([[maybe_unused]] const options& o) { return 0; }
  template <class T>
  static void step(const cpu::optimizer_arrays<T>& a) {
    cpu::lion_step<T>(a);
  }
};

}  // namespace detail

/// Lion (Chen et al., Symbolic Discovery of Optimization Algorithms, 2023, algorithm 2): the sign
/// of an interpolated momentum, with decoupled weight decay. The model must outlive it. Options may
/// be changed between steps. State: exp_avg, step.
template <class T>
class lion : public detail::elementwise_optimizer<T, detail::lion_rule> {
 public:
  /// Allocates one array of the size of the parameters. Throws error for invalid options.
  template <optimizable Model>
  explicit lion(Model& model, const lion_options& options = {})
      : detail::elementwise_optimizer<T, detail::lion_rule>{options} {
    this->take(model);
  }
};

// Refusals at compile time, selected by the deduction guides.
template <class Misuse>
requires(!floating<Misuse>) class lion<Misuse>;
template <class Model>
lion(Model&)
    -> lion<detail::number_or<Model, detail::misuse::optimizer_needs_an_initialized_model<>>>;
template <class Model>
lion(Model&, const lion_options&)
    -> lion<detail::number_or<Model, detail::misuse::optimizer_needs_an_initialized_model<>>>;
template <class Model>
lion(const Model&&) -> lion<detail::misuse::optimizer_needs_a_model_that_outlives_it<>>;
template <class Model>
lion(const Model&&, const lion_options&)
    -> lion<detail::misuse::optimizer_needs_a_model_that_outlives_it<>>;
lion(...)->lion<detail::misuse::optimizer_takes_a_model_and_its_options_in_braces<>>;

}  // namespace ikebana
