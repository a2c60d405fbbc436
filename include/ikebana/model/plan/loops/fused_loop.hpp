#pragma once

#include "ikebana/cpu/fused_loop.hpp"

namespace ikebana::detail {

/// A fused loop of a network. `forward` runs with the last of its nodes, `backward` with the last
/// of those that have one.
struct fused_loop {
  int first = 0, last = -1;  ///< Nodes.
  cpu::loop_program forward{}, backward{};
};

/// What an edge carries out of its loop: nothing, a gradient that the loop writes, or one that is
/// zero before.
enum class loop_edge : unsigned char { nothing, gradient, sum };

/// Scratch of the builder, by value.
struct loop_value {
  int same = -1;  ///< The value that it is, of another shape; or itself.
  bool stored_for_backward = false;
  bool made = false, stored = false, needed = false, scattered = false, given = false;
  bool owned = false;  ///< The gradient is in memory that may be written.
  int contributions = 0;
  int carrier = -1;  ///< The edge that carries the gradient out of the loop.
  cpu::loop_operand now{}, wide{}, gradient{};
};

/// Tables of the loops of a network, on whose size they depend.
struct loop_tables {
  fused_loop* loops = nullptr;  ///< By number.
  cpu::loop_instruction* code = nullptr;
  int capacity = 0;
  cpu::strided_map* maps = nullptr;  ///< By edge, of what is read; then of what is added to.
  loop_edge* edges = nullptr;        ///< By edge.
  loop_value* values = nullptr;
  int* indices = nullptr;  ///< Scratch of twice the capacity.
};

}  // namespace ikebana::detail
