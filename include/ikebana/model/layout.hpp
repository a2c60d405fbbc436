#pragma once

#include <cstddef>

#include "ikebana/core/aligned_buffer.hpp"
#include "ikebana/core/dtype.hpp"
#include "ikebana/module/program.hpp"

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

namespace detail {

/// Places the parameters; returns how many elements they take. `first_node` is for its use: by
/// leaf.
[[gnu::cold]] constexpr dim_t place_parameters(const program_view& p, std::size_t element_size,
                                               dim_t* offsets, dim_t* completed, int* first_node) {
  dim_t elements = 0;
  const auto add = [&](int l) {
    const program_leaf& leaf = p.leaves[l];
    for (std::size_t i = 0; i < leaf.parameter_count; ++i) {
      const std::size_t index = static_cast<std::size_t>(leaf.first_parameter) + i;
      offsets[index] = elements;
      elements += round_up_to_alignment(p.parameters[index].spec.extents.numel(), element_size);
    }
    completed[l] = elements;
  };
  const auto leaves = static_cast<int>(p.n.leaves), nodes = static_cast<int>(p.n.nodes);
  for (int l = 0; l < leaves; ++l) first_node[l] = -1;
  for (int k = nodes; k-- > 0;) first_node[p.nodes[k].leaf] = k;
  for (int k = nodes; k-- > 0;)
    if (first_node[p.nodes[k].leaf] == k) add(p.nodes[k].leaf);
  // What no step runs.
  for (int l = 0; l < leaves; ++l)
    if (first_node[l] < 0) add(l);
  return elements;
}

/// Places the buffers, those that persist first, whose bytes are added to `persistent`; returns how
/// many bytes all take.
[[gnu::cold]] constexpr dim_t place_buffers(const program_view& p, std::size_t element_size,
                                            dim_t* offsets, dim_t& persistent) {
  dim_t bytes = 0;
  for (const bool persists : {true, false}) {
    for (std::size_t b = 0; b < p.n.buffers; ++b) {
      const buffer_spec& spec = p.buffers[b].spec;
      if (spec.persistent != persists) continue;
      const std::size_t size = spec.follows_model ? element_size : size_of(spec.type);
      offsets[b] = bytes;
      bytes += round_up_to_alignment<std::byte>(spec.extents.numel() * static_cast<dim_t>(size));
    }
    if (persists) persistent = bytes;
  }
  return bytes;
}

}  // namespace detail

/// The layout for element type T. A constant expression where all extents are known. O(nodes +
/// parameters).
template <class T, program_sizes N>
constexpr parameter_layout<N> lay_out(const program<N>& p) {
  parameter_layout<N> out;
  program_table<int, N.leaves> first_node{};
  out.parameter_elements = detail::place_parameters(p.view(), sizeof(T), out.offsets.data(),
                                                    out.completed.data(), first_node.data());
  out.buffer_bytes =
      detail::place_buffers(p.view(), sizeof(T), out.buffer_offsets.data(), out.persistent_bytes);
  return out;
}

}  // namespace ikebana
