#pragma once

#include <array>
#include <cstdint>
#include <limits>
#include <utility>

#include "ikebana/cpu/optim_rules.hpp"
#include "ikebana/optim/elementwise_optimizer.hpp"

namespace ikebana {

/// Options of lion: those of the paper, and clipping by norm.
struct lion_options {
  double lr = 1e-4;
  std::pair<double, double> betas{0.9, 0.99};
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
    check_option(o.betas.first >= 0 && o.betas.first < 1, name, "beta parameter at index 0",
                 o.betas.first);
    check_option(o.betas.second >= 0 && o.betas.second < 1, name, "beta parameter at index 1",
                 o.betas.second);
    check_option(o.weight_decay >= 0, name, "weight_decay value", o.weight_decay);
  }
  static constexpr auto arrays([[maybe_unused]] const options& o) {
    return std::array{state_array{"exp_avg"}};
  }
  static auto factors(const options& o, [[maybe_unused]] std::int64_t step) {
    return std::array{o.lr,           1 - o.lr * o.weight_decay, o.betas.first, 1 - o.betas.first,
                      o.betas.second, 1 - o.betas.second};
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
  template <optimizable Model, detail::option_group... Groups>
  explicit lion(Model& model, const lion_options& options = {}, const Groups&... groups)
      : detail::elementwise_optimizer<T, detail::lion_rule>{options} {
    this->take(model, groups...);
  }
};

// Refusals at compile time, selected by the deduction guides.
template <class Misuse>
requires(!floating<Misuse>) class lion<Misuse>;
template <class Model>
lion(Model&)
    -> lion<detail::number_or<Model, detail::misuse::optimizer_needs_an_initialized_model>>;
template <class Model, detail::option_group... Groups>
lion(Model&, const lion_options&, const Groups&...) -> lion<
    detail::number_or<Model, detail::misuse::optimizer_needs_an_initialized_model, Groups...>>;
template <class Model>
lion(const Model&&)
    -> lion<detail::misuse::optimizer_needs_a_model_that_outlives_it<detail::later<Model>>>;
template <class Model, detail::option_group... Groups>
lion(const Model&&, const lion_options&, const Groups&...)
    -> lion<detail::misuse::optimizer_needs_a_model_that_outlives_it<detail::later<Model>>>;
template <bool Lazy = false>
lion(...) -> lion<detail::misuse::optimizer_takes_a_model_and_its_options_in_braces<Lazy>>;

}  // namespace ikebana
