#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstring>
#include <memory>
#include <vector>

#include "ikebana/core/dependent.hpp"
#include "ikebana/cpu/elementwise.hpp"
#include "ikebana/model/choices.hpp"
#include "ikebana/model/element.hpp"
#include "ikebana/model/passes/execution.hpp"
#include "ikebana/model/passes/forward_pass.hpp"
#include "ikebana/model/passes/gradient_presence.hpp"
#include "ikebana/model/plan/layout.hpp"
#include "ikebana/module/lowering.hpp"

namespace ikebana::detail {

// Networks of which some parts do not run in every step: those that choose branches, and those with
// several outputs, some of which may not contribute to a loss. What runs, and which contribution to
// a gradient comes first, is known only while they run.

/// The state of such a network.
template <class T, program_sizes N>
struct partial_state {
  struct chosen {
    program_table<int, N.choices> taken{};  ///< By choice: an alternative; -1 if none runs.
    program_table<bool, N.arms> runs{};     ///< By arm.
  };
  program_table<int, N.choices> set{};
  std::array<std::shared_ptr<choice_policy>, N.choices + 1> policies{};
  chosen next{};  ///< Decided for the forward that is starting.
  chosen now{};   ///< Of the last forward.

  std::array<bool, max_arity> output_written{};
  program_table<bool, N.values> written{};
  program_table<T*, N.edges> scratch{};
  dependent<gradient_presence, T> presence{};
  program_table<int, N.leaves> places{};
  program_table<bool, N.leaves> reached{};

  void set_up(const program<N>& p, const parameter_layout<N>& layout) {
    std::vector<dependent<std::size_t, T>> order(N.parameters);
    for (std::size_t i = 0; i < N.parameters; ++i) order[i] = i;
    std::sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) {
      // Parameters without elements share their offset with the next one.
      return layout.offsets[a] != layout.offsets[b] ? layout.offsets[a] < layout.offsets[b] : a < b;
    });
    presence = {};
    for (std::size_t i = 0; i < N.parameters; ++i) {
      const program_parameter& parameter = p.parameters[order[i]];
      const auto leaf = static_cast<std::size_t>(parameter.leaf);
      if (p.leaves[leaf].first_parameter == static_cast<int>(order[i]))
        places[leaf] = static_cast<int>(i);
      presence.add({layout.offsets[order[i]], i + 1 < N.parameters ? layout.offsets[order[i + 1]]
                                                                   : layout.parameter_elements});
    }
  }

  /// Marks the outputs that have gradients, and no other value.
  void begin_backward(const program<N>& p) {
    written = {};
    for (std::size_t i = 0; i < p.output_count; ++i) {
      bool& is_given = written[static_cast<std::size_t>(p.outputs[i])];
      is_given = is_given || output_written[i];
    }
  }

  /// Calls f(first, count) for the parameters that a backward would reach now, in the order in
  /// which it would finish them.
  template <class F>
  void predict_reached(const program<N>& p, const execution<T>& run, F&& f) {
    begin_backward(p);
    reached = {};
    for (int k = static_cast<int>(N.nodes); k-- > 0;) {
      const program_node& node = run.nodes[k];
      const program_leaf& leaf = run.leaves[node.leaf];
      bool& is_reached = reached[static_cast<std::size_t>(node.leaf)];
      if (run.runs_backward[k] && run.does_run(node) && run.partial.is_written(node)) {
        is_reached = true;
        for (std::size_t i = 0; i < node.input_count; ++i)
          if ((node.choice < 0 || run.partial.taken[node.choice] == static_cast<int>(i)) &&
              run.partial.edge_needed[node.first_edge + static_cast<int>(i)])
            written[static_cast<std::size_t>(node.inputs[i])] = true;
      }
      if (is_reached && run.first_call[k] && leaf.parameter_count > 0)
        f(static_cast<std::size_t>(run.partial.places[node.leaf]), leaf.parameter_count);
    }
  }

  /// Decides what the next forward runs. Throws error if a function returns no valid alternative.
  void decide(const program<N>& p, seed s, std::uint64_t step, std::uint32_t stream,
              bool training) {
    next = {};
    for (std::size_t c = 0; c < N.choices; ++c) {
      const program_choice& choice = p.choices[c];
      next.taken[c] = -1;
      if (choice.arm >= 0 && !next.runs[static_cast<std::size_t>(choice.arm)]) continue;
      int alternative = set[c];
      if (choice_policy* policy = policies[c].get()) {
        choice_context context{policy->path, static_cast<std::size_t>(choice.alternatives), step,
                               training};
        const std::uint64_t path = hash_path(policy->path, s.path);
        context.random = random_stream{s, path, step, stream};
        context.shared_random = random_stream{s, path, step, 0};
        const std::size_t given = policy->choose(context);
        check_alternative(policy->path, choice.alternatives, given);
        alternative = static_cast<int>(given);
      }
      next.taken[c] = alternative;
      next.runs[static_cast<std::size_t>(choice.first_arm + alternative)] = true;
    }
  }
};

/// The backward of a pass in which some leaves do not run: visits the leaves that forward ran and
/// that a gradient reaches. `completed` is as in backward_pass.
template <class E, class Completed>
struct partial_backward_pass {
  using T = element_of<E>;
  const execution<T>& run;
  Completed& completed;
  int k = 0;
  bool adds[max_arity]{};  ///< By input of the call: its gradient was written before.

  static constexpr bool bounded = requires { completed.boundary; };

  template <class Leaf>
  [[gnu::noinline]] void operator()(const Leaf& leaf) {
    const program_node& node = run.nodes[--k];
    if (run.runs_backward[k] && run.does_run(node) && run.partial.is_written(node)) {
      if (run.checkpoints != nullptr) run.run_again_before(k);
      if constexpr (requires { completed.before_leaf(k); }) completed.before_leaf(k);
      if (run.watch != nullptr) run.watch->before_backward(run, k);
      if constexpr (joins_alternatives<Leaf>) {
        pass_to_alternative(node, static_cast<std::size_t>(run.partial.taken[node.choice]));
        if (run.watch != nullptr) run.watch->after_backward(run, k);
      } else {
        [[maybe_unused]] const context<T> c = begin(node);
        if constexpr (is_view_module<Leaf>())
          run.pass_on_gradient(node, run.edge_gradients[node.first_edge]);
        else if (run.fused == nullptr || !run.fused[k].backward_is_done)
          leaf.backward(element_traits<E>::given(c, run.is_full(node)));
        end(node);
      }
      if constexpr (requires { completed.after_leaf(k); }) completed.after_leaf(k);
    }
    finish(node);
  }

 private:
  std::size_t place_of(const program_node& node) const {
    return static_cast<std::size_t>(run.partial.places[node.leaf]);
  }

  // The part shared by all leaves.
  [[gnu::noinline]] context<T> begin(const program_node& node) {
    const partial_tables<T>& p = run.partial;
    for (std::size_t i = 0; i < node.output_count; ++i) {
      const int v = node.first_output + static_cast<int>(i);
      if (!p.written[v]) std::memset(run.value_gradients[v], 0, run.bytes_of(v));
    }
    for (std::size_t i = 0; i < node.input_count; ++i) {
      const int e = node.first_edge + static_cast<int>(i), v = node.inputs[i];
      adds[i] = p.edge_needed[e] && p.written[v] && run.value_gradients[v] != nullptr;
      if (!p.edge_needed[e]) continue;
      const bool in_place = p.scratch[e] == nullptr;  // The leaf adds to the gradient itself.
      run.edge_gradients[e] = adds[i] && !in_place ? p.scratch[e] : run.value_gradients[v];
      run.edge_sums[e] = adds[i] ? run.value_gradients[v] : nullptr;
      adds[i] = adds[i] && !in_place;
      p.written[v] = true;
    }
    context<T> c = run.backward_context_of(node);
    if (run.leaves[node.leaf].parameter_count > 0) {
      const gradient_presence& presence = *p.presence;
      const std::size_t place = place_of(node);
      c.accumulating = presence.reached(place) || (run.accumulate && !bounded && presence[place]);
    }
    if constexpr (bounded) completed.boundary->before_backward(run, k);
    return c;
  }

  [[gnu::noinline]] void end(const program_node& node) {
    if constexpr (bounded) completed.boundary->after_backward(run, k);
    for (std::size_t i = 0; i < node.input_count; ++i)
      if (adds[i])
        add_to(node.inputs[i], run.edge_gradients[node.first_edge + static_cast<int>(i)]);
    if (run.watch != nullptr) run.watch->after_backward(run, k);
    if constexpr (bounded) completed.boundary->after_sums(run, k);
    for (std::size_t i = 0; i < run.leaves[node.leaf].parameter_count; ++i)
      run.partial.presence->reach(place_of(node) + i);
  }

  [[gnu::noinline]] void finish(const program_node& node) {
    const program_leaf& own = run.leaves[node.leaf];
    if (!run.first_call[k] || own.parameter_count == 0) return;
    if (!run.accumulate) forget(own, place_of(node));
    completed(run.completed[node.leaf]);
  }

  /// The gradient of a choice goes to the alternative that ran.
  void pass_to_alternative(const program_node& node, std::size_t taken) {
    const int v = node.inputs[taken];
    T* const to = run.value_gradients[v];
    if (!run.partial.edge_needed[node.first_edge + static_cast<int>(taken)] || to == nullptr)
      return;
    if (run.partial.written[v])
      add_to(v, run.value_gradients[node.first_output]);
    else
      run.pass_on_gradient(node, to);
    run.partial.written[v] = true;
  }

  void add_to(int v, const T* gradient) const {
    cpu::add<T>(run.shapes[v].numel(), run.value_gradients[v], gradient, run.value_gradients[v]);
  }

  /// Clears a gradient that was present before this step and is not any more.
  void forget(const program_leaf& own, std::size_t place) const {
    gradient_presence& presence = *run.partial.presence;
    if (presence.reached(place) || !presence[place]) return;
    for (std::size_t i = place; i < place + own.parameter_count; ++i) {
      const parameter_range& r = presence.range(i);
      std::fill(run.partial.flat_gradients + r.begin, run.partial.flat_gradients + r.end, T{0});
      presence.set(i, false);
    }
  }
};

}  // namespace ikebana::detail
