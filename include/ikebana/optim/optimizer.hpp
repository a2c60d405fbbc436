#pragma once

#include <algorithm>
#include <cmath>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <limits>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

#include "ikebana/core/dtype.hpp"
#include "ikebana/core/error.hpp"
#include "ikebana/core/shape.hpp"
#include "ikebana/core/span_of.hpp"
#include "ikebana/model/gradient_presence.hpp"
#include "ikebana/model/parameter_shards.hpp"
#include "ikebana/optim/gradient_norm.hpp"

namespace ikebana {

/// What an optimizer works on: all parameters as one array, and their gradients as another of the
/// same length. Both stay where they are for as long as the model lives, wherever the model itself
/// is moved.
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

/// A part of what an optimizer remembers, by PyTorch's name: `exp_avg`. Arrays are laid out as the
/// model's parameters are; where ranks share the optimizer's work, they are those of this rank's
/// elements, one range after the other. Writing to it restores what was saved.
struct optimizer_state {
  std::string_view name;
  dtype type;
  std::span<std::byte> bytes;
  bool in_use = true;  ///< False of what the options do without.

  template <class T>
  static optimizer_state of(std::string_view name, std::span<T> values, bool in_use = true) {
    return {name, dtype_of<T>, std::as_writable_bytes(values), in_use};
  }
};

namespace detail {

template <class M>
struct number_of : std::type_identity<float> {};
template <optimizable M>
struct number_of<M> : std::type_identity<typename M::value_type> {};

/// Throws what PyTorch says of an option of an optimizer, unless it is in order.
template <class = void>
[[gnu::cold]] void check_option(bool in_order, const char* optimizer, const char* what,
                                double value) {
  if (in_order) return;
  char said[128];
  std::snprintf(said, sizeof said, "%s: Invalid %s: %g", optimizer, what, value);
  throw error(said);
}

/// Refuses a step in parts, if gradients are to be clipped.
template <class = void>
[[gnu::cold]] void check_unclipped(const char* optimizer, double max_norm) {
  if (max_norm != std::numeric_limits<double>::infinity())
    throw error(std::string(optimizer) +
                ": max_norm needs all gradients before the step, so it cannot be made in parts");
}

/// The parameters that an optimizer updates and their gradients: all of the model's, or this rank's
/// part of them.
template <class T>
class optimizer_target {
 public:
  template <class Model>
  void take(Model& model) {
    parameters_ = model.parameters();
    gradients_ = model.gradients();
    if constexpr (sharded_optimizable<Model>) shards_ = model.shards();
    if constexpr (requires { model.presence(); }) presence_ = model.presence();
    steps_.assign(presence_ != nullptr ? presence_->size() : 1, 0);
    is_counted_.assign(presence_ != nullptr ? presence_->size() : 0, 1);
  }

  /// The elements that this rank updates: as long are the arrays of the optimizer's state.
  dim_t elements() const {
    return shards_ != nullptr ? shards_->elements() : static_cast<dim_t>(parameters_.size());
  }

  /// To be called before a step changes anything.
  void begin_step() const {
    if (shards_ != nullptr) shards_->begin_step();
  }

  /// Measures the gradients, where they are to be clipped: what the step scales them by. Throws
  /// error, if asked, for a norm that is not finite.
  double clip(double max_norm, bool error_if_nonfinite, const char* optimizer) {
    if (max_norm == std::numeric_limits<double>::infinity()) return 1;
    norm_ = gradient_norm<T>(gradients_, shards_, 2);
    if (error_if_nonfinite && !std::isfinite(norm_)) refuse_norm(optimizer, 2);
    return clip_factor(norm_, max_norm);
  }
  double norm() const { return norm_; }

  /// A step that counts has begun: one more for each parameter that has a gradient.
  void count_step() {
    if (presence_ == nullptr)
      ++steps_[0];
    else
      is_counted_.assign(is_counted_.size(), 0);
  }
  /// How many steps counted: one number for all parameters, or one for each where run time may
  /// leave it without a gradient.
  std::span<std::int64_t> steps() { return detail::span_of(steps_); }

  /// Calls f(n, parameters, gradients, at, step) for all elements that have a gradient: n of them,
  /// whose state begins at `at`, and which are in that step. Then all ranks have the parameters.
  template <class F>
  void update(F&& f) {
    if (shards_ == nullptr) return update_range(0, elements(), 0, f);
    dim_t at = 0;
    const std::span<const parameter_range> ranges = shards_->ranges();
    for (std::size_t i = 0; i < ranges.size(); ++i) {
      const parameter_range r = ranges[i];
      update_range(r.begin, r.end, at, f);
      shards_->updated(i);
      at += r.size();
    }
    shards_->end_step();
    // Those of which this rank has no elements.
    if (presence_ != nullptr)
      for (std::size_t i = 0; i < presence_->size(); ++i)
        if ((*presence_)[i]) count(i);
  }

  /// The same for the elements [begin, end); where ranks share them, for this rank's ranges among
  /// them, and gives no other rank anything.
  template <class F>
  void update(dim_t begin, dim_t end, F&& f) {
    if (shards_ == nullptr) return update_range(begin, end, begin, f);
    dim_t at = 0;
    for (const parameter_range& r : shards_->ranges()) {
      if (r.begin >= begin && r.end <= end) update_range(r.begin, r.end, at, f);
      at += r.size();
    }
  }

 private:
  template <class F>
  void update_range(dim_t begin, dim_t end, dim_t at, F& f) {
    const auto call = [&](dim_t from, dim_t to, std::int64_t step) {
      f(to - from, parameters_.data() + from, gradients_.data() + from, at + from - begin, step);
    };
    if (presence_ == nullptr) return call(begin, end, steps_[0]);
    // Neighbours in the same step go together.
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

  std::int64_t count(std::size_t i) {
    if (is_counted_[i] == 0) ++steps_[i];
    is_counted_[i] = 1;
    return steps_[i];
  }

  std::span<T> parameters_;
  std::span<const T> gradients_;
  parameter_shards<T>* shards_ = nullptr;
  const gradient_presence* presence_ = nullptr;
  std::vector<std::int64_t> steps_;
  double norm_ = std::numeric_limits<double>::quiet_NaN();
  std::vector<unsigned char> is_counted_;  ///< Whether this step is among the parameter's steps.
};

}  // namespace detail
}  // namespace ikebana
