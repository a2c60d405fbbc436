#pragma once

#include <cstddef>
#include <cstdint>

#include "ikebana/core/shape.hpp"
#include "ikebana/cpu/conv/tiles.hpp"
#include "ikebana/cpu/detail/strided.hpp"

namespace ikebana::cpu::detail {

/// `count` planes of a depthwise convolution of 3x3, which are not copied: `top` rows and `left`
/// columns of zeros are before each. For the gradient of the weights, `count` channels of `batch`
/// images of `channels`. Planes are `plane` and
/// `out_plane` apart; what a dilation takes together is `dilation` columns and `row_step` and
/// `out_step` apart.
template <class T>
struct depthwise_planes {
  const T *x, *w, *bias, *dy;
  const void* masks;
  T* out;
  dim_t count, height, width, out_height, out_width, top, left, batch, channels;
  dim_t plane, out_plane, row_step, out_step, dilation;
  bool turned, relu, accumulate;
};
/// `rows` of `columns` results: number (r, c), to[r to_row + c to_column], = start (one for each
/// lane), or (null) the same, + the sums, by lanes, over the steps t for which row top + r down +
/// t along of the source is one of `extent`, sources s, planes k and i < inner of
/// b[t b_step + s b_source + k b_plane + i b_inner] *
/// a[r a_row + c a_column + t a_step + (s planes + k) a_plane + i a_inner]; then their positive
/// parts where `relu`. May read what other rows meet, and `together` results beyond a row's.
template <class T>
struct lanes_job {
  static constexpr dim_t together = 4;
  const T *a, *b, *start;
  T* to;
  dim_t rows, columns, steps, sources, planes, inner;
  dim_t a_row, a_column, a_step, a_plane, a_inner, b_step, b_source, b_plane, b_inner;
  dim_t to_row, to_column, top, down, along, extent;
  bool relu;
};

/// Some rows of as many planes as `count`, `next` apart, to be side by side as lanes of `width`,
/// with `lead` zeros before them and such behind them up to `pitch`.
template <class T>
struct lanes_window {
  T* to;
  const T* from;
  dim_t width, rows, lead, length, pitch, from_row, next, count;
};

/// What the instruction sets provide; null what the ways at hand do not need.
template <class T>
struct depthwise_kernels {
  dim_t width;
  void (*sum_lanes)(const lanes_job<T>&);
  // As those of conv_tiles.
  void (*clear)(T* to, dim_t n);
  void (*pack_across)(T* to, dim_t width, const T* from, dim_t ld, dim_t depth, dim_t count);
  void (*pack_window)(const lanes_window<T>&);
  /// to[p * to_step + i] = from[i * step + p] for p < depth, i < count.
  void (*turn)(T* to, dim_t to_step, const T* from, dim_t step, dim_t depth, dim_t count);
  void (*finish_rows)(dim_t rows, dim_t length, T* y, dim_t step, const conv_rest<T>& rest,
                      const T* residual);
  struct plane_shape {
    void (*find_masks)(dim_t out_width, dim_t width, dim_t left, dim_t dilation, void* to);
    void (*convolve)(const depthwise_planes<T>&);
    void (*gradients)(const depthwise_planes<T>&);
    void (*spread)(const depthwise_planes<T>&);
  };
  plane_shape planes[2];  // of stride 1, and 2
};

}  // namespace ikebana::cpu::detail
