#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include "ikebana/core/shape.hpp"

namespace ikebana::detail {

/// Indices as numbers of the model's type, in the memory of an output that holds them as
/// std::int32_t.
template <class T>
void indices_to_numbers(dim_t n, T* output) {
  // The last one first, since no number is shorter.
  auto* const bytes = reinterpret_cast<std::byte*>(output);
  for (dim_t i = n; i-- > 0;) {
    std::int32_t index;
    std::memcpy(&index, bytes + i * dim_t{sizeof index}, sizeof index);
    const auto number = static_cast<T>(index);
    std::memcpy(bytes + i * dim_t{sizeof number}, &number, sizeof number);
  }
}

/// dx = the gradients of the maxima, added at their indices within each plane.
template <class T, class Index>
void scatter_to_indices(dim_t planes, dim_t area, dim_t windows, const T* dy, const Index* index,
                        T* dx) {
  std::fill_n(dx, planes * area, T{0});
  for (dim_t p = 0; p < planes; ++p, dx += area)
    for (dim_t i = 0; i < windows; ++i) dx[static_cast<dim_t>(*index++)] += *dy++;
}

}  // namespace ikebana::detail
