#pragma once

#include <array>
#include <cstddef>

#include "ikebana/core/shape.hpp"
#include "ikebana/cpu/conv_geometry.hpp"
#include "ikebana/cpu/detail/quotients.hpp"
#include "ikebana/cpu/detail/scratch.hpp"
#include "ikebana/cpu/detail/strided.hpp"

// Copies of planes with what stands around them, some rows at a time that stay in the first-level
// cache, and where the stride is not 1 with their columns sorted by remainder: so that every
// element of a sliding window reads whole registers.
namespace ikebana::cpu::detail {

/// What an instruction set provides for it.
template <class T>
struct tile_copying {
  dim_t width;
  /// Whether all that was copied is finite, if it was looked at.
  bool (*pad_rows)(dim_t rows, const T* from, dim_t from_step, dim_t stride, T* to, dim_t to_step,
                   dim_t begin, dim_t count, dim_t total, T fill, bool margins_clear);
};

/// One dimension: position i of `count` meets the copy from i * step on, `reach` elements of it,
/// and the copy begins `padding` before the source.
struct sliding_axis {
  dim_t from, count, step, padding, reach;
};

/// Columns of one remainder by the stride: from `from` of the source on, to `begin` behind `to` of
/// a row of the copy.
struct column_span {
  dim_t from, to, begin, count;
};

/// How the result's planes are cut into tiles, and how the copies lie.
template <class T>
struct padded_tiles {
  const tile_copying<T>& copying;
  const conv_geometry& g;
  bool backward;
  const std::array<dim_t, 3>&from, &to;
  dim_t sources, results, taps, plane_taps;
  sliding_axis rows, columns;
  dim_t tile_rows = 0, tile_columns = 0, block = 1;
  T fill{};  // what stands around the source
  dim_t lead = 0, pitch = 0, row = 0, height = 0, slab = 0;

  padded_tiles(const tile_copying<T>& c, const conv_geometry& geometry, bool back)
      : copying{c},
        g{geometry},
        backward{back},
        from{back ? g.out : g.in},
        to{back ? g.in : g.out},
        sources{(back ? g.out_channels : g.in_channels) / g.groups},
        results{(back ? g.in_channels : g.out_channels) / g.groups},
        taps{conv_geometry::volume(g.kernel)},
        plane_taps{g.kernel[1] * g.kernel[2]},
        rows{axis(1)},
        columns{axis(2)} {}

  /// Backward and of a stride, positions are those of one remainder by the stride.
  sliding_axis axis(std::size_t d) const {
    const dim_t s = g.stride[d], last = (g.kernel[d] - 1) * g.dilation[d];
    if (!backward) return {g.in[d], g.out[d], s, g.padding[d], last + 1};
    const dim_t lowest = floor_quotient(g.padding[d] - last, s);
    const dim_t highest = floor_quotient(g.padding[d] + s - 1, s);
    return {g.out[d], (g.in[d] + s - 1) / s, 1, -lowest, highest - lowest + 1};
  }
  dim_t phases() const { return columns.step; }
  /// Room behind the copies for what is read of the last row and not used.
  dim_t slack() const { return 9 * copying.width; }
  void lay_out(dim_t rows_of_tile, dim_t width) {
    tile_rows = rows_of_tile;
    tile_columns = width;
    // What stands in the source's first column is aligned.
    const dim_t w = copying.width, before = columns.padding % w;
    lead = phases() == 1 ? (w - before) % w : 0;
    pitch = rounded_up(lead + width + (columns.reach - 1) / phases() + (phases() > 1 ? 1 : 0), w);
    // Rows a page apart would be taken for each other.
    if (pitch * phases() * static_cast<dim_t>(sizeof(T)) % 1024 == 0) pitch += w;
    row = pitch * phases();
    height = (rounded_up(rows_of_tile, block) - 1) * rows.step + rows.reach;
    slab = height * row;
  }

  /// Chooses tiles whose `slabs` copies take `room` elements at most, and rather less: what stays
  /// in the first-level cache. False if there are none.
  bool fit(dim_t slabs, dim_t room) {
    dim_t near = dim_t{24} * 1024 / static_cast<dim_t>(sizeof(T));
    if (near > room) near = room;
    dim_t width = columns.count, most_rows = rows.count;
    const auto takes = [&](dim_t h, dim_t v) {
      lay_out(h, v);
      return slabs * slab;
    };
    if (takes(most_rows, width) <= near) return true;
    const dim_t least = rounded_up(512, copying.width);
    while (width > least && takes(block, width) > near)
      width = rounded_up((width + 1) / 2, copying.width);
    while (width > copying.width && takes(block, width) > room)
      width = rounded_up((width + 1) / 2, copying.width);
    if (takes(block, width) > room) return false;
    const dim_t one = takes(block, width), two = takes(2 * block, width);
    const dim_t blocks = near <= one ? 1 : 1 + (near - one) / (two - one);
    most_rows = blocks * block;
    const dim_t bands = (rows.count + most_rows - 1) / most_rows;
    most_rows = rounded_up((rows.count + bands - 1) / bands, block);
    lay_out(most_rows < rows.count ? most_rows : rows.count, width);
    return true;
  }
  bool is_whole() const { return tile_rows == rows.count && tile_columns == columns.count; }

  /// Where the columns of each remainder stand that the tile from x on meets.
  void find_spans(dim_t x, column_span* spans) const {
    for (dim_t i = 0; i < phases(); ++i) {
      const dim_t start = x * columns.step - columns.padding + i, there = columns.from - start;
      const dim_t skip = start < 0 ? (-start + phases() - 1) / phases() : 0;
      const dim_t end = there <= 0 ? 0 : (there + phases() - 1) / phases(), most = pitch - lead;
      spans[i] = {start + skip * phases(), i * pitch, lead + skip,
                  (end < most ? end : most) - skip};
    }
  }
  /// Copies what the tile from row y on meets of one plane of the source. Whether all of it was
  /// finite, where the copying looks at that.
  bool copy(T* at, const T* plane, dim_t y, const column_span* spans, bool margins_clear) const {
    const dim_t top = y * rows.step - rows.padding;
    const dim_t first = top < 0 ? (-top < height ? -top : height) : 0;
    const dim_t behind = rows.from - top < height ? rows.from - top : height;
    const dim_t last = behind > first ? behind : first;
    if (!margins_clear) {
      clear(at, first * row);
      clear(at + last * row, (height - last) * row);
    }
    bool finite = true;
    if (first >= last) return finite;
    for (const column_span* s = spans; s < spans + phases(); ++s) {
      T* const to_row = at + first * row + s->to;
      if (s->count > 0)
        finite &= copying.pad_rows(last - first, plane + (top + first) * columns.from + s->from,
                                   columns.from, phases(), to_row, row, s->begin, s->count, pitch,
                                   fill, margins_clear);
      else if (!margins_clear)
        for (dim_t r = 0; r < last - first; ++r) clear(to_row + r * row, pitch);
    }
    return finite;
  }
  void clear(T* at, dim_t n) const {
    if (n > 0) copying.pad_rows(1, nullptr, 0, 1, at, 0, n, 0, n, fill, false);
  }
  /// Where kernel column k of forward convolutions stands in the copy.
  dim_t column_of(dim_t k) const {
    const dim_t at = k * g.dilation[2];
    return lead + at % phases() * pitch + at / phases();
  }
};

}  // namespace ikebana::cpu::detail
