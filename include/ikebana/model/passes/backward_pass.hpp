#pragma once

#include <cstddef>
#include <cstring>

#include "ikebana/cpu/elementwise.hpp"
#include "ikebana/model/element.hpp"
#include "ikebana/model/passes/execution.hpp"
#include "ikebana/module/context.hpp"
#include "ikebana/module/lowering.hpp"

namespace ikebana::detail {

/// Visits the leaves in reverse order and runs each backward. `completed(n)` is called when the
/// first n elements of the gradients are final, and `before_leaf(k)` and `after_leaf(k)` if it has
/// them.
template <class E, class Completed>
struct backward_pass {
  using T = element_of<E>;
  const execution<T>& run;
  Completed& completed;
  int k = 0;

  /// Whether a boundary rounds what leaves write; gradients then do not accumulate in place.
  static constexpr bool bounded = requires { completed.boundary; };

  template <class Leaf>
  [[gnu::noinline]] void operator()(const Leaf& leaf) {
    if (!run.runs_backward[--k]) return;
    if (run.checkpoints != nullptr) run.run_again_before(k);
    if (run.is_step_backward(k)) return;
    const program_node& node = run.nodes[k];
    [[maybe_unused]] const context<T> c = begin(node);
    if constexpr (!is_view_module<Leaf>()) {
      if (run.fused == nullptr || !run.fused[k].backward_is_done)
        leaf.backward(element_traits<E>::given(c, run.is_full(node)));
    } else {
      run.pass_on_gradient(node, run.edge_gradients[node.first_edge]);
    }
    end(node);
  }

 private:
  // The part shared by all leaves.
  [[gnu::noinline]] context<T> begin(const program_node& node) {
    if constexpr (requires { completed.before_leaf(k); }) completed.before_leaf(k);
    if (run.watch != nullptr) run.watch->before_backward(run, k);
    for (std::size_t i = 0; i < node.output_count; ++i) {
      const int v = node.first_output + static_cast<int>(i);
      if (run.unwritten[v]) std::memset(run.value_gradients[v], 0, run.bytes_of(v));
    }
    context<T> c = run.backward_context_of(node);
    c.accumulating = (run.accumulate && !bounded) || !run.last_call[k];
    if constexpr (bounded) completed.boundary->before_backward(run, k);
    return c;
  }

  [[gnu::noinline]] void end(const program_node& node) {
    if constexpr (bounded) completed.boundary->after_backward(run, k);
    for (int e = node.first_edge, i = 0; i < static_cast<int>(node.input_count); ++e, ++i)
      if (T* sum = run.edge_sums[e]; sum != nullptr && sum != run.edge_gradients[e])
        cpu::add<T>(run.shapes[node.inputs[i]].numel(), sum, run.edge_gradients[e], sum);
    if (run.watch != nullptr) run.watch->after_backward(run, k);
    if constexpr (bounded) completed.boundary->after_sums(run, k);
    if constexpr (requires { completed.after_leaf(k); }) completed.after_leaf(k);
    if (run.first_call[k] && run.leaves[node.leaf].parameter_count > 0)
      completed(run.completed[node.leaf]);
  }
};

struct no_listener {
  void operator()(dim_t) const {}
};

}  // namespace ikebana::detail
