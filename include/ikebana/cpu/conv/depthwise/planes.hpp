#pragma once

#include <algorithm>
#include <array>
#include <cstddef>

#include "ikebana/core/shape.hpp"
#include "ikebana/cpu/conv/costs.hpp"
#include "ikebana/cpu/conv/depthwise/kernels.hpp"
#include "ikebana/cpu/conv_geometry.hpp"
#include "ikebana/cpu/detail/quotients.hpp"
#include "ikebana/cpu/detail/scratch.hpp"
#include "ikebana/cpu/parallel.hpp"

IKEBANA_CPU_BEGIN_SMALL
// Depthwise convolutions of 3x3 straight from the source: planes one after the other in
// one call, for of small ones the calls and tables cost more than the sums.
namespace ikebana::cpu::detail {

/// How many planes of so many multiply-adds are worth a thread's while.
constexpr dim_t planes_worth(dim_t multiply_adds) {
  return 1 + conv_costs::plane_multiply_adds_for_thread / (multiply_adds + 1);
}

/// One direction of a depthwise convolution that goes by planes (depthwise_planes_apply): the
/// source, and the result that meets it with stride 1 or 2 (dy, for the gradient of the weights).
template <class T>
struct plane_sweep {
  const depthwise_kernels<T>& kernels;
  dim_t channels, batch, stride, row_dilation;
  const typename depthwise_kernels<T>::plane_shape* shape;
  depthwise_planes<T> job{};

  plane_sweep(const depthwise_kernels<T>& k, const conv_geometry& g, bool backward)
      : kernels{k},
        channels{g.groups},
        batch{g.batch},
        stride{g.stride[1]},
        row_dilation{g.dilation[1]},
        shape{&k.planes[g.stride[1] - 1]} {
    const auto &from = backward ? g.out : g.in, &to = backward ? g.in : g.out;
    job.height = from[1];
    job.width = from[2];
    job.out_height = to[1];
    job.out_width = to[2];
    job.dilation = g.dilation[2];
    const dim_t down = 2 * row_dilation, across = 2 * job.dilation;
    job.top = backward ? down - g.padding[1] : g.padding[1];
    job.left = backward ? across - g.padding[2] : g.padding[2];
    job.plane = plane();
    job.out_plane = out_plane();
    job.row_step = job.width;
    job.out_step = job.out_width;
    job.channels = channels;
    job.batch = batch;
    job.turned = backward;
  }

  /// Whether rows fill enough of a register.
  bool convolves() const { return shape->convolve != nullptr && 8 * job.out_width > kernels.width; }
  /// Whether backward by data of stride 2 goes by pairs of rows and columns.
  bool spreads() const {
    return shape->spread != nullptr && job.top == 1 && job.left == job.top &&
           job.height == (job.out_height + 1) / 2 && job.width == (job.out_width + 1) / 2;
  }
  /// Whether all rows of dy but the first two and what lies below them meet rows of the source.
  bool finds_gradients() const {
    return !is_dilated() && job.out_height >= 2 && job.top <= 2 &&
           stride * job.out_height <= job.height + job.top;
  }
  bool is_dilated() const { return row_dilation != 1 || job.dilation != 1; }
  dim_t plane() const { return job.height * job.width; }
  dim_t out_plane() const { return job.out_height * job.out_width; }

  /// Keeps the masks of the columns among the calling thread's lists. False where there is no room.
  bool fit() {
    const dim_t lanes = rounded_up(job.out_width + kernels.width, kernels.width);
    if (2 * (lanes * static_cast<dim_t>(sizeof(T)) + 64) * 4 > static_cast<dim_t>(list_bytes))
      return false;
    job.masks = thread_lists();
    shape->find_masks(job.out_width, job.width, job.left, job.dilation, thread_lists());
    return true;
  }
  /// By shape->convolve or shape->spread.
  void run(void (*kernel)(const depthwise_planes<T>&), const T* source, const T* w, const T* bias,
           bool relu, T* result) const {
    // Dilated planes are met row_dilation times: what stays in the first-level cache meanwhile.
    const dim_t together = row_dilation == 1
                               ? channels
                               : 1 + conv_costs::first_level_elements / (plane() + out_plane());
    parallel_for(0, batch * channels, planes_worth(out_plane() * 9), [&](dim_t b, dim_t e) {
      plane_sweep mine = *this;
      mine.job.relu = relu;
      for (dim_t end; b < e; b = end) {
        const dim_t c = b % channels;
        end = std::min({e, b - c + channels, b + together});
        mine.job.x = source + b * plane();
        mine.job.w = w + c * 9;
        mine.job.bias = bias == nullptr ? nullptr : bias + c;
        mine.job.out = result + b * out_plane();
        mine.job.count = end - b;
        if (row_dilation == 1)
          kernel(mine.job);
        else
          mine.visit_rows(kernel);
      }
    });
  }
  /// Calls `kernel` with rows that are row_dilation apart, from each of so many on.
  void visit_rows(void (*kernel)(const depthwise_planes<T>&)) const {
    depthwise_planes<T> part = job;
    part.row_step = row_dilation * job.width;
    part.out_step = row_dilation * job.out_width;
    for (dim_t i = 0; i < least(row_dilation, job.out_height); ++i) {
      // Result i + t dilation meets source rows first + (t - top + k) dilation.
      part.top = job.top > i ? (job.top - i + row_dilation - 1) / row_dilation
                             : -((i - job.top) / row_dilation);
      const dim_t first = i - job.top + part.top * row_dilation;
      part.height = parts(job.height - first, row_dilation);
      part.out_height = parts(job.out_height - i, row_dilation);
      part.x = job.x + first * job.width;
      part.out = job.out + i * job.out_width;
      kernel(part);
    }
  }
  void find_gradients(const T* x, const T* dy, T* dw, bool accumulate) const {
    parallel_for(0, channels, planes_worth(batch * out_plane() * 9), [&](dim_t c, dim_t e) {
      depthwise_planes<T> mine = job;
      mine.accumulate = accumulate;
      mine.x = x + c * plane();
      mine.dy = dy + c * out_plane();
      mine.out = dw + c * 9;
      mine.count = e - c;
      shape->gradients(mine);
    });
  }
};

}  // namespace ikebana::cpu::detail
IKEBANA_CPU_END_SMALL
