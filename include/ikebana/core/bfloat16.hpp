#pragma once

#include <bit>
#include <cstdint>

namespace ikebana {

/// A float's upper half: its sign, its eight exponent bits, seven bits of its fraction. A type to
/// store and to send; arithmetic is done in float. Converting to float is exact; converting from
/// float rounds to nearest, ties to even, and makes every not-a-number the quiet 0x7FC0 with its
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
