#pragma once

#include "benchmarks/contest.hpp"

namespace bench {

enum class op : unsigned char {
  // Element-wise: result from x, and from dy in backward. y is the function's result for x.
  relu,
  tanh,
  sigmoid,
  exp,
  log,
  erf,
  gelu,
  gelu_tanh,
  silu,
  add,
  multiply,
  relu_backward,
  tanh_backward,
  sigmoid_backward,
  gelu_backward,
  // Of the whole array: result[0].
  sum,
  dot,
  // Of the columns of (rows, n).
  column_sums,
  // Of rows of n.
  softmax,
  log_softmax,
  softmax_backward,
  layer_norm,
  layer_norm_backward,
  // Updates of result from dy; the contestant owns the moments.
  sgd,
  momentum,
  adam,
};

/// x, y, dy and result have rows * n elements; gamma and beta have n.
struct array_problem {
  op what;
  dim_t rows, n;
  const float *x = nullptr, *y = nullptr, *dy = nullptr, *gamma = nullptr, *beta = nullptr;
  float* result = nullptr;

  dim_t size() const { return rows * n; }
};

using array_peer = peer<array_problem>;

array_peer eigen_native_arrays();
array_peer eigen_avx2_arrays();
array_peer onednn_arrays();
array_peer torch_arrays();

}  // namespace bench
