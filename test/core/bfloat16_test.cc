#include "ikebana/core/bfloat16.hpp"

#include <doctest/doctest.h>

#include <bit>
#include <cstdint>
#include <limits>

using ikebana::bfloat16;

TEST_CASE("Every bfloat16 is a float, and comes back as it was") {
  for (std::uint32_t b = 0; b < 0x10000u; ++b) {
    const auto x = bfloat16::from_bits(static_cast<std::uint16_t>(b));
    const float f = x;
    if (f != f)
      CHECK(bfloat16(f).bits == ((b & 0x8000u) | 0x7FC0u));
    else if (bfloat16(f).bits != b)
      FAIL("bits ", b);
  }
}

TEST_CASE("Floats round to the nearest, ties to even") {
  const auto rounded = [](std::uint32_t word) { return bfloat16(std::bit_cast<float>(word)).bits; };
  static_assert(bfloat16(1.0f).bits == 0x3F80);
  CHECK(rounded(0x3F807FFFu) == 0x3F80);
  CHECK(rounded(0x3F808000u) == 0x3F80);  // a tie, to the even one below
  CHECK(rounded(0x3F818000u) == 0x3F82);  // a tie, to the even one above
  CHECK(rounded(0x3F808001u) == 0x3F81);
  CHECK(rounded(0x3FFFFFFFu) == 0x4000);  // carries into the exponent
  CHECK(rounded(0x7F7FFFFFu) == 0x7F80);  // the largest float is beyond the largest bfloat16
  CHECK(rounded(0xFF800000u) == 0xFF80);
  CHECK(rounded(0x80000000u) == 0x8000);
  CHECK(rounded(0x00000001u) == 0);
  CHECK(rounded(0xFF800001u) == 0xFFC0);  // never rounded to infinity
  CHECK(float(bfloat16(std::numeric_limits<float>::quiet_NaN())) !=
        float(bfloat16(std::numeric_limits<float>::quiet_NaN())));
}
