#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "ikebana/core/shape.hpp"
#include "ikebana/cpu/detail/targets.hpp"
#include "ikebana/optim/group.hpp"
#include "ikebana/optim/optimizer.hpp"

namespace ikebana::detail {

/// What an optimizer does that no type of a model changes, apart from its class so that a program
/// whose kernels are elsewhere has it from there.
template <class Optimizer>
struct optimizer_runs {
  static void check(const Optimizer& o);
  static void prepare(Optimizer& o);
  static void begin_step(Optimizer& o);
  static void step(Optimizer& o);
  static void step_elements(Optimizer& o, dim_t begin, dim_t end);

 private:
  using T = typename Optimizer::value_type;
  static void update(void* o, dim_t n, T* parameters, const T* gradients, dim_t at,
                     std::int64_t step, std::size_t set) {
    static_cast<Optimizer*>(o)->update(n, parameters, gradients, at, step, set);
  }
  static bool keeps_zeros(void* o, std::size_t set) {
    return static_cast<Optimizer*>(o)->keeps_zeros(set);
  }
};

/// An optimizer with options by parameter, which updates its target range by range. Self has
/// - `name`;
/// - `check_option_set(options)`, which throws error for invalid ones;
/// - `begin_update()`, before a step changes anything: makes memory that new options need and
///   counts the step;
/// - `make_memory()`, once the target is known;
/// - `check_range(begin, end)`, which may refuse a range of a step in parts;
/// - `keeps_zeros(set)`, which may say that a step with the options of a set leaves elements as
/// they
///   are whose gradient is zero;
/// - `update(n, parameters, gradients, at, step, set)`: that of element_update.
template <class Self, class T, class Options>
class optimizer_base {
  using runs = optimizer_runs<Self>;
  friend runs;

 public:
  using value_type = T;
  using options_type = Options;

  Options& options() { return options_.all; }
  const Options& options() const { return options_.all; }
  /// The options of groups of parameters, which may be changed like the others.
  auto groups() { return options_.groups(); }
  /// Throws error for invalid options.
  void check_options() const { runs::check(static_cast<const Self&>(*this)); }

  /// Updates all parameters from their gradients. Allocates only if an option that needs another
  /// array was switched on since the last step. Throws error for invalid options, before anything
  /// has changed. O(parameters).
  void step() { runs::step(self()); }

  /// A step in parts, for callers that know when each gradient is final: `begin_step`, then
  /// `step_elements(begin, end)` until every element of the flat parameters has been in exactly one
  /// range. An optimizer of whole tensors throws error for a range that divides a parameter, before
  /// the range has changed.
  void begin_step() { runs::begin_step(self()); }
  void step_elements(dim_t begin, dim_t end) { runs::step_elements(self(), begin, end); }

  /// Whether the optimizer was made for this model, and the model still exists. Used by train_step.
  template <class Model>
  bool updates(const Model& model) const {
    return target_.updates(model);
  }

  /// The gradient norm that the last step with max_norm found, before clipping.
  double gradient_norm() const { return target_.norm(); }

 protected:
  explicit optimizer_base(const Options& options) : options_{Self::name, options} {}

  template <class Model, class... Groups>
  void take(Model& model, const Groups&... groups) {
    options_.take(model, groups...);
    target_.take(model);
    runs::prepare(self());
  }

  void check_range(dim_t, dim_t) const {}
  bool keeps_zeros(std::size_t) const { return false; }

  grouped_options<Options> options_;
  optimizer_target<T> target_;
  double scale_ = 1;  ///< Of the gradients in this step.

 private:
  Self& self() { return static_cast<Self&>(*this); }
};

template <class Optimizer>
void optimizer_runs<Optimizer>::check(const Optimizer& o) {
  o.options_.for_each([](const typename Optimizer::options_type& given) {
    Optimizer::check_option_set(given);
    check_option(given.lr >= 0, Optimizer::name, "learning rate", given.lr);
    check_option(given.max_norm >= 0, Optimizer::name, "max_norm value", given.max_norm);
  });
}

template <class Optimizer>
void optimizer_runs<Optimizer>::prepare(Optimizer& o) {
  check(o);
  o.target_.reset_steps();
  o.make_memory();
}

template <class Optimizer>
void optimizer_runs<Optimizer>::begin_step(Optimizer& o) {
  check(o);
  check_unclipped(Optimizer::name, o.options_.all.max_norm);
  o.target_.begin_step();
  o.scale_ = 1;
  o.begin_update();
}

template <class Optimizer>
void optimizer_runs<Optimizer>::step(Optimizer& o) {
  check(o);
  o.target_.begin_step();
  o.scale_ =
      o.target_.clip(o.options_.all.max_norm, o.options_.all.error_if_nonfinite, Optimizer::name);
  o.begin_update();
  o.target_.update(o.options_.segments(), {&o, &update, &keeps_zeros});
}

template <class Optimizer>
void optimizer_runs<Optimizer>::step_elements(Optimizer& o, dim_t begin, dim_t end) {
  o.check_range(begin, end);
  o.target_.update(o.options_.segments(), begin, end, {&o, &update});
}

}  // namespace ikebana::detail
