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
#include "ikebana/optim/optimizer_base.hpp"

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
class tensor_optimizer
    : public optimizer_base<tensor_optimizer<T, Rule>, T, typename Rule::options> {
  using base = optimizer_base<tensor_optimizer, T, typename Rule::options>;
  friend base;
  friend optimizer_runs<tensor_optimizer>;

 public:
  using typename base::options_type;

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
  using base::base;

  template <class Model, class... Groups>
  void take(Model& model, const Groups&... groups) {
    static_assert(!sharded_optimizable<Model>,
                  "ikebana: this optimizer needs whole parameters and their gradients on every "
                  "rank, and with shard_optimizer each has a part");
    static_assert(
        requires { model.current_program(); },
        "ikebana: this optimizer needs a model whose parameters have shapes: "
        "initialize<T, shape>(module, seed) gives one");
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
    base::take(model, groups...);
  }

 private:
  static constexpr const char* name = Rule::name;
  using base::options_;
  using base::scale_;
  using base::target_;

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

  static void check_option_set(const options_type& o) { Rule::check(o); }
  void check_range(dim_t begin, dim_t end) const {
    for (const place& p : places_)
      if (p.begin < end && p.end > begin && (p.begin < begin || p.end > end))
        throw error(std::string(name) +
                    ": a step in parts needs ranges of whole parameters, and this one divides one");
  }

  void begin_update() { target_.count_step(); }

  void make_memory() {
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

  void update(dim_t n, T* parameters, const T* gradients, dim_t at, std::int64_t step,
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
  }

  std::vector<place> places_;
  std::array<aligned_buffer<T>, count> arrays_;
  std::array<std::vector<optimizer_state_part>, count> parts_;
  aligned_buffer<T> scratch_;
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
