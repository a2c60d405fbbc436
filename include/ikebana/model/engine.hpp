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
#include "ikebana/model/element.hpp"
#include "ikebana/model/execution.hpp"
#include "ikebana/model/forward_pass.hpp"
#include "ikebana/model/gradient_presence.hpp"
#include "ikebana/model/hooked_forward.hpp"
#include "ikebana/model/hooks.hpp"
#include "ikebana/model/leaf_visits.hpp"
#include "ikebana/model/parameter_stamp.hpp"
#include "ikebana/model/partial_execution.hpp"
#include "ikebana/model/prepared_network.hpp"
#include "ikebana/model/watched_forward.hpp"
#include "ikebana/module/lowering.hpp"

namespace ikebana::detail {

/// The passes over a model's network, with inputs as plain pointers: what does not depend on the
/// types of a call.
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

  /// A second one with the same parameters, buffers and mode, and no hooks.
  engine(const engine& other) : network(other) {}
  engine(engine&&) noexcept = default;
  engine& operator=(engine&&) noexcept = default;
  ~engine() = default;

  /// Runs on inputs of these shapes, which prepare_for has seen.
  void run_forward(const std::array<const void*, Inputs + 1>& data) {
    tables& t = *tables_;
    for (std::size_t i = 0; i < Inputs; ++i)
      t.value_table[i] = static_cast<T*>(const_cast<void*>(data[i]));
    if constexpr (has_layers)
      if (t.only_layers && !training_ && fuses_ && run_otherwise_ == nullptr) {
        t.left_out = t.memory.fusion.evaluation_leaves_out;
        run_layers_of<E, M>(t.value_table[0], t.chain_table[0], stamp_);
        t.ran_forward = true;
        return;
      }
    execution<T>& run = execution_tables(false);
    if constexpr (has_choices) run.partial.runs = t.partial.next.runs.data();
    if constexpr (any_leaf_validates<T, M>) {
      validate_leaves<T> validate{run};
      try {
        for_each_leaf(module_, validate);
      } catch (const error& e) {
        const program_node& node = t.current.nodes[validate.k - 1];
        const path_text path = t.current.path(t.current.leaves[node.leaf]);
        if (path.empty()) throw;
        throw error(path.c_str() + std::string{": "} + e.what());
      }
    }
    t.ran_forward = false;
    if constexpr (has_choices) t.partial.now = t.partial.next;
    if (training_) run.step = ++step_;
    run_leaves(run);
    t.ran_forward = true;
  }

  void run_leaves(const execution<T>& run) {
    tables_->left_out = false;
    if (run_otherwise_ != nullptr) return run_otherwise_(*this, unfused(run));
    tables_->left_out =
        run.fused != nullptr && !training_ && tables_->memory.fusion.evaluation_leaves_out;
    forward_pass<E, no_boundary, has_choices> pass{run};
    for_each_leaf(module_, pass);
  }

  /// Who looks in between leaves is to find what they would have given.
  static execution<T> unfused(execution<T> run) {
    run.fused = nullptr;
    return run;
  }

  /// Puts it around every leaf from now on, and has the leaves read their parameters and write
  /// their gradients elsewhere.
  void set_boundary(leaf_boundary<T>* boundary, T* const* parameters, T* const* gradients) {
    std::copy_n(parameters, sizes.parameters, tables_->parameters);
    std::copy_n(gradients, sizes.parameters, tables_->gradients);
    boundary_ = boundary;
    if (run_otherwise_ == nullptr) run_otherwise_ = &watched_forward::with_boundary<engine>;
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
    if (hooked_calls_ == nullptr) hooked_calls_ = std::make_unique<hooked_calls>();
    run_otherwise_ = &watched_forward::with_hooks<engine>;
    return own_hooks();
  }

  template <class Completed>
  void run_backward(bool accumulate, Completed&& completed) {
    execution<T>& run = execution_tables(accumulate);
    if constexpr (requires { completed.boundary; }) run.fused = nullptr;
    if (tables_->left_out) {
      execution<T> again = unfused(run);
      again.training = false;
      run_leaves(again);
      tables_->left_out = false;
    }
    if constexpr (is_partial) {
      run_partial_backward(run, completed);
    } else {
      if constexpr (requires { completed.boundary; }) completed.boundary->begin_backward(run);
      backward_pass<E, std::remove_reference_t<Completed>> pass{run, completed,
                                                                static_cast<int>(sizes.nodes)};
      for_each_leaf_reversed(module_, pass);
      if constexpr (requires { completed.boundary; }) completed.boundary->end_backward(run);
    }
  }

  template <class Completed>
  void run_partial_backward(const execution<T>& run, Completed& completed) {
    tables& t = *tables_;
    auto& p = t.partial;
    p.begin_backward(t.current_program);
    p.presence.begin_backward();
    if constexpr (requires { completed.boundary; }) completed.boundary->begin_backward(run);
    partial_backward_pass<E, Completed> pass{run, completed, static_cast<int>(sizes.nodes)};
    for_each_leaf_reversed(module_, pass);
    if constexpr (requires { completed.boundary; }) completed.boundary->end_backward(run);
    for (std::size_t v = 0; v < Inputs; ++v)
      if (t.value_gradients[v] != nullptr && !p.written[v])
        std::fill_n(t.value_gradients[v], t.current.values[v].numel(), T{0});
  }

  /// Calls f(first, count) for the parameters that run_backward would reach now, in the order in
  /// which it would finish them; they are numbered as in gradient_presence. O(edges).
  template <class F>
  void predict_reached(F&& f) {
    if constexpr (is_partial)
      tables_->partial.predict_reached(tables_->current_program, execution_tables(true), f);
  }

  /// Says which outputs the next run_backward has gradients of; without it, those of the last one.
  void set_output_written(std::size_t i, [[maybe_unused]] bool written) {
    if constexpr (is_partial) tables_->partial.output_written[i] = written;
  }

  gradient_presence* presence_or_null() const {
    if constexpr (is_partial)
      return &tables_->partial.presence;
    else
      return nullptr;
  }

  /// Plans the memory anew, such that backward gives the gradients of the inputs too; the
  /// activations of the last forward are had by running it again.
  void plan_input_gradients() {
    tables& t = *tables_;
    t.input_gradients = true;
    std::array<T*, Inputs + 1> inputs{};
    for (std::size_t i = 0; i < Inputs; ++i) inputs[i] = t.values[i];
    const shape_list shapes = t.current_inputs;
    // What training moves has been moved by the first run.
    aligned_buffer<std::byte> before(buffers_.size());
    std::ranges::copy(buffers_.span(), before.data());
    prepare(shapes);
    for (std::size_t i = 0; i < Inputs; ++i) t.values[i] = inputs[i];
    run_leaves(execution_tables(false));
    std::ranges::copy(before.span(), buffers_.data());
    t.ran_forward = true;
  }

  /// What a pass needs; until the next one.
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
    if (fuses_)
      run.fused = (training_ ? t.memory.fusion.calls : t.memory.fusion.evaluation_calls).data();
    if constexpr (is_partial) run.partial.runs = t.partial.now.runs.data();
    return run;
  }

  /// Of what the parameters are, for who keeps what it made of them; 0 where somebody may write
  /// them at any time.
  std::uint64_t stamp_ = new_parameter_stamp();
  std::shared_ptr<hook_set> hooks_;
  std::unique_ptr<hooked_calls> hooked_calls_;
  leaf_boundary<T>* boundary_ = nullptr;
  /// How the leaves run where it is not one after the other and nothing else.
  void (*run_otherwise_)(engine&, const execution<T>&) = nullptr;
};

}  // namespace ikebana::detail
