#pragma once

#include "ikebana/core/shape.hpp"
#include "ikebana/cpu/detail/targets.hpp"
#include "ikebana/cpu/transpose.hpp"

// Small products have tiles of up to a register of columns, a function for each number of rows,
// which are most of what a product costs a compiler. A caller that knows its columns leaves out
// those that it never comes to.
namespace ikebana::cpu::detail {

/// The kinds of such tiles, a bit each: of registers of 64, 32 and 16 bytes, of the bytes of their
/// columns, and of A as it stands or transposed.
namespace narrow_tile {
inline constexpr unsigned all = (1u << 19) - 1;
/// Beside them, sums of two to so many terms, of more columns than a register has, on AVX-512: for
/// whoever asks for all, as no module's sizes come to them but rarely.
inline constexpr unsigned short_sums = 1u << 18;
inline constexpr dim_t most_terms = 6;
constexpr unsigned kinds(dim_t width) { return width == 64 ? 5 : width == 32 ? 3 : 1; }
/// 0 of any columns; others of fewer, or of a register or a part of it without a rest.
constexpr unsigned kind(dim_t width, dim_t bytes) {
  if (width < 32) return 0;
  if (width == 32) return bytes == 32 ? 2 : bytes == 16 ? 1 : 0;
  return bytes == 64 ? 4 : bytes == 32 ? 3 : bytes == 16 ? 2 : bytes < 32 ? 1 : 0;
}
constexpr unsigned bit(dim_t width, unsigned kind, bool turned) {
  const unsigned first = width == 64 ? 0 : width == 32 ? 10 : 16;
  return 1u << (first + kind + (turned ? kinds(width) : 0));
}
}  // namespace narrow_tile

/// How many columns a product of n leaves to such a tile, of w a register; 0 for none.
constexpr dim_t narrow_columns(dim_t width, dim_t w, dim_t n, dim_t k, bool turned_b) {
  if (n <= w) return n;
  // What is longer, or has fewer columns, goes by others.
  if (k > (width == 32 && !turned_b ? 48 : 64) || n <= (width == 16 ? 2 : 4) * w) return 0;
  const dim_t rest = n % ((width == 32 && n >= 8 * w ? 4 : 2) * w);
  return rest <= w ? rest : 0;
}

/// Those of products of n columns and k terms, negative where that is not known.
template <class T>
constexpr unsigned narrow_tiles_of(transpose ta, transpose tb, dim_t n, dim_t k) {
  // Where kernels are built apart, they are all there.
  if (!IKEBANA_CPU_HERE || n < 0) return narrow_tile::all;
  const bool turned_b = tb == transpose::yes;
  if (n == 0 || (turned_b && k > 64)) return 0;
  unsigned tiles = 0;
  for (dim_t width = IKEBANA_CPU_X86 ? 32 : 16; width <= (IKEBANA_CPU_X86 ? 64 : 16); width *= 2)
    if (const dim_t columns = narrow_columns(width, width / dim_t{sizeof(T)}, n, k, turned_b);
        columns > 0) {
      const unsigned kind = narrow_tile::kind(width, columns * dim_t{sizeof(T)});
      tiles |= narrow_tile::bit(width, kind, ta == transpose::yes);
      // A single column is a row as well.
      if (k == 1 || k < 0) tiles |= narrow_tile::bit(width, kind, true);
    }
  return tiles;
}

}  // namespace ikebana::cpu::detail
