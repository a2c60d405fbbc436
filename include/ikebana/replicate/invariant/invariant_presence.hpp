#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "ikebana/core/shape.hpp"
#include "ikebana/model/passes/gradient_presence.hpp"

namespace ikebana::detail {

/// Which parameters a step of several shards reaches: those that any shard does. For each, the
/// number of shards is summed along with the gradients. Empty for models that always reach all.
///
/// A template, so that it is compiled only where it is used.
template <class>
class basic_invariant_presence {
 public:
  explicit basic_invariant_presence(const gradient_presence* p)
      : before_(p != nullptr ? p->size() : 0) {}

  /// The number of elements that are summed.
  dim_t length() const { return static_cast<dim_t>(before_.size()); }

  void begin(const gradient_presence* p) {
    for (std::size_t i = 0; i < before_.size(); ++i) before_[i] = (*p)[i];
  }
  void restore(gradient_presence* p) const {
    for (std::size_t i = 0; i < before_.size(); ++i) p->set(i, before_[i] != 0);
  }
  /// Called before each shard, so that nothing in the model's own gradients is lost.
  void begin_shard(gradient_presence* p) const {
    if (p != nullptr) p->clear();
  }

  template <class T>
  void take(const gradient_presence* p, T* to) const {
    for (std::size_t i = 0; i < before_.size(); ++i) to[i] = p->reached(i) ? T{1} : T{0};
  }

  template <class T>
  void finish(const T* sums, bool accumulate, gradient_presence* p) const {
    for (std::size_t i = 0; i < before_.size(); ++i)
      p->set(i, sums[i] != T{0} || (accumulate && before_[i] != 0));
  }

 private:
  std::vector<std::uint8_t> before_;
};
using invariant_presence = basic_invariant_presence<void>;

}  // namespace ikebana::detail
