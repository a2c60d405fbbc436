#pragma once

#include <cstddef>
#include <cstdint>
#include <utility>

#include "ikebana/core/shape.hpp"
#include "ikebana/cpu/conv_depthwise_lanes.hpp"
#include "ikebana/cpu/conv_depthwise_pairs.hpp"
#include "ikebana/cpu/conv_depthwise_sweep.hpp"
#include "ikebana/cpu/conv_depthwise_tiles.hpp"
#include "ikebana/cpu/conv_depthwise_weights.hpp"
#include "ikebana/cpu/dispatch.hpp"

// Convolutions of few channels a group, depthwise ones above all, where there
// is no matrix product to speak of. Some rows of the result are summed at once:
// what is loaded serves all of them. Only the sums and copies are built for
// each instruction set.
#define IKEBANA_CPU_BODY "ikebana/cpu/conv_depthwise-inl.hpp"
#include "ikebana/cpu/detail/foreach_target.hpp"

#define IKEBANA_CPU_BODY "ikebana/cpu/conv_depthwise_sweep-inl.hpp"
#include "ikebana/cpu/detail/foreach_target.hpp"

#define IKEBANA_CPU_BODY "ikebana/cpu/conv_depthwise_pairs-inl.hpp"
#include "ikebana/cpu/detail/foreach_target.hpp"

#define IKEBANA_CPU_BODY "ikebana/cpu/conv_depthwise_lanes-inl.hpp"
#include "ikebana/cpu/detail/foreach_target.hpp"

#define IKEBANA_CPU_BODY "ikebana/cpu/conv_depthwise_table-inl.hpp"
#include "ikebana/cpu/detail/foreach_target.hpp"

namespace ikebana::cpu::detail {

/// Whether so few channels meet that there is nothing for a matrix product to
/// gain.
inline bool may_be_by_channel(const conv_geometry& g) {
  return g.groups > 1 && g.in_channels / g.groups * (g.out_channels / g.groups) <= 4 &&
         conv_geometry::volume(g.in) > 0 && conv_geometry::volume(g.out) > 0;
}

/// As conv_forward, conv_backward_data and conv_backward_weights, of which they
/// are the ways for few channels a group. Each is false, having done nothing,
/// where the geometry does not fit.
template <class T>
bool depthwise_forward(const conv_geometry& g, const T* x, const T* w, const T* bias, bool relu,
                       T* y) {
  const depthwise_kernels<T>& kernels = IKEBANA_CPU_DISPATCH(kernels_for_depthwise<T>)();
  if (const depthwise_lanes<T> lanes{kernels, IKEBANA_CPU_DISPATCH(tiles_for_conv<T>)(), g,
                                     lanes_of::forward};
      lanes.pays()) {
    lanes.run(x, w, bias, relu, y);
    return true;
  }
  return sweep_channels(kernels, g, false, x, w, bias, relu, y) ||
         sweep_pairs_forward(kernels, g, x, w, bias, relu, y) ||
         convolve_by_channel(kernels, g, false, x, w, bias, relu, y);
}
template <class T>
bool depthwise_backward_data(const conv_geometry& g, const T* dy, const T* w, const T* bias,
                             T* dx) {
  const depthwise_kernels<T>& kernels = IKEBANA_CPU_DISPATCH(kernels_for_depthwise<T>)();
  if (const depthwise_lanes<T> lanes{kernels, IKEBANA_CPU_DISPATCH(tiles_for_conv<T>)(), g,
                                     lanes_of::backward_data};
      lanes.pays()) {
    lanes.run(dy, w, bias, false, dx);
    return true;
  }
  return sweep_channels(kernels, g, true, dy, w, bias, false, dx) ||
         sweep_pairs_backward(kernels, g, dy, w, bias, dx) ||
         convolve_by_channel(kernels, g, true, dy, w, bias, false, dx);
}
template <class T>
bool depthwise_backward_weights(const conv_geometry& g, const T* x, const T* dy, T* dw,
                                bool accumulate) {
  const depthwise_kernels<T>& kernels = IKEBANA_CPU_DISPATCH(kernels_for_depthwise<T>)();
  if (const depthwise_lanes<T> lanes{kernels, IKEBANA_CPU_DISPATCH(tiles_for_conv<T>)(), g,
                                     lanes_of::backward_weights};
      lanes.pays()) {
    lanes.run_weights(x, dy, dw, accumulate);
    return true;
  }
  return sweep_weights(kernels, g, x, dy, dw, accumulate) ||
         sweep_pairs_weights(kernels, g, x, dy, dw, accumulate) ||
         convolve_weights_by_channel(kernels, g, x, dy, dw, accumulate);
}

IKEBANA_CPU_KERNEL(depthwise_forward)
IKEBANA_CPU_KERNEL(depthwise_backward_data)
IKEBANA_CPU_KERNEL(depthwise_backward_weights)

}  // namespace ikebana::cpu::detail
