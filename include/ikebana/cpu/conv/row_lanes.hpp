#pragma once

#include <algorithm>
#include <cstdint>

#include "ikebana/core/shape.hpp"
#include "ikebana/cpu/conv/pass.hpp"
#include "ikebana/cpu/conv/plan.hpp"
#include "ikebana/cpu/conv/row_parts.hpp"
#include "ikebana/cpu/conv/row_tiles.hpp"
#include "ikebana/cpu/conv/tiles.hpp"
#include "ikebana/cpu/conv_geometry.hpp"
#include "ikebana/cpu/detail/quotients.hpp"
#include "ikebana/cpu/detail/scratch.hpp"

namespace ikebana::cpu::detail {

/// A convolution with results as lanes, by tiles of positions of one row, which read what they meet
/// one element at a time, so with any stride: from a copy with zeros before and after its rows, or
/// where it stands. Rows of the kernel that lie outside are left out. All weights are laid side by
/// side first. Backward by data with strides goes so at once, for all residues of the positions.
template <class T>
struct row_lanes : conv_rows, row_tiles<T> {
  using typename row_tiles<T>::shape_type;
  using row_tiles<T>::blocks, row_tiles<T>::lanes, row_tiles<T>::shapes;
  static constexpr dim_t line = conv_plan<T>::line, kib = conv_plan<T>::kib, most_rows = 16,
                         least_row = 4;

  const conv_tiles<T>& tiles;
  conv_operands<T> of;
  bool in_place = false;
  dim_t lead = 0, length = 0, pitch = 0, slice = 0, channel = 0;  // of what is read
  dim_t overshoot = 0;  // elements that tiles wider than a row read after it
  dim_t rows = 0;       // of a band
  T *copy = nullptr, *packed = nullptr, *across = nullptr;  // of a thread's scratch
  std::int32_t *source_at = nullptr, *weight_at = nullptr;

  row_lanes(const conv_tiles<T>& t, const conv_pass& p, const conv_operands<T>& operands)
      : conv_rows{p}, tiles{t}, of{operands} {}
  /// Backward by data.
  row_lanes(const conv_tiles<T>& t, const conv_geometry& g, const conv_operands<T>& operands)
      : conv_rows{g}, tiles{t}, of{operands} {}

  /// Where it may be the way: with strides, or slices of zeros around the source.
  static bool suits(const conv_pass& p) {
    const bool strides = p.stride[0] * p.stride[1] * p.stride[2] > 1;
    return p.unit_step() && p.to == p.whole && p.taps() > 1 &&
           (strides || (p.kernel[0] > 1 && p.padding[0] > 0));
  }
  /// Whether it fits, and is faster than what takes so many cycles an image; not if these are 0.
  bool pays(double cycles) { return cycles > 0 && fit() && cost() < 0.85 * cycles; }
  /// Whether that is worth a look, which takes longer than a small convolution's row: for so many
  /// multiply-adds and results of an image.
  static bool may_pay(const conv_tiles<T>& tiles, dim_t multiply_adds, dim_t weights, dim_t results,
                      dim_t positions, double cycles) {
    const dim_t w = tiles.width, registers = parts(results, w);
    const double lanes = static_cast<double>(registers * w) / static_cast<double>(results * w);
    return lanes * static_cast<double>(multiply_adds / 3 + 5 * weights) +
               static_cast<double>(5 * registers * positions) + fixed_cost <
           0.85 * cycles;
  }
  static constexpr double fixed_cost = 800;

  bool fit() {
    if (tiles.across[0].whole == nullptr || sources == 0 || results == 0 || step[0] > most_parts ||
        step[1] > most_parts || step[2] > most_parts || columns(0) < least_row)
      return false;
    this->choose_block(tiles, *this);
    if (sources * taps() * lanes * blocks > 256 * kib) return false;
    dim_t begin = from[2], end = 0;
    for (dim_t r = 0; r < step[2]; ++r) {
      const dim_t n = columns(r);
      if (n == 0) continue;
      for (const auto& some : shapes)
        overshoot = std::max(overshoot, (some[r]->rows - n) * stride[2]);
      const conv_reach& m = reach[2][r];
      if (m.kernel == 0) continue;
      begin = std::min(begin, m.begin);
      end = std::max(end, m.begin + (n - 1) * stride[2] + (m.kernel - 1) * m.dilation + 1);
    }
    in_place = begin >= 0 && end <= from[2] && overshoot == 0 &&
               sources * conv_geometry::volume(from) < (dim_t{1} << 30);
    lead = in_place || begin > 0 ? 0 : -begin;
    length = in_place ? from[2] : least(from[2], end);
    pitch = in_place ? from[2] : lead + end;
    if (length <= 0) return false;
    rows = to[1];
    while (!lay_out()) {
      if (rows == 1) return false;
      rows = parts(rows, 2);
    }
    rows = even_part(to[1], rows);
    lay_out();
    return place();
  }
  bool lay_out() {
    if (in_place) {
      channel = conv_geometry::volume(from);
      slice = from[1] * from[2];
      return rows * to[2] * lanes <= 48 * kib;
    }
    dim_t first = reach[1][0].begin, last = first;
    for (dim_t r = 0; r < step[1]; ++r)
      if (const conv_reach& m = reach[1][r]; m.kernel > 0) {
        first = std::min(first, m.begin);
        last = std::max(last, m.begin + (m.kernel - 1) * m.dilation);
      }
    // Of any rows of positions.
    slice = least(from[1], parts(rows, step[1]) * stride[1] + last - first + 1) * pitch;
    channel = reach[0][0].kernel * slice + line;
    for (dim_t r = 1; r < step[0]; ++r)
      channel = std::max(channel, reach[0][r].kernel * slice + line);
    return channel * sources <= 40 * kib && rows * to[2] * lanes <= 32 * kib;
  }
  /// Of an image, in cycles, about.
  double cost() const {
    const auto real = [](dim_t n) { return static_cast<double>(n); };
    double met_z = 0, met_y = 0, row = 0, starts = 0;
    for (dim_t z = 0; z < to[0]; ++z) met_z += real(seen(0, z).size());
    // Of many rows, few lie at the ends.
    const dim_t looked_at = to[1] <= 4 * step[1] + 8 ? to[1] : step[1];
    for (dim_t y = 0; y < looked_at; ++y)
      met_y += real(looked_at == to[1] ? seen(1, y).size() : met(1, y).kernel) * real(to[1]) /
               real(looked_at);
    for (dim_t r = 0; r < step[2]; ++r)
      if (const dim_t n = columns(r); n > 0) {
        for (dim_t b = 0; b < blocks; ++b) {
          const shape_type& s = *shapes[b + 1 < blocks][r];
          const double count = real(parts(n, s.rows));
          row += count * this->tile_cycles(s) * real(reach[2][r].kernel);
          starts += count * real(s.rows * s.registers + 20);
        }
      }
    const double w = real(tiles.width), products = real(sources) * met_z * met_y * row,
                 turned = real(to[0] * parts(rows * to[2], tiles.width) * parts(to[1], rows) *
                               parts(results, tiles.width)) *
                          5 * w,
                 packing = real(lanes * blocks * sources * taps()) *
                           (weight_source != taps() && taps() < 8 ? 1.5 : 5 / w),
                 copied = in_place
                              ? 0
                              : met_z * real(parts(to[1], rows) * sources) *
                                    (15 + real(slice) / real(pitch) * (5 + 2 * real(pitch) / w));
    const double all = products + real(to[0] * to[1]) * starts + turned + packing + copied;
    return (step[2] > 1 ? 1.12 : 1) * all + 3 * real(sources * taps()) + fixed_cost;
  }

  /// Divides the calling thread's scratch. False if it is too small.
  bool place() {
    monotonic_scratch scratch = monotonic_scratch::of<T>(), lists = monotonic_scratch::of_lists();
    const dim_t beyond = most_rows * std::max(stride[2], step[2]) + 2 * line;
    scratch.allocate(copy, in_place ? 0 : channel * sources + beyond);
    scratch.allocate(packed, sources * taps() * lanes * blocks + line);
    scratch.allocate(across, (rows * to[2] + beyond) * lanes);
    lists.allocate(source_at, sources * taps());
    lists.allocate(weight_at, sources * taps());
    return scratch.fits() && lists.fits();
  }

  dim_t bands() const { return batch * to[0] * parts(to[1], rows); }
  void run() {
    const dim_t all = multiply_adds() / (step[0] * step[1] * step[2]);
    if (shares_work(all))
      while (bands() < 2 * num_threads() && rows > 1) {
        rows = parts(rows, 2);
        lay_out();
      }
    share_parts(bands(), grain_of(bands(), all), [this](dim_t begin, dim_t end) {
      row_lanes mine = *this;
      mine.place();
      mine.run(begin, end);
    });
  }

  [[gnu::noinline]] void run(dim_t begin, dim_t end) const {
    pack_weights();
    const dim_t high = parts(to[1], rows);
    range listed{0, -1};
    dim_t part = -1;
    for (dim_t i = begin; i < end; ++i) {
      const dim_t y = i % high * rows, z = i / high % to[0], image = i / high / to[0];
      const range kz = seen(0, z);
      if (!(kz == listed) || part != rest(z, step[0])) {
        list(z, kz);
        listed = kz;
        part = rest(z, step[0]);
      }
      band(image, z, kz, y, least(to[1] - y, rows));
    }
  }

  void pack_weights() const {
    const dim_t all = taps();
    for (dim_t b = 0; b < blocks; ++b) {
      const T* const w = of.weights + b * lanes * weight_result;
      T* const at = packed + b * sources * all * lanes;
      const dim_t n = least(results - b * lanes, lanes);
      if (weight_source == all) {
        tiles.pack_across(at, lanes, w, weight_result, sources * all, n);
        continue;
      }
      for (dim_t c = 0; c < sources; ++c)
        tiles.pack_across(at + c * all * lanes, lanes, w + c * weight_source, weight_result, all,
                          n);
    }
  }

  /// Where what the parts of a slice meet lies, and its weights: for each part of the rows and of
  /// the columns one row of the kernel after the other.
  void list(dim_t z, const range& kz) const {
    std::int32_t *source = source_at, *weight = weight_at;
    const conv_reach& mz = met(0, z);
    for (dim_t ry = 0; ry < step[1]; ++ry)
      for (dim_t rx = 0; rx < step[2]; ++rx) {
        const conv_reach &my = reach[1][ry], &mx = reach[2][rx];
        for (dim_t ky = 0; ky < my.kernel; ++ky)
          for (dim_t k = kz.begin; k < kz.end; ++k) {
            const dim_t row =
                (mz.first + k * mz.weight_step) * kernel[1] + my.first + ky * my.weight_step;
            dim_t at = k * (in_place ? mz.dilation * slice : slice) + ky * my.dilation * pitch,
                  tap = (row * kernel[2] + mx.first) * lanes;
            for (dim_t c = 0; c < sources; ++c, at += channel, tap += taps() * lanes)
              for (dim_t kx = 0; kx < mx.kernel; ++kx) {
                *source++ = static_cast<std::int32_t>(at + kx * mx.dilation);
                *weight++ = static_cast<std::int32_t>(tap + kx * mx.weight_step * lanes);
              }
          }
      }
  }

  void band(dim_t image, dim_t z, const range& kz, dim_t y, dim_t n) const {
    const dim_t from_slice = from[1] * from[2], from_plane = from[0] * from_slice;
    const T* base = of.source + image * source_image;
    dim_t top = 0;  // the first row of what is read
    if (in_place) {
      base += origin(0, z) * from_slice;
    } else {
      const range rows_read = rows_met(y, n);
      top = rows_read.begin;
      for (dim_t c = 0; c < sources && rows_read.size() > 0; ++c)
        for (dim_t k = kz.begin; k < kz.end; ++k) {
          T* const at = copy + c * channel + k * slice;
          tiles.copy_rows({1, 0, 0,
                           base + c * from_plane +
                               (origin(0, z) + k * met(0, z).dilation) * from_slice + top * from[2],
                           from[2], 1, at, pitch, 0, rows_read.size(), 0, lead, length});
          if (overshoot > 0) tiles.clear(at + rows_read.size() * pitch, overshoot);
        }
      base = copy;
    }
    const dim_t plane = conv_geometry::volume(to);
    const T zeros[most_rows] = {};
    conv_job<T> job{};
    job.start = zeros;
    job.weight_step = stride[2];
    job.out_step = step[2] * lanes;
    for (dim_t b = 0; b < blocks; ++b) {
      job.image = packed + b * sources * taps() * lanes;
      for (dim_t i = y; i < y + n; ++i) {
        const range ky = seen(1, i);
        const T* const row = base + (origin(1, i) - top) * pitch + lead;
        dim_t first = 0;
        for (dim_t ry = 0; ry < rest(i, step[1]); ++ry)
          for (dim_t rx = 0; rx < step[2]; ++rx) first += reach[1][ry].kernel * reach[2][rx].kernel;
        for (dim_t rx = 0; rx < step[2]; ++rx) {
          const conv_reach& mx = reach[2][rx];
          const dim_t each = kz.size() * sources, wide = columns(rx);
          const dim_t at = (first + ky.begin * mx.kernel) * each;
          first += met(1, i).kernel * mx.kernel;
          if (wide == 0) continue;
          job.depth = ky.size() * mx.kernel * each;
          job.weight_at = source_at + at;
          job.image_at = weight_at + at;
          const shape_type& shape = *shapes[b + 1 < blocks][rx];
          job.count = shape.registers * tiles.width;
          const dim_t size = shape.rows;
          for (dim_t x = 0; x < wide; x += size) {
            // The last tile overlaps another.
            const dim_t t = wide - x < size && wide >= size ? wide - size : x;
            job.weights = row + mx.begin + t * stride[2];
            job.out = across + (((i - y) * to[2]) + rx + t * step[2]) * lanes;
            shape.whole(job);
          }
        }
      }
      const dim_t r = b * lanes, some = least(results - r, lanes);
      const dim_t at = image * result_image + r * plane + (z * to[1] + y) * to[2];
      tiles.place_across(some, n * to[2], across, lanes, of.bias == nullptr ? nullptr : of.bias + r,
                         of.relu(), of.result + at, plane);
      if (of.finishes())
        tiles.finish_rows(some, n * to[2], of.result + at, plane,
                          {of.then.scale == nullptr ? nullptr : of.then.scale + r,
                           of.shift == nullptr ? nullptr : of.shift + r, of.then.function},
                          of.then.residual == nullptr ? nullptr : of.then.residual + at);
    }
  }
};

}  // namespace ikebana::cpu::detail
