#pragma once

#include "ikebana/cpu/detail/targets.hpp"

namespace ikebana::cpu {

enum class tensor_op : unsigned char;

/// Reductions of the values of a graph (ops/reduction.hpp).
enum class reduction_op : unsigned char { sum, mean, var, max, min, logsumexp, norm };

/// What a leaf does to each element, or to each row, for fusion with others into one loop.
struct loop_step {
  enum class kinds : unsigned char { none, map, function, fold };

  kinds kind = kinds::none;
  unsigned char f = 0;         ///< A tensor_op of a map, an activation, a reduction_op of a fold.
  unsigned char operands = 0;  ///< Of a map.
  unsigned char numbers = 0;   ///< A bit for each operand that is a number.
  bool leads = false;          ///< A loop has a step that leads, or it is not worth making.
  unsigned dims = 0;  ///< Of a fold: bits 0 to 7 from the first on, 8 to 15 from the last; 0: all.
  /// 1 if reading a result again takes less time than computing it, as long as it is in a cache;
  /// 2 if it always does.
  unsigned char cost = 0;
  double number[3]{};  ///< Of a fold, the first: order of a norm, correction of a variance.

  /// Whether a fold of so many dimensions reduces this one.
  constexpr bool reduces(unsigned dim, unsigned rank) const {
    return dims == 0 || (dims >> dim & 1) != 0 || (dims >> (8 + rank - 1 - dim) & 1) != 0;
  }
  constexpr tensor_op op() const { return static_cast<tensor_op>(f); }
  constexpr reduction_op reduction() const { return static_cast<reduction_op>(f); }
};

}  // namespace ikebana::cpu
