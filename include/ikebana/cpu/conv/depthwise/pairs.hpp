#pragma once

#include <algorithm>
#include <array>
#include <cstddef>

#include "ikebana/core/shape.hpp"
#include "ikebana/cpu/conv/depthwise/kernels.hpp"
#include "ikebana/cpu/conv/depthwise/sweep.hpp"
#include "ikebana/cpu/conv_geometry.hpp"
#include "ikebana/cpu/detail/scratch.hpp"
#include "ikebana/cpu/parallel.hpp"

// Depthwise convolutions of stride 2 straight from the source, where partial loads are cheap.
namespace ikebana::cpu::detail {

/// Whether planes of this geometry need no copy, and masks and a row find room in the lists.
template <class T>
bool may_sweep_pairs(const depthwise_kernels<T>& kernels, const conv_geometry& g) {
  const dim_t wide = rounded_up(g.in[2], kernels.width);
  return kernels.find_pair_masks != nullptr && g.kernel[0] == 1 && g.in[0] == 1 && g.out[0] == 1 &&
         g.in_channels == g.groups && g.out_channels == g.groups && g.stride[1] == 2 &&
         g.stride[2] == 2 && g.dilation[1] == 1 && g.dilation[2] == 1 && g.padding[0] == 0 &&
         wide * (g.kernel[2] + 2) * static_cast<dim_t>(sizeof(T)) <=
             static_cast<dim_t>(list_bytes) &&
         g.kernel[2] <= 64;
}

/// Tables for the weights' gradient. False where they find no room.
template <class T>
bool fit_pairs(const depthwise_kernels<T>& kernels, const conv_geometry& g,
               sweep_tables<T>& tables) {
  if (!may_sweep_pairs(kernels, g) ||
      !tables.fit(g, kernels.width, g.out[2], 2, -g.padding[2], g.kernel[2] - g.padding[2]))
    return false;
  kernels.find_pair_masks(g.out[2], g.in[2], g.padding[2], g.kernel[2], tables.masks);
  return true;
}

template <class T>
bool sweep_pairs_weights(const depthwise_kernels<T>& kernels, const conv_geometry& g, const T* x,
                         const T* dy, T* dw, bool accumulate) {
  const auto* const shape = shape_of_kernel(kernels.pairs, g.kernel[1]);
  sweep_tables<T> tables;
  if (shape == nullptr || !fit_pairs(kernels, g, tables)) return false;
  return sum_gradients(kernels, g, tables, shape->sweep, x, dy, dw, accumulate);
}

/// The kernel elements along dimension d that positions of remainder a meet: every second from
/// `first` on; the i-th of them meets output position t + shift - i at position 2 t + a.
struct pair_taps {
  dim_t first, count, shift;
};
inline pair_taps taps_of_remainder(const conv_geometry& g, std::size_t d, dim_t a) {
  const dim_t first = (a + g.padding[d]) % 2;
  return {first, first < g.kernel[d] ? (g.kernel[d] - first + 1) / 2 : 0,
          (a + g.padding[d] - first) / 2};
}

template <class T>
bool sweep_pairs_backward(const depthwise_kernels<T>& kernels, const conv_geometry& g, const T* dy,
                          const T* w, const T* bias, T* dx) {
  constexpr dim_t most_rows = depthwise_spread<T>::most_rows,
                  most_taps = depthwise_spread<T>::most_taps;
  if (!may_sweep_pairs(kernels, g) || g.kernel[1] > 2 * most_taps || g.kernel[2] > 2 * most_taps)
    return false;
  // Of large kernels, channels side by side take less time, if they fill their registers.
  constexpr dim_t many_taps = 22;
  if (g.kernel[1] * g.kernel[2] * g.groups >= many_taps * rounded_up(g.groups, kernels.width))
    return false;
  const dim_t half = (g.in[2] + 1) / 2, lanes = rounded_up(half, kernels.width);
  dim_t columns[2][most_taps];
  std::byte* at = thread_lists();
  T* const zeros = reinterpret_cast<T*>(at);
  std::fill(zeros, zeros + rounded_up(g.out[2], 64), T(0));
  at += static_cast<dim_t>(sizeof(T)) * rounded_up(g.out[2], 64);
  depthwise_spread<T> first{};
  for (dim_t b = 0; b < 2; ++b) {
    const pair_taps t = taps_of_remainder(g, 2, b);
    for (dim_t i = 0; i < t.count; ++i) columns[b][i] = t.shift - i;
    first.columns[b] = {t.count, columns[b], at, w + t.first};
    kernels.find_masks(half, g.out[2], t.count, columns[b], at);
    at += lanes * t.count * static_cast<dim_t>(sizeof(T));
  }
  first.weight_step = 2 * g.kernel[2];
  first.out_step = 2 * g.in[2];
  first.length = g.in[2];
  const dim_t plane = g.in[1] * g.in[2], out_plane = g.out[1] * g.out[2],
              taps = g.kernel[1] * g.kernel[2];
  parallel_for(0, g.batch * g.groups, planes_worth(out_plane * taps), [&](dim_t n, dim_t e) {
    depthwise_spread<T> job = first;
    for (; n < e; ++n) {
      const dim_t c = n % g.groups;
      job.start = bias != nullptr ? bias[c] : T(0);
      for (dim_t a = 0; a < 2 && a < g.in[1]; ++a) {
        const pair_taps t = taps_of_remainder(g, 1, a);
        const dim_t all = (g.in[1] - a + 1) / 2;
        job.row_taps = t.count;
        for (dim_t b = 0; b < 2; ++b)
          job.columns[b].weights = first.columns[b].weights + c * taps + t.first * g.kernel[2];
        for (dim_t y = 0; y < all; y += most_rows) {
          for (dim_t i = 0; i < most_rows + t.count - 1; ++i) {
            const dim_t row = y + t.shift - (t.count - 1) + i;
            job.rows[i] = row >= 0 && row < g.out[1] ? dy + n * out_plane + row * g.out[2] : zeros;
          }
          job.count = std::min(all - y, most_rows);
          job.out = dx + n * plane + (2 * y + a) * g.in[2];
          kernels.spread_pairs(job);
        }
      }
    }
  });
  return true;
}

}  // namespace ikebana::cpu::detail
