#pragma once

#include <concepts>
#include <cstdint>

#include "ikebana/core/error.hpp"
#include "ikebana/replicate/comm_hook.hpp"

namespace ikebana {

/// Ranks do not average gradients at all once post-local SGD has started.
struct no_subgroup {};

/// Post-local SGD (Lin, Stich, Patel, Jaggi: Don't Use Large Mini-Batches, Use Local SGD, 2018;
/// arXiv 1808.07217): gradients are averaged over all ranks in the first `start_iteration`
/// backwards, afterwards only within a sub-group, a group of the same type that contains this rank,
/// or not at all without one. Parameters then diverge, and a `model_averager` averages them.
///
///     ike::thread_group& node = ...;  // the ranks of this machine
///     auto model = ike::replicate<ike::replicate_policy<ike::comm_hook<
///         ike::post_local_sgd<ike::thread_group>>>>(made, group, ike::post_local_sgd{100, node});
///
/// The sub-group must outlive the model, and its collectives are called in the order of the
/// buckets: do not use it for anything else during a backward. Throws ikebana::error for a negative
/// start_iteration.
template <class Subgroup = no_subgroup>
class post_local_sgd {
 public:
  static constexpr hook_result result = hook_result::local;
  static constexpr bool holds_a_group = !std::same_as<Subgroup, no_subgroup>;

  explicit post_local_sgd(std::int64_t start_iteration = 0) requires(
      std::same_as<Subgroup, no_subgroup>)
      : start_iteration_{start_iteration} {
    check();
  }
  post_local_sgd(std::int64_t start_iteration, Subgroup& subgroup)
      : start_iteration_{start_iteration}, subgroup_{&subgroup} {
    check();
  }

  std::uint64_t fingerprint() const { return static_cast<std::uint64_t>(start_iteration_); }
  /// The number of completed backwards.
  std::int64_t iteration() const { return iteration_; }
  /// Sets the number of completed backwards, to resume a saved run.
  void set_iteration(std::int64_t iteration) { iteration_ = iteration; }
  void reset() { iteration_ = 0; }

  template <class T, process_group G>
  auto start(gradient_bucket<T> bucket, G& group) {
    using work = decltype(group.all_reduce_async(bucket.data, reduce_op::avg));
    if (iteration_ < start_iteration_) return group.all_reduce_async(bucket.data, reduce_op::avg);
    if constexpr (std::same_as<Subgroup, no_subgroup>) {
      return work{};
    } else {
      static_assert(
          std::same_as<work, decltype(subgroup_->all_reduce_async(bucket.data, reduce_op::avg))>,
          "ikebana: the sub-group of post_local_sgd must be of the same type as the group");
      return subgroup_->all_reduce_async(bucket.data, reduce_op::avg);
    }
  }
  template <class T, process_group G>
  void finish(gradient_bucket<T> bucket, G&) {
    if (bucket.is_last()) ++iteration_;
  }

 private:
  void check() const {
    if (start_iteration_ < 0)
      throw error("post_local_sgd expects a start_iteration that is not negative");
  }

  std::int64_t start_iteration_;
  std::int64_t iteration_ = 0;
  Subgroup* subgroup_ = nullptr;
};

post_local_sgd()->post_local_sgd<no_subgroup>;
post_local_sgd(std::int64_t)->post_local_sgd<no_subgroup>;

}  // namespace ikebana
