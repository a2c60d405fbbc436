#pragma once

#include <cstddef>

#include "ikebana/core/shape.hpp"

namespace ikebana {

/// Extends `to` by a shape that is broadcast with it, as NumPy does: the last dimensions are
/// matched, and an extent of 1 is repeated. False if the shapes do not match. A dynamic extent
/// matches any; beside another extent than 1, the result has that.
constexpr bool broadcast_into(shape& to, const shape& s) {
  shape out = s.rank() > to.rank() ? s : to;
  const shape& less = s.rank() > to.rank() ? to : s;
  const std::size_t skip = out.rank() - less.rank();
  for (std::size_t d = 0; d < less.rank(); ++d) {
    const dim_t a = out[d + skip], b = less[d];
    if (a >= 0 && b >= 0 && a != b && a != 1 && b != 1) return false;
    if (a == 1 || (a < 0 && b >= 0 && b != 1)) out[d + skip] = b;
  }
  to = out;
  return true;
}

}  // namespace ikebana
