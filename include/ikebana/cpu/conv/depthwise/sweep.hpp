#pragma once

#include <algorithm>
#include <array>
#include <cstddef>

#include "ikebana/core/shape.hpp"
#include "ikebana/cpu/conv/depthwise/kernels.hpp"
#include "ikebana/cpu/conv_geometry.hpp"
#include "ikebana/cpu/detail/quotients.hpp"
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
/// What a sweep keeps among the calling thread's lists: kernel columns, and masks behind them.
template <class T>
struct sweep_tables {
  dim_t *columns, *column_weights;
  void* masks;
  dim_t first, last;  // columns met, the registers' whole width

  /// False where there is no room. Registers of results begin every `width` up to `length`, and
  /// meet `stride` times as many columns of a source from `low` up to `high` on.
  bool fit(const conv_geometry& g, dim_t width, dim_t length, dim_t stride, dim_t low, dim_t high) {
    constexpr auto size = static_cast<dim_t>(sizeof(T));
    const dim_t lanes = rounded_up(length, width),
                of_masks = (lanes * size + 64) * (g.kernel[2] + 1);
    first = low;
    last = high + stride * lanes;
    const dim_t of_columns = rounded_up(2 * g.kernel[2] * static_cast<dim_t>(sizeof(dim_t)), 64);
    if (of_columns + 2 * of_masks > static_cast<dim_t>(list_bytes)) return false;
    std::byte* at = thread_lists();
    columns = reinterpret_cast<dim_t*>(at);
    column_weights = columns + g.kernel[2];
    masks = at + of_columns;
    return true;
  }
  /// Whether registers may not read beside the rows of this plane, which are of `width`, in an
  /// array of `count` planes.
  bool ends_array(dim_t plane, dim_t count, dim_t plane_size, dim_t width) const {
    return plane * plane_size + first < 0 ||
           (plane + 1) * plane_size - width + last > count * plane_size;
  }
};

/// Copies of rows at an end of an array, beside which registers may read.
template <class T>
struct row_copies {
  dim_t before, room;
  T* to;

  explicit row_copies(const sweep_tables<T>& tables,
                      monotonic_scratch scratch = monotonic_scratch::of<T>())
      : before{rounded_up(std::max(-tables.first, dim_t{0}), 16)},
        room{static_cast<dim_t>((packed_a_bytes + packed_b_bytes - scratch.used()) / sizeof(T)) -
             before - std::max(tables.last, dim_t{0})},
        to{scratch.allocate<T>(before + std::max(room, dim_t{0})) + before} {}
};

template <class Shape, std::size_t N>
const Shape* shape_of_kernel(const Shape (&shapes)[N], dim_t kernel) {
  for (const Shape& s : shapes)
    if (s.kernel == kernel && s.kernel != 0) return &s;
  return nullptr;
}

/// A depthwise convolution of stride 1 whose planes are not copied. As
/// convolve_by_channel.
template <class T>
bool sweep_channels(const depthwise_kernels<T>& kernels, const conv_geometry& g, bool backward,
                    const T* source, const T* w, const T* bias, bool relu, T* result) {
  const auto* const shape = shape_of_kernel(kernels.sweeps, g.kernel[1]);
  const std::array<dim_t, 3>&from = backward ? g.out : g.in, &to = backward ? g.in : g.out;
  if (shape == nullptr || !may_sweep(kernels, g)) return false;
  const dim_t across = g.kernel[2], down = g.kernel[1], dilation = g.dilation[1],
              reach = (across - 1) * g.dilation[2],
              left = backward ? reach - g.padding[2] : g.padding[2];
  const dim_t padding = backward ? (down - 1) * dilation - g.padding[1] : g.padding[1];
  // Rows should fill registers.
  if (2 * to[2] <= kernels.width || padding > (down - 1) * dilation) return false;
  sweep_tables<T> tables;
  if (!tables.fit(g, kernels.width, to[2], 1, -left, reach - left)) return false;
  if (kernels.reads_beside &&
      row_copies<T>{tables}.room < (depthwise_sweep<T>::most_rows + down - 1) * from[2])
    return false;
  for (dim_t k = 0; k < across; ++k) {
    tables.columns[k] = k * g.dilation[2] - left;
    tables.column_weights[k] = backward ? across - 1 - k : k;
  }
  kernels.find_masks(to[2], from[2], across, tables.columns, tables.masks);
  const dim_t plane = from[1] * from[2], out_plane = to[1] * to[2], planes = g.batch * g.groups;
  depthwise_sweep<T> first{};
  first.kernel_columns = across;
  first.columns = tables.columns;
  first.column_weights = tables.column_weights;
  first.masks = tables.masks;
  first.weight_step = backward ? -across : across;
  first.relu = relu;
  first.out_step = dilation * to[2];
  first.length = to[2];
  first.row_step = dilation * from[2];
  parallel_for(0, planes, planes_worth(out_plane * across * down), [&](dim_t b, dim_t e) {
    constexpr dim_t most = depthwise_sweep<T>::most_rows;
    depthwise_sweep<T> job = first;
    const row_copies<T> copies{tables};
    const auto dilated = [=](dim_t n) { return dilation == 1 ? n : parts(n, dilation); };
    const auto ends_array = [&](dim_t i) { return tables.ends_array(i, planes, plane, from[2]); };
    for (; b < e; ++b) {
      const dim_t c = b % g.groups;
      const T* const from_plane = source + b * plane;
      const bool copied = kernels.reads_beside && ends_array(b);
      job.row_step = copied ? from[2] : first.row_step;
      job.start = bias != nullptr ? bias[c] : T(0);
      job.weights = w + c * across * down + (backward ? across * (down - 1) : 0);
      for (dim_t a = 0; a < dilation && a < to[1]; ++a) {
        const dim_t all = dilated(to[1] - a);
        for (dim_t t = 0; t < all; t += job.rows) {
          job.rows = least(all - t, most);
          const dim_t row = a + t * dilation - padding;
          job.top = from_plane + row * from[2];
          job.first_met = row < 0 ? dilated(-row) : 0;
          job.last_met = row < from[1] ? least(dilated(from[1] - row), most + down - 1) : 0;
          if (copied) {
            job.top = copies.to;
            for (dim_t i = job.first_met; i < job.last_met; ++i) {
              const T* const met = from_plane + (row + i * dilation) * from[2];
              std::copy(met, met + from[2], copies.to + i * from[2]);
            }
          }
          job.out = result + b * out_plane + (a + t * dilation) * to[2];
          const bool inside = job.first_met == 0 && job.last_met == most + down - 1;
          (inside ? shape->inside : shape->some)(job);
        }
      }
    }
  });
  return true;
}

}  // namespace ikebana::cpu::detail
