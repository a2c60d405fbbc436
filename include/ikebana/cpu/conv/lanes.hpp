#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "ikebana/core/shape.hpp"
#include "ikebana/cpu/conv/layout.hpp"
#include "ikebana/cpu/conv/pass.hpp"
#include "ikebana/cpu/conv/plan.hpp"
#include "ikebana/cpu/conv/tiles.hpp"
#include "ikebana/cpu/detail/quotients.hpp"
#include "ikebana/cpu/detail/scratch.hpp"

namespace ikebana::cpu::detail {

/// The convolution of a pass with results as lanes: a block of weights, laid side by side, stays in
/// the first level of the cache, while the copy is read one position at a time, from wherever it
/// is; what comes of it lies across the result and is turned at the end. Pays where planes are wide
/// enough for the weights' packing, and deep enough for the turning.
template <class T>
struct lanes_run {
  static constexpr dim_t line = conv_plan<T>::line, kib = conv_plan<T>::kib;
  static constexpr dim_t most_positions = 832, most_weights = 34 * kib;

  const conv_tiles<T>& tiles;
  const conv_pass& p;
  const conv_operands<T>& of;

  dim_t taps = 0, columns = 0, rows = 0, channels = 0, depth = 0, positions = 0;
  conv_layout layout{};
  // Parts of a thread's scratch.
  T *copy = nullptr, *packed = nullptr, *across = nullptr, *turned = nullptr;
  std::int32_t* image_at = nullptr;

  /// How many registers of results to take where `left` are left.
  const typename conv_tiles<T>::slide_shape& shape(dim_t left) const {
    const auto* const all = tiles.lanes;
    const dim_t most = all[0].registers, n = (left + tiles.width - 1) / tiles.width;
    const dim_t wanted = n == most + 1 || n == most + 2 ? most - 1 : n;
    const auto* s = all;
    while (s->registers > wanted && s[1].whole != nullptr) ++s;
    return *s;
  }

  /// The lanes computed for each result.
  double waste() const {
    dim_t computed = 0;
    for (dim_t r = 0; r < p.results;) {
      const dim_t n = shape(p.results - r).registers * tiles.width;
      computed += n;
      r += n;
    }
    return static_cast<double>(computed) / static_cast<double>(p.results);
  }

  bool fit() {
    taps = p.taps();
    // Without strides, the tiles of plans are as fast for fewer.
    const bool strides = !p.unit_step() || conv_geometry::volume(p.stride) > 1;
    if (tiles.lanes[0].whole == nullptr || p.results < (strides ? 2 * tiles.width : many_results))
      return false;
    const dim_t most_depth = most_weights / (shape(p.results).registers * tiles.width);
    if (taps > most_depth) return false;
    channels = even_part(p.sources, most_depth / taps);
    depth = channels * taps;
    columns = even_part(p.to[2], most_positions / 2);
    lay_out(1);
    if (layout.pitch > most_positions) return false;
    lay_out(even_part(p.to[1], most_positions / layout.pitch));
    while (layout.channel * channels > conv_plan<T>::most_copied) {
      if (rows == 1) return false;
      lay_out((rows + 1) / 2);
    }
    return pays() && place();
  }
  void lay_out(dim_t n) {
    rows = n;
    layout = conv_layout{p, columns, n, false, false, line};
    positions = (rows - 1) * layout.pitch + columns;
  }

  /// Divides the calling thread's scratch. False if it is too small.
  bool place() {
    const dim_t lanes = tiles.lanes[0].registers * tiles.width;
    monotonic_scratch scratch = monotonic_scratch::of<T>(), lists = monotonic_scratch::of_lists();
    scratch.allocate(copy, layout.channel * channels + 2 * conv_tiles<T>::most_rows + 2 * line);
    scratch.allocate(packed, depth * lanes + line);
    scratch.allocate(across, (positions + conv_tiles<T>::most_rows) * lanes);
    scratch.allocate(turned, p.unit_step() ? 0 : lanes * columns);
    lists.allocate(image_at, depth);
    return scratch.fits() && lists.fits();
  }

  /// Against packing panels, in parts of the products' time.
  bool pays() const {
    const auto real = [](dim_t n) { return static_cast<double>(n); };
    const double gaps = real(layout.pitch) / real(columns) - 1;
    const double packing = 16 / real(positions), turning = 10 / (real(p.sources) * real(taps));
    return waste() * (1 + gaps) + packing + turning + 0.03 < 1 + 8 / real(p.results);
  }

  dim_t blocks() const {
    dim_t n = 0;
    for (dim_t r = 0; r < p.results; ++n) r += shape(p.results - r).registers * tiles.width;
    return n;
  }
  dim_t bands() const {
    return blocks() * parts(p.to[2], columns) * p.batch * p.to[0] * parts(p.to[1], rows);
  }

  void run() {
    if (shares_work(p.multiply_adds()))
      while (bands() < 2 * num_threads() && rows * columns > 64) lay_out((rows + 1) / 2);
    share_parts(bands(), grain_of(bands(), p.multiply_adds()), [this](dim_t begin, dim_t end) {
      lanes_run mine = *this;
      mine.place();
      mine.run(begin, end);
    });
  }

  [[gnu::noinline]] void run(dim_t begin, dim_t end) const {
    layout.list_offsets(p, channels, image_at);
    if (is_turned())
      for (dim_t c = 0; c < channels; ++c)
        std::reverse(image_at + c * taps, image_at + (c + 1) * taps);
    const dim_t high = parts(p.to[1], rows), wide = parts(p.to[2], columns),
                slots = p.batch * p.to[0];
    dim_t at = 0;
    for (dim_t r = 0; r < p.results && at < end;) {
      const auto& s = shape(p.results - r);
      const dim_t lanes = s.registers * tiles.width, results = least(p.results - r, lanes);
      const dim_t stop = at + high * wide * slots, first = begin > at ? begin : at;
      // Weights that fit as a whole are packed for all bands.
      const bool once = channels == p.sources;
      if (once && first < stop && first < end) pack_weights(r, results, 0, channels, lanes);
      for (dim_t b = first; b < stop && b < end; ++b) {
        const dim_t y = (b - at) % high * rows, slot = (b - at) / high % slots;
        const dim_t x = (b - at) / (high * slots) * columns;
        band(s, r, results, slot / p.to[0], slot % p.to[0], y, x, least(p.to[2] - x, columns),
             once);
      }
      at = stop;
      r += lanes;
    }
  }

  void band(const typename conv_tiles<T>::slide_shape& s, dim_t r, dim_t results, dim_t image,
            dim_t z, dim_t y, dim_t x, dim_t wide, bool is_packed) const {
    const dim_t used = least(p.to[1] - y, rows), lanes = s.registers * tiles.width;
    const dim_t count = (used - 1) * layout.pitch + wide;
    const dim_t from_plane = conv_geometry::volume(p.from);
    const T zeros[conv_tiles<T>::most_rows] = {};
    conv_job<T> job{};
    job.image = packed;
    job.weight_at = image_at;
    job.weight_step = 1;
    job.start = zeros;
    job.out_step = lanes;
    job.count = lanes;
    for (dim_t c = 0; c < p.sources; c += channels) {
      const dim_t some = least(p.sources - c, channels);
      layout.copy(tiles, p, some, of.source + image * p.source_image + c * from_plane, z, y, x,
                  copy);
      if (!is_packed) pack_weights(r, results, c, some, lanes);
      job.depth = some * taps;
      job.adds = c > 0;
      for (dim_t at = 0; at < count; at += s.rows) {
        job.weights = copy + at;
        job.out = across + at * lanes;
        // The sums of the next tile.
        const char* const next = reinterpret_cast<const char*>(job.out + s.rows * lanes);
        for (std::size_t l = 0; l < sizeof(T) * static_cast<std::size_t>(s.rows * lanes); l += 64)
          __builtin_prefetch(next + l, 1);
        s.whole(job);
      }
    }
    turn(r, results, image, z, y, used, x, wide, lanes);
  }

  /// Whether the weights are walked from the last to the first: they are packed as they stand, and
  /// the places that they meet are listed so.
  bool is_turned() const {
    return p.weight_tap[2] == -1 && p.weight_tap[1] == -p.kernel[2] &&
           p.weight_tap[0] == -p.kernel[1] * p.kernel[2];
  }
  void pack_weights(dim_t r, dim_t results, dim_t c, dim_t some, dim_t lanes) const {
    const T* const from = of.weights + p.weight_first + r * p.weight_result + c * p.weight_source;
    const bool along = p.weight_tap[2] == 1 && p.weight_tap[1] == p.kernel[2] &&
                       p.weight_tap[0] == p.kernel[1] * p.kernel[2] && p.weight_source == taps;
    if (along) return tiles.pack_across(packed, lanes, from, p.weight_result, some * taps, results);
    T* to = packed;
    if (is_turned()) {
      for (dim_t i = 0; i < some; ++i, to += taps * lanes)
        tiles.pack_across(to, lanes, from - (taps - 1) + i * p.weight_source, p.weight_result, taps,
                          results);
      return;
    }
    for (dim_t i = 0; i < some; ++i)
      for (dim_t kz = 0; kz < p.kernel[0]; ++kz)
        for (dim_t ky = 0; ky < p.kernel[1]; ++ky)
          for (dim_t kx = 0; kx < p.kernel[2]; ++kx, to += lanes) {
            const T* at = from + i * p.weight_source + kz * p.weight_tap[0] + ky * p.weight_tap[1] +
                          kx * p.weight_tap[2];
            for (dim_t l = 0; l < results; ++l, at += p.weight_result) to[l] = *at;
            for (dim_t l = results; l < lanes; ++l) to[l] = T(0);
          }
  }

  void turn(dim_t r, dim_t results, dim_t image, dim_t z, dim_t y, dim_t used, dim_t x, dim_t wide,
            dim_t lanes) const {
    const dim_t plane = p.result_plane();
    const bool relu = of.relu();
    const conv_rest<T> rest{of.then.scale == nullptr ? nullptr : of.then.scale + r,
                            of.shift == nullptr ? nullptr : of.shift + r, of.then.function};
    const bool whole = layout.pitch == wide && p.unit_step() && wide == p.to[2];
    const dim_t length = whole ? used * wide : wide;
    for (dim_t row = 0; row < (whole ? 1 : used); ++row) {
      const dim_t at = image * p.result_image + r * plane + p.result_at(z, y + row, x);
      T* const to = p.unit_step() ? of.result + at : turned;
      const dim_t step = p.unit_step() ? plane : columns;
      tiles.place_across(results, length, across + row * layout.pitch * lanes, lanes,
                         of.bias == nullptr ? nullptr : of.bias + r, relu, to, step);
      if (!p.unit_step())
        tiles.place_rows(results, length, turned, columns, of.result + at, plane, p.step[2]);
      if (of.finishes())
        tiles.finish_rows(results, length, to, plane, rest,
                          of.then.residual == nullptr ? nullptr : of.then.residual + at);
    }
  }
};

}  // namespace ikebana::cpu::detail
