#pragma once

#include <array>
#include <cstddef>

#include "ikebana/core/shape.hpp"
#include "ikebana/cpu/conv/depthwise_kernels.hpp"
#include "ikebana/cpu/conv_geometry.hpp"
#include "ikebana/cpu/detail/scratch.hpp"
#include "ikebana/cpu/parallel.hpp"

// Depthwise convolutions of stride 1 straight from the source, where partial
// loads are cheap.
namespace ikebana::cpu::detail {

/// How many planes of so many multiply-adds are worth a thread's while.
constexpr dim_t planes_worth(dim_t multiply_adds) { return 1 + 300000 / (multiply_adds + 1); }

/// Whether planes of this geometry need no copy, where partial loads are cheap.
template <class T>
bool may_sweep(const depthwise_kernels<T>& kernels, const conv_geometry& g) {
  return kernels.find_masks != nullptr && g.kernel[0] == 1 && g.in[0] == 1 && g.out[0] == 1 &&
         g.in_channels == g.groups && g.out_channels == g.groups && g.stride[1] == 1 &&
         g.stride[2] == 1 && g.padding[0] == 0;
}
/// Room in the scratch for tables of kernel columns, and masks for rows of
/// `width`.
template <class T>
bool fits_sweep(const depthwise_kernels<T>& kernels, const conv_geometry& g, dim_t width) {
  const dim_t lanes = rounded_up(width, kernels.width);
  return (lanes * static_cast<dim_t>(sizeof(T)) + 64) * g.kernel[2] <=
             static_cast<dim_t>(packed_b_bytes) &&
         2 * g.kernel[2] * static_cast<dim_t>(sizeof(dim_t)) <=
             static_cast<dim_t>(packed_a_bytes) / 2;
}

/// A depthwise convolution of stride 1 whose planes are not copied. As
/// convolve_by_channel.
template <class T>
bool sweep_channels(const depthwise_kernels<T>& kernels, const conv_geometry& g, bool backward,
                    const T* source, const T* w, const T* bias, bool relu, T* result) {
  const auto* shape = kernels.sweeps;
  const auto* const end = shape + sizeof kernels.sweeps / sizeof *shape;
  while (shape != end && shape->kernel != g.kernel[1]) ++shape;
  if (shape == end || !may_sweep(kernels, g) ||
      !fits_sweep(kernels, g, backward ? g.in[2] : g.out[2]))
    return false;
  const std::array<dim_t, 3>&from = backward ? g.out : g.in, &to = backward ? g.in : g.out;
  const dim_t across = g.kernel[2], down = g.kernel[1], dilation = g.dilation[1];
  dim_t* const columns = reinterpret_cast<dim_t*>(thread_scratch() + packed_b_bytes);
  dim_t* const column_weights = columns + across;
  for (dim_t k = 0; k < across; ++k) {
    columns[k] =
        k * g.dilation[2] - (backward ? (across - 1) * g.dilation[2] - g.padding[2] : g.padding[2]);
    column_weights[k] = backward ? across - 1 - k : k;
  }
  kernels.find_masks(to[2], from[2], across, columns, thread_scratch());
  const dim_t padding = backward ? (down - 1) * dilation - g.padding[1] : g.padding[1];
  depthwise_sweep<T> first{};
  first.row_step = dilation * from[2];
  first.kernel_columns = across;
  first.columns = columns;
  first.column_weights = column_weights;
  first.masks = thread_scratch();
  first.weight_step = backward ? -across : across;
  first.relu = relu;
  first.out_step = dilation * to[2];
  first.length = to[2];
  const dim_t plane = from[1] * from[2], out_plane = to[1] * to[2];
  parallel_for(
      0, g.batch * g.groups, planes_worth(out_plane * across * down), [&](dim_t b, dim_t e) {
        depthwise_sweep<T> job = first;
        for (; b < e; ++b) {
          const dim_t c = b % g.groups;
          const T* const from_plane = source + b * plane;
          T* const to_plane = result + b * out_plane;
          job.weights = w + c * across * down + (backward ? across * (down - 1) : 0);
          job.start = bias != nullptr ? bias[c] : T(0);
          // Rows of one remainder by the dilation see each other's.
          for (dim_t a = 0; a < dilation && a < to[1]; ++a) {
            const dim_t all = dilation == 1 ? to[1] : (to[1] - a + dilation - 1) / dilation;
            for (dim_t t = 0; t < all;) {
              const bool few = all - t <= 4;
              const dim_t most = few ? 4 : 8, top = a + t * dilation - padding;
              job.rows = all - t < most ? all - t : most;
              job.image = from_plane + top * from[2];
              if (dilation == 1) {
                job.first_row = -top;
                job.last_row = from[1] - top;
              } else {
                job.first_row = top >= 0 ? 0 : (-top + dilation - 1) / dilation;
                job.last_row = from[1] <= top ? 0 : (from[1] - top + dilation - 1) / dilation;
              }
              job.out = to_plane + (a + t * dilation) * to[2];
              (few ? shape->four : shape->eight)(job);
              t += job.rows;
            }
          }
        }
      });
  return true;
}

/// The gradient of the weights, of planes that are not copied. As
/// convolve_weights_by_channel.
template <class T>
bool sweep_weights(const depthwise_kernels<T>& kernels, const conv_geometry& g, const T* x,
                   const T* dy, T* dw, bool accumulate) {
  const auto* shape = kernels.gradients;
  const auto* const end = shape + sizeof kernels.gradients / sizeof *shape;
  while (shape != end && shape->kernel != g.kernel[1]) ++shape;
  const dim_t taps = g.kernel[1] * g.kernel[2], width = kernels.width;
  const dim_t sums_size = rounded_up(taps, width) * width;
  if (shape == end || !may_sweep(kernels, g) || g.dilation[1] != 1 ||
      !fits_sweep(kernels, g, g.out[2]) ||
      sums_size * static_cast<dim_t>(sizeof(T)) > static_cast<dim_t>(packed_a_bytes) / 2)
    return false;
  dim_t* const columns = reinterpret_cast<dim_t*>(thread_scratch() + packed_b_bytes);
  for (dim_t k = 0; k < g.kernel[2]; ++k) columns[k] = k * g.dilation[2] - g.padding[2];
  kernels.find_masks(g.out[2], g.in[2], g.kernel[2], columns, thread_scratch());
  depthwise_gradient<T> first{};
  first.dy_step = g.out[2];
  first.row_step = g.in[2];
  first.padding = g.padding[1];
  first.height = g.in[1];
  first.rows = g.out[1];
  first.length = g.out[2];
  first.kernel_columns = g.kernel[2];
  first.columns = columns;
  first.masks = thread_scratch();
  const dim_t plane = g.in[1] * g.in[2], out_plane = g.out[1] * g.out[2];
  parallel_for(0, g.groups, planes_worth(g.batch * out_plane * taps), [&](dim_t c, dim_t e) {
    depthwise_gradient<T> job = first;
    T* const sums = reinterpret_cast<T*>(thread_scratch() + packed_b_bytes + packed_a_bytes / 2);
    job.sums = sums;
    for (; c < e; ++c) {
      for (dim_t i = 0; i < sums_size; ++i) sums[i] = T(0);
      for (dim_t image = 0; image < g.batch; ++image) {
        job.dy = dy + (image * g.groups + c) * out_plane;
        job.image = x + (image * g.groups + c) * plane - g.padding[1] * g.in[2];
        shape->sweep(job);
      }
      kernels.add_sums(taps, sums, dw + c * taps, accumulate);
    }
  });
  return true;
}

}  // namespace ikebana::cpu::detail
