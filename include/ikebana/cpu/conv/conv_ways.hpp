#pragma once

#include "ikebana/core/shape.hpp"
#include "ikebana/cpu/conv/panels.hpp"
#include "ikebana/cpu/conv/product.hpp"
#include "ikebana/cpu/conv/run.hpp"
#include "ikebana/cpu/conv/spread.hpp"
#include "ikebana/cpu/conv/tiles.hpp"
#include "ikebana/cpu/conv/ways.hpp"
#include "ikebana/cpu/conv/weights.hpp"
#include "ikebana/cpu/conv/winograd.hpp"
#include "ikebana/cpu/conv/winograd/weights.hpp"

// The ways (ways.hpp) for what a caller needs.
namespace ikebana::cpu::detail {

template <class T, conv_needs Needs, bool Adds>
constexpr pass_ways<T> make_pass_ways() {
  constexpr bool walks = Needs.walks;
  constexpr conv_parts parts{.strides = Needs.strides,
                             .thirds = Needs.thirds,
                             .adds = Adds,
                             .slides = walks,
                             .dots = false,
                             .panels = walks && Needs.many};
  pass_ways<T> ways{};
  ways.tiles = &tiles_of<T, parts>;
  if constexpr (Needs.winograd) ways.winograd = &run_winograd<T>;
  if constexpr (Needs.ones) ways.product = &run_product<T>;
  if constexpr (walks) ways.walk = &walk_pass<T>;
  if constexpr (walks && Needs.many) ways.panels = &run_panels<T>;
  return ways;
}
template <class T, conv_needs Needs, bool Adds = false>
inline constexpr pass_ways<T> pass_ways_for = make_pass_ways<T, Needs, Adds>();

template <class T, conv_needs Needs>
constexpr data_ways<T> make_data_ways() {
  constexpr bool handed = Needs.walks && Needs.handed;
  data_ways<T> ways{};
  ways.pass = &pass_ways_for<T, Needs, handed>;
  if constexpr (handed) ways.spread = &run_spread<T>;
  return ways;
}
template <class T, conv_needs Needs>
inline constexpr data_ways<T> data_ways_for = make_data_ways<T, Needs>();

template <class T, conv_needs Needs>
constexpr weights_ways<T> make_weights_ways() {
  constexpr conv_parts parts{.strides = Needs.strides,
                             .thirds = Needs.thirds,
                             .adds = false,
                             .slides = Needs.walks && Needs.deep,
                             .dots = Needs.walks,
                             .panels = false};
  weights_ways<T> ways{};
  ways.tiles = &tiles_of<T, parts>;
  if constexpr (Needs.winograd_weights) ways.winograd = &run_winograd_weights<T>;
  if constexpr (Needs.ones) ways.product = &weights_product<T>;
  if constexpr (Needs.walks) ways.walk = &walk_weights<T>;
  if constexpr (Needs.walks && Needs.deep) ways.lanes = &run_weights_by_lanes<T>;
  return ways;
}
template <class T, conv_needs Needs>
inline constexpr weights_ways<T> weights_ways_for = make_weights_ways<T, Needs>();

/// All ways.
template <class T>
const pass_ways<T>& all_pass_ways() {
  return pass_ways_for<T, conv_needs{}>;
}
template <class T>
const data_ways<T>& all_data_ways() {
  return data_ways_for<T, conv_needs{}>;
}
template <class T>
const weights_ways<T>& all_weights_ways() {
  return weights_ways_for<T, conv_needs{}>;
}

IKEBANA_CPU_KERNEL(all_pass_ways)
IKEBANA_CPU_KERNEL(all_data_ways)
IKEBANA_CPU_KERNEL(all_weights_ways)

}  // namespace ikebana::cpu::detail
