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

// Depthwise convolutions of square kernels straight from the source: planes one after the other in
// one call, for of small ones the calls and tables cost more than the sums.
namespace ikebana::cpu::detail {

/// How many planes of so many multiply-adds are worth a thread's while.
constexpr dim_t planes_worth(dim_t multiply_adds) { return 1 + 300000 / (multiply_adds + 1); }

/// The masks of a plane's columns, among the calling thread's lists.
template <class T>
struct plane_masks {
  void* masks;
  dim_t first, last;  // columns met, the registers' whole width

  /// False where there is no room. Registers of results begin every `width` up to `length`, and
  /// meet `stride` times as many columns of a source from `low` up to `high` on.
  bool fit(const conv_geometry& g, dim_t width, dim_t length, dim_t stride, dim_t low, dim_t high) {
    const dim_t lanes = rounded_up(length, width);
    first = low;
    last = high + stride * lanes;
    masks = thread_lists();
    return 2 * (lanes * static_cast<dim_t>(sizeof(T)) + 64) * (g.kernel[2] + 1) <=
           static_cast<dim_t>(list_bytes);
  }
  /// Whether registers may not read beside the rows of this plane, which are of `width`, in an
  /// array of `count` planes.
  bool ends_array(dim_t plane, dim_t count, dim_t plane_size, dim_t width) const {
    return plane * plane_size + first < 0 ||
           (plane + 1) * plane_size - width + last > count * plane_size;
  }
};

/// One direction of a depthwise convolution: the source, and the result that meets it with
/// stride 1 or 2 (dy, for the gradient of the weights).
template <class T>
struct plane_sweep {
  const depthwise_kernels<T>& kernels;
  dim_t channels, batch, stride, row_dilation, taps;
  const typename depthwise_kernels<T>::plane_shape* shape;
  depthwise_planes<T> job{};
  plane_masks<T> tables{};

  plane_sweep(const depthwise_kernels<T>& k, const conv_geometry& g, bool backward)
      : kernels{k},
        channels{g.groups},
        batch{g.batch},
        stride{g.stride[1]},
        row_dilation{g.dilation[1]},
        taps{g.kernel[1] * g.kernel[2]},
        shape{find_shape(k, g)} {
    const auto &from = backward ? g.out : g.in, &to = backward ? g.in : g.out;
    job.height = from[1];
    job.width = from[2];
    job.out_height = to[1];
    job.out_width = to[2];
    job.dilation = g.dilation[2];
    const dim_t down = (g.kernel[1] - 1) * row_dilation, across = (g.kernel[2] - 1) * job.dilation;
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

  /// Null where there is none for such a geometry.
  static auto find_shape(const depthwise_kernels<T>& kernels, const conv_geometry& g) -> const
      typename depthwise_kernels<T>::plane_shape* {
    if (g.kernel[0] != 1 || g.kernel[1] != g.kernel[2] || g.in[0] != 1 || g.out[0] != 1 ||
        g.padding[0] != 0 || g.in_channels != g.groups || g.out_channels != g.groups ||
        g.stride[1] != g.stride[2] ||
        (g.stride[1] != 1 && (g.dilation[1] != 1 || g.dilation[2] != 1)))
      return nullptr;
    for (const auto& s : kernels.planes)
      if (s.kernel == g.kernel[1] && s.stride == g.stride[1]) return &s;
    return nullptr;
  }
  /// Whether rows fill enough of a register.
  bool convolves() const { return shape->convolve != nullptr && 8 * job.out_width > kernels.width; }
  /// Whether backward by data of stride 2 goes by pairs of rows and columns.
  bool spreads() const {
    return shape->spread != nullptr && job.top == shape->kernel / 2 && job.left == job.top &&
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

  bool fit(const conv_geometry& g) {
    if (!tables.fit(g, kernels.width, job.out_width + kernels.width, stride, -job.left,
                    (g.kernel[2] - 1) * job.dilation + 1 - job.left))
      return false;
    shape->find_masks(job.out_width, job.width, job.left, job.dilation, tables.masks);
    job.masks = tables.masks;
    return true;
  }
  /// Planes from `first` on up to `end` that registers may read beside of, or one that they may
  /// not.
  dim_t end_of_run(dim_t first, dim_t end) {
    const auto ends_array = [&](dim_t at) {
      return tables.ends_array(at, batch * channels, plane(), job.width);
    };
    dim_t i = first + 1;
    job.apart = ends_array(first);
    while (i < end && ends_array(i) == job.apart) ++i;
    return i;
  }

  void spread(const T* source, const T* w, const T* bias, T* result) const {
    run(source, w, bias, result, shape->spread, [](plane_sweep&, dim_t, dim_t end) { return end; });
  }
  /// By shape->convolve, or by another for which all has been set.
  void convolve(void (*kernel)(const depthwise_planes<T>&), const T* source, const T* w,
                const T* bias, bool relu, T* result) {
    job.relu = relu;
    run(source, w, bias, result, kernel,
        [](plane_sweep& mine, dim_t first, dim_t end) { return mine.end_of_run(first, end); });
  }
  /// Calls `kernel` with planes from one on up to end_of(it, the last of its image or thread).
  template <class F>
  void run(const T* source, const T* w, const T* bias, T* result,
           void (*kernel)(const depthwise_planes<T>&), const F& end_of) const {
    // Dilated planes are met row_dilation times: what stays in the first-level cache meanwhile.
    const dim_t together = row_dilation == 1 ? channels : 1 + 4096 / (plane() + out_plane());
    parallel_for(0, batch * channels, planes_worth(out_plane() * taps), [&](dim_t b, dim_t e) {
      plane_sweep mine = *this;
      for (dim_t end; b < e; b = end) {
        const dim_t c = b % channels;
        end = end_of(mine, b, std::min({e, b - c + channels, b + together}));
        mine.job.x = source + b * plane();
        mine.job.w = w + c * taps;
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
  /// By shape->gradients, or by another for which all has been set.
  void find_gradients(void (*gradients)(const depthwise_planes<T>&), const T* x, const T* dy, T* dw,
                      bool accumulate) const {
    parallel_for(0, channels, planes_worth(batch * out_plane() * 9), [&](dim_t c, dim_t e) {
      plane_sweep mine = *this;
      mine.job.accumulate = accumulate;
      const auto run = [&](dim_t first, dim_t end, bool apart) {
        if (first >= end) return;
        mine.job.apart = apart;
        mine.job.x = x + first * plane();
        mine.job.dy = dy + first * out_plane();
        mine.job.out = dw + first * 9;
        mine.job.count = end - first;
        gradients(mine.job);
      };
      // Only the first and the last channels' planes stand at an end of the arrays.
      const dim_t planes = batch * channels;
      const auto ends_array = [&](dim_t at) {
        return mine.tables.ends_array(at, planes, plane(), job.width) ||
               (planes - 1 - at) * out_plane() < kernels.width;
      };
      dim_t low = c, high = e;
      while (low < e && ends_array(low)) ++low;
      while (high > low && ends_array(planes - channels + high - 1)) --high;
      run(c, low, true);
      run(low, high, false);
      run(high, e, true);
    });
  }
};

}  // namespace ikebana::cpu::detail
