#pragma once

#include <cstddef>
#include <memory>
#include <type_traits>

#include "ikebana/core/dtype.hpp"
#include "ikebana/model/execution.hpp"
#include "ikebana/model/forward_pass.hpp"
#include "ikebana/model/hooked_forward.hpp"
#include "ikebana/model/hooks.hpp"
#include "ikebana/model/network_state.hpp"
#include "ikebana/module/lowering.hpp"

namespace ikebana::detail {

/// What hooks find of a forward in which each value is in the memory of its root.
template <class T>
hooked_tables tables_of(const network_state<T>& n, const int* roots, bool training) {
  return {.scopes = n.current.scopes,
          .kinds = n.current.kinds,
          .nodes = n.current.nodes,
          .shapes = n.current.values,
          .roots = roots,
          .offsets = n.plan.values,
          .saved_offsets = n.plan.saved,
          .saved = n.current.saved,
          .values = reinterpret_cast<void* const*>(n.values),
          .inputs = static_cast<int>(n.inputs),
          .element_size = sizeof(T),
          .type = dtype_of<T>,
          .training = training,
          .runs = n.run.partial.runs};
}

/// The forward of an engine in which something else happens around the leaves. Instantiated only
/// for who asks for it.
struct watched_forward {
  /// With hooks, and a boundary where there is one.
  template <class Engine>
  static void with_hooks(Engine& e, const execution<typename Engine::T>& run) {
    if (!e.hooks_->any_forward()) {
      if (e.boundary_ != nullptr) return with_boundary(e, run);
      forward_pass<typename Engine::model_element_type, no_boundary, Engine::has_choices> pass{run};
      return for_each_leaf(e.module_, pass);
    }
    if (e.boundary_ != nullptr) e.boundary_->begin_forward(run);
    const auto& t = *e.tables_;
    hooked_calls& own = *e.hooked_calls_;
    if (own.calls.empty()) {
      using program_type = std::remove_cvref_t<decltype(t.current_program)>;
      own.calls.resize(count_calls<typename Engine::module_type>(t.inputs));
      const auto scratch = std::make_unique<program_type>();
      lower_into(*scratch, e.module_, t.current_inputs, own.calls.data());
    }
    const std::shared_ptr<hook_set> set = e.hooks_;
    own.bind(*set, t.current.scopes, t.current.n.nodes);
    auto roots = t.memory.root;
    if constexpr (Engine::has_choices) follow_choices(t, run, roots.data());
    const hooked_tables tables = tables_of(t, roots.data(), e.training_);
    hook_runner hooks{tables, own.calls, own.hooks};
    hooked_forward_pass<typename Engine::model_element_type, Engine::has_choices> pass{
        run, hooks, own.begins.data(), e.boundary_};
    for_each_leaf(e.module_, pass);
    hooks.run_until(2 * static_cast<int>(own.calls.size()));
    if (e.boundary_ != nullptr) e.boundary_->end_forward(run);
  }

  template <class Engine>
  static void with_boundary(Engine& e, const execution<typename Engine::T>& run) {
    e.boundary_->begin_forward(run);
    forward_pass<typename Engine::model_element_type, leaf_boundary<typename Engine::T>*,
                 Engine::has_choices>
        pass{run, 0, e.boundary_};
    for_each_leaf(e.module_, pass);
    e.boundary_->end_forward(run);
  }

 private:
  /// The output of a choice is in the memory of the alternative that runs, and so are its views.
  template <class T>
  static void follow_choices(const network_state<T>& n, const execution<T>& run, int* roots) {
    for (std::size_t k = 0; k < n.current.n.nodes; ++k) {
      const program_node& node = n.current.nodes[k];
      if (node.choice >= 0 && run.does_run(node))
        roots[node.first_output] = roots[node.inputs[run.partial.taken[node.choice]]];
      else if (node.is_view)
        roots[node.first_output] = roots[node.inputs[0]];
    }
  }
};

}  // namespace ikebana::detail
