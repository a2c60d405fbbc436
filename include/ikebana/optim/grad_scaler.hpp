#pragma once

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "ikebana/core/diagnostic.hpp"
#include "ikebana/core/error.hpp"
#include "ikebana/core/shape.hpp"
#include "ikebana/cpu/elementwise.hpp"
#include "ikebana/cpu/round.hpp"
#include "ikebana/module/refusal.hpp"
#include "ikebana/optim/clip_grad.hpp"
#include "ikebana/optim/optimizer.hpp"

namespace ikebana {

/// Options of grad_scaler, as in PyTorch's GradScaler.
struct grad_scaler_options {
  double init_scale = 65536;            ///< Above 0.
  double growth_factor = 2;             ///< Above 1.
  double backoff_factor = 0.5;          ///< Below 1.
  std::int64_t growth_interval = 2000;  ///< Consecutive steps without overflow.
  bool enabled = true;                  ///< If false, the scale is 1 and nothing is checked.
};

/// The state of a grad_scaler, to be saved in a checkpoint.
struct grad_scaler_state {
  double scale = 0;
  std::int64_t growth_tracker = 0;
  constexpr bool operator==(const grad_scaler_state&) const = default;
};

namespace detail::misuse {
IKEBANA_MISUSE(scaler_steps_a_model,
               "step of grad_scaler takes the model and its optimizer: scaler.step(model, "
               "optimizer)");
}  // namespace detail::misuse

/// A loss whose gradient is multiplied by a factor, but not its value. Created by `grad_scaler`.
template <class Loss>
class scaled_loss {
 public:
  constexpr scaled_loss() = default;
  constexpr scaled_loss(Loss loss, double factor) : loss_{std::move(loss)}, factor_{factor} {}

  static constexpr diagnostic check(const shape& prediction, const shape& target) {
    return Loss::check(prediction, target);
  }
  template <class U>
  static constexpr diagnostic check_shapes(const shape& prediction,
                                           const shape& target) requires(requires {
    Loss::template check_shapes<U>(prediction, target);
  }) {
    return Loss::template check_shapes<U>(prediction, target);
  }
  template <class Target>
  void validate(const shape& prediction, const Target& target) const {
    loss_.validate(prediction, target);
  }
  template <class Prediction, class Target, class T>
  T backward(const Prediction& prediction, const Target& target, T* gradient) const {
    const T value = loss_.backward(prediction, target, gradient);
    if (gradient != nullptr)
      cpu::scale<T>(prediction.extents().numel(), static_cast<T>(factor_), gradient);
    return value;
  }

 private:
  Loss loss_{};
  double factor_ = 1;
};

/// Scales the loss so that small gradients do not underflow in float16, and skips steps in which
/// large ones overflow (torch.cuda.amp.GradScaler, with the same defaults). For a model in
/// `mixed_precision<float16, ...>`:
///
///     ike::grad_scaler scaler;
///     for (...) {
///       net.zero_grad();
///       net.loss_backward(x, y, scaler.scale(ike::cross_entropy{}));
///       scaler.step(net, optimizer);
///       scaler.update();
///     }
///
/// Gradients may be accumulated between `update` and `step`, with one scale. Several models may
/// share a scaler: `update` follows the steps of all. With replicas, every rank runs the same
/// calls: an overflow on one is an overflow on all, since gradients are reduced.
///
/// A template, so that it is compiled only where it is used.
template <class>
class basic_grad_scaler {
 public:
  /// Throws error for invalid options.
  explicit basic_grad_scaler(const grad_scaler_options& options = {})
      : options_{options}, scale_{static_cast<float>(options.init_scale)} {
    const grad_scaler_options& o = options_;
    detail::check_option(o.init_scale > 0, "grad_scaler", "init_scale", o.init_scale);
    detail::check_option(o.growth_factor > 1, "grad_scaler", "growth_factor", o.growth_factor);
    detail::check_option(o.backoff_factor > 0 && o.backoff_factor < 1, "grad_scaler",
                         "backoff_factor", o.backoff_factor);
    detail::check_option(o.growth_interval > 0, "grad_scaler", "growth_interval",
                         static_cast<double>(o.growth_interval));
    seen_.reserve(4);
  }

  /// The factor of the gradients.
  double scale() const { return options_.enabled ? static_cast<double>(scale_) : 1; }
  bool is_enabled() const { return options_.enabled; }

  /// The loss with its gradient scaled and its value unchanged.
  template <class Loss>
  scaled_loss<Loss> scale(Loss loss) const {
    return {std::move(loss), scale()};
  }

  /// Divides the gradients by the scale once they are complete, and before clipping. `step` does it
  /// unless the caller has. Returns whether all are finite. Throws error if they were already
  /// unscaled, or a step was made, since the last update. Called on all ranks. O(parameters).
  template <class Model>
  bool unscale(Model& model) {
    static_assert(optimizable<Model>,
                  "ikebana: grad_scaler needs an initialized model: initialize<T, shape>(module, "
                  "seed) gives one");
    static_assert(!detail::steps_while_backward_runs<Model>,
                  "ikebana: grad_scaler needs all gradients before any step, and with "
                  "optimizer_in_backward there is no such moment");
    if (!options_.enabled) return true;
    using T = typename Model::value_type;
    const std::span<T> gradients = model.gradients();
    if (const entry* e = find(gradients.data()))
      throw error(e->stepped ? "grad_scaler: unscale is called after step"
                             : "grad_scaler: unscale was called already since the last update");
    // In float, as in PyTorch, whose scale is a float.
    const auto inverse = static_cast<T>(static_cast<float>(1 / static_cast<double>(scale_)));
    bool finite = true;
    if constexpr (sharded_optimizable<Model>) {
      // Elements that other ranks update are left alone.
      for (const auto& r : model.shards()->ranges())
        finite = cpu::scale_finite<T>(r.size(), inverse, gradients.data() + r.begin) && finite;
      finite = model.shards()->max(finite ? 0 : 1) == 0;
    } else {
      finite =
          cpu::scale_finite<T>(static_cast<dim_t>(gradients.size()), inverse, gradients.data());
    }
    seen_.push_back({gradients.data(), finite, false});
    return finite;
  }

  /// The optimizer's step on unscaled gradients, skipped unless all are finite; returns whether it
  /// was made. Throws error for a second step since the last update. Called on all ranks.
  template <class Model, class Optimizer>
  bool step(Model& model, Optimizer& optimizer) {
    if (options_.enabled) {
      entry* e = find(model.gradients().data());
      if (e != nullptr && e->stepped)
        throw error("grad_scaler: step was called already since the last update");
      if (e == nullptr) {
        unscale(model);
        e = &seen_.back();
      }
      e->stepped = true;
      if (!e->finite) return false;
    }
    if constexpr (requires { model.step(optimizer); })
      model.step(optimizer);
    else
      optimizer.step();
    return true;
  }

  template <class Optimizer>
  auto step(const Optimizer&)
      -> decltype(detail::refuse_for<detail::misuse::scaler_steps_a_model, Optimizer>());

  /// Called after the last step of an iteration: the scale shrinks if a step was skipped, and grows
  /// after growth_interval iterations without a skipped step. Throws error if nothing was unscaled.
  void update() {
    if (!options_.enabled) return;
    if (seen_.empty()) throw error("grad_scaler: update needs an unscale or a step before it");
    bool finite = true;
    for (const entry& e : seen_) finite = finite && e.finite;
    seen_.clear();
    if (!finite) {
      scale_ = static_cast<float>(static_cast<double>(scale_) * options_.backoff_factor);
      growth_tracker_ = 0;
    } else if (++growth_tracker_ == options_.growth_interval) {
      const auto grown = static_cast<float>(static_cast<double>(scale_) * options_.growth_factor);
      if (std::isfinite(grown)) scale_ = grown;
      growth_tracker_ = 0;
    }
  }
  /// Sets the scale for the following iterations.
  void update(double new_scale) {
    scale_ = static_cast<float>(new_scale);
    seen_.clear();
  }

  grad_scaler_options& options() { return options_; }
  const grad_scaler_options& options() const { return options_; }

  grad_scaler_state state() const { return {static_cast<double>(scale_), growth_tracker_}; }
  /// Throws state_error if a scaler cannot have this state.
  void load_state(const grad_scaler_state& state) {
    if (!(state.scale > 0) || !std::isfinite(static_cast<float>(state.scale)))
      throw state_error("grad_scaler: expected a scale above 0, got " +
                        std::to_string(state.scale));
    if (state.growth_tracker < 0)
      throw state_error("grad_scaler: expected a number of steps as growth_tracker, got " +
                        std::to_string(state.growth_tracker));
    scale_ = static_cast<float>(state.scale);
    growth_tracker_ = state.growth_tracker;
  }

 private:
  /// A model's gradients since the last update.
  struct entry {
    const void* gradients;
    bool finite, stepped;
  };

  entry* find(const void* gradients) {
    for (entry& e : seen_)
      if (e.gradients == gradients) return &e;
    return nullptr;
  }

  grad_scaler_options options_;
  float scale_;
  std::int64_t growth_tracker_ = 0;
  std::vector<entry> seen_;
};
using grad_scaler = basic_grad_scaler<void>;

}  // namespace ikebana
