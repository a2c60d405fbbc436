#pragma once

#include "ikebana/core/shape.hpp"
#include "ikebana/cpu/conv/plan.hpp"
#include "ikebana/cpu/conv_geometry.hpp"
#include "ikebana/cpu/detail/targets.hpp"
#include "ikebana/cpu/exact_convolution.hpp"

#if IKEBANA_CPU_HERE
#include "ikebana/cpu/conv/bands.hpp"
#include "ikebana/cpu/conv/col2im.hpp"
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
bool run_im2col(const conv_table<T>& table, const conv_pass& p, const conv_operands<T>& of) {
  conv_im2col<T>{table.tiles(), p}.forward(of);
  return true;
}
template <class T>
bool run_im2col_back(const conv_table<T>& table, const conv_pass& forward,
                     const conv_operands<T>& of) {
  conv_im2col<T>{table.tiles(), forward}.backward_data(of.source, of.weights, of.result, of.bias);
  return true;
}
template <class T>
bool run_im2col_weights(const weights_table<T>&, const weights_job<T>& job) {
  conv_im2col<T>{job.tiles, job.p}.backward_weights(job.x, job.dy, job.dw, job.accumulate);
  return true;
}

template <class T, conv_set Set, bool Back>
constexpr conv_table<T> make_conv_table() {
  using enum conv_algorithm;
  constexpr bool walks = Set.has(bands) || Set.has(images_in_lanes);
  constexpr conv_parts parts{
      .strides = Set.strides, .adds = Back && Set.has(col2im), .slides = walks, .dots = false};
  conv_table<T> table{};
  table.tiles = &tiles_of<T, parts>;
  const auto set = [&](conv_algorithm a, conv_run<T> run) { table.run[static_cast<int>(a)] = run; };
  if constexpr (Set.has(winograd)) set(winograd, &run_winograd<T>);
  if constexpr (Back && Set.has(col2im)) set(col2im, &run_col2im<T>);
  if constexpr (Set.has(im2col)) set(im2col, Back ? &run_im2col_back<T> : &run_im2col<T>);
  if constexpr (Set.has(product)) set(product, &run_product<T>);
  if constexpr (Set.has(images_in_lanes)) set(images_in_lanes, &run_images<T>);
  if constexpr (Set.has(bands)) set(bands, &run_bands<T>);
  set(plain, &run_plain<T>);
  return table;
}
template <class T, conv_set Set, bool Back>
inline constexpr conv_table<T> conv_table_of = make_conv_table<T, Set, Back>();

template <class T, conv_set Set>
constexpr weights_table<T> make_weights_table() {
  using enum conv_algorithm;
  constexpr conv_parts parts{.strides = Set.strides,
                             .adds = false,
                             .slides = Set.has(channels_in_lanes),
                             .dots = Set.has(bands)};
  weights_table<T> table{};
  table.tiles = &tiles_of<T, parts>;
  const auto set = [&](conv_algorithm a, weights_run<T> run) {
    table.run[static_cast<int>(a)] = run;
  };
  if constexpr (Set.has(winograd)) set(winograd, &run_winograd_weights<T>);
  if constexpr (Set.has(im2col)) set(im2col, &run_im2col_weights<T>);
  if constexpr (Set.has(product)) set(product, &run_weights_product<T>);
  if constexpr (Set.has(channels_in_lanes)) set(channels_in_lanes, &run_channels<T>);
  if constexpr (Set.has(bands)) set(bands, &run_dots<T>);
  set(plain, &run_weights_plain<T>);
  return table;
}
template <class T, conv_set Set>
inline constexpr weights_table<T> weights_table_of = make_weights_table<T, Set>();

/// All algorithms.
template <class T>
const conv_table<T>& forward_algorithms() {
  return conv_table_of<T, conv_set{}, false>;
}
template <class T>
const conv_table<T>& data_algorithms() {
  return conv_table_of<T, conv_set{}, true>;
}
template <class T>
const weights_table<T>& weights_algorithms() {
  return weights_table_of<T, conv_set{}>;
}
#else
template <class T>
struct conv_table;
template <class T>
struct weights_table;
template <class T>
const conv_table<T>& forward_algorithms();
template <class T>
const conv_table<T>& data_algorithms();
template <class T>
const weights_table<T>& weights_algorithms();
#endif
IKEBANA_CPU_KERNEL(forward_algorithms)
IKEBANA_CPU_KERNEL(data_algorithms)
IKEBANA_CPU_KERNEL(weights_algorithms)

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

/// The tables of what is needed. Programs that take their kernels from elsewhere have all.
template <class T, conv_set Needed>
const conv_table<T>& forward_algorithms_for() {
#if IKEBANA_CPU_HERE
  return conv_table_of<T, Needed, false>;
#else
  return forward_algorithms<T>();
#endif
}
template <class T, conv_set Needed>
const conv_table<T>& data_algorithms_for() {
#if IKEBANA_CPU_HERE
  return conv_table_of<T, Needed, true>;
#else
  return data_algorithms<T>();
#endif
}
template <class T, conv_set Needed>
const weights_table<T>& weights_algorithms_for() {
#if IKEBANA_CPU_HERE
  return weights_table_of<T, Needed>;
#else
  return weights_algorithms<T>();
#endif
}

}  // namespace ikebana::cpu::detail

namespace ikebana::cpu {

/// What is built for convolutions of which the kernel, strides, dilation, padding and channels are
/// known (negative where not).
template <class T>
constexpr conv_set conv_set_for(conv_direction direction, const conv_geometry& g) {
  return detail::built(detail::needed_for<T>(direction, g));
}

}  // namespace ikebana::cpu
