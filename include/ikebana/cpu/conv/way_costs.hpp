#pragma once

#include <cstddef>

#include "ikebana/core/shape.hpp"
#include "ikebana/cpu/conv/columns.hpp"
#include "ikebana/cpu/conv/lanes.hpp"
#include "ikebana/cpu/conv/pass.hpp"
#include "ikebana/cpu/conv/plan.hpp"
#include "ikebana/cpu/conv/row_parts.hpp"
#include "ikebana/cpu/conv/shapes.hpp"
#include "ikebana/cpu/conv/spread.hpp"
#include "ikebana/cpu/conv_geometry.hpp"
#include "ikebana/cpu/detail/quotients.hpp"

// About how many cycles an image takes by other ways than row_lanes.hpp, whose own cost they are
// held against: coefficients fitted to some 400 convolutions with strides, which they meet within
// 15 %. Of one image, so that the way does not depend on the batch.
namespace ikebana::cpu::detail {

/// The products of an image, in pairs of registers.
inline double products_of(const conv_pass& forward, dim_t width) {
  return static_cast<double>(forward.multiply_adds()) /
         static_cast<double>(2 * width * (forward.batch > 0 ? forward.batch : 1));
}

/// Of a plan that fits.
template <class T>
double plan_cycles(const conv_plan<T>& plan) {
  const auto real = [](dim_t n) { return static_cast<double>(n); };
  const conv_pass& p = plan.p;
  if (p.batch > 1) {
    conv_pass one = p;
    one.batch = 1;
    conv_plan<T> of_one{plan.tiles, one};
    return of_one.fit() ? plan_cycles(of_one) : 0;
  }
  const conv_tiles<T>& tiles = plan.tiles;
  const auto& l = plan.layout;
  const dim_t bands = p.to[0] * parts(p.to[1], plan.rows) * parts(p.to[2], plan.columns),
              depth = p.sources * plan.taps;
  const double copied = plan.in_place ? 0
                                      : real(bands * parts(p.results, plan.results) * p.sources) *
                                            real(l.channel) / real(l.pitch),
               placed = plan.direct ? 0 : real(bands * p.results * plan.rows),
               elements = copied * real(l.pitch) / real(tiles.width);
  if (plan.panel) {
    const dim_t positions = plan.flat ? (plan.rows - 1) * l.pitch + plan.columns
                                      : plan.slots * plan.rows * plan.columns;
    const double each = real(bands) / real(plan.slots) * real(depth);
    return 3000 +
           each * (real(p.results) * plan.tile_cycles(positions) +
                   3 * real(parts(positions, tiles.width))) +
           8 * copied + 5 * placed;
  }
  const dim_t positions = (plan.rows - 1) * l.pitch + plan.columns;
  double computed = 0;
  for (dim_t r = 0; r < p.results;) {
    const auto& s = shape_for(tiles.slides, p.results - r);
    const dim_t size = s.registers * tiles.width, left = positions % size;
    const bool narrow = s.narrow != nullptr && left > 0 && left <= tiles.width;
    computed += real(positions / size + (left > 0 && !narrow)) * real(s.rows * s.registers) / 2 +
                (narrow ? 4.5 : 0);
    r += s.rows;
  }
  return 1000 + 0.94 * computed * real(bands * depth) + 7 * copied + 3.5 * elements + 12 * placed;
}

template <class T>
double lanes_cycles(const conv_tiles<T>& tiles, const conv_pass& p) {
  return 8000 + 1.4 * products_of(p, tiles.width);
}
/// Of a pass.
template <class T>
double pass_cycles(const conv_tiles<T>& tiles, const conv_pass& p) {
  const conv_operands<T> none{};
  if (lanes_run<T> lanes{tiles, p, none}; lanes.fit()) return lanes_cycles(tiles, p);
  conv_plan<T> plan{tiles, p};
  return plan.fit() ? plan_cycles(plan) : 0;
}
template <class T>
double forward_cycles(const conv_columns<T>& columns) {
  const double gathered = static_cast<double>(columns.plane * columns.taps);
  return 1000 + 1.3 * products_of(columns.p, columns.tiles.width) +
         gathered * (2.2 + 1.7 * static_cast<double>(columns.p.sources));
}
template <class T>
double backward_data_cycles(const conv_columns<T>& columns) {
  const conv_pass& p = columns.p;
  const conv_rows rows{p};
  // What lies outside is left out.
  double met = 1;
  for (std::size_t d = 0; d < 3; ++d) {
    dim_t of_axis = 0;
    for (dim_t at = 0; at < p.to[d]; ++at) of_axis += rows.seen(d, at).size();
    met *= static_cast<double>(of_axis);
  }
  return 1000 + 1.15 * products_of(p, columns.tiles.width) +
         1.5 * static_cast<double>(columns.plane * columns.taps) +
         met * (3.3 + static_cast<double>(p.sources));
}
template <class T>
double backward_data_cycles(const conv_spread<T>& spread) {
  const double added = static_cast<double>(spread.p.sources * spread.taps * spread.lines),
               registers =
                   static_cast<double>(spread.row) / static_cast<double>(spread.tiles.width);
  return 750 + 0.95 * products_of(spread.p, spread.tiles.width) + added * (5 + 5 * registers);
}

}  // namespace ikebana::cpu::detail
