#pragma once

#include <limits>

#include "ikebana/core/shape.hpp"

namespace ikebana {

/// A number of operations, not negative. What exceeds the largest dim_t is that instead of wrapping
/// around: `(saturated{rows} * in * out).value`.
struct saturated {
  dim_t value = 0;

  constexpr saturated(dim_t n) : value{n} {}

  friend constexpr saturated operator*(saturated a, saturated b) {
    dim_t n = 0;
    return __builtin_mul_overflow(a.value, b.value, &n) ? most() : saturated{n};
  }
  friend constexpr saturated operator+(saturated a, saturated b) {
    dim_t n = 0;
    return __builtin_add_overflow(a.value, b.value, &n) ? most() : saturated{n};
  }

 private:
  static constexpr saturated most() { return std::numeric_limits<dim_t>::max(); }
};

}  // namespace ikebana
