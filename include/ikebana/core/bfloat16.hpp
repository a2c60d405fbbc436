#pragma once

#include <bit>
#include <cstdint>

#include "ikebana/core/language.hpp"

namespace ikebana {

/// The upper half of a float: sign, eight exponent bits, seven fraction bits. A storage and
/// communication type; arithmetic is done in float. Conversion to float is exact. Conversion from
/// float rounds to nearest, ties to even, and turns every NaN into the quiet NaN 0x7FC0 with its
/// sign, as PyTorch and `cpu::to_bf16` do.
struct bfloat16 {
  std::uint16_t bits = 0;

  constexpr bfloat16() = default;

  constexpr explicit bfloat16(float x) {
    const auto word = std::bit_cast<std::uint32_t>(x);
    if (x != x)
      bits = static_cast<std::uint16_t>(((word >> 16) & 0x8000u) | 0x7FC0u);
    else
      bits = static_cast<std::uint16_t>((word + 0x7FFFu + ((word >> 16) & 1u)) >> 16);
  }

  static constexpr bfloat16 from_bits(std::uint16_t b) {
    bfloat16 x;
    x.bits = b;
    return x;
  }

  constexpr operator float() const { return std::bit_cast<float>(std::uint32_t{bits} << 16); }
};
static_assert(sizeof(bfloat16) == 2);

using bf16 = bfloat16;

}  // namespace ikebana
