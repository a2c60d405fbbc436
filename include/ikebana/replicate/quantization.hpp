#pragma once

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>
#include <span>
#include <vector>

#include "ikebana/core/aligned_buffer.hpp"
#include "ikebana/core/dtype.hpp"
#include "ikebana/core/error.hpp"
#include "ikebana/core/shape.hpp"
#include "ikebana/replicate/comm_hook.hpp"

namespace ikebana {

/// An affine map between real numbers and the integers 0 ... 255: x is approximately scale (q -
/// zero_point).
struct affine_quantizer {
  float scale = 1;
  float zero_point = 0;

  /// The map that covers [min(x), max(x)] and represents 0 exactly, as in PyTorch's MinMaxObserver
  /// of quint8. If an element is not finite, neither is the scale.
  ///
  /// PyTorch bounds the scale from below by 2^-23, so that smaller gradients vanish; this one goes
  /// down to the smallest float.
  template <floating T>
  static affine_quantizer covering(std::span<const T> x) {
    T low = 0, high = 0, finite = 0;
    for (const T v : x) {
      low = v < low ? v : low;
      high = v > high ? v : high;
      finite += v - v;
    }
    if (!(finite == 0)) return {std::numeric_limits<float>::infinity(), 0};
    const float scale = (static_cast<float>(high) - static_cast<float>(low)) / 255.0f;
    if (!(scale > 0)) return {1, 0};
    const float zero = -std::nearbyint(static_cast<float>(low) / scale);
    return {scale, zero < 0 ? 0 : zero > 255 ? 255 : zero};
  }

  /// Rounds to nearest, ties to even.
  template <floating T>
  std::uint8_t quantize(T x) const {
    const T q = std::nearbyint(x / static_cast<T>(scale)) + static_cast<T>(zero_point);
    return q > 0 ? q < 255 ? static_cast<std::uint8_t>(q) : std::uint8_t{255} : std::uint8_t{0};
  }
  template <floating T>
  T dequantize(std::uint8_t q) const {
    return static_cast<T>(scale) * (static_cast<T>(q) - static_cast<T>(zero_point));
  }
};

/// Gradients in 8 bits: each rank quantises its own gradients by an affine map, all ranks gather
/// all of them, and each sums the dequantised values in rank order and divides. One collective of
/// one byte per gradient and rank, so it sends less than all_reduce among fewer than 8 ranks. One
/// map covers the whole bucket, as in PyTorch's quantization_pertensor_hook, or, if `channel` is
/// not 0, `channel` elements at a time, as in quantization_perchannel_hook.
///
/// A non-finite gradient turns its channel into NaN on every rank. `prepare` allocates ranks + 1
/// bytes per gradient; `start` throws state_error if it has not been called.
template <dim_t Channel>
class quantize_hook {
  static_assert(Channel >= 0, "ikebana: quantize_hook expects the length of a channel, or 0");

 public:
  static constexpr hook_result result = hook_result::average;

  template <floating T, process_group G>
  void prepare(std::span<const gradient_bucket<T>> buckets, G& group) {
    offsets_.clear();
    dim_t size = 0;
    for (const gradient_bucket<T>& b : buckets) {
      offsets_.push_back(size);
      size += round_up_to_alignment<std::uint8_t>(message_size(b.data.size()) * (group.size() + 1));
    }
    memory_ = aligned_buffer<std::uint8_t>(size);
  }

  template <floating T, process_group G>
  auto start(gradient_bucket<T> bucket, G& group) {
    if (bucket.index >= offsets_.size())
      throw state_error("quantize_hook: prepare must be called before the first bucket");
    const std::size_t n = bucket.data.size();
    std::uint8_t* const mine = memory_.data() + offsets_[bucket.index];
    std::uint8_t* const codes = mine + header_size(n);
    for (std::size_t c = 0; c < channels(n); ++c) {
      const std::span<const T> x = bucket.data.subspan(c * width(n), length(n, c));
      const auto q = affine_quantizer::covering(x);
      std::memcpy(mine + c * sizeof q, &q, sizeof q);
      for (std::size_t i = 0; i < x.size(); ++i) codes[c * width(n) + i] = q.quantize(x[i]);
    }
    const auto size = static_cast<std::size_t>(message_size(n));
    return group.all_gather_async(
        std::span<const std::uint8_t>{mine, size},
        std::span<std::uint8_t>{mine + size, size * static_cast<std::size_t>(group.size())});
  }

  template <floating T, process_group G>
  void finish(gradient_bucket<T> bucket, G& group) {
    const std::size_t n = bucket.data.size();
    const auto size = static_cast<std::size_t>(message_size(n));
    const std::uint8_t* const all = memory_.data() + offsets_[bucket.index] + size;
    const T ranks = static_cast<T>(group.size());
    for (std::size_t c = 0; c < channels(n); ++c) {
      const std::span<T> x = bucket.data.subspan(c * width(n), length(n, c));
      for (T& v : x) v = 0;
      for (std::size_t r = 0; r < static_cast<std::size_t>(group.size()); ++r) {
        affine_quantizer q;
        std::memcpy(&q, all + r * size + c * sizeof q, sizeof q);
        const std::uint8_t* const codes = all + r * size + header_size(n) + c * width(n);
        for (std::size_t i = 0; i < x.size(); ++i) x[i] += q.dequantize<T>(codes[i]);
      }
      for (T& v : x) v /= ranks;
    }
  }

 private:
  static constexpr std::size_t width(std::size_t n) {
    return Channel == 0 ? n : static_cast<std::size_t>(Channel);
  }
  static constexpr std::size_t channels(std::size_t n) {
    return n == 0 ? 0 : (n + width(n) - 1) / width(n);
  }
  static constexpr std::size_t length(std::size_t n, std::size_t c) {
    const std::size_t left = n - c * width(n);
    return left < width(n) ? left : width(n);
  }
  static constexpr std::size_t header_size(std::size_t n) {
    return channels(n) * sizeof(affine_quantizer);
  }
  static constexpr dim_t message_size(std::size_t n) {
    return static_cast<dim_t>(header_size(n) + n);
  }

  std::vector<dim_t> offsets_;  // Of the buckets' messages in the memory.
  aligned_buffer<std::uint8_t> memory_;
};

/// One map per bucket.
using quantize_8bit = quantize_hook<0>;
template <dim_t Channel = 512>
using quantize_8bit_per_channel = quantize_hook<Channel>;

}  // namespace ikebana
