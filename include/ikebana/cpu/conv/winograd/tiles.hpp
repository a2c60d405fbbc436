#pragma once

#include <array>
#include <cstddef>
#include <type_traits>
#include <utility>

#include "ikebana/core/shape.hpp"
#include "ikebana/cpu/conv/costs.hpp"
#include "ikebana/cpu/conv/pass.hpp"
#include "ikebana/cpu/conv/tiles.hpp"
#include "ikebana/cpu/detail/quotients.hpp"
#include "ikebana/cpu/detail/strided.hpp"
#include "ikebana/cpu/dispatch.hpp"
#include "ikebana/cpu/gemm.hpp"

namespace ikebana::cpu::detail {

/// A row of tiles of a channel: six rows of the source, `length` elements that
/// go to the buffer's six rows of `pitch` from `lead` on. What stands around
/// them there is not written. Position p of tile t goes to to[p * position_step
/// + t].
template <class T>
struct winograd_input {
  dim_t tiles;
  const T* rows[6];
  dim_t lead, length;
  T *buffer, *to;
  dim_t pitch, position_step;
};

/// to[p, r, i] = (adds ? the same : 0) + the sum over s < depth of source[p, r, s] *
/// weights[p, s, i].
template <class T>
struct winograd_product {
  dim_t rows, depth, width;
  const T* source;
  dim_t source_position, source_row, source_step;
  const T* weights;
  dim_t weight_position;
  T* to;
  dim_t to_position;
  bool adds;
};

template <class T>
struct winograd_kernels {
  dim_t width;      // of a register
  dim_t registers;  // of results, at once
  void (*take)(const winograd_input<T>&);
  void (*weigh)(dim_t sources, dim_t width, bool turned, const T* from, T* to, dim_t position_step);
  void (*multiply)(const winograd_product<T>&);
  void (*put)(dim_t tiles, dim_t width, const T* from, dim_t position_step, T* to);
  // The transposes of the last, for a register of results, and of `weigh`.
  void (*spread)(dim_t tiles, const T* from, T* to, dim_t tile_step, dim_t position_step);
  void (*gather)(dim_t sources, dim_t width, const T* from, dim_t position_step, T* to, bool adds);
};

/// A 3x3 pass as tiles of 4x4 results, which meet 6x6 elements of the source each: rows of them, or
/// parts of rows, are carried over some at a time.
template <class T>
struct winograd_tiles {
  static constexpr dim_t positions = 36, most_units = 64;

  const winograd_kernels<T>& kernels;
  const conv_tiles<T>& tiles;
  const conv_pass& p;
  const T* source;

  dim_t across = 0, down = 0;       // tiles of an image
  dim_t segment = 0, segments = 0;  // of a row of tiles
  dim_t block = 0;                  // segments at once
  T *taken = nullptr, *buffer = nullptr, *zeros = nullptr;

  dim_t units() const { return p.batch * down * segments; }
  dim_t pitch() const { return (parts(segment, kernels.width) + 1) * 4 * kernels.width; }

  /// A row of tiles, or a part of one: where it begins in the result, and what
  /// it reads.
  struct unit {
    dim_t tiles, y, x, result, source, lead, length;
  };
  unit find_unit(dim_t i) const {
    const dim_t s = i % segments, row = i / segments, image = row / down;
    unit u{};
    u.tiles = least(segment, across - s * segment);
    u.y = 4 * (row % down);
    u.x = 4 * s * segment;
    u.result = image * p.result_image + p.result_at(0, u.y, u.x);
    const dim_t left = u.x - p.padding[2], begin = left < 0 ? 0 : left,
                end = least(left + 4 * u.tiles + 2, p.from[2]);
    u.source = image * p.source_image + (u.y - p.padding[1]) * p.from[2] + begin;
    u.lead = begin - left;
    u.length = end > begin ? end - begin : 0;
    return u;
  }
  /// Fills in the units from b to e. Returns how many tiles they have.
  dim_t find_units(dim_t b, dim_t e, unit* units) const {
    dim_t n = 0;
    for (; b < e; ++b, ++units) {
      *units = find_unit(b);
      n += units->tiles;
    }
    return n;
  }

  /// Carries over `channels` of some units from c on.
  void take(const unit* units, dim_t count, dim_t c, dim_t channels, dim_t channel_step,
            dim_t position_step) const {
    const dim_t plane = p.from[1] * p.from[2], row = pitch();
    winograd_input<T> job{};
    job.buffer = buffer;
    job.pitch = row;
    job.position_step = position_step;
    job.lead = -1;
    for (dim_t i = 0; i < channels; ++i) {
      job.to = taken + i * channel_step;
      for (const unit* u = units; u < units + count; ++u) {
        if (u->lead != job.lead || u->length != job.length) {
          tiles.clear(buffer, 6 * row);
          job.lead = u->lead;
          job.length = u->length;
        }
        const T* const from = source + u->source + (c + i) * plane;
        const dim_t top = u->y - p.padding[1];
        for (dim_t y = 0; y < 6; ++y)
          job.rows[y] = top + y >= 0 && top + y < p.from[1] ? from + y * p.from[2] : zeros;
        job.tiles = u->tiles;
        // Of the next channel, which the processor does not foresee.
        for (dim_t at = 0; at < 4 * p.from[2]; at += conv_costs::line_bytes / dim_t{sizeof(T)})
          __builtin_prefetch(from + plane + at);
        kernels.take(job);
        job.to += u->tiles;
      }
    }
  }
};

}  // namespace ikebana::cpu::detail

#define IKEBANA_CPU_BODY "ikebana/cpu/conv/winograd-inl.hpp"
#include "ikebana/cpu/detail/foreach_target.hpp"
