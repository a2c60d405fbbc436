#pragma once

#include <cstddef>
#include <cstring>

#include "ikebana/core/shape.hpp"
#include "ikebana/cpu/detail/targets.hpp"

namespace ikebana::cpu {

/// y[planes, h r, w r] of x[planes, r, r, h, w]: each group of r^2 planes becomes one of r times
/// the extents. O(elements); x and y do not overlap.
template <class T>
void pixel_shuffle(dim_t planes, dim_t r, dim_t h, dim_t w, const T* x, T* y) {
  for (dim_t p = 0; p < planes; ++p)
    for (dim_t i = 0; i < r; ++i)
      for (dim_t j = 0; j < r; ++j)
        for (dim_t row = 0; row < h; ++row, x += w) {
          T* const to = y + ((p * h + row) * r + i) * w * r + j;
          for (dim_t k = 0; k < w; ++k) to[k * r] = x[k];
        }
}

/// The inverse: y[planes, r, r, h, w] of x[planes, h r, w r].
template <class T>
void pixel_unshuffle(dim_t planes, dim_t r, dim_t h, dim_t w, const T* x, T* y) {
  for (dim_t p = 0; p < planes; ++p)
    for (dim_t i = 0; i < r; ++i)
      for (dim_t j = 0; j < r; ++j)
        for (dim_t row = 0; row < h; ++row, y += w) {
          const T* const from = x + ((p * h + row) * r + i) * w * r + j;
          for (dim_t k = 0; k < w; ++k) y[k] = from[k * r];
        }
}

/// y[batch, b, a, each] of x[batch, a, b, each].
template <class T>
void swap_blocks(dim_t batch, dim_t a, dim_t b, dim_t each, const T* x, T* y) {
  if (each == 0) return;
  for (dim_t n = 0; n < batch; ++n, y += a * b * each)
    for (dim_t i = 0; i < a; ++i)
      for (dim_t j = 0; j < b; ++j, x += each)
        std::memcpy(y + (j * a + i) * each, x, static_cast<std::size_t>(each) * sizeof(T));
}

}  // namespace ikebana::cpu
