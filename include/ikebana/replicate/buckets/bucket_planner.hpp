#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "ikebana/core/dtype.hpp"
#include "ikebana/core/error.hpp"
#include "ikebana/core/shape.hpp"
#include "ikebana/core/span_of.hpp"
#include "ikebana/replicate/buckets/buckets.hpp"
#include "ikebana/replicate/process_group.hpp"

namespace ikebana {

/// A gradient as the bucket planner sees it.
struct planned_tensor {
  dim_t bytes = 0;
  dtype type = dtype::float32;
  bool sparse = false;  ///< Gets its own bucket.
};

/// The tensors of each bucket, by index, and the cap that closed the bucket: 0 if none applied.
struct bucket_assignment {
  std::vector<std::vector<std::size_t>> buckets;
  std::vector<dim_t> limits;

  std::size_t size() const { return buckets.size(); }
  bool operator==(const bucket_assignment&) const = default;
};

/// Assigns tensors to buckets by size, as DistributedDataParallel does. It visits them in `order`,
/// which contains every index once (if empty, in their own order), and collects each dtype
/// separately. A bucket is closed by the tensor that makes it reach its limit, so that no tensor is
/// split and limits may be exceeded. Each dtype starts at the beginning of `limits`; the last limit
/// applies to all that follow. Incomplete buckets come last, in the order in which their dtypes
/// first appeared. Without `order`, buckets are then sorted by their smallest index. Throws
/// ikebana::error without limits or for an order that is not a permutation. O(tensors log tensors).
/// Allocates.
template <class = void>
bucket_assignment assign_buckets(std::span<const planned_tensor> tensors,
                                 std::span<const dim_t> limits,
                                 std::span<const std::size_t> order = {}) {
  if (limits.empty()) throw error("assign_buckets expects at least one limit");
  if (!order.empty()) {
    std::vector<bool> seen(tensors.size());
    bool valid = order.size() == tensors.size();
    for (const std::size_t i : order) {
      valid = valid && i < tensors.size() && !seen[i];
      if (valid) seen[i] = true;
    }
    if (!valid) throw error("assign_buckets expects an order with every index once");
  }
  struct open_bucket {
    dtype type;
    std::vector<std::size_t> tensors;
    dim_t bytes = 0;
    std::size_t limit = 0;
  };
  std::vector<open_bucket> open;
  std::vector<std::pair<std::vector<std::size_t>, dim_t>> closed;
  for (std::size_t k = 0; k < tensors.size(); ++k) {
    const std::size_t i = order.empty() ? k : order[k];
    if (tensors[i].sparse) {
      closed.push_back({{i}, 0});
      continue;
    }
    auto at = std::find_if(open.begin(), open.end(),
                           [&](const open_bucket& b) { return b.type == tensors[i].type; });
    if (at == open.end()) at = open.insert(at, {tensors[i].type, {}});
    at->tensors.push_back(i);
    at->bytes += tensors[i].bytes;
    if (at->bytes < limits[at->limit]) continue;
    closed.emplace_back(std::exchange(at->tensors, {}), limits[at->limit]);
    at->bytes = 0;
    if (at->limit + 1 < limits.size()) ++at->limit;
  }
  for (open_bucket& b : open)
    if (!b.tensors.empty()) closed.emplace_back(std::move(b.tensors), limits[b.limit]);
  if (order.empty())
    std::sort(closed.begin(), closed.end(), [](const auto& a, const auto& b) {
      return *std::min_element(a.first.begin(), a.first.end()) <
             *std::min_element(b.first.begin(), b.first.end());
    });
  bucket_assignment out;
  for (auto& [indices, limit] : closed) {
    out.buckets.push_back(std::move(indices));
    out.limits.push_back(limit);
  }
  return out;
}

/// Broadcasts rank 0's assignment to every rank: first the indices and the number of buckets, then
/// their sizes and limits. All ranks plan the same number of tensors. Allocates.
template <process_group G>
void broadcast_assignment(bucket_assignment& assignment, std::size_t tensors, G& group) {
  std::vector<std::int64_t> message;
  message.reserve(tensors + 1);
  for (const auto& bucket : assignment.buckets)
    for (const std::size_t i : bucket) message.push_back(static_cast<std::int64_t>(i));
  message.resize(tensors);
  message.push_back(static_cast<std::int64_t>(assignment.size()));
  group.broadcast(detail::span_of(message), 0);
  const auto count = static_cast<std::size_t>(message.back());

  std::vector<std::int64_t> sizes;
  for (std::size_t b = 0; b < assignment.size(); ++b) {
    sizes.push_back(static_cast<std::int64_t>(assignment.buckets[b].size()));
    sizes.push_back(assignment.limits[b]);
  }
  sizes.resize(2 * count);
  group.broadcast(detail::span_of(sizes), 0);

  assignment.buckets.assign(count, {});
  assignment.limits.resize(count);
  std::size_t at = 0;
  for (std::size_t b = 0; b < count; ++b) {
    for (std::int64_t n = 0; n < sizes[2 * b]; ++n)
      assignment.buckets[b].push_back(static_cast<std::size_t>(message[at++]));
    assignment.limits[b] = sizes[2 * b + 1];
  }
}

/// Options of bucket_planner, as in DistributedDataParallel. `caps` are in bytes; the last one is
/// repeated.
struct bucket_planner_options {
  std::vector<dim_t> caps{default_bucket_caps.begin(), default_bucket_caps.end()};
  bool static_graph = false;
  bool find_unused_parameters = false;
  /// Whether the last bucket has the first cap, instead of the first bucket.
  bool small_last_bucket = false;
};

/// Buckets of a graph known only at run time, planned as in DistributedDataParallel. The first plan
/// uses the reversed order of the parameters, since backward starts at the end; if it will be
/// rebuilt, all gradients of a dtype share one bucket until then. `rebuild`, called once after the
/// first synchronised backward, plans again in the order in which gradients arrived on rank 0,
/// unless the graph may change and leave parameters out (find_unused_parameters without
/// static_graph).
///
/// `mark_ready(i)` reports that gradient i is complete. Buckets are launched strictly in the order
/// of their index, not of their completion: `take_ready` returns the next one that can be launched.
/// The constructor throws ikebana::error if there is no cap.
///
/// A template, so that it is compiled only where it is used.
template <class>
class basic_bucket_planner {
 public:
  explicit basic_bucket_planner(std::vector<planned_tensor> tensors,
                                bucket_planner_options options = {})
      : tensors_{std::move(tensors)}, options_{std::move(options)} {
    if (options_.caps.empty()) throw error("bucket_planner expects at least one cap");
    const dim_t everything = std::numeric_limits<dim_t>::max();
    plan_ = assign(rebuilds() ? std::span{&everything, 1}
                              : detail::span_of(std::as_const(options_.caps)));
    std::reverse(plan_.buckets.begin(), plan_.buckets.end());
    std::reverse(plan_.limits.begin(), plan_.limits.end());
    begin_backward();
  }

  const bucket_assignment& plan() const { return plan_; }
  bool has_rebuilt() const { return has_rebuilt_; }

  /// Clears the ready marks; called before each synchronised backward.
  void begin_backward() {
    pending_.resize(plan_.size());
    bucket_of_.assign(tensors_.size(), 0);
    for (std::size_t b = 0; b < plan_.size(); ++b) {
      pending_[b] = plan_.buckets[b].size();
      for (const std::size_t i : plan_.buckets[b]) bucket_of_[i] = b;
    }
    ready_.assign(tensors_.size(), false);
    next_ = 0;
    if (!has_rebuilt_) arrived_.clear();
  }

  /// Throws state_error if a gradient becomes ready twice in one backward.
  void mark_ready(std::size_t i) {
    if (i >= tensors_.size() || ready_[i])
      throw state_error("gradient " + std::to_string(i) +
                        (i >= tensors_.size() ? " does not exist" : " was marked ready twice"));
    ready_[i] = true;
    --pending_[bucket_of_[i]];
    if (!has_rebuilt_ && rebuilds()) arrived_.push_back(i);
  }

  /// Whether a bucket can be launched now; if so, `bucket` is its index.
  bool take_ready(std::size_t& bucket) {
    if (next_ == plan_.size() || pending_[next_] != 0) return false;
    bucket = next_++;
    return true;
  }

  /// Whether all buckets have been launched; if not, a gradient is missing.
  bool is_complete() const { return next_ == plan_.size(); }

  /// After the first synchronised backward: plans again as described above and returns true, or
  /// returns false if there is nothing to do. A collective of all ranks. Throws state_error if a
  /// gradient never arrived.
  template <process_group G>
  bool rebuild(G& group) {
    if (has_rebuilt_ || !rebuilds() || arrived_.empty()) return false;
    if (arrived_.size() != tensors_.size())
      throw state_error("bucket_planner: " + std::to_string(tensors_.size() - arrived_.size()) +
                        " of " + std::to_string(tensors_.size()) +
                        " gradients did not come in the first backward");
    if (options_.small_last_bucket) std::reverse(arrived_.begin(), arrived_.end());
    plan_ = assign(detail::span_of(options_.caps), detail::span_of(arrived_));
    if (options_.small_last_bucket) {
      std::reverse(plan_.buckets.begin(), plan_.buckets.end());
      std::reverse(plan_.limits.begin(), plan_.limits.end());
    }
    broadcast_assignment(plan_, tensors_.size(), group);
    has_rebuilt_ = true;
    begin_backward();
    return true;
  }

  /// Plans for another graph: the next backward counts as the first again.
  void replan(std::vector<planned_tensor> tensors) {
    *this = basic_bucket_planner(std::move(tensors), std::move(options_));
  }

 private:
  bucket_assignment assign(std::span<const dim_t> caps,
                           std::span<const std::size_t> order = {}) const {
    return assign_buckets(detail::span_of(tensors_), caps, order);
  }
  bool rebuilds() const { return options_.static_graph || !options_.find_unused_parameters; }

  std::vector<planned_tensor> tensors_;
  bucket_planner_options options_;
  bucket_assignment plan_;
  std::vector<std::size_t> arrived_;    // In the first backward.
  std::vector<std::size_t> bucket_of_;  // By tensor.
  std::vector<std::size_t> pending_;    // By bucket: gradients that are not ready.
  std::vector<bool> ready_;             // By tensor.
  std::size_t next_ = 0;                // The next bucket to launch.
  bool has_rebuilt_ = false;
};

using bucket_planner = basic_bucket_planner<void>;

template <class Traits>
std::basic_ostream<char, Traits>& operator<<(std::basic_ostream<char, Traits>& out,
                                             const bucket_assignment& plan) {
  for (std::size_t b = 0; b < plan.size(); ++b) {
    out << "bucket " << b << ": limit " << plan.limits[b] << ", parameters";
    for (const std::size_t i : plan.buckets[b]) out << ' ' << i;
    out << '\n';
  }
  return out;
}

}  // namespace ikebana
