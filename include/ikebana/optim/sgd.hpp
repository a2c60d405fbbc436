#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>

#include "ikebana/core/aligned_buffer.hpp"
#include "ikebana/core/error.hpp"
#include "ikebana/cpu/optim.hpp"
#include "ikebana/optim/optimizer.hpp"

namespace ikebana {

struct sgd_options {
  double lr = std::numeric_limits<double>::quiet_NaN();  ///< Required.
  double momentum = 0;
  double dampening = 0;
  double weight_decay = 0;
  bool nesterov = false;
  bool maximize = false;
  double max_norm = std::numeric_limits<double>::infinity();  ///< See below.
  bool error_if_nonfinite = false;
};

/// Stochastic gradient descent with momentum (Sutskever et al., On the importance of initialization
/// and momentum in deep learning, 2013), as PyTorch 1.13 computes it. `sgd optimizer{model, {.lr =
/// 0.1, .momentum = 0.9}};` The model must outlive it. Options may be changed between steps.
///
/// With max_norm, a step takes the gradients of all parameters scaled so that their 2-norm is at
/// most that, as clip_grad_norm does, but in the same pass. With error_if_nonfinite it throws error
/// for a norm that is not finite, before anything has changed.
template <class T>
class sgd {
 public:
  /// Allocates the momentum buffer if momentum is not 0. Throws error for options that make no
  /// sense.
  template <class Model>
  sgd(Model& model, const sgd_options& options) : options_{options} {
    static_assert(
        optimizable<Model>,
        "ikebana: sgd needs an initialized model: initialize<T, shape>(module, seed) gives one");
    if constexpr (optimizable<Model>) {
      check();
      target_.take(model);
      make_momentum_buffer();
    }
  }

  template <class Model>
  explicit sgd(Model&) {
    static_assert(sizeof(Model) == 0,
                  "ikebana: sgd needs a learning rate: sgd{model, {.lr = 0.1}}");
  }

  /// A temporary model would be gone before the first step.
  template <class Model>
  sgd(const Model&&, const sgd_options&) = delete;

  sgd_options& options() { return options_; }
  const sgd_options& options() const { return options_; }

  /// Updates all parameters by their gradients, in one pass. Allocates only if momentum was 0 in
  /// all steps before and is not any more. Throws error for options that make no sense, before
  /// anything has changed.
  void step() {
    check();
    target_.begin_step();
    scale_ = static_cast<T>(target_.clip(options_.max_norm, options_.error_if_nonfinite, "sgd"));
    begin_update();
    target_.update(updater());
  }

  /// A step in parts, for those who know when which gradients are final: `begin_step`, then
  /// `step_elements(begin, end)` until every element of the flat parameters was in one range.
  void begin_step() {
    check();
    detail::check_unclipped("sgd", options_.max_norm);
    target_.begin_step();
    scale_ = T(1);
    begin_update();
  }
  void step_elements(dim_t begin, dim_t end) { target_.update(begin, end, updater()); }

  /// The norm of the gradients that the last step with max_norm found, before they were clipped.
  double gradient_norm() const { return target_.norm(); }

  /// What it remembers: `momentum_buffer`, in use from the first step with momentum, and `step`,
  /// which counts those.
  std::array<optimizer_state, 2> state() {
    return {optimizer_state::of("step", target_.steps()),
            optimizer_state::of("momentum_buffer", momentum_buffer_.span(), has_momentum_)};
  }

 private:
  void check() const {
    const sgd_options& o = options_;
    if (o.lr != o.lr) throw error("sgd: needs a learning rate: sgd{model, {.lr = 0.1}}");
    detail::check_option(o.lr >= 0, "sgd", "learning rate", o.lr);
    detail::check_option(o.momentum >= 0, "sgd", "momentum value", o.momentum);
    detail::check_option(o.weight_decay >= 0, "sgd", "weight_decay value", o.weight_decay);
    detail::check_option(o.max_norm >= 0, "sgd", "max_norm value", o.max_norm);
    if (o.nesterov && (o.momentum <= 0 || o.dampening != 0))
      throw error("sgd: Nesterov momentum requires a momentum and zero dampening");
  }

  void begin_update() {
    make_momentum_buffer();
    if (options_.momentum != 0) target_.count_step();
  }

  void make_momentum_buffer() {
    if (options_.momentum == 0 || has_momentum_) return;
    momentum_buffer_ = aligned_buffer<T>(target_.elements());
    has_momentum_ = true;
  }

  auto updater() {
    return [this](dim_t n, T* parameters, const T* gradients, dim_t at, std::int64_t step) {
      const sgd_options& o = options_;
      cpu::sgd_step<T>(
          n, parameters, gradients, o.momentum != 0 ? momentum_buffer_.data() + at : nullptr,
          static_cast<T>(o.lr), static_cast<T>(o.momentum), static_cast<T>(o.dampening),
          static_cast<T>(o.weight_decay), o.nesterov, step == 1, o.maximize, scale_);
    };
  }

  sgd_options options_;
  detail::optimizer_target<T> target_;
  aligned_buffer<T> momentum_buffer_;
  bool has_momentum_ = false;
  T scale_ = T(1);
};

template <class Model>
sgd(Model&, const sgd_options&) -> sgd<typename detail::number_of<Model>::type>;
template <class Model>
sgd(Model&) -> sgd<typename detail::number_of<Model>::type>;
template <class Model>
sgd(const Model&&, const sgd_options&) -> sgd<typename detail::number_of<Model>::type>;

}  // namespace ikebana
