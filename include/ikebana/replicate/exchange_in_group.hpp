#pragma once

#include <cstddef>
#include <span>

#include "ikebana/module/replica_exchange.hpp"
#include "ikebana/replicate/process_group.hpp"

namespace ikebana::detail {

/// Whether a leaf of the model sums over the ranks: sync_batch_norm.
template <class Model>
inline constexpr bool has_exchanges = [] {
  for (std::size_t l = 0; l < Model::lowered().leaves.size(); ++l)
    if (Model::lowered().leaves[l].kind.starts_with("sync_batch_norm")) return true;
  return false;
}();

/// The sums of a group, for the calls on this thread while it lives.
template <class Group>
class exchange_in_group final : public replica_exchange {
 public:
  explicit exchange_in_group(Group& group) : group_{group}, scope_{*this} {}
  void sum(std::span<double> values) override { group_.all_reduce(values, reduce_op::sum); }

 private:
  Group& group_;
  scope scope_;
};
struct no_exchange {
  template <class Group>
  explicit no_exchange(Group&) {}
};

}  // namespace ikebana::detail
