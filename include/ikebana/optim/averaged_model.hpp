#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <optional>
#include <string>
#include <utility>

#include "ikebana/core/error.hpp"
#include "ikebana/core/shape.hpp"
#include "ikebana/cpu/elementwise.hpp"
#include "ikebana/module/module.hpp"
#include "ikebana/module/refusal.hpp"
#include "ikebana/optim/optimizer.hpp"

namespace ikebana {

namespace detail {

/// The argument of the averaged_model that a refusal stands for.
template <class Misuse>
struct no_average;

namespace misuse {
IKEBANA_MISUSE(averaged_model_takes_a_model_and_its_options,
               "averaged_model takes an initialized model and its options in braces: "
               "averaged_model{model, {.decay = 0.999}}");
}  // namespace misuse

}  // namespace detail

/// Options of averaged_model.
struct averaging_options {
  /// The decay of an exponential moving average, in [0, 1). Without one, all models count equally.
  std::optional<double> decay{};
};

/// A model whose parameters are the average of another's over the course of training, as PyTorch's
/// AveragedModel: stochastic weight averaging (Izmailov et al., Averaging Weights Leads to Wider
/// Optima and Better Generalization, 2018) or, with a decay, an exponential moving average (Polyak
/// and Juditsky, 1992). `averaged_model ema{model, {.decay = 0.999}};`, then
/// `ema.update_parameters(model)` after each step, and `ema(x)` to evaluate. Buffers, such as
/// running statistics, are the model's at the last update.
template <class Model>
class averaged_model {
  static_assert(!any_module<Model>,
                "ikebana: averaged_model needs an initialized model: initialize<T, shape>(module, "
                "seed) gives one");
  static_assert(
      any_module<Model> || requires(const Model& m) { m.clone(); },
      "ikebana: averaged_model takes a model: averaged_model average{model};");
  using T = typename Model::value_type;

 public:
  /// Clones the model, in evaluation mode. Allocates. Throws error unless 0 <= decay < 1.
  explicit averaged_model(const Model& model, const averaging_options& options = {})
      : options_{checked(options)}, model_{model.clone()} {
    model_.eval();
  }

  /// Takes the model's parameters into the average; the first time, they become it. The model must
  /// be the one that was cloned, or have the same parameters. Does not allocate. O(parameters).
  void update_parameters(const Model& model) {
    const auto from = model.parameters();
    const auto to = model_.parameters();
    if (from.size() != to.size())
      throw state_error("averaged_model: expected a model of " + std::to_string(to.size()) +
                        " parameters, got " + std::to_string(from.size()));
    const auto n = static_cast<dim_t>(to.size());
    const double kept =
        n_averaged_ == 0 ? 0
        : options_.decay ? *options_.decay
                         : static_cast<double>(n_averaged_) / static_cast<double>(n_averaged_ + 1);
    if (n_averaged_ == 0) {
      std::copy(from.begin(), from.end(), to.begin());
    } else {
      cpu::scale<T>(n, static_cast<T>(kept), to.data());
      cpu::axpy<T>(n, static_cast<T>(1 - kept), from.data(), to.data());
    }
    const auto buffers = model.buffers();
    if (!buffers.empty())
      std::memcpy(model_.buffers().data(), buffers.data(), buffers.size_bytes());
    ++n_averaged_;
  }

  /// The output of the averaged model.
  template <class... X>
  decltype(auto) operator()(X&&... x) {
    return model_(std::forward<X>(x)...);
  }

  /// The averaged model: `save(get_state_dict(ema.module()), path)`.
  Model& module() { return model_; }
  const Model& module() const { return model_; }

  /// The number of updates. To resume, load the module's state and set the number.
  std::int64_t n_averaged() const { return n_averaged_; }
  /// Throws state_error for a negative number.
  void set_n_averaged(std::int64_t n) {
    if (n < 0)
      throw state_error("averaged_model: expected a number of updates, got " + std::to_string(n));
    n_averaged_ = n;
  }

 private:
  static const averaging_options& checked(const averaging_options& o) {
    const double decay = o.decay.value_or(0);
    detail::check_option(decay >= 0 && decay < 1, "averaged_model", "decay", decay);
    return o;
  }

  averaging_options options_;
  Model model_;
  std::int64_t n_averaged_ = 0;
};
template <class Model>
averaged_model(const Model&) -> averaged_model<Model>;
template <class Model>
averaged_model(const Model&, const averaging_options&) -> averaged_model<Model>;
// A refusal at compile time, selected by the deduction guide.
template <class Misuse>
class averaged_model<detail::no_average<Misuse>>;
template <bool Lazy = false>
averaged_model(...) -> averaged_model<
    detail::no_average<detail::misuse::averaged_model_takes_a_model_and_its_options<Lazy>>>;

}  // namespace ikebana
