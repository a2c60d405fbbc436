#pragma once

#include <cstddef>

#include "ikebana/module/program.hpp"

namespace ikebana::detail {

/// Which calls of a program make a value and read it.
// Without initial values: g++ 12 forgets those of a member of an array in a constant expression.
struct value_use {
  int producer;       ///< A node; -1 for the caller.
  int last_consumer;  ///< The last node that reads it; -1 for none.
  int consumers;      ///< How often it is read.
  bool is_output;
};

[[gnu::cold]] constexpr void find_uses(const program_view& p, value_use* uses) {
  for (std::size_t v = 0; v < p.n.values; ++v) uses[v] = {-1, -1, 0, false};
  for (int k = 0; k < static_cast<int>(p.n.nodes); ++k) {
    const program_node& node = p.nodes[k];
    for (std::size_t i = 0; i < node.input_count; ++i) {
      value_use& read = uses[node.inputs[i]];
      read.last_consumer = k;
      ++read.consumers;
    }
    for (std::size_t i = 0; i < node.output_count; ++i)
      uses[static_cast<std::size_t>(node.first_output) + i].producer = k;
  }
  for (std::size_t i = 0; i < p.output_count; ++i) uses[p.outputs[i]].is_output = true;
}

}  // namespace ikebana::detail
