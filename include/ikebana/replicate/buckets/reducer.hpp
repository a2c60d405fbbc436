#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "ikebana/core/dtype.hpp"
#include "ikebana/core/shape.hpp"
#include "ikebana/cpu/elementwise.hpp"
#include "ikebana/replicate/buckets/bucket_hooks.hpp"
#include "ikebana/replicate/buckets/buckets.hpp"
#include "ikebana/replicate/buckets/delayed_reduction.hpp"
#include "ikebana/replicate/feature.hpp"
#include "ikebana/replicate/gradient_accumulation.hpp"
#include "ikebana/replicate/gradient_bucket.hpp"
#include "ikebana/replicate/parameter_groups.hpp"
#include "ikebana/replicate/process_group.hpp"

namespace ikebana::detail {

/// Averages the gradients of one replica, bucket by bucket, during backward. Told that a prefix of
/// the flat buffer is final, it starts the buckets that are complete and finishes those that have
/// arrived. A hook with several stages runs them at points that do not depend on timing, so that
/// all ranks call the same collectives in the same order: stage s of a bucket runs when the s-th
/// bucket after it is started.
template <class Policy, class Hook, floating T, process_group Group, std::size_t Parameters>
class reducer {
  using groups = parameter_groups<Policy>;
  using hooks_type = bucket_hooks<Policy, Hook, T, Group>;
  static constexpr std::size_t stages = hooks_type::most_stages();

 public:
  static constexpr std::size_t most_buckets = Parameters;
  using bucket_type = gradient_bucket<T>;

  /// The memory of the gradients and the group must outlive it and keep their addresses.
  reducer(Group& group, Hook hook, std::span<T> gradients,
          const named_bucket_plan<most_buckets>& plan, std::vector<element_range> delayed)
      : group_{&group},
        hooks_{std::move(hook)},
        gradients_{gradients},
        plan_{plan},
        delayed_{gradients, std::move(delayed)},
        sums_{gradients} {
    prepare();
  }

  /// Continues in another group, with new hooks.
  void regroup(Group& group, Hook hook) {
    group_ = &group;
    hooks_ = hooks_type{std::move(hook)};
    prepare();
  }

  /// Changes the buckets of the same gradients, between two backwards.
  void replan(const named_bucket_plan<most_buckets>& plan) {
    plan_ = plan;
    skipped_.fill(false);
    prepare();
  }
  /// Whether bucket b is left out of the following backwards.
  void skip(std::size_t b, bool skipped) { skipped_[b] = skipped; }

  const auto& plan() const { return plan_; }
  auto& hooks() { return hooks_; }
  /// The policy's hook.
  auto& hook() { return hooks_.template get<0>(); }
  Group& group() const { return *group_; }

  bucket_type bucket(std::size_t b) const {
    const bucket_range& range = plan_[b];
    constexpr auto element = static_cast<dim_t>(sizeof(T));
    return {gradients_.subspan(static_cast<std::size_t>(range.begin / element),
                               static_cast<std::size_t>(range.bytes() / element)),
            b, plan_.size(), plan_.parameters(b), range.begin / element};
  }

  /// By group: whether its buckets are reduced in a synchronised backward, and the divisor of their
  /// sums; 0 for the number of ranks.
  std::array<bool, groups::count>& synchronises() { return synchronises_; }
  const std::array<bool, groups::count>& synchronises() const { return synchronises_; }
  std::array<double, groups::count>& divide_factors() { return divide_factors_; }
  /// The factor that turns a mean over all ranks into one over the active ranks.
  void set_share(T part) { share_ = part; }

  /// What the sum of a group's gradients over all ranks is divided by, and over the active ones.
  double factor_of(std::size_t of_group) const {
    return divide_factors_[of_group] == 0 ? group_->size() : divide_factors_[of_group];
  }
  double divisor(std::size_t of_group) const {
    return share_ == T{1} ? factor_of(of_group) : factor_of(of_group) / static_cast<double>(share_);
  }

  /// Called before a backward that reduces or not, and that adds to the gradients or overwrites
  /// them. Waits for reductions that an earlier backward left in flight.
  template <class Features>
  void begin(bool reduces, bool accumulate, Features& features) {
    drain(features);
    if (accumulate) scale_reduced();
    reduced_.fill(false);
    sums_.begin(accumulate);
    reduces_ = reduces;
    starts_delayed_ = reduces && !delayed_.empty() && synchronises_[0];
    next_ = started_ = finished_ = 0;
  }

  /// Called when the first `elements` elements of the gradients are final.
  template <class Features>
  void advance(dim_t elements, Features& features) {
    sums_.add_up_to(elements);
    if (!reduces_) return;
    const dim_t bytes = elements * static_cast<dim_t>(sizeof(T));
    for (; next_ < plan_.size() && plan_[next_].end <= bytes; ++next_) {
      start_delayed(plan_[next_].end / static_cast<dim_t>(sizeof(T)));
      if (synchronises_[plan_[next_].group] && !skipped_[next_]) start(features);
    }
    start_delayed(elements);
    while (finished_ < started_ && works_[finished_].poll() && is_in_last_stage(finished_))
      finish(features);
  }

  /// Waits for all buckets, in order.
  template <class Features>
  void drain(Features& features) {
    for (std::size_t s = 0; s + 1 < stages && finished_ < started_; ++s) proceed(started_ + s);
    while (finished_ < started_) {
      tell_before_wait(features, order_[finished_]);
      works_[finished_].wait();
      finish(features);
    }
    if (!delayed_.finish()) return;
    delayed_is_reduced_ = true;
    for (const element_range& p : delayed_.pieces()) sums_.replace(p.begin, p.size);
  }

  /// Withdraws what is in flight while an exception unwinds, so that no rank touches the memory
  /// later.
  void abandon() {
    for (auto& work : works_) [[maybe_unused]] const auto withdrawn = std::exchange(work, {});
    delayed_.abandon();
    reduces_ = starts_delayed_ = false;
    next_ = started_ = finished_ = 0;
  }

 private:
  void prepare() {
    std::vector<bucket_type> all;
    std::vector<std::size_t> group_of;
    for (std::size_t b = 0; b < plan_.size(); ++b) {
      all.push_back(bucket(b));
      group_of.push_back(plan_[b].group);
    }
    hooks_.prepare(all, group_of, *group_);
    reduced_.fill(false);
    delayed_is_reduced_ = false;
  }

  bool is_in_last_stage(std::size_t k) const {
    return stage_[k] + 1u == hooks_type::stages(plan_[order_[k]].group);
  }

  /// Gradients that were reduced earlier enter the next reduction on every rank, so they count as
  /// often as there are ranks and are then divided. They count once only if the divisor is the
  /// number of ranks.
  void scale_reduced() {
    const auto scale = [this](double by, std::span<T> data) {
      const T factor = static_cast<T>(by / group_->size());
      if (factor != T{1}) cpu::scale<T>(static_cast<dim_t>(data.size()), factor, data.data());
    };
    for (std::size_t b = 0; b < plan_.size(); ++b)
      if (reduced_[b] && hooks_type::result(plan_[b].group) != hook_result::local)
        scale(factor_of(plan_[b].group), bucket(b).data);
    if (!delayed_is_reduced_) return;
    delayed_is_reduced_ = false;
    for (const element_range& p : delayed_.pieces())
      scale(factor_of(0), gradients_.subspan(static_cast<std::size_t>(p.begin),
                                             static_cast<std::size_t>(p.size)));
  }

  void start_delayed(dim_t elements) {
    if (!starts_delayed_ || delayed_.end() > elements) return;
    delayed_.start(*group_, divisor(0));
    starts_delayed_ = false;
  }

  template <class Features>
  void start(Features& features) {
    const std::size_t g = plan_[next_].group;
    proceed(started_);
    order_[started_] = next_;
    stage_[started_] = 0;
    const bucket_type b = bucket(next_);
    tell_bucket_started(features, b, *group_);
    hooks_.start(b, g, *group_, divisor(g), works_[started_]);
    ++started_;
  }

  /// Runs the later stages of the buckets before the `next`-th, the most advanced first.
  void proceed([[maybe_unused]] std::size_t next) {
    if constexpr (stages > 1)
      for (std::size_t s = stages; --s > 0;) {
        if (next < s || next - s >= started_) continue;
        const std::size_t k = next - s, g = plan_[order_[k]].group;
        if (s >= hooks_type::stages(g)) continue;
        works_[k].wait();
        hooks_.proceed(bucket(order_[k]), g, *group_, s, works_[k]);
        stage_[k] = static_cast<std::uint8_t>(s);
      }
  }

  template <class Features>
  void finish(Features& features) {
    const std::size_t index = order_[finished_], g = plan_[index].group;
    const bucket_type b = bucket(index);
    hooks_.finish(b, g, *group_, divisor(g));
    reduced_[index] = true;
    sums_.replace(b.begin, static_cast<dim_t>(b.data.size()));
    ++finished_;
    tell_bucket_finished(features, b, *group_);
  }

  using sums_type = typename sums_of<
      typename policy_option<Policy, gradient_accumulation_key, gradient_accumulation<void>>::type,
      T>::type;

  Group* group_;
  hooks_type hooks_;
  std::span<T> gradients_;
  named_bucket_plan<most_buckets> plan_;
  delayed_reduction<T, Group> delayed_;
  [[no_unique_address]] sums_type sums_;
  std::array<bool, groups::count> synchronises_ = groups::synchronises;
  std::array<double, groups::count> divide_factors_ = groups::divide_factors;
  T share_{1};
  std::array<bool, most_buckets> skipped_{};
  std::array<bool, most_buckets> reduced_{};  ///< Since the last zeroed or local gradients.
  bool delayed_is_reduced_ = false;
  // Of the backward that is running, or that left buckets in flight.
  std::array<std::size_t, most_buckets> order_{};  ///< Buckets in order of their start.
  std::array<typename hooks_type::work_type, most_buckets> works_{};  ///< In that order.
  std::array<std::uint8_t, most_buckets> stage_{};
  bool reduces_ = false, starts_delayed_ = false;
  std::size_t next_ = 0;  ///< The first incomplete bucket.
  std::size_t started_ = 0, finished_ = 0;
};

}  // namespace ikebana::detail
