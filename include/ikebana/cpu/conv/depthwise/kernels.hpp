#pragma once

#include <cstddef>
#include <cstdint>

#include "ikebana/core/shape.hpp"
#include "ikebana/cpu/conv/tiles.hpp"
#include "ikebana/cpu/detail/padded_tiles.hpp"

namespace ikebana::cpu::detail {

/// What `rows` neighbouring rows of a result need of a plane that is not copied: they meet rows
/// from `top` on, of which those from `first_met` up to `last_met` are in the source. What lies
/// beside the rows may be read. Of two channels, the second one's are so many elements on as
/// `next`, `next_weight` and `next_out` say.
template <class T>
struct depthwise_sweep {
  static constexpr int most_rows = 7;
  const T* top;
  dim_t row_step, first_met, last_met, kernel_columns;
  const dim_t *columns, *column_weights;
  const void* masks;
  const T* weights;
  dim_t weight_step;
  T start[2];
  bool relu;
  T* out;
  dim_t out_step, rows, length, next, next_weight, next_out;
};

/// What the weights' gradient of one plane needs that is not copied: row 0 of
/// dy and kernel row 0 meet `image`, which is `padding` rows before the
/// source's `height`; a row of stride 2 begins `across` before it. Rows outside of it are `zeros`.
template <class T>
struct depthwise_gradient {
  const T *dy, *image, *zeros;
  dim_t dy_step, row_step, padding, across, height, rows, length, kernel_columns;
  const dim_t* columns;
  const void* masks;
  T* sums;
};

/// `count` planes of a depthwise convolution, which are not copied: `top` rows and `left`
/// columns of zeros are before each. For the gradient of the weights, `count` channels of `batch`
/// images of `channels`. `apart` as above. Planes are `plane` and `out_plane` apart; what a
/// dilation takes together is `dilation` columns and `row_step` and `out_step` apart.
template <class T>
struct depthwise_planes {
  const T *x, *w, *bias, *dy, *zeros;
  const void* masks;
  T* out;
  dim_t count, height, width, out_height, out_width, top, left, batch, channels;
  dim_t plane, out_plane, row_step, out_step, dilation;
  bool turned, relu, accumulate, apart;
};
/// A row of a depthwise convolution of stride 1 whose kernel is a row of any length: result j meets
/// x[j - left + k step] with weight k, or, if `turned`, with the k-th from the end. Registers of
/// results up to `first` and from `last` on meet the row's ends: they have `masks` and `last_masks`
/// for each tap; not where taps meet less than a register before and after it and are shifted.
template <class T>
struct depthwise_row {
  const T *x, *w, *dy;
  T start;
  T *out, *sums;
  const void *masks, *last_masks;
  dim_t length, first, last, taps, step, left;
  bool turned, relu;
  // Of rows that are shifted: how many there are, of what width, and how their weights and bias
  // (null for none) follow each other.
  dim_t count, width, w_step, bias_step;
  const T* bias;
  // For the weights' gradient, of `count` channels: the rows of a plane and the planes of each.
  dim_t rows, batch, channels;
};
/// The columns of the output's gradient that those of one remainder meet, and
/// the weights: every second of a kernel row.
template <class T>
struct spread_columns {
  dim_t count;
  const dim_t* columns;
  const void* masks;
  const T* weights;
};
/// What some rows of one remainder of the gradient by a source of stride 2
/// need: row i of them meets rows[i + row_taps - 1 - m] with kernel row m of
/// that remainder.
template <class T>
struct depthwise_spread {
  static constexpr int most_rows = 4;
  static constexpr dim_t most_taps = 4;  // along a dimension
  const T* rows[most_rows + most_taps];
  dim_t row_taps, weight_step;
  spread_columns<T> columns[2];
  T start;
  T* out;
  dim_t out_step, count, length;
};

/// Where the two factors of one product are.
struct lane_term {
  std::int32_t a, b;
};
/// Neighbouring results, of which `count` are wanted: from which place of a on, where they go, and
/// the terms that they are sums of.
struct lane_results {
  static constexpr dim_t most = 4;
  std::int32_t a, to, first, last, count;
};
/// to[results.to + r to_step] = start (one for each lane), or (null) the same, + the sum over the
/// terms and i < inner of b[term.b + i b_inner] * a[results.a + r a_step + term.a + i a_inner], by
/// lanes; then its positive part where `relu`. May read what results that are not wanted would be
/// made of.
template <class T>
struct lanes_job {
  const lane_results* results;
  dim_t count;
  const lane_term* terms;
  dim_t inner, a_inner, b_inner, a_step, to_step;
  const T *a, *b, *start;
  T* to;
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

/// Some rows of a depthwise convolution whose source is copied: x holds what they meet, `x_step`
/// apart. Position j of a result is the sum over the terms of w[term.b] * x[term.a + j], or has
/// such a sum for its even and its odd elements. For the gradient of the weights, sums[term], a
/// register each, += dy's elements times what they meet.
template <class T>
struct depthwise_copies {
  const T *x, *w, *bias, *dy;
  T *out, *sums;
  const lane_term* terms[2];
  dim_t counts[2];
  dim_t rows, length, x_step, w_step, out_step;
  bool relu;
};

/// What the instruction sets provide; null what the ways at hand do not need.
template <class T>
struct depthwise_kernels {
  dim_t width;
  bool reads_beside;  // the rows of planes that it sweeps
  void (*sum_lanes)(const lanes_job<T>&);
  // As those of conv_tiles.
  void (*clear)(T* to, dim_t n);
  void (*copy_rows)(dim_t rows, dim_t lead, dim_t length, const T* from, dim_t from_step,
                    dim_t stride, T* to, dim_t pitch);
  bool (*copy_phases)(dim_t rows, dim_t stride, const T* from, dim_t from_step,
                      const conv_phase<T>* of, dim_t pitch);
  void (*pack_across)(T* to, dim_t width, const T* from, dim_t ld, dim_t depth, dim_t count);
  void (*pack_window)(const lanes_window<T>&);
  /// to[p * to_step + i] = from[i * step + p] for p < depth, i < count.
  void (*turn)(T* to, dim_t to_step, const T* from, dim_t step, dim_t depth, dim_t count);
  void (*finish_rows)(dim_t rows, dim_t length, T* y, dim_t step, const conv_rest<T>& rest,
                      const T* residual);
  void (*add_sums)(dim_t n, const T* registers, T* dw, bool accumulate);
  struct sweep_shape {
    int kernel;
    void (*inside)(const depthwise_sweep<T>&);  // where all rows met are in the source
    void (*some)(const depthwise_sweep<T>&);
    void (*of_two)(const depthwise_sweep<T>&);  // some, as halves of registers
  };
  /// Room for a register each, for every register of a row and kernel column.
  void (*find_masks)(dim_t length, dim_t width, dim_t kernel_columns, const dim_t* columns,
                     void* to);
  sweep_shape sweeps[2];
  struct gradient_shape {
    int kernel;
    void (*sweep)(const depthwise_gradient<T>&);
  };
  gradient_shape gradients[2];
  /// Room for four registers each, for every register of a row and pair of kernel columns.
  void (*find_pair_masks)(dim_t length, dim_t width, dim_t padding, dim_t kernel_columns, void* to);
  void (*spread_pairs)(const depthwise_spread<T>&);
  gradient_shape pairs[1];
  struct plane_shape {
    int kernel, stride;
    void (*find_masks)(dim_t out_width, dim_t width, dim_t left, dim_t dilation, void* to);
    void (*convolve)(const depthwise_planes<T>&);
    void (*gradients)(const depthwise_planes<T>&);
    void (*spread)(const depthwise_planes<T>&);
  };
  plane_shape planes[4];
  void (*convolve_row)(const depthwise_row<T>&);
  /// sums[tap], a register each and those of a channel after the other's, = what its rows give.
  void (*row_gradients)(const depthwise_row<T>&);
  /// By shifts, some rows; null where there are none.
  void (*convolve_rows_shifted)(const depthwise_row<T>&);
  void (*convolve_copies)(const depthwise_copies<T>&);
  void (*spread_copies)(const depthwise_copies<T>&);
  void (*gradients_of_copies)(const depthwise_copies<T>&);
  void (*find_flat_masks)(dim_t beside, dim_t height, dim_t width, void* to);
  void (*convolve_flat)(const depthwise_planes<T>&);
  dim_t largest_flat;  // planes that pay
  void (*flat_gradients)(const depthwise_planes<T>&);
};

}  // namespace ikebana::cpu::detail
