#pragma once

#include <cstddef>
#include <span>

#include "ikebana/core/shape.hpp"

namespace ikebana {

/// Some elements of the flat parameters, one after the other.
struct parameter_range {
  dim_t begin = 0, end = 0;
  constexpr dim_t size() const { return end - begin; }
  constexpr bool operator==(const parameter_range&) const = default;
};

/// What a model tells an optimizer where several ranks share the optimizer's work: which of the
/// flat parameters are this rank's to update, and how the other ranks get them. A model has it as
/// `parameter_shards<T>* shards()`, at one address for as long as it lives.
///
/// Every member function but the first two is called by all ranks in the same order.
template <class T>
class parameter_shards {
 public:
  /// The elements of this rank, ascending: as many ranges on every rank; some may be empty.
  std::span<const parameter_range> ranges() const { return ranges_; }
  /// How many elements those are.
  dim_t elements() const {
    dim_t n = 0;
    for (const parameter_range& r : ranges_) n += r.size();
    return n;
  }

  /// To be called before a step changes anything. Throws state_error where the gradients are not
  /// those of all ranks.
  virtual void begin_step() = 0;
  /// The parameters of ranges()[i] are updated: begins to give them to all ranks.
  virtual void updated(std::size_t i) = 0;
  /// Returns when every rank's parameters are there.
  virtual void end_step() = 0;

  /// Makes an array that is laid out as the parameters whole, of which each rank has its elements.
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
