#pragma once

#include <cstdint>

#include "ikebana/core/shape.hpp"
#include "ikebana/cpu/conv/band_plan.hpp"
#include "ikebana/cpu/conv/tiles.hpp"
#include "ikebana/cpu/detail/scratch.hpp"

namespace ikebana::cpu::detail {

/// A thread's scratch as a plan divides it, and where elements lie in it.
template <class T>
struct conv_buffers {
  const band_plan<T>& plan;
  T *copy, *out, *tail, *panel;
  std::int32_t *image_at, *weight_at, *steps;

  explicit conv_buffers(const band_plan<T>& of) : plan{of} {
    copy = thread_scratch<T>();
    out = copy + plan.copy_size();
    tail = out + plan.out_size();
    panel = tail + plan.tail_size();
    image_at = reinterpret_cast<std::int32_t*>(thread_lists());
    weight_at = image_at + plan.offsets_size();
    steps = weight_at + plan.offsets_size();
    find_offsets();
  }

  void find_offsets() const {
    const conv_pass& pass = plan.p;
    dim_t i = 0;
    for (dim_t kz = 0; kz < pass.kernel[0]; ++kz)
      for (dim_t ky = 0; ky < pass.kernel[1]; ++ky)
        for (dim_t kx = 0; kx < pass.kernel[2]; ++kx, ++i) {
          image_at[i] = static_cast<std::int32_t>(plan.layout.offset(kz, ky, kx));
          weight_at[i] = static_cast<std::int32_t>(
              kz * pass.weight_tap[0] + ky * pass.weight_tap[1] + kx * pass.weight_tap[2]);
        }
    for (; i < plan.channels * plan.taps; ++i) {
      image_at[i] = image_at[i - plan.taps] + static_cast<std::int32_t>(plan.layout.channel);
      weight_at[i] = weight_at[i - plan.taps] + static_cast<std::int32_t>(pass.weight_source);
    }
    if (!plan.panel) return;
    for (dim_t s = 0; s < 512; ++s) steps[s] = static_cast<std::int32_t>(s * plan.tile);
  }

  /// Where positions [at, at + count) of a band lie in its copy.
  dim_t find_moves(conv_move* moves, dim_t to_tile, dim_t at, dim_t count, dim_t band_rows,
                   dim_t wide) const {
    const dim_t w = plan.tiles.width;
    const dim_t slot_size = band_rows * wide, length = plan.layout.pitch == wide ? slot_size : wide;
    dim_t n = 0;
    for (dim_t to = 0; to < count;) {
      const dim_t slot = (at + to) / slot_size, in_slot = (at + to) % slot_size;
      const dim_t row = in_slot / length, column = in_slot % length;
      const dim_t run = length - column < count - to ? length - column : count - to;
      const dim_t from =
          slot * plan.layout.channel * plan.channels + row * plan.layout.pitch + column;
      for (dim_t i = 0; i < run; i += w) {
        dim_t lanes = plan.in_place && run - i < w ? run - i : w;
        if (to + i + lanes > to_tile) lanes = to_tile - to - i;
        moves[n++] = {static_cast<std::int32_t>(from + i), static_cast<std::int32_t>(to + i),
                      static_cast<std::int32_t>(lanes)};
      }
      to += run;
    }
    return n;
  }
};

}  // namespace ikebana::cpu::detail
