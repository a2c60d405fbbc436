#pragma once

#include <cstdint>

namespace ikebana {

/// What numbers are rounded to where they are stored; `full` is that of their own type.
enum class precision : std::uint8_t { full, float32, bfloat16, float16 };

/// Whether every number of precision a (of a float or double) is one of precision b.
constexpr bool contained(precision a, precision b) {
  return a == b || b == precision::full || (b == precision::float32 && a != precision::full);
}

}  // namespace ikebana
