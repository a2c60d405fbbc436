#pragma once

#include "ikebana/core/shape.hpp"
#include "ikebana/cpu/conv/plan.hpp"
#include "ikebana/cpu/conv_geometry.hpp"
#include "ikebana/cpu/detail/targets.hpp"
#include "ikebana/cpu/exact_convolution.hpp"

#if IKEBANA_CPU_HERE
#include "ikebana/cpu/conv/bands.hpp"
#include "ikebana/cpu/conv/depthwise.hpp"
#include "ikebana/cpu/conv/entries.hpp"
#include "ikebana/cpu/conv/im2col.hpp"
#include "ikebana/cpu/conv/images.hpp"
#include "ikebana/cpu/conv/pass.hpp"
#include "ikebana/cpu/conv/tiles.hpp"
#include "ikebana/cpu/conv/winograd.hpp"
#include "ikebana/cpu/conv/winograd/weights.hpp"
#endif

// The tables of algorithms, one for each direction. A caller that knows its kernels, strides and
// channels has tables of what may apply, and nothing else is built.
namespace ikebana::cpu::detail {

/// The algorithms that may apply to problems of which only this is known.
constexpr conv_set needed_for(const conv_problem& p) {
  conv_set needed{0, p.has_strides()};
  for (const conv_algorithm a : conv_algorithms) {
    if (!applies(a, p)) continue;
    needed.algorithms |= 1U << static_cast<unsigned>(a);
    if (a == conv_algorithm::passes) needed.algorithms |= needed_for(passes_of(p)).algorithms;
  }
  return needed;
}

#if IKEBANA_CPU_HERE
template <class T, conv_direction Direction, conv_set Set>
constexpr conv_table<T> make_conv_table() {
  using enum conv_algorithm;
  constexpr conv_parts parts{.strides = Set.strides && Direction != conv_direction::weights,
                             .slides = Set.has(bands),
                             .dots = Set.has(images)};
  conv_table<T> table{};
  table.tiles = &tiles_of<T, parts>;
  const auto set = [&](conv_algorithm a, conv_entry<T> entry) {
    table.entries[static_cast<int>(a)] = entry;
  };
  if constexpr (Set.has(im2col)) set(im2col, &run_im2col<T, Direction>);
  if constexpr (Direction == conv_direction::weights) {
    if constexpr (Set.has(winograd)) set(winograd, &run_winograd_weights<T>);
    if constexpr (Set.has(images)) set(images, &run_images<T>);
  } else {
    if constexpr (Set.has(winograd)) set(winograd, &run_winograd<T>);
    if constexpr (Set.has(bands)) set(bands, &run_bands<T>);
  }
  if constexpr (Set.has(depthwise_lanes))
    table.by_groups = &run_depthwise<T, Direction, depthwise_of(Set)>;
  return table;
}
template <class T, conv_direction Direction, conv_set Set>
inline constexpr conv_table<T> conv_table_of = make_conv_table<T, Direction, Set>();
#else
template <class T>
struct conv_table;
#endif

/// The bytes of the narrowest registers that kernels are built for here.
inline constexpr dim_t narrowest_register = IKEBANA_CPU_X86 && !IKEBANA_CPU_SSE42 ? 32 : 16;

/// What is needed for convolutions of which the kernel, strides, dilation, padding and channels are
/// known (negative where not).
template <class T>
constexpr conv_set needed_for(conv_direction direction, conv_geometry g) {
  constexpr dim_t no = conv_problem::unknown;
  g.batch = no;
  g.in = g.out = {no, no, no};
  return needed_for(
      problem_of(direction, g, dim_t{sizeof(T)}, narrowest_register / dim_t{sizeof(T)}));
}

/// What is built of it: where kernels are built apart, all of them are there.
constexpr conv_set built(conv_set needed) { return IKEBANA_CPU_HERE ? needed : conv_set{}; }

}  // namespace ikebana::cpu::detail

namespace ikebana::cpu {

/// What is built for convolutions of which the kernel, strides, dilation, padding and channels are
/// known (negative where not).
template <class T>
constexpr conv_set conv_set_for(conv_direction direction, const conv_geometry& g) {
  return detail::built(detail::needed_for<T>(direction, g));
}

/// All algorithms.
template <class T>
const detail::conv_table<T>& conv_algorithms_of(conv_direction direction);
#if IKEBANA_CPU_HERE
template <class T>
const detail::conv_table<T>& conv_algorithms_of(conv_direction direction) {
  using enum conv_direction;
  return direction == forward ? detail::conv_table_of<T, forward, conv_set{}>
         : direction == data  ? detail::conv_table_of<T, data, conv_set{}>
                              : detail::conv_table_of<T, weights, conv_set{}>;
}
#endif
IKEBANA_CPU_KERNEL(conv_algorithms_of)

/// Those of a set (conv_set_for). Programs that take their kernels from elsewhere have all.
template <class T, conv_direction Direction, conv_set Needed>
const detail::conv_table<T>& conv_algorithms_of() {
#if IKEBANA_CPU_HERE
  return detail::conv_table_of<T, Direction, Needed>;
#else
  return conv_algorithms_of<T>(Direction);
#endif
}

}  // namespace ikebana::cpu
