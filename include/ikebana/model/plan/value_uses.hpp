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
  bool is_learned;      ///< Whether it depends on parameters.
  bool is_constant;     ///< Whether it depends on parameters and shapes alone.
  bool needs_gradient;  ///< Whether a node with parameters has made it or passes its gradient on.
  bool is_given;        ///< Whether it is an output or a backward gives it a gradient.
  /// Whether a node that runs again before the first backward with gradients of inputs, for it has
  /// no backward without them, reads it, and what makes it does not run again.
  bool is_read_again;
};

/// Whether the output of node k must be kept until backward because its forward, which changes
/// buffers, cannot be repeated where others can: in evaluation, before all parameters, and behind
/// stopped gradients; or because what is repeated reads it.
constexpr bool is_kept_until_backward(const program_view& p, const value_use* uses, int k) {
  const program_node& node = p.nodes[k];
  const auto first = static_cast<std::size_t>(node.first_output);
  const bool has_buffers = p.leaves[node.leaf].buffer_count > 0 && !node.role.is_frozen;
  bool is_kept = node.role.is_stateful || (has_buffers && !uses[first].needs_gradient),
       given = false;
  for (std::size_t i = 0; i < node.output_count; ++i) {
    is_kept = is_kept || uses[first + i].is_read_again;
    given = given || uses[first + i].is_given;
  }
  return is_kept || (has_buffers && !given && p.leaves[node.leaf].parameter_count == 0);
}

[[gnu::cold]] constexpr void find_uses(const program_view& p, value_use* uses) {
  for (std::size_t v = 0; v < p.n.values; ++v)
    uses[v] = {-1, -1, 0, false, false, false, false, false, false};
  for (int k = 0; k < static_cast<int>(p.n.nodes); ++k) {
    const program_node& node = p.nodes[k];
    bool learned = p.leaves[node.leaf].parameter_count > 0, backward = learned;
    bool constant = !node.role.is_random && !node.role.is_stateful && node.arm < 0 &&
                    node.choice < 0 && (node.role.is_source || node.input_count > 0);
    for (std::size_t i = 0; i < node.input_count; ++i) {
      value_use& read = uses[node.inputs[i]];
      learned = learned || read.is_learned;
      backward = backward || (read.needs_gradient && !node.role.stops_gradient);
      constant = constant && (node.role.is_source || read.is_constant);
      read.last_consumer = k;
      ++read.consumers;
    }
    for (std::size_t i = 0; i < node.output_count; ++i) {
      value_use& made = uses[static_cast<std::size_t>(node.first_output) + i];
      made.producer = k;
      made.is_learned = learned;
      made.is_constant = constant;
      made.needs_gradient = backward;
    }
  }
  for (std::size_t i = 0; i < p.output_count; ++i)
    uses[p.outputs[i]].is_output = uses[p.outputs[i]].is_given = true;
  for (int k = static_cast<int>(p.n.nodes); k-- > 0;) {
    const program_node& node = p.nodes[k];
    const program_leaf& leaf = p.leaves[node.leaf];
    bool given = leaf.parameter_count > 0, passes = false;
    for (std::size_t i = 0; i < node.output_count; ++i) {
      const value_use& made = uses[static_cast<std::size_t>(node.first_output) + i];
      given = given || made.is_given;
      passes = passes || made.is_read_again;
    }
    const bool backward = given && uses[node.first_output].needs_gradient;
    const bool again = !backward && (leaf.buffer_count == 0 || node.role.is_frozen);
    passes = passes && (node.is_view || node.view.exists || node.choice >= 0);
    for (std::size_t i = 0; i < node.input_count; ++i) {
      value_use& read = uses[node.inputs[i]];
      read.is_given = read.is_given || (backward && !node.role.stops_gradient);
      read.is_read_again = read.is_read_again || again || passes;
    }
    for (std::size_t i = 0; i < node.output_count && again; ++i)
      uses[static_cast<std::size_t>(node.first_output) + i].is_read_again = false;
  }
}

IKEBANA_CPU_END_SMALL
}  // namespace ikebana::detail
