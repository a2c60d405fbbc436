#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "ikebana/core/shape.hpp"
#include "ikebana/cpu/conv_layout.hpp"
#include "ikebana/cpu/conv_pass.hpp"
#include "ikebana/cpu/conv_tiles.hpp"
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
  const T *source, *weights, *bias;
  T* result;
  conv_epilogue<T> then;
  const T* shift;  // where `then` scales

  dim_t taps = 0, columns = 0, rows = 0, channels = 0, depth = 0, positions = 0;
  conv_layout layout{};
  T *copy = nullptr, *packed = nullptr, *across = nullptr, *turned = nullptr;
  std::int32_t* image_at = nullptr;

  static dim_t even_part(dim_t n, dim_t most) { return conv_plan<T>::even_part(n, most); }
  static dim_t least(dim_t a, dim_t b) { return a < b ? a : b; }
  bool unit_step() const { return p.step[0] == 1 && p.step[1] == 1 && p.step[2] == 1; }

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
    if (tiles.lanes[0].whole == nullptr || p.results < 2 * tiles.width) return false;
    const dim_t most_depth = most_weights / (shape(p.results).registers * tiles.width);
    if (taps > most_depth) return false;
    channels = even_part(p.sources, most_depth / taps);
    depth = channels * taps;
    columns = even_part(p.to[2], most_positions / 2);
    const auto lay_out = [&](dim_t n) { layout = conv_layout{p, columns, n, false, false, line}; };
    lay_out(1);
    rows = even_part(p.to[1], most_positions / layout.pitch);
    lay_out(rows);
    while (layout.channel * channels > conv_plan<T>::most_copied) {
      if (rows == 1) return false;
      rows = (rows + 1) / 2;
      lay_out(rows);
    }
    positions = (rows - 1) * layout.pitch + columns;
    if (!pays()) return false;
    const dim_t lanes = tiles.lanes[0].registers * tiles.width;
    T* at = reinterpret_cast<T*>(thread_scratch());
    const T* const end = at + conv_plan<T>::total;
    const auto take = [&](dim_t n) {
      T* const part = at;
      at += (n + line - 1) / line * line;
      return part;
    };
    copy = take(layout.channel * channels + 2 * conv_tiles<T>::most_rows + 2 * line);
    packed = take(depth * lanes + line);
    across = take((positions + conv_tiles<T>::most_rows) * lanes);
    turned = take(unit_step() ? 0 : lanes * columns);
    image_at = reinterpret_cast<std::int32_t*>(take(depth));
    return at <= end;
  }

  /// Against packing panels, in parts of the products' time.
  bool pays() const {
    const auto real = [](dim_t n) { return static_cast<double>(n); };
    const double gaps = real(layout.pitch) / real(columns) - 1;
    const double packing = 16 / real(positions), turning = 10 / (real(p.sources) * real(taps));
    return waste() * (1 + gaps) + packing + turning + 0.03 < 1 + 8 / real(p.results);
  }

  void run() const {
    for (dim_t x = 0; x < p.to[2]; x += columns) {
      const dim_t wide = least(p.to[2] - x, columns);
      dim_t i = 0;
      for (dim_t c = 0; c < channels; ++c)
        for (dim_t kz = 0; kz < p.kernel[0]; ++kz)
          for (dim_t ky = 0; ky < p.kernel[1]; ++ky)
            for (dim_t kx = 0; kx < p.kernel[2]; ++kx)
              image_at[i++] =
                  static_cast<std::int32_t>(c * layout.channel + layout.offset(kz, ky, kx));
      for (dim_t r = 0; r < p.results;) {
        const auto& s = shape(p.results - r);
        const dim_t lanes = s.registers * tiles.width;
        for (dim_t slot = 0; slot < p.batch * p.to[0]; ++slot)
          for (dim_t y = 0; y < p.to[1]; y += rows)
            band(s, r, least(p.results - r, lanes), slot / p.to[0], slot % p.to[0], y, x, wide);
        r += lanes;
      }
    }
  }

  void band(const typename conv_tiles<T>::slide_shape& s, dim_t r, dim_t results, dim_t image,
            dim_t z, dim_t y, dim_t x, dim_t wide) const {
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
      layout.copy(tiles, p, some, source + image * p.source_image + c * from_plane, z, y, x, copy);
      pack_weights(r, results, c, some, lanes);
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

  void pack_weights(dim_t r, dim_t results, dim_t c, dim_t some, dim_t lanes) const {
    const T* const from = weights + p.weight_first + r * p.weight_result + c * p.weight_source;
    const bool along = p.weight_tap[2] == 1 && p.weight_tap[1] == p.kernel[2] &&
                       p.weight_tap[0] == p.kernel[1] * p.kernel[2] && p.weight_source == taps;
    if (along) return tiles.pack_across(packed, lanes, from, p.weight_result, some * taps, results);
    T* to = packed;
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
    const bool more = then.residual != nullptr || then.scale != nullptr;
    const bool relu = !more && then.function == activation::relu;
    const conv_rest<T> rest{then.scale == nullptr ? nullptr : then.scale + r,
                            shift == nullptr ? nullptr : shift + r, then.function};
    const bool whole = layout.pitch == wide && unit_step() && wide == p.to[2];
    const dim_t length = whole ? used * wide : wide;
    for (dim_t row = 0; row < (whole ? 1 : used); ++row) {
      const dim_t at = image * p.result_image + r * plane + p.result_at(z, y + row, x);
      T* const to = unit_step() ? result + at : turned;
      const dim_t step = unit_step() ? plane : columns;
      tiles.place_across(results, length, across + row * layout.pitch * lanes, lanes,
                         bias == nullptr ? nullptr : bias + r, relu, to, step);
      if (!unit_step())
        tiles.place_rows(results, length, turned, columns, result + at, plane, p.step[2]);
      if (more || (then.function != activation::none && !relu))
        tiles.finish_rows(results, length, to, plane, rest,
                          then.residual == nullptr ? nullptr : then.residual + at);
    }
  }
};

/// One group's results, all of `then` included (which is of forward alone).
template <class T>
void run_pass(const conv_tiles<T>& tiles, const conv_pass& p, const T* source, const T* w,
              const T* bias, T* result, const conv_epilogue<T>& then) {
  // What is scaled is added to later.
  const T* const shift = then.scale == nullptr ? nullptr : bias;
  if (then.scale != nullptr) bias = nullptr;
  if (p.batch == 0 || p.results == 0 || conv_geometry::volume(p.to) <= 0) return;
  if (p.sources > 0 && p.taps() > 0 && conv_geometry::volume(p.from) > 0) {
    if (lanes_run<T> lanes{tiles, p, source, w, bias, result, then, shift}; lanes.fit())
      return lanes.run();
    if (conv_plan<T> plan{tiles, p}; plan.fit())
      return conv_run<T>{plan, source, w, bias, result, then, shift}.run();
  }
  pass_plainly(p, source, w, bias, result);
  for (dim_t b = 0; b < p.batch; ++b)
    if (const dim_t at = b * p.result_image;
        then.function != activation::none || then.residual != nullptr || then.scale != nullptr)
      tiles.finish_rows(p.results, p.result_plane(), result + at, p.result_plane(),
                        {then.scale, shift, then.function},
                        then.residual == nullptr ? nullptr : then.residual + at);
}

}  // namespace ikebana::cpu::detail
