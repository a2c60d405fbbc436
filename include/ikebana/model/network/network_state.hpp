#pragma once

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <memory>
#include <type_traits>

#include "ikebana/core/aligned_buffer.hpp"
#include "ikebana/core/error.hpp"
#include "ikebana/cpu/dense_layer.hpp"
#include "ikebana/cpu/detail/targets.hpp"
#include "ikebana/model/network/kept_inputs.hpp"
#include "ikebana/model/passes/dense_chains.hpp"
#include "ikebana/model/passes/execution.hpp"
#include "ikebana/model/plan/memory_planner.hpp"
#include "ikebana/module/program.hpp"
#include "ikebana/module/shape_list.hpp"

namespace ikebana::detail {

/// A model's state apart from its numbers: pointers to its tables, whose lengths depend on the
/// network, and its progress. Not instantiated per network.
template <class T>
struct network_state {
  std::size_t inputs = 0;
  program_view lowered{};  ///< For the shapes that the parameters were created for.
  program_view current{};  ///< For the shapes of the last inputs.
  memory_tables plan{};
  const dim_t* offsets = nullptr;         ///< By parameter.
  const dim_t* buffer_offsets = nullptr;  ///< By buffer.
  const dim_t* completed = nullptr;       ///< By leaf.
  T** parameters = nullptr;
  T** gradients = nullptr;
  std::byte** buffers = nullptr;
  std::byte** saved = nullptr;
  T** values = nullptr;
  T** value_gradients = nullptr;
  T** edge_gradients = nullptr;
  T** edge_sums = nullptr;
  T** edge_scratch = nullptr;  ///< By edge; null if every leaf runs.
  bool* first_call = nullptr;
  bool* last_call = nullptr;
  bool* unwritten = nullptr;
  cpu::dense_layer<T>* layers = nullptr;  ///< By node: those that run in one call.
  cpu::dense_chain<T>* chains = nullptr;  ///< By node.

  shape_list declared_inputs{};
  shape_list bound_inputs{};
  shape_list current_inputs{};
  bool input_gradients = false;
  unsigned inputs_with_gradients = ~0U;  ///< A bit for each input that has one if any has.
  bool ran_forward = false;
  bool of_loss = false;    ///< The last forward was a training step's: its inputs may be gone.
  bool ran_fused = false;  ///< The last forward was fused, so its backward is.
  bool left_out = false;   ///< The last forward skipped what a backward needs.
  bool checked = false;    ///< The leaves' checks passed, in the mode checked_training.
  bool checked_training = false;
  bool has_views = false;    ///< The plan has views that only fused calls can read.
  bool only_layers = false;  ///< In evaluation, only layers in one call run.
  aligned_buffer<T> packed_layers;
  detail::kept_inputs kept_inputs;
  std::atomic<const void*> user{nullptr};  ///< See exclusive_use.
  std::shared_ptr<const void> lifetime;    ///< Made on request.
  execution<T> run{};
  checkpoint_runs<T> checkpoints{};

  /// Finds the first and the last call of each leaf. `seen` is scratch, by leaf.
  [[gnu::cold]] void mark_calls(bool* seen);

  /// Sets the pointers of a pass, once.
  [[gnu::cold]] void point_execution();

  /// Sets the pointers of each activation, gradient and saved tensor to where the plan puts them in
  /// a workspace.
  [[gnu::cold]] void place(std::byte* workspace);

  /// Sets the destinations of the gradients that leaves write for their inputs.
  void point_edges(std::byte* workspace);

  /// Collects the layers that run in one call, with what is made of their weights in this memory.
  /// Returns its size in elements; null to only count.
  [[gnu::cold]] dim_t point_layers_to(T* memory);
  /// The same in memory of its own.
  [[gnu::cold]] void point_layers();

  /// The destination of the gradient of output i; null if it is not needed.
  T* output_gradient(std::size_t i) const { return value_gradients[lowered.outputs[i]]; }

  void check_output_gradient(std::size_t i, const shape& given) const;

  void check_input_gradient(std::size_t i, const shape& given) const;

  /// Makes the next backward write the gradients of the inputs to the caller's memory; null for
  /// inputs that are not numbers.
  void set_input_gradients(T* const* to, std::byte* workspace);
};

template <class T>
void network_state<T>::mark_calls(bool* seen) {
  const auto mark = [&](std::size_t k, bool* table) {
    bool& s = seen[lowered.nodes[k].leaf];
    table[k] = !s;
    s = true;
  };
  std::fill_n(seen, lowered.n.leaves, false);
  for (std::size_t k = 0; k < lowered.n.nodes; ++k) mark(k, first_call);
  std::fill_n(seen, lowered.n.leaves, false);
  for (std::size_t k = lowered.n.nodes; k-- > 0;) mark(k, last_call);
}

template <class T>
void network_state<T>::point_execution() {
  run.nodes = current.nodes;
  run.leaves = current.leaves;
  run.shapes = current.values;
  run.layouts = plan.layouts;
  run.values = values;
  run.value_gradients = value_gradients;
  run.edge_gradients = edge_gradients;
  run.edge_sums = edge_sums;
  run.runs_backward = plan.runs_backward;
  run.first_call = first_call;
  run.last_call = last_call;
  run.unwritten = unwritten;
  run.parameters = parameters;
  run.gradients = gradients;
  run.completed = completed;
  run.buffers = buffers;
  run.saved = saved;
  run.saved_specs = current.saved;
  run.runs_again = plan.runs_again;
  run.chains = chains;
}

template <class T>
void network_state<T>::place(std::byte* workspace) {
  const auto at = [&](dim_t offset) {
    return offset < 0 ? nullptr : reinterpret_cast<T*>(workspace + offset);
  };
  for (std::size_t v = 0; v < current.n.values; ++v) {
    const value_layout& layout = plan.layouts[v];
    if (v >= inputs) values[v] = at(plan.values[plan.root[v]]) + layout.first_in_whole;
    const dim_t offset = v < inputs ? -1 : plan.value_gradients[plan.gradient_root[v]];
    value_gradients[v] = at(offset) + layout.first_in_gradient;
    unwritten[v] = value_gradients[v] != nullptr && !plan.gradient_written[v];
  }
  for (std::size_t s = 0; s < current.n.saved; ++s)
    saved[s] = workspace + (plan.saved[s] < 0 ? 0 : plan.saved[s]);
  point_edges(workspace);
}

template <class T>
void network_state<T>::point_edges(std::byte* workspace) {
  for (std::size_t k = 0; k < current.n.nodes; ++k) {
    const program_node& node = current.nodes[k];
    for (int i = 0; i < static_cast<int>(node.input_count); ++i) {
      const int e = node.first_edge + i;
      T* const whole = value_gradients[node.inputs[i]];
      const dim_t offset = plan.edge_scratch[e];
      T* const scratch = offset >= 0 ? reinterpret_cast<T*>(workspace + offset) : nullptr;
      if (edge_scratch != nullptr) edge_scratch[e] = scratch;
      edge_sums[e] = scratch != nullptr || offset == adds_in_place ? whole : nullptr;
      edge_gradients[e] = !plan.edge_needed[e] ? nullptr : scratch != nullptr ? scratch : whole;
    }
  }
}

template <class T>
dim_t network_state<T>::point_layers_to(T* memory) {
  const fused_call* const calls = plan.fusion.evaluation_calls;
  const std::size_t nodes = current.n.nodes;
  only_layers = inputs == 1 && current.n.choices == 0 && calls[0].layers > 0;
  for (std::size_t k = 1; k < nodes; ++k)
    only_layers = only_layers && (calls[k].forward_is_done || calls[k].layers < 0);
  return point_chains<T>(run, calls, static_cast<int>(nodes), layers, chains, memory);
}

template <class T>
void network_state<T>::point_layers() {
  // Input shapes do not change which layers are called together or how wide they are, so what was
  // made of their weights stays valid.
  const dim_t size = point_layers_to(nullptr);
  if (size > packed_layers.size()) packed_layers = aligned_buffer<T>(size);
  point_layers_to(packed_layers.data());
}

template <class T>
void network_state<T>::check_output_gradient(std::size_t i, const shape& given) const {
  if (!ran_forward || of_loss)
    throw_error(error(of_loss ? "backward needs a forward of its own: the last one was that of "
                                "train_step or loss_backward"
                              : "backward needs a forward before it"));
  const shape& expected = current.output(i);
  if (!(given == expected))
    throw_error(shape_error(diagnostic{"the gradient of the output has shape {input}, got {other}",
                                       0, 0, expected, given}));
}

template <class T>
void network_state<T>::check_input_gradient(std::size_t i, const shape& given) const {
  if (!(given == current.values[i]))
    throw_error(shape_error(diagnostic{"the gradient of an input has shape {input}, got {other}", 0,
                                       0, current.values[i], given}));
}

template <class T>
void network_state<T>::set_input_gradients(T* const* to, std::byte* workspace) {
  for (std::size_t v = 0; v < inputs; ++v) {
    if (to[v] != nullptr && !plan.gradient_written[v])
      std::fill_n(to[v], current.values[v].numel(), T{0});
    value_gradients[v] = to[v];
    const int root = plan.gradient_root[v];
    if (root == static_cast<int>(v)) continue;
    // Views of the input, and what runs in place of them.
    T* const own = reinterpret_cast<T*>(workspace + plan.value_gradients[root]);
    for (std::size_t w = inputs; w < current.n.values; ++w)
      if (plan.gradient_root[w] == root)
        value_gradients[w] = (to[v] != nullptr ? to[v] : own) + plan.layouts[w].first_in_gradient;
  }
  point_edges(workspace);
}

IKEBANA_CPU_CLASS(network_state, std::type_identity_t)

}  // namespace ikebana::detail
