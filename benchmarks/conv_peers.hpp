#pragma once

#include <vector>

#include "benchmarks/contest.hpp"

namespace bench {

enum class pass : unsigned char { forward, backward_data, backward_weights };

/// A convolution of images (batch, inputs, height, width): y with bias, or the gradient of x, or
/// that of the weights. Square kernels.
struct conv_problem {
  pass direction = pass::forward;
  dim_t batch, inputs, height, width, outputs, kernel, stride = 1, padding = 0, dilation = 1,
                                                       groups = 1;
  const float *x = nullptr, *w = nullptr, *bias = nullptr, *dy = nullptr;
  float* result = nullptr;

  dim_t out(dim_t in) const {
    return (in + 2 * padding - dilation * (kernel - 1) - 1) / stride + 1;
  }
  dim_t x_size() const { return batch * inputs * height * width; }
  dim_t w_size() const { return outputs * (inputs / groups) * kernel * kernel; }
  dim_t y_size() const { return batch * outputs * out(height) * out(width); }
  dim_t result_size() const {
    return direction == pass::forward         ? y_size()
           : direction == pass::backward_data ? x_size()
                                              : w_size();
  }
};

using conv_peer = peer<conv_problem>;

/// In oneDNN's preferred layout, and in that of the problem.
conv_peer onednn_conv();
conv_peer onednn_nchw_conv();
conv_peer torch_conv();
conv_peer torch_channels_last_conv();

}  // namespace bench
