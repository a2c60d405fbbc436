#pragma once

#include <cstdint>

#include "ikebana/core/language.hpp"

namespace ikebana {

/// The format that numbers are rounded to when stored; `full` is that of their own type.
enum class number_format : std::uint8_t { full, float32, bfloat16, float16 };

/// Whether every number of format a (of a float or double) is also one of format b.
constexpr bool contained(number_format a, number_format b) {
  return a == b || b == number_format::full ||
         (b == number_format::float32 && a != number_format::full);
}

}  // namespace ikebana
