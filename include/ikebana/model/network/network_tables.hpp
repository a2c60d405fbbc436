#pragma once

#include <cstddef>
#include <cstdint>
#include <type_traits>

#include "ikebana/cpu/activate.hpp"
#include "ikebana/cpu/dense_layer.hpp"
#include "ikebana/cpu/gemm.hpp"
#include "ikebana/model/element.hpp"
#include "ikebana/model/network/network_state.hpp"
#include "ikebana/model/passes/leaf_visits.hpp"
#include "ikebana/model/passes/loop_run.hpp"
#include "ikebana/model/passes/partial_execution.hpp"
#include "ikebana/model/plan/layout.hpp"
#include "ikebana/model/plan/memory_plan.hpp"
#include "ikebana/module/lowering.hpp"

namespace ikebana::detail {

/// The tables of a model of E for the network M: on the heap, so that a model on the stack stays
/// small, and accessed through pointers by code that is compiled once for all networks.
template <class E, any_module M, std::size_t Inputs>
struct network_tables : network_state<element_of<E>> {
  using T = element_of<E>;
  using state = network_state<T>;
  using traits = element_traits<E>;
  static constexpr program_sizes sizes = sizes_of<M>(Inputs);
  static constexpr bool has_choices = sizes.choices > 0;
  /// Whether run time may leave a parameter without a gradient.
  static constexpr bool is_partial = has_choices || output_count<M>() > 1;
  static constexpr bool has_layers = find_layers<E, M>().found;
  struct always_whole {};
  struct all_alike {};
  static constexpr bool has_loops = loop_leaves_of<M>.leads && !is_partial;
  struct no_loops {};

  program<sizes> lowered_program{};
  program<sizes> current_program{};
  parameter_layout<sizes> layout{};
  memory_plan<sizes> memory{};
  planning_tables<sizes> planning{};
  program_table<bool, sizes.leaves> seen{};
  program_table<int, sizes.leaves> first_node{};
  program_table<T*, sizes.parameters> parameter_table{};
  program_table<T*, sizes.parameters> gradient_table{};
  program_table<std::byte*, sizes.buffers> buffer_table{};
  program_table<std::byte*, sizes.saved> saved_table{};
  alignas(std::uint64_t) program_table<std::byte, sizes.plan_bytes> plan_table{};
  program_table<T*, sizes.values> value_table{};
  program_table<T*, sizes.values> value_gradient_table{};
  program_table<T*, sizes.edges> edge_gradient_table{};
  program_table<T*, sizes.edges> edge_sum_table{};
  program_table<bool, sizes.nodes> first_call_table{};
  program_table<bool, sizes.nodes> last_call_table{};
  program_table<bool, sizes.values> unwritten_table{};
  std::conditional_t<is_partial, partial_state<T, sizes>, always_whole> partial{};
  std::conditional_t<traits::has_exceptions, program_table<bool, sizes.leaves>, all_alike>
      full_precision{};
  program_table<cpu::dense_layer<T>, has_layers ? sizes.nodes : 0> layer_table{};
  program_table<cpu::dense_chain<T>, has_layers ? sizes.nodes : 0> chain_table{};

  std::conditional_t<has_loops, loop_storage<sizes>, no_loops> loops{};

  [[gnu::cold]] network_tables() {
    state::inputs = Inputs;
    state::lowered = lowered_program.view();
    state::current = current_program.view();
    state::plan = memory.tables();
    state::offsets = layout.offsets.data();
    state::buffer_offsets = layout.buffer_offsets.data();
    state::completed = layout.completed.data();
    state::parameters = parameter_table.data();
    state::gradients = gradient_table.data();
    state::buffers = buffer_table.data();
    state::saved = saved_table.data();
    state::run.plans = plan_table.data();
    state::values = value_table.data();
    state::value_gradients = value_gradient_table.data();
    state::edge_gradients = edge_gradient_table.data();
    state::edge_sums = edge_sum_table.data();
    state::first_call = first_call_table.data();
    state::last_call = last_call_table.data();
    state::unwritten = unwritten_table.data();
    state::layers = layer_table.data();
    state::chains = chain_table.data();
    state::run.activate = cpu::activation_kernel_of<T, questions_of<T, M>().activations>();
    if constexpr (has_layers) state::run.make_product = cpu::gemm_by_address<T>();
    if constexpr (has_loops) {
      state::run.loops = &loops.tables;
      state::run.run_loop = &run_loop<T, loop_leaves_of<M>.activations>;
    }
    if constexpr (is_partial) state::edge_scratch = partial.scratch.data();
  }
  network_tables(const network_tables&) = delete;

  /// Writes the loops of the plan. Returns whether its views can be read: loops that do not fit run
  /// leaf by leaf.
  [[gnu::cold]] bool build_loops() requires has_loops {
    return detail::build_loops<T>(current_program.view(), state::plan, loops.tables) ||
           !state::has_views;
  }

  /// Called after point_execution: sets the tables of a pass in which some leaves do not run.
  [[gnu::cold]] void set_up_partial(T* flat_gradients) requires is_partial {
    partial.set_up(lowered_program, layout);
    state::run.partial = {.runs = partial.now.runs.data(),
                          .taken = partial.now.taken.data(),
                          .written = partial.written.data(),
                          .edge_needed = memory.edge_needed.data(),
                          .scratch = partial.scratch.data(),
                          .presence = &partial.presence,
                          .places = partial.places.data(),
                          .flat_gradients = flat_gradients};
  }

  /// Marks the leaves that are exceptions of a `precision`.
  [[gnu::cold]] void find_exceptions() requires traits::has_exceptions {
    for (std::size_t l = 0; l < sizes.leaves; ++l)
      full_precision[l] =
          traits::is_exception(lowered_program.path(lowered_program.leaves[l]).view());
    state::run.full_precision = full_precision.data();
  }
};

}  // namespace ikebana::detail
