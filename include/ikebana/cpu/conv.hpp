#pragma once

#include <cstddef>
#include <span>

#include "ikebana/core/shape.hpp"
#include "ikebana/cpu/conv/table.hpp"
#include "ikebana/cpu/conv_geometry.hpp"
#include "ikebana/cpu/detail/targets.hpp"

/// Convolutions. All allocate only the thread's packing buffer, at its first use, and give the same
/// bits for the same geometry and instruction set, whatever the caches and the number of threads;
/// an image's result does not depend on the others of its batch. Forward they are made straight
/// from bands of the image, without a column buffer; those of 1x1 without strides are a product for
/// each image. Groups of few channels, depthwise ones above all, have algorithms of their own. The
/// gradient of the weights, images of few positions and the gradient of the input by strides or
/// with few channels are products of blocks of receptive fields, for which a thread keeps a second
/// buffer. Those of 3x3 in float may go by Winograd's way (exact_convolution.hpp), which keeps up
/// to 40 MiB of a thread's for weights, and, where channels are many and for the gradient of the
/// weights, the second buffer for tiles.
namespace ikebana::cpu {

/// y = function(scale conv(x, w) + bias + residual); scale, bias and residual may be null. `table`
/// holds those algorithms that the caller's geometries may need (conv/table.hpp), so that others
/// need not be built. `room`, zeros at first, keeps the plan for the next call with the same
/// geometry and table, if it has conv_plan_bytes; none: it is planned in each call.
template <class T>
void conv_forward(
    const conv_geometry& g, const T* x, const T* w, const T* bias, T* y,
    const conv_epilogue<T>& then = {},
    const detail::conv_table<T>& table = conv_algorithms_of<T>(conv_direction::forward),
    std::span<std::byte> room = {});
/// Overwrites dx. The transposed convolution of dy, which may have a bias for
/// each of x's channels.
template <class T>
void conv_backward_data(
    const conv_geometry& g, const T* dy, const T* w, T* dx, const T* bias = nullptr,
    const detail::conv_table<T>& table = conv_algorithms_of<T>(conv_direction::data),
    std::span<std::byte> room = {});
/// dw = (accumulate ? dw : 0) + the gradient of the weights.
template <class T>
void conv_backward_weights(
    const conv_geometry& g, const T* x, const T* dy, T* dw, bool accumulate,
    const detail::conv_table<T>& table = conv_algorithms_of<T>(conv_direction::weights),
    std::span<std::byte> room = {});
/// sums[c] = (accumulate ? sums[c] : 0) + the sum of channel c of x (batch,
/// channels, plane): the gradient of a bias.
template <class T>
void channel_sums(dim_t batch, dim_t channels, dim_t plane, const T* x, T* sums, bool accumulate);
template <class T>
void conv_backward_bias(const conv_geometry& g, const T* dy, T* db, bool accumulate);
}  // namespace ikebana::cpu

#if IKEBANA_CPU_HERE
#include "ikebana/cpu/conv/run.hpp"
#endif

namespace ikebana::cpu {

IKEBANA_CPU_KERNEL(conv_forward, conv_backward_data, conv_backward_weights, channel_sums,
                   conv_backward_bias)

}  // namespace ikebana::cpu
