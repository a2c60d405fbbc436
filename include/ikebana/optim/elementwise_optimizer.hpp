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
#include "ikebana/optim/optimizer_base.hpp"

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
class elementwise_optimizer
    : public optimizer_base<elementwise_optimizer<T, Rule>, T, typename Rule::options> {
  using base = optimizer_base<elementwise_optimizer, T, typename Rule::options>;
  friend base;
  friend optimizer_runs<elementwise_optimizer>;

 public:
  using typename base::options_type;

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
  using base::base;

 private:
  static constexpr const char* name = Rule::name;
  using base::options_;
  using base::scale_;
  using base::target_;

  static constexpr std::size_t count = std::tuple_size_v<decltype(Rule::arrays(options_type{}))>;
  static_assert(count <= 3);

  static void check_option_set(const options_type& o) { Rule::check(o); }

  bool keeps_zeros([[maybe_unused]] std::size_t set) const {
    if constexpr (requires { Rule::keeps_zeros(options_.all); })
      return Rule::keeps_zeros(options_[set]);
    else
      return false;
  }

  void begin_update() {
    make_memory();
    target_.count_step();
  }

  void make_memory() {
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

  void update(dim_t n, T* parameters, const T* gradients, dim_t at, std::int64_t step,
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
  }

  std::array<aligned_buffer<T>, count> arrays_;
  std::array<bool, count> exists_{};
  std::array<bool, count> is_new_{};  ///< Whether its initial values are to be written.
};

}  // namespace ikebana::detail
