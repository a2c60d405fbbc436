#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>
#include <utility>

#include "ikebana/core/aligned_buffer.hpp"
#include "ikebana/core/dtype.hpp"
#include "ikebana/cpu/optim.hpp"
#include "ikebana/module/refusal.hpp"
#include "ikebana/optim/optimizer_base.hpp"

namespace ikebana {

/// Options of adam: those of PyTorch with its defaults, and clipping by norm.
struct adam_options {
  double lr = 1e-3;
  std::pair<double, double> betas{0.9, 0.999};
  double eps = 1e-8;
  double weight_decay = 0;  ///< L2 penalty: added to the gradient, times the parameter.
  bool amsgrad = false;
  bool maximize = false;
  double max_norm = std::numeric_limits<double>::infinity();  ///< Clips by norm, see adam.
  bool error_if_nonfinite = false;  ///< Throws error if the norm of the gradients is not finite.
};

/// Options of adamw: those of PyTorch with its defaults, and clipping by norm.
struct adamw_options {
  double lr = 1e-3;
  std::pair<double, double> betas{0.9, 0.999};
  double eps = 1e-8;
  double weight_decay = 1e-2;  ///< Decoupled: parameters shrink by lr times this.
  bool amsgrad = false;
  bool maximize = false;
  double max_norm = std::numeric_limits<double>::infinity();  ///< Clips by norm, see adam.
  bool error_if_nonfinite = false;  ///< Throws error if the norm of the gradients is not finite.
};

namespace detail::misuse {

IKEBANA_MISUSE(
    adam_needs_an_initialized_model,
    "adam needs an initialized model, not const: initialize<T, shape>(module, seed) gives one");
IKEBANA_MISUSE(adam_needs_a_model_that_outlives_it,
               "adam needs a model that outlives it: not a temporary, nor parameters()");
IKEBANA_MISUSE(
    adam_takes_a_model_and_its_options_in_braces,
    "adam takes a model and its options in braces, adam{model, {.lr = 1e-3}}, which are lr, betas, "
    "eps, weight_decay, amsgrad, maximize, max_norm, error_if_nonfinite");
IKEBANA_MISUSE(
    adamw_needs_an_initialized_model,
    "adamw needs an initialized model, not const: initialize<T, shape>(module, seed) gives one");
IKEBANA_MISUSE(adamw_needs_a_model_that_outlives_it,
               "adamw needs a model that outlives it: not a temporary, nor parameters()");
IKEBANA_MISUSE(
    adamw_takes_a_model_and_its_options_in_braces,
    "adamw takes a model and its options in braces, adamw{model, {.lr = 1e-3}}, which are lr, "
    "betas, eps, weight_decay, amsgrad, maximize, max_norm, error_if_nonfinite");

}  // namespace detail::misuse

namespace detail {

/// Adam with weight decay in the gradient, or decoupled.
template <class T, class Options, bool Decoupled>
class adam_state : public optimizer_base<adam_state<T, Options, Decoupled>, T, Options> {
  using base = optimizer_base<adam_state, T, Options>;
  friend base;
  friend optimizer_runs<adam_state>;

 public:
  /// The optimizer's state. `max_exp_avg_sq` is in use from the first step with amsgrad on.
  std::array<optimizer_state, 4> state() {
    return {optimizer_state::of("step", target_.steps()),
            optimizer_state::of("exp_avg", exp_avg_.span()),
            optimizer_state::of("exp_avg_sq", exp_avg_sq_.span()),
            optimizer_state::of("max_exp_avg_sq", max_exp_avg_sq_.span(), has_maximum_)};
  }

 protected:
  using base::base;

 private:
  static constexpr const char* name = Decoupled ? "adamw" : "adam";
  using base::options_;
  using base::scale_;
  using base::target_;

  static void check_option_set(const Options& o) {
    check_option(o.eps >= 0, name, "epsilon value", o.eps);
    check_option(o.betas.first >= 0 && o.betas.first < 1, name, "beta parameter at index 0",
                 o.betas.first);
    check_option(o.betas.second >= 0 && o.betas.second < 1, name, "beta parameter at index 1",
                 o.betas.second);
    check_option(o.weight_decay >= 0, name, "weight_decay value", o.weight_decay);
  }

  void begin_update() {
    make_maximum();
    target_.count_step();
  }

  void make_memory() {
    exp_avg_ = aligned_buffer<T>(target_.elements());
    exp_avg_sq_ = aligned_buffer<T>(target_.elements());
    make_maximum();
  }
  void make_maximum() {
    if (!options_.all.amsgrad || has_maximum_) return;
    max_exp_avg_sq_ = aligned_buffer<T>(target_.elements());
    has_maximum_ = true;
  }

  void update(dim_t n, T* parameters, const T* gradients, dim_t at, std::int64_t step,
              std::size_t set) {
    const Options o = options_[set];
    cpu::adam_step<T>(n, parameters, gradients, exp_avg_.data() + at, exp_avg_sq_.data() + at,
                      o.amsgrad ? max_exp_avg_sq_.data() + at : nullptr, o.lr, o.betas.first,
                      o.betas.second, o.eps, o.weight_decay, Decoupled, step, o.maximize, scale_);
  }

  aligned_buffer<T> exp_avg_;
  aligned_buffer<T> exp_avg_sq_;
  aligned_buffer<T> max_exp_avg_sq_;
  bool has_maximum_ = false;
};

template <class T>
using adam_of = adam_state<T, adam_options, false>;
template <class T>
using adamw_of = adam_state<T, adamw_options, true>;
IKEBANA_CPU_CLASS(optimizer_runs, adam_of)
IKEBANA_CPU_CLASS(optimizer_runs, adamw_of)

}  // namespace detail

/// Adam (Kingma and Ba, Adam: A Method for Stochastic Optimization, 2015; amsgrad: Reddi et al., On
/// the Convergence of Adam and Beyond, 2018), as in PyTorch 1.13. `adam optimizer{model, {.lr =
/// 1e-3}};` The model must outlive it. Options may be changed between steps. State: exp_avg,
/// exp_avg_sq, max_exp_avg_sq, step. `adam{model, {.lr = 1e-3}, group<"head">{.lr = 1e-2}}`: see
/// group.
///
/// With max_norm, a step scales the gradients of all parameters so that their 2-norm is at most
/// max_norm, as clip_grad_norm does, but in the same pass and without changing the stored
/// gradients. With error_if_nonfinite it throws error if the norm is not finite, before anything
/// has changed.
template <class T>
class adam : public detail::adam_of<T> {
 public:
  /// Allocates two arrays of the size of the parameters (of this rank's part if ranks share them),
  /// three with amsgrad. Throws error for invalid options.
  template <optimizable Model, detail::option_group... Groups>
  explicit adam(Model& model, const adam_options& options = {}, const Groups&... groups)
      : detail::adam_of<T>{options} {
    this->take(model, groups...);
  }
};

/// Adam with decoupled weight decay (Loshchilov and Hutter, Decoupled Weight Decay Regularization,
/// 2019), as in PyTorch 1.13. Otherwise like `adam`.
template <class T>
class adamw : public detail::adamw_of<T> {
 public:
  /// Allocates two arrays of the size of the parameters (of this rank's part if ranks share them),
  /// three with amsgrad. Throws error for invalid options.
  template <optimizable Model, detail::option_group... Groups>
  explicit adamw(Model& model, const adamw_options& options = {}, const Groups&... groups)
      : detail::adamw_of<T>{options} {
    this->take(model, groups...);
  }
};

// Refusals at compile time, selected by the deduction guides.
template <class Misuse>
requires(!floating<Misuse>) class adam<Misuse>;
template <class Model>
adam(Model&) -> adam<detail::number_or<Model, detail::misuse::adam_needs_an_initialized_model>>;
template <class Model, detail::option_group... Groups>
adam(Model&, const adam_options&, const Groups&...)
    -> adam<detail::number_or<Model, detail::misuse::adam_needs_an_initialized_model, Groups...>>;
template <class Model>
adam(const Model&&)
    -> adam<detail::misuse::adam_needs_a_model_that_outlives_it<detail::later<Model>>>;
template <class Model, detail::option_group... Groups>
adam(const Model&&, const adam_options&, const Groups&...)
    -> adam<detail::misuse::adam_needs_a_model_that_outlives_it<detail::later<Model>>>;
template <bool Lazy = false>
adam(...) -> adam<detail::misuse::adam_takes_a_model_and_its_options_in_braces<Lazy>>;
// Refusals at compile time, selected by the deduction guides.
template <class Misuse>
requires(!floating<Misuse>) class adamw<Misuse>;
template <class Model>
adamw(Model&) -> adamw<detail::number_or<Model, detail::misuse::adamw_needs_an_initialized_model>>;
template <class Model, detail::option_group... Groups>
adamw(Model&, const adamw_options&, const Groups&...)
    -> adamw<detail::number_or<Model, detail::misuse::adamw_needs_an_initialized_model, Groups...>>;
template <class Model>
adamw(const Model&&)
    -> adamw<detail::misuse::adamw_needs_a_model_that_outlives_it<detail::later<Model>>>;
template <class Model, detail::option_group... Groups>
adamw(const Model&&, const adamw_options&, const Groups&...)
    -> adamw<detail::misuse::adamw_needs_a_model_that_outlives_it<detail::later<Model>>>;
template <bool Lazy = false>
adamw(...) -> adamw<detail::misuse::adamw_takes_a_model_and_its_options_in_braces<Lazy>>;

}  // namespace ikebana
