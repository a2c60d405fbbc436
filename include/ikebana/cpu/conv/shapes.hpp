#pragma once

#include <cstddef>

#include "ikebana/core/shape.hpp"

namespace ikebana::cpu::detail {

/// The shape of the most rows that are not more than `left`.
template <class Shape, std::size_t N>
const Shape& shape_for(const Shape (&shapes)[N], dim_t left) {
  const Shape* s = shapes;
  while (s->rows > left) ++s;
  return *s;
}

}  // namespace ikebana::cpu::detail
