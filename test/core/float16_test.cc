#include "ikebana/core/float16.hpp"

#include <doctest/doctest.h>

#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>

using ikebana::float16;

TEST_CASE("Every float16 is the number that its bits say, and comes back as it was") {
  for (std::uint32_t b = 0; b < 0x10000u; ++b) {
    const float f = float16::from_bits(static_cast<std::uint16_t>(b));
    const int exponent = static_cast<int>(b >> 10 & 31), fraction = static_cast<int>(b & 1023);
    const double size = exponent == 0    ? std::ldexp(fraction, -24)
                        : exponent == 31 ? std::numeric_limits<double>::infinity()
                                         : std::ldexp(1024 + fraction, exponent - 25);
    if (exponent == 31 && fraction != 0) {
      if (f == f || float16(f).bits != ((b & 0x8000u) | 0x7E00u)) FAIL("bits ", b);
    } else if (static_cast<double>(f) != ((b & 0x8000u) != 0 ? -size : size) ||
               float16(f).bits != b) {
      FAIL("bits ", b);
    }
  }
}

TEST_CASE("Floats round to the nearest float16, ties to even") {
  static_assert(float16(1.0f).bits == 0x3C00);
  CHECK(float16(1 + 0x1p-11f).bits == 0x3C00);      // a tie, to the even one below
  CHECK(float16(1 + 3 * 0x1p-11f).bits == 0x3C02);  // a tie, to the even one above
  CHECK(float16(1 + 0x1p-11f + 0x1p-20f).bits == 0x3C01);
  CHECK(float16(65504.0f).bits == 0x7BFF);
  CHECK(float16(65519.99f).bits == 0x7BFF);
  CHECK(float16(65520.0f).bits == 0x7C00);
  CHECK(float16(1e30f).bits == 0x7C00);
  CHECK(float16(-std::numeric_limits<float>::infinity()).bits == 0xFC00);
  CHECK(float16(0x1p-24f).bits == 1);
  CHECK(float16(0x1p-25f).bits == 0);          // a tie
  CHECK(float16(3 * 0x1p-25f).bits == 2);      // a tie
  CHECK(float16(0x1.ffep-15f).bits == 0x400);  // Rounds up to a normal number.
  CHECK(float16(-0.0f).bits == 0x8000);
  CHECK(float16(std::bit_cast<float>(0xFF800001u)).bits == 0xFE00);  // Never infinity.
}

TEST_CASE("A number between two float16 goes to the nearer one") {
  // All finite numbers, the midpoint to the next, and a little on each side of it.
  for (std::uint32_t b = 0; b + 1 < 0x7C00u; ++b) {
    const float low = float16::from_bits(static_cast<std::uint16_t>(b));
    const float high = float16::from_bits(static_cast<std::uint16_t>(b + 1));
    const float middle = low + (high - low) / 2;
    const std::uint32_t even = (b & 1) == 0 ? b : b + 1;
    if (float16(middle).bits != even || float16(std::nextafter(middle, 0.0f)).bits != b ||
        float16(std::nextafter(middle, 1e9f)).bits != b + 1)
      FAIL("bits ", b);
  }
}
