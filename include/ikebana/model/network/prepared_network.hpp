#pragma once

#include <cstddef>
#include <cstdint>
#include <utility>

#include "ikebana/core/error.hpp"
#include "ikebana/core/random.hpp"
#include "ikebana/model/element.hpp"
#include "ikebana/model/network/input_check.hpp"
#include "ikebana/model/network/lowerer.hpp"
#include "ikebana/model/network/model_memory.hpp"
#include "ikebana/model/network/network_tables.hpp"
#include "ikebana/model/network/owned_tables.hpp"
#include "ikebana/model/passes/leaf_visits.hpp"
#include "ikebana/model/plan/layout.hpp"
#include "ikebana/model/plan/memory_plan.hpp"
#include "ikebana/module/lowering.hpp"

namespace ikebana::detail {

/// A network with its memory, prepared for inputs of varying shapes.
template <class E, any_module M, std::size_t Inputs>
struct prepared_network {
  using T = element_of<E>;
  using traits = element_traits<E>;
  using tables_type = network_tables<E, M, Inputs>;
  static constexpr program_sizes sizes = tables_type::sizes;
  static constexpr bool has_choices = tables_type::has_choices;
  static constexpr bool is_partial = tables_type::is_partial;
  static constexpr bool has_layers = tables_type::has_layers;
  using lowerer = detail::lowerer<sizes, M>;

  model_memory<T> memory;
  M module;
  owned_tables<tables_type> tables;
  lowerer lower;
  ikebana::seed seed{};
  std::uint64_t step = 0;
  std::uint32_t stream = 0;
  bool training = true;
  bool fuses = true;
  bool is_watched = false;  ///< Leaves run one by one, by what reads and writes their outputs.

  [[gnu::cold]] prepared_network(const M& m, ikebana::seed s, const shape_list& declared,
                                 const shape_list& inputs, lowerer l)
      : module{m}, tables{new tables_type}, lower{l}, seed{s} {
    set_up(declared, inputs);
    memory.initialize_parameters(*tables, s);
    if constexpr (sizes.buffers > 0) memory.initialize_buffers(*tables, s);
    if constexpr (any_leaf_finishes<T, M>) {
      finish_leaves<T> finish{tables->lowered.nodes, tables->lowered.leaves, tables->parameters,
                              tables->buffers};
      for_each_leaf(module, finish);
    }
  }

  /// A copy with the same parameters, buffers and mode.
  [[gnu::cold]] prepared_network(const prepared_network& other)
      : module{other.module},
        tables{new tables_type},
        lower{other.lower},
        seed{other.seed},
        step{other.step},
        stream{other.stream},
        training{other.training},
        fuses{other.fuses} {
    set_up(other.tables->declared_inputs, other.tables->bound_inputs);
    if constexpr (has_choices) {
      tables->partial.set = other.tables->partial.set;
      tables->partial.policies = other.tables->partial.policies;
    }
    memory.copy(other.memory);
  }

  prepared_network(prepared_network&&) noexcept = default;
  prepared_network& operator=(prepared_network&&) noexcept = default;
  ~prepared_network() = default;

  [[gnu::cold]] void set_up(const shape_list& declared, const shape_list& inputs) {
    tables_type& t = *tables;
    t.declared_inputs = declared;
    t.bound_inputs = inputs;
    lower(t.lowered_program, module, inputs, true);
    lay_out_into<T>(t.layout, t.lowered_program, t.first_node);
    t.mark_calls(t.seen.data());
    memory.allocate(t, t.layout.parameter_elements, t.layout.buffer_bytes);
    t.point_execution();
    if constexpr (is_partial) t.set_up_partial(memory.gradients.data());
    if constexpr (traits::has_exceptions) t.find_exceptions();
    bool known = true;
    for (std::size_t i = 0; i < inputs.size(); ++i) known = known && inputs[i].is_static();
    // Methods run one by one, with memory of their own.
    if (known && !requires { M::is_methods; }) prepare(inputs);
  }

  bool can_have_views() const { return fuses && !is_watched; }

  /// Prepares for inputs of these shapes, which are known to match.
  [[gnu::cold]] void prepare(const shape_list& inputs) { prepare(inputs, can_have_views()); }
  /// With `has_views`, fused calls must run.
  [[gnu::cold]] void prepare(const shape_list& inputs, bool has_views) {
    tables_type& t = *tables;
    const shape_list last = std::exchange(t.current_inputs, {});
    lower(t.current_program, module, inputs, false);
    if (!t.current_program.error.ok()) [[unlikely]] {
      const diagnostic wrong = t.current_program.error;
      if (last.size() > 0) lower(t.current_program, module, last, false);
      t.current_inputs = last;
      throw_error(shape_error(wrong));
    }
    // current_inputs are set last, so that the next call repeats what a failed allocation
    // interrupted.
    t.ran_forward = t.checked = false;
    if (!plan(has_views)) plan(false);
    t.has_views = has_views;
    t.current_inputs = inputs;
  }
  [[gnu::cold]] bool plan(bool has_views) {
    tables_type& t = *tables;
    t.has_views = has_views;
    plan_memory_into<T>(
        t.memory, t.planning, t.current_program, Inputs,
        t.input_gradients ? pass_purpose::training_with_input_gradients : pass_purpose::training,
        has_views, t.inputs_with_gradients);
    memory.place(t, t.memory.bytes);
    if constexpr (has_layers) t.point_layers();
    if constexpr (tables_type::has_loops)
      return t.build_loops();
    else
      return true;
  }

  /// Takes over numbers of the module that changed, which loops contain. Allocates if a loop no
  /// longer fits: what was one block for equal numbers may be several.
  void change_numbers() {
    tables_type& t = *tables;
    if constexpr (tables_type::has_loops) {
      if (t.current_inputs.size() == 0) return;
      change_steps change{t.current_program.nodes.data()};
      for_each_leaf(module, change);
      if (!t.build_loops()) [[unlikely]]
        prepare(shape_list(t.current_inputs));
    }
  }

  /// Checks the shapes of inputs and prepares for them. Changes no state that is visible outside.
  void prepare_for(const shape_list& given) {
    if (!same(given, tables->current_inputs) || tables->has_views != can_have_views()) {
      if (!all_compatible(tables->declared_inputs, given)) refuse(given);
      prepare(given);
    }
    choose_and_check();
  }
  /// The same for inputs that can only have the declared shapes.
  void prepare_for_declared() {
    if ((Inputs > 0 && tables->current_inputs.size() == 0) || tables->has_views != can_have_views())
      prepare(tables->declared_inputs);
    choose_and_check();
  }

  [[noreturn, gnu::cold]] void refuse(const shape_list& given) const {
    throw_error(shape_error(check_inputs(module, tables->declared_inputs, given)));
  }

  void choose_and_check() {
    [[maybe_unused]] tables_type& t = *tables;
    if constexpr (has_choices)
      t.partial.decide(t.current_program, seed, training ? step + 1 : step, stream, training);
    if constexpr (any_leaf_checks<M>) {
      // Another branch may have become active since the last check.
      if (t.checked && t.checked_training == training && !has_choices) return;
      check_leaves check{t.current.nodes, t.current.values, training};
      if constexpr (has_choices) check.runs = t.partial.next.runs.data();
      for_each_leaf(module, check);
      if (!check.error.ok()) {
        check.error.path = t.current.path(t.current.leaves[check.leaf]);
        throw_error(shape_error(check.error));
      }
      t.checked = true;
      t.checked_training = training;
    }
  }
};

}  // namespace ikebana::detail
