#pragma once

#include <cstddef>

#include "ikebana/cpu/detail/targets.hpp"
#include "ikebana/module/program.hpp"

namespace ikebana::detail {
IKEBANA_CPU_BEGIN_SMALL

/// Which calls of a program define a value and read it.
// No initial values: g++ 12 drops those of array members in a constant expression.
struct value_use {
  int producer;       ///< A node; -1 for the caller.
  int last_consumer;  ///< The last node that reads it; -1 for none.
  int consumers;      ///< The number of times it is read.
  bool is_output;
  bool is_learned;   ///< Whether it depends on parameters.
  bool is_constant;  ///< Whether it depends on parameters and shapes alone.
};

/// Whether the output of node k must be kept until backward because its forward, which changes
/// buffers, cannot be repeated where others can: in evaluation, and before all parameters.
constexpr bool is_kept_until_backward(const program_view& p, const value_use* uses, int k) {
  const program_node& node = p.nodes[k];
  return node.role.is_stateful || (p.leaves[node.leaf].buffer_count > 0 && !node.role.is_frozen &&
                                   !uses[node.first_output].is_learned);
}

[[gnu::cold]] constexpr void find_uses(const program_view& p, value_use* uses) {
  for (std::size_t v = 0; v < p.n.values; ++v) uses[v] = {-1, -1, 0, false, false, false};
  for (int k = 0; k < static_cast<int>(p.n.nodes); ++k) {
    const program_node& node = p.nodes[k];
    bool learned = p.leaves[node.leaf].parameter_count > 0;
    bool constant = !node.role.is_random && !node.role.is_stateful && node.arm < 0 &&
                    node.choice < 0 && (node.role.is_source || node.input_count > 0);
    for (std::size_t i = 0; i < node.input_count; ++i) {
      value_use& read = uses[node.inputs[i]];
      learned = learned || read.is_learned;
      constant = constant && (node.role.is_source || read.is_constant);
      read.last_consumer = k;
      ++read.consumers;
    }
    for (std::size_t i = 0; i < node.output_count; ++i) {
      value_use& made = uses[static_cast<std::size_t>(node.first_output) + i];
      made.producer = k;
      made.is_learned = learned;
      made.is_constant = constant;
    }
  }
  for (std::size_t i = 0; i < p.output_count; ++i) uses[p.outputs[i]].is_output = true;
}

IKEBANA_CPU_END_SMALL
}  // namespace ikebana::detail
