#pragma once

#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <functional>
#include <limits>
#include <string>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

#include "ikebana/core/error.hpp"
#include "ikebana/core/shape.hpp"
#include "ikebana/model/inputs.hpp"
#include "ikebana/model/state.hpp"
#include "ikebana/model/state_dict.hpp"
#include "ikebana/module/refusal.hpp"
#include "ikebana/optim/reduce_lr_on_plateau.hpp"
#include "ikebana/train/metrics.hpp"
#include "ikebana/train/progress.hpp"

namespace ikebana {

/// What an epoch came to.
struct epoch_result {
  int epoch;               ///< Counted from 1.
  double loss;             ///< The mean of the batches' losses during the epoch, by their sizes.
  double validation_loss;  ///< In evaluation, after the epoch; NaN without validation data.
};

/// What a step came to.
struct step_result {
  int epoch;          ///< Counted from 1.
  std::int64_t step;  ///< Of all epochs, counted from 1.
  double loss;        ///< Of the batch, before the step.
};

/// A function that fit calls after each epoch, `[](const epoch_result& r) { .. }`, or after each
/// step, `[](const step_result& r) { .. }`. Training ends if it returns false.
class fit_callback {
 public:
  template <class F>
  requires std::is_invocable_v<F&, const epoch_result&> fit_callback(F f)
      : epoch_{wrap<epoch_result>(std::move(f))} {}
  template <class F>
  requires std::is_invocable_v<F&, const step_result&> fit_callback(F f)
      : step_{wrap<step_result>(std::move(f))} {}

  bool operator()(const epoch_result& r) const { return !epoch_ || epoch_(r); }
  bool operator()(const step_result& r) const { return !step_ || step_(r); }

 private:
  template <class R, class F>
  static std::function<bool(const R&)> wrap(F f) {
    return [f = std::move(f)](const R& r) mutable {
      if constexpr (std::is_same_v<std::invoke_result_t<F&, const R&>, bool>) {
        return f(r);
      } else {
        f(r);
        return true;
      }
    };
  }

  std::function<bool(const epoch_result&)> epoch_;
  std::function<bool(const step_result&)> step_;
};

/// Writes the losses of each epoch to a csv_log or a tensorboard_log, which must outlive fit:
/// `.callbacks = {log_to(log)}`.
template <class Log>
fit_callback log_to(Log& log) {
  return [&log](const epoch_result& r) {
    if (r.validation_loss == r.validation_loss)
      log.add(r.epoch, {{"loss", r.loss}, {"validation", r.validation_loss}});
    else
      log.add(r.epoch, {{"loss", r.loss}});
  };
}

/// When fit ends before its last epoch.
struct early_stopping {
  /// Ends after so many epochs without a better validation; 0 for never. NaN is never better.
  int patience = 0;
  /// What counts as better: by more than this.
  double min_delta = 0;
  /// Restores the parameters and buffers of the best epoch in the end.
  bool restore_best = false;
  /// Whether the least validation is the best, or the largest.
  metric_mode mode = metric_mode::min;
};

/// Options of fit.
struct fit_options {
  int epochs = 10;
  /// The metric of an epoch: `[&] { return evaluate(model, loader, loss); }`.
  std::function<double()> validate = {};
  ikebana::early_stopping early_stopping = {};
  std::vector<fit_callback> callbacks = {};
  /// Prints a line for each epoch, or nothing if null.
  std::FILE* log = nullptr;
  /// Draws a progress_bar for each epoch, with the time left of the epoch, or nothing if null. The
  /// loader must have samples().
  std::FILE* progress = nullptr;
};

namespace detail {

/// Calls f(inputs, target) for a batch: a struct of both, or a tuple that ends with the target.
template <class Batch, class F>
decltype(auto) with_batch(Batch&& batch, F&& f) {
  if constexpr (requires { batch.x, batch.t; }) {
    return f(batch.x, batch.t);
  } else {
    using tuple = std::remove_cvref_t<Batch>;
    constexpr std::size_t n = std::tuple_size_v<tuple>;
    static_assert(n >= 2, "ikebana: a batch for training has inputs and, last, a target");
    if constexpr (n == 2)
      return f(std::get<0>(batch), std::get<1>(batch));
    else
      return [&]<std::size_t... I>(std::index_sequence<I...>)->decltype(auto) {
        return f(inputs(std::get<I>(batch)...), std::get<n - 1>(batch));
      }
    (std::make_index_sequence<n - 1>());
  }
}

/// The output of a model for such inputs.
template <class Model, class X>
decltype(auto) output_of(Model& model, const X& x) {
  if constexpr (is_input_pack<X>)
    return std::apply([&](const auto&... a) -> decltype(auto) { return model(a...); }, x.items);
  else
    return model(x);
}

/// What gives batches.
template <class X>
concept batch_range = requires(X& x) {
  x.begin();
  x.end();
};

/// The samples of a target.
template <class Target>
double samples_in(const Target& t) {
  return static_cast<double>(t.extents().rank() == 0 ? 1 : t.extents()[0]);
}

}  // namespace detail

/// The mean loss of a model over a loader's batches in evaluation, by their sizes; 0 if there are
/// none. Afterwards the model is in training mode if it was. Allocates nothing itself.
template <class Model, class Loader, class Loss>
double evaluate(Model& model, Loader&& batches, const Loss& loss) {
  const bool was_training = model.is_training();
  model.eval();
  running_mean mean;
  for (auto&& batch : batches)
    detail::with_batch(batch, [&](const auto& x, const auto& t) {
      mean.add(static_cast<double>(loss(detail::output_of(model, x), t)), detail::samples_in(t));
    });
  model.train(was_training);
  return mean.value();
}

/// Trains a model on a loader's batches for some epochs: `fit(model, loader, cross_entropy{},
/// optimizer, {.epochs = 20})`. A batch is a pair of inputs and target, or a tuple of several
/// inputs and, last, the target. Returns what each epoch came to. What this does not offer is a
/// loop of two lines around train_step. Allocates per epoch, not per step; throws error for
/// early stopping without a validation and for an epoch without samples, and what train_step, the
/// loader and the functions throw.
template <class Model, detail::batch_range Loader, class Loss, class Optimizer>
std::vector<epoch_result> fit(Model& model, Loader& batches, const Loss& loss, Optimizer& optimizer,
                              const fit_options& options = {}) {
  const ikebana::early_stopping& stop = options.early_stopping;
  if ((stop.patience > 0 || stop.restore_best) && !options.validate)
    throw error("fit: early_stopping needs a validation: .validate, or a loader as last argument");
  std::vector<epoch_result> history;
  state_dict best_state;
  double best = std::numeric_limits<double>::quiet_NaN();
  int since = 0;
  std::int64_t step = 0;
  bool goes_on = true;
  const auto call = [&](const auto& result) {
    for (const fit_callback& f : options.callbacks) goes_on = f(result) && goes_on;
  };
  for (int epoch = 1; goes_on && epoch <= options.epochs; ++epoch) {
    model.train();
    running_mean mean;
    const std::string label =
        "epoch " + std::to_string(epoch) + '/' + std::to_string(options.epochs);
    {
      dim_t samples = 0;
      if constexpr (requires { batches.samples(); }) samples = batches.samples();
      progress_bar bar(samples, {.label = label,
                                 .to = options.progress != nullptr ? options.progress : stderr,
                                 .enabled = options.progress != nullptr});
      for (auto&& batch : batches) {
        detail::with_batch(batch, [&](const auto& x, const auto& t) {
          const auto value = static_cast<double>(model.train_step(x, t, loss, optimizer));
          mean.add(value, detail::samples_in(t));
          bar.set("loss", mean.value());
          bar.advance(static_cast<dim_t>(detail::samples_in(t)));
          call(step_result{epoch, ++step, value});
        });
        if (!goes_on) break;
      }
    }
    if (mean.weight() == 0)
      throw error(
          "fit: the loader has no samples in an epoch (fewer than a batch, and drop_last?)");
    epoch_result result{epoch, mean.value(), std::numeric_limits<double>::quiet_NaN()};
    if (options.validate) {
      const double metric = result.validation_loss = options.validate();
      const bool is_number = metric == metric;
      if (is_number &&
          (best != best || (stop.mode == metric_mode::min ? metric < best - stop.min_delta
                                                          : metric > best + stop.min_delta))) {
        best = metric;
        since = 0;
        if (stop.restore_best) best_state = model.snapshot();
      } else if (++since == stop.patience) {
        goes_on = false;
      }
    }
    history.push_back(result);
    if (options.log != nullptr) {
      std::fprintf(options.log, "%s  loss %.6g", label.c_str(), result.loss);
      if (options.validate) std::fprintf(options.log, "  validation %.6g", result.validation_loss);
      std::fputc('\n', options.log);
    }
    call(result);
  }
  if (stop.restore_best && best_state.size() > 0) load_state_dict(model, best_state);
  return history;
}

/// The same with a loader of validation data, whose mean loss is `validate`.
template <class Model, detail::batch_range Loader, class Loss, class Optimizer, class Validation>
std::vector<epoch_result> fit(Model& model, Loader& batches, const Loss& loss, Optimizer& optimizer,
                              fit_options options, Validation& validation) {
  options.validate = [&] { return evaluate(model, validation, loss); };
  return fit(model, batches, loss, optimizer, options);
}

namespace detail::misuse {

IKEBANA_MISUSE(fit_takes_a_model_a_loader_a_loss_and_an_optimizer,
               "fit takes a model, a loader, a loss and an optimizer: fit(model, batches, "
               "cross_entropy{}, optimizer)");
IKEBANA_MISUSE(
    fit_takes_batches_and_no_tensors,
    "fit takes batches, no tensors: tensor_dataset data{x, t}; data_loader batches{data, "
    "{.batch = 32}}; fit(model, batches, cross_entropy{}, optimizer)");

}  // namespace detail::misuse

template <class M, class Loader, class Loss, class Optimizer>
auto fit(const M&, const Loader&, const Loss&, const Optimizer&, const fit_options&)
    -> decltype(detail::refuse_for<
                detail::misuse::fit_takes_a_model_a_loader_a_loss_and_an_optimizer, M, Loader, Loss,
                Optimizer>());
template <class M, tensor_like X, class T, class Loss, class Optimizer>
auto fit(const M&, const X&, const T&, const Loss&, const Optimizer&, const fit_options& = {})
    -> decltype(detail::refuse_for<detail::misuse::fit_takes_batches_and_no_tensors, M, X, T, Loss,
                                   Optimizer>());
template <class... X>
auto fit(const X&...)
    -> decltype(detail::refuse_for<
                detail::misuse::fit_takes_a_model_a_loader_a_loss_and_an_optimizer, X...>());

}  // namespace ikebana
