#pragma once

#include <type_traits>

#include "ikebana/model/element.hpp"
#include "ikebana/model/passes/execution.hpp"
#include "ikebana/module/lowering.hpp"

namespace ikebana::detail {

/// Whether a leaf forwards one of its inputs, that of the chosen alternative.
template <class Leaf>
inline constexpr bool joins_alternatives = requires {
  Leaf::joins_alternatives;
};

/// Whether a leaf can run the leaves of its kind that follow it; only without rounding.
template <class E, class Leaf>
inline constexpr bool runs_layers = std::is_floating_point_v<E>&& requires {
  requires Leaf::is_layer;
};

// Calls for a leaf are not inlined, so that equal leaves share code and a pass over a long network
// stays a short function.

struct no_boundary {};

/// Visits the leaves in order and runs each forward; if Partial, only those of the chosen
/// alternatives. E is a model_element.
template <class E, class Boundary = no_boundary, bool Partial = false>
struct forward_pass {
  const execution<element_of<E>>& run;
  int k = 0;
  Boundary boundary{};  ///< Or a leaf_boundary<T>*, which may be null.

  template <class Leaf>
  [[gnu::noinline]] void operator()(const Leaf& leaf) {
    const program_node& node = run.nodes[k++];
    if constexpr (Partial)
      if (!run.does_run(node)) return;
    if (run.fused != nullptr && (run.fused[k - 1].forward_is_done || run.is_step(k - 1))) return;
    if (run.repeats && node.role.is_stateful) return;
    if constexpr (!std::is_same_v<Boundary, no_boundary>)
      if (boundary != nullptr) boundary->before_forward(run, k - 1);
    if constexpr (changing_buffer_count<Leaf>() > 0)
      if (run.keeps_buffers && run.runs_again[k - 1]) run.copy_buffers(node, false, false);
    if constexpr (is_view_module<Leaf>())
      run.values[node.first_output] = run.values[node.inputs[0]];
    else if constexpr (joins_alternatives<Leaf>)
      run.values[node.first_output] = run.values[node.inputs[run.partial.taken[node.choice]]];
    else if (!follow_view<Leaf>(node) && !run_layers<Leaf>(node))
      leaf.forward(element_traits<E>::given(run.forward_context_of(node), run.is_full(node)));
    if constexpr (!std::is_same_v<Boundary, no_boundary>)
      if (boundary != nullptr) boundary->after_forward(run, k - 1);
  }

 private:
  /// Whether its output is in its input's memory.
  template <class Leaf>
  [[gnu::always_inline]] bool follow_view([[maybe_unused]] const program_node& node) const {
    if constexpr (maybe_view<Leaf>)
      return run.follow_view(node);
    else
      return false;
  }

  /// Whether it was run in one call with others.
  template <class Leaf>
  [[gnu::always_inline]] bool run_layers([[maybe_unused]] const program_node& node) const {
    if constexpr (runs_layers<E, Leaf>) {
      if (run.fused == nullptr || run.chains == nullptr || run.fused[k - 1].layers == 0)
        return false;
      if (run.fused[k - 1].layers > 0)
        Leaf::template forward_layers<E>(run.values[node.inputs[0]], run.chains[k - 1], run.stamp);
      return true;
    } else {
      return false;
    }
  }
};

/// Runs one leaf of a checkpoint again: with the buffers that it had, which then are as they were.
template <class E, bool Partial, class Leaf>
void forward_again(const execution<element_of<E>>& run, leaf_boundary<element_of<E>>* boundary,
                   int k, const Leaf& leaf) {
  [[maybe_unused]] const program_node& node = run.nodes[k];
  if constexpr (changing_buffer_count<Leaf>() > 0) {
    run.copy_buffers(node, true, false);
    run.copy_buffers(node, false, true);
  }
  forward_pass<E, leaf_boundary<element_of<E>>*, Partial> one{run, k, boundary};
  one(leaf);
  if constexpr (changing_buffer_count<Leaf>() > 0) run.copy_buffers(node, true, true);
}

/// Visits the leaves in order and runs those of a checkpoint again.
template <class E, bool Partial>
struct checkpoint_pass {
  const execution<element_of<E>>& run;
  int checkpoint;
  leaf_boundary<element_of<E>>* boundary;
  int k = 0;

  template <class Leaf>
  [[gnu::noinline]] void operator()(const Leaf& leaf) {
    const int at = k++;
    const program_node& node = run.nodes[at];
    if (node.checkpoint != checkpoint || !run.runs_again[at]) return;
    if constexpr (Partial)
      if (!run.does_run(node)) return;
    forward_again<E, Partial>(run, boundary, at, leaf);
  }
};

}  // namespace ikebana::detail
