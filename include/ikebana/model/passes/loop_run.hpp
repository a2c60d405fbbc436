#pragma once

#include <cstddef>
#include <cstring>

#include "ikebana/cpu/activation.hpp"
#include "ikebana/cpu/elementwise.hpp"
#include "ikebana/cpu/fused_loop.hpp"
#include "ikebana/model/element.hpp"
#include "ikebana/model/passes/execution.hpp"
#include "ikebana/model/plan/loops/loop_builder.hpp"
#include "ikebana/module/module.hpp"

namespace ikebana::detail {

/// Whether the leaves of a network may form loops, and of which activations.
struct loop_finder {
  bool leads = false;
  unsigned activations = 0;  ///< Bits of one_activation.

  template <class Leaf>
  constexpr void operator()(const Leaf& leaf) {
    const cpu::loop_step s = loop_step_of(leaf);
    leads = leads || s.leads;
    if (s.kind == cpu::loop_step::kinds::function)
      activations |= cpu::one_activation(static_cast<cpu::activation>(s.f));
  }
};
template <any_module M>
constexpr loop_finder find_loop_leaves() {
  loop_finder f;
  const M m{};
  for_each_leaf(m, f);
  return f;
}
template <any_module M>
inline constexpr loop_finder loop_leaves_of = find_loop_leaves<M>();

/// Renews the steps of the leaves of a network.
struct change_steps {
  program_node* nodes;
  int k = 0;

  template <class Leaf>
  void operator()(const Leaf& leaf) {
    nodes[k++].role.step = loop_step_of(leaf);
  }
};

/// Runs the loop of node k, whose activations are among `Of`.
template <class T, unsigned Of>
void run_loop(const execution<T>& run, int k, bool backward) {
  const fused_loop& loop = run.loops->loops[run.fused[k].loop - 1];
  const cpu::loop_memory<T> memory{run.values,
                                   run.value_gradients,
                                   run.edge_gradients,
                                   run.saved,
                                   &cpu::run_loop_activation<T, Of>,
                                   &cpu::run_loop_activation_backward<T, Of>};
  if (!backward) return cpu::run_fused_loop<T>(loop.forward, memory);
  const auto for_each_edge = [&](auto f) {
    for (int j = loop.first; j <= loop.last; ++j)
      for (std::size_t i = 0; i < run.nodes[j].input_count; ++i) {
        const int e = run.nodes[j].first_edge + static_cast<int>(i);
        if (run.loops->edges[e] != loop_edge::nothing && run.edge_gradients[e] != nullptr)
          f(e, run.nodes[j].inputs[i]);
      }
  };
  for_each_edge([&](int e, int v) {
    if (run.loops->edges[e] == loop_edge::sum)
      std::memset(run.edge_gradients[e], 0, run.bytes_of(v));
  });
  cpu::run_fused_loop<T>(loop.backward, memory);
  for_each_edge([&](int e, int v) {
    if (T* const sum = run.edge_sums[e])
      cpu::add<T>(run.shapes[v].numel(), sum, run.edge_gradients[e], sum);
  });
}

/// Tables of the loops of a network of this size.
template <program_sizes N>
struct loop_storage {
  static constexpr std::size_t capacity = 12 * N.nodes;
  program_table<fused_loop, N.nodes> loops{};
  program_table<cpu::loop_instruction, capacity> code{};
  program_table<cpu::strided_map, 2 * N.edges> maps{};
  program_table<loop_edge, N.edges> edges{};
  program_table<loop_value, N.values> values{};
  program_table<int, 2 * capacity> indices{};
  loop_tables tables{loops.data(),  code.data(),  static_cast<int>(capacity),
                     maps.data(),   edges.data(), values.data(),
                     indices.data()};
};

}  // namespace ikebana::detail
