#pragma once

#include "ikebana/core/shape.hpp"

namespace ikebana {

/// A dimension of a module: a constant where the type knows it, else a number that is bound once
/// the first input is there. value() is `dynamic` until then.
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

/// What a lazy dimension becomes for an input extent: the same number, or dynamic.
constexpr bool fits(dim_t expected, dim_t given) {
  return expected < 0 || given < 0 || expected == given;
}

}  // namespace ikebana
