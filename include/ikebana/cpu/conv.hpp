#pragma once

#include <array>
#include <utility>

#include "ikebana/core/shape.hpp"
#include "ikebana/cpu/gemm.hpp"
#include "ikebana/cpu/reduce.hpp"

namespace ikebana::cpu {

/// A convolution over three spatial dimensions; fewer have leading ones. x is (batch, in_channels,
/// in...), w is (out_channels, in_channels / groups, kernel...), y is (batch, out_channels,
/// out...). Padding is of zeros, and out = (in + 2 padding - dilation (kernel - 1) - 1) / stride
/// + 1.
struct conv_geometry {
  dim_t batch, in_channels, out_channels, groups;
  std::array<dim_t, 3> in, out, kernel, stride, padding, dilation;

  static constexpr dim_t volume(const std::array<dim_t, 3>& e) { return e[0] * e[1] * e[2]; }
};

}  // namespace ikebana::cpu

#define IKEBANA_CPU_BODY "ikebana/cpu/conv-inl.hpp"
#include "ikebana/cpu/detail/foreach_target.hpp"

/// Convolutions as matrix products whose packer reads the image: no column buffer. All allocate
/// only the thread's packing buffer, at its first use, and give the same bits for the same geometry
/// and instruction set.
namespace ikebana::cpu {

/// y = conv(x, w) + bias, which may be null.
template <class T>
void conv_forward(const conv_geometry& g, const T* x, const T* w, const T* bias, T* y) {
  IKEBANA_CPU_DISPATCH(convolve<T>)(g, x, w, bias, y);
}
/// Overwrites dx.
template <class T>
void conv_backward_data(const conv_geometry& g, const T* dy, const T* w, T* dx) {
  IKEBANA_CPU_DISPATCH(convolve_backward_data<T>)(g, dy, w, dx);
}
template <class T>
void conv_backward_weights(const conv_geometry& g, const T* x, const T* dy, T* dw,
                           bool accumulate) {
  IKEBANA_CPU_DISPATCH(convolve_backward_weights<T>)(g, x, dy, dw, accumulate);
}
template <class T>
void conv_backward_bias(const conv_geometry& g, const T* dy, T* db, bool accumulate) {
  IKEBANA_CPU_DISPATCH(convolve_backward_bias<T>)(g, dy, db, accumulate);
}

}  // namespace ikebana::cpu
