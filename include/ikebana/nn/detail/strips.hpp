#pragma once

#include <cstddef>
#include <cstring>

#include "ikebana/core/shape.hpp"

namespace ikebana::detail {

/// The index of the dimension `along`, which counts from the end if negative.
constexpr std::size_t dimension(dim_t along, const shape& s) {
  return static_cast<std::size_t>(along < 0 ? along + static_cast<dim_t>(s.rank()) : along);
}

/// Copies a block with the extents `block` between two arrays. Along dimension d it starts at
/// `from_at` in the source and `to_at` in the destination; it spans all other dimensions.
/// O(elements of the block).
template <class T>
void copy_strips(const shape& block, std::size_t d, const T* from, dim_t from_at,
                 const shape& from_shape, T* to, dim_t to_at, const shape& to_shape) {
  const dim_t outer = block.numel(0, d), inner = block.numel(d + 1, block.rank());
  const dim_t strip = block[d] * inner;
  // What is made as a part of the whole is there already.
  if (strip == 0 || from + from_at * inner == to + to_at * inner) return;
  for (dim_t o = 0; o < outer; ++o)
    std::memcpy(to + (o * to_shape[d] + to_at) * inner,
                from + (o * from_shape[d] + from_at) * inner,
                static_cast<std::size_t>(strip) * sizeof(T));
}

}  // namespace ikebana::detail
