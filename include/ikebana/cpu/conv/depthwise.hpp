#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <utility>

#include "ikebana/core/shape.hpp"
#include "ikebana/cpu/conv/depthwise/lanes.hpp"
#include "ikebana/cpu/conv/depthwise/planes.hpp"
#include "ikebana/cpu/conv/plan.hpp"
#include "ikebana/cpu/conv/print_plan.hpp"
#include "ikebana/cpu/dispatch.hpp"
#include "ikebana/cpu/verbose.hpp"

// Convolutions of few channels a group, depthwise ones above all, where there
// is no matrix product to speak of: plane by plane, or with channels in lanes.
#define IKEBANA_CPU_BODY "ikebana/cpu/conv/depthwise/columns-inl.hpp"
#include "ikebana/cpu/detail/foreach_target.hpp"

#define IKEBANA_CPU_BODY "ikebana/cpu/conv/depthwise/planes-inl.hpp"
#include "ikebana/cpu/detail/foreach_target.hpp"

#define IKEBANA_CPU_BODY "ikebana/cpu/conv/depthwise/spread-inl.hpp"
#include "ikebana/cpu/detail/foreach_target.hpp"

#define IKEBANA_CPU_BODY "ikebana/cpu/conv/depthwise/plane_gradients-inl.hpp"
#include "ikebana/cpu/detail/foreach_target.hpp"

#define IKEBANA_CPU_BODY "ikebana/cpu/conv/depthwise/lanes-inl.hpp"
#include "ikebana/cpu/detail/foreach_target.hpp"

#define IKEBANA_CPU_BODY "ikebana/cpu/conv/depthwise/table-inl.hpp"
#include "ikebana/cpu/detail/foreach_target.hpp"

namespace ikebana::cpu::detail {

/// Whether so few channels meet that there is nothing for a matrix product to
/// gain, and groups fill lanes or go plane by plane.
inline bool may_be_by_channel(const conv_geometry& g) {
  const bool often =
      g.kernel == std::array<dim_t, 3>{1, 3, 3} && g.stride[1] < 3 && g.stride[2] == g.stride[1];
  return g.groups > 1 && g.in_channels / g.groups * (g.out_channels / g.groups) <= 4 &&
         conv_geometry::volume(g.in) > 0 && conv_geometry::volume(g.out) > 0 &&
         (g.groups >= 8 || often);
}

/// Plane by plane. Each is false, having done nothing, where it does not fit.
template <class T>
bool convolve_planes(const depthwise_kernels<T>& kernels, const conv_geometry& g, bool backward,
                     const T* source, const T* w, const T* bias, bool relu, T* result) {
  plane_sweep<T> sweep{kernels, g, backward};
  if (sweep.shape == nullptr) return false;
  if (backward && g.stride[1] == 2) {
    if (!sweep.spreads()) return false;
    sweep.run(sweep.shape->spread, source, w, bias, false, result);
    return true;
  }
  if (!sweep.convolves() || !sweep.fit()) return false;
  sweep.run(sweep.shape->convolve, source, w, bias, relu, result);
  return true;
}
template <class T>
bool plane_gradients(const depthwise_kernels<T>& kernels, const conv_geometry& g, const T* x,
                     const T* dy, T* dw, bool accumulate) {
  plane_sweep<T> sweep{kernels, g, false};
  if (sweep.shape == nullptr || sweep.shape->gradients == nullptr) return false;
  if (g.out[2] <= 4 || !sweep.finds_gradients() || !sweep.fit()) return false;
  sweep.find_gradients(x, dy, dw, accumulate);
  return true;
}

/// True; prints a line about the plan, if wanted (verbose.hpp).
inline bool ran(conv_direction direction, const conv_geometry& g, const char* algorithm,
                dim_t element, dim_t lanes) {
  if (is_verbose()) [[unlikely]]
    print_plan(problem_of(direction, g, element, lanes), algorithm);
  return true;
}

/// As conv_forward, conv_backward_data and conv_backward_weights, of which they
/// are the ways for few channels a group. Each is false, having done nothing,
/// where the geometry does not fit, or its way is none of `Ways` (depthwise/ways.hpp).
template <class T, unsigned Ways = depthwise_way::all>
bool depthwise_forward(const conv_geometry& g, const T* x, const T* w, const T* bias,
                       const conv_epilogue<T>& then, T* y) {
  using namespace depthwise_way;
  constexpr auto of = lanes_of::forward;
  const depthwise_kernels<T>& kernels =
      IKEBANA_CPU_DISPATCH_AVX(kernels_for_depthwise<T, of, Ways>)();
  const bool relu = then.function == activation::relu;
  if (then.residual == nullptr && then.scale == nullptr &&
      (relu || then.function == activation::none)) {
    if constexpr ((Ways & planes) != 0)
      if (convolve_planes(kernels, g, false, x, w, bias, relu, y))
        return ran(conv_direction::forward, g, "depthwise planes", dim_t{sizeof(T)}, kernels.width);
  }
  if constexpr ((Ways & lanes) != 0) {
    depthwise_lanes<T> some{kernels, g, of};
    if (some.fit()) {
      some.run(x, w, bias, then, y);
      return ran(conv_direction::forward, g, "depthwise lanes", dim_t{sizeof(T)}, kernels.width);
    }
  }
  return false;
}
template <class T, unsigned Ways = depthwise_way::all>
bool depthwise_backward_data(const conv_geometry& g, const T* dy, const T* w, const T* bias,
                             T* dx) {
  using namespace depthwise_way;
  constexpr auto of = lanes_of::backward_data;
  const depthwise_kernels<T>& kernels =
      IKEBANA_CPU_DISPATCH_AVX(kernels_for_depthwise<T, of, Ways>)();
  if constexpr ((Ways & planes) != 0)
    if (convolve_planes(kernels, g, true, dy, w, bias, false, dx))
      return ran(conv_direction::data, g, "depthwise planes", dim_t{sizeof(T)}, kernels.width);
  if constexpr ((Ways & lanes) != 0) {
    depthwise_lanes<T> some{kernels, g, of};
    if (some.fit()) {
      some.run(dy, w, bias, {}, dx);
      return ran(conv_direction::data, g, "depthwise lanes", dim_t{sizeof(T)}, kernels.width);
    }
  }
  return false;
}
template <class T, unsigned Ways = depthwise_way::all>
bool depthwise_backward_weights(const conv_geometry& g, const T* x, const T* dy, T* dw,
                                bool accumulate) {
  using namespace depthwise_way;
  constexpr auto of = lanes_of::backward_weights;
  const depthwise_kernels<T>& kernels =
      IKEBANA_CPU_DISPATCH_AVX(kernels_for_depthwise<T, of, Ways>)();
  if constexpr ((Ways & planes) != 0)
    if (plane_gradients(kernels, g, x, dy, dw, accumulate))
      return ran(conv_direction::weights, g, "depthwise planes", dim_t{sizeof(T)}, kernels.width);
  depthwise_lanes<T> lanes{kernels, g, of};
  if (!lanes.fit()) return false;
  lanes.run_weights(x, dy, dw, accumulate);
  return ran(conv_direction::weights, g, "depthwise lanes", dim_t{sizeof(T)}, kernels.width);
}

IKEBANA_CPU_KERNEL(depthwise_forward)
IKEBANA_CPU_KERNEL(depthwise_backward_data)
IKEBANA_CPU_KERNEL(depthwise_backward_weights)

}  // namespace ikebana::cpu::detail
