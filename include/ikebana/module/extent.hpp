#pragma once

#include "ikebana/core/shape.hpp"

namespace ikebana {

/// A dimension of a module: a constant if the type knows it, else a number that the first input
/// binds. Until then, value() is `dynamic`.
template <dim_t N>
struct extent {
  constexpr dim_t value() const { return N; }
  constexpr void bind(dim_t) {}
};

template <>
struct extent<dynamic> {
  dim_t known = dynamic;
  constexpr dim_t value() const { return known; }
  constexpr void bind(dim_t n) { known = n; }
};

/// Whether an input extent is compatible with the expected one: equal, or at least one of them
/// unknown.
constexpr bool fits(dim_t expected, dim_t given) {
  return expected < 0 || given < 0 || expected == given;
}

}  // namespace ikebana
