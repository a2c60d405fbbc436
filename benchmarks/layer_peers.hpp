#pragma once

#include "benchmarks/contest.hpp"

namespace bench {

enum class layer : unsigned char {
  max_pool,
  max_pool_backward,
  average_pool,
  average_pool_backward,
  batch_norm,
  batch_norm_inference,
  batch_norm_backward,
  group_norm,
};

/// Layers of images (batch, channels, size, size): pooling with square windows, normalization.
struct layer_problem {
  layer what;
  dim_t batch, channels, size, kernel = 1, stride = 1, padding = 0, groups = 1;
  const float *x = nullptr, *dy = nullptr, *gamma = nullptr, *beta = nullptr;  // dy is shaped as y.
  float* result = nullptr;

  dim_t out() const { return (size + 2 * padding - kernel) / stride + 1; }
  dim_t x_size() const { return batch * channels * size * size; }
  dim_t y_size() const { return batch * channels * out() * out(); }
  bool is_backward() const {
    return what == layer::max_pool_backward || what == layer::average_pool_backward ||
           what == layer::batch_norm_backward;
  }
};

using layer_peer = peer<layer_problem>;

/// In the problem's layout, and in blocks of 16 channels.
layer_peer onednn_layers();
layer_peer onednn_blocked_layers();
layer_peer torch_layers();

}  // namespace bench
