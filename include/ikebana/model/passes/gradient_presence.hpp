#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "ikebana/core/dependent.hpp"
#include "ikebana/core/shape.hpp"
#include "ikebana/model/parameter_shards.hpp"

namespace ikebana {

/// Which parameters of a model have a gradient (in PyTorch, a `grad` that is not None): those that
/// a backward has reached since zero_grad. Parameters are numbered in memory order. Absent
/// gradients are zero in memory.
///
/// A model provides it as `gradient_presence* presence()`, which is null if every backward reaches
/// every parameter; otherwise optimizers skip parameters without a gradient.
///
/// A template, so that it is compiled only where it is used.
template <class X>
class basic_gradient_presence {
 public:
  std::size_t size() const { return ranges_.size(); }
  bool operator[](std::size_t i) const { return present_[i] != 0; }
  /// Whether the last backward reached parameter i.
  bool reached(std::size_t i) const { return reached_[i] != 0; }
  /// The elements of parameter i, including the gap after it.
  const parameter_range& range(std::size_t i) const { return ranges_[i]; }

  bool all() const {
    return std::all_of(present_.begin(), present_.end(), [](std::uint8_t p) { return p != 0; });
  }

  void set(std::size_t i, bool present = true) { present_[i] = present; }
  void reach(std::size_t i) { present_[i] = reached_[i] = 1; }
  void clear() { std::fill(present_.begin(), present_.end(), std::uint8_t{0}); }
  void begin_backward() { std::fill(reached_.begin(), reached_.end(), std::uint8_t{0}); }

  /// Called by the model for each parameter, in order.
  void add(const parameter_range& range) {
    ranges_.push_back(range);
    present_.push_back(0);
    reached_.push_back(0);
  }

 private:
  using flag = detail::dependent<std::uint8_t, X>;

  std::vector<detail::dependent<parameter_range, X>> ranges_;
  std::vector<flag> present_;
  std::vector<flag> reached_;
};
using gradient_presence = basic_gradient_presence<void>;

}  // namespace ikebana
