#pragma once

#include <array>
#include <cmath>
#include <cstddef>
#include <limits>
#include <optional>
#include <utility>

#include "ikebana/core/shape.hpp"
#include "ikebana/cpu/elementwise.hpp"
#include "ikebana/cpu/optim_rules.hpp"
#include "ikebana/cpu/reduce.hpp"
#include "ikebana/optim/tensor_optimizer.hpp"

namespace ikebana {

/// Options of lamb: those of the paper, and clipping by norm.
struct lamb_options {
  double lr = 1e-3;
  std::pair<double, double> betas{0.9, 0.999};
  double eps = 1e-6;
  double weight_decay = 1e-2;  ///< Added to the update, times the parameter, before its norm.
  bool maximize = false;
  double max_norm = std::numeric_limits<double>::infinity();  ///< Clips by norm, see adam.
  bool error_if_nonfinite = false;  ///< Throws error if the norm of the gradients is not finite.
};

namespace detail {

struct lamb_rule {
  using options = lamb_options;
  static constexpr const char* name = "lamb";
  static constexpr std::array arrays{"exp_avg", "exp_avg_sq"};

  static void check(const options& o) {
    check_option(o.eps >= 0, name, "epsilon value", o.eps);
    check_option(o.betas.first >= 0 && o.betas.first < 1, name, "beta parameter at index 0",
                 o.betas.first);
    check_option(o.betas.second >= 0 && o.betas.second < 1, name, "beta parameter at index 1",
                 o.betas.second);
    check_option(o.weight_decay >= 0, name, "weight_decay value", o.weight_decay);
  }
  static std::optional<shape> extents(std::size_t, const shape& parameter, const options&) {
    return parameter;
  }
  static dim_t scratch(const shape& parameter) { return parameter.numel(); }

  template <class T>
  static void update(const tensor_update<T, 2>& u, const options& o) {
    const dim_t n = u.elements();
    auto a = arrays_of(u, 0, n);
    a.state[0] = u.state[0];
    a.state[1] = u.state[1];
    a.state[2] = u.scratch;
    set_factors(a, std::array{1 / cpu::one_less_power(o.betas.first, u.step),
                              1 / std::sqrt(cpu::one_less_power(o.betas.second, u.step)),
                              o.betas.first, 1 - o.betas.first, o.betas.second, 1 - o.betas.second,
                              o.eps, o.weight_decay});
    cpu::lamb_step<T>(a);
    const double weights = std::sqrt(cpu::squared_norm<T>(n, u.parameters)),
                 direction = std::sqrt(cpu::squared_norm<T>(n, u.scratch));
    const double trust = weights > 0 && direction > 0 ? weights / direction : 1;
    cpu::axpy<T>(n, static_cast<T>(-o.lr * trust), u.scratch, u.parameters);
  }
};

}  // namespace detail

/// LAMB (You et al., Large Batch Optimization for Deep Learning: Training BERT in 76 minutes, 2020,
/// algorithm 2): Adam whose update of each parameter has the parameter's norm, times lr. The model
/// must outlive it; not with shard_optimizer. Options may be changed between steps. State: exp_avg,
/// exp_avg_sq, step. O(parameters) per step.
template <class T>
class lamb : public detail::tensor_optimizer<T, detail::lamb_rule> {
 public:
  /// Allocates two arrays of the size of the parameters, and one of that of the largest. Throws
  /// error for invalid options.
  template <optimizable Model, detail::option_group... Groups>
  explicit lamb(Model& model, const lamb_options& options = {}, const Groups&... groups)
      : detail::tensor_optimizer<T, detail::lamb_rule>{options} {
    this->take(model, groups...);
  }
};

// Refusals at compile time, selected by the deduction guides.
template <class Misuse>
requires(!floating<Misuse>) class lamb<Misuse>;
template <class Model>
lamb(Model&)
    -> lamb<detail::number_or<Model, detail::misuse::optimizer_needs_an_initialized_model>>;
template <class Model, detail::option_group... Groups>
lamb(Model&, const lamb_options&, const Groups&...) -> lamb<
    detail::number_or<Model, detail::misuse::optimizer_needs_an_initialized_model, Groups...>>;
template <class Model>
lamb(const Model&&)
    -> lamb<detail::misuse::optimizer_needs_a_model_that_outlives_it<detail::later<Model>>>;
template <class Model, detail::option_group... Groups>
lamb(const Model&&, const lamb_options&, const Groups&...)
    -> lamb<detail::misuse::optimizer_needs_a_model_that_outlives_it<detail::later<Model>>>;
template <bool Lazy = false>
lamb(...) -> lamb<detail::misuse::optimizer_takes_a_model_and_its_options_in_braces<Lazy>>;

}  // namespace ikebana
