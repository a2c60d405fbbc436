#pragma once

#include <bit>
#include <cstdint>

#include "ikebana/core/language.hpp"

namespace ikebana {

/// IEEE 754 binary16: sign, five exponent bits, ten fraction bits; the largest finite number is
/// 65504. A storage and communication type; arithmetic is done in float. Conversion to float is
/// exact. Conversion from float rounds to nearest, ties to even, preserves subnormal numbers,
/// overflows to infinity from 65520 on, and turns every NaN into the quiet NaN 0x7E00 with its
/// sign, as PyTorch and `cpu::to_fp16` do.
struct float16 {
  std::uint16_t bits = 0;

  constexpr float16() = default;

  constexpr explicit float16(float x) {
    const auto word = std::bit_cast<std::uint32_t>(x);
    const std::uint32_t magnitude = word & 0x7FFFFFFFu;
    std::uint32_t half = 0x7E00u;
    if (magnitude < 0x38800000u)  // Below 2^-14: a multiple of 2^-24, the ulp of [1/2, 1).
      half = std::bit_cast<std::uint32_t>(std::bit_cast<float>(magnitude) + 0.5f) - 0x3F000000u;
    else if (magnitude <= 0x7F800000u) {
      half = (magnitude + 0xFFFu + ((magnitude >> 13) & 1u) - 0x38000000u) >> 13;
      if (half > 0x7C00u) half = 0x7C00u;
    }
    bits = static_cast<std::uint16_t>(((word >> 16) & 0x8000u) | half);
  }

  static constexpr float16 from_bits(std::uint16_t b) {
    float16 x;
    x.bits = b;
    return x;
  }

  constexpr operator float() const {
    const std::uint32_t sign = std::uint32_t{bits & 0x8000u} << 16, magnitude = bits & 0x7FFFu;
    const std::uint32_t word =
        magnitude >= 0x7C00u ? (magnitude << 13) | 0x7F800000u
        : magnitude >= 0x400u
            ? (magnitude << 13) + 0x38000000u
            : std::bit_cast<std::uint32_t>(static_cast<float>(magnitude) * 0x1p-24f);
    return std::bit_cast<float>(sign | word);
  }
};
static_assert(sizeof(float16) == 2);

}  // namespace ikebana
