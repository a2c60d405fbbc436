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
#include "ikebana/model/backward_pass.hpp"
#include "ikebana/model/carried_forward.hpp"
#include "ikebana/model/element.hpp"
#include "ikebana/model/exclusive_use.hpp"
#include "ikebana/model/execution.hpp"
#include "ikebana/model/forward_pass.hpp"
#include "ikebana/model/gradient_presence.hpp"
#include "ikebana/model/hooked_calls.hpp"
#include "ikebana/model/hooks.hpp"
#include "ikebana/model/leaf_visits.hpp"
#include "ikebana/model/parameter_stamp.hpp"
#include "ikebana/model/partial_execution.hpp"
#include "ikebana/model/prepared_network.hpp"
#include "ikebana/model/watched_forward.hpp"
#include "ikebana/module/lowering.hpp"

namespace ikebana::detail {

/// Forward and backward passes over a model's network with inputs as plain pointers: everything
/// that does not depend on the types of a call.
template <class E, any_module M, std::size_t Inputs>
class engine : protected prepared_network<E, M, Inputs> {
 protected:
  using model_element_type = E;
  using module_type = M;
  using network = prepared_network<E, M, Inputs>;
  using network::has_choices;
  using network::has_layers;
  using network::is_partial;
  using network::sizes;
  using typename network::T;
  using typename network::tables;
  friend watched_forward;

  using network::buffers_;
  using network::fuses_;
  using network::gradients_;
  using network::module_;
  using network::network;
  using network::parameters_;
  using network::prepare;
  using network::seed_;
  using network::step_;
  using network::stream_;
  using network::tables_;
  using network::training_;
  using network::workspace_;

  /// A copy with the same parameters, buffers and mode, without hooks.
  engine(const engine& other) : network(other) {}
  engine(engine&&) noexcept = default;
  engine& operator=(engine&&) noexcept = default;
  ~engine() = default;

  /// Runs on inputs of the shapes last passed to prepare_for.
  void run_forward(const std::array<const void*, Inputs + 1>& data) {
    tables& t = *tables_;
    const exclusive_use guard(t.user);
    if (last_workspace_.size() > 0) [[unlikely]]
      last_workspace_ = {};
    std::array<T*, Inputs + 1> last_inputs{};
    if constexpr (any_leaf_validates<T, M>) std::copy_n(t.values, Inputs, last_inputs.data());
    for (std::size_t i = 0; i < Inputs; ++i)
      t.value_table[i] = static_cast<T*>(const_cast<void*>(data[i]));
    if constexpr (has_layers)
      if (t.only_layers && !training_ && fuses_ && run_watched_ == nullptr) {
        t.left_out = t.memory.fusion.evaluation_leaves_out;
        run_layers_of<E, M>(t.value_table[0], t.chain_table[0], stamp_);
        t.ran_forward = true;
        t.of_loss = false;
        return;
      }
    execution<T>& run = execution_tables(false);
    if constexpr (has_choices) run.partial.runs = t.partial.next.runs.data();
    if constexpr (any_leaf_validates<T, M>) {
      validate_leaves<T> validate{run};
      try {
        for_each_leaf(module_, validate);
      } catch (const error&) {
        // A backward of the last forward must still find its inputs.
        std::copy_n(last_inputs.data(), Inputs, t.values);
        const program_node& node = t.current.nodes[validate.k - 1];
        rethrow_at(t.current.path(t.current.leaves[node.leaf]));
      }
    }
    t.ran_forward = t.of_loss = false;
    if constexpr (has_choices) t.partial.now = t.partial.next;
    // Counted after the forward, because a hook may throw.
    run.step = training_ ? step_ + 1 : step_;
    run_leaves(run);
    step_ = run.step;
    t.ran_forward = true;
  }

  void run_leaves(const execution<T>& run) {
    tables_->left_out = false;
    tables_->ran_fused = run_watched_ == nullptr && run.fused != nullptr;
    if (run_watched_ != nullptr) return run_watched_(*this, unfused(run));
    tables_->left_out =
        run.fused != nullptr && !training_ && tables_->memory.fusion.evaluation_leaves_out;
    forward_pass<E, no_boundary, has_choices> pass{run};
    for_each_leaf(module_, pass);
  }

  /// Disables fusion, so that an observer of the leaves sees each leaf's own output.
  static execution<T> unfused(execution<T> run) {
    run.fused = nullptr;
    return run;
  }

  /// Installs a boundary around every leaf, and makes leaves read their parameters from, and write
  /// their gradients to, other memory.
  void set_boundary(leaf_boundary<T>* boundary, T* const* parameters, T* const* gradients) {
    std::copy_n(parameters, sizes.parameters, tables_->parameters);
    std::copy_n(gradients, sizes.parameters, tables_->gradients);
    boundary_ = boundary;
    if (run_watched_ == nullptr) run_watched_ = &watched_forward::with_boundary<engine>;
  }

  const std::shared_ptr<hook_set>& own_hooks() {
    if (hooks_ == nullptr) hooks_ = std::make_shared<hook_set>();
    return hooks_;
  }
  void share_hooks(std::shared_ptr<hook_set> set) {
    hooks_ = std::move(set);
    own_forward_hooks();
  }
  const std::shared_ptr<hook_set>& own_forward_hooks() {
    if (hooked_calls_ == nullptr) hooked_calls_ = std::make_unique<hooked_calls<T>>();
    run_watched_ = &watched_forward::with_hooks<engine>;
    return own_hooks();
  }

  template <class Completed>
  void run_backward(bool accumulate, Completed&& completed) {
    const exclusive_use guard(tables_->user);
    execution<T>& run = execution_tables(accumulate);
    if (tables_->ran_fused) run.fused = fused_calls();
    if constexpr (requires { completed.boundary; }) run.fused = nullptr;
    if (run.watch != nullptr) run.fused = nullptr;
    if (tables_->left_out) {
      execution<T> again = unfused(run);
      again.training = false;
      again.repeats = true;
      forward_pass<E, no_boundary, has_choices> pass{again};
      for_each_leaf(module_, pass);
      tables_->left_out = false;
    }
    const watched_pass<T> watched{run};
    if constexpr (is_partial) {
      run_partial_backward(run, completed, watched);
    } else {
      if constexpr (requires { completed.boundary; }) completed.boundary->begin_backward(run);
      backward_pass<E, std::remove_reference_t<Completed>> pass{run, completed,
                                                                static_cast<int>(sizes.nodes)};
      for_each_leaf_reversed(module_, pass);
      watched.end();
      if constexpr (requires { completed.boundary; }) completed.boundary->end_backward(run);
    }
  }

  template <class Completed>
  void run_partial_backward(const execution<T>& run, Completed& completed,
                            const watched_pass<T>& watched) {
    tables& t = *tables_;
    auto& p = t.partial;
    p.begin_backward(t.current_program);
    p.presence.begin_backward();
    if constexpr (requires { completed.boundary; }) completed.boundary->begin_backward(run);
    partial_backward_pass<E, Completed> pass{run, completed, static_cast<int>(sizes.nodes)};
    for_each_leaf_reversed(module_, pass);
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
      tables_->partial.predict_reached(tables_->current_program, execution_tables(true), f);
  }

  /// Tells which outputs have gradients in the next run_backward; without it, those of the last
  /// one.
  void set_output_written(std::size_t i, [[maybe_unused]] bool written) {
    if constexpr (is_partial) tables_->partial.output_written[i] = written;
  }

  gradient_presence* presence_or_null() const {
    if constexpr (is_partial)
      return &tables_->partial.presence;
    else
      return nullptr;
  }

  /// Plans the memory again so that backward also computes the gradients of the inputs. The results
  /// of the last forward are kept.
  void plan_input_gradients() {
    tables& t = *tables_;
    t.input_gradients = true;
    if (boundary_ != nullptr) boundary_->begin_forward(execution_tables(false));
    carried_forward<T> last(t, std::move(workspace_));
    const shape_list inputs = t.current_inputs;
    prepare(inputs);
    last.restore_inputs(t);
    execution<T> run = unfused(execution_tables(false));
    if (run.watch != nullptr) run.watch->begin_backward();
    carry_pass<E, has_choices> pass{run, last, t.current.saved, boundary_};
    for_each_leaf(module_, pass);
    if (run.watch != nullptr) run.watch->repeat_before(static_cast<int>(sizes.nodes));
    if (boundary_ != nullptr) boundary_->end_forward(run);
    last_workspace_ = last.take_workspace();
    t.ran_forward = true;
  }

  const fused_call* fused_calls() const {
    const auto& fusion = tables_->memory.fusion;
    return (training_ ? fusion.calls : fusion.evaluation_calls).data();
  }

  /// The tables of a pass; valid until the next one.
  execution<T>& execution_tables(bool accumulate) {
    tables& t = *tables_;
    execution<T>& run = t.run;
    run.model_seed = seed_;
    run.step = step_;
    run.stream = stream_;
    run.training = training_;
    run.accumulate = accumulate;
    run.stamp = boundary_ == nullptr ? stamp_ : 0;
    run.fused = nullptr;
    if (fuses_) run.fused = fused_calls();
    if constexpr (is_partial) run.partial.runs = t.partial.now.runs.data();
    return run;
  }

  /// Version of the parameters; a change invalidates packed copies. 0 while the parameters may be
  /// written at any time.
  std::uint64_t stamp_ = new_parameter_stamp();
  std::shared_ptr<hook_set> hooks_;
  std::unique_ptr<backward_watch<T>> hooked_calls_;
  /// Where the outputs of the last forward are if backward has planned the memory anew since: they
  /// are valid until the next forward.
  aligned_buffer<std::byte> last_workspace_;
  leaf_boundary<T>* boundary_ = nullptr;
  /// Runs the leaves if hooks or a boundary are present; else null.
  void (*run_watched_)(engine&, const execution<T>&) = nullptr;
};

}  // namespace ikebana::detail
