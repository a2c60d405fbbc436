#include "ikebana/cpu/conv.hpp"

#include <cmath>
#include <limits>
#include <vector>

#include "support.hpp"

using namespace cpu_test;
namespace cpu = ikebana::cpu;
using cpu::conv_geometry;

namespace {

conv_geometry geometry(dim_t batch, dim_t in_channels, dim_t out_channels, dim_t groups,
                       std::array<dim_t, 3> in, std::array<dim_t, 3> kernel,
                       std::array<dim_t, 3> stride, std::array<dim_t, 3> padding,
                       std::array<dim_t, 3> dilation) {
  conv_geometry g{batch, in_channels, out_channels, groups,  in,
                  {},    kernel,      stride,       padding, dilation};
  for (std::size_t d = 0; d < 3; ++d)
    g.out[d] = (in[d] + 2 * padding[d] - dilation[d] * (kernel[d] - 1) - 1) / stride[d] + 1;
  return g;
}

/// With another output than symmetric padding gives.
conv_geometry with_output(conv_geometry g, std::array<dim_t, 3> out) {
  g.out = out;
  return g;
}

const conv_geometry geometries[] = {
    geometry(2, 1, 8, 1, {1, 8, 8}, {1, 3, 3}, {1, 1, 1}, {0, 1, 1}, {1, 1, 1}),
    geometry(1, 3, 5, 1, {1, 7, 9}, {1, 3, 2}, {1, 1, 1}, {0, 0, 0}, {1, 1, 1}),
    geometry(3, 4, 6, 2, {1, 9, 11}, {1, 3, 3}, {1, 2, 2}, {0, 1, 1}, {1, 1, 1}),
    geometry(2, 3, 2, 1, {1, 13, 10}, {1, 3, 3}, {1, 1, 3}, {0, 2, 4}, {1, 2, 2}),
    geometry(2, 5, 5, 5, {1, 6, 37}, {1, 3, 5}, {1, 1, 1}, {0, 1, 2}, {1, 1, 1}),
    geometry(1, 16, 33, 1, {1, 12, 12}, {1, 1, 1}, {1, 1, 1}, {0, 0, 0}, {1, 1, 1}),
    geometry(2, 2, 3, 1, {1, 1, 50}, {1, 1, 4}, {1, 1, 2}, {0, 0, 3}, {1, 1, 1}),
    geometry(1, 2, 3, 1, {5, 6, 7}, {2, 3, 3}, {2, 1, 2}, {1, 1, 0}, {1, 2, 1}),
    geometry(2, 30, 4, 1, {1, 18, 17}, {1, 5, 5}, {1, 1, 1}, {0, 2, 2}, {1, 1, 1}),
    geometry(1, 1, 1, 1, {1, 3, 3}, {1, 3, 3}, {1, 1, 1}, {0, 0, 0}, {1, 1, 1}),
    geometry(0, 2, 3, 1, {1, 4, 4}, {1, 3, 3}, {1, 1, 1}, {0, 0, 0}, {1, 1, 1}),
    // LeNet's; enough images that the weight gradient is computed in several parts.
    geometry(2, 1, 6, 1, {1, 28, 28}, {1, 5, 5}, {1, 1, 1}, {0, 2, 2}, {1, 1, 1}),
    geometry(21, 6, 16, 1, {1, 14, 14}, {1, 5, 5}, {1, 1, 1}, {0, 0, 0}, {1, 1, 1}),
    // Batches of few channels and small planes: with zero padding, with strides, of volumes.
    geometry(19, 3, 13, 1, {1, 9, 7}, {1, 3, 3}, {1, 1, 1}, {0, 1, 1}, {1, 1, 1}),
    geometry(9, 5, 8, 1, {1, 12, 13}, {1, 5, 5}, {1, 1, 1}, {0, 2, 2}, {1, 1, 1}),
    geometry(17, 4, 10, 1, {1, 15, 11}, {1, 3, 3}, {1, 2, 2}, {0, 1, 1}, {1, 1, 1}),
    geometry(8, 6, 7, 1, {1, 16, 16}, {1, 3, 2}, {1, 3, 3}, {0, 0, 0}, {1, 1, 1}),
    geometry(10, 3, 6, 1, {3, 6, 7}, {2, 3, 3}, {1, 1, 1}, {1, 1, 1}, {1, 1, 1}),
    // Output channels that fill vectors, or not: with strides, of volumes, in one dimension.
    geometry(2, 16, 16, 1, {1, 11, 12}, {1, 4, 4}, {1, 2, 2}, {0, 1, 1}, {1, 1, 1}),
    geometry(1, 48, 16, 1, {1, 9, 11}, {1, 3, 4}, {1, 2, 3}, {0, 1, 1}, {1, 1, 1}),
    geometry(1, 40, 14, 1, {1, 9, 10}, {1, 3, 3}, {1, 2, 2}, {0, 1, 1}, {1, 1, 1}),
    geometry(1, 32, 16, 1, {1, 10, 11}, {1, 2, 3}, {1, 2, 2}, {0, 0, 0}, {1, 2, 2}),
    geometry(1, 16, 16, 1, {3, 9, 9}, {3, 3, 3}, {2, 2, 2}, {1, 1, 1}, {1, 1, 1}),
    geometry(1, 20, 33, 1, {3, 7, 8}, {3, 3, 3}, {1, 1, 1}, {1, 1, 1}, {1, 1, 1}),
    geometry(1, 16, 8, 2, {1, 1, 60}, {1, 1, 7}, {1, 1, 2}, {0, 0, 3}, {1, 1, 1}),
    // Planes narrower than a vector, and every remainder of channels.
    geometry(2, 7, 5, 1, {1, 5, 3}, {1, 3, 3}, {1, 1, 1}, {0, 1, 1}, {1, 1, 1}),
    geometry(1, 3, 15, 1, {1, 1, 1}, {1, 3, 3}, {1, 1, 1}, {0, 1, 1}, {1, 1, 1}),
    geometry(2, 6, 9, 3, {1, 11, 8}, {1, 2, 4}, {1, 1, 1}, {0, 1, 0}, {1, 1, 1}),
    // Input rows that the first rows of dy do not reach: bands of the others end beyond the last
    // row.
    geometry(1, 8, 5, 1, {1, 50, 40}, {1, 3, 5}, {1, 2, 1}, {0, 2, 1}, {1, 1, 1}),
    // Long rows: with strides, a band of the input gradient is a part of one, and the receptive
    // field of a row exceeds the scratch for the weight gradient.
    geometry(1, 33, 3, 1, {1, 1, 8000}, {1, 1, 2}, {1, 1, 2}, {0, 0, 2}, {1, 1, 2}),
    geometry(1, 4, 8, 1, {1, 1, 2338}, {1, 1, 31}, {1, 1, 2}, {0, 0, 15}, {1, 1, 1}),
    // A kernel larger than the image; padding beyond the kernel's reach.
    geometry(2, 2, 3, 1, {1, 2, 3}, {1, 4, 5}, {1, 1, 1}, {0, 2, 2}, {1, 1, 1}),
    geometry(2, 2, 3, 1, {1, 5, 6}, {1, 2, 1}, {1, 1, 1}, {0, 3, 2}, {1, 1, 1}),
    geometry(1, 2, 1, 1, {1, 1, 1}, {1, 1, 7}, {1, 1, 1}, {0, 2, 20}, {1, 1, 1}),
    geometry(1, 3, 4, 1, {1, 9, 12}, {1, 3, 2}, {1, 1, 1}, {0, 2, 3}, {1, 2, 5}),
    geometry(2, 3, 4, 1, {4, 5, 6}, {3, 2, 3}, {1, 1, 1}, {1, 1, 1}, {1, 1, 1}),
    geometry(1, 2, 3, 1, {6, 6, 7}, {2, 3, 3}, {2, 1, 1}, {1, 1, 1}, {2, 2, 1}),
    geometry(1, 2, 2, 1, {4, 1, 5}, {2, 1, 1}, {1, 1, 1}, {3, 0, 0}, {1, 1, 1}),
    // Copies that do not fit in the scratch at once; weights that do not fit at all.
    geometry(1, 30, 2, 1, {1, 70, 64}, {1, 3, 3}, {1, 1, 1}, {0, 1, 1}, {1, 1, 1}),
    geometry(1, 300, 60, 1, {1, 3, 2}, {1, 3, 3}, {1, 1, 1}, {0, 1, 1}, {1, 1, 1}),
    // So many channels that panels are packed.
    geometry(2, 65, 67, 1, {1, 7, 6}, {1, 3, 2}, {1, 1, 1}, {0, 1, 1}, {1, 1, 1}),
    geometry(2, 65, 67, 1, {1, 7, 6}, {1, 1, 1}, {1, 1, 1}, {0, 0, 0}, {1, 1, 1}),
    geometry(2, 9, 12, 1, {1, 8, 8}, {1, 1, 1}, {1, 1, 1}, {0, 0, 0}, {1, 1, 1}),
    geometry(2, 5, 5, 1, {1, 8, 9}, {1, 1, 1}, {1, 1, 1}, {0, 1, 1}, {1, 1, 1}),
    geometry(2, 8, 4, 1, {1, 9, 8}, {1, 1, 1}, {1, 2, 2}, {0, 0, 0}, {1, 1, 1}),
    // Matrix products: many outputs, few positions, one.
    geometry(2, 20, 300, 1, {1, 9, 9}, {1, 1, 1}, {1, 1, 1}, {0, 0, 0}, {1, 1, 1}),
    geometry(2, 40, 70, 1, {1, 7, 8}, {1, 3, 3}, {1, 2, 2}, {0, 1, 1}, {1, 1, 1}),
    geometry(3, 33, 36, 1, {1, 5, 5}, {1, 5, 5}, {1, 1, 1}, {0, 0, 0}, {1, 1, 1}),
    geometry(9, 20, 40, 1, {1, 1, 1}, {1, 1, 1}, {1, 1, 1}, {0, 0, 0}, {1, 1, 1}),
    // Every tile shape: wide planes, whole and partial vectors of channels, several blocks of them,
    // strides, gaps between what a backward pass reaches, small planes that share tiles.
    geometry(1, 20, 64, 1, {1, 14, 57}, {1, 3, 3}, {1, 1, 1}, {0, 1, 1}, {1, 1, 1}),
    geometry(1, 17, 37, 1, {1, 23, 40}, {1, 3, 3}, {1, 1, 1}, {0, 1, 1}, {1, 1, 1}),
    geometry(1, 16, 40, 1, {1, 30, 30}, {1, 5, 5}, {1, 2, 2}, {0, 2, 2}, {1, 1, 1}),
    geometry(1, 40, 64, 1, {1, 16, 52}, {1, 1, 1}, {1, 1, 1}, {0, 0, 0}, {1, 1, 1}),
    geometry(2, 33, 36, 1, {1, 7, 7}, {1, 1, 1}, {1, 3, 2}, {0, 0, 0}, {1, 1, 1}),
    geometry(3, 36, 35, 1, {1, 5, 5}, {1, 3, 3}, {1, 1, 1}, {0, 1, 1}, {1, 1, 1}),
    geometry(2, 3, 40, 1, {1, 21, 23}, {1, 7, 7}, {1, 2, 2}, {0, 3, 3}, {1, 1, 1}),
    geometry(1, 4, 34, 1, {1, 1, 1500}, {1, 1, 3}, {1, 1, 1}, {0, 0, 2}, {1, 1, 2}),
    geometry(2, 18, 33, 1, {3, 4, 9}, {2, 2, 3}, {1, 2, 2}, {1, 0, 1}, {1, 1, 1}),
    geometry(1, 3, 2, 1, {1, 9, 9}, {1, 3, 3}, {1, 4, 2}, {0, 1, 1}, {1, 2, 2}),
    // Kernel taps that see only padding.
    geometry(25, 128, 3, 1, {1, 1, 1}, {1, 3, 3}, {1, 1, 1}, {0, 1, 1}, {1, 1, 1}),
    geometry(28, 128, 2, 1, {1, 2, 2}, {1, 5, 5}, {1, 1, 1}, {0, 2, 2}, {1, 1, 1}),
    // Rows so long that bands hold parts of them: in place and copied, with weights of few and many
    // channels, of volumes; taps far apart.
    geometry(1, 12, 7, 1, {1, 1, 3000}, {1, 1, 3}, {1, 1, 1}, {0, 0, 0}, {1, 1, 1}),
    geometry(1, 16, 9, 1, {1, 1, 2100}, {1, 1, 3}, {1, 1, 1}, {0, 0, 1}, {1, 1, 1}),
    geometry(2, 2, 3, 1, {2, 2, 2100}, {2, 2, 3}, {1, 1, 1}, {1, 1, 2}, {1, 1, 1}),
    geometry(2, 3, 4, 1, {1, 2, 4201}, {1, 3, 4}, {1, 2, 2}, {0, 1, 1}, {1, 1, 1}),
    geometry(1, 8, 34, 1, {1, 1, 2600}, {1, 1, 2}, {1, 1, 1}, {0, 0, 0}, {1, 1, 1024}),
    // Input gradients whose weights are pages apart from one input channel to the next.
    geometry(1, 130, 19, 1, {1, 9, 8}, {1, 3, 3}, {1, 1, 1}, {0, 1, 1}, {1, 1, 1}),
    geometry(1, 120, 33, 1, {1, 11, 30}, {1, 3, 3}, {1, 1, 1}, {0, 2, 2}, {1, 2, 2}),
    geometry(1, 64, 24, 1, {1, 12, 12}, {1, 5, 5}, {1, 1, 1}, {0, 2, 2}, {1, 1, 1}),
    // First layers with many outputs, in several bands: with strides, large or none, and odd
    // kernels.
    geometry(2, 3, 45, 1, {1, 61, 90}, {1, 3, 3}, {1, 2, 2}, {0, 1, 1}, {1, 1, 1}),
    geometry(1, 4, 33, 1, {1, 40, 67}, {1, 3, 2}, {1, 1, 1}, {0, 1, 1}, {1, 2, 1}),
    geometry(2, 1, 32, 1, {1, 35, 62}, {1, 8, 7}, {1, 4, 3}, {0, 2, 3}, {1, 1, 1}),
    geometry(2, 13, 37, 1, {1, 24, 33}, {1, 5, 5}, {1, 2, 2}, {0, 2, 2}, {1, 1, 1}),
    // Weights of channels that leave most lanes empty.
    geometry(2, 18, 21, 1, {1, 13, 12}, {1, 2, 2}, {1, 1, 1}, {0, 1, 1}, {1, 1, 1}),
    // Positions after the last whole tile, few and many, with channels in panels.
    geometry(2, 24, 40, 1, {1, 7, 7}, {1, 3, 3}, {1, 1, 1}, {0, 1, 1}, {1, 1, 1}),
    geometry(3, 40, 48, 1, {1, 5, 13}, {1, 3, 3}, {1, 1, 1}, {0, 1, 1}, {1, 1, 1}),
    geometry(2, 20, 37, 1, {1, 12, 12}, {1, 3, 3}, {1, 1, 1}, {0, 0, 0}, {1, 1, 1}),
    geometry(2, 17, 72, 1, {1, 23, 21}, {1, 3, 3}, {1, 2, 2}, {0, 1, 1}, {1, 1, 1}),
    // Every third position, of rows of several vectors, and gathered.
    geometry(2, 5, 7, 1, {1, 20, 107}, {1, 3, 3}, {1, 3, 3}, {0, 1, 1}, {1, 1, 1}),
    geometry(1, 9, 33, 1, {1, 19, 52}, {1, 3, 5}, {1, 3, 3}, {0, 2, 1}, {1, 2, 1}),
    geometry(1, 7, 33, 1, {1, 13, 103}, {1, 1, 1}, {1, 3, 3}, {0, 0, 0}, {1, 1, 1}),
    // At most one tap reaches a position of x, and none some of them, also in between.
    geometry(2, 17, 9, 1, {1, 21, 22}, {1, 2, 2}, {1, 2, 2}, {0, 1, 1}, {1, 1, 1}),
    geometry(2, 8, 40, 1, {1, 28, 30}, {1, 2, 3}, {1, 3, 3}, {0, 0, 2}, {1, 1, 1}),
    geometry(2, 40, 14, 2, {3, 22, 27}, {1, 1, 2}, {2, 1, 2}, {1, 2, 0}, {1, 1, 1}),
    // Scatter-added input gradients (im2col): with few channels, with strides and what these leave
    // out, in blocks of channels and bands of positions, of volumes and groups.
    geometry(2, 3, 40, 1, {1, 9, 21}, {1, 3, 3}, {1, 1, 1}, {0, 1, 1}, {1, 1, 1}),
    geometry(1, 4, 45, 1, {1, 11, 14}, {1, 3, 2}, {1, 1, 1}, {0, 2, 4}, {1, 2, 3}),
    geometry(1, 6, 40, 1, {1, 15, 13}, {1, 5, 5}, {1, 2, 2}, {0, 2, 2}, {1, 1, 1}),
    geometry(1, 20, 24, 1, {1, 52, 67}, {1, 3, 3}, {1, 3, 3}, {0, 1, 1}, {1, 1, 1}),
    geometry(2, 9, 3, 1, {1, 13, 14}, {1, 3, 3}, {1, 2, 2}, {0, 1, 1}, {1, 1, 1}),
    geometry(1, 20, 1, 1, {1, 14, 13}, {1, 2, 3}, {1, 2, 2}, {0, 1, 1}, {1, 2, 2}),
    geometry(2, 2, 9, 1, {1, 70, 71}, {1, 3, 2}, {1, 2, 4}, {0, 1, 0}, {1, 1, 1}),
    geometry(2, 3, 26, 1, {5, 7, 8}, {2, 3, 3}, {1, 2, 2}, {1, 1, 1}, {1, 1, 2}),
    geometry(1, 4, 60, 2, {3, 9, 10}, {2, 2, 3}, {2, 1, 2}, {0, 1, 1}, {1, 1, 1}),
    with_output(geometry(2, 3, 12, 1, {1, 10, 12}, {1, 3, 3}, {1, 2, 2}, {0, 1, 1}, {1, 1, 1}),
                {1, 4, 5}),
    // Large strides of short rows and of long ones; image by image, and some outputs at a time, for
    // so large an image.
    geometry(3, 7, 5, 1, {1, 13, 18}, {1, 3, 3}, {1, 4, 4}, {0, 1, 1}, {1, 1, 1}),
    geometry(1, 5, 36, 1, {1, 12, 150}, {1, 3, 4}, {1, 4, 5}, {0, 1, 2}, {1, 2, 3}),
    geometry(2, 5, 1, 1, {1, 204, 203}, {1, 2, 2}, {1, 4, 4}, {0, 0, 0}, {1, 1, 1}),
    geometry(1, 33, 1, 1, {1, 111, 113}, {1, 2, 2}, {1, 5, 4}, {0, 0, 0}, {1, 1, 1}),
    // Kernel taps that see only padding; weights of few outputs and many channels.
    geometry(9, 11, 13, 1, {1, 1, 1}, {1, 3, 3}, {1, 1, 1}, {0, 1, 1}, {1, 1, 1}),
    geometry(13, 6, 5, 1, {1, 3, 3}, {1, 5, 7}, {1, 2, 2}, {0, 4, 9}, {1, 2, 3}),
    geometry(2, 67, 1, 1, {1, 7, 9}, {1, 3, 3}, {1, 1, 1}, {0, 1, 1}, {1, 1, 1}),
    geometry(3, 131, 3, 1, {1, 9, 8}, {1, 3, 2}, {1, 3, 2}, {0, 1, 1}, {1, 1, 1}),
    geometry(1, 99, 5, 1, {1, 6, 7}, {1, 3, 3}, {1, 1, 1}, {0, 1, 1}, {1, 2, 1}),
    // Gathered positions: in bands, of volumes, with zeros after them and without the last.
    geometry(1, 70, 3, 1, {1, 128, 128}, {1, 1, 1}, {1, 2, 2}, {0, 0, 0}, {1, 1, 1}),
    geometry(2, 5, 7, 1, {5, 9, 10}, {1, 1, 1}, {2, 1, 3}, {0, 0, 0}, {1, 1, 1}),
    geometry(2, 40, 36, 2, {1, 23, 31}, {1, 1, 1}, {1, 2, 2}, {0, 0, 0}, {1, 1, 1}),
    with_output(geometry(2, 6, 9, 1, {1, 8, 9}, {1, 1, 1}, {1, 2, 2}, {0, 0, 0}, {1, 1, 1}),
                {1, 5, 5}),
    with_output(geometry(2, 6, 9, 1, {1, 8, 21}, {1, 1, 1}, {1, 2, 2}, {0, 0, 0}, {1, 1, 1}),
                {1, 3, 9}),
    // As many positions as the image has, of which every second is read and the others are zeros.
    with_output(geometry(2, 5, 7, 1, {1, 12, 9}, {1, 1, 1}, {1, 2, 2}, {0, 0, 0}, {1, 1, 1}),
                {1, 12, 9}),
    // More padding after the image than before it, by one and by many; less; and the output_padding
    // of transposed convolutions, which leaves the end of the image unread.
    with_output(geometry(2, 3, 4, 1, {1, 5, 7}, {1, 2, 4}, {1, 1, 1}, {0, 0, 1}, {1, 1, 1}),
                {1, 5, 7}),
    with_output(geometry(2, 3, 4, 1, {1, 1, 9}, {1, 1, 2}, {1, 1, 1}, {0, 0, 1}, {1, 1, 3}),
                {1, 1, 9}),
    with_output(geometry(2, 3, 2, 1, {3, 4, 5}, {2, 2, 2}, {1, 1, 1}, {0, 0, 0}, {1, 1, 1}),
                {3, 4, 5}),
    with_output(geometry(2, 2, 3, 1, {1, 3, 4}, {1, 3, 5}, {1, 1, 1}, {0, 0, 1}, {1, 1, 2}),
                {1, 8, 13}),
    with_output(geometry(1, 2, 3, 1, {1, 6, 7}, {1, 3, 3}, {1, 1, 1}, {0, 2, 2}, {1, 1, 1}),
                {1, 6, 5}),
    with_output(geometry(2, 70, 66, 1, {1, 4, 5}, {1, 2, 2}, {1, 1, 1}, {0, 0, 0}, {1, 1, 1}),
                {1, 4, 5}),
    with_output(geometry(1, 2, 3, 1, {1, 9, 12}, {1, 3, 3}, {1, 1, 1}, {0, 1, 1}, {1, 2, 3}),
                {1, 6, 6}),
    with_output(geometry(2, 4, 2, 2, {1, 9, 12}, {1, 3, 3}, {1, 2, 3}, {0, 1, 0}, {1, 2, 4}),
                {1, 2, 1}),
};

/// Calls f(index of x or -1 in the padding, index of w, index of y) for every product of the
/// convolution.
template <class F>
void for_each_product(const conv_geometry& g, F f) {
  const dim_t inputs = g.in_channels / g.groups, outputs = g.out_channels / g.groups;
  dim_t y = 0;
  for (dim_t b = 0; b < g.batch; ++b)
    for (dim_t oc = 0; oc < g.out_channels; ++oc)
      for (dim_t oz = 0; oz < g.out[0]; ++oz)
        for (dim_t oy = 0; oy < g.out[1]; ++oy)
          for (dim_t ox = 0; ox < g.out[2]; ++ox, ++y)
            for (dim_t ic = 0; ic < inputs; ++ic)
              for (dim_t kz = 0; kz < g.kernel[0]; ++kz)
                for (dim_t ky = 0; ky < g.kernel[1]; ++ky)
                  for (dim_t kx = 0; kx < g.kernel[2]; ++kx) {
                    const dim_t z = oz * g.stride[0] - g.padding[0] + kz * g.dilation[0];
                    const dim_t r = oy * g.stride[1] - g.padding[1] + ky * g.dilation[1];
                    const dim_t c = ox * g.stride[2] - g.padding[2] + kx * g.dilation[2];
                    if (z < 0 || z >= g.in[0] || r < 0 || r >= g.in[1] || c < 0 || c >= g.in[2])
                      continue;
                    const dim_t channel = oc / outputs * inputs + ic;
                    f((((b * g.in_channels + channel) * g.in[0] + z) * g.in[1] + r) * g.in[2] + c,
                      (((oc * inputs + ic) * g.kernel[0] + kz) * g.kernel[1] + ky) * g.kernel[2] +
                          kx,
                      y);
                  }
}

std::size_t at(dim_t i) { return static_cast<std::size_t>(i); }

}  // namespace

TEST_CASE_TEMPLATE("convolutions of every kind, forward and all three gradients", T, float,
                   double) {
  generator r(71);
  int which = 0;
  for (const conv_geometry& g : geometries) {
    const dim_t in_plane = conv_geometry::volume(g.in), out_plane = conv_geometry::volume(g.out);
    const dim_t nx = g.batch * g.in_channels * in_plane, ny = g.batch * g.out_channels * out_plane;
    const dim_t nw = g.out_channels * (g.in_channels / g.groups) * conv_geometry::volume(g.kernel);
    const guarded<T> x(nx, r), w(nw, r), bias(g.out_channels, r), dy(ny, r);
    std::vector<double> ey(at(ny)), edx(at(nx)), edw(at(nw), 2), edb(at(g.out_channels), 2);
    for_each_product(g, [&](dim_t i, dim_t j, dim_t o) {
      ey[at(o)] += static_cast<double>(x[i]) * static_cast<double>(w[j]);
      edx[at(i)] += static_cast<double>(dy[o]) * static_cast<double>(w[j]);
      edw[at(j)] += static_cast<double>(dy[o]) * static_cast<double>(x[i]);
    });
    std::vector<double> with_bias = ey;
    for (dim_t o = 0; o < ny; ++o) {
      const dim_t channel = o / out_plane % g.out_channels;
      with_bias[at(o)] += static_cast<double>(bias[channel]);
      edb[at(channel)] += static_cast<double>(dy[o]);
    }
    const guarded<T> transposed_bias(g.in_channels, r);
    std::vector<double> edx_with_bias = edx;
    for (dim_t i = 0; i < nx; ++i)
      edx_with_bias[at(i)] += static_cast<double>(transposed_bias[i / in_plane % g.in_channels]);
    const double tolerance = rounding<T> * (32 + 0.4 * static_cast<double>(out_plane * g.batch) +
                                            static_cast<double>(nw) / 50);
    for_each_set([&] {
      INFO("geometry " << which);
      const T garbage = std::numeric_limits<T>::quiet_NaN();
      guarded<T> y(ny, garbage), z(ny, garbage), dx(nx, garbage), dx2(nx, garbage), dw(nw, T(2)),
          db(g.out_channels, T(2));
      cpu::conv_forward<T>(g, x.data(), w.data(), bias.data(), y.data());
      cpu::conv_forward<T>(g, x.data(), w.data(), nullptr, z.data());
      cpu::conv_backward_data<T>(g, dy.data(), w.data(), dx.data());
      cpu::conv_backward_data<T>(g, dy.data(), w.data(), dx2.data(), transposed_bias.data());
      cpu::conv_backward_weights<T>(g, x.data(), dy.data(), dw.data(), true);
      cpu::conv_backward_bias<T>(g, dy.data(), db.data(), true);
      CHECK(all_close(y, with_bias, tolerance));
      CHECK(all_close(z, ey, tolerance));
      CHECK(all_close(dx, edx, tolerance));
      CHECK(all_close(dx2, edx_with_bias, tolerance));
      CHECK(all_close(dw, edw, tolerance));
      CHECK(all_close(db, edb, tolerance));
      for (const auto* a : {&y, &z, &dx, &dx2, &dw, &db}) CHECK(a->intact());

      guarded<T> fresh(nw, garbage), fresh_bias(g.out_channels, garbage);
      cpu::conv_backward_weights<T>(g, x.data(), dy.data(), fresh.data(), false);
      cpu::conv_backward_bias<T>(g, dy.data(), fresh_bias.data(), false);
      std::vector<double> without = edw, without_bias = edb;
      for (double& v : without) v -= 2;
      for (double& v : without_bias) v -= 2;
      CHECK(all_close(fresh, without, tolerance));
      CHECK(all_close(fresh_bias, without_bias, tolerance));
    });
    ++which;
  }
}

TEST_CASE_TEMPLATE("convolutions give the same bits wherever their arrays lie", T, float, double) {
  generator r(72);
  int which = 0;
  for (const conv_geometry& g : geometries) {
    const dim_t nx = g.batch * g.in_channels * conv_geometry::volume(g.in),
                ny = g.batch * g.out_channels * conv_geometry::volume(g.out);
    const dim_t nw = g.out_channels * (g.in_channels / g.groups) * conv_geometry::volume(g.kernel);
    const guarded<T> x(nx, r), w(nw, r), bias(g.out_channels, r), dy(ny, r);
    // Without margins, so that a sanitizer sees reads past their ends.
    const auto exact = [](const guarded<T>& a) {
      return std::vector<T>(a.data(), a.data() + a.size());
    };
    const std::vector<T> x2 = exact(x), w2 = exact(w), bias2 = exact(bias), dy2 = exact(dy);
    for_each_set([&] {
      INFO("geometry " << which);
      guarded<T> y(ny), dx(nx), dw(nw), y2(ny, T(0), 3), dx2(nx, T(0), 3), dw2(nw, T(0), 3);
      cpu::conv_forward<T>(g, x.data(), w.data(), bias.data(), y.data());
      cpu::conv_backward_data<T>(g, dy.data(), w.data(), dx.data());
      cpu::conv_backward_weights<T>(g, x.data(), dy.data(), dw.data(), false);
      cpu::conv_forward<T>(g, x2.data(), w2.data(), bias2.data(), y2.data());
      cpu::conv_backward_data<T>(g, dy2.data(), w2.data(), dx2.data());
      cpu::conv_backward_weights<T>(g, x2.data(), dy2.data(), dw2.data(), false);
      CHECK(exact(y) == exact(y2));
      CHECK(exact(dx) == exact(dx2));
      CHECK(exact(dw) == exact(dw2));
    });
    ++which;
  }
}

TEST_CASE_TEMPLATE("what is not finite reaches the weights that see it, and no other", T, float,
                   double) {
  // Only the last column of the kernel reads the last element of a row of x.
  const conv_geometry g =
      geometry(2, 2, 3, 1, {1, 4, 9}, {1, 2, 3}, {1, 1, 1}, {0, 0, 0}, {1, 1, 1});
  const dim_t nx = 2 * 2 * 36, ny = 2 * 3 * 21, nw = 3 * 2 * 6;
  generator r(73);
  for (const T bad : {std::numeric_limits<T>::quiet_NaN(), -std::numeric_limits<T>::infinity()}) {
    guarded<T> x(nx, r);
    const guarded<T> dy(ny, r);
    x[36 + 2 * 9 + 8] = bad;
    for_each_set([&] {
      guarded<T> dw(nw);
      cpu::conv_backward_weights<T>(g, x.data(), dy.data(), dw.data(), false);
      for (dim_t i = 0; i < nw; ++i) CHECK(std::isfinite(dw[i]) == !(i / 6 % 2 == 1 && i % 3 == 2));
    });
  }
}

TEST_CASE_TEMPLATE("convolutions of random geometries", T, float, double) {
  const std::uint64_t seed = 20261121;
  generator r(seed);
  for (int round = 0; round < 60; ++round) {
    conv_geometry g{};
    g.batch = 1 + r.below(3);
    g.groups = r.below(4) == 0 ? 2 : 1;
    g.in_channels = g.groups * (1 + r.below(round % 3 == 0 ? 40 : 6));
    g.out_channels = g.groups * (1 + r.below(round % 4 == 0 ? 70 : 10));
    for (std::size_t d = 0; d < 3; ++d) {
      const bool flat = d == 0 && round % 5 != 0;
      g.kernel[d] = flat ? 1 : 1 + r.below(4);
      g.stride[d] = flat ? 1 : 1 + r.below(3);
      g.dilation[d] = flat ? 1 : 1 + r.below(3);
      g.padding[d] = flat ? 0 : r.below(4);
      const dim_t reach = g.dilation[d] * (g.kernel[d] - 1) + 1;
      const dim_t least = reach > 2 * g.padding[d] ? reach - 2 * g.padding[d] : 1;
      g.in[d] = flat ? 1 : least + r.below(d == 0 ? 3 : 14);
      g.out[d] = (g.in[d] + 2 * g.padding[d] - reach) / g.stride[d] + 1;
    }
    const dim_t in_plane = conv_geometry::volume(g.in), out_plane = conv_geometry::volume(g.out);
    const dim_t nx = g.batch * g.in_channels * in_plane, ny = g.batch * g.out_channels * out_plane;
    const dim_t nw = g.out_channels * (g.in_channels / g.groups) * conv_geometry::volume(g.kernel);
    const guarded<T> x(nx, r), w(nw, r), dy(ny, r), bias(g.out_channels, r), residual(ny, r);
    std::vector<double> ey(at(ny)), edx(at(nx)), edw(at(nw));
    for_each_product(g, [&](dim_t i, dim_t j, dim_t o) {
      ey[at(o)] += static_cast<double>(x[i]) * static_cast<double>(w[j]);
      edx[at(i)] += static_cast<double>(dy[o]) * static_cast<double>(w[j]);
      edw[at(j)] += static_cast<double>(dy[o]) * static_cast<double>(x[i]);
    });
    std::vector<double> eadded = ey;
    for (dim_t o = 0; o < ny; ++o) {
      const double b = static_cast<double>(bias[o / out_plane % g.out_channels]);
      const double sum = ey[at(o)] + b + static_cast<double>(residual[o]);
      eadded[at(o)] = std::tanh(sum);
      ey[at(o)] = ey[at(o)] + b > 0 ? ey[at(o)] + b : 0;
    }
    const double tolerance = rounding<T> * (32 + 0.4 * static_cast<double>(out_plane * g.batch) +
                                            static_cast<double>(nw) / 25);
    for_each_set([&] {
      INFO("seed " << seed << ", round " << round);
      guarded<T> y(ny), added(ny), one(ny), dx(nx), dw(nw);
      cpu::conv_forward<T>(g, x.data(), w.data(), bias.data(), y.data(),
                           {nullptr, cpu::activation::relu});
      cpu::conv_forward<T>(g, x.data(), w.data(), bias.data(), added.data(),
                           {residual.data(), cpu::activation::tanh});
      cpu::conv_backward_data<T>(g, dy.data(), w.data(), dx.data());
      cpu::conv_backward_weights<T>(g, x.data(), dy.data(), dw.data(), false);
      CHECK(all_close(y, ey, tolerance));
      CHECK(all_close(added, eadded, tolerance));
      CHECK(all_close(dx, edx, tolerance));
      CHECK(all_close(dw, edw, tolerance));
      for (const auto* a : {&y, &added, &dx, &dw}) CHECK(a->intact());
      // An image gives the same result alone, unless it is very small.
      if (out_plane <= 8) return;
      conv_geometry single = g;
      single.batch = 1;
      for (dim_t b = 0; b < g.batch; ++b)
        cpu::conv_forward<T>(single, x.data() + b * (nx / g.batch), w.data(), bias.data(),
                             one.data() + b * (ny / g.batch), {nullptr, cpu::activation::relu});
      bool same = true;
      for (dim_t o = 0; o < ny; ++o) same = same && y[o] == one[o];
      CHECK(same);
    });
  }
}

TEST_CASE_TEMPLATE("an image of few positions gives the same alone", T, float, double) {
  generator r(75);
  for (const conv_geometry& g :
       {geometry(5, 40, 37, 1, {1, 5, 2}, {1, 5, 5}, {1, 1, 1}, {0, 2, 2}, {1, 1, 1}),
        geometry(9, 70, 64, 1, {1, 3, 3}, {1, 1, 1}, {1, 1, 1}, {0, 0, 0}, {1, 1, 1}),
        geometry(30, 16, 33, 1, {1, 4, 4}, {1, 3, 3}, {1, 1, 1}, {0, 1, 1}, {1, 1, 1}),
        geometry(3, 64, 90, 1, {1, 7, 7}, {1, 1, 1}, {1, 1, 1}, {0, 0, 0}, {1, 1, 1})}) {
    conv_geometry single = g;
    single.batch = 1;
    const dim_t nx = g.in_channels * conv_geometry::volume(g.in),
                ny = g.out_channels * conv_geometry::volume(g.out);
    const guarded<T> x(g.batch * nx, r),
        w(g.out_channels * g.in_channels * conv_geometry::volume(g.kernel), r),
        bias(g.out_channels, r);
    for_each_set([&] {
      guarded<T> y(g.batch * ny), one(g.batch * ny);
      cpu::conv_forward<T>(g, x.data(), w.data(), bias.data(), y.data());
      dim_t different = 0;
      for (dim_t b = 0; b < g.batch; ++b)
        cpu::conv_forward<T>(single, x.data() + b * nx, w.data(), bias.data(), one.data() + b * ny);
      for (dim_t i = 0; i < y.size(); ++i) different += y[i] != one[i];
      CHECK(different == 0);
    });
  }
}

TEST_CASE_TEMPLATE("an image of few channels gives the same alone", T, float, double) {
  generator r(76);
  for (const conv_geometry& g :
       {geometry(35, 6, 16, 1, {1, 14, 14}, {1, 5, 5}, {1, 1, 1}, {0, 0, 0}, {1, 1, 1}),
        geometry(19, 5, 13, 1, {1, 9, 7}, {1, 3, 3}, {1, 1, 1}, {0, 1, 1}, {1, 1, 1}),
        geometry(11, 8, 14, 1, {1, 14, 10}, {1, 5, 5}, {1, 1, 1}, {0, 2, 2}, {1, 1, 1}),
        geometry(17, 9, 10, 1, {1, 15, 11}, {1, 3, 3}, {1, 2, 2}, {0, 1, 1}, {1, 1, 1}),
        geometry(18, 3, 8, 1, {1, 7, 9}, {1, 3, 3}, {1, 2, 2}, {0, 1, 1}, {1, 1, 1}),
        geometry(9, 4, 12, 1, {3, 6, 7}, {2, 3, 3}, {1, 1, 1}, {1, 1, 1}, {1, 1, 1})}) {
    conv_geometry single = g;
    single.batch = 1;
    const dim_t nx = g.in_channels * conv_geometry::volume(g.in),
                ny = g.out_channels * conv_geometry::volume(g.out);
    const guarded<T> x(g.batch * nx, r), dy(g.batch * ny, r), residual(g.batch * ny, r),
        w(g.out_channels * g.in_channels * conv_geometry::volume(g.kernel), r),
        bias(g.out_channels, r), scale(g.out_channels, r);
    for_each_set([&] {
      guarded<T> y(g.batch * ny), one(g.batch * ny), added(g.batch * ny), one_added(g.batch * ny),
          dx(g.batch * nx), one_dx(g.batch * nx);
      const auto run = [&](const conv_geometry& of, dim_t b, guarded<T>& to, guarded<T>& to_added,
                           guarded<T>& to_dx) {
        cpu::conv_forward<T>(of, x.data() + b * nx, w.data(), bias.data(), to.data() + b * ny,
                             {nullptr, cpu::activation::relu});
        cpu::conv_forward<T>(of, x.data() + b * nx, w.data(), bias.data(), to_added.data() + b * ny,
                             {residual.data() + b * ny, cpu::activation::tanh, scale.data()});
        cpu::conv_backward_data<T>(of, dy.data() + b * ny, w.data(), to_dx.data() + b * nx);
      };
      run(g, 0, y, added, dx);
      for (dim_t b = 0; b < g.batch; ++b) run(single, b, one, one_added, one_dx);
      dim_t different = 0;
      for (dim_t i = 0; i < y.size(); ++i) different += y[i] != one[i] || added[i] != one_added[i];
      for (dim_t i = 0; i < dx.size(); ++i) different += dx[i] != one_dx[i];
      CHECK(different == 0);
      for (const auto* a : {&y, &added, &dx}) CHECK(a->intact());
    });
  }
}

TEST_CASE("what is not finite reaches what meets it, and nothing else, in every direction") {
  ikebana::set_exact_convolution(true);
  for (const conv_geometry& g :
       {geometry(2, 3, 5, 1, {1, 6, 9}, {1, 3, 3}, {1, 1, 1}, {0, 1, 1}, {1, 1, 1}),
        geometry(2, 20, 40, 1, {1, 6, 30}, {1, 3, 3}, {1, 1, 1}, {0, 1, 1}, {1, 1, 1}),
        geometry(2, 18, 64, 1, {1, 14, 57}, {1, 3, 3}, {1, 1, 1}, {0, 1, 1}, {1, 1, 1}),
        geometry(2, 18, 34, 1, {1, 9, 8}, {1, 3, 2}, {1, 2, 2}, {0, 1, 0}, {1, 1, 1})}) {
    const dim_t nx = g.batch * g.in_channels * conv_geometry::volume(g.in),
                ny = g.batch * g.out_channels * conv_geometry::volume(g.out),
                nw = g.out_channels * g.in_channels * conv_geometry::volume(g.kernel);
    generator r(74);
    guarded<float> x(nx, r), dy(ny, r);
    const guarded<float> w(nw, r);
    // In the middle, since non-finite elements of dy also meet the padding of x.
    const dim_t bad_x = nx / 2 + 3, bad_dy = ny / 2 + g.out[1] / 2 * g.out[2] + g.out[2] / 2;
    x[bad_x] = std::numeric_limits<float>::quiet_NaN();
    dy[bad_dy] = std::numeric_limits<float>::infinity();
    std::vector<char> meets_y(at(ny)), meets_dx(at(nx)), meets_dw(at(nw));
    for_each_product(g, [&](dim_t i, dim_t j, dim_t o) {
      if (i == bad_x) meets_y[at(o)] = meets_dw[at(j)] = 1;
      if (o == bad_dy) meets_dx[at(i)] = meets_dw[at(j)] = 1;
    });
    for_each_set([&] {
      guarded<float> y(ny), dx(nx), dw(nw);
      cpu::conv_forward<float>(g, x.data(), w.data(), nullptr, y.data());
      cpu::conv_backward_data<float>(g, dy.data(), w.data(), dx.data());
      cpu::conv_backward_weights<float>(g, x.data(), dy.data(), dw.data(), false);
      dim_t wrong = 0;
      for (dim_t i = 0; i < ny; ++i) wrong += std::isfinite(y[i]) == (meets_y[at(i)] != 0);
      for (dim_t i = 0; i < nx; ++i) wrong += std::isfinite(dx[i]) == (meets_dx[at(i)] != 0);
      for (dim_t i = 0; i < nw; ++i) wrong += std::isfinite(dw[i]) == (meets_dw[at(i)] != 0);
      CHECK(wrong == 0);
    });
  }
  ikebana::set_exact_convolution(false);
}
