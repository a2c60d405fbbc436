#pragma once

#include <array>
#include <cstdint>
#include <limits>

#include "ikebana/cpu/optim_rules.hpp"
#include "ikebana/optim/elementwise_optimizer.hpp"

namespace ikebana {

/// Options of adadelta: those of PyTorch with its defaults, and clipping by norm.
struct adadelta_options {
  double lr = 1;
  double rho = 0.9;
  double eps = 1e-6;
  double weight_decay = 0;  ///< L2 penalty: added to the gradient, times the parameter.
  bool maximize = false;
  double max_norm = std::numeric_limits<double>::infinity();  ///< Clips by norm, see adam.
  bool error_if_nonfinite = false;  ///< Throws error if the norm of the gradients is not finite.
};

namespace detail {

struct adadelta_rule {
  using options = adadelta_options;
  static constexpr const char* name = "adadelta";

  static void check(const options& o) {
    check_option(o.eps >= 0, name, "epsilon value", o.eps);
    check_option(o.weight_decay >= 0, name, "weight_decay value", o.weight_decay);
    check_option(o.rho >= 0 && o.rho <= 1, name, "rho value", o.rho);
  }
  static constexpr auto arrays([[maybe_unused]] const options& o) {
    return std::array{state_array{"square_avg"}, state_array{"acc_delta"}};
  }
  static auto factors(const options& o, [[maybe_unused]] std::int64_t step) {
    return std::array{o.lr, o.rho, 1 - o.rho, o.eps};
  }
  static double weight_decay([[maybe_unused]] const options& o) { return o.weight_decay; }
  template <class T>
  static void step(const cpu::optimizer_arrays<T>& a) {
    cpu::adadelta_step<T>(a);
  }
};

}  // namespace detail

/// Adadelta (Zeiler, ADADELTA: An Adaptive Learning Rate Method, 2012), as in PyTorch 1.13. The
/// model must outlive it. Options may be changed between steps. State: square_avg, acc_delta, step.
template <class T>
class adadelta : public detail::elementwise_optimizer<T, detail::adadelta_rule> {
 public:
  /// Allocates two arrays of the size of the parameters. Throws error for invalid options.
  template <optimizable Model, detail::option_group... Groups>
  explicit adadelta(Model& model, const adadelta_options& options = {}, const Groups&... groups)
      : detail::elementwise_optimizer<T, detail::adadelta_rule>{options} {
    this->take(model, groups...);
  }
};

// Refusals at compile time, selected by the deduction guides.
template <class Misuse>
requires(!floating<Misuse>) class adadelta<Misuse>;
template <class Model>
adadelta(Model&)
    -> adadelta<detail::number_or<Model, detail::misuse::optimizer_needs_an_initialized_model>>;
template <class Model, detail::option_group... Groups>
adadelta(Model&, const adadelta_options&, const Groups&...) -> adadelta<
    detail::number_or<Model, detail::misuse::optimizer_needs_an_initialized_model, Groups...>>;
template <class Model>
adadelta(const Model&&)
    -> adadelta<detail::misuse::optimizer_needs_a_model_that_outlives_it<detail::later<Model>>>;
template <class Model, detail::option_group... Groups>
adadelta(const Model&&, const adadelta_options&, const Groups&...)
    -> adadelta<detail::misuse::optimizer_needs_a_model_that_outlives_it<detail::later<Model>>>;
template <bool Lazy = false>
adadelta(...) -> adadelta<detail::misuse::optimizer_takes_a_model_and_its_options_in_braces<Lazy>>;

}  // namespace ikebana
