#pragma once

#include <array>
#include <cstddef>
#include <span>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

#include "ikebana/core/dtype.hpp"
#include "ikebana/cpu/elementwise.hpp"
#include "ikebana/replicate/comm_hook.hpp"
#include "ikebana/replicate/gradient_bucket.hpp"
#include "ikebana/replicate/parameter_groups.hpp"
#include "ikebana/replicate/policy.hpp"
#include "ikebana/replicate/process_group.hpp"

namespace ikebana::detail {

template <class Hook, class T, class Group>
using work_of_hook = decltype(std::declval<Hook&>().start(std::declval<gradient_bucket<T>>(),
                                                          std::declval<Group&>()));

/// Handles of several types, of which one is in use.
template <class... Work>
struct any_of_works {
  std::tuple<Work...> each{};

  bool poll() {
    return std::apply([](Work&... w) { return (w.poll() && ...); }, each);
  }
  void wait() {
    std::apply([](Work&... w) { (w.wait(), ...); }, each);
  }
};

/// The hook of a replica and those of its overrides. Each knows only the buckets of its own groups.
template <class Policy, class Hook, floating T, process_group Group>
class bucket_hooks {
  using groups = parameter_groups<Policy>;

  template <class Overrides>
  struct types;
  template <class... O>
  struct types<std::tuple<O...>> {
    template <class Override>
    using hook_of =
        typename Override::template option_of<comm_hook_key, comm_hook<noop_hook>>::type::type;
    static_assert((comm_hook_for<hook_of<O>, T, Group> && ...),
                  "ikebana: comm_hook expects a hook: a type with `result`, start(bucket, group) "
                  "that returns a handle, and finish(bucket, group)");
    static_assert((std::is_default_constructible_v<hook_of<O>> && ...),
                  "ikebana: override_at makes its hook without arguments");
    using hooks = std::tuple<Hook, hook_of<O>...>;
    using work = any_of_works<work_of_hook<Hook, T, Group>, work_of_hook<hook_of<O>, T, Group>...>;
    static hooks make(Hook&& hook) { return {std::move(hook), hook_of<O>()...}; }
  };
  using hooks_type = typename types<typename Policy::overrides>::hooks;
  static constexpr std::size_t hook_count = std::tuple_size_v<hooks_type>;

 public:
  using work_type = typename types<typename Policy::overrides>::work;
  using bucket_type = gradient_bucket<T>;

  explicit bucket_hooks(Hook hook)
      : hooks_(types<typename Policy::overrides>::make(std::move(hook))) {}

  /// The I-th hook: that of the policy, then those of its overrides.
  template <std::size_t I>
  auto& get() {
    return std::get<I>(hooks_);
  }

  /// Passes each hook its buckets; `group_of` is the group of each bucket.
  void prepare(std::span<const bucket_type> buckets, std::span<const std::size_t> group_of,
               Group& group) {
    for_hooks([&]<std::size_t I>(std::integral_constant<std::size_t, I>) {
      std::vector<bucket_type> own;
      for (std::size_t b = 0; b < buckets.size(); ++b)
        if (groups::hooks[group_of[b]] == I) own.push_back(buckets[b]);
      for (std::size_t b = 0; b < own.size(); ++b) {
        own[b].index = b;
        own[b].count = own.size();
      }
      if (!own.empty() || I == 0) prepare_hook(get<I>(), std::span<const bucket_type>{own}, group);
    });
    index_.assign(buckets.size(), 0);
    count_.assign(buckets.size(), 0);
    for (std::size_t b = 0; b < buckets.size(); ++b)
      for (std::size_t other = 0; other < buckets.size(); ++other) {
        if (groups::hooks[group_of[b]] != groups::hooks[group_of[other]]) continue;
        ++count_[b];
        index_[b] += other < b;
      }
  }

  static constexpr std::size_t stages(std::size_t of_group) {
    return hook_stages_[groups::hooks[of_group]];
  }
  static constexpr std::size_t most_stages() {
    std::size_t most = 1;
    for (const std::size_t s : hook_stages_) most = most < s ? s : most;
    return most;
  }
  static constexpr hook_result result(std::size_t of_group) {
    return results_[groups::hooks[of_group]];
  }

  /// Starts a bucket of a group; `divisor` is what the sum is divided by at the end.
  void start(bucket_type bucket, std::size_t of_group, Group& group, double divisor,
             work_type& work) {
    visit(of_group, [&]<std::size_t I>(std::integral_constant<std::size_t, I>) {
      if constexpr (std::is_same_v<std::tuple_element_t<I, hooks_type>, all_reduce_hook>)
        std::get<I>(work.each) = group.all_reduce_async(
            bucket.data, divisor == group.size() ? reduce_op::avg : reduce_op::sum);
      else
        std::get<I>(work.each) = get<I>().start(own(bucket), group);
    });
  }

  void proceed(bucket_type bucket, std::size_t of_group, Group& group, std::size_t stage,
               work_type& work) {
    visit(of_group, [&]<std::size_t I>(std::integral_constant<std::size_t, I>) {
      if constexpr (hook_stages_[I] > 1)
        std::get<I>(work.each) = get<I>().proceed(own(bucket), group, stage);
    });
  }

  void finish(bucket_type bucket, std::size_t of_group, Group& group, double divisor) {
    visit(of_group, [&]<std::size_t I>(std::integral_constant<std::size_t, I>) {
      using hook_type = std::tuple_element_t<I, hooks_type>;
      get<I>().finish(own(bucket), group);
      const auto size = static_cast<T>(group.size());
      T factor{1};
      if constexpr (hook_type::result == hook_result::sum ||
                    std::is_same_v<hook_type, all_reduce_hook>) {
        if (hook_type::result == hook_result::sum || divisor != group.size())
          factor = T{1} / static_cast<T>(divisor);
      } else if constexpr (hook_type::result == hook_result::average) {
        factor = size / static_cast<T>(divisor);
      }
      if (factor != T{1})
        cpu::scale<T>(static_cast<dim_t>(bucket.data.size()), factor, bucket.data.data());
    });
  }

 private:
  template <class F>
  static void for_hooks(const F& f) {
    [&]<std::size_t... I>(std::index_sequence<I...>) {
      (f(std::integral_constant<std::size_t, I>{}), ...);
    }
    (std::make_index_sequence<hook_count>{});
  }
  /// Calls f(std::integral_constant<std::size_t, i>) for the hook of a group.
  template <class F>
  static void visit(std::size_t of_group, const F& f) {
    for_hooks([&]<std::size_t I>(std::integral_constant<std::size_t, I> i) {
      if (groups::hooks[of_group] == I) f(i);
    });
  }
  template <std::size_t... I>
  static constexpr auto stages_of_all(std::index_sequence<I...>) {
    return std::array{std::size_t{hook_stages<std::tuple_element_t<I, hooks_type>>}...};
  }
  template <std::size_t... I>
  static constexpr auto results_of_all(std::index_sequence<I...>) {
    return std::array{hook_result{std::tuple_element_t<I, hooks_type>::result}...};
  }
  static constexpr std::array<std::size_t, hook_count> hook_stages_ =
      stages_of_all(std::make_index_sequence<hook_count>{});
  static constexpr std::array<hook_result, hook_count> results_ =
      results_of_all(std::make_index_sequence<hook_count>{});

  /// The bucket as numbered by its hook.
  bucket_type own(bucket_type bucket) const {
    const std::size_t b = bucket.index;
    bucket.index = index_[b];
    bucket.count = count_[b];
    return bucket;
  }

  hooks_type hooks_;
  std::vector<std::size_t> index_, count_;  // By bucket, among those of its hook.
};

}  // namespace ikebana::detail
