#pragma once

#include <algorithm>

#include "ikebana/core/shape.hpp"
#include "ikebana/cpu/conv/row_parts.hpp"
#include "ikebana/cpu/conv/tiles.hpp"
#include "ikebana/cpu/detail/quotients.hpp"

namespace ikebana::cpu::detail {

/// How results are divided into blocks, whose registers tiles of positions of a row share.
template <class T>
struct row_tiles {
  using shape_type = typename conv_tiles<T>::slide_shape;

  dim_t lanes = 0, blocks = 0;                              // of a block of results
  const shape_type* shapes[2][conv_rows::most_parts] = {};  // of the last block; of others

  /// The number of registers of a block whose tiles take least.
  void choose_block(const conv_tiles<T>& tiles, const conv_rows& p) {
    constexpr dim_t most = 4;
    const dim_t all = parts(p.results, tiles.width);
    const shape_type* chosen[conv_rows::most_parts][most + 1] = {};
    double cycles[most + 1] = {};
    for (dim_t r = 0; r < p.step[2]; ++r) {
      double row[most + 1] = {};
      const dim_t n = p.columns(r);
      for (const shape_type* s = tiles.across; n > 0 && s->whole != nullptr; ++s) {
        const double takes = row_cycles(*s, n);
        if (chosen[r][s->registers] != nullptr && takes >= row[s->registers]) continue;
        chosen[r][s->registers] = s;
        row[s->registers] = takes;
      }
      for (dim_t i = 1; i <= most; ++i)
        cycles[i] += row[i] * static_cast<double>(p.reach[2][r].kernel);
    }
    double best = 0;
    for (dim_t i = 1; i <= most && chosen[0][i] != nullptr && i <= all; ++i) {
      const dim_t n = parts(all, i), last = all - (n - 1) * i;
      const double takes = static_cast<double>(n - 1) * cycles[i] + cycles[last];
      if (blocks > 0 && takes >= best) continue;
      best = takes;
      blocks = n;
      lanes = i * tiles.width;
      for (dim_t r = 0; r < p.step[2]; ++r)
        shapes[0][r] = chosen[r][last], shapes[1][r] = chosen[r][i];
    }
  }
  static double row_cycles(const shape_type& s, dim_t n) {
    return static_cast<double>(parts(n, s.rows)) * (tile_cycles(s) + 0.2);
  }
  static double tile_cycles(const shape_type& s) {
    const dim_t loads = s.rows + s.registers + 2, products = s.rows * s.registers;
    return static_cast<double>(std::max({products, loads, dim_t{8}})) / 2;
  }
};

}  // namespace ikebana::cpu::detail
