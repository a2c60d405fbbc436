#pragma once

#include "ikebana/core/shape.hpp"
#include "ikebana/cpu/conv/plan.hpp"
#include "ikebana/cpu/conv_geometry.hpp"
#include "ikebana/cpu/detail/targets.hpp"
#include "ikebana/cpu/exact_convolution.hpp"

#if IKEBANA_CPU_HERE
#include "ikebana/cpu/conv/bands.hpp"
#include "ikebana/cpu/conv/col2im.hpp"
#include "ikebana/cpu/conv/depthwise.hpp"
#include "ikebana/cpu/conv/entries.hpp"
#include "ikebana/cpu/conv/im2col.hpp"
#include "ikebana/cpu/conv/images.hpp"
#include "ikebana/cpu/conv/pass.hpp"
#include "ikebana/cpu/conv/plain.hpp"
#include "ikebana/cpu/conv/product.hpp"
#include "ikebana/cpu/conv/tiles.hpp"
#include "ikebana/cpu/conv/weights.hpp"
#include "ikebana/cpu/conv/winograd.hpp"
#include "ikebana/cpu/conv/winograd/weights.hpp"
#endif

// The tables of algorithms, one for each direction. A caller that knows its kernels, strides and
// channels has tables of what may apply, and nothing else is built.
namespace ikebana::cpu::detail {

/// What of a problem's passes the compiler knows.
constexpr conv_problem passes_of(conv_problem p) {
  p.direction = conv_direction::forward;
  p.is_pass = true;
  p.apart = p.has_strides();
  for (std::size_t d = 0; d < 3; ++d)
    p.padding[d] = (p.kernel[d] - 1) * p.dilation[d] - p.padding[d];
  p.stride = {1, 1, 1};
  return p;
}
/// The algorithms that may apply to problems of which only this is known.
constexpr conv_set needed_for(const conv_problem& p) {
  conv_set needed{0, p.has_strides()};
  for (const conv_algorithm a : conv_algorithms) {
    if (!applies(a, p)) continue;
    needed.algorithms |= 1U << static_cast<unsigned>(a);
    if (a == conv_algorithm::passes) needed.algorithms |= needed_for(passes_of(p)).algorithms;
    // Whatever the extents.
    if (a == conv_algorithm::product) break;
  }
  needed.algorithms |= 1U << static_cast<unsigned>(conv_algorithm::plain);
  return needed;
}

#if IKEBANA_CPU_HERE
template <class T>
void run_im2col(const conv_table<T>& table, const conv_step& step, const conv_operands<T>& of) {
  conv_im2col<T>{table.tiles(), step.pass}.forward(of);
}
template <class T>
void run_im2col_back(const conv_table<T>& table, const conv_step& step,
                     const conv_operands<T>& of) {
  conv_im2col<T>{table.tiles(), step.pass}.backward_data(of.source, of.weights, of.result, of.bias);
}
template <class T>
void run_im2col_weights(const conv_table<T>& table, const conv_step& step,
                        const conv_operands<T>& of) {
  conv_im2col<T>{table.tiles(), step.pass}.backward_weights(of.source, of.weights, of.result,
                                                            of.accumulates);
}

template <class T, conv_direction Direction, conv_set Set>
constexpr conv_table<T> make_conv_table() {
  using enum conv_algorithm;
  constexpr bool back = Direction == conv_direction::data,
                 of_weights = Direction == conv_direction::weights;
  constexpr bool slides =
      of_weights ? Set.has(channels_in_lanes) : Set.has(bands) || Set.has(images_in_lanes);
  constexpr conv_parts parts{.strides = Set.strides,
                             .adds = back && Set.has(col2im),
                             .slides = slides,
                             .dots = of_weights && Set.has(bands)};
  conv_table<T> table{};
  table.tiles = &tiles_of<T, parts>;
  const auto set = [&](conv_algorithm a, conv_entry<T> entry) {
    table.entries[static_cast<int>(a)] = entry;
  };
  if constexpr (of_weights) {
    if constexpr (Set.has(winograd))
      set(winograd, {&fit_winograd_weights<T>, &run_winograd_weights<T>});
    if constexpr (Set.has(im2col)) set(im2col, {&always_fits<T>, &run_im2col_weights<T>});
    if constexpr (Set.has(product)) set(product, {&always_fits<T>, &run_weights_product<T>});
    if constexpr (Set.has(channels_in_lanes))
      set(channels_in_lanes, {&fit_channels<T>, &run_channels<T>});
    if constexpr (Set.has(bands)) set(bands, {&fit_dots<T>, &run_dots<T>});
    set(plain, {&always_fits<T>, &run_weights_plain<T>});
  } else {
    if constexpr (Set.has(winograd)) set(winograd, {&fit_winograd<T>, &run_winograd<T>});
    if constexpr (back && Set.has(col2im)) set(col2im, {&always_fits<T>, &run_col2im<T>});
    if constexpr (Set.has(im2col))
      set(im2col, {&always_fits<T>, back ? &run_im2col_back<T> : &run_im2col<T>});
    if constexpr (Set.has(product)) set(product, {&always_fits<T>, &run_product<T>});
    if constexpr (Set.has(images_in_lanes)) set(images_in_lanes, {&fit_images<T>, &run_images<T>});
    if constexpr (Set.has(bands)) set(bands, {&fit_bands<T>, &run_bands<T>});
    set(plain, {&always_fits<T>, &run_plain<T>});
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
