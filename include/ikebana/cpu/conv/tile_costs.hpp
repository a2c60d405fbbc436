#pragma once

#include "ikebana/core/shape.hpp"
#include "ikebana/cpu/conv/tiles.hpp"

namespace ikebana::cpu::detail {

/// About how many cycles a panel's positions take for a result and each element summed, by the
/// cheapest tiles: those for `results`, with `summed` elements at a time.
template <class T>
struct tile_costs {
  using shape_type = typename conv_tiles<T>::slide_shape;

  const conv_tiles<T>& tiles;
  dim_t results, summed;

  /// The tile for the next of the positions that are left, and what all of them cost.
  struct step {
    const shape_type* shape;
    double cycles;
  };
  step next(dim_t left) const {
    const shape_type& panel = tiles.panel;
    if (left == 0) return {&panel, 0};
    const dim_t tile = positions_of(panel);
    const double whole = real(panel.registers) / 2;
    if (left >= 2 * tile) {
      const dim_t n = left / tile - 1;
      return {&panel, real(n) * whole + next(left - n * tile).cycles};
    }
    if (panel.narrow != nullptr && left <= tiles.width) return {&panel, 4.8 / real(panel.rows)};
    step best{&panel, whole + (left > tile ? next(left - tile).cycles : 0)};
    if (results % panel.rows != 0) return best;
    for (const shape_type* i = tiles.lanes; i->whole != nullptr; ++i) {
      const shape_type& s = *i;
      if (s.registers == panel.registers || s.rows > results ||
          left <= positions_of(s) - tiles.width)
        continue;
      const dim_t rest = left - positions_of(s), rows = (results + s.rows - 1) / s.rows * s.rows;
      const double cycles =
          real(s.registers * rows) / real(2 * results) + 0.03 + (rest > 0 ? next(rest).cycles : 0);
      if (cycles < best.cycles) best = {&s, cycles};
    }
    return best;
  }

  /// How many positions at the end of so many are cheaper by sums along the weights than by a tile.
  dim_t few_of(dim_t positions) const {
    const dim_t n = positions % tiles.width;
    return cycles(positions, n) < cycles(positions, 0) ? n : 0;
  }
  /// Of positions of which `few` are summed along the weights.
  double cycles(dim_t positions, dim_t few) const {
    const double along = real(few) * 1.3 * (1 / real(2 * tiles.width) + 4 / real(summed));
    return next(positions - few).cycles + along;
  }

 private:
  static double real(dim_t n) { return static_cast<double>(n); }
  dim_t positions_of(const shape_type& s) const { return s.registers * tiles.width; }
};

}  // namespace ikebana::cpu::detail
