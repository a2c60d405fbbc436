#pragma once

#include <cstddef>
#include <span>
#include <type_traits>
#include <utility>
#include <vector>

#include "ikebana/core/aligned_buffer.hpp"
#include "ikebana/core/bfloat16.hpp"
#include "ikebana/core/dtype.hpp"
#include "ikebana/core/error.hpp"
#include "ikebana/core/float16.hpp"
#include "ikebana/core/number_format.hpp"
#include "ikebana/core/shape.hpp"
#include "ikebana/cpu/round.hpp"
#include "ikebana/replicate/comm_hook.hpp"
#include "ikebana/replicate/mixed/gradient_cast.hpp"

namespace ikebana {

/// Rounds gradients to a smaller type around any hook: each rank rounds its own gradients before
/// the hook, and the hook's results are rounded (to nearest, ties to even; a double goes through
/// float, as in PyTorch). The hook itself works in the full type. The result is that of a transport
/// with two bytes per gradient that accumulates in full precision, but the amount of communication
/// does not shrink.
template <class Half, class Hook>
class compress_wrapper {
 public:
  static constexpr hook_result result = Hook::result;
  static constexpr std::size_t stages = hook_stages<Hook>;

  compress_wrapper() = default;
  explicit compress_wrapper(Hook hook) : hook_{std::move(hook)} {}

  template <class T, process_group G>
  void prepare(std::span<const gradient_bucket<T>> buckets, G& group) {
    prepare_hook(hook_, buckets, group);
  }
  template <floating T, process_group G>
  auto start(gradient_bucket<T> bucket, G& group) {
    round(bucket.data);
    return hook_.start(bucket, group);
  }
  template <floating T, process_group G>
  auto proceed(gradient_bucket<T> bucket, G& group, std::size_t stage) {
    return hook_.proceed(bucket, group, stage);
  }
  template <floating T, process_group G>
  void finish(gradient_bucket<T> bucket, G& group) {
    hook_.finish(bucket, group);
    round(bucket.data);
  }

  void reset() requires requires(Hook& h) { h.reset(); }
  { hook_.reset(); }

  Hook& inner() { return hook_; }
  std::uint64_t fingerprint() const requires requires(const Hook& h) { h.fingerprint(); }
  { return hook_.fingerprint(); }

 private:
  template <class T>
  static void round(std::span<T> data) {
    constexpr number_format to =
        std::is_same_v<Half, bfloat16> ? number_format::bfloat16 : number_format::float16;
    cpu::round_to(static_cast<dim_t>(data.size()), to, data.data(), data.data());
  }

  Hook hook_{};
};

/// The average of gradients sent in a type of two bytes, summed in float in rank order and rounded
/// once. With float16, a gradient above 65504 becomes infinite. `prepare` allocates two bytes per
/// gradient; `start` throws state_error if it has not been called.
template <class Half>
class compress_hook {
 public:
  static constexpr hook_result result = hook_result::average;
  template <class>
  using wire_type = Half;

  template <floating T, process_group G>
  void prepare(std::span<const gradient_bucket<T>> buckets, G&) {
    offsets_.clear();
    dim_t size = 0;
    for (const gradient_bucket<T>& b : buckets) {
      offsets_.push_back(size);
      size += round_up_to_alignment<Half>(static_cast<dim_t>(b.data.size()));
    }
    memory_ = aligned_buffer<Half>(size);
  }
  template <floating T, process_group G>
  auto start(gradient_bucket<T> bucket, G& group) {
    if (bucket.index >= offsets_.size())
      throw state_error("compress_hook: prepare must be called before the first bucket");
    const std::span<Half> sent = memory_of(bucket);
    detail::pack_gradients(static_cast<dim_t>(sent.size()), bucket.data.data(), sent.data());
    return group.all_reduce_async(sent, reduce_op::avg);
  }
  template <floating T, process_group G>
  void finish(gradient_bucket<T> bucket, G&) {
    const std::span<Half> sent = memory_of(bucket);
    detail::unpack_gradients(static_cast<dim_t>(sent.size()), sent.data(), bucket.data.data());
  }

 private:
  template <class T>
  std::span<Half> memory_of(const gradient_bucket<T>& b) {
    return {memory_.data() + offsets_[b.index], b.data.size()};
  }

  std::vector<dim_t> offsets_;  // Of the buckets in the memory.
  aligned_buffer<Half> memory_;
};

using fp16_compress = compress_hook<float16>;
using bf16_compress = compress_hook<bfloat16>;

/// The same around another hook: `fp16_compress_wrapper<powersgd>`.
template <class Hook>
using fp16_compress_wrapper = compress_wrapper<float16, Hook>;
template <class Hook>
using bf16_compress_wrapper = compress_wrapper<bfloat16, Hook>;

}  // namespace ikebana
