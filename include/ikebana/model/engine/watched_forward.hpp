#pragma once

#include <memory>
#include <type_traits>

#include "ikebana/core/error.hpp"
#include "ikebana/model/element.hpp"
#include "ikebana/model/hooks.hpp"
#include "ikebana/model/hooks/hooked_calls.hpp"
#include "ikebana/model/passes/execution.hpp"
#include "ikebana/model/passes/forward_pass.hpp"
#include "ikebana/model/passes/leaf_visits.hpp"
#include "ikebana/module/context.hpp"
#include "ikebana/module/lowering.hpp"

namespace ikebana::detail {

/// Visits the leaves as forward_pass does, and runs the model's hooks.
template <class E, bool Partial>
struct hooked_forward_pass {
  using T = element_of<E>;
  const execution<T>& run;
  hooked_calls<T>& hooks;
  leaf_boundary<T>* boundary = nullptr;
  int k = 0;

  template <class Leaf>
  [[gnu::noinline]] void operator()(const Leaf& leaf) {
    hooks.before_leaf(k);
    if constexpr (requires(const context<T>& c) { leaf.validate(c); })
      if (hooks.has_written() && run.does_run(run.nodes[k])) validate(leaf);
    forward_pass<E, leaf_boundary<T>*, Partial> one{run, k, boundary};
    one(leaf);
    hooks.after_leaf(k++);
  }

 private:
  template <class Leaf>
  void validate(const Leaf& leaf) const {
    errors_at([&] { leaf.validate(run.context_of(run.nodes[k])); },
              [&] { return hooks.path_of(k); });
  }
};

/// The forward of an engine with hooks or a boundary around the leaves. Instantiated only where it
/// is used.
struct watched_forward {
  /// With hooks, and a boundary if there is one.
  template <class Engine>
  static void with_hooks(Engine& e, const execution<typename Engine::T>& run) {
    auto& t = e.tables();
    using hooks_type = hooked_calls<typename Engine::T>;
    auto& own = static_cast<hooks_type&>(*e.calls_with_hooks);
    t.run.watch = nullptr;
    own.restore_outputs(t, e.network.memory.workspace.data());
    if (!e.hooks->any_of_modules()) {
      if (e.boundary != nullptr) return with_boundary(e, run);
      forward_pass<typename Engine::element_type, no_boundary, Engine::has_choices> pass{run};
      return for_each_leaf(e.network.module, pass);
    }
    if (own.calls.empty()) {
      using program_type = std::remove_cvref_t<decltype(t.current_program)>;
      own.calls.resize(count_calls<typename Engine::module_type>(t.inputs));
      const auto scratch = std::make_unique<program_type>();
      lower_into(*scratch, e.network.module, t.current_inputs, own.calls.data());
    }
    const std::shared_ptr<hook_set> set = e.hooks;
    own.begin_forward(*set, e.network.training, e.network.memory.buffers.span());
    const struct leaving {
      hooks_type& hooks;
      ~leaving() { hooks.leave_forward(); }
    } leaves{own};
    if (e.boundary != nullptr) e.boundary->begin_forward(run);
    hooked_forward_pass<typename Engine::element_type, Engine::has_choices> pass{run, own,
                                                                                 e.boundary};
    for_each_leaf(e.network.module, pass);
    if (own.end_forward()) t.run.watch = &own;
    if (e.boundary != nullptr) e.boundary->end_forward(run);
  }

  template <class Engine>
  static void with_boundary(Engine& e, const execution<typename Engine::T>& run) {
    e.boundary->begin_forward(run);
    forward_pass<typename Engine::element_type, leaf_boundary<typename Engine::T>*,
                 Engine::has_choices>
        pass{run, 0, e.boundary};
    for_each_leaf(e.network.module, pass);
    e.boundary->end_forward(run);
  }
};

}  // namespace ikebana::detail
