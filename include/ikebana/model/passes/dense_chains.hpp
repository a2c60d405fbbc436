#pragma once

#include <algorithm>
#include <cstddef>

#include "ikebana/core/aligned_buffer.hpp"
#include "ikebana/cpu/dense_layer.hpp"
#include "ikebana/model/passes/execution.hpp"
#include "ikebana/model/plan/fusion.hpp"

namespace ikebana::detail {

/// Fills in the layers that run in one call, and the chains of them by node. Small layers are
/// packed if their parameters, which are compared before every call, are close together in memory;
/// the weights of others may be transposed. Which of both depends on no number of rows, so that a
/// row has the same bits among any number of others, and what was made of unchanged weights can be
/// reused when the number of rows changes. Returns the number of elements that this takes of
/// `memory`, which is zero or as filled in the last time; null to only count.
template <class T>
[[gnu::cold]] dim_t point_chains(const execution<T>& run, const fused_call* calls, int nodes,
                                 cpu::dense_layer<T>* layers, cpu::dense_chain<T>* chains,
                                 T* memory) {
  constexpr dim_t most_compared = 8192;
  dim_t used = 0;
  const auto take = [&](dim_t n) {
    T* const at = memory == nullptr ? nullptr : memory + used;
    used += round_up_to_alignment<T>(n);
    return at;
  };
  for (int k = 0; k < nodes; ++k) {
    if (calls[k].layers <= 0) continue;
    cpu::dense_chain<T>& chain = chains[k];
    chain = {.layers = layers + k};
    const T *first = nullptr, *end = nullptr;
    for (int l = k; chain.count < calls[k].layers; ++l) {
      const program_node& node = run.nodes[l];
      if (!node.role.is_layer) continue;
      const program_leaf& leaf = run.leaves[node.leaf];
      const T* const* const own = run.parameters + leaf.first_parameter;
      const shape &in = run.shapes[node.inputs[0]], &out = run.shapes[node.first_output];
      cpu::dense_layer<T>& layer = layers[k + chain.count++];
      layer = {.weight = own[0],
               .bias = leaf.parameter_count > 1 ? own[1] : nullptr,
               .y = run.values[calls[l].gives_other ? calls[l].output : node.first_output],
               .rows = in.numel(0, in.rank() - 1),
               .in = in.back(),
               .out = out.back(),
               .function = {calls[l].function, run.activate},
               .product = run.make_product,
               .turned_stamp = layer.turned_stamp};
      if (layer.may_turn()) layer.turned = take(layer.turned_size());
      if (!layer.is_small()) continue;
      const auto reach = [&](const T* p, dim_t n) {
        const T* const to = p + round_up_to_alignment<T>(n);
        if (first == nullptr || p < first) first = p;
        if (end == nullptr || to > end) end = to;
      };
      reach(layer.weight, layer.in * layer.out);
      if (layer.bias != nullptr) reach(layer.bias, layer.out);
    }
    if (end - first == 0 || end - first > most_compared) continue;
    const auto size = static_cast<dim_t>(end - first);
    T* const seen = take(size);
    for (int l = k; l < k + chain.count; ++l) {
      if (layers[l].is_small()) layers[l].pack_to(take(layers[l].packed_size()));
    }
    chain.weights = first;
    chain.seen = seen;
    chain.size = size;
  }
  return used;
}
IKEBANA_CPU_KERNEL(point_chains)

}  // namespace ikebana::detail
