#pragma once

#include <cstddef>
#include <cstdint>

#include "ikebana/core/shape.hpp"
#include "ikebana/cpu/conv/costs.hpp"
#include "ikebana/cpu/conv/entries.hpp"
#include "ikebana/cpu/conv/layout.hpp"
#include "ikebana/cpu/conv/pass.hpp"
#include "ikebana/cpu/conv/tiles.hpp"
#include "ikebana/cpu/detail/quotients.hpp"
#include "ikebana/cpu/detail/scratch.hpp"

IKEBANA_CPU_BEGIN_SMALL
namespace ikebana::cpu::detail {

/// How a convolution of one group is divided: into bands of positions whose results and copies stay
/// in the second level of the cache. Tiles read the copy, or the source where it needs no zeros
/// around it. The copy holds a block of channels, so that any number of them fits.
struct band_plan : band_sizes {
  tile_sizes tiles;
  const conv_pass& p;
  dim_t taps = p.taps();
  dim_t line = conv_costs::line_bytes / tiles.element,
        near = conv_costs::near_bytes / tiles.element;
  dim_t tile = tiles.registers * tiles.width;  // positions

  band_plan(const tile_sizes& t, const conv_pass& pass)
      : band_sizes{.channels = pass.sources, .columns = pass.to[2], .rows = pass.to[1]},
        tiles{t},
        p{pass} {}
  /// As it was found before.
  band_plan(const tile_sizes& t, const conv_step& step)
      : band_sizes{step.bands}, tiles{t}, p{step.pass} {}

  dim_t most_copied() const { return conv_costs::copied_bytes / tiles.element; }
  dim_t most_out() const { return conv_costs::out_bytes / tiles.element; }

  /// Lays a band of a source that stands out.
  void lay_out_in_place() {
    layout = conv_layout{p, columns, rows, false, false, line};
    layout.channel = conv_geometry::volume(p.from);
    layout.slice = p.dilation[0] * p.from[1] * p.from[2];
    layout.pitch = p.from[2];
  }
  /// Lays a band out. False if its copy is too large.
  bool lay_out(bool dense_x) {
    layout = conv_layout{p, columns, rows, false, dense_x, line};
    // Else it is never smaller.
    if (p.kernel[1] > 1 && (p.stride[1] > 1 || rows < p.dilation[1])) {
      const conv_layout dense{p, columns, rows, true, dense_x, line};
      if (dense.channel < layout.channel) layout = dense;
    }
    return layout.channel * channels <= most_copied();
  }

  /// Halves what is copied at a time until it fits.
  bool fit_copy(bool dense_x) {
    while (!lay_out(dense_x)) {
      if (channels > 1 && rows <= conv_costs::few_band_rows)
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

  [[gnu::noinline]] bool fit() {
    if (taps > conv_costs::most_depth) return false;
    channels = even_part(channels, conv_costs::most_depth / taps);
    dim_t most = most_out() / (p.results + tiles.rows);
    // Of one row, what all results meet stays in the first level, if not for copies that overlap.
    if (p.to[1] == 1)
      most = least(most, 4 * most_tile() + near / channels + 2 * p.dilation[2] * (p.kernel[2] - 1));
    columns = even_part(columns, most);
    rows = even_part(rows, most < columns ? 1 : most / columns);
    in_place = p.stands() && fit_in_place(most) && !copying_pays();
    if (in_place)
      lay_out_in_place();
    else if (!fit_slide())
      return false;
    direct = (layout.pitch == columns || rows == 1) && p.unit_step() &&
             (columns == p.to[2] || rows == 1);
    return copy_size() + out_size() <= total() &&
           static_cast<std::size_t>(2 * offsets_size()) * sizeof(std::int32_t) <= list_bytes;
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
    if (2 * p.from[2] < conv_costs::least_row_halves * p.to[2]) return false;
    band_plan standing = *this, copied = *this;
    standing.in_place = true;
    standing.lay_out_in_place();
    return copied.fit_slide() &&
           copied.cost() < conv_costs::copying_gain * (standing.cost() - standing.copying_cost());
  }

  /// Whether the last of the bands of so many rows is as wide as any tile.
  bool holds_tiles(dim_t high) const {
    const dim_t last = p.to[1] - (parts(p.to[1], high) - 1) * high;
    return (last - 1) * p.from[2] + p.to[2] >= most_tile();
  }
  dim_t most_tile() const { return tile_sizes::most_registers * tiles.width; }

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
  static double real(dim_t n) { return static_cast<double>(n); }
  /// Cycles for a channel of a position, about; those of its copy.
  double copying_cost() const {
    const double length = real(layout.pitch);
    return real(layout.channel) / length * (conv_costs::copied_row + length / real(tiles.width)) /
           real(rows * columns);
  }
  [[gnu::noinline]] double cost() const {
    const double w = real(tiles.width), results = real(p.results);
    const bool gaps = layout.pitch != columns;
    const double placed = results / real(p.sources) * real(gaps ? rows : 0) *
                          (conv_costs::placed_row + conv_costs::placed_vector * real(columns) / w);
    const double at_end = real(rows) * real(layout.pitch) / real(tile);
    const double whole = real(static_cast<dim_t>(at_end));
    const double tiles_used = whole + (at_end - whole > 1 / 3.0 ? 1.0 : conv_costs::narrow_tile);
    double used = tiles_used * real(tile) * real(taps) * results / (2 * w);
    // Loads that cross lines; what does not stay in the first level of the cache.
    if (layout.pitch % line != 0) used *= conv_costs::crossing_lines;
    const double streamed = layout.channel * channels <= near
                                ? 0
                                : conv_costs::streamed_line * real(layout.channel) / real(line) *
                                      real(parts(p.results, 8));
    return copying_cost() + (placed + used + streamed) / real(rows * columns);
  }

  dim_t out_step() const {
    return rounded_up(rows * (in_place && rows == 1 ? columns : layout.pitch), line);
  }
  dim_t bands() const { return parts(p.to[2], columns) * p.batch * p.to[0] * parts(p.to[1], rows); }

  /// Smaller bands, until there are so many, if these are not too small. No sum is divided
  /// otherwise by it.
  void divide(dim_t wanted) {
    while (bands() < wanted) {
      const dim_t half = parts(rows, 2);
      if (rows == 1 || half * columns < conv_costs::least_band_tiles * tile ||
          (in_place && !holds_tiles(half)))
        return;
      rows = half;
      if (in_place)
        lay_out_in_place();
      else
        layout = conv_layout{p, columns, rows, layout.y.dense, layout.x.dense, line};
    }
  }

  /// Elements of the copy, of the results.
  dim_t copy_size() const {
    return in_place ? 0 : rounded_up(layout.channel * channels + 2 * most_tile() + line, line);
  }
  dim_t out_size() const { return direct ? 0 : p.results * out_step(); }
  dim_t offsets_size() const { return rounded_up(channels * taps, line); }
  dim_t total() const {
    return static_cast<dim_t>(packed_b_bytes + packed_a_bytes) / tiles.element;
  }
};

}  // namespace ikebana::cpu::detail
IKEBANA_CPU_END_SMALL
