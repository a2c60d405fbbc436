#pragma once

#include "ikebana/core/shape.hpp"
#include "ikebana/cpu/detail/targets.hpp"

namespace ikebana::cpu::detail {

/// The shape of the most rows that are not more than `left`.
template <class Shape>
const Shape& shape_for(const Shape* s, dim_t left) {
  while (s->rows > left) ++s;
  return *s;
}

}  // namespace ikebana::cpu::detail
