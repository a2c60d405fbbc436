#pragma once

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <span>

#include "ikebana/core/dtype.hpp"
#include "ikebana/core/shape.hpp"
#include "ikebana/cpu/collective.hpp"
#include "ikebana/replicate/process_group.hpp"

namespace ikebana {

/// A contiguous slice of the flat gradient buffer, handed to the communication hook as soon as
/// backward has finished it. Buckets come in the order of their index on every rank.
template <class T>
struct gradient_bucket {
  std::span<T> data;
  std::size_t index = 0;
  std::size_t count = 1;  // of the buckets of one backward

  constexpr bool is_last() const { return index + 1 == count; }
};

/// What the gradients are when a hook has finished with them. A `sum` is divided by the number of
/// ranks afterwards by whoever runs the hook; the others are left alone.
enum class hook_result : std::uint8_t { average, sum, local };

/// A communication hook: what happens to a bucket between backward and the optimizer.
///
/// `hook.start(bucket, group)` is called when the bucket is ready, begins the communication without
/// waiting for it, and returns its handle. When the handle is complete, `hook.finish(bucket,
/// group)` is called, in the order of the buckets. `result` says what the bucket then holds. A hook
/// may keep state; it is one object for each rank.
template <class H, class T, class G>
concept comm_hook_for = std::default_initializable<H> && std::movable<H> &&
    requires(H& h, gradient_bucket<T> bucket, G& group) {
  { H::result } -> std::convertible_to<hook_result>;
  { h.start(bucket, group) } -> pending_work;
  h.finish(bucket, group);
};

/// The default: the average over the ranks.
struct all_reduce_hook {
  static constexpr hook_result result = hook_result::average;

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

/// Gradients to the precision of bfloat16: each rank rounds its own before the averaging, the sum
/// is taken in the full type in the order of the ranks, and the average is rounded; to nearest,
/// ties to even, a double through float, as in PyTorch. So the result is what a transport of two
/// bytes per gradient would give that accumulates in full precision. Between threads nothing is
/// sent at all: ranks read each other's memory, and the rounding saves no bandwidth; it serves to
/// train here as on several machines.
struct bf16_compress {
  static constexpr hook_result result = hook_result::average;

  template <floating T, process_group G>
  auto start(gradient_bucket<T> bucket, G& group) {
    round(bucket.data);
    return group.all_reduce_async(bucket.data, reduce_op::avg);
  }
  template <floating T, process_group G>
  void finish(gradient_bucket<T> bucket, G&) {
    round(bucket.data);
  }

 private:
  template <class T>
  static void round(std::span<T> data) {
    cpu::round_to_bf16(static_cast<dim_t>(data.size()), data.data());
  }
};

}  // namespace ikebana
