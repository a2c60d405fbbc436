#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>

#include "ikebana/core/aligned_buffer.hpp"
#include "ikebana/core/error.hpp"
#include "ikebana/model/element.hpp"
#include "ikebana/model/engine/carried_forward.hpp"
#include "ikebana/model/engine/watched_forward.hpp"
#include "ikebana/model/hooks.hpp"
#include "ikebana/model/hooks/hooked_calls.hpp"
#include "ikebana/model/network/exclusive_use.hpp"
#include "ikebana/model/network/parameter_stamp.hpp"
#include "ikebana/model/network/prepared_network.hpp"
#include "ikebana/model/passes/backward_pass.hpp"
#include "ikebana/model/passes/execution.hpp"
#include "ikebana/model/passes/forward_pass.hpp"
#include "ikebana/model/passes/gradient_presence.hpp"
#include "ikebana/model/passes/leaf_visits.hpp"
#include "ikebana/model/passes/partial_execution.hpp"
#include "ikebana/module/lowering.hpp"

namespace ikebana::detail {

/// Forward and backward passes over a model's network with inputs as plain pointers: everything
/// that does not depend on the types of a call.
template <class E, any_module M, std::size_t Inputs>
struct engine {
  using element_type = E;
  using module_type = M;
  using network_type = prepared_network<E, M, Inputs>;
  using tables_type = typename network_type::tables_type;
  using T = element_of<E>;
  static constexpr std::size_t input_count = Inputs;
  static constexpr std::size_t output_count = detail::output_count<M>();
  static constexpr program_sizes sizes = network_type::sizes;
  static constexpr bool has_choices = network_type::has_choices;
  static constexpr bool has_layers = network_type::has_layers;
  static constexpr bool is_partial = network_type::is_partial;
  static constexpr bool has_checkpoints = sizes.checkpoints > 0;

  network_type network;
  /// Version of the parameters; a change invalidates packed copies. 0 while the parameters may be
  /// written at any time.
  std::uint64_t stamp = new_parameter_stamp();
  std::shared_ptr<hook_set> hooks;
  std::unique_ptr<backward_watch<T>> calls_with_hooks;
  /// Where the outputs of the last forward are if backward has planned the memory anew since: they
  /// are valid until the next forward.
  aligned_buffer<std::byte> last_workspace;
  leaf_boundary<T>* boundary = nullptr;
  /// Runs the leaves if hooks or a boundary are present; else null.
  void (*run_watched)(engine&, const execution<T>&) = nullptr;

  engine(const M& m, seed s, const shape_list& declared, const shape_list& inputs,
         typename network_type::lowerer lower)
      : network(m, s, declared, inputs, lower) {}
  /// A copy with the same parameters, buffers and mode, without hooks.
  engine(const engine& other) : network(other.network) {}
  engine(engine&&) noexcept = default;
  engine& operator=(engine&&) noexcept = default;
  ~engine() = default;

  tables_type& tables() const { return *network.tables; }

  /// Runs on inputs of the shapes last passed to prepare_for.
  void run_forward(const std::array<const void*, Inputs + 1>& data) {
    tables_type& t = tables();
    const exclusive_use guard(t.user);
    if (last_workspace.size() > 0) [[unlikely]]
      last_workspace = {};
    std::array<T*, Inputs + 1> last_inputs{};
    if constexpr (any_leaf_validates<T, M>) std::copy_n(t.values, Inputs, last_inputs.data());
    for (std::size_t i = 0; i < Inputs; ++i)
      t.value_table[i] = static_cast<T*>(const_cast<void*>(data[i]));
    if constexpr (has_layers)
      if (t.only_layers && !network.training && network.fuses && run_watched == nullptr) {
        t.left_out = t.memory.fusion.evaluation_leaves_out;
        run_layers_of<E, M>(t.value_table[0], t.chain_table[0], stamp);
        t.ran_forward = true;
        t.of_loss = false;
        return;
      }
    execution<T>& run = execution_tables(false);
    if constexpr (has_choices) run.partial.runs = t.partial.next.runs.data();
    if constexpr (any_leaf_validates<T, M>) {
      validate_leaves<T> validate{run};
      errors_at([&] { for_each_leaf(network.module, validate); },
                [&] {
                  // A backward of the last forward must still find its inputs.
                  std::copy_n(last_inputs.data(), Inputs, t.values);
                  const program_node& node = t.current.nodes[validate.k - 1];
                  return t.current.path(t.current.leaves[node.leaf]);
                });
    }
    t.ran_forward = t.of_loss = false;
    if constexpr (has_choices) t.partial.now = t.partial.next;
    run.keeps_buffers = has_checkpoints;
    // Counted after the forward, because a hook may throw.
    run.step = network.training ? network.step + 1 : network.step;
    run_leaves(run);
    network.step = run.step;
    t.ran_forward = true;
  }

  void run_leaves(const execution<T>& run) {
    tables_type& t = tables();
    t.left_out = false;
    t.ran_fused = run_watched == nullptr && run.fused != nullptr;
    if (run_watched != nullptr) return run_watched(*this, unfused(run));
    t.left_out = run.fused != nullptr && !network.training && t.memory.fusion.evaluation_leaves_out;
    forward_pass<E, no_boundary, has_choices> pass{run};
    for_each_leaf(network.module, pass);
  }

  /// Disables fusion, so that an observer of the leaves sees each leaf's own output.
  static execution<T> unfused(execution<T> run) {
    run.fused = nullptr;
    return run;
  }

  /// Installs a boundary around every leaf, and makes leaves read their parameters from, and write
  /// their gradients to, other memory.
  void set_boundary(leaf_boundary<T>* around, T* const* parameters, T* const* gradients) {
    std::copy_n(parameters, sizes.parameters, tables().parameters);
    std::copy_n(gradients, sizes.parameters, tables().gradients);
    boundary = around;
    network.is_watched = true;
    if (run_watched == nullptr) run_watched = &watched_forward::with_boundary<engine>;
  }

  const std::shared_ptr<hook_set>& own_hooks() {
    if (hooks == nullptr) hooks = std::make_shared<hook_set>();
    return hooks;
  }
  void share_hooks(std::shared_ptr<hook_set> set) {
    hooks = std::move(set);
    own_forward_hooks();
  }
  const std::shared_ptr<hook_set>& own_forward_hooks() {
    if (calls_with_hooks == nullptr) calls_with_hooks = std::make_unique<hooked_calls<T>>();
    network.is_watched = true;
    run_watched = &watched_forward::with_hooks<engine>;
    return own_hooks();
  }

  /// Runs the last forward again if it skipped what a backward needs. Must be called before the
  /// gradients of the outputs are written, for these share memory with values that forward no
  /// longer needs.
  void complete_forward() {
    tables_type& t = tables();
    if (!t.left_out) return;
    const exclusive_use guard(t.user);
    execution<T> again = execution_tables(false);
    again.fused = t.memory.fusion.calls.data();
    again.training = false;
    again.repeats = true;
    forward_pass<E, no_boundary, has_choices> pass{again};
    for_each_leaf(network.module, pass);
    t.left_out = false;
  }

  /// Backward from the gradients of the outputs, after complete_forward. `completed(n)` is called
  /// whenever the first n elements of the gradients are final, and `completed.begin()`, if there is
  /// one, before anything else.
  template <class Completed>
  void run_backward(bool accumulate, Completed&& completed) {
    tables_type& t = tables();
    const exclusive_use guard(t.user);
    if constexpr (requires { completed.begin(); }) completed.begin();
    execution<T>& run = execution_tables(accumulate);
    if (t.ran_fused) run.fused = fused_calls();
    if constexpr (requires { completed.boundary; }) run.fused = nullptr;
    if (run.watch != nullptr) run.fused = nullptr;
    if constexpr (has_checkpoints) {
      t.checkpoints = {&run_again, this, -1};
      run.checkpoints = &t.checkpoints;
    }
    const watched_pass<T> watched{run};
    if constexpr (is_partial) {
      run_partial_backward(run, completed, watched);
    } else {
      if constexpr (requires { completed.boundary; }) completed.boundary->begin_backward(run);
      backward_pass<E, std::remove_reference_t<Completed>> pass{run, completed,
                                                                static_cast<int>(sizes.nodes)};
      for_each_leaf_reversed(network.module, pass);
      watched.end();
      if constexpr (requires { completed.boundary; }) completed.boundary->end_backward(run);
    }
  }

  /// Runs a checkpoint again, before its backward: fused as in forward, but layers one by one, of
  /// which it may leave out the last.
  static void run_again(void* engine_of_run, const execution<T>& run, int checkpoint) {
    engine& e = *static_cast<engine*>(engine_of_run);
    const tables_type& t = e.tables();
    execution<T> again = run;
    again.chains = nullptr;
    again.fused = t.ran_fused ? t.memory.fusion.calls.data() : nullptr;
    checkpoint_pass<E, has_choices> pass{again, checkpoint, e.boundary};
    for_each_leaf(e.network.module, pass);
  }

  template <class Completed>
  void run_partial_backward(const execution<T>& run, Completed& completed,
                            const watched_pass<T>& watched) {
    tables_type& t = tables();
    auto& p = t.partial;
    p.begin_backward(t.current_program);
    p.presence.begin_backward();
    if constexpr (requires { completed.boundary; }) completed.boundary->begin_backward(run);
    partial_backward_pass<E, Completed> pass{run, completed, static_cast<int>(sizes.nodes)};
    for_each_leaf_reversed(network.module, pass);
    watched.end();
    if constexpr (requires { completed.boundary; }) completed.boundary->end_backward(run);
    for (std::size_t v = 0; v < Inputs; ++v)
      if (t.value_gradients[v] != nullptr && !p.written[v])
        std::fill_n(t.value_gradients[v], t.current.values[v].numel(), T{0});
  }

  /// Calls f(first, count) for the parameters that run_backward would reach now, in the order in
  /// which it would finish them, numbered as in gradient_presence. O(edges).
  template <class F>
  void predict_reached(F&& f) {
    if constexpr (is_partial)
      tables().partial.predict_reached(tables().current_program, execution_tables(true), f);
  }

  /// Tells which outputs have gradients in the next run_backward; without it, those of the last
  /// one.
  void set_output_written(std::size_t i, [[maybe_unused]] bool written) {
    if constexpr (is_partial) tables().partial.output_written[i] = written;
  }

  gradient_presence* presence_or_null() const {
    if constexpr (is_partial)
      return &tables().partial.presence;
    else
      return nullptr;
  }

  /// Plans the memory again so that backward also computes the gradients of the inputs. The results
  /// of the last forward are kept.
  void plan_input_gradients() {
    tables_type& t = tables();
    t.input_gradients = true;
    if (boundary != nullptr) boundary->begin_forward(execution_tables(false));
    carried_forward<T> last(t, std::move(network.memory.workspace));
    const shape_list inputs = t.current_inputs;
    network.prepare(inputs, false);
    last.restore_inputs(t);
    execution<T> run = unfused(execution_tables(false));
    if (run.watch != nullptr) run.watch->begin_backward();
    carry_pass<E, has_choices> pass{run, last, boundary};
    for_each_leaf(network.module, pass);
    if (run.watch != nullptr) run.watch->repeat_before(static_cast<int>(sizes.nodes));
    if (boundary != nullptr) boundary->end_forward(run);
    last_workspace = last.take_workspace();
    t.ran_forward = true;
  }

  const fused_call* fused_calls() const {
    const auto& fusion = tables().memory.fusion;
    return (network.training ? fusion.calls : fusion.evaluation_calls).data();
  }

  /// The tables of a pass; valid until the next one.
  execution<T>& execution_tables(bool accumulate) {
    tables_type& t = tables();
    execution<T>& run = t.run;
    run.model_seed = network.seed;
    run.step = network.step;
    run.stream = network.stream;
    run.training = network.training;
    run.accumulate = accumulate;
    run.stamp = boundary == nullptr ? stamp : 0;
    run.keeps_buffers = false;
    run.checkpoints = nullptr;
    run.fused = nullptr;
    if (network.fuses) run.fused = fused_calls();
    if constexpr (is_partial) run.partial.runs = t.partial.now.runs.data();
    return run;
  }
};

}  // namespace ikebana::detail
