#pragma once

#include <array>

#include "ikebana/core/shape.hpp"
#include "ikebana/cpu/final_activation.hpp"

namespace ikebana::cpu {

/// A convolution over three spatial dimensions; fewer have leading ones. x is (batch, in_channels,
/// in...), w is (out_channels, in_channels / groups, kernel...), y is (batch, out_channels,
/// out...). Position o of y meets position o stride - padding + k dilation of x, which is 0 outside
/// of x: `padding` is that before x, and the rest of it follows from `out`.
struct conv_geometry {
  dim_t batch, in_channels, out_channels, groups;
  std::array<dim_t, 3> in, out, kernel, stride, padding, dilation;

  static constexpr dim_t volume(const std::array<dim_t, 3>& e) { return e[0] * e[1] * e[2]; }
};

/// What follows a convolution while its result is in the cache: y = function(scale[c] conv + bias +
/// residual) for channel c, where `residual` (null, or as large as y) may not overlap y; scale may
/// be null.
template <class T>
struct conv_epilogue {
  const T* residual = nullptr;
  final_activation<T> function{};
  const T* scale = nullptr;
};

}  // namespace ikebana::cpu
