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
/// - `step(arrays)`: its kernel;
/// - where a step may leave elements as they are whose gradient is zero, `keeps_zeros(options)`.
template <class T, class Rule>
class elementwise_optimizer {
 public:
  using value_type = T;

  using options_type = typename Rule::options;

  options_type& options() { return options_.all; }
  const options_type& options() const { return options_.all; }
  /// The options of groups of parameters, which may be changed like the others.
  std::span<parameter_group> groups() { return options_.groups(); }
  /// Throws error for invalid options.
  void check_options() const {
    options_.for_each([](const options_type& o) {
      check_option(o.lr >= 0, Rule::name, "learning rate", o.lr);
      check_option(o.max_norm >= 0, Rule::name, "max_norm value", o.max_norm);
      Rule::check(o);
    });
  }

  /// Updates all parameters from their gradients, in one pass. Allocates only if an option that
  /// needs another array was switched on since the last step. Throws error for invalid options,
  /// before anything has changed. O(parameters).
  void step() {
    check_options();
    target_.begin_step();
    scale_ = target_.clip(options_.all.max_norm, options_.all.error_if_nonfinite, Rule::name);
    begin_update();
    target_.update(options_.segments(), updater(), [this]([[maybe_unused]] std::size_t set) {
      if constexpr (requires { Rule::keeps_zeros(options_.all); })
        return Rule::keeps_zeros(options_[set]);
      else
        return false;
    });
  }

  /// A step in parts, for callers that know when each gradient is final: `begin_step`, then
  /// `step_elements(begin, end)` until every element of the flat parameters has been in exactly one
  /// range.
  void begin_step() {
    check_options();
    check_unclipped(Rule::name, options_.all.max_norm);
    target_.begin_step();
    scale_ = 1;
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

  /// The optimizer's state: "step", and the arrays. An array is in use from the first step on that
  /// needs it.
  auto state() {
    std::array<optimizer_state, count + 1> all{optimizer_state::of("step", target_.steps())};
    const auto arrays = Rule::arrays(options_.all);
    for (std::size_t k = 0; k < count; ++k)
      all[k + 1] = optimizer_state::of(arrays[k].name, arrays_[k].span(), exists_[k]);
    return all;
  }

 protected:
  explicit elementwise_optimizer(const options_type& options) : options_{Rule::name, options} {}

  template <class Model, class... Groups>
  void take(Model& model, const Groups&... groups) {
    options_.take(model, groups...);
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
    options_.for_each([this](const options_type& o) {
      const auto arrays = Rule::arrays(o);
      for (std::size_t k = 0; k < count; ++k) {
        if (!arrays[k].in_use || exists_[k]) continue;
        arrays_[k] = aligned_buffer<T>(target_.elements());
        exists_[k] = true;
        is_new_[k] = arrays[k].initial != 0;
      }
    });
    for (std::size_t k = 0; k < count; ++k) {
      if (!is_new_[k]) continue;
      is_new_[k] = false;
      target_.for_each_set(options_.segments(), [&](dim_t n, dim_t at, std::size_t set) {
        const auto initial = static_cast<T>(Rule::arrays(options_[set])[k].initial);
        for (dim_t i = 0; i < n; ++i) arrays_[k].data()[at + i] = initial;
      });
    }
  }

  auto updater() {
    return [this](dim_t n, T* parameters, const T* gradients, dim_t at, std::int64_t step,
                  std::size_t set) {
      const options_type o = options_[set];
      cpu::optimizer_arrays<T> a{.n = n, .params = parameters, .grads = gradients};
      const auto arrays = Rule::arrays(o);
      for (std::size_t k = 0; k < count; ++k)
        a.state[k] = arrays[k].in_use ? arrays_[k].data() + at : nullptr;
      a.gradient_scale = static_cast<T>(o.maximize ? -scale_ : scale_);
      a.weight_decay = static_cast<T>(Rule::weight_decay(o));
      const auto factors = Rule::factors(o, step);
      for (std::size_t k = 0; k < factors.size(); ++k) a.factor[k] = static_cast<T>(factors[k]);
      Rule::template step<T>(a);
    };
  }

  grouped_options<options_type> options_;
  optimizer_target<T> target_;
  std::array<aligned_buffer<T>, count> arrays_;
  std::array<bool, count> exists_{};
  std::array<bool, count> is_new_{};  ///< Whether its initial values are to be written.
  double scale_ = 1;
};

}  // namespace ikebana::detail
