#pragma once

#include <algorithm>
#include <cstddef>

#include "ikebana/core/shape.hpp"
#include "ikebana/cpu/conv/depthwise/bands.hpp"
#include "ikebana/cpu/conv/depthwise/kernels.hpp"
#include "ikebana/cpu/conv/depthwise/sweep.hpp"
#include "ikebana/cpu/conv_geometry.hpp"
#include "ikebana/cpu/detail/quotients.hpp"
#include "ikebana/cpu/detail/scratch.hpp"
#include "ikebana/cpu/parallel.hpp"

// Depthwise convolutions of stride 1 with kernels of one row, or of one column, which are of one
// row where a plane is one: of any length and dilation.
namespace ikebana::cpu::detail {

template <class T>
struct row_sweep {
  const depthwise_kernels<T>& kernels;
  dim_t channels, batch, rows, width;
  bool fits;
  depthwise_row<T> job{};

  row_sweep(const depthwise_kernels<T>& k, const conv_geometry& g, lanes_of direction)
      : kernels{k}, channels{g.groups}, batch{g.batch}, rows{g.in[1]} {
    const bool backward = direction == lanes_of::backward_data,
               weights = direction == lanes_of::backward_weights;
    const auto &from = backward ? g.out : g.in, &to = backward ? g.in : g.out;
    const bool is_column = g.kernel[2] == 1 && g.padding[2] == 0 && g.in[2] == g.out[2],
               is_row = g.kernel[1] == 1 && g.padding[1] == 0 && g.in[1] == g.out[1];
    const std::size_t along = is_row ? 2 : 1;
    const dim_t columns = is_row ? 1 : g.in[2];
    if (!is_row) rows = 1;
    width = from[along] * columns;
    job.length = to[along] * columns;
    job.taps = g.kernel[along];
    job.step = g.dilation[along] * columns;
    const dim_t reach = (job.taps - 1) * job.step, padding = g.padding[along] * columns;
    job.left = backward ? reach - padding : padding;
    job.turned = backward;
    fits = (k.convolve_row != nullptr || k.row_gradients != nullptr) && (is_row || is_column) &&
           g.kernel[0] == 1 && g.in[0] == 1 && g.out[0] == 1 && g.padding[0] == 0 &&
           g.in_channels == channels && g.out_channels == channels && g.stride[1] == 1 &&
           g.stride[2] == 1;
    job.width = width;
    fits = fits && 2 * job.length > k.width && pays(reach, weights ? least_of_weights() : 16) &&
           fit_sums() && fit(width - reach + job.left);
  }
  /// Whether, with so many `results` for each tap, channels as lanes, which have no ends to mask,
  /// are not faster.
  bool pays(dim_t reach, dim_t results) const {
    return are_few() ||
           (job.taps <= 16 && results * job.taps <= job.length && 2 * reach <= job.length);
  }
  dim_t least_of_weights() const {
    if (job.taps <= 3) return kernels.reads_beside ? 16 : 12;
    return kernels.reads_beside ? 32 : job.taps <= 5 ? 12 : 28;
  }
  bool are_few() const { return 2 * channels <= kernels.width; }
  /// Finds the masks of registers that meet columns before the first or from `end` of the results
  /// on. False where there is no room.
  bool fit(dim_t end) {
    const dim_t w = kernels.width;
    job.first = job.left > 0 ? rounded_up(job.left, w) : 0;
    const dim_t within = (std::min(end, job.length) - job.first) / w * w;
    if (within > 0)
      job.last = job.first + within;
    else
      job.first = job.last = rounded_up(job.length, w);
    constexpr auto size = static_cast<dim_t>(sizeof(T));
    const dim_t behind = rounded_up(std::max(job.length - job.last, dim_t{0}), w),
                of_first = rounded_up(job.taps * size * job.first, 64),
                of_last = rounded_up(job.taps * size * behind, 64),
                of_columns = job.taps * static_cast<dim_t>(sizeof(dim_t));
    if (of_first + of_last + of_columns > static_cast<dim_t>(list_bytes)) return false;
    std::byte* const at = thread_lists();
    auto* const columns = reinterpret_cast<dim_t*>(at + of_first + of_last);
    for (dim_t k = 0; k < job.taps; ++k) columns[k] = k * job.step - job.left;
    kernels.find_masks(std::min(job.first, job.length), width, job.taps, columns, at);
    for (dim_t k = 0; k < job.taps; ++k) columns[k] += job.last;
    kernels.find_masks(job.length - job.last, width, job.taps, columns, at + of_first);
    job.last_masks = at + of_first;
    job.masks = at;
    return true;
  }
  /// The channels whose gradients are found together: their sums are added up at once.
  dim_t together() const { return job.taps < 64 ? 64 / job.taps : 1; }
  dim_t size_of_sums() const {
    return rounded_up(together() * job.taps, kernels.width) * kernels.width;
  }
  bool fit_sums() const {
    return size_of_sums() * static_cast<dim_t>(sizeof(T)) <= static_cast<dim_t>(packed_a_bytes);
  }
  dim_t plane() const { return rows * width; }
  dim_t out_plane() const { return rows * job.length; }

  void convolve(const T* source, const T* w, const T* bias, bool relu, T* result) const {
    const dim_t worth = planes_worth(out_plane() * job.taps);
    parallel_for(0, batch * channels, worth, [&](dim_t n, dim_t end) {
      depthwise_row<T> mine = job;
      mine.relu = relu;
      mine.x = source + n * plane();
      mine.out = result + n * out_plane();
      for (; n < end; ++n) {
        const dim_t c = n % channels;
        mine.w = w + c * job.taps;
        mine.start = bias != nullptr ? bias[c] : T(0);
        for (dim_t i = 0; i < rows; ++i, mine.x += width, mine.out += job.length)
          kernels.convolve_row(mine);
      }
    });
  }
  void find_gradients(const T* x, const T* dy, T* dw, bool accumulate) const {
    const dim_t worth = planes_worth(batch * out_plane() * job.taps);
    parallel_for(0, channels, worth, [&](dim_t c, dim_t end) {
      depthwise_row<T> mine = job;
      mine.sums = thread_scratch<T>();
      mine.batch = batch;
      mine.channels = channels;
      mine.rows = rows;
      for (; c < end; c += mine.count) {
        mine.count = std::min(together(), end - c);
        mine.x = x + c * plane();
        mine.dy = dy + c * out_plane();
        kernels.row_gradients(mine);
        kernels.add_sums(mine.count * job.taps, mine.sums, dw + c * job.taps, accumulate);
      }
    });
  }
};

template <class T>
bool convolve_rows(const depthwise_kernels<T>& kernels, const conv_geometry& g, lanes_of direction,
                   const T* source, const T* w, const T* bias, bool relu, T* result) {
  const row_sweep<T> sweep{kernels, g, direction};
  if (sweep.fits) sweep.convolve(source, w, bias, relu, result);
  return sweep.fits;
}
template <class T>
bool row_gradients(const depthwise_kernels<T>& kernels, const conv_geometry& g, const T* x,
                   const T* dy, T* dw, bool accumulate) {
  const row_sweep<T> sweep{kernels, g, lanes_of::backward_weights};
  if (sweep.fits) sweep.find_gradients(x, dy, dw, accumulate);
  return sweep.fits;
}

}  // namespace ikebana::cpu::detail
