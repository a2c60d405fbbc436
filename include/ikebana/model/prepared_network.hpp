#pragma once

#include <cstddef>
#include <cstdint>
#include <utility>

#include "ikebana/core/error.hpp"
#include "ikebana/core/random.hpp"
#include "ikebana/model/element.hpp"
#include "ikebana/model/input_check.hpp"
#include "ikebana/model/layout.hpp"
#include "ikebana/model/leaf_visits.hpp"
#include "ikebana/model/lowerer.hpp"
#include "ikebana/model/memory_plan.hpp"
#include "ikebana/model/model_memory.hpp"
#include "ikebana/model/network_tables.hpp"
#include "ikebana/model/owned_tables.hpp"
#include "ikebana/module/lowering.hpp"

namespace ikebana::detail {

/// A network with its memory, prepared for inputs of varying shapes.
template <class E, any_module M, std::size_t Inputs>
class prepared_network : protected model_memory<element_of<E>> {
 protected:
  using T = element_of<E>;
  using traits = element_traits<E>;
  using memory = model_memory<T>;
  using tables = network_tables<E, M, Inputs>;
  static constexpr program_sizes sizes = tables::sizes;
  static constexpr bool has_choices = tables::has_choices;
  static constexpr bool is_partial = tables::is_partial;
  static constexpr bool has_layers = tables::has_layers;
  using lowerer = detail::lowerer<sizes, M>;
  using memory::buffers_;
  using memory::gradients_;
  using memory::parameters_;
  using memory::workspace_;

  [[gnu::cold]] prepared_network(const M& m, seed s, const shape_list& declared,
                                 const shape_list& inputs, lowerer lower)
      : module_{m}, tables_{new tables}, lower_{lower}, seed_{s} {
    set_up(declared, inputs);
    memory::initialize_parameters(*tables_, s);
    if constexpr (sizes.buffers > 0) memory::initialize_buffers(*tables_, s);
    if constexpr (any_leaf_finishes<T, M>) {
      finish_leaves<T> finish{tables_->lowered.nodes, tables_->lowered.leaves, tables_->parameters,
                              tables_->buffers};
      for_each_leaf(module_, finish);
    }
  }

  /// A copy with the same parameters, buffers and mode.
  [[gnu::cold]] prepared_network(const prepared_network& other)
      : module_{other.module_},
        tables_{new tables},
        lower_{other.lower_},
        seed_{other.seed_},
        step_{other.step_},
        stream_{other.stream_},
        training_{other.training_},
        fuses_{other.fuses_} {
    set_up(other.tables_->declared_inputs, other.tables_->bound_inputs);
    if constexpr (has_choices) {
      tables_->partial.set = other.tables_->partial.set;
      tables_->partial.policies = other.tables_->partial.policies;
    }
    memory::copy(other);
  }

  prepared_network(prepared_network&&) noexcept = default;
  prepared_network& operator=(prepared_network&&) noexcept = default;
  ~prepared_network() = default;

  [[gnu::cold]] void set_up(const shape_list& declared, const shape_list& inputs) {
    tables& t = *tables_;
    t.declared_inputs = declared;
    t.bound_inputs = inputs;
    lower_(t.lowered_program, module_, inputs, true);
    lay_out_into<T>(t.layout, t.lowered_program, t.first_node);
    t.mark_calls(t.seen.data());
    memory::allocate(t, t.layout.parameter_elements, t.layout.buffer_bytes);
    t.point_execution();
    if constexpr (is_partial) t.set_up_partial(gradients_.data());
    if constexpr (traits::has_exceptions) t.find_exceptions();
    bool known = true;
    for (std::size_t i = 0; i < inputs.size(); ++i) known = known && inputs[i].is_static();
    if (known) prepare(inputs);
  }

  /// Prepares for inputs of these shapes, which are known to match.
  [[gnu::cold]] void prepare(const shape_list& inputs) {
    tables& t = *tables_;
    const shape_list last = std::exchange(t.current_inputs, {});
    lower_(t.current_program, module_, inputs, false);
    if (!t.current_program.error.ok()) [[unlikely]] {
      const diagnostic wrong = t.current_program.error;
      if (last.size() > 0) lower_(t.current_program, module_, last, false);
      t.current_inputs = last;
      throw shape_error(wrong);
    }
    // current_inputs are set last, so that the next call repeats what a failed allocation
    // interrupted.
    t.ran_forward = t.checked = false;
    plan_memory_into(
        t.memory, t.planning, t.current_program, Inputs,
        t.input_gradients ? pass_purpose::training_with_input_gradients : pass_purpose::training,
        sizeof(T), t.inputs_with_gradients);
    memory::place(t, t.memory.bytes);
    if constexpr (has_layers) t.point_layers();
    if constexpr (tables::has_loops) t.build_loops();
    t.current_inputs = inputs;
  }

  /// Takes over numbers of the module that changed, which loops contain. Does not allocate.
  void change_numbers() {
    tables& t = *tables_;
    if constexpr (tables::has_loops) {
      if (t.current_inputs.size() == 0) return;
      change_steps change{t.current_program.nodes.data()};
      for_each_leaf(module_, change);
      t.build_loops();
    }
  }

  /// Checks the shapes of inputs and prepares for them. Changes no state that is visible outside.
  void prepare_for(const shape_list& given) {
    if (!same(given, tables_->current_inputs)) {
      if (!all_compatible(tables_->declared_inputs, given)) refuse(given);
      prepare(given);
    }
    choose_and_check();
  }
  /// The same for inputs that can only have the declared shapes.
  void prepare_for_declared() {
    if (Inputs > 0 && tables_->current_inputs.size() == 0) prepare(tables_->declared_inputs);
    choose_and_check();
  }

  [[noreturn, gnu::cold]] void refuse(const shape_list& given) const {
    throw shape_error(check_inputs(module_, tables_->declared_inputs, given));
  }

  void choose_and_check() {
    [[maybe_unused]] tables& t = *tables_;
    if constexpr (has_choices)
      t.partial.decide(t.current_program, seed_, training_ ? step_ + 1 : step_, stream_, training_);
    if constexpr (any_leaf_checks<M>) {
      // Another branch may have become active since the last check.
      if (t.checked && t.checked_training == training_ && !has_choices) return;
      check_leaves check{t.current.nodes, t.current.values, training_};
      if constexpr (has_choices) check.runs = t.partial.next.runs.data();
      for_each_leaf(module_, check);
      if (!check.error.ok()) {
        check.error.path = t.current.path(t.current.leaves[check.leaf]);
        throw shape_error(check.error);
      }
      t.checked = true;
      t.checked_training = training_;
    }
  }

  M module_;
  owned_tables<tables> tables_;
  lowerer lower_;
  ikebana::seed seed_{};
  std::uint64_t step_ = 0;
  std::uint32_t stream_ = 0;
  bool training_ = true;
  bool fuses_ = true;
};

}  // namespace ikebana::detail
