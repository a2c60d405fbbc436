#pragma once

#include <cstdint>

namespace ikebana {

/// What numbers are rounded to where they are stored; `full` is that of their own type.
enum class number_format : std::uint8_t { full, float32, bfloat16, float16 };

/// Whether every number of format a (of a float or double) is one of format b.
constexpr bool contained(number_format a, number_format b) {
  return a == b || b == number_format::full ||
         (b == number_format::float32 && a != number_format::full);
}

}  // namespace ikebana
