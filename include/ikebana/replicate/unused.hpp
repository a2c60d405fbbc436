#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "ikebana/core/aligned_buffer.hpp"
#include "ikebana/core/dtype.hpp"
#include "ikebana/core/error.hpp"
#include "ikebana/core/span_of.hpp"
#include "ikebana/model/passes/gradient_presence.hpp"
#include "ikebana/replicate/buckets/bucket_planner.hpp"
#include "ikebana/replicate/buckets/buckets.hpp"
#include "ikebana/replicate/buckets/rebuilt_buckets.hpp"
#include "ikebana/replicate/parameter_groups.hpp"
#include "ikebana/replicate/policy.hpp"
#include "ikebana/replicate/process_group.hpp"
#include "ikebana/replicate/shard_optimizer.hpp"
#include "ikebana/replicate/unused_options.hpp"

namespace ikebana {

namespace detail {

/// Whose backward a reduction belongs to: this rank's, or that of other ranks, for which this one
/// has no batch.
enum class backward_of : std::uint8_t { own, others };

/// For a model whose gradients may be absent: which parameters each backward reaches, and the
/// consequences for all ranks. Parameters are numbered as in gradient_presence.
template <class Policy, class Model, process_group Group>
class unused_parameters {
  using T = typename Model::value_type;
  using groups = parameter_groups<Policy>;
  static constexpr std::size_t size = Model::parameter_count;

 public:
  void set_up(std::span<const bucket_parameter> parameters, const gradient_presence& presence,
              std::span<const dim_t> caps) {
    parameters_ = {parameters.begin(), parameters.end()};
    for (auto* flags : {&used_, &is_saved_, &recorded_, &takes_part_}) flags->assign(size, 0);
    counts_.assign(size, 0);
    arrived_.reserve(size);
    saved_ = aligned_buffer<T>(size == 0 ? 0 : presence.range(size - 1).end);
    group_of_.clear();
    for (const bucket_parameter& p : parameters_)
      group_of_.push_back(groups::is_ignored(p.path.view())   ? ignored
                          : groups::is_delayed(p.path.view()) ? delayed
                                                              : groups::group_of(p.path.view()));
    if constexpr (has_static_graph<Policy>) {
      std::vector<planned_tensor> tensors;
      for (std::size_t i = 0; i < size; ++i)
        tensors.push_back({presence.range(i).size() * static_cast<dim_t>(sizeof(T)), dtype_of<T>});
      planner_ = bucket_planner(std::move(tensors),
                                {.caps = {caps.begin(), caps.end()}, .static_graph = true});
    }
  }

  /// Resets to the state before the first backward, in another group.
  void restart() {
    has_recorded_ = has_own_record_ = false;
    forget();
  }
  /// While an exception unwinds: withdraws what is in flight.
  void abandon() {
    [[maybe_unused]] const auto withdrawn = std::exchange(work_, {});
    is_pending_ = false;
  }
  /// Discards what was reached and not reduced.
  void forget() { std::fill(used_.begin(), used_.end(), std::uint8_t{0}); }

  /// Called before a backward that reduces or not, and that adds to the gradients or overwrites
  /// them.
  template <class Predict, class Reducer>
  void begin(const Predict& predict, const gradient_presence& presence,
             std::span<const T> gradients, Reducer& reducer, bool reduces, bool accumulates,
             backward_of whose) {
    if (!accumulates) forget();
    is_others_ = whose == backward_of::others;
    arrived_.clear();
    if (!is_others_)
      predict([&](std::size_t first, std::size_t count) {
        for (std::size_t i = first; i < first + count; ++i) {
          used_[i] = 1;
          arrived_.push_back(i);
        }
      });
    if (!reduces) return;
    const auto& synchronises = reducer.synchronises();
    for (std::size_t i = 0; i < size; ++i)
      takes_part_[i] = group_of_[i] == delayed ? synchronises[0]
                       : group_of_[i] == ignored
                           ? false
                           : synchronises[static_cast<std::size_t>(group_of_[i])];
    start(reducer.group());
    for (std::size_t b = 0; b < reducer.plan().size(); ++b)
      reducer.skip(b, is_idle(reducer.plan()[b]));
    // Gradients that no rank reached must keep their current values, whatever a reduction does to
    // them.
    for (std::size_t i = 0; i < size; ++i) {
      is_saved_[i] = accumulates && takes_part_[i] && presence[i] && !used_[i];
      if (is_saved_[i]) copy(gradients, saved_.data(), presence.range(i));
    }
  }

  /// Called once all buckets are reduced.
  template <class Reducer>
  void finish(gradient_presence& presence, std::span<T> gradients, Reducer& reducer) {
    if (!std::exchange(is_pending_, false)) return;
    work_.wait();
    for (std::size_t i = 0; i < size; ++i) {
      if (!takes_part_[i]) continue;
      const parameter_range& r = presence.range(i);
      if (counts_[i] > 0)
        presence.set(i);
      else if (is_saved_[i])
        copy(std::span<const T>{saved_.data(), static_cast<std::size_t>(saved_.size())},
             gradients.data(), r);
      else if (!presence[i])
        std::fill(gradients.data() + r.begin, gradients.data() + r.end, T{0});
    }
    if constexpr (has_static_graph<Policy>) record_or_check(presence, reducer);
    for (std::size_t i = 0; i < size; ++i)
      if (takes_part_[i]) used_[i] = 0;
    if constexpr (has_static_graph<Policy>)
      complain_of_change();
    else if constexpr (!finds_unused<Policy>)
      complain(reducer.group().size(), "not every rank's backward gives a gradient to ");
  }

  /// The number of ranks that reached the parameter before the last reduction.
  std::int32_t count(std::size_t i) const { return counts_[i]; }
  bool has_rebuilt() const { return planner_.has_rebuilt(); }

 private:
  static constexpr int ignored = -1, delayed = -2;

  void start(Group& group) {
    is_pending_ = true;
    if constexpr (has_static_graph<Policy>)
      if (has_recorded_) {
        change_[0] = is_others_ ? 0 : first_change();
        work_ = group.all_reduce_async(span_of(change_), reduce_op::max);
        return;
      }
    // Ranks without data count as using every parameter.
    const bool counts_as_used = is_others_ && !finds_unused<Policy> && !has_static_graph<Policy>;
    for (std::size_t i = 0; i < size; ++i)
      counts_[i] = takes_part_[i] && (used_[i] || counts_as_used);
    work_ = group.all_reduce_async(span_of(counts_), reduce_op::sum);
    if constexpr (skips_unused<Policy>) {
      work_.wait();
      if constexpr (!finds_unused<Policy> && !has_static_graph<Policy>)
        for (const std::int32_t count : counts_)
          if (count != 0 && count != group.size()) {
            is_pending_ = false;
            complain(group.size(),
                     "skip_unused: not every rank's backward would give a gradient to ");
          }
    }
  }

  /// The parameter that differs from the first backward, and whether it was reached; 0 if none.
  std::int32_t first_change() {
    if (!std::exchange(has_own_record_, true))
      for (std::size_t i = 0; i < size; ++i) recorded_[i] = used_[i] != 0 && counts_[i] > 0;
    for (std::size_t i = 0; i < size; ++i)
      if (takes_part_[i] && used_[i] != recorded_[i])
        return static_cast<std::int32_t>(2 * (i + 1) + used_[i]);
    return 0;
  }

  /// Whether no rank is known to have anything to send in this bucket.
  bool is_idle(const bucket_range& b) const {
    if (!(skips_unused<Policy> || (has_static_graph<Policy> && has_recorded_))) return false;
    for (std::size_t i = b.first_parameter; i <= b.last_parameter; ++i)
      if (counts_[i] > 0) return false;
    return true;
  }

  static void copy(std::span<const T> from, T* to, const parameter_range& r) {
    std::copy(from.data() + r.begin, from.data() + r.end, to + r.begin);
  }

  void complain(int ranks, const char* what) const {
    std::string paths;
    for (std::size_t i = 0; i < size; ++i) {
      if (!takes_part_[i] || counts_[i] == ranks || (skips_unused<Policy> && counts_[i] == 0))
        continue;
      if (!paths.empty()) paths += ", ";
      paths += std::string{parameters_[i].path.view()} + " (on " + std::to_string(counts_[i]) +
               " of " + std::to_string(ranks) + " ranks)";
    }
    if (paths.empty()) return;
    throw state_error(
        what + paths +
        "; branches that are chosen at run time, and outputs without a gradient, need "
        "find_unused_parameters<true> or static_graph<true>");
  }

  template <class Reducer>
  void record_or_check(const gradient_presence& presence, Reducer& reducer) {
    if (std::exchange(has_recorded_, true)) return;
    has_own_record_ = !is_others_;
    recorded_ = used_;
    // An optimizer's state for a bucket's elements depends on the buckets.
    if constexpr (!shards_optimizer<Policy>) rebuild(presence, reducer);
  }

  void complain_of_change() {
    const std::int32_t change = change_[0];
    if (change == 0) return;
    const bucket_parameter& p = parameters_[static_cast<std::size_t>(change / 2 - 1)];
    throw state_error(
        "the training graph has changed in this backward: " + std::string{p.path.view()} +
        (change % 2 == 1 ? " was reached, which it was not in the first one"
                         : " was not reached, which it was in the first one") +
        "; static_graph<true> expects every backward to be like the first");
  }

  template <class Reducer>
  void rebuild(const gradient_presence& presence, Reducer& reducer) {
    planner_.begin_backward();
    std::vector<bool> has_arrived(size);
    for (const std::size_t i : arrived_) {
      has_arrived[i] = true;
      planner_.mark_ready(i);
    }
    for (std::size_t i = 0; i < size; ++i)
      if (!has_arrived[i]) planner_.mark_ready(i);
    if (!planner_.rebuild(reducer.group())) return;
    reducer.replan(rebuilt_buckets<T, size>(planner_.plan(), presence, span_of(parameters_),
                                            span_of(group_of_),
                                            [this](std::size_t i) { return counts_[i] > 0; }));
  }

  std::vector<bucket_parameter> parameters_;
  std::vector<int> group_of_;
  std::vector<std::uint8_t> used_;        ///< Reached since the last reduction.
  std::vector<std::uint8_t> takes_part_;  ///< In the reduction of this backward.
  std::vector<std::uint8_t> recorded_;    ///< used_ of the first reduction.
  std::vector<std::uint8_t> is_saved_;
  aligned_buffer<T> saved_;
  std::vector<std::size_t> arrived_;
  std::vector<std::int32_t> counts_;
  std::vector<std::int32_t> change_ = {0};  ///< On the heap, since a replica may be moved.
  work_of<Group> work_{};
  bucket_planner planner_{std::vector<planned_tensor>{}};
  bool is_pending_ = false;
  bool is_others_ = false;  ///< The backward is not this rank's own.
  bool has_recorded_ = false, has_own_record_ = false;
};

}  // namespace detail
}  // namespace ikebana
