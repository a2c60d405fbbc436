#pragma once

#include <cstddef>
#include <span>

#include "ikebana/core/shape.hpp"

namespace ikebana {

/// Consecutive elements of the flat parameters.
struct parameter_range {
  dim_t begin = 0, end = 0;
  constexpr dim_t size() const { return end - begin; }
  constexpr bool operator==(const parameter_range&) const = default;
};

/// How ranks share an optimizer's work: which of the flat parameters this rank updates, and how the
/// other ranks get them. A model provides it as `parameter_shards<T>* shards()`, whose address is
/// fixed for the model's lifetime.
///
/// All ranks must call every member function but the first two, in the same order.
template <class T>
class parameter_shards {
 public:
  /// This rank's elements in ascending order: equally many ranges on every rank; some may be empty.
  std::span<const parameter_range> ranges() const { return ranges_; }
  /// The number of those elements.
  dim_t elements() const {
    dim_t n = 0;
    for (const parameter_range& r : ranges_) n += r.size();
    return n;
  }

  /// Must be called before a step changes anything. Throws state_error if the gradients are not
  /// reduced over all ranks.
  virtual void begin_step() = 0;
  /// Called after the parameters of ranges()[i] were updated: starts to send them to all ranks.
  virtual void updated(std::size_t i) = 0;
  /// Waits until every rank's parameters have arrived.
  virtual void end_step() = 0;

  /// Completes an array that is laid out like the parameters and of which each rank has its
  /// elements.
  virtual void gather(T* flat) = 0;
  /// The sum and the maximum over the ranks.
  virtual double sum(double mine) = 0;
  virtual double max(double mine) = 0;

 protected:
  parameter_shards() = default;
  ~parameter_shards() = default;

  std::span<const parameter_range> ranges_;
};

}  // namespace ikebana
