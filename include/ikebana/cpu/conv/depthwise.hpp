#pragma once

#include <cstddef>
#include <type_traits>
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

/// Plane by plane. False, having done nothing, where it does not fit.
template <class T, conv_direction Direction>
bool run_planes(const depthwise_kernels<T>& kernels, const conv_geometry& g, const T* bias,
                const conv_operands<T>& of) {
  constexpr bool backward = Direction == conv_direction::data;
  plane_sweep<T> sweep{kernels, g, backward};
  if constexpr (Direction == conv_direction::weights) {
    if (sweep.shape->gradients == nullptr || g.out[2] <= conv_costs::narrow_row ||
        !sweep.finds_gradients() || !sweep.fit())
      return false;
    sweep.find_gradients(of.source, of.weights, of.result, of.accumulates);
  } else {
    const bool spreads = backward && g.stride[1] == 2;
    if (of.then.function != activation::none && !of.relu()) return false;
    if (of.then.residual != nullptr || of.then.scale != nullptr) return false;
    if (spreads ? !sweep.spreads() : !sweep.convolves() || !sweep.fit()) return false;
    sweep.run(spreads ? sweep.shape->spread : sweep.shape->convolve, of.source, of.weights, bias,
              of.relu(), of.result);
  }
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

/// Runs the algorithms of `Set` for few channels a group. False, having done nothing, where none
/// has memory.
template <class T, conv_direction Direction, conv_set Set = depthwise_of({})>
bool run_depthwise(const conv_geometry& g, const conv_operands<T>& of) {
  using enum conv_algorithm;
  const depthwise_kernels<T>& kernels =
      IKEBANA_CPU_DISPATCH_AVX(kernels_for_depthwise<T, Direction, Set>)();
  const conv_problem p = problem_of(Direction, g, dim_t{sizeof(T)}, kernels.width);
  const T* const bias = Direction == conv_direction::forward ? of.shift : of.bias;
  if constexpr (Set.has(depthwise_planes))
    if (applies(depthwise_planes, p) && run_planes<T, Direction>(kernels, g, bias, of))
      return ran(p, depthwise_planes);
  depthwise_by_lanes<T> lanes{kernels, g, Direction};
  if (!lanes.fit()) return false;
  if constexpr (Direction == conv_direction::weights)
    lanes.run_weights(of);
  else
    lanes.run(of, bias);
  return ran(p, depthwise_lanes);
}
/// The same, for tests.
template <class T>
bool depthwise_by(conv_direction direction, const conv_geometry& g, const conv_operands<T>& of) {
  using enum conv_direction;
  return direction == forward ? run_depthwise<T, forward>(g, of)
         : direction == data  ? run_depthwise<T, data>(g, of)
                              : run_depthwise<T, weights>(g, of);
}
IKEBANA_CPU_KERNEL(depthwise_by)

}  // namespace ikebana::cpu::detail
IKEBANA_CPU_END_SMALL
