#pragma once

#include <cstddef>
#include <type_traits>

#include "ikebana/core/aligned_buffer.hpp"
#include "ikebana/core/dtype.hpp"
#include "ikebana/cpu/detail/targets.hpp"
#include "ikebana/module/program.hpp"

namespace ikebana {

/// The offsets of a program's parameters and buffers in their flat allocations. Parameters are
/// counted in elements and laid out in the order in which backward finishes them, so that the
/// complete ones are always a prefix. Buffers are counted in bytes. Each starts at a multiple of 64
/// bytes; the gaps between them are zero and stay so.
template <program_sizes N>
struct parameter_layout {
  program_table<dim_t, N.parameters> offsets{};
  /// By leaf: the end of the prefix that is complete after the leaf's backward.
  program_table<dim_t, N.leaves> completed{};
  program_table<dim_t, N.buffers> buffer_offsets{};
  dim_t parameter_elements = 0;
  dim_t buffer_bytes = 0;
  dim_t persistent_bytes = 0;  ///< Those of the persistent buffers, which come first.
};

namespace detail {

/// Assigns the offsets of parameters and returns the number of elements. `first_node` is scratch,
/// by leaf.
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
  // Leaves that no step runs.
  for (int l = 0; l < leaves; ++l)
    if (first_node[l] < 0) add(l);
  return elements;
}

/// Assigns the offsets of buffers, persistent ones first, whose bytes are added to `persistent`.
/// Returns the bytes of all.
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

/// Both at run time.
template <class T>
[[gnu::cold]] void lay_out_at_run_time(const program_view& p, dim_t* offsets, dim_t* completed,
                                       int* first_node, dim_t* buffer_offsets, dim_t* totals) {
  totals[0] = place_parameters(p, sizeof(T), offsets, completed, first_node);
  totals[1] = place_buffers(p, sizeof(T), buffer_offsets, totals[2]);
}
IKEBANA_CPU_KERNEL(lay_out_at_run_time)

template <class T, program_sizes N>
[[gnu::cold]] constexpr void lay_out_into(parameter_layout<N>& out, const program<N>& p,
                                          program_table<int, N.leaves>& first_node) {
  if (!std::is_constant_evaluated()) {
    dim_t totals[3]{};
    lay_out_at_run_time<T>(p.view(), out.offsets.data(), out.completed.data(), first_node.data(),
                           out.buffer_offsets.data(), totals);
    out.parameter_elements = totals[0];
    out.buffer_bytes = totals[1];
    out.persistent_bytes = totals[2];
    return;
  }
  out.parameter_elements = place_parameters(p.view(), sizeof(T), out.offsets.data(),
                                            out.completed.data(), first_node.data());
  out.buffer_bytes =
      place_buffers(p.view(), sizeof(T), out.buffer_offsets.data(), out.persistent_bytes);
}

}  // namespace detail

/// The layout for element type T. A constant expression if all extents are known. O(nodes +
/// parameters).
template <class T, program_sizes N>
constexpr parameter_layout<N> lay_out(const program<N>& p) {
  parameter_layout<N> out;
  program_table<int, N.leaves> first_node{};
  detail::lay_out_into<T>(out, p, first_node);
  return out;
}

}  // namespace ikebana
