#pragma once

#include <array>
#include <cstdint>
#include <limits>
#include <utility>

#include "ikebana/cpu/optim_rules.hpp"
#include "ikebana/optim/elementwise_optimizer.hpp"

namespace ikebana {

/// Options of rprop: those of PyTorch with its defaults, and clipping by norm.
struct rprop_options {
  double lr = 1e-2;                          ///< The first step size.
  std::pair<double, double> etas{0.5, 1.2};  ///< Factors of a step size that shrinks or grows.
  std::pair<double, double> step_sizes{1e-6, 50};  ///< The least and the largest.
  bool maximize = false;
  double max_norm = std::numeric_limits<double>::infinity();  ///< Clips by norm, see adam.
  bool error_if_nonfinite = false;  ///< Throws error if the norm of the gradients is not finite.
};

namespace detail {

struct rprop_rule {
  using options = rprop_options;
  static constexpr const char* name = "rprop";

  static void check(const options& o) {
    check_option(o.etas.first > 0 && o.etas.first < 1, name, "etaminus value", o.etas.first);
    check_option(o.etas.second > 1, name, "etaplus value", o.etas.second);
  }
  static constexpr auto arrays([[maybe_unused]] const options& o) {
    return std::array{state_array{"prev"}, state_array{"step_size", true, o.lr}};
  }
  static auto factors(const options& o, [[maybe_unused]] std::int64_t step) {
    return std::array{o.etas.first, o.etas.second, o.step_sizes.first, o.step_sizes.second};
  }
  static double weight_decay([[maybe_unused]] const options& o) { return 0; }
  template <class T>
  static void step(const cpu::optimizer_arrays<T>& a) {
    cpu::rprop_step<T>(a);
  }
};

}  // namespace detail

/// Resilient backpropagation (Riedmiller and Braun, A Direct Adaptive Method for Faster
/// Backpropagation Learning, 1993), as in PyTorch 1.13: each element has its step size. For full
/// batches. The model must outlive it. Options may be changed between steps. State: prev,
/// step_size, step.
template <class T>
class rprop : public detail::elementwise_optimizer<T, detail::rprop_rule> {
 public:
  /// Allocates two arrays of the size of the parameters. Throws error for invalid options.
  template <optimizable Model, detail::option_group... Groups>
  explicit rprop(Model& model, const rprop_options& options = {}, const Groups&... groups)
      : detail::elementwise_optimizer<T, detail::rprop_rule>{options} {
    this->take(model, groups...);
  }
};

// Refusals at compile time, selected by the deduction guides.
template <class Misuse>
requires(!floating<Misuse>) class rprop<Misuse>;
template <class Model>
rprop(Model&)
    -> rprop<detail::number_or<Model, detail::misuse::optimizer_needs_an_initialized_model>>;
template <class Model, detail::option_group... Groups>
rprop(Model&, const rprop_options&, const Groups&...) -> rprop<
    detail::number_or<Model, detail::misuse::optimizer_needs_an_initialized_model, Groups...>>;
template <class Model>
rprop(const Model&&)
    -> rprop<detail::misuse::optimizer_needs_a_model_that_outlives_it<detail::later<Model>>>;
template <class Model, detail::option_group... Groups>
rprop(const Model&&, const rprop_options&, const Groups&...)
    -> rprop<detail::misuse::optimizer_needs_a_model_that_outlives_it<detail::later<Model>>>;
template <bool Lazy = false>
rprop(...) -> rprop<detail::misuse::optimizer_takes_a_model_and_its_options_in_braces<Lazy>>;

}  // namespace ikebana
