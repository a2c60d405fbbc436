#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <string_view>
#include <tuple>

#include "ikebana/core/aligned_buffer.hpp"
#include "ikebana/cpu/optim_rules.hpp"
#include "ikebana/module/refusal.hpp"
#include "ikebana/optim/optimizer.hpp"

namespace ikebana::detail {

namespace misuse {
IKEBANA_MISUSE(optimizer_needs_an_initialized_model,
               "an optimizer needs an initialized model, not const: initialize<T, shape>(module, "
               "seed) gives one");
IKEBANA_MISUSE(optimizer_needs_a_model_that_outlives_it,
               "an optimizer needs a model that outlives it: not a temporary, nor parameters()");
IKEBANA_MISUSE(
    optimizer_takes_a_model_and_its_options_in_braces,
    "an optimizer takes a model and its options in braces: rmsprop{model, {.lr = 0.01}}");
}  // namespace misuse

/// An array of an optimizer's state, with one element per parameter.
struct state_array {
  std::string_view name;
  bool in_use = true;
  double initial = 0;
};

/// An optimizer whose update is a function of each element. Rule has
/// - `options`, with lr, maximize, max_norm and error_if_nonfinite; `name`;
/// - `check(options)`, which throws error for invalid ones;
/// - `arrays(options)`: the arrays of its state;
/// - `factors(options, step)`, as its kernel takes them; `weight_decay(options)`;
/// - `step(arrays)`: its kernel.
template <class T, class Rule>
class elementwise_optimizer {
 public:
  using value_type = T;

  using options_type = typename Rule::options;

  options_type& options() { return options_; }
  const options_type& options() const { return options_; }
  /// Throws error for invalid options.
  void check_options() const {
    check_option(options_.lr >= 0, Rule::name, "learning rate", options_.lr);
    check_option(options_.max_norm >= 0, Rule::name, "max_norm value", options_.max_norm);
    Rule::check(options_);
  }

  /// Updates all parameters from their gradients, in one pass. Allocates only if an option that
  /// needs another array was switched on since the last step. Throws error for invalid options,
  /// before anything has changed. O(parameters).
  void step() {
    check_options();
    target_.begin_step();
    scale_ = target_.clip(options_.max_norm, options_.error_if_nonfinite, Rule::name);
    begin_update();
    target_.update(updater());
  }

  /// A step in parts, for callers that know when each gradient is final: `begin_step`, then
  /// `step_elements(begin, end)` until every element of the flat parameters has been in exactly one
  /// range.
  void begin_step() {
    check_options();
    check_unclipped(Rule::name, options_.max_norm);
    target_.begin_step();
    scale_ = 1;
    begin_update();
  }
  void step_elements(dim_t begin, dim_t end) { target_.update(begin, end, updater()); }

  /// Whether the optimizer was made for this model, and the model still exists. Used by train_step.
  template <class Model>
  bool updates(const Model& model) const {
    return target_.updates(model);
  }

  /// The gradient norm that the last step with max_norm found, before clipping.
  double gradient_norm() const { return target_.norm(); }

  /// The optimizer's state: "step", and the arrays. An array is in use from the first step on that
  /// needs it.
  auto state() {
    std::array<optimizer_state, count + 1> all{optimizer_state::of("step", target_.steps())};
    const auto arrays = Rule::arrays(options_);
    for (std::size_t k = 0; k < count; ++k)
      all[k + 1] = optimizer_state::of(arrays[k].name, arrays_[k].span(), exists_[k]);
    return all;
  }

 protected:
  explicit elementwise_optimizer(const options_type& options) : options_{options} {}

  template <class Model>
  void take(Model& model) {
    check_options();
    target_.take(model);
    make_arrays();
  }

 private:
  static constexpr std::size_t count = std::tuple_size_v<decltype(Rule::arrays(options_type{}))>;
  static_assert(count <= 3);

  void begin_update() {
    make_arrays();
    target_.count_step();
  }

  void make_arrays() {
    const auto arrays = Rule::arrays(options_);
    for (std::size_t k = 0; k < count; ++k) {
      if (!arrays[k].in_use || exists_[k]) continue;
      arrays_[k] = aligned_buffer<T>(target_.elements());
      if (arrays[k].initial != 0)
        for (T& x : arrays_[k].span()) x = static_cast<T>(arrays[k].initial);
      exists_[k] = true;
    }
  }

  auto updater() {
    return [this](dim_t n, T* parameters, const T* gradients, dim_t at, std::int64_t step) {
      cpu::optimizer_arrays<T> a{.n = n, .params = parameters, .grads = gradients};
      const auto arrays = Rule::arrays(options_);
      for (std::size_t k = 0; k < count; ++k)
        a.state[k] = arrays[k].in_use ? arrays_[k].data() + at : nullptr;
      a.gradient_scale = static_cast<T>(options_.maximize ? -scale_ : scale_);
      a.weight_decay = static_cast<T>(Rule::weight_decay(options_));
      const auto factors = Rule::factors(options_, step);
      for (std::size_t k = 0; k < factors.size(); ++k) a.factor[k] = static_cast<T>(factors[k]);
      Rule::template step<T>(a);
    };
  }

  options_type options_;
  optimizer_target<T> target_;
  std::array<aligned_buffer<T>, count> arrays_;
  std::array<bool, count> exists_{};
  double scale_ = 1;
};

}  // namespace ikebana::detail
