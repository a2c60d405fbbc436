#pragma once

#include <array>
#include <cstddef>

#include "ikebana/core/aligned_buffer.hpp"
#include "ikebana/module/lowering.hpp"

namespace ikebana {

/// Where each parameter and buffer of a program stands in its flat allocation. Parameters are in
/// elements, laid out in the order in which backward finishes them, so that what is complete is
/// always a prefix; buffers are in bytes. Each begins at a multiple of 64 bytes; what lies between
/// them is zero and stays so.
template <program_sizes N>
struct parameter_layout {
  program_table<dim_t, N.parameters> offsets{};
  /// By leaf: the end of the prefix that is complete once backward has finished the leaf.
  program_table<dim_t, N.leaves> completed{};
  program_table<dim_t, N.buffers> buffer_offsets{};
  dim_t parameter_elements = 0;
  dim_t buffer_bytes = 0;
  dim_t persistent_bytes = 0;  ///< Those of the buffers that are saved, which come first.
};

/// The layout for element type T. A constant expression where all extents are known. O(nodes +
/// parameters).
template <class T, program_sizes N>
[[gnu::cold]] constexpr parameter_layout<N> lay_out(const program<N>& p) {
  parameter_layout<N> out;
  program_table<bool, N.nodes> first_call{};
  {
    program_table<bool, N.leaves> seen{};
    for (std::size_t k = 0; k < N.nodes; ++k) {
      const auto leaf = static_cast<std::size_t>(p.nodes[k].leaf);
      first_call[k] = !seen[leaf];
      seen[leaf] = true;
    }
  }
  program_table<bool, N.leaves> placed{};
  const auto add = [&](std::size_t leaf_index) {
    const program_leaf& leaf = p.leaves[leaf_index];
    placed[leaf_index] = true;
    for (std::size_t i = 0; i < leaf.parameter_count; ++i) {
      const std::size_t index = static_cast<std::size_t>(leaf.first_parameter) + i;
      out.offsets[index] = out.parameter_elements;
      out.parameter_elements += round_up_to_alignment<T>(p.parameters[index].spec.extents.numel());
    }
    out.completed[leaf_index] = out.parameter_elements;
  };
  for (std::size_t k = N.nodes; k-- > 0;)
    if (first_call[k]) add(static_cast<std::size_t>(p.nodes[k].leaf));
  // What no step runs.
  for (std::size_t i = 0; i < N.leaves; ++i)
    if (!placed[i]) add(i);
  for (const bool persistent : {true, false}) {
    for (std::size_t b = 0; b < N.buffers; ++b) {
      const buffer_spec& spec = p.buffers[b].spec;
      if (spec.persistent != persistent) continue;
      const std::size_t element = spec.follows_model ? sizeof(T) : size_of(spec.type);
      out.buffer_offsets[b] = out.buffer_bytes;
      out.buffer_bytes +=
          round_up_to_alignment<std::byte>(spec.extents.numel() * static_cast<dim_t>(element));
    }
    if (persistent) out.persistent_bytes = out.buffer_bytes;
  }
  return out;
}

}  // namespace ikebana
