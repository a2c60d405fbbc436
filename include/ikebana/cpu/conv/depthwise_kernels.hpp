#pragma once

#include <cstddef>
#include <cstdint>

#include "ikebana/core/shape.hpp"
#include "ikebana/cpu/detail/padded_tiles.hpp"

namespace ikebana::cpu::detail {

/// What one block of result rows needs of a plane that is not copied: row i of
/// it, from row_step i behind `image` on, is there if first_row <= i <
/// last_row.
template <class T>
struct depthwise_sweep {
  const T* image;
  dim_t row_step, first_row, last_row, kernel_columns;
  const dim_t *columns, *column_weights;
  const void* masks;
  const T* weights;
  dim_t weight_step;
  T start;
  bool relu;
  T* out;
  dim_t out_step, rows, length;
};

/// What the weights' gradient of one plane needs that is not copied: row 0 of
/// dy and kernel row 0 meet `image`, which is `padding` rows before the
/// source's `height`.
template <class T>
struct depthwise_gradient {
  const T *dy, *image;
  dim_t dy_step, row_step, padding, height, rows, length, kernel_columns;
  const dim_t* columns;
  const void* masks;
  T* sums;
};

/// What some rows of a plane of stride 2 need that is not copied, or, for the
/// weights' gradient, all of them: row i of it, from row_step i behind `image`
/// (which is what kernel row and column 0 meet at the first result) on, is
/// there if first_row <= i < last_row.
template <class T>
struct depthwise_pairs {
  const T* image;
  dim_t row_step, first_row, last_row, kernel_columns;
  const void* masks;
  const T* weights;
  T start;
  bool relu;
  T* out;
  const T* dy;
  T* sums;
  dim_t out_step, rows, length;
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
/// to[results.to + r to_step] = (adds ? the same : 0) + the sum over the terms and i < inner of
/// b[term.b + i b_inner] * a[results.a + r a_step + term.a + i a_inner], by lanes. May read what
/// results that are not wanted would be made of.
template <class T>
struct lanes_job {
  const lane_results* results;
  dim_t count;
  const lane_term* terms;
  dim_t inner, a_inner, b_inner, a_step, to_step;
  const T *a, *b;
  T* to;
  bool adds;
};

/// What the instruction sets provide.
template <class T>
struct depthwise_kernels {
  dim_t width;
  void (*sum_lanes)(const lanes_job<T>&);
  void (*add_sums)(dim_t n, const T* registers, T* dw, bool accumulate);
  struct sweep_shape {
    int kernel;
    void (*eight)(const depthwise_sweep<T>&);
    void (*four)(const depthwise_sweep<T>&);
  };
  /// Room for a register each, for every register of a row and kernel column.
  void (*find_masks)(dim_t length, dim_t width, dim_t kernel_columns, const dim_t* columns,
                     void* to);
  sweep_shape sweeps[3];
  struct gradient_shape {
    int kernel;
    void (*sweep)(const depthwise_gradient<T>&);
  };
  gradient_shape gradients[3];
  struct pair_shape {
    int kernel, rows;
    void (*sweep)(const depthwise_pairs<T>&);
    void (*gradients)(const depthwise_pairs<T>&);
  };
  void (*find_pair_masks)(dim_t length, dim_t width, dim_t padding, dim_t kernel_columns, void* to);
  void (*spread_pairs)(const depthwise_spread<T>&);
  pair_shape pairs[2];
};

}  // namespace ikebana::cpu::detail
