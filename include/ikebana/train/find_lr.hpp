#pragma once

#include <cmath>
#include <cstddef>
#include <limits>
#include <vector>

#include "ikebana/core/error.hpp"
#include "ikebana/core/shape.hpp"
#include "ikebana/module/refusal.hpp"
#include "ikebana/optim/group.hpp"
#include "ikebana/train/fit.hpp"
#include "ikebana/train/training_state.hpp"

namespace ikebana {

/// Options of find_lr.
struct find_lr_options {
  double start = 1e-7, end = 10;
  int steps = 100;
  /// The weight of earlier losses in their moving average.
  double smoothing = 0.98;
  /// Ends when the average exceeds the least one so far by this factor.
  double diverged = 4;
};

/// The losses at the learning rates that find_lr tried.
struct lr_curve {
  std::vector<double> lr, loss;  ///< The loss is a moving average.

  /// The rate at which the loss falls fastest over the logarithm of the rate. Throws error if fewer
  /// than 3 rates were tried.
  double steepest() const {
    if (lr.size() < 3)
      throw error(
          "find_lr: fewer than 3 learning rates were tried: the loss diverged, or the loader has "
          "no batches");
    std::size_t best = 1;
    const auto slope = [&](std::size_t i) {
      return (loss[i + 1] - loss[i - 1]) / (std::log(lr[i + 1]) - std::log(lr[i - 1]));
    };
    for (std::size_t i = 2; i + 1 < lr.size(); ++i)
      if (slope(i) < slope(best)) best = i;
    return lr[best];
  }
};

/// Trains with learning rates that grow exponentially from `start` to `end`, and returns the losses
/// (Smith, Cyclical Learning Rates for Training Neural Networks, 2017; the moving average is
/// fastai's, corrected for its start). Afterwards model, optimizer and the loader's position are as
/// before. Rates of groups keep their ratio to that of all. Throws error for rates that are not
/// positive or less than 3 steps, and what training throws; then too all is restored. Allocates
/// copies of the training state.
template <class Model, class Loader, class Loss, class Optimizer>
lr_curve find_lr(Model& model, Loader& batches, const Loss& loss, Optimizer& optimizer,
                 const find_lr_options& options = {}) {
  if (!(options.start > 0) || !(options.end > options.start) || options.steps < 3)
    throw error("find_lr expects 0 < start < end and at least 3 steps");
  const state_dict before = get_training_state(model, optimizer).clone();
  const bool was_training = model.is_training();
  const auto position = batches.position();
  const auto restore = [&] {
    load_training_state(model, optimizer, before, saved_options::restore);
    model.train(was_training);
    batches.set_position(position);
  };
  const auto initial = static_cast<double>(optimizer.options().lr);
  std::vector<double> initial_of_groups;
  for (const parameter_group& g : detail::groups_of(optimizer))
    initial_of_groups.push_back(g.options.lr.value_or(0));

  lr_curve curve;
  double average = 0, least = std::numeric_limits<double>::infinity();
  model.train();
  try {
    for (bool goes_on = true; goes_on;) {
      const std::size_t tried = curve.lr.size();
      for (auto&& batch : batches) {
        const auto step = static_cast<double>(curve.lr.size());
        const double rate =
            options.start * std::pow(options.end / options.start, step / (options.steps - 1));
        optimizer.options().lr = static_cast<decltype(optimizer.options().lr)>(rate);
        std::size_t k = 0;
        for (parameter_group& g : detail::groups_of(optimizer)) {
          if (g.options.lr) g.options.lr = rate * initial_of_groups[k] / initial;
          ++k;
        }
        const double value = detail::with_batch(batch, [&](const auto& x, const auto& t) {
          return static_cast<double>(model.train_step(x, t, loss, optimizer));
        });
        average = options.smoothing * average + (1 - options.smoothing) * value;
        const double smooth = average / (1 - std::pow(options.smoothing, step + 1));
        if (!std::isfinite(smooth) || smooth > options.diverged * least) {
          goes_on = false;
          break;
        }
        least = smooth < least ? smooth : least;
        curve.lr.push_back(rate);
        curve.loss.push_back(smooth);
        if (curve.lr.size() == static_cast<std::size_t>(options.steps)) {
          goes_on = false;
          break;
        }
      }
      if (curve.lr.size() == tried) goes_on = false;  // The loader has no batches.
    }
  } catch (...) {
    restore();
    throw;
  }
  restore();
  return curve;
}

namespace detail::misuse {
IKEBANA_MISUSE(find_lr_takes_a_model_a_loader_a_loss_and_an_optimizer,
               "find_lr takes a model, a loader, a loss and an optimizer: find_lr(model, batches, "
               "cross_entropy{}, optimizer)");
}  // namespace detail::misuse

template <class... X>
auto find_lr(const X&...)
    -> decltype(detail::refuse_for<
                detail::misuse::find_lr_takes_a_model_a_loader_a_loss_and_an_optimizer, X...>());

}  // namespace ikebana
