#pragma once

#include <cstddef>
#include <cstdint>

#include "ikebana/core/shape.hpp"
#include "ikebana/cpu/conv/layout.hpp"
#include "ikebana/cpu/conv/pass.hpp"
#include "ikebana/cpu/conv/tiles.hpp"
#include "ikebana/cpu/detail/quotients.hpp"
#include "ikebana/cpu/detail/scratch.hpp"

namespace ikebana::cpu::detail {

/// How a convolution of one group is divided: into bands of positions whose results and copies stay
/// in the second level of the cache. Where there are many results, tiles of positions are packed
/// into a panel in the first level, aligned and without gaps, for all of them; where there are few,
/// the tiles read the copy itself, or the source where it needs no zeros around it. Either way the
/// copy holds a block of channels, so that any number of them fits.
template <class T>
struct band_plan {
  static constexpr dim_t line = 64 / static_cast<dim_t>(sizeof(T));
  static constexpr dim_t kib = 1024 / static_cast<dim_t>(sizeof(T));
  static constexpr dim_t total = static_cast<dim_t>((packed_b_bytes + packed_a_bytes) / sizeof(T));
  static constexpr dim_t most_copied = 208 * kib, most_out = 208 * kib, panel_size = 32 * kib,
                         most_panel = 42 * kib;
  static constexpr dim_t most_moves = 64, most_taps = 16384;

  const conv_tiles<T>& tiles;
  const conv_pass& p;
  bool panel, in_place = false, direct = false;
  dim_t taps, tile;                                   // positions of a panel
  dim_t depth;                                        // summed at once by a panel
  dim_t channels, results, columns, rows, slots = 1;  // of a block, a band
  conv_layout layout;

  band_plan(const conv_tiles<T>& t, const conv_pass& pass, bool packs)
      : tiles{t},
        p{pass},
        panel{packs},
        taps{pass.taps()},
        tile{t.panel.registers * t.width},
        channels{pass.sources},
        results{pass.results},
        columns{pass.to[2]},
        rows{pass.to[1]} {
    depth = panel_size / tile * 15 / 16;
    if (depth > 512) depth = 512;
  }

  dim_t plane() const { return p.to[1] * p.to[2]; }

  /// Lays a band of a source that stands out.
  [[gnu::noinline]] void lay_out_in_place() {
    layout = conv_layout{p, columns, rows, false, false, line};
    layout.channel = conv_geometry::volume(p.from);
    layout.slice = p.dilation[0] * p.from[1] * p.from[2];
    layout.pitch = p.from[2];
  }
  /// Lays a band out. False if its copy is too large.
  [[gnu::noinline]] bool lay_out(bool dense_x) {
    layout = conv_layout{p, columns, rows, false, dense_x, line};
    // Else it is never smaller.
    if (p.kernel[1] > 1 && (p.stride[1] > 1 || rows < p.dilation[1])) {
      const conv_layout dense{p, columns, rows, true, dense_x, line};
      if (dense.channel < layout.channel) layout = dense;
    }
    return layout.channel * channels <= most_copied;
  }

  /// Halves what is copied at a time until it fits.
  [[gnu::noinline]] bool fit_copy(bool dense_x) {
    while (!lay_out(dense_x)) {
      if (channels > 1 && (panel || rows <= 4))
        channels = parts(channels, 2);
      else if (rows > 1)
        rows = parts(rows, 2);
      else if (channels > 1)
        channels = parts(channels, 2);
      else if (columns > 1)
        columns = parts(columns, 2);
      else
        return false;
    }
    const dim_t even = even_part(p.to[1], rows);
    if (even == rows) return true;
    rows = even;
    return lay_out(dense_x);
  }

  bool fit() {
    if (taps > most_taps) return false;
    if (panel) {
      const dim_t most = most_out / (4 * tile) / tiles.panel.rows * tiles.panel.rows;
      results = even_part(p.results, most < tiles.panel.rows ? tiles.panel.rows : most);
      channels = even_part(channels, depth < taps ? 1 : depth / taps);
    } else {
      channels = even_part(channels, most_taps / taps);
    }
    dim_t most = most_out / (results + tiles.panel.rows);
    // Of one row, what all results meet stays in the first level, if not for copies that overlap.
    if (!panel && p.to[1] == 1)
      most = least(most,
                   4 * most_tile() + 40 * kib / channels + 2 * p.dilation[2] * (p.kernel[2] - 1));
    columns = even_part(columns, most);
    rows = even_part(rows, most < columns ? 1 : most / columns);
    in_place = p.stands() && (panel || (fit_in_place(most) && !copying_pays()));
    if (in_place && panel && plane() < 8 * tile) in_place = false;
    if (in_place) {
      lay_out_in_place();
    } else if (panel) {
      if (!fit_copy(false)) return false;
      gather_slots(most);
    } else if (!fit_slide()) {
      return false;
    }
    const bool dense = panel || layout.pitch == columns || rows == 1;
    direct = dense && p.unit_step() && slots == 1 && (columns == p.to[2] || rows == 1);
    return fits_scratch();
  }

  /// Bands of whole rows for tiles that read a source where it stands, and may not read past its
  /// end: the last tile of a band overlaps another. False where one is wider than the band.
  bool fit_in_place(dim_t most) {
    if (channels != p.sources) return false;
    if (columns < p.to[2]) {
      rows = 1;
      return p.to[2] - (parts(p.to[2], columns) - 1) * columns >= most_tile();
    }
    const dim_t pitch = p.from[2];
    dim_t high = p.to[1];
    if (pitch != p.to[2]) high = even_part(high, most < pitch ? 1 : most / pitch);
    if (!holds_tiles(high)) return false;
    rows = high;
    return true;
  }

  /// Whether a copy without what lies between rows of positions is worth its making.
  bool copying_pays() const {
    if (2 * p.from[2] < 3 * p.to[2]) return false;
    band_plan standing = *this, copied = *this;
    standing.in_place = true;
    standing.lay_out_in_place();
    return copied.fit_slide() && copied.cost() < 0.9 * (standing.cost() - standing.copying_cost());
  }

  /// Whether the last of the bands of so many rows is as wide as any tile.
  bool holds_tiles(dim_t high) const {
    const dim_t last = p.to[1] - (parts(p.to[1], high) - 1) * high;
    return (last - 1) * p.from[2] + p.to[2] >= most_tile();
  }
  dim_t most_tile() const { return conv_tiles<T>::most_registers * tiles.width; }

  /// Small planes of several images share tiles.
  void gather_slots(dim_t most) {
    const dim_t positions = rows * columns, all = p.batch * p.to[0];
    if (positions != plane() || positions >= 8 * tile) return;
    slots = most / positions;
    if (slots > most_copied / (layout.channel * channels))
      slots = most_copied / (layout.channel * channels);
    slots = slots < 1 ? 1 : even_part(all, slots);
  }

  /// Whether a row's copy for each kernel element is cheaper than computing between the rows.
  [[gnu::noinline]] bool fit_slide() {
    const band_plan before = *this;
    const bool shared = fit_copy(false);
    const double shared_cost = cost();
    const dim_t c = channels, r = rows, w = columns;
    const conv_layout kept = layout;
    channels = before.channels, rows = before.rows, columns = before.columns;
    if (fit_copy(true) && (!shared || cost() < shared_cost)) return true;
    channels = c, rows = r, columns = w;
    layout = kept;
    return shared;
  }
  /// Cycles for a channel of a position, about; those of its copy.
  [[gnu::noinline]] double copying_cost() const {
    const auto real = [](dim_t n) { return static_cast<double>(n); };
    const double length = real(layout.pitch);
    return real(layout.channel) / length * (4 + length / real(tiles.width)) / real(rows * columns);
  }
  [[gnu::noinline]] double cost() const {
    const auto real = [](dim_t n) { return static_cast<double>(n); };
    const double w = real(tiles.width);
    const bool gaps = layout.pitch != columns;
    const double placed =
        real(results) / real(p.sources) * real(gaps ? rows : 0) * (5 + 2 * real(columns) / w);
    const double tile_width = real(tile), at_end = real(rows) * real(layout.pitch) / tile_width;
    const double tiles_used =
        static_cast<double>(static_cast<dim_t>(at_end)) +
        (at_end - static_cast<double>(static_cast<dim_t>(at_end)) > 1 / 3.0 ? 1.0 : 0.8);
    double used = tiles_used * tile_width * real(taps) * real(results) / (2 * w);
    // Loads that cross lines; what does not stay in the first level of the cache.
    if (layout.pitch % line != 0) used *= 1.2;
    const double streamed = layout.channel * channels <= 40 * kib
                                ? 0
                                : 2.5 * real(layout.channel) / real(line) * real(parts(results, 8));
    return copying_cost() + (placed + used + streamed) / real(rows * columns);
  }

  dim_t out_step() const {
    const bool apart = panel || (in_place && rows == 1);
    const dim_t n = slots * rows * (apart ? columns : layout.pitch);
    return parts(n, line) * line;
  }

  dim_t bands() const {
    return parts(p.results, results) * parts(p.to[2], columns) * parts(p.batch * p.to[0], slots) *
           parts(p.to[1], rows);
  }

  /// Smaller bands, until there are so many, if these are not too small. No sum is divided
  /// otherwise by it.
  void divide(dim_t wanted) {
    while (bands() < wanted) {
      const dim_t half = parts(rows, 2), block = parts(parts(results, 2), 8) * 8;
      if (slots > 1)
        slots = parts(slots, 2);
      else if (rows > 1 && half * columns >= 2 * tile && (panel || !in_place || holds_tiles(half)))
        divide_rows(half);
      else if (panel && results > 8 && (p.results % block == 0 || p.results % block >= 8))
        results = block;
      else
        return;
    }
  }
  void divide_rows(dim_t half) {
    rows = half;
    if (in_place)
      lay_out_in_place();
    else
      layout = conv_layout{p, columns, rows, layout.y.dense, layout.x.dense, line};
  }

  dim_t overhang() const { return 2 * most_tile() + line; }
  /// Elements of the copy, of the results, of those of the last tiles' rows.
  dim_t copy_size() const {
    return in_place ? 0 : parts(slots * layout.channel * channels + overhang(), line) * line;
  }
  dim_t out_size() const { return direct ? 0 : results * out_step(); }
  dim_t tail_size() const { return panel ? tiles.panel.rows * out_step() : 0; }
  dim_t offsets_size() const { return parts(channels * taps, line) * line; }
  bool fits_scratch() const {
    return copy_size() + out_size() + tail_size() + (panel ? most_panel : 0) <= total &&
           static_cast<std::size_t>(2 * offsets_size() + 512) * sizeof(std::int32_t) <= list_bytes;
  }
};

}  // namespace ikebana::cpu::detail
