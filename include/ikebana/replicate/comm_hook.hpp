#pragma once

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <span>

#include "ikebana/replicate/gradient_bucket.hpp"
#include "ikebana/replicate/process_group.hpp"

namespace ikebana {

/// What the gradients are when a hook has finished. A `sum` is then divided by the number of ranks
/// by the caller; the others are left alone.
enum class hook_result : std::uint8_t { average, sum, local };

/// A communication hook: what happens to a bucket between backward and the optimizer. Each rank has
/// one object, which may keep state. It has
///
/// - `static constexpr hook_result result`: what the bucket contains at the end;
/// - `start(bucket, group)`, called when the bucket is ready: starts the communication without
///   waiting for it, and returns its handle;
/// - `finish(bucket, group)`, called in the order of the buckets once the handle is complete. It
///   must not start communication: ranks get there at different times, and collectives must be
///   called in the same order everywhere.
///
/// and may have
///
/// - `static constexpr std::size_t stages = n` and `proceed(bucket, group, stage)`, for hooks that
///   need several collectives in sequence: called for each stage in 1 ... n - 1 once the previous
///   one is complete; it returns the handle of the next, of the same type as that of `start`
///   (`work_of<Group>{}` if there is nothing to do). It runs when bucket `index + stage` is
///   started, or after the last one: at the same point on every rank;
/// - `prepare(std::span<const gradient_bucket<T>>, group)`, called once, before the first step,
///   with all buckets: the place to allocate, so that steps do not;
/// - `fingerprint() const`, a std::uint64_t hash of its run-time options, which is compared across
///   ranks when a model is replicated.
///
/// Gradients that each rank clips before they are averaged:
///
///     struct clip_and_average {
///       static constexpr ike::hook_result result = ike::hook_result::sum;
///       template <class T, ike::process_group G>
///       auto start(ike::gradient_bucket<T> bucket, G& group) {
///         for (T& g : bucket.data) g = std::clamp(g, T{-1}, T{1});
///         return group.all_reduce_async(bucket.data, ike::reduce_op::sum);
///       }
///       template <class T, ike::process_group G>
///       void finish(ike::gradient_bucket<T>, G&) {}
///     };
///
/// is used as `replicate_policy<comm_hook<clip_and_average>>`; a hook with run-time options is
/// passed to `replicate` as an object.
template <class H, class T, class G>
concept comm_hook_for = std::movable<H> && requires(H& h, gradient_bucket<T> bucket, G& group) {
  { H::result } -> std::convertible_to<hook_result>;
  { h.start(bucket, group) } -> pending_work;
  h.finish(bucket, group);
};

/// The number of collectives that a hook runs per bucket, in sequence.
template <class H>
inline constexpr std::size_t hook_stages = 1;
template <class H>
requires requires { H::stages; }
inline constexpr std::size_t hook_stages<H> = H::stages;

/// Lets a hook allocate, if it has `prepare`.
template <class H, class T, class G>
void prepare_hook(H& hook, std::span<const gradient_bucket<T>> buckets, G& group) {
  if constexpr (requires { hook.prepare(buckets, group); }) hook.prepare(buckets, group);
}

/// The default: the average over the ranks.
struct all_reduce_hook {
  static constexpr hook_result result = hook_result::average;
  /// The type in which it averages gradients of T, for hooks that do nothing else.
  template <class T>
  using wire_type = T;

  template <class T, process_group G>
  auto start(gradient_bucket<T> bucket, G& group) {
    return group.all_reduce_async(bucket.data, reduce_op::avg);
  }
  template <class T, process_group G>
  void finish(gradient_bucket<T>, G&) {}
};

/// No communication: every rank keeps its own gradients.
struct noop_hook {
  static constexpr hook_result result = hook_result::local;

  template <class T, process_group G>
  complete_work start(gradient_bucket<T>, G&) {
    return {};
  }
  template <class T, process_group G>
  void finish(gradient_bucket<T>, G&) {}
};

}  // namespace ikebana
