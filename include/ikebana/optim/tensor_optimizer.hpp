#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <tuple>
#include <vector>

#include "ikebana/core/aligned_buffer.hpp"
#include "ikebana/core/error.hpp"
#include "ikebana/core/shape.hpp"
#include "ikebana/cpu/optim_rules.hpp"
#include "ikebana/module/gradient_rows.hpp"
#include "ikebana/optim/elementwise_optimizer.hpp"
#include "ikebana/optim/optimizer.hpp"

namespace ikebana::detail {

/// One parameter in a step, with arrays of state of any shape.
template <class T, std::size_t Arrays>
struct tensor_update {
  shape extents;
  T* parameters = nullptr;
  const T* gradients = nullptr;
  T gradient_scale = T(1);  ///< -1 with maximize, times the factor of clipping.
  std::int64_t step = 0;
  std::array<T*, Arrays> state{};  ///< Null where the parameter has no such array.
  T* scratch = nullptr;
  const gradient_rows* rows = nullptr;  ///< If the gradient is zero but for rows.

  dim_t elements() const { return extents.numel(); }
};

/// An optimizer whose update is a function of each parameter as a tensor. Rule has
/// - `options`, with lr, maximize, max_norm and error_if_nonfinite; `name`; `check(options)`;
/// - `arrays`: the names of the arrays of its state;
/// - `extents(k, shape, options)`: the shape of array k for a parameter, nullopt if it has none;
/// - `scratch(shape)`: the elements of scratch memory that a parameter needs;
/// - `update(tensor_update, options)`.
/// Options on which `extents` depends are fixed when the optimizer is made.
template <class T, class Rule>
class tensor_optimizer {
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

  /// Updates all parameters from their gradients. Does not allocate. Throws error for invalid
  /// options, before anything has changed.
  void step() {
    check_options();
    target_.begin_step();
    scale_ = target_.clip(options_.all.max_norm, options_.all.error_if_nonfinite, Rule::name);
    target_.count_step();
    target_.update(options_.segments(), updater());
  }

  /// A step in parts, as optimizer_in_backward makes it: `begin_step`, then `step_elements(begin,
  /// end)` for ranges of whole parameters, until each was in exactly one. Throws error for a range
  /// that divides a parameter, before the range has changed.
  void begin_step() {
    check_options();
    check_unclipped(Rule::name, options_.all.max_norm);
    target_.begin_step();
    scale_ = 1;
    target_.count_step();
  }
  void step_elements(dim_t begin, dim_t end) {
    for (const place& p : places_)
      if (p.begin < end && p.end > begin && (p.begin < begin || p.end > end))
        throw error(std::string(Rule::name) +
                    ": a step in parts needs ranges of whole parameters, and this one divides one");
    target_.update(options_.segments(), begin, end, updater());
  }

  /// Whether the optimizer was made for this model, and the model still exists. Used by train_step.
  template <class Model>
  bool updates(const Model& model) const {
    return target_.updates(model);
  }

  /// The gradient norm that the last step with max_norm found, before clipping.
  double gradient_norm() const { return target_.norm(); }

  /// The optimizer's state: "step", and the arrays, whose parts belong to parameters.
  std::array<optimizer_state, std::tuple_size_v<decltype(Rule::arrays)> + 1> state() {
    std::array<optimizer_state, count + 1> all{optimizer_state::of("step", target_.steps())};
    for (std::size_t k = 0; k < count; ++k) {
      all[k + 1] = optimizer_state::of(Rule::arrays[k], arrays_[k].span(), !parts_[k].empty());
      all[k + 1].is_in_parts = true;
      all[k + 1].parts = parts_[k];
    }
    return all;
  }

 protected:
  explicit tensor_optimizer(const options_type& options) : options_{Rule::name, options} {}

  template <class Model, class... Groups>
  void take(Model& model, const Groups&... groups) {
    static_assert(!sharded_optimizable<Model>,
                  "ikebana: this optimizer needs whole parameters and their gradients on every "
                  "rank, and with shard_optimizer each has a part");
    static_assert(
        requires { model.current_program(); },
        "ikebana: this optimizer needs a model whose parameters have shapes: "
        "initialize<T, shape>(module, seed) gives one");
    options_.take(model, groups...);
    check_options();
    target_.take(model);
    const auto parameters = model.current_program().all_parameters();
    for (std::size_t i = 0; i < parameters.size(); ++i) {
      const shape& extents = parameters[i].spec.extents;
      const dim_t begin = model.layout().offsets[i], n = extents.numel();
      if (n > 0) places_.push_back({begin, begin + n, i, extents, {}});
    }
    // Shared parameters have one place.
    std::stable_sort(places_.begin(), places_.end(),
                     [](const place& a, const place& b) { return a.begin < b.begin; });
    places_.erase(std::unique(places_.begin(), places_.end(),
                              [](const place& a, const place& b) { return a.begin == b.begin; }),
                  places_.end());
    make_arrays();
  }

 private:
  static constexpr std::size_t count = std::tuple_size_v<decltype(Rule::arrays)>;
  static constexpr dim_t alignment = 64 / static_cast<dim_t>(sizeof(T));

  struct place {
    dim_t begin, end;
    std::size_t parameter;
    shape extents;
    std::array<dim_t, count> state;  ///< Where its part of each array begins; -1 for none.
  };

  std::size_t set_of(const place& p) const {
    for (const option_segment& s : options_.segments())
      if (p.begin < s.end) return s.set;
    return 0;
  }

  void make_arrays() {
    std::array<dim_t, count> sizes{};
    dim_t scratch = 0;
    for (place& p : places_) {
      const options_type o = options_[set_of(p)];
      scratch = std::max(scratch, Rule::scratch(p.extents));
      for (std::size_t k = 0; k < count; ++k) {
        p.state[k] = -1;
        const std::optional<shape> extents = Rule::extents(k, p.extents, o);
        if (!extents) continue;
        p.state[k] = sizes[k];
        parts_[k].push_back({p.parameter, sizes[k], *extents});
        sizes[k] += (extents->numel() + alignment - 1) / alignment * alignment;
      }
    }
    for (std::size_t k = 0; k < count; ++k) arrays_[k] = aligned_buffer<T>(sizes[k]);
    scratch_ = aligned_buffer<T>(scratch);
  }

  auto updater() {
    return [this](dim_t n, T* parameters, const T* gradients, dim_t at, std::int64_t step,
                  std::size_t set) {
      const options_type o = options_[set];
      auto p = std::lower_bound(places_.begin(), places_.end(), at,
                                [](const place& a, dim_t begin) { return a.begin < begin; });
      for (; p != places_.end() && p->begin < at + n; ++p) {
        tensor_update<T, count> u{.extents = p->extents,
                                  .parameters = parameters + (p->begin - at),
                                  .gradients = gradients + (p->begin - at),
                                  .gradient_scale = static_cast<T>(o.maximize ? -scale_ : scale_),
                                  .step = step,
                                  .scratch = scratch_.data(),
                                  .rows = target_.rows_at(p->begin)};
        for (std::size_t k = 0; k < count; ++k)
          if (p->state[k] >= 0) u.state[k] = arrays_[k].data() + p->state[k];
        Rule::template update<T>(u, o);
      }
    };
  }

  grouped_options<options_type> options_;
  optimizer_target<T> target_;
  std::vector<place> places_;
  std::array<aligned_buffer<T>, count> arrays_;
  std::array<std::vector<optimizer_state_part>, count> parts_;
  aligned_buffer<T> scratch_;
  double scale_ = 1;
};

/// The arguments of a kernel for elements [from, from + n) of a parameter.
template <class T, std::size_t Arrays>
cpu::optimizer_arrays<T> arrays_of(const tensor_update<T, Arrays>& u, dim_t from, dim_t n) {
  return {.n = n,
          .params = u.parameters + from,
          .grads = u.gradients + from,
          .gradient_scale = u.gradient_scale};
}

/// Sets the factors of a kernel.
template <class T, std::size_t N>
void set_factors(cpu::optimizer_arrays<T>& a, const std::array<double, N>& factors) {
  for (std::size_t k = 0; k < N; ++k) a.factor[k] = static_cast<T>(factors[k]);
}

}  // namespace ikebana::detail
