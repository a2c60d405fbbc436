#pragma once

#include <array>
#include <cstdint>
#include <limits>

#include "ikebana/cpu/optim_rules.hpp"
#include "ikebana/optim/elementwise_optimizer.hpp"

namespace ikebana {

/// Options of rprop: those of PyTorch with its defaults, and clipping by norm. PyTorch's `etas` and
/// `step_sizes` are pairs.
struct rprop_options {
  double lr = 1e-2;  ///< The first step size.
  double etaminus = 0.5;
  double etaplus = 1.2;
  double step_size_min = 1e-6;
  double step_size_max = 50;
  bool maximize = false;
  double max_norm = std::numeric_limits<double>::infinity();  ///< Clips by norm, see adam.
  bool error_if_nonfinite = false;  ///< Throws error if the norm of the gradients is not finite.
};

namespace detail {

struct rprop_rule {
  using options = rprop_options;
  static constexpr const char* name = "rprop";

  static void check(const options& o) {
    check_option(o.etaminus > 0 && o.etaminus < 1, name, "etaminus value", o.etaminus);
    check_option(o.etaplus > 1, name, "etaplus value", o.etaplus);
  }
  static constexpr auto arrays([[maybe_unused]] const options& o) {
    return std::array{state_array{"prev"}, state_array{"step_size", true, o.lr}};
  }
  static auto factors(const options& o, [[maybe_unused]] std::int64_t step) {
    return std::array{o.etaminus, o.etaplus, o.step_size_min, o.step_size_max};
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
  template <optimizable Model>
  explicit rprop(Model& model, const rprop_options& options = {})
      : detail::elementwise_optimizer<T, detail::rprop_rule>{options} {
    this->take(model);
  }
};

// Refusals at compile time, selected by the deduction guides.
template <class Misuse>
requires(!floating<Misuse>) class rprop<Misuse>;
template <class Model>
rprop(Model&)
    -> rprop<detail::number_or<Model, detail::misuse::optimizer_needs_an_initialized_model<>>>;
template <class Model>
rprop(Model&, const rprop_options&)
    -> rprop<detail::number_or<Model, detail::misuse::optimizer_needs_an_initialized_model<>>>;
template <class Model>
rprop(const Model&&) -> rprop<detail::misuse::optimizer_needs_a_model_that_outlives_it<>>;
template <class Model>
rprop(const Model&&, const rprop_options&)
    -> rprop<detail::misuse::optimizer_needs_a_model_that_outlives_it<>>;
rprop(...)->rprop<detail::misuse::optimizer_takes_a_model_and_its_options_in_braces<>>;

}  // namespace ikebana
