#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "ikebana/cpu/conv.hpp"
#include "ikebana/cpu/conv/depthwise.hpp"
#include "ikebana/cpu/threads.hpp"
#include "support.hpp"

using namespace cpu_test;
namespace cpu = ikebana::cpu;
using cpu::conv_geometry;

namespace {

template <class T>
bool depthwise_forward(const cpu::conv_geometry& g, const T* x, const T* w, const T* bias,
                       const cpu::conv_epilogue<T>& then, T* y) {
  return cpu::detail::depthwise_by<T>(cpu::conv_direction::forward, g,
                                      {x, w, nullptr, y, then, bias});
}
template <class T>
bool depthwise_backward_data(const cpu::conv_geometry& g, const T* dy, const T* w, const T* bias,
                             T* dx) {
  return cpu::detail::depthwise_by<T>(cpu::conv_direction::data, g, {dy, w, bias, dx});
}
template <class T>
bool depthwise_backward_weights(const cpu::conv_geometry& g, const T* x, const T* dy, T* dw,
                                bool accumulate) {
  return cpu::detail::depthwise_by<T>(cpu::conv_direction::weights, g,
                                      {x, dy, nullptr, dw, {}, nullptr, accumulate});
}

using extents = std::array<dim_t, 3>;

constexpr conv_geometry geometry(dim_t batch, dim_t groups, dim_t inputs, dim_t outputs, extents in,
                                 extents kernel, extents stride, extents padding,
                                 extents dilation = {1, 1, 1}) {
  conv_geometry g{batch, groups * inputs, groups * outputs, groups,  in,
                  {},    kernel,          stride,           padding, dilation};
  for (std::size_t d = 0; d < 3; ++d)
    g.out[d] = (in[d] + 2 * padding[d] - dilation[d] * (kernel[d] - 1) - 1) / stride[d] + 1;
  return g;
}
conv_geometry with_output(conv_geometry g, extents out) {
  g.out = out;
  return g;
}

const conv_geometry geometries[] = {
    geometry(2, 5, 1, 1, {1, 9, 37}, {1, 3, 3}, {1, 1, 1}, {0, 1, 1}),
    geometry(1, 3, 1, 1, {1, 56, 56}, {1, 3, 3}, {1, 1, 1}, {0, 1, 1}),
    geometry(2, 19, 1, 1, {1, 7, 7}, {1, 3, 3}, {1, 1, 1}, {0, 1, 1}),
    geometry(2, 3, 1, 1, {1, 14, 14}, {1, 3, 3}, {1, 1, 1}, {0, 1, 1}),
    geometry(2, 3, 1, 1, {1, 8, 17}, {1, 3, 3}, {1, 1, 1}, {0, 1, 1}),
    geometry(2, 3, 1, 1, {1, 11, 15}, {1, 3, 3}, {1, 1, 1}, {0, 0, 0}),
    geometry(2, 3, 1, 1, {1, 7, 8}, {1, 3, 3}, {1, 1, 1}, {0, 2, 2}),
    geometry(2, 3, 1, 1, {1, 7, 6}, {1, 3, 3}, {1, 1, 1}, {0, 1, 3}),
    geometry(2, 3, 1, 1, {1, 14, 15}, {1, 5, 5}, {1, 1, 1}, {0, 2, 2}),
    geometry(1, 3, 1, 1, {1, 13, 20}, {1, 7, 7}, {1, 1, 1}, {0, 3, 3}),
    geometry(2, 5, 1, 1, {1, 37, 5}, {1, 3, 3}, {1, 1, 1}, {0, 1, 1}),
    geometry(2, 130, 1, 1, {1, 6, 7}, {1, 3, 3}, {1, 1, 1}, {0, 1, 1}),
    geometry(1, 4, 1, 1, {1, 35, 9}, {1, 3, 3}, {1, 1, 1}, {0, 0, 1}),
    geometry(2, 40, 1, 1, {1, 6, 9}, {1, 3, 3}, {1, 1, 1}, {0, 1, 1}),
    geometry(2, 35, 1, 1, {1, 4, 4}, {1, 3, 3}, {1, 1, 1}, {0, 1, 1}),
    geometry(2, 21, 1, 1, {1, 5, 1}, {1, 3, 3}, {1, 1, 1}, {0, 1, 1}),
    geometry(1, 7, 1, 1, {1, 40, 8}, {1, 3, 3}, {1, 1, 1}, {0, 1, 1}),
    geometry(2, 5, 1, 1, {1, 17, 17}, {1, 3, 3}, {1, 1, 1}, {0, 1, 1}),
    geometry(2, 7, 1, 1, {1, 7, 7}, {1, 5, 5}, {1, 1, 1}, {0, 2, 2}),
    geometry(1, 5, 1, 1, {1, 35, 31}, {1, 5, 5}, {1, 1, 1}, {0, 1, 2}),
    geometry(2, 9, 1, 1, {1, 11, 12}, {1, 5, 5}, {1, 2, 2}, {0, 2, 2}),
    geometry(1, 4, 1, 1, {1, 41, 29}, {1, 5, 5}, {1, 2, 2}, {0, 5, 6}),
    geometry(2, 9, 1, 1, {1, 16, 10}, {1, 3, 3}, {1, 1, 1}, {0, 0, 0}),
    geometry(2, 9, 1, 1, {1, 15, 14}, {1, 3, 3}, {1, 2, 2}, {0, 1, 1}),
    geometry(1, 6, 1, 1, {1, 66, 15}, {1, 3, 3}, {1, 2, 2}, {0, 0, 0}),
    geometry(1, 4, 1, 1, {1, 1, 20}, {1, 3, 3}, {1, 1, 1}, {0, 1, 1}),
    geometry(2, 3, 1, 1, {1, 37, 12}, {1, 3, 3}, {1, 2, 2}, {0, 1, 1}),
    geometry(2, 3, 1, 1, {1, 15, 37}, {1, 3, 3}, {1, 2, 2}, {0, 1, 1}),
    geometry(1, 2, 1, 1, {1, 16, 70}, {1, 3, 3}, {1, 2, 2}, {0, 1, 1}),
    geometry(2, 4, 1, 1, {1, 29, 31}, {1, 3, 3}, {1, 2, 2}, {0, 1, 1}),
    geometry(1, 5, 1, 1, {1, 30, 61}, {1, 3, 3}, {1, 2, 2}, {0, 1, 1}),
    geometry(2, 3, 1, 1, {1, 19, 34}, {1, 3, 3}, {1, 2, 2}, {0, 0, 0}),
    geometry(2, 20, 1, 1, {1, 6, 7}, {1, 3, 3}, {1, 2, 2}, {0, 1, 1}),
    geometry(2, 3, 1, 1, {1, 17, 18}, {1, 5, 5}, {1, 2, 2}, {0, 2, 2}),
    geometry(1, 3, 1, 1, {1, 12, 13}, {1, 7, 7}, {1, 2, 2}, {0, 3, 3}),
    geometry(2, 3, 1, 1, {1, 28, 28}, {1, 5, 5}, {1, 2, 2}, {0, 2, 2}),
    geometry(1, 17, 1, 1, {1, 15, 16}, {1, 7, 7}, {1, 2, 2}, {0, 1, 2}),
    geometry(1, 2, 1, 1, {1, 9, 66}, {1, 3, 5}, {1, 2, 2}, {0, 0, 1}),
    geometry(1, 2, 1, 1, {1, 10, 31}, {1, 5, 2}, {1, 2, 2}, {0, 3, 0}),
    geometry(1, 2, 1, 1, {1, 5, 4}, {1, 3, 3}, {1, 2, 2}, {0, 4, 5}),
    geometry(1, 2, 1, 1, {1, 7, 6}, {1, 1, 1}, {1, 2, 2}, {0, 0, 0}),
    geometry(1, 3, 1, 1, {1, 17, 23}, {1, 3, 4}, {1, 3, 4}, {0, 1, 2}),
    geometry(1, 2, 1, 1, {1, 11, 40}, {1, 2, 2}, {1, 3, 3}, {0, 0, 0}),
    geometry(2, 2, 1, 1, {1, 13, 20}, {1, 3, 3}, {1, 1, 1}, {0, 2, 3}, {1, 2, 3}),
    geometry(1, 2, 1, 1, {1, 21, 20}, {1, 3, 3}, {1, 2, 2}, {0, 2, 2}, {1, 2, 3}),
    geometry(1, 2, 1, 1, {1, 21, 25}, {1, 3, 3}, {1, 4, 4}, {0, 2, 2}, {1, 2, 2}),
    // Strips within rows and at both ends, with several blocks of rows, little or odd padding.
    geometry(3, 3, 1, 1, {1, 37, 42}, {1, 3, 3}, {1, 1, 1}, {0, 1, 1}),
    geometry(3, 2, 1, 1, {1, 43, 39}, {1, 3, 3}, {1, 1, 1}, {0, 0, 2}),
    geometry(3, 3, 1, 1, {1, 36, 71}, {1, 3, 3}, {1, 2, 2}, {0, 1, 1}),
    geometry(3, 2, 1, 1, {1, 39, 70}, {1, 3, 3}, {1, 2, 2}, {0, 2, 0}),
    geometry(2, 5, 1, 1, {1, 6, 5}, {1, 3, 3}, {1, 2, 2}, {0, 2, 2}),
    geometry(2, 5, 1, 1, {1, 16, 16}, {1, 3, 3}, {1, 2, 2}, {0, 1, 1}),
    geometry(2, 3, 1, 1, {1, 9, 32}, {1, 3, 3}, {1, 2, 2}, {0, 1, 1}),
    geometry(2, 5, 1, 1, {1, 7, 16}, {1, 5, 5}, {1, 2, 2}, {0, 2, 2}),
    geometry(1, 4, 1, 1, {1, 5, 31}, {1, 5, 5}, {1, 2, 2}, {0, 2, 2}),
    geometry(2, 4, 1, 1, {1, 2, 7}, {1, 3, 3}, {1, 1, 1}, {0, 1, 1}),
    geometry(2, 4, 1, 1, {1, 3, 9}, {1, 3, 3}, {1, 2, 2}, {0, 1, 1}),
    geometry(2, 3, 1, 1, {1, 23, 71}, {1, 5, 5}, {1, 2, 2}, {0, 2, 2}),
    geometry(2, 5, 1, 1, {1, 14, 13}, {1, 5, 5}, {1, 2, 2}, {0, 2, 2}),
    geometry(2, 5, 1, 1, {1, 1, 2}, {1, 5, 5}, {1, 2, 2}, {0, 2, 2}),
    // Planes as one row.
    geometry(2, 9, 1, 1, {1, 4, 4}, {1, 5, 5}, {1, 1, 1}, {0, 2, 2}),
    geometry(2, 11, 1, 1, {1, 3, 3}, {1, 5, 5}, {1, 1, 1}, {0, 2, 2}),
    geometry(2, 14, 1, 1, {1, 2, 2}, {1, 3, 3}, {1, 1, 1}, {0, 1, 1}),
    geometry(1, 17, 1, 1, {1, 1, 1}, {1, 3, 3}, {1, 1, 1}, {0, 1, 1}),
    geometry(2, 6, 1, 1, {1, 21, 3}, {1, 3, 3}, {1, 1, 1}, {0, 1, 1}),
    // More outputs or inputs than one per group.
    geometry(2, 3, 1, 2, {1, 9, 18}, {1, 3, 3}, {1, 1, 1}, {0, 1, 1}),
    geometry(2, 3, 2, 1, {1, 9, 18}, {1, 3, 3}, {1, 2, 2}, {0, 1, 1}),
    geometry(2, 3, 2, 2, {1, 9, 11}, {1, 5, 3}, {1, 1, 1}, {0, 1, 1}),
    geometry(2, 2, 3, 2, {1, 8, 9}, {1, 1, 1}, {1, 1, 1}, {0, 0, 0}),
    // One dimension; long enough for several tiles.
    geometry(2, 3, 1, 1, {1, 1, 50}, {1, 1, 3}, {1, 1, 1}, {0, 0, 1}),
    geometry(1, 3, 1, 1, {1, 1, 331}, {1, 1, 9}, {1, 1, 2}, {0, 0, 4}),
    geometry(1, 2, 1, 1, {1, 1, 20011}, {1, 1, 4}, {1, 1, 1}, {0, 0, 2}),
    geometry(1, 1, 1, 1, {1, 1, 9001}, {1, 1, 5}, {1, 1, 3}, {0, 0, 2}, {1, 1, 7}),
    geometry(2, 7, 1, 1, {1, 1, 1100}, {1, 1, 5}, {1, 1, 1}, {0, 0, 2}),
    geometry(2, 5, 1, 1, {1, 1, 300}, {1, 1, 3}, {1, 1, 1}, {0, 0, 9}, {1, 1, 8}),
    geometry(1, 3, 1, 1, {1, 1, 250}, {1, 1, 12}, {1, 1, 1}, {0, 0, 0}, {1, 1, 3}),
    geometry(1, 2, 1, 1, {1, 1, 17}, {1, 1, 31}, {1, 1, 1}, {0, 0, 15}),
    // Rows shifted in registers: groups of them and the rest, of several vectors.
    geometry(2, 7, 1, 1, {1, 1, 7}, {1, 1, 3}, {1, 1, 1}, {0, 0, 1}),
    geometry(3, 20, 1, 1, {1, 1, 70}, {1, 1, 3}, {1, 1, 1}, {0, 0, 1}),
    geometry(2, 5, 1, 1, {1, 3, 230}, {1, 1, 6}, {1, 1, 1}, {0, 0, 3}),
    geometry(2, 11, 1, 1, {1, 1, 30}, {1, 1, 5}, {1, 1, 1}, {0, 0, 0}),
    geometry(1, 5, 1, 1, {1, 1, 61}, {1, 1, 9}, {1, 1, 1}, {0, 0, 7}, {1, 1, 2}),
    geometry(1, 3, 1, 1, {1, 1, 401}, {1, 1, 15}, {1, 1, 1}, {0, 0, 7}),
    geometry(2, 3, 1, 1, {1, 6, 20}, {1, 1, 3}, {1, 1, 1}, {0, 0, 2}),
    geometry(1, 9, 1, 1, {1, 1, 14}, {1, 1, 2}, {1, 1, 1}, {0, 0, 3}, {1, 1, 5}),
    // Strides, in several parts, with remainders that read nothing, with much or no padding.
    geometry(2, 5, 1, 1, {1, 1, 100}, {1, 1, 3}, {1, 1, 2}, {0, 0, 1}),
    geometry(1, 3, 1, 1, {1, 1, 2300}, {1, 1, 4}, {1, 1, 2}, {0, 0, 1}),
    geometry(2, 19, 1, 1, {1, 1, 331}, {1, 1, 5}, {1, 1, 3}, {0, 0, 4}, {1, 1, 2}),
    geometry(1, 4, 1, 1, {1, 1, 70}, {1, 1, 7}, {1, 1, 2}, {0, 0, 9}),
    geometry(3, 21, 1, 1, {1, 1, 165}, {1, 1, 2}, {1, 1, 2}, {0, 0, 0}),
    geometry(1, 2, 1, 1, {1, 1, 41}, {1, 1, 1}, {1, 1, 2}, {0, 0, 0}),
    geometry(1, 3, 1, 1, {1, 1, 90}, {1, 1, 3}, {1, 1, 2}, {0, 0, 2}, {1, 1, 2}),
    // The first remainder reads nothing, others do.
    geometry(2, 9, 1, 1, {1, 1, 41}, {1, 1, 1}, {1, 1, 2}, {0, 0, 1}),
    geometry(2, 9, 1, 1, {3, 9, 10}, {2, 3, 3}, {1, 2, 2}, {1, 1, 1}, {1, 2, 2}),
    with_output(geometry(2, 3, 1, 1, {1, 1, 95}, {1, 1, 3}, {1, 1, 2}, {0, 0, 1}), {1, 1, 40}),
    with_output(geometry(1, 3, 1, 1, {1, 1, 9}, {1, 1, 3}, {1, 1, 2}, {0, 0, 30}), {1, 1, 40}),
    geometry(2, 3, 1, 1, {1, 5, 133}, {1, 1, 7}, {1, 1, 1}, {0, 0, 3}),
    geometry(2, 4, 1, 1, {1, 41, 9}, {1, 3, 1}, {1, 1, 1}, {0, 1, 0}),
    geometry(1, 3, 1, 1, {1, 60, 23}, {1, 11, 1}, {1, 1, 1}, {0, 5, 0}, {1, 2, 1}),
    // Two channels per vector, with all rows in the source or not; dilated rows.
    geometry(2, 9, 1, 1, {1, 7, 7}, {1, 7, 7}, {1, 1, 1}, {0, 3, 3}),
    geometry(1, 6, 1, 1, {1, 17, 6}, {1, 7, 7}, {1, 1, 1}, {0, 1, 3}),
    geometry(2, 5, 1, 1, {1, 1, 8}, {1, 7, 7}, {1, 1, 1}, {0, 3, 3}),
    geometry(2, 3, 1, 1, {1, 2, 25}, {1, 7, 7}, {1, 1, 1}, {0, 6, 3}),
    geometry(2, 3, 1, 1, {1, 30, 14}, {1, 7, 7}, {1, 1, 1}, {0, 3, 3}),
    geometry(2, 3, 1, 1, {1, 20, 12}, {1, 7, 7}, {1, 1, 1}, {0, 7, 9}),
    geometry(2, 5, 1, 1, {1, 23, 8}, {1, 7, 7}, {1, 1, 1}, {0, 6, 6}, {1, 2, 2}),
    geometry(2, 3, 1, 1, {1, 9, 66}, {1, 5, 5}, {1, 1, 1}, {0, 2, 2}),
    // Strips of dilated planes: their rows and columns are not adjacent.
    geometry(3, 3, 1, 1, {1, 21, 42}, {1, 3, 3}, {1, 1, 1}, {0, 2, 2}, {1, 2, 2}),
    geometry(2, 5, 1, 1, {1, 17, 7}, {1, 3, 3}, {1, 1, 1}, {0, 3, 2}, {1, 3, 2}),
    geometry(2, 3, 1, 1, {1, 75, 35}, {1, 5, 5}, {1, 1, 1}, {0, 4, 8}, {1, 2, 4}),
    geometry(2, 3, 1, 1, {1, 6, 19}, {1, 5, 5}, {1, 1, 1}, {0, 14, 12}, {1, 7, 6}),
    // Three dimensions.
    geometry(2, 2, 1, 1, {5, 6, 7}, {3, 3, 3}, {1, 1, 1}, {1, 1, 1}),
    geometry(1, 2, 1, 2, {6, 5, 9}, {2, 3, 3}, {2, 2, 2}, {1, 1, 1}, {2, 1, 1}),
    geometry(1, 2, 1, 1, {4, 1, 5}, {2, 1, 1}, {3, 1, 1}, {3, 0, 0}),
    // Planes of several tiles.
    geometry(1, 2, 1, 1, {1, 112, 113}, {1, 3, 3}, {1, 1, 1}, {0, 1, 1}),
    geometry(1, 1, 1, 1, {1, 130, 150}, {1, 3, 3}, {1, 2, 2}, {0, 1, 1}),
    geometry(1, 1, 1, 1, {1, 20, 1100}, {1, 5, 5}, {1, 1, 1}, {0, 2, 2}),
    // Small planes with channels as lanes: more of them than a vector holds, and fewer.
    geometry(2, 21, 1, 1, {1, 9, 9}, {1, 4, 4}, {1, 2, 2}, {0, 1, 1}),
    geometry(3, 16, 1, 1, {1, 7, 6}, {1, 2, 3}, {1, 1, 1}, {0, 1, 0}, {1, 2, 1}),
    geometry(2, 33, 1, 1, {1, 14, 14}, {1, 3, 3}, {1, 2, 2}, {0, 1, 1}),
    geometry(1, 12, 1, 3, {1, 9, 6}, {1, 3, 2}, {1, 3, 3}, {0, 1, 1}),
    geometry(1, 9, 1, 1, {1, 90, 41}, {1, 2, 4}, {1, 2, 2}, {0, 0, 1}),
    geometry(1, 17, 1, 1, {1, 10, 11}, {1, 3, 3}, {1, 3, 3}, {0, 1, 2}),
    geometry(2, 9, 1, 1, {3, 4, 5}, {2, 3, 2}, {1, 1, 2}, {1, 1, 0}),
    geometry(2, 17, 2, 2, {1, 6, 5}, {1, 4, 2}, {1, 3, 2}, {0, 2, 1}, {1, 2, 3}),
    geometry(1, 18, 1, 1, {1, 40, 61}, {1, 7, 7}, {1, 2, 2}, {0, 3, 3}),
    geometry(1, 11, 1, 1, {1, 3, 700}, {1, 2, 9}, {1, 1, 3}, {0, 1, 4}, {1, 1, 5}),
    geometry(1, 1, 1, 1, {1, 4, 3000}, {1, 3, 3}, {1, 2, 2}, {0, 0, 0}),
    // Kernels beyond the image, padding beyond the kernel, nothing at all.
    geometry(2, 2, 1, 1, {1, 2, 3}, {1, 4, 5}, {1, 1, 1}, {0, 2, 2}),
    geometry(2, 2, 1, 1, {1, 5, 6}, {1, 2, 1}, {1, 1, 1}, {0, 3, 2}),
    geometry(1, 2, 1, 1, {1, 1, 1}, {1, 1, 7}, {1, 1, 1}, {0, 2, 20}),
    geometry(1, 2, 1, 1, {1, 1, 1}, {1, 3, 3}, {1, 1, 1}, {0, 1, 1}),
    geometry(0, 2, 1, 1, {1, 4, 4}, {1, 3, 3}, {1, 1, 1}, {0, 1, 1}),
    // Outputs that symmetric padding does not give.
    with_output(geometry(2, 3, 1, 1, {1, 5, 7}, {1, 2, 4}, {1, 1, 1}, {0, 0, 1}), {1, 5, 7}),
    with_output(geometry(2, 3, 1, 1, {1, 9, 12}, {1, 3, 3}, {1, 2, 3}, {0, 1, 0}), {1, 2, 1}),
    with_output(geometry(1, 2, 1, 1, {1, 6, 7}, {1, 3, 3}, {1, 1, 1}, {0, 2, 2}), {1, 6, 5}),
    with_output(geometry(1, 2, 1, 1, {1, 6, 7}, {1, 3, 3}, {1, 2, 2}, {0, 1, 1}), {1, 5, 6}),
    with_output(geometry(2, 3, 1, 1, {1, 16, 18}, {1, 3, 3}, {1, 2, 2}, {0, 0, 0}), {1, 8, 9}),
    with_output(geometry(2, 3, 1, 1, {1, 16, 17}, {1, 3, 3}, {1, 2, 2}, {0, 1, 1}), {1, 7, 8}),
    geometry(1, 2, 1, 1, {1, 8, 12000}, {1, 7, 1}, {1, 1, 1}, {0, 3, 0}),
    geometry(1, 2, 1, 1, {1, 31, 5000}, {1, 5, 1}, {1, 1, 1}, {0, 2, 0}),
    geometry(1, 2, 1, 1, {1, 31, 33}, {1, 5, 4}, {1, 1, 1}, {0, 1, 2}),
    geometry(2, 3, 1, 1, {1, 9, 40}, {1, 7, 7}, {1, 1, 1}, {0, 6, 6}),
    geometry(1, 3, 1, 1, {1, 30, 21}, {1, 5, 5}, {1, 1, 1}, {0, 4, 4}, {1, 2, 2}),
    geometry(2, 9, 1, 1, {1, 12, 4}, {1, 5, 5}, {1, 1, 1}, {0, 2, 2}),
    with_output(geometry(2, 3, 1, 1, {1, 9, 16}, {1, 3, 3}, {1, 1, 1}, {0, 1, 1}), {1, 7, 13}),
    // Groups of several products.
    geometry(2, 9, 4, 4, {1, 9, 18}, {1, 3, 3}, {1, 1, 1}, {0, 1, 1}),
    geometry(2, 17, 3, 5, {1, 9, 10}, {1, 3, 3}, {1, 2, 2}, {0, 1, 1}),
};

/// Calls f(index of x or -1 in the padding, index of w, index of y) for every product.
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

template <class T>
struct sizes {
  dim_t x, y, w;
  explicit sizes(const conv_geometry& g)
      : x{g.batch * g.in_channels * conv_geometry::volume(g.in)},
        y{g.batch * g.out_channels * conv_geometry::volume(g.out)},
        w{g.out_channels * g.in_channels / g.groups * conv_geometry::volume(g.kernel)} {}
};

}  // namespace

TEST_CASE_TEMPLATE("depthwise and grouped convolutions, forward and all gradients", T, float,
                   double) {
  generator r(91);
  for (const conv_geometry& g : geometries) {
    INFO("in " << g.in[0] << " " << g.in[1] << " " << g.in[2] << " kernel " << g.kernel[1] << " "
               << g.kernel[2] << " stride " << g.stride[1] << " " << g.stride[2]);
    const sizes<T> n(g);
    const guarded<T> x(n.x, r), w(n.w, r), bias(g.out_channels, r), in_bias(g.in_channels, r),
        dy(n.y, r), dw_before(n.w, r), scale(g.out_channels, r), residual(n.y, r);
    std::vector<double> ey(at(n.y)), edx(at(n.x)), edw(at(n.w)), eadded(at(n.w)), erelu(at(n.y)),
        efinished(at(n.y));
    const dim_t plane = conv_geometry::volume(g.out), in_plane = conv_geometry::volume(g.in);
    for (dim_t i = 0; i < n.y; ++i)
      ey[at(i)] = static_cast<double>(bias[i / plane % g.out_channels]);
    for (dim_t i = 0; i < n.x; ++i)
      edx[at(i)] = static_cast<double>(in_bias[i / in_plane % g.in_channels]);
    for_each_product(g, [&](dim_t i, dim_t j, dim_t k) {
      ey[at(k)] += static_cast<double>(x[i]) * static_cast<double>(w[j]);
      edx[at(i)] += static_cast<double>(dy[k]) * static_cast<double>(w[j]);
      edw[at(j)] += static_cast<double>(dy[k]) * static_cast<double>(x[i]);
    });
    for (dim_t i = 0; i < n.w; ++i) eadded[at(i)] = edw[at(i)] + static_cast<double>(dw_before[i]);
    for (dim_t i = 0; i < n.y; ++i) {
      erelu[at(i)] = ey[at(i)] > 0 ? ey[at(i)] : 0;
      const dim_t c = i / plane % g.out_channels;
      const auto b = static_cast<double>(bias[c]);
      efinished[at(i)] = std::tanh(static_cast<double>(scale[c]) * (ey[at(i)] - b) + b +
                                   static_cast<double>(residual[i]));
    }
    for_each_set([&] {
      guarded<T> y(n.y), rectified(n.y), finished(n.y), dx(n.x), dw(n.w), added = dw_before;
      CHECK(depthwise_forward<T>(g, x.data(), w.data(), bias.data(), {}, y.data()));
      CHECK(depthwise_forward<T>(g, x.data(), w.data(), bias.data(),
                                 {nullptr, cpu::activation::relu}, rectified.data()));
      CHECK(depthwise_forward<T>(g, x.data(), w.data(), bias.data(),
                                 {residual.data(), cpu::activation::tanh, scale.data()},
                                 finished.data()));
      CHECK(depthwise_backward_data<T>(g, dy.data(), w.data(), in_bias.data(), dx.data()));
      CHECK(depthwise_backward_weights<T>(g, x.data(), dy.data(), dw.data(), false));
      CHECK(depthwise_backward_weights<T>(g, x.data(), dy.data(), added.data(), true));
      // The entry point for modules with several groups, whichever algorithm it chooses.
      guarded<T> grouped(n.y);
      cpu::conv_forward<T>(g, x.data(), w.data(), bias.data(), grouped.data());
      CHECK(all_close(grouped, ey, rounding<T> * 64));
      CHECK(all_close(y, ey, rounding<T> * 64));
      CHECK(all_close(rectified, erelu, rounding<T> * 64));
      CHECK(all_close(finished, efinished, rounding<T> * 64));
      CHECK(all_close(dx, edx, rounding<T> * 64));
      CHECK(all_close(dw, edw, rounding<T> * 4000));
      CHECK(all_close(added, eadded, rounding<T> * 4000));
      for (const auto* a : {&y, &rectified, &finished, &dx, &dw, &added}) CHECK(a->intact());
    });
  }
}

namespace {

/// Whether the algorithms that G's type allows give the bits of all algorithms together.
template <conv_geometry G>
bool same_by_what_is_needed() {
  using enum cpu::conv_direction;
  constexpr auto of = [](cpu::conv_direction d) {
    return cpu::detail::built(cpu::detail::needed_for<float>(d, G));
  };
  generator r(96);
  const sizes<float> n(G);
  const guarded<float> x(n.x, r), w(n.w, r), dy(n.y, r);
  guarded<float> y(n.y), dx(n.x), dw(n.w), y2(n.y), dx2(n.x), dw2(n.w);
  bool same = true;
  for_each_set([&] {
    cpu::conv_forward<float>(G, x.data(), w.data(), nullptr, y.data());
    cpu::conv_backward_data<float>(G, dy.data(), w.data(), dx.data());
    cpu::conv_backward_weights<float>(G, x.data(), dy.data(), dw.data(), false);
    cpu::conv_forward<float>(G, x.data(), w.data(), nullptr, y2.data(), {},
                             cpu::conv_algorithms_of<float, forward, of(forward)>());
    cpu::conv_backward_data<float>(G, dy.data(), w.data(), dx2.data(), nullptr,
                                   cpu::conv_algorithms_of<float, data, of(data)>());
    cpu::conv_backward_weights<float>(G, x.data(), dy.data(), dw2.data(), false,
                                      cpu::conv_algorithms_of<float, weights, of(weights)>());
    const auto equal = [](const guarded<float>& a, const guarded<float>& b) {
      return std::equal(a.data(), a.data() + a.size(), b.data());
    };
    same = same && equal(y, y2) && equal(dx, dx2) && equal(dw, dw2);
  });
  return same;
}

}  // namespace

TEST_CASE("depthwise convolutions whose type rules algorithms out take one that is left") {
  CHECK(
      same_by_what_is_needed<geometry(2, 9, 1, 1, {1, 9, 17}, {1, 3, 3}, {1, 1, 1}, {0, 1, 1})>());
  CHECK(same_by_what_is_needed<geometry(2, 9, 1, 1, {1, 4, 4}, {1, 3, 3}, {1, 1, 1}, {0, 1, 1})>());
  CHECK(same_by_what_is_needed<geometry(1, 9, 1, 1, {1, 9, 17}, {1, 3, 3}, {1, 1, 1}, {0, 2, 2},
                                        {1, 2, 2})>());
  CHECK(
      same_by_what_is_needed<geometry(1, 9, 1, 1, {1, 29, 30}, {1, 3, 3}, {1, 2, 2}, {0, 1, 1})>());
  CHECK(
      same_by_what_is_needed<geometry(1, 9, 1, 1, {1, 27, 28}, {1, 3, 3}, {1, 2, 2}, {0, 0, 0})>());
  CHECK(
      same_by_what_is_needed<geometry(1, 9, 1, 1, {1, 9, 53}, {1, 5, 5}, {1, 1, 1}, {0, 2, 2})>());
  CHECK(
      same_by_what_is_needed<geometry(1, 9, 1, 1, {1, 29, 30}, {1, 5, 5}, {1, 2, 2}, {0, 2, 2})>());
  CHECK(
      same_by_what_is_needed<geometry(1, 9, 1, 1, {1, 9, 14}, {1, 7, 7}, {1, 1, 1}, {0, 3, 3})>());
  CHECK(
      same_by_what_is_needed<geometry(1, 9, 1, 1, {1, 1, 130}, {1, 1, 5}, {1, 1, 1}, {0, 0, 2})>());
  CHECK(
      same_by_what_is_needed<geometry(1, 9, 1, 1, {1, 1, 130}, {1, 1, 5}, {1, 1, 3}, {0, 0, 2})>());
  CHECK(same_by_what_is_needed<geometry(1, 9, 1, 2, {1, 8, 9}, {1, 3, 3}, {1, 1, 1}, {0, 1, 1})>());
  CHECK(same_by_what_is_needed<geometry(1, 3, 4, 4, {1, 8, 9}, {1, 3, 3}, {1, 1, 1}, {0, 1, 1})>());
}

TEST_CASE("depthwise convolutions: what is not a number reaches what sees it and nothing else") {
  generator r(92);
  const auto nan = std::numeric_limits<float>::quiet_NaN();
  for (const conv_geometry& g :
       {geometry(2, 3, 1, 1, {1, 10, 19}, {1, 3, 3}, {1, 1, 1}, {0, 1, 1}),
        geometry(2, 3, 1, 1, {1, 10, 19}, {1, 3, 3}, {1, 2, 2}, {0, 1, 1}),
        geometry(2, 3, 1, 1, {1, 14, 14}, {1, 3, 3}, {1, 1, 1}, {0, 1, 1}),
        geometry(2, 3, 1, 1, {1, 29, 31}, {1, 3, 3}, {1, 2, 2}, {0, 1, 1}),
        geometry(2, 3, 1, 1, {1, 14, 14}, {1, 5, 5}, {1, 1, 1}, {0, 2, 2}),
        geometry(2, 3, 1, 1, {1, 28, 28}, {1, 5, 5}, {1, 2, 2}, {0, 2, 2}),
        geometry(2, 3, 1, 1, {1, 35, 43}, {1, 3, 3}, {1, 1, 1}, {0, 1, 1}),
        geometry(2, 3, 1, 1, {1, 37, 72}, {1, 3, 3}, {1, 2, 2}, {0, 1, 1}),
        geometry(2, 3, 1, 1, {1, 10, 19}, {1, 2, 4}, {1, 1, 3}, {0, 0, 1}),
        geometry(2, 3, 1, 1, {1, 1, 119}, {1, 1, 5}, {1, 1, 1}, {0, 0, 2}),
        geometry(2, 3, 1, 1, {1, 1, 131}, {1, 1, 5}, {1, 1, 2}, {0, 0, 2}),
        geometry(2, 3, 1, 1, {1, 1, 45}, {1, 1, 5}, {1, 1, 1}, {0, 0, 1}),
        geometry(2, 5, 1, 1, {1, 7, 7}, {1, 7, 7}, {1, 1, 1}, {0, 3, 3}),
        geometry(2, 3, 1, 1, {1, 14, 14}, {1, 7, 7}, {1, 1, 1}, {0, 3, 3}),
        geometry(2, 3, 1, 1, {1, 20, 19}, {1, 3, 3}, {1, 1, 1}, {0, 2, 2}, {1, 2, 2}),
        geometry(2, 5, 1, 1, {1, 8, 7}, {1, 3, 3}, {1, 1, 1}, {0, 1, 1}),
        geometry(2, 7, 1, 1, {1, 14, 14}, {1, 3, 3}, {1, 2, 2}, {0, 1, 1}),
        geometry(2, 11, 1, 1, {1, 9, 4}, {1, 3, 3}, {1, 1, 1}, {0, 1, 1}),
        geometry(2, 11, 1, 1, {1, 4, 4}, {1, 3, 3}, {1, 1, 1}, {0, 1, 1}),
        geometry(1, 5, 1, 1, {1, 17, 17}, {1, 3, 3}, {1, 1, 1}, {0, 1, 1}),
        geometry(2, 20, 1, 1, {1, 5, 6}, {1, 4, 2}, {1, 2, 2}, {0, 1, 0})}) {
    const sizes<float> n(g);
    guarded<float> x(n.x, r), w(n.w, r), dy(n.y, r);
    for (dim_t i = 18; i < n.x; i += 97) x[i] = nan;
    std::vector<double> ey(at(n.y)), edw(at(n.w));
    for_each_product(g, [&](dim_t i, dim_t j, dim_t k) {
      ey[at(k)] += static_cast<double>(x[i]) * static_cast<double>(w[j]);
      edw[at(j)] += static_cast<double>(dy[k]) * static_cast<double>(x[i]);
    });
    for_each_set([&] {
      guarded<float> y(n.y), dw(n.w);
      CHECK(depthwise_forward<float>(g, x.data(), w.data(), nullptr,
                                     {nullptr, cpu::activation::relu}, y.data()));
      CHECK(depthwise_backward_weights<float>(g, x.data(), dy.data(), dw.data(), false));
      for (dim_t i = 0; i < n.y; ++i) CHECK(std::isnan(y[i]) == std::isnan(ey[at(i)]));
      for (dim_t i = 0; i < n.w; ++i) CHECK(std::isnan(dw[i]) == std::isnan(edw[at(i)]));
    });
  }
}

TEST_CASE_TEMPLATE("depthwise convolutions leave no subnormal numbers in the scratch", T, float,
                   double) {
  generator r(95);
  for (const conv_geometry& g :
       {geometry(2, 17, 1, 1, {1, 10, 19}, {1, 3, 3}, {1, 1, 1}, {0, 1, 1}),
        geometry(2, 9, 1, 1, {1, 3, 4}, {1, 3, 3}, {1, 1, 1}, {0, 1, 1}),
        geometry(1, 3, 1, 1, {1, 9, 26}, {1, 5, 5}, {1, 1, 1}, {0, 2, 2}),
        geometry(1, 9, 1, 1, {1, 7, 8}, {1, 7, 7}, {1, 1, 1}, {0, 3, 3}),
        geometry(1, 3, 1, 1, {1, 28, 28}, {1, 5, 5}, {1, 2, 2}, {0, 2, 2}),
        geometry(1, 2, 1, 1, {1, 12, 40}, {1, 5, 4}, {1, 2, 2}, {0, 2, 1}),
        geometry(1, 3, 1, 1, {1, 1, 130}, {1, 1, 5}, {1, 1, 1}, {0, 0, 2}),
        geometry(1, 17, 1, 1, {1, 1, 70}, {1, 1, 5}, {1, 1, 2}, {0, 0, 2}),
        geometry(1, 17, 1, 1, {1, 6, 7}, {1, 4, 2}, {1, 3, 2}, {0, 2, 1}),
        geometry(1, 3, 1, 1, {1, 1, 130}, {1, 1, 3}, {1, 1, 2}, {0, 0, 1})}) {
    const sizes<T> n(g);
    const guarded<T> x(n.x, r), w(n.w, r), dy(n.y, r);
    for_each_set([&] {
      guarded<T> y(n.y), dx(n.x), dw(n.w);
      const auto bytes = cpu::detail::packed_b_bytes + cpu::detail::packed_a_bytes;
      auto* const scratch = cpu::detail::thread_scratch<T>();
      std::fill(scratch, scratch + bytes / sizeof(T), T(1));
      CHECK(depthwise_forward<T>(g, x.data(), w.data(), nullptr, {}, y.data()));
      CHECK(depthwise_backward_data<T>(g, dy.data(), w.data(), nullptr, dx.data()));
      CHECK(depthwise_backward_weights<T>(g, x.data(), dy.data(), dw.data(), false));
      CHECK(std::all_of(scratch, scratch + bytes / sizeof(T),
                        [](T v) { return v == T(0) || std::isnormal(v); }));
    });
  }
}

TEST_CASE("depthwise convolutions give the same bits on any number of threads") {
  for (const conv_geometry& g :
       {geometry(1, 40, 1, 1, {1, 56, 57}, {1, 3, 3}, {1, 1, 1}, {0, 1, 1}),
        geometry(2, 90, 1, 1, {1, 56, 57}, {1, 5, 5}, {1, 2, 2}, {0, 2, 2}),
        geometry(9, 200, 1, 1, {1, 14, 14}, {1, 3, 3}, {1, 2, 2}, {0, 1, 1}),
        geometry(25, 203, 1, 1, {1, 7, 7}, {1, 3, 3}, {1, 1, 1}, {0, 1, 1}),
        geometry(3, 203, 1, 1, {1, 7, 7}, {1, 7, 7}, {1, 1, 1}, {0, 3, 3}),
        geometry(2, 150, 1, 1, {1, 1, 900}, {1, 1, 5}, {1, 1, 1}, {0, 0, 2}),
        geometry(2, 150, 1, 1, {1, 1, 900}, {1, 1, 5}, {1, 1, 2}, {0, 0, 2}),
        geometry(3, 303, 1, 1, {1, 1, 90}, {1, 1, 5}, {1, 1, 1}, {0, 0, 2}),
        geometry(3, 70, 1, 1, {1, 40, 61}, {1, 4, 4}, {1, 2, 2}, {0, 1, 1})}) {
    generator r(94);
    const sizes<float> n(g);
    const guarded<float> x(n.x, r), w(n.w, r), dy(n.y, r);
    for_each_set([&] {
      guarded<float> y(n.y), dx(n.x), dw(n.w), y2(n.y), dx2(n.x), dw2(n.w);
      const auto run = [&](guarded<float>& a, guarded<float>& b, guarded<float>& c) {
        cpu::conv_forward<float>(g, x.data(), w.data(), nullptr, a.data());
        cpu::conv_backward_data<float>(g, dy.data(), w.data(), b.data());
        cpu::conv_backward_weights<float>(g, x.data(), dy.data(), c.data(), false);
      };
      run(y, dx, dw);
      {
        const ikebana::scoped_num_threads threads(3);
        run(y2, dx2, dw2);
      }
      const auto same = [](const guarded<float>& a, const guarded<float>& b) {
        for (dim_t i = 0; i < a.size(); ++i)
          if (a[i] != b[i]) return false;
        return true;
      };
      CHECK(same(y, y2));
      CHECK(same(dx, dx2));
      CHECK(same(dw, dw2));
    });
  }
}
