#pragma once

#include <array>
#include <utility>

#include "ikebana/core/shape.hpp"
#include "ikebana/cpu/conv_direct.hpp"
#include "ikebana/cpu/gemm.hpp"
#include "ikebana/cpu/reduce.hpp"

#define IKEBANA_CPU_BODY "ikebana/cpu/conv-inl.hpp"
#include "ikebana/cpu/detail/foreach_target.hpp"

/// Convolutions: direct ones of few channels and stride 1, else matrix products whose packer reads
/// the image; neither needs a column buffer. All allocate only the thread's packing buffer, at its
/// first use, and give the same bits for the same geometry and instruction set.
namespace ikebana::cpu {

/// y = conv(x, w) + bias, which may be null.
template <class T>
void conv_forward(const conv_geometry& g, const T* x, const T* w, const T* bias, T* y) {
  if (detail::may_be_direct(g, false) &&
      detail::convolve_directly(IKEBANA_CPU_DISPATCH(kernels_for_direct<T>)(), g, false, x, w, bias,
                                y))
    return;
  IKEBANA_CPU_DISPATCH(convolve<T>)(g, x, w, bias, y);
}
/// Overwrites dx. The transposed convolution of dy, which may have a bias for each of x's channels.
template <class T>
void conv_backward_data(const conv_geometry& g, const T* dy, const T* w, T* dx,
                        const T* bias = nullptr) {
  if (detail::may_be_direct(g, true) &&
      detail::convolve_directly(IKEBANA_CPU_DISPATCH(kernels_for_direct<T>)(), g, true, dy, w, bias,
                                dx))
    return;
  IKEBANA_CPU_DISPATCH(convolve_backward_data<T>)(g, dy, w, bias, dx);
}
template <class T>
void conv_backward_weights(const conv_geometry& g, const T* x, const T* dy, T* dw,
                           bool accumulate) {
  if (detail::may_be_direct(g, false) &&
      detail::convolve_weights_directly(IKEBANA_CPU_DISPATCH(kernels_for_direct<T>)(), g, x, dy, dw,
                                        accumulate))
    return;
  IKEBANA_CPU_DISPATCH(convolve_backward_weights<T>)(g, x, dy, dw, accumulate);
}
/// sums[c] = (accumulate ? sums[c] : 0) + the sum of channel c of x (batch, channels, plane): the
/// gradient of a bias.
template <class T>
void channel_sums(dim_t batch, dim_t channels, dim_t plane, const T* x, T* sums, bool accumulate) {
  IKEBANA_CPU_DISPATCH(sum_planes<T>)(batch, channels, plane, x, sums, accumulate);
}
template <class T>
void conv_backward_bias(const conv_geometry& g, const T* dy, T* db, bool accumulate) {
  channel_sums<T>(g.batch, g.out_channels, conv_geometry::volume(g.out), dy, db, accumulate);
}

IKEBANA_CPU_KERNEL(conv_forward)
IKEBANA_CPU_KERNEL(conv_backward_data)
IKEBANA_CPU_KERNEL(conv_backward_weights)
IKEBANA_CPU_KERNEL(channel_sums)
IKEBANA_CPU_KERNEL(conv_backward_bias)

}  // namespace ikebana::cpu
