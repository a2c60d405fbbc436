#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>

#include "ikebana/core/aligned_buffer.hpp"
#include "ikebana/core/dtype.hpp"
#include "ikebana/core/error.hpp"
#include "ikebana/cpu/optim.hpp"
#include "ikebana/module/refusal.hpp"
#include "ikebana/optim/optimizer.hpp"

namespace ikebana {

/// Options of sgd: those of PyTorch with its defaults, and clipping by norm.
struct sgd_options {
  double lr = std::numeric_limits<double>::quiet_NaN();  ///< Required.
  double momentum = 0;
  double dampening = 0;
  double weight_decay = 0;
  bool nesterov = false;
  bool maximize = false;
  double max_norm = std::numeric_limits<double>::infinity();  ///< Clips by norm, see sgd.
  bool error_if_nonfinite = false;  ///< Throws error if the norm of the gradients is not finite.
};

namespace detail::misuse {

IKEBANA_MISUSE(
    sgd_needs_an_initialized_model,
    "sgd needs an initialized model, not const: initialize<T, shape>(module, seed) gives one");
IKEBANA_MISUSE(sgd_needs_a_model_that_outlives_it,
               "sgd needs a model that outlives it: not a temporary, nor parameters()");
IKEBANA_MISUSE(
    sgd_takes_a_model_and_its_options_in_braces,
    "sgd takes a model and its options in braces, sgd{model, {.lr = 0.1, .momentum = 0.9}}, which "
    "are lr, momentum, dampening, weight_decay, nesterov, maximize, max_norm, error_if_nonfinite");
IKEBANA_MISUSE(sgd_needs_a_learning_rate, "sgd needs a learning rate: sgd{model, {.lr = 0.1}}");

}  // namespace detail::misuse

/// Stochastic gradient descent with momentum (Sutskever et al., On the importance of initialization
/// and momentum in deep learning, 2013), as in PyTorch 1.13. `sgd optimizer{model, {.lr = 0.1,
/// .momentum = 0.9}};` The model must outlive it. Options may be changed between steps.
///
/// With max_norm, a step scales the gradients of all parameters so that their 2-norm is at most
/// max_norm, as clip_grad_norm does, but in the same pass and without changing the stored
/// gradients. With error_if_nonfinite it throws error if the norm is not finite, before anything
/// has changed.
template <class T>
class sgd {
 public:
  using value_type = T;

  /// Allocates the momentum buffer if momentum is not 0. Throws error for invalid options.
  template <optimizable Model, detail::option_group... Groups>
  sgd(Model& model, const sgd_options& options, const Groups&... groups)
      : options_{"sgd", options} {
    options_.take(model, groups...);
    check_options();
    target_.take(model);
    make_momentum_buffer();
  }

  sgd_options& options() { return options_.all; }
  const sgd_options& options() const { return options_.all; }
  /// The options of groups of parameters, which may be changed like the others.
  std::span<parameter_group> groups() { return options_.groups(); }
  /// Throws error for invalid options.
  void check_options() const {
    options_.for_each([](const sgd_options& o) {
      if (o.lr != o.lr) throw error("sgd: needs a learning rate: sgd{model, {.lr = 0.1}}");
      detail::check_option(o.lr >= 0, "sgd", "learning rate", o.lr);
      detail::check_option(o.momentum >= 0, "sgd", "momentum value", o.momentum);
      detail::check_option(o.weight_decay >= 0, "sgd", "weight_decay value", o.weight_decay);
      detail::check_option(o.max_norm >= 0, "sgd", "max_norm value", o.max_norm);
      if (o.nesterov && (o.momentum <= 0 || o.dampening != 0))
        throw error("sgd: Nesterov momentum requires a momentum and zero dampening");
    });
  }

  /// Updates all parameters from their gradients, in one pass. Allocates only if momentum was 0 in
  /// all earlier steps and no longer is. Throws error for invalid options, before anything has
  /// changed. O(parameters).
  void step() {
    check_options();
    target_.begin_step();
    scale_ =
        static_cast<T>(target_.clip(options_.all.max_norm, options_.all.error_if_nonfinite, "sgd"));
    begin_update();
    target_.update(options_.segments(), updater(), [this](std::size_t set) {
      const sgd_options o = options_[set];
      return o.momentum == 0 && o.weight_decay == 0;
    });
  }

  /// A step in parts, for callers that know when each gradient is final: `begin_step`, then
  /// `step_elements(begin, end)` until every element of the flat parameters has been in exactly one
  /// range.
  void begin_step() {
    check_options();
    detail::check_unclipped("sgd", options_.all.max_norm);
    target_.begin_step();
    scale_ = T(1);
    begin_update();
  }
  void step_elements(dim_t begin, dim_t end) {
    target_.update(options_.segments(), begin, end, updater());
  }

  /// Whether the optimizer was made for this model, and the model still exists. Used by train_step.
  template <class Model>
  bool updates(const Model& model) const {
    return target_.updates(model);
  }

  /// The gradient norm that the last step with max_norm found, before clipping.
  double gradient_norm() const { return target_.norm(); }

  /// The optimizer's state: `momentum_buffer`, in use from the first step with momentum on, and
  /// `step`, which counts those steps.
  std::array<optimizer_state, 2> state() {
    return {optimizer_state::of("step", target_.steps()),
            optimizer_state::of("momentum_buffer", momentum_buffer_.span(), has_momentum_)};
  }

 private:
  bool has_momentum() const {
    return options_.any([](const sgd_options& o) { return o.momentum != 0; });
  }

  void begin_update() {
    make_momentum_buffer();
    if (has_momentum()) target_.count_step();
  }

  void make_momentum_buffer() {
    if (has_momentum_ || !has_momentum()) return;
    momentum_buffer_ = aligned_buffer<T>(target_.elements());
    has_momentum_ = true;
  }

  auto updater() {
    return [this](dim_t n, T* parameters, const T* gradients, dim_t at, std::int64_t step,
                  std::size_t set) {
      const sgd_options o = options_[set];
      cpu::sgd_step<T>(
          n, parameters, gradients, o.momentum != 0 ? momentum_buffer_.data() + at : nullptr,
          static_cast<T>(o.lr), static_cast<T>(o.momentum), static_cast<T>(o.dampening),
          static_cast<T>(o.weight_decay), o.nesterov, step == 1, o.maximize, scale_);
    };
  }

  detail::grouped_options<sgd_options> options_;
  detail::optimizer_target<T> target_;
  aligned_buffer<T> momentum_buffer_;
  bool has_momentum_ = false;
  T scale_ = T(1);
};

// Refusals at compile time, selected by the deduction guides.
template <class Misuse>
requires(!floating<Misuse>) class sgd<Misuse>;
template <class Model>
sgd(Model&) -> sgd<detail::misuse::sgd_needs_a_learning_rate<detail::later<Model>>>;
template <class Model, detail::option_group... Groups>
sgd(Model&, const sgd_options&, const Groups&...)
    -> sgd<detail::number_or<Model, detail::misuse::sgd_needs_an_initialized_model, Groups...>>;
template <class Model, detail::option_group... Groups>
sgd(const Model&&, const sgd_options&, const Groups&...)
    -> sgd<detail::misuse::sgd_needs_a_model_that_outlives_it<detail::later<Model>>>;
template <bool Lazy = false>
sgd(...) -> sgd<detail::misuse::sgd_takes_a_model_and_its_options_in_braces<Lazy>>;

}  // namespace ikebana
