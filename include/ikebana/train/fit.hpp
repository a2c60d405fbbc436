#pragma once

#include <cstddef>
#include <cstdio>
#include <functional>
#include <limits>
#include <type_traits>
#include <vector>

#include "ikebana/core/shape.hpp"
#include "ikebana/model/state.hpp"
#include "ikebana/model/state_dict.hpp"
#include "ikebana/train/metrics.hpp"

namespace ikebana {

/// What an epoch came to.
struct epoch_result {
  int epoch;               ///< Counted from 1.
  double loss;             ///< The mean of the batches' losses during the epoch, by their sizes.
  double validation_loss;  ///< In evaluation, after the epoch; NaN without validation data.
};

/// Options of fit.
struct fit_options {
  int epochs = 10;
  /// Ends after so many epochs without a lower validation loss; 0 for never.
  int patience = 0;
  /// What counts as lower: by more than this.
  double min_delta = 0;
  /// Restores the parameters and buffers of the epoch with the lowest validation loss.
  bool restore_best = false;
  /// Prints a line for each epoch, or nothing if null.
  std::FILE* log = nullptr;
  /// Called after each epoch; training ends if it returns false.
  std::function<bool(const epoch_result&)> callback = {};
};

/// The mean loss of a model over a loader's batches in evaluation, by their sizes; 0 if there are
/// none. Afterwards the model is in training mode if it was. Allocates nothing itself.
template <class Model, class Loader, class Loss>
double evaluate(Model& model, Loader&& batches, const Loss& loss) {
  const bool was_training = model.is_training();
  model.eval();
  running_mean mean;
  for (auto&& [x, t] : batches)
    mean.add(static_cast<double>(loss(model(x), t)),
             static_cast<double>(t.extents().rank() == 0 ? 1 : t.extent(0)));
  model.train(was_training);
  return mean.value();
}

namespace detail {

struct no_loader {};

template <class Model, class Loader, class Loss, class Optimizer, class Validation>
std::vector<epoch_result> fit(Model& model, Loader& batches, const Loss& loss, Optimizer& optimizer,
                              const fit_options& options, Validation& validation) {
  std::vector<epoch_result> history;
  state_dict best_state;
  double best = std::numeric_limits<double>::infinity();
  int since = 0;
  for (int epoch = 1; epoch <= options.epochs; ++epoch) {
    model.train();
    running_mean mean;
    for (auto&& [x, t] : batches)
      mean.add(static_cast<double>(model.train_step(x, t, loss, optimizer)),
               static_cast<double>(t.extents().rank() == 0 ? 1 : t.extent(0)));
    epoch_result result{epoch, mean.value(), std::numeric_limits<double>::quiet_NaN()};
    bool goes_on = true;
    if constexpr (!std::is_same_v<Validation, no_loader>) {
      result.validation_loss = evaluate(model, validation, loss);
      if (result.validation_loss < best - options.min_delta) {
        best = result.validation_loss;
        since = 0;
        if (options.restore_best) best_state = model.snapshot();
      } else if (++since == options.patience) {
        goes_on = false;
      }
    }
    history.push_back(result);
    if (options.log != nullptr) {
      std::fprintf(options.log, "epoch %d/%d  loss %.6g", epoch, options.epochs, result.loss);
      if constexpr (!std::is_same_v<Validation, no_loader>)
        std::fprintf(options.log, "  validation %.6g", result.validation_loss);
      std::fputc('\n', options.log);
    }
    if (options.callback && !options.callback(result)) goes_on = false;
    if (!goes_on) break;
  }
  if (options.restore_best && best_state.size() > 0) load_state_dict(model, best_state);
  return history;
}

}  // namespace detail

/// Trains a model on a loader's batches for some epochs: `fit(model, loader, cross_entropy{},
/// optimizer, {.epochs = 20})`. Returns what each epoch came to. What this does not offer is a loop
/// of two lines around train_step. Allocates per epoch, not per step; throws what train_step
/// throws.
template <class Model, class Loader, class Loss, class Optimizer>
std::vector<epoch_result> fit(Model& model, Loader& batches, const Loss& loss, Optimizer& optimizer,
                              const fit_options& options = {}) {
  detail::no_loader none;
  return detail::fit(model, batches, loss, optimizer, options, none);
}

/// The same with a loader of validation data, of which the loss is taken after each epoch, for
/// `patience` and `restore_best`.
template <class Model, class Loader, class Loss, class Optimizer, class Validation>
std::vector<epoch_result> fit(Model& model, Loader& batches, const Loss& loss, Optimizer& optimizer,
                              const fit_options& options, Validation& validation) {
  return detail::fit(model, batches, loss, optimizer, options, validation);
}

namespace detail::misuse {

IKEBANA_MISUSE(fit_takes_a_model_a_loader_a_loss_and_an_optimizer,
               "fit takes a model, a loader, a loss and an optimizer: fit(model, batches, "
               "cross_entropy{}, optimizer)");

}  // namespace detail::misuse

template <class... X>
auto fit(const X&...)
    -> decltype(detail::refuse_for<
                detail::misuse::fit_takes_a_model_a_loader_a_loss_and_an_optimizer, X...>());

}  // namespace ikebana
