#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
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

IKEBANA_CPU_BEGIN_SMALL
namespace ikebana::cpu::detail {

/// Plane by plane. Each is false, having done nothing, where it does not fit.
template <class T>
bool convolve_planes(const depthwise_kernels<T>& kernels, const conv_geometry& g, bool backward,
                     const T* source, const T* w, const T* bias, bool relu, T* result) {
  plane_sweep<T> sweep{kernels, g, backward};
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
  if (sweep.shape->gradients == nullptr) return false;
  if (g.out[2] <= conv_costs::narrow_row || !sweep.finds_gradients() || !sweep.fit()) return false;
  sweep.find_gradients(x, dy, dw, accumulate);
  return true;
}

/// True; prints a line about the plan, if wanted (verbose.hpp).
inline bool ran(const conv_problem& p, conv_algorithm a) {
  if (is_verbose()) [[unlikely]]
    print_plan(p, a);
  return true;
}

/// Whether the algorithms for few channels a group are those for g.
inline bool goes_by_groups(conv_direction direction, const conv_geometry& g) {
  return applies(conv_algorithm::depthwise_lanes, problem_of(direction, g, 0, 1));
}
/// What of a set is of depthwise convolutions.
constexpr conv_set depthwise_of(conv_set s) {
  return {s.algorithms & (1U << static_cast<unsigned>(conv_algorithm::depthwise_planes) |
                          1U << static_cast<unsigned>(conv_algorithm::depthwise_lanes)),
          s.strides};
}

/// As conv_forward, conv_backward_data and conv_backward_weights, of which they run the algorithms
/// of `Set` for few channels a group. Each is false, having done nothing, where none has memory.
template <class T, conv_set Set = depthwise_of({})>
bool depthwise_forward(const conv_geometry& g, const T* x, const T* w, const T* bias,
                       const conv_epilogue<T>& then, T* y) {
  using enum conv_algorithm;
  constexpr auto of = conv_direction::forward;
  const depthwise_kernels<T>& kernels =
      IKEBANA_CPU_DISPATCH_AVX(kernels_for_depthwise<T, of, Set>)();
  const conv_problem p = problem_of(of, g, dim_t{sizeof(T)}, kernels.width);
  const bool relu = then.function == activation::relu;
  if constexpr (Set.has(depthwise_planes))
    if (applies(depthwise_planes, p) && then.residual == nullptr && then.scale == nullptr &&
        (relu || then.function == activation::none) &&
        convolve_planes(kernels, g, false, x, w, bias, relu, y))
      return ran(p, depthwise_planes);
  depthwise_by_lanes<T> lanes{kernels, g, of};
  if (!lanes.fit()) return false;
  lanes.run(x, w, bias, then, y);
  return ran(p, depthwise_lanes);
}
template <class T, conv_set Set = depthwise_of({})>
bool depthwise_backward_data(const conv_geometry& g, const T* dy, const T* w, const T* bias,
                             T* dx) {
  using enum conv_algorithm;
  constexpr auto of = conv_direction::data;
  const depthwise_kernels<T>& kernels =
      IKEBANA_CPU_DISPATCH_AVX(kernels_for_depthwise<T, of, Set>)();
  const conv_problem p = problem_of(of, g, dim_t{sizeof(T)}, kernels.width);
  if constexpr (Set.has(depthwise_planes))
    if (applies(depthwise_planes, p) && convolve_planes(kernels, g, true, dy, w, bias, false, dx))
      return ran(p, depthwise_planes);
  depthwise_by_lanes<T> lanes{kernels, g, of};
  if (!lanes.fit()) return false;
  lanes.run(dy, w, bias, {}, dx);
  return ran(p, depthwise_lanes);
}
template <class T, conv_set Set = depthwise_of({})>
bool depthwise_backward_weights(const conv_geometry& g, const T* x, const T* dy, T* dw,
                                bool accumulate) {
  using enum conv_algorithm;
  constexpr auto of = conv_direction::weights;
  const depthwise_kernels<T>& kernels =
      IKEBANA_CPU_DISPATCH_AVX(kernels_for_depthwise<T, of, Set>)();
  const conv_problem p = problem_of(of, g, dim_t{sizeof(T)}, kernels.width);
  if constexpr (Set.has(depthwise_planes))
    if (applies(depthwise_planes, p) && plane_gradients(kernels, g, x, dy, dw, accumulate))
      return ran(p, depthwise_planes);
  depthwise_by_lanes<T> lanes{kernels, g, of};
  if (!lanes.fit()) return false;
  lanes.run_weights(x, dy, dw, accumulate);
  return ran(p, depthwise_lanes);
}

/// By the algorithms of a set for few channels a group.
template <class T, conv_direction Direction, conv_set Set>
bool run_depthwise(const conv_geometry& g, const conv_operands<T>& of) {
  if constexpr (Direction == conv_direction::forward)
    return depthwise_forward<T, Set>(g, of.source, of.weights, of.shift, of.then, of.result);
  else if constexpr (Direction == conv_direction::data)
    return depthwise_backward_data<T, Set>(g, of.source, of.weights, of.bias, of.result);
  else
    return depthwise_backward_weights<T, Set>(g, of.source, of.weights, of.result, of.accumulates);
}

IKEBANA_CPU_KERNEL(depthwise_forward)
IKEBANA_CPU_KERNEL(depthwise_backward_data)
IKEBANA_CPU_KERNEL(depthwise_backward_weights)

}  // namespace ikebana::cpu::detail
IKEBANA_CPU_END_SMALL
