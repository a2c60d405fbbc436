#pragma once

#include <type_traits>

#include "ikebana/model/element.hpp"
#include "ikebana/model/execution.hpp"
#include "ikebana/model/hooked_forward.hpp"
#include "ikebana/module/lowering.hpp"

namespace ikebana::detail {

/// Whether a leaf gives what one of its inputs is, the one that was chosen.
template <class Leaf>
inline constexpr bool joins_alternatives = requires {
  Leaf::joins_alternatives;
};

/// Whether a leaf can run those of its kind that follow it; numbers as they are, not rounded.
template <class E, class Leaf>
inline constexpr bool runs_layers = std::is_floating_point_v<E>&& requires {
  requires Leaf::is_layer;
};

// The calls for a leaf are not inlined: equal leaves share their code, and a pass over a long
// network stays a short function.

struct no_boundary {};

/// Visits the leaves in order and runs each forward, or, where Partial, those of the alternatives
/// that are taken. E is a model_element.
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
    if (run.fused != nullptr && run.fused[k - 1].forward_is_done) return;
    if constexpr (!std::is_same_v<Boundary, no_boundary>)
      if (boundary != nullptr) boundary->before_forward(run, k - 1);
    if constexpr (is_view_module<Leaf>())
      run.values[node.first_output] = run.values[node.inputs[0]];
    else if constexpr (joins_alternatives<Leaf>)
      run.values[node.first_output] = run.values[node.inputs[run.partial.taken[node.choice]]];
    else if (!run_layers<Leaf>(node))
      leaf.forward(element_traits<E>::given(run.forward_context_of(node), run.is_full(node)));
    if constexpr (!std::is_same_v<Boundary, no_boundary>)
      if (boundary != nullptr) boundary->after_forward(run, k - 1);
  }

 private:
  /// Whether it was run in one call with others.
  template <class Leaf>
  [[gnu::always_inline]] bool run_layers([[maybe_unused]] const program_node& node) const {
    if constexpr (runs_layers<E, Leaf>) {
      if (run.fused == nullptr || run.fused[k - 1].layers == 0) return false;
      if (run.fused[k - 1].layers > 0)
        Leaf::template forward_layers<E>(run.values[node.inputs[0]], run.chains[k - 1], run.stamp);
      return true;
    } else {
      return false;
    }
  }
};

/// The same with hooks, which run as their time comes.
template <class E, bool Partial = false>
struct hooked_forward_pass {
  using T = element_of<E>;
  const execution<T>& run;
  hook_runner& hooks;
  const int* begins;
  leaf_boundary<T>* boundary = nullptr;
  int k = 0;

  template <class Leaf>
  [[gnu::noinline]] void operator()(const Leaf& leaf) {
    hooks.run_until(begins[k]);
    forward_pass<E, leaf_boundary<T>*, Partial> one{run, k, boundary};
    one(leaf);
    // Leaf calls end where they begin, but for the node itself.
    hooks.run_until(begins[k++] + 1);
  }
};

}  // namespace ikebana::detail
