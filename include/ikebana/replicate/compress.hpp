#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "ikebana/core/aligned_buffer.hpp"
#include "ikebana/core/bfloat16.hpp"
#include "ikebana/core/dtype.hpp"
#include "ikebana/core/error.hpp"
#include "ikebana/core/shape.hpp"
#include "ikebana/cpu/collective.hpp"
#include "ikebana/replicate/comm_hook.hpp"

namespace ikebana {

/// x rounded to the nearest IEEE 754 binary16, ties to even: subnormal numbers kept, from 65520 on
/// infinity; not-a-number stays.
constexpr float round_to_fp16(float x) {
  const auto bits = std::bit_cast<std::uint32_t>(x);
  const std::uint32_t sign = bits & 0x80000000u;
  const std::uint32_t magnitude = bits ^ sign;
  // Below 2^-14 what is left is a multiple of 2^-24, the last place of numbers from 1/2 to 1.
  const float small = (std::bit_cast<float>(magnitude) + 0.5f) - 0.5f;
  const std::uint32_t rounded = (magnitude + 0xFFFu + ((magnitude >> 13) & 1)) & ~0x1FFFu;
  const std::uint32_t large = rounded >= 0x47800000u ? 0x7F800000u : rounded;
  const std::uint32_t kept = magnitude > 0x7F800000u   ? magnitude | 0x400000u
                             : magnitude < 0x38800000u ? std::bit_cast<std::uint32_t>(small)
                                                       : large;
  return std::bit_cast<float>(sign | kept);
}

/// The precisions that gradients are sent in.
struct fp16_precision {
  template <floating T>
  static void round(std::span<T> data) {
    for (T& x : data) x = static_cast<T>(round_to_fp16(static_cast<float>(x)));
  }
};
struct bf16_precision {
  template <floating T>
  static void round(std::span<T> data) {
    cpu::round_to_bf16(static_cast<dim_t>(data.size()), data.data());
  }
};

/// Gradients to a smaller precision, around any hook: each rank rounds its own before the hook, and
/// what the hook makes of them is rounded; to nearest, ties to even, a double through float, as in
/// PyTorch. The hook between works in the full type: so the result is what a transport of two bytes
/// per gradient would give that accumulates in full precision, and what is sent does not shrink.
template <class Precision, class Hook = all_reduce_hook>
class compress_hook {
 public:
  static constexpr hook_result result = Hook::result;
  static constexpr std::size_t stages = hook_stages<Hook>;

  compress_hook() = default;
  explicit compress_hook(Hook hook) : hook_{std::move(hook)} {}

  template <class T, process_group G>
  void prepare(std::span<const gradient_bucket<T>> buckets, G& group) {
    prepare_hook(hook_, buckets, group);
  }
  template <floating T, process_group G>
  auto start(gradient_bucket<T> bucket, G& group) {
    Precision::round(bucket.data);
    return hook_.start(bucket, group);
  }
  template <floating T, process_group G>
  auto proceed(gradient_bucket<T> bucket, G& group, std::size_t stage) {
    return hook_.proceed(bucket, group, stage);
  }
  template <floating T, process_group G>
  void finish(gradient_bucket<T> bucket, G& group) {
    hook_.finish(bucket, group);
    Precision::round(bucket.data);
  }

  Hook& inner() { return hook_; }

 private:
  Hook hook_{};
};

/// The average of gradients that were rounded to half precision, rounded again.
using fp16_compress = compress_hook<fp16_precision>;

/// The average of gradients in bfloat16: two bytes for each are sent, summed in float in the order
/// of the ranks, and rounded once. Allocates two bytes per gradient in `prepare`.
class bf16_compress {
 public:
  static constexpr hook_result result = hook_result::average;

  template <floating T, process_group G>
  void prepare(std::span<const gradient_bucket<T>> buckets, G&) {
    offsets_.clear();
    dim_t size = 0;
    for (const gradient_bucket<T>& b : buckets) {
      offsets_.push_back(size);
      size += round_up_to_alignment<bfloat16>(static_cast<dim_t>(b.data.size()));
    }
    memory_ = aligned_buffer<bfloat16>(size);
  }
  template <floating T, process_group G>
  auto start(gradient_bucket<T> bucket, G& group) {
    if (bucket.index >= offsets_.size())
      throw state_error("bf16_compress: prepare must be called before the first bucket");
    cpu::to_bf16(static_cast<dim_t>(bucket.data.size()), bucket.data.data(), bits(bucket.index));
    return group.all_reduce_async(
        std::span<bfloat16>{memory_.data() + offsets_[bucket.index], bucket.data.size()},
        reduce_op::avg);
  }
  template <floating T, process_group G>
  void finish(gradient_bucket<T> bucket, G&) {
    cpu::from_bf16(static_cast<dim_t>(bucket.data.size()), bits(bucket.index), bucket.data.data());
  }

 private:
  std::uint16_t* bits(std::size_t bucket) {
    return reinterpret_cast<std::uint16_t*>(memory_.data() + offsets_[bucket]);
  }

  std::vector<dim_t> offsets_;  // of the buckets in the memory
  aligned_buffer<bfloat16> memory_;
};

/// The same around another hook: `fp16_compress_wrapper<powersgd>`.
template <class Hook>
using fp16_compress_wrapper = compress_hook<fp16_precision, Hook>;
template <class Hook>
using bf16_compress_wrapper = compress_hook<bf16_precision, Hook>;

}  // namespace ikebana
