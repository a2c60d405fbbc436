#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "ikebana/core/shape.hpp"
#include "ikebana/cpu/conv_layout.hpp"
#include "ikebana/cpu/conv_tiles.hpp"
#include "ikebana/cpu/detail/scratch.hpp"

// A convolution of one group by bands of positions whose results and copies stay in the second
// level of the cache. Where there are many results, tiles of positions are packed into a panel in
// the first level, aligned and without gaps, for all of them; where there are few, the tiles read
// the copy itself. Either way the copy holds a block of channels, so that any number of them fits.
namespace ikebana::cpu::detail {

template <class T>
struct conv_plan {
  static constexpr dim_t line = 64 / static_cast<dim_t>(sizeof(T));
  static constexpr dim_t kib = 1024 / static_cast<dim_t>(sizeof(T));
  static constexpr dim_t total = static_cast<dim_t>((packed_b_bytes + packed_a_bytes) / sizeof(T));
  static constexpr dim_t most_copied = 208 * kib, most_out = 208 * kib, panel_size = 32 * kib,
                         most_panel = 42 * kib;
  static constexpr dim_t most_moves = 64, most_taps = 16384;

  const conv_tiles<T>& tiles;
  const conv_pass& p;
  bool panel, in_place = false, direct = false;
  bool flat = false;  // positions count what lies between the rows, so that a tile can pack
  dim_t taps, tile;   // positions of a panel
  dim_t depth;        // summed at once by a panel
  dim_t channels, results, columns, rows, slots = 1;  // of a block, a band
  conv_layout layout;
  // Parts of the scratch.
  T *copy, *panel_at, *out, *tail;
  std::int32_t *image_at, *weight_at, *steps;

  conv_plan(const conv_tiles<T>& t, const conv_pass& pass)
      : tiles{t},
        p{pass},
        panel{pass.results >= 32},
        taps{pass.taps()},
        tile{t.panel.registers * t.width},
        channels{pass.sources},
        results{pass.results},
        columns{pass.to[2]},
        rows{pass.to[1]} {
    depth = panel_size / tile * 15 / 16;
    if (depth > 512) depth = 512;
  }

  static dim_t parts(dim_t n, dim_t most) { return (n + most - 1) / most; }
  static dim_t even_part(dim_t n, dim_t most) { return n <= most ? n : parts(n, parts(n, most)); }

  bool unit_step() const { return p.step[0] == 1 && p.step[1] == 1 && p.step[2] == 1; }
  /// A source whose channels can be read where they stand.
  bool stands() const {
    return taps == 1 && p.stride[1] == 1 && p.stride[2] == 1 && p.padding[0] == 0 &&
           p.padding[1] == 0 && p.padding[2] == 0 && p.from[1] == p.to[1] && p.from[2] == p.to[2] &&
           (p.to[0] - 1) * p.stride[0] < p.from[0] &&
           p.sources * conv_geometry::volume(p.from) < (dim_t{1} << 30);
  }
  /// Whether tiles read whole lines of a source that stands, and not the same ones of each cache
  /// page.
  bool reads_aligned() const {
    const dim_t size = layout.channel * static_cast<dim_t>(sizeof(T));
    return in_place && size % 64 == 0 && size % 2048 != 0;
  }
  dim_t plane() const { return p.to[1] * p.to[2]; }

  /// Lays a band out. False if its copy is too large.
  bool lay_out(bool dense_x) {
    layout = conv_layout{p, columns, rows, false, dense_x, line};
    if (p.kernel[1] > 1) {
      const conv_layout dense{p, columns, rows, true, dense_x, line};
      if (dense.channel < layout.channel) layout = dense;
    }
    return layout.channel * channels <= most_copied;
  }

  /// Halves what is copied at a time until it fits.
  bool fit_copy(bool dense_x) {
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
    rows = even_part(p.to[1], rows);
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
    const dim_t most = most_out / (results + tiles.panel.rows);
    columns = even_part(columns, most);
    rows = even_part(rows, most < columns ? 1 : most / columns);
    in_place = stands() &&
               (panel || (unit_step() && plane() >= conv_tiles<T>::most_registers * tiles.width));
    if (in_place && panel && p.batch > 1 && plane() < 8 * tile) in_place = false;
    if (in_place) {
      if (!panel) columns = p.to[2], rows = p.to[1];
      layout = conv_layout{p, columns, rows, false, false, line};
      layout.channel = conv_geometry::volume(p.from);
      layout.pitch = p.from[2];
      flat = panel && (columns == p.to[2] || rows == 1);
    } else if (panel) {
      if (!fit_copy(false)) return false;
      gather_slots(most);
      flat = slots == 1 && flat_pays();
    } else if (!fit_slide()) {
      return false;
    }
    const bool dense = (panel && !flat) || layout.pitch == columns;
    direct = dense && unit_step() && slots == 1 && (columns == p.to[2] || rows == 1);
    return place();
  }

  /// Whether computing what lies between the rows is cheaper than packing apart.
  bool flat_pays() const {
    const auto real = [](dim_t n) { return static_cast<double>(n); };
    const double gap = real(layout.pitch - columns) / real(columns);
    const double moves = real(tile) / real(tiles.width) + real(tile) / real(columns);
    return 5 + gap * 1.5 * real(results) < 3 * moves;
  }

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
  bool fit_slide() {
    const conv_plan before = *this;
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
  /// Cycles for a channel of a row of positions, about.
  double cost() const {
    const auto real = [](dim_t n) { return static_cast<double>(n); };
    const double w = real(tiles.width);
    const double copied = real(layout.channel) / real(layout.pitch) * (4 + real(layout.pitch) / w);
    const bool gaps = layout.pitch != columns;
    const double placed =
        real(results) / real(p.sources) * real(gaps ? rows : 0) * (5 + 2 * real(columns) / w);
    const double tile_width = real(tile), at_end = real(rows) * real(layout.pitch) / tile_width;
    const double tiles_used =
        static_cast<double>(static_cast<dim_t>(at_end)) +
        (at_end - static_cast<double>(static_cast<dim_t>(at_end)) > 1 / 3.0 ? 1.0 : 0.8);
    const double used = tiles_used * tile_width * real(taps) * real(results) / (2 * w);
    return (copied + placed + used) / (real(rows) * real(columns));
  }

  dim_t out_step() const {
    const dim_t n = slots * rows * (panel && !flat ? columns : layout.pitch);
    return parts(n, line) * line;
  }

  /// Divides the scratch. False if it is too small.
  bool place() {
    T* at = reinterpret_cast<T*>(thread_scratch());
    const T* const end = at + total;
    const dim_t overhang = 2 * conv_tiles<T>::most_registers * tiles.width + line;
    copy = at;
    if (!in_place) at += parts(slots * layout.channel * channels + overhang, line) * line;
    out = at;
    if (!direct) at += results * out_step();
    tail = at;
    if (panel) at += tiles.panel.rows * out_step();
    panel_at = at;
    if (panel) at += most_panel;
    const dim_t entries = parts(channels * taps, line) * line;
    image_at = reinterpret_cast<std::int32_t*>(at);
    weight_at = image_at + entries;
    steps = weight_at + entries;
    at = reinterpret_cast<T*>(steps + 512);
    return at <= end;
  }

  void find_offsets() const {
    dim_t i = 0;
    for (dim_t kz = 0; kz < p.kernel[0]; ++kz)
      for (dim_t ky = 0; ky < p.kernel[1]; ++ky)
        for (dim_t kx = 0; kx < p.kernel[2]; ++kx, ++i) {
          image_at[i] = static_cast<std::int32_t>(layout.offset(kz, ky, kx));
          weight_at[i] = static_cast<std::int32_t>(kz * p.weight_tap[0] + ky * p.weight_tap[1] +
                                                   kx * p.weight_tap[2]);
        }
    for (; i < channels * taps; ++i) {
      image_at[i] = image_at[i - taps] + static_cast<std::int32_t>(layout.channel);
      weight_at[i] = weight_at[i - taps] + static_cast<std::int32_t>(p.weight_source);
    }
    if (!panel) return;
    for (dim_t s = 0; s < 512; ++s) steps[s] = static_cast<std::int32_t>(s * tile);
  }

  /// Where positions [at, at + count) of a band lie in its copy.
  dim_t find_moves(conv_move* moves, dim_t to_tile, dim_t at, dim_t count, dim_t band_rows,
                   dim_t wide) const {
    const dim_t w = tiles.width;
    const bool whole = flat || layout.pitch == wide;
    const dim_t slot_size = flat ? (band_rows - 1) * layout.pitch + wide : band_rows * wide;
    const dim_t length = whole ? slot_size : wide;
    dim_t n = 0;
    for (dim_t to = 0; to < count;) {
      const dim_t slot = (at + to) / slot_size, in_slot = (at + to) % slot_size;
      const dim_t row = in_slot / length, column = in_slot % length;
      const dim_t run = length - column < count - to ? length - column : count - to;
      const dim_t from = slot * layout.channel * channels + row * layout.pitch + column;
      for (dim_t i = 0; i < run; i += w) {
        dim_t lanes = in_place && run - i < w ? run - i : w;
        if (to + i + lanes > to_tile) lanes = to_tile - to - i;
        moves[n++] = {static_cast<std::int32_t>(from + i), static_cast<std::int32_t>(to + i),
                      static_cast<std::int32_t>(lanes)};
      }
      to += run;
    }
    return n;
  }
};

/// The shape of the most rows that are not more than `left`.
template <class Shape, std::size_t N>
const Shape& shape_for(const Shape (&shapes)[N], dim_t left) {
  const Shape* s = shapes;
  while (s->rows > left) ++s;
  return *s;
}

template <class T>
struct conv_run {
  conv_plan<T> plan;
  const T *source, *weights, *bias;
  T* result;
  conv_epilogue<T> then;
  const T* shift;  // where `then` scales

  /// Whether the tiles do all that follows.
  bool relu() const {
    return then.residual == nullptr && then.scale == nullptr && then.function == activation::relu;
  }

  void run() const {
    const conv_pass& pass = plan.p;
    for (dim_t r = 0; r < pass.results; r += plan.results) {
      const dim_t results = pass.results - r < plan.results ? pass.results - r : plan.results;
      for (dim_t x = 0; x < pass.to[2]; x += plan.columns) {
        const dim_t columns = pass.to[2] - x < plan.columns ? pass.to[2] - x : plan.columns;
        if (x == 0 || columns != plan.columns) plan.find_offsets();
        for (dim_t slot = 0; slot < pass.batch * pass.to[0]; slot += plan.slots)
          for (dim_t y = 0; y < pass.to[1]; y += plan.rows) band(r, results, slot, y, x, columns);
      }
    }
  }

  void band(dim_t r0, dim_t results, dim_t slot, dim_t y, dim_t x, dim_t columns) const {
    const conv_pass& pass = plan.p;
    const conv_layout& layout = plan.layout;
    const dim_t all = pass.batch * pass.to[0];
    const dim_t slots = all - slot < plan.slots ? all - slot : plan.slots;
    const dim_t rows = pass.to[1] - y < plan.rows ? pass.to[1] - y : plan.rows;
    const bool gaps = !plan.panel || plan.flat;
    const dim_t positions = gaps ? (rows - 1) * layout.pitch + columns : slots * rows * columns;
    const dim_t pitch = gaps ? layout.pitch : columns;
    const dim_t image = slot / pass.to[0], z = slot % pass.to[0];
    const dim_t from_plane = conv_geometry::volume(pass.from), plane = pass.result_plane();
    T* const y_at = result + image * pass.result_image + r0 * plane + pass.result_at(z, y, x);
    conv_job<T> job{};
    job.weight_step = pass.weight_result;
    job.out = plan.direct ? y_at : plan.out;
    job.out_step = plan.direct ? plane : plan.out_step();
    for (dim_t c = 0; c < pass.sources; c += plan.channels) {
      const dim_t channels = pass.sources - c < plan.channels ? pass.sources - c : plan.channels;
      const T* image_from;
      if (plan.in_place) {
        image_from = source + image * pass.source_image + c * from_plane +
                     (z * pass.stride[0] * pass.from[1] + y) * pass.from[2] + x;
      } else {
        for (dim_t s = 0; s < slots; ++s)
          layout.copy(plan.tiles, pass, channels,
                      source + (slot + s) / pass.to[0] * pass.source_image + c * from_plane,
                      (slot + s) % pass.to[0], y, x,
                      plan.copy + s * layout.channel * plan.channels);
        image_from = plan.copy;
      }
      job.adds = c > 0;
      const bool last = c + channels == pass.sources;
      const T* const w =
          weights + pass.weight_first + c * pass.weight_source + r0 * pass.weight_result;
      if (plan.panel)
        by_panels(job, r0, results, rows, columns, positions, channels * plan.taps, image_from, w,
                  last);
      else
        by_sliding(job, r0, results, positions, channels * plan.taps, image_from, w, last);
    }
    if (plan.panel && results % plan.tiles.panel.rows != 0) {
      // The rows that the last tiles share with others have been computed twice, apart.
      const dim_t whole = results / plan.tiles.panel.rows * plan.tiles.panel.rows;
      const dim_t step = plan.out_step();
      place(plan.tail + (plan.tiles.panel.rows - (results - whole)) * step, step, r0 + whole,
            results - whole, slot, slots, y, rows, x, columns, pitch);
      if (!plan.direct) place(plan.out, step, r0, whole, slot, slots, y, rows, x, columns, pitch);
    } else if (!plan.direct) {
      place(plan.out, plan.out_step(), r0, results, slot, slots, y, rows, x, columns, pitch);
    }
    if (then.residual != nullptr || then.scale != nullptr ||
        (then.function != activation::none && !relu()))
      finish(r0, results, slot, slots, y, rows, x, columns);
  }

  void finish(dim_t r0, dim_t results, dim_t slot, dim_t slots, dim_t y, dim_t rows, dim_t x,
              dim_t columns) const {
    const conv_pass& pass = plan.p;
    const dim_t plane = pass.result_plane(), row = pass.to[2];
    const bool whole = columns == row;
    const conv_rest<T> rest{then.scale == nullptr ? nullptr : then.scale + r0,
                            shift == nullptr ? nullptr : shift + r0, then.function};
    for (dim_t s = 0; s < slots; ++s) {
      const dim_t at = (slot + s) / pass.to[0] * pass.result_image + r0 * plane +
                       pass.result_at((slot + s) % pass.to[0], y, x);
      for (dim_t i = 0; i < (whole ? 1 : rows); ++i)
        plan.tiles.finish_rows(results, whole ? rows * row : columns, result + at + i * row, plane,
                               rest,
                               then.residual == nullptr ? nullptr : then.residual + at + i * row);
    }
  }

  void place(const T* from, dim_t step, dim_t r0, dim_t results, dim_t slot, dim_t slots, dim_t y,
             dim_t rows, dim_t x, dim_t columns, dim_t pitch) const {
    const conv_pass& pass = plan.p;
    const dim_t plane = pass.result_plane();
    for (dim_t s = 0; s < slots; ++s) {
      const dim_t image = (slot + s) / pass.to[0], z = (slot + s) % pass.to[0];
      T* to = result + image * pass.result_image + r0 * plane + pass.result_at(z, y, x);
      const T* at = from + s * rows * columns;
      for (dim_t r = 0; r < results; ++r, to += plane, at += step)
        plan.tiles.place_rows(rows, columns, at, pitch, to, pass.step[1] * pass.whole[2],
                              pass.step[2]);
    }
  }

  void by_panels(conv_job<T> job, dim_t r0, dim_t results, dim_t rows, dim_t columns,
                 dim_t positions, dim_t depth, const T* image, const T* w, bool last) const {
    const auto& shape = plan.tiles.panel;
    const T zeros[conv_tiles<T>::most_rows] = {};
    const dim_t step = conv_plan<T>::even_part(depth, plan.depth);
    T* const out = job.out;
    const dim_t out_step = job.out_step;
    for (dim_t k = 0; k < depth; k += step) {
      job.depth = depth - k < step ? depth - k : step;
      job.weight_at = plan.weight_at + k;
      job.relu = relu() && last && k + job.depth == depth;
      for (dim_t at = 0; at < positions;) {
        const dim_t left = positions - at;
        // A wider tile at the end in place of two.
        const auto& wide = plan.tiles.lanes[0];
        if (left > plan.tile && wide.registers > shape.registers &&
            left <= wide.registers * plan.tiles.width && results % shape.rows == 0 &&
            results >= wide.rows) {
          job.count = left;
          wide_tiles(job, r0, results, at, image, k, rows, columns, w, out, out_step);
          break;
        }
        job.count = left < plan.tile ? left : plan.tile;
        auto tile = shape.whole;
        bool packs = false;
        if (plan.flat && job.count == plan.tile) {
          const bool aligned =
              plan.reads_aligned() && reinterpret_cast<std::uintptr_t>(image + at) % 64 == 0;
          packs = !aligned;
          tile = aligned ? plan.tiles.slides[0].whole : plan.tiles.packing;
          job.image = image + at;
          job.image_at = plan.image_at + k;
          job.panel = plan.panel_at;
        } else {
          pack(job, plan.tile, at, image, k, rows, columns);
          if (shape.narrow != nullptr && job.count <= plan.tiles.width) tile = shape.narrow;
        }
        for (dim_t r = 0; r < results; r += shape.rows) {
          const bool whole = results - r >= shape.rows;
          const dim_t first = whole ? r : results - shape.rows;
          job.weights = w + first * job.weight_step;
          job.start = bias == nullptr ? zeros : bias + r0 + first;
          job.out = (whole ? out + r * out_step : plan.tail) + at;
          job.out_step = whole ? out_step : plan.out_step();
          if (at == 0) fetch_weights(job, first + shape.rows, results, w);
          if (!job.adds) fetch_out(job, shape.rows);
          tile(job);
          if (packs) {
            packs = false;
            tile = shape.whole;
            job.image = plan.panel_at;
            job.image_at = plan.steps;
          }
        }
        at += plan.tile;
      }
      job.adds = true;
    }
  }

  void pack(conv_job<T>& job, dim_t tile, dim_t at, const T* image, dim_t k, dim_t rows,
            dim_t columns) const {
    conv_move moves[conv_plan<T>::most_moves];
    const dim_t n = plan.find_moves(moves, tile, at, job.count, rows, columns);
    plan.tiles.pack(job.depth, image, plan.image_at + k, moves, n, plan.panel_at, tile);
    job.image = plan.panel_at;
    job.image_at = plan.steps;
  }

  /// Tiles of fewer rows and more registers. The last of them share rows.
  void wide_tiles(conv_job<T> job, dim_t r0, dim_t results, dim_t at, const T* image, dim_t k,
                  dim_t rows, dim_t columns, const T* w, T* out, dim_t out_step) const {
    const auto& shape = plan.tiles.lanes[0];
    const dim_t tile = shape.registers * plan.tiles.width;
    const T zeros[conv_tiles<T>::most_rows] = {};
    pack(job, tile, at, image, k, rows, columns);
    for (dim_t r = 0; r < results; r += shape.rows) {
      const bool whole = results - r >= shape.rows;
      const dim_t first = whole ? r : results - shape.rows;
      job.weights = w + first * job.weight_step;
      job.start = bias == nullptr ? zeros : bias + r0 + first;
      job.out = out + first * out_step + at;
      job.out_step = out_step;
      if (at == 0) fetch_weights(job, first + shape.rows, results, w);
      if (whole) {
        shape.whole(job);
        continue;
      }
      alignas(64) T apart[conv_tiles<T>::most_rows * 64];
      for (dim_t i = 0; i < shape.rows; ++i)
        for (dim_t j = 0; job.adds && j < job.count; ++j)
          apart[i * tile + j] = job.out[i * out_step + j];
      conv_job<T> last = job;
      last.out = apart;
      last.out_step = tile;
      shape.whole(last);
      for (dim_t i = r - first; i < shape.rows; ++i)
        for (dim_t j = 0; j < job.count; ++j) job.out[i * out_step + j] = apart[i * tile + j];
    }
  }

  /// The next rows of weights, which come from far where they are many.
  void fetch_weights(const conv_job<T>& job, dim_t first, dim_t results, const T* w) const {
    for (dim_t r = first; r < results && r < first + conv_tiles<T>::most_rows; ++r)
      for (dim_t i = 0; i < job.depth; i += 12)
        __builtin_prefetch(w + r * job.weight_step + job.weight_at[i]);
  }
  void fetch_out(const conv_job<T>& job, dim_t rows) const {
    for (dim_t r = 0; r < rows; ++r)
      for (dim_t i = 0; i < job.count; i += conv_plan<T>::line)
        __builtin_prefetch(job.out + r * job.out_step + i, 1);
  }

  void by_sliding(conv_job<T> job, dim_t r0, dim_t results, dim_t positions, dim_t depth,
                  const T* image, const T* w, bool last) const {
    const T zeros[conv_tiles<T>::most_rows] = {};
    const dim_t width = plan.tiles.width;
    T* const out = job.out;
    job.depth = depth;
    job.weight_at = plan.weight_at;
    job.image_at = plan.image_at;
    job.relu = relu() && last;
    for (dim_t r = 0; r < results;) {
      const auto& shape = shape_for(plan.tiles.slides, results - r);
      job.weights = w + r * job.weight_step;
      job.start = bias == nullptr ? zeros : bias + r0 + r;
      for (dim_t at = 0; at < positions;) {
        const bool narrow = shape.narrow != nullptr && positions - at <= width;
        const dim_t size = narrow ? width : shape.registers * width;
        dim_t from = at;
        // What stands in place may not be read past its end: the last tile overlaps another.
        if (plan.in_place && positions - at < size) from = positions - size;
        job.count = positions - from < size ? positions - from : size;
        job.image = image + from;
        job.out = out + r * job.out_step + from;
        (narrow ? shape.narrow : shape.whole)(job);
        at += size;
      }
      r += shape.rows;
    }
  }
};

/// Without any copy, for kernels so large that none fits.
template <class T>
void pass_plainly(const conv_pass& p, const T* source, const T* w, const T* bias, T* result) {
  const dim_t plane = p.from[1] * p.from[2];
  for (dim_t b = 0; b < p.batch; ++b)
    for (dim_t r = 0; r < p.results; ++r)
      for (dim_t z = 0; z < p.to[0]; ++z)
        for (dim_t y = 0; y < p.to[1]; ++y)
          for (dim_t x = 0; x < p.to[2]; ++x) {
            T sum = bias != nullptr ? bias[r] : T(0);
            for (dim_t c = 0; c < p.sources; ++c)
              for (dim_t kz = 0; kz < p.kernel[0]; ++kz)
                for (dim_t ky = 0; ky < p.kernel[1]; ++ky)
                  for (dim_t kx = 0; kx < p.kernel[2]; ++kx) {
                    const dim_t sz = z * p.stride[0] - p.padding[0] + kz * p.dilation[0],
                                sy = y * p.stride[1] - p.padding[1] + ky * p.dilation[1],
                                sx = x * p.stride[2] - p.padding[2] + kx * p.dilation[2];
                    if (sz < 0 || sz >= p.from[0] || sy < 0 || sy >= p.from[1] || sx < 0 ||
                        sx >= p.from[2])
                      continue;
                    sum += source[b * p.source_image + (c * p.from[0] + sz) * plane +
                                  sy * p.from[2] + sx] *
                           w[p.weight_first + r * p.weight_result + c * p.weight_source +
                             kz * p.weight_tap[0] + ky * p.weight_tap[1] + kx * p.weight_tap[2]];
                  }
            result[b * p.result_image + r * p.result_plane() + p.result_at(z, y, x)] = sum;
          }
}

}  // namespace ikebana::cpu::detail
