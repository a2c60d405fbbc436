#pragma once

#include <array>
#include <cstdint>
#include <limits>

#include "ikebana/cpu/optim_rules.hpp"
#include "ikebana/optim/elementwise_optimizer.hpp"

namespace ikebana {

/// Options of rmsprop: those of PyTorch with its defaults, and clipping by norm.
struct rmsprop_options {
  double lr = 1e-2;
  double alpha = 0.99;
  double eps = 1e-8;
  double weight_decay = 0;  ///< L2 penalty: added to the gradient, times the parameter.
  double momentum = 0;
  bool centered = false;  ///< Divides by the standard deviation of the gradient.
  bool maximize = false;
  double max_norm = std::numeric_limits<double>::infinity();  ///< Clips by norm, see adam.
  bool error_if_nonfinite = false;  ///< Throws error if the norm of the gradients is not finite.
};

namespace detail {

struct rmsprop_rule {
  using options = rmsprop_options;
  static constexpr const char* name = "rmsprop";

  static void check(const options& o) {
    check_option(o.eps >= 0, name, "epsilon value", o.eps);
    check_option(o.weight_decay >= 0, name, "weight_decay value", o.weight_decay);
    check_option(o.momentum >= 0, name, "momentum value", o.momentum);
    check_option(o.alpha >= 0, name, "alpha value", o.alpha);
  }
  static constexpr auto arrays([[maybe_unused]] const options& o) {
    return std::array{state_array{"square_avg"}, state_array{"momentum_buffer", o.momentum != 0},
                      state_array{"grad_avg", o.centered}};
  }
  static auto factors(const options& o, [[maybe_unused]] std::int64_t step) {
    return std::array{o.lr, o.alpha, 1 - o.alpha, o.eps, o.momentum};
  }
  static double weight_decay([[maybe_unused]] const options& o) { return o.weight_decay; }
  template <class T>
  static void step(const cpu::optimizer_arrays<T>& a) {
    cpu::rmsprop_step<T>(a);
  }
};

}  // namespace detail

/// RMSprop (Hinton, Lecture 6e of Neural Networks for Machine Learning, 2012; centered: Graves,
/// Generating Sequences With Recurrent Neural Networks, 2013), as in PyTorch 1.13. `rmsprop
/// optimizer{model, {.lr = 1e-3}};` The model must outlive it. Options may be changed between
/// steps. State: square_avg, momentum_buffer, grad_avg, step.
template <class T>
class rmsprop : public detail::elementwise_optimizer<T, detail::rmsprop_rule> {
 public:
  /// Allocates one to three arrays of the size of the parameters. Throws error for invalid options.
  template <optimizable Model, detail::option_group... Groups>
  explicit rmsprop(Model& model, const rmsprop_options& options = {}, const Groups&... groups)
      : detail::elementwise_optimizer<T, detail::rmsprop_rule>{options} {
    this->take(model, groups...);
  }
};

// Refusals at compile time, selected by the deduction guides.
template <class Misuse>
requires(!floating<Misuse>) class rmsprop<Misuse>;
template <class Model>
rmsprop(Model&)
    -> rmsprop<detail::number_or<Model, detail::misuse::optimizer_needs_an_initialized_model>>;
template <class Model, detail::option_group... Groups>
rmsprop(Model&, const rmsprop_options&, const Groups&...) -> rmsprop<
    detail::number_or<Model, detail::misuse::optimizer_needs_an_initialized_model, Groups...>>;
template <class Model>
rmsprop(const Model&&)
    -> rmsprop<detail::misuse::optimizer_needs_a_model_that_outlives_it<detail::later<Model>>>;
template <class Model, detail::option_group... Groups>
rmsprop(const Model&&, const rmsprop_options&, const Groups&...)
    -> rmsprop<detail::misuse::optimizer_needs_a_model_that_outlives_it<detail::later<Model>>>;
template <bool Lazy = false>
rmsprop(...) -> rmsprop<detail::misuse::optimizer_takes_a_model_and_its_options_in_braces<Lazy>>;

}  // namespace ikebana
