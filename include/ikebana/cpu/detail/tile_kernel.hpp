#pragma once

#include <cstddef>
#include <cstdint>

#include "ikebana/core/shape.hpp"
#include "ikebana/cpu/detail/targets.hpp"

namespace ikebana::cpu::detail {

// Products of words (word_kernel.hpp) by tiles of 16 rows of 16 words. B is packed into panels of
// 16 columns, word by word; A is read where it is if a row's words are neighbours there, else
// packed into strips of 16 words of each row in turn.

/// Rows, columns and words of a tile, and of what is multiplied at a time: two tiles by two.
inline constexpr dim_t tile_side = 16;
inline constexpr dim_t tile_pair = 2 * tile_side;
/// Words along the summed dimension that are multiplied at a time; whole tiles.
inline constexpr dim_t tile_depth = 512;
/// Columns of B that are packed at a time, at most; and their words, for the second-level cache,
/// which every processor with tiles has 2 MiB of.
inline constexpr dim_t tile_columns = 1024;
inline constexpr dim_t tile_words = dim_t{512} * tile_depth;

/// Up to 32 rows of A, 16 words of each at a time.
struct tile_strip {
  const void* data;
  dim_t row_bytes;           // from a row to the next
  dim_t step_bytes;          // from 16 words of a row to the next 16
  dim_t steps;               // 16 words each
  const std::int32_t* rest;  // the last words of each row, 16 with zeros behind; or null
};

/// The innermost loop, of numbers that R sums, for up to 32 rows and 32 columns.
template <class R>
struct tile_kernel {
  /// Sums begin at what is in `out`, or at zero if that is null.
  void (*begin)(dim_t rows, dim_t columns, const R* out, dim_t out_step);
  /// Adds the product of steps [from, to) of A and of two panels of B, `b_step` words apart, or of
  /// one if there are no more than 16 columns.
  void (*add)(dim_t rows, dim_t columns, const tile_strip& a, dim_t from, dim_t to,
              const std::int32_t* b, dim_t b_step);
  void (*store)(dim_t rows, dim_t columns, R* out, dim_t out_step);
  /// Sizes of tiles for strips of so many rows; what they were, in 64 bytes, and back to it.
  void (*configure)(dim_t rows);
  void (*save)(void* where);
  void (*restore)(const void* where);
};

}  // namespace ikebana::cpu::detail
