#pragma once

#include <algorithm>
#include <array>
#include <cmath>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <limits>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

#include "ikebana/core/dependent.hpp"
#include "ikebana/core/dtype.hpp"
#include "ikebana/core/error.hpp"
#include "ikebana/core/shape.hpp"
#include "ikebana/core/span_of.hpp"
#include "ikebana/cpu/detail/targets.hpp"
#include "ikebana/model/network/frozen_parameters.hpp"
#include "ikebana/model/parameter_shards.hpp"
#include "ikebana/model/passes/gradient_presence.hpp"
#include "ikebana/module/gradient_rows.hpp"
#include "ikebana/module/refusal.hpp"
#include "ikebana/optim/gradient_norm.hpp"
#include "ikebana/optim/group.hpp"

namespace ikebana {

/// What an optimizer works on: all parameters as one array, and their gradients as another of the
/// same length. Both keep their addresses for the model's lifetime, even if the model is moved.
template <class M>
concept optimizable = requires(M& m) {
  typename M::value_type;
  { m.parameters() } -> std::same_as<std::span<typename M::value_type>>;
  { m.gradients() } -> std::same_as<std::span<typename M::value_type>>;
};

/// A model whose ranks share the optimizer's work: `shard_optimizer<true>`.
template <class M>
concept sharded_optimizable = optimizable<M> && requires(M& m) {
  { m.shards() } -> std::same_as<parameter_shards<typename M::value_type>*>;
};

/// Where an array of an optimizer's state has the numbers of one parameter.
struct optimizer_state_part {
  std::size_t parameter;  ///< Its number in the program.
  dim_t at;               ///< Its first element in the array.
  shape extents;
};

/// One part of an optimizer's state, under PyTorch's name: `exp_avg`. Arrays are laid out like the
/// model's parameters; if ranks share the optimizer's work, they hold this rank's elements, range
/// after range. Arrays of other shapes say where the numbers of each parameter are. A state is
/// restored by writing to it.
struct optimizer_state {
  std::string_view name;
  dtype type;
  std::span<std::byte> bytes;
  bool in_use = true;  ///< False if the options do not need it.
  bool is_in_parts = false;
  std::span<const optimizer_state_part> parts{};  ///< If is_in_parts, for parameters that have one.

  template <class T>
  static optimizer_state of(std::string_view name, std::span<T> values, bool in_use = true) {
    return of(name, values.data(), values.size(), in_use);
  }
  /// The same for n numbers.
  template <class T>
  static optimizer_state of(std::string_view name, T* values, std::size_t n, bool in_use = true) {
    return {name,   dtype_of<T>, {reinterpret_cast<std::byte*>(values), n * sizeof(T)},
            in_use, false,       {}};
  }
};

namespace detail {

namespace misuse {
IKEBANA_MISUSE(groups_need_a_model_with_names,
               "groups of parameters need an initialized model whose parameters have paths");
}

template <class M, template <bool> class Misuse, class... Groups>
constexpr auto find_number() {
  if constexpr (!optimizable<M>) {
    return because<Misuse>{};
  } else if constexpr (sizeof...(Groups) == 0) {
    return std::type_identity<typename M::value_type>{};
  } else if constexpr (!requires { M::lowered(); }) {
    return because<misuse::groups_need_a_model_with_names>{};
  } else {
    using all = typename join_patterns<patterns_of<Groups>...>::type;
    if constexpr (all_match<M, all>)
      return std::type_identity<typename M::value_type>{};
    else
      return std::type_identity<pattern_refusal<M, all>>{};
  }
}
/// The element type of a model; Misuse if M is not a model, or a refusal of a group.
template <class M, template <bool> class Misuse, class... Groups>
using number_or = decltype(declared(find_number<M, Misuse, Groups...>()));

/// Throws PyTorch's message for an invalid option.
template <class = void>
[[gnu::cold]] void check_option(bool in_order, const char* optimizer, const char* what,
                                double value) {
  if (in_order) return;
  char said[128];
  std::snprintf(said, sizeof said, "%s: Invalid %s: %g", optimizer, what, value);
  throw error(said);
}

/// Refuses a step in parts if gradients are to be clipped.
template <class = void>
[[gnu::cold]] void check_unclipped(const char* optimizer, double max_norm) {
  if (max_norm != std::numeric_limits<double>::infinity())
    throw error(std::string(optimizer) +
                ": max_norm needs all gradients before the step, so it cannot be made in parts");
}

/// The parameters of a model whose gradients are rows; an array.
template <class Model>
auto rows_of(const Model& model) {
  if constexpr (requires { model.gradient_rows(); })
    return model.gradient_rows();
  else
    return std::array<gradient_rows, 0>{};
}

/// What a step does with n elements that have a gradient: their state begins at `at`, and their
/// options are those of `set`. By address, so that the way through the parameters is compiled once
/// for all optimizers.
template <class T>
struct element_update {
  void* optimizer;
  void (*update)(void* optimizer, dim_t n, T* parameters, const T* gradients, dim_t at,
                 std::int64_t step, std::size_t set);
  /// Whether a step changes no element whose gradient is zero; null if it may.
  bool (*keeps_zeros)(void* optimizer, std::size_t set) = nullptr;
};

/// The parameters that an optimizer updates and their gradients: all of the model's, or this rank's
/// part of them.
template <class T>
class optimizer_target {
 public:
  template <class Model>
  void take(Model& model) {
    constexpr bool is_of_model =
        std::is_same_v<T, std::remove_pointer_t<decltype(model.parameters().data())>>;
    static_assert(is_of_model,
                  "ikebana: the element type of an optimizer is that of its model: adam<float> for "
                  "initialize<float, ..>; adam optimizer{model} deduces it");
    if constexpr (is_of_model) take_all(model);
  }

  /// Sets all steps to 0; called once, after `take`.
  void reset_steps() {
    steps_.assign(presence_ != nullptr ? presence_->size() : 1, 0);
    is_counted_.assign(presence_ != nullptr ? presence_->size() : 0, 1);
  }

  /// The number of elements that this rank updates, which is the length of the state's arrays.
  dim_t elements() const {
    return shards_ != nullptr ? shards_->elements() : static_cast<dim_t>(parameters_.size());
  }

  /// Whether these are the parameters of the model, and the model still exists.
  template <class Model>
  bool updates(const Model& model) const {
    if constexpr (requires { model.presence(); })
      if (presence_ != model.presence()) return false;
    return !is_gone() && parameters_.data() == model.parameters().data();
  }

  /// Must be called before a step changes anything. Throws state_error if the model no longer
  /// exists.
  void begin_step() const {
    if (is_gone())
      throw state_error(
          "the optimizer's model is gone: it was destroyed, or another was assigned to it");
    if (shards_ != nullptr) shards_->begin_step();
  }

  /// The factor by which the step scales gradients, 1 without clipping. Throws error, if requested,
  /// for a norm that is not finite.
  double clip(double max_norm, bool error_if_nonfinite, const char* optimizer) {
    if (max_norm == std::numeric_limits<double>::infinity()) return 1;
    norm_ = gradient_norm<T>(gradients_, shards_, 2, rows_);
    if (error_if_nonfinite && !std::isfinite(norm_)) refuse_norm(optimizer, 2);
    return clip_factor(norm_, max_norm);
  }
  double norm() const { return norm_; }

  /// The rows of the gradient of the parameter that begins there; null if it is dense.
  const gradient_rows* rows_at(dim_t begin) const {
    for (const gradient_rows& r : rows_)
      if (r.begin == begin && r.rows > 0) return &r;
    return nullptr;
  }

  /// Counts a step: one more for each parameter that has a gradient.
  void count_step() {
    if (presence_ == nullptr)
      ++steps_[0];
    else
      is_counted_.assign(is_counted_.size(), 0);
  }
  /// The number of steps: one for all parameters, or one per parameter if run time may leave it
  /// without a gradient.
  std::span<dependent<std::int64_t, T>> steps() { return detail::span_of(steps_); }

  /// Calls f for all elements that have a gradient, without segments as set 0, and of gradients
  /// that are rows, if it keeps zeros, for those that are listed. Afterwards, shared parameters are
  /// gathered on all ranks.
  void update(const std::vector<option_segment>& segments, const element_update<T>& f);

  /// The same for the elements [begin, end). If ranks share them, for this rank's ranges among
  /// them, without gathering.
  void update(const std::vector<option_segment>& segments, dim_t begin, dim_t end,
              const element_update<T>& f);

  /// Calls f(n, at, set) for the parts of the state that have the same options.
  template <class F>
  void for_each_set(const std::vector<option_segment>& segments, F&& f) const {
    const auto visit = [&](dim_t begin, dim_t end, dim_t at) {
      for_each_segment(segments, begin, end, [&](dim_t from, dim_t to, std::size_t set) {
        f(to - from, at + from - begin, set);
      });
    };
    if (shards_ == nullptr) return visit(0, elements(), 0);
    dim_t at = 0;
    for (const parameter_range& r : shards_->ranges()) {
      visit(r.begin, r.end, at);
      at += r.size();
    }
  }

 private:
  template <class Model>
  void take_all(Model& model) {
    parameters_ = model.parameters();
    gradients_ = model.gradients();
    if constexpr (sharded_optimizable<Model>) shards_ = model.shards();
    if constexpr (requires { model.presence(); }) presence_ = model.presence();
    const auto by_rows = rows_of(model);
    rows_.assign(by_rows.begin(), by_rows.end());
    if constexpr (requires { model.frozen_parameters(); }) frozen_ = model.frozen_parameters();
    if constexpr (requires { model.lifetime(); }) {
      lifetime_ = model.lifetime();
      has_lifetime_ = true;
    }
  }

  /// Calls f(from, to, set) for the parts of [from, to) that have the same options.
  template <class F>
  static void for_each_segment(const std::vector<option_segment>& segments, dim_t from, dim_t to,
                               F&& f) {
    if (segments.empty()) return f(from, to, std::size_t{0});
    for (const option_segment& s : segments) {
      if (s.end <= from) continue;
      f(from, std::min(to, s.end), s.set);
      if (s.end >= to) return;
      from = s.end;
    }
  }

  bool is_gone() const { return has_lifetime_ && lifetime_.expired(); }

  void update_range(const std::vector<option_segment>& segments, dim_t begin, dim_t end, dim_t at,
                    const element_update<T>& f);

  std::int64_t count(std::size_t i) {
    if (is_counted_[i] == 0) ++steps_[i];
    is_counted_[i] = 1;
    return steps_[i];
  }

  std::span<T> parameters_;
  std::span<const T> gradients_;
  parameter_shards<T>* shards_ = nullptr;
  const gradient_presence* presence_ = nullptr;
  std::vector<dependent<gradient_rows, T>> rows_;
  const frozen_parameters<T>* frozen_ = nullptr;
  std::weak_ptr<const dependent<void, T>> lifetime_;
  bool has_lifetime_ = false;
  std::vector<dependent<std::int64_t, T>> steps_;
  double norm_ = std::numeric_limits<double>::quiet_NaN();
  std::vector<dependent<unsigned char, T>>
      is_counted_;  ///< Whether this step counts for the parameter.
};

IKEBANA_CPU_BEGIN_SMALL
template <class T>
void optimizer_target<T>::update(const std::vector<option_segment>& segments,
                                 const element_update<T>& f) {
  if (shards_ == nullptr) return update(segments, 0, elements(), f);
  dim_t at = 0;
  const std::span<const parameter_range> ranges = shards_->ranges();
  for (std::size_t i = 0; i < ranges.size(); ++i) {
    const parameter_range r = ranges[i];
    update_range(segments, r.begin, r.end, at, f);
    shards_->updated(i);
    at += r.size();
  }
  shards_->end_step();
  // Parameters of which this rank has no elements.
  if (presence_ != nullptr)
    for (std::size_t i = 0; i < presence_->size(); ++i)
      if ((*presence_)[i]) count(i);
}

template <class T>
void optimizer_target<T>::update(const std::vector<option_segment>& segments, dim_t begin,
                                 dim_t end, const element_update<T>& f) {
  if (shards_ == nullptr) return update_range(segments, begin, end, begin, f);
  dim_t at = 0;
  for (const parameter_range& r : shards_->ranges()) {
    if (r.begin >= begin && r.end <= end) update_range(segments, r.begin, r.end, at, f);
    at += r.size();
  }
}

template <class T>
void optimizer_target<T>::update_range(const std::vector<option_segment>& segments, dim_t begin,
                                       dim_t end, dim_t at, const element_update<T>& f) {
  const auto call = [&](dim_t first, dim_t last, std::int64_t step) {
    for_each_segment(segments, first, last, [&](dim_t from, dim_t to, std::size_t set) {
      const auto part = [&](dim_t b, dim_t e) {
        f.update(f.optimizer, e - b, parameters_.data() + b, gradients_.data() + b, at + b - begin,
                 step, set);
      };
      const auto trained = [&](dim_t b, dim_t e) {
        if (rows_.empty() || f.keeps_zeros == nullptr || !f.keeps_zeros(f.optimizer, set))
          part(b, e);
        else
          for_each_nonzero(rows_, b, e, part);
      };
      if (frozen_ == nullptr)
        trained(from, to);
      else
        frozen_->for_each_trained(from, to, trained);
    });
  };
  if (presence_ == nullptr) {
    call(begin, end, steps_[0]);
  } else {
    // Adjacent parameters at the same step are updated together.
    const gradient_presence& p = *presence_;
    for (std::size_t i = 0; i < p.size() && p.range(i).begin < end; ++i) {
      if (!p[i] || p.range(i).end <= begin) continue;
      const dim_t from = std::max(begin, p.range(i).begin);
      const std::int64_t step = count(i);
      while (i + 1 < p.size() && p[i + 1] && p.range(i + 1).begin < end && count(i + 1) == step)
        ++i;
      call(from, std::min(end, p.range(i).end), step);
    }
  }
  if (frozen_ != nullptr) frozen_->apply_pruning(parameters_.data(), begin, end);
}
IKEBANA_CPU_END_SMALL

}  // namespace detail
}  // namespace ikebana
