#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>

#include "ikebana/core/aligned_buffer.hpp"
#include "ikebana/cpu/optim.hpp"
#include "ikebana/optim/optimizer.hpp"

namespace ikebana {

struct adam_options {
  double lr = 1e-3;
  double beta1 = 0.9;
  double beta2 = 0.999;
  double eps = 1e-8;
  double weight_decay = 0;  ///< Added to the gradient, times the parameter.
  bool amsgrad = false;
  bool maximize = false;
  double max_norm = std::numeric_limits<double>::infinity();  ///< See below.
  bool error_if_nonfinite = false;
};

struct adamw_options {
  double lr = 1e-3;
  double beta1 = 0.9;
  double beta2 = 0.999;
  double eps = 1e-8;
  double weight_decay = 1e-2;  ///< The parameter shrinks by lr times this.
  bool amsgrad = false;
  bool maximize = false;
  double max_norm = std::numeric_limits<double>::infinity();  ///< See below.
  bool error_if_nonfinite = false;
};

namespace detail {

/// Adam with weight decay in the gradient, or decoupled from it.
template <class T, class Options, bool Decoupled>
class adam_state {
 public:
  Options& options() { return options_; }
  const Options& options() const { return options_; }

  /// Updates all parameters by their gradients, in one pass. Allocates only if amsgrad has been
  /// switched on since the last step. Throws error for options that make no sense, before anything
  /// has changed.
  void step() {
    check();
    target_.begin_step();
    scale_ = target_.clip(options_.max_norm, options_.error_if_nonfinite, name);
    begin_update();
    target_.update(updater());
  }

  /// A step in parts, for those who know when which gradients are final: `begin_step`, then
  /// `step_elements(begin, end)` until every element of the flat parameters was in one range.
  void begin_step() {
    check();
    check_unclipped(name, options_.max_norm);
    target_.begin_step();
    scale_ = 1;
    begin_update();
  }
  void step_elements(dim_t begin, dim_t end) { target_.update(begin, end, updater()); }

  /// The norm of the gradients that the last step with max_norm found, before they were clipped.
  double gradient_norm() const { return target_.norm(); }

  /// What it remembers. `max_exp_avg_sq` is in use from the first step with amsgrad on.
  std::array<optimizer_state, 4> state() {
    return {optimizer_state::of("step", target_.steps()),
            optimizer_state::of("exp_avg", exp_avg_.span()),
            optimizer_state::of("exp_avg_sq", exp_avg_sq_.span()),
            optimizer_state::of("max_exp_avg_sq", max_exp_avg_sq_.span(), has_maximum_)};
  }

 protected:
  explicit adam_state(const Options& options) : options_{options} {}

  template <class Model>
  void take(Model& model) {
    check();
    target_.take(model);
    exp_avg_ = aligned_buffer<T>(target_.elements());
    exp_avg_sq_ = aligned_buffer<T>(target_.elements());
    make_maximum();
  }

 private:
  static constexpr const char* name = Decoupled ? "adamw" : "adam";

  void check() const {
    const Options& o = options_;
    check_option(o.lr >= 0, name, "learning rate", o.lr);
    check_option(o.eps >= 0, name, "epsilon value", o.eps);
    check_option(o.beta1 >= 0 && o.beta1 < 1, name, "beta parameter at index 0", o.beta1);
    check_option(o.beta2 >= 0 && o.beta2 < 1, name, "beta parameter at index 1", o.beta2);
    check_option(o.weight_decay >= 0, name, "weight_decay value", o.weight_decay);
    check_option(o.max_norm >= 0, name, "max_norm value", o.max_norm);
  }

  void begin_update() {
    make_maximum();
    target_.count_step();
  }

  void make_maximum() {
    if (!options_.amsgrad || has_maximum_) return;
    max_exp_avg_sq_ = aligned_buffer<T>(target_.elements());
    has_maximum_ = true;
  }

  auto updater() {
    return [this](dim_t n, T* parameters, const T* gradients, dim_t at, std::int64_t step) {
      const Options& o = options_;
      cpu::adam_step<T>(n, parameters, gradients, exp_avg_.data() + at, exp_avg_sq_.data() + at,
                        o.amsgrad ? max_exp_avg_sq_.data() + at : nullptr, o.lr, o.beta1, o.beta2,
                        o.eps, o.weight_decay, Decoupled, step, o.maximize, scale_);
    };
  }

  Options options_;
  optimizer_target<T> target_;
  aligned_buffer<T> exp_avg_;
  aligned_buffer<T> exp_avg_sq_;
  aligned_buffer<T> max_exp_avg_sq_;
  bool has_maximum_ = false;
  double scale_ = 1;
};

}  // namespace detail

/// Adam (Kingma and Ba, Adam: A Method for Stochastic Optimization, 2015; amsgrad: Reddi et al., On
/// the Convergence of Adam and Beyond, 2018), as PyTorch 1.13 computes it. `adam optimizer{model,
/// {.lr = 1e-3}};` The model must outlive it. Options may be changed between steps. State: exp_avg,
/// exp_avg_sq, max_exp_avg_sq, step.
///
/// With max_norm, a step takes the gradients of all parameters scaled so that their 2-norm is at
/// most that, as clip_grad_norm does, but in the same pass. With error_if_nonfinite it throws error
/// for a norm that is not finite, before anything has changed.
template <class T>
class adam : public detail::adam_state<T, adam_options, false> {
 public:
  /// Allocates two arrays as long as the parameters (this rank's, where ranks share them), three
  /// with amsgrad. Throws error for options that make no sense.
  template <class Model>
  explicit adam(Model& model, const adam_options& options = {})
      : detail::adam_state<T, adam_options, false>{options} {
    static_assert(
        optimizable<Model>,
        "ikebana: adam needs an initialized model: initialize<T, shape>(module, seed) gives one");
    if constexpr (optimizable<Model>) this->take(model);
  }

  /// A temporary model would be gone before the first step.
  template <class Model>
  explicit adam(const Model&&, const adam_options& = {}) = delete;
};

/// Adam with decoupled weight decay (Loshchilov and Hutter, Decoupled Weight Decay Regularization,
/// 2019), as PyTorch 1.13 computes it. Otherwise as `adam`.
template <class T>
class adamw : public detail::adam_state<T, adamw_options, true> {
 public:
  /// Allocates two arrays as long as the parameters (this rank's, where ranks share them), three
  /// with amsgrad. Throws error for options that make no sense.
  template <class Model>
  explicit adamw(Model& model, const adamw_options& options = {})
      : detail::adam_state<T, adamw_options, true>{options} {
    static_assert(
        optimizable<Model>,
        "ikebana: adamw needs an initialized model: initialize<T, shape>(module, seed) gives one");
    if constexpr (optimizable<Model>) this->take(model);
  }

  /// A temporary model would be gone before the first step.
  template <class Model>
  explicit adamw(const Model&&, const adamw_options& = {}) = delete;
};

template <class Model>
adam(Model&, const adam_options& = {}) -> adam<typename detail::number_of<Model>::type>;
template <class Model>
adam(const Model&&, const adam_options& = {}) -> adam<typename detail::number_of<Model>::type>;
template <class Model>
adamw(Model&, const adamw_options& = {}) -> adamw<typename detail::number_of<Model>::type>;
template <class Model>
adamw(const Model&&, const adamw_options& = {}) -> adamw<typename detail::number_of<Model>::type>;

}  // namespace ikebana
