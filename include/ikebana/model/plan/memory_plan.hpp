#pragma once

#include <array>
#include <cstddef>

#include "ikebana/cpu/detail/targets.hpp"
#include "ikebana/model/plan/fusion.hpp"
#include "ikebana/model/plan/memory_planner.hpp"
#include "ikebana/model/plan/value_uses.hpp"
#include "ikebana/module/program.hpp"

namespace ikebana {

/// Offsets in the workspace, in bytes, of activations, their gradients and tensors that forward
/// saves for backward; -1 for values without memory. Values that are never needed at the same time
/// share memory.
template <program_sizes N>
struct memory_plan {
  program_table<dim_t, N.values> values{};
  program_table<dim_t, N.values> value_gradients{};
  /// By edge: scratch for a contribution that is added to the value's gradient; -1 if the edge
  /// writes the gradient directly, detail::adds_in_place if its leaf adds to it.
  program_table<dim_t, N.edges> edge_scratch{};
  program_table<bool, N.edges> edge_needed{};
  program_table<dim_t, N.saved> saved{};
  /// By value: the value whose memory it uses (as a view, or in place), or itself.
  program_table<int, N.values> root{};
  program_table<int, N.values> gradient_root{};
  program_table<bool, N.values> gradient_written{};
  program_table<bool, N.nodes> runs_backward{};
  program_table<bool, N.nodes> runs_again{};  ///< In backward, as a part of a checkpoint.
  program_table<value_layout, N.values> layouts{};
  fusion_plan<N> fusion{};
  dim_t bytes = 0;

  constexpr detail::memory_tables tables() {
    return {values.data(),        value_gradients.data(),
            edge_scratch.data(),  edge_needed.data(),
            saved.data(),         root.data(),
            gradient_root.data(), gradient_written.data(),
            runs_backward.data(), runs_again.data(),
            layouts.data(),       fusion.tables()};
  }
};

namespace detail {

/// Scratch of the planning of a program of this size, which is too large for a stack.
template <program_sizes N>
struct planning_tables {
  program_table<value_use, N.values> uses{};
  program_table<planned_value, N.values> values{};
  program_table<int, N.values + 3 * N.nodes> indices{};
  std::array<memory_request, 2 * N.values + N.edges + N.saved + 1> requests{};
};

template <program_sizes N>
constexpr planner_scratch scratch_of(planning_tables<N>& t) {
  return {t.uses.data(), t.values.data(), t.indices.data(), t.requests.data()};
}

/// Plans the memory of a network of T at run time; returns the bytes.
template <class T>
[[gnu::cold]] dim_t plan_memory_at_run_time(const program_view& p, std::size_t inputs,
                                            pass_purpose purpose, const memory_tables& plan,
                                            const planner_scratch& scratch,
                                            unsigned inputs_with_gradients, bool has_views) {
  return memory_planner(p, inputs, purpose, sizeof(T), plan, scratch, inputs_with_gradients,
                        has_views)
      .run();
}
IKEBANA_CPU_KERNEL(plan_memory_at_run_time)

template <class T, program_sizes N>
void plan_memory_into(memory_plan<N>& plan, planning_tables<N>& scratch, const program<N>& p,
                      std::size_t inputs, pass_purpose purpose, bool has_views,
                      unsigned inputs_with_gradients = ~0U) {
  plan.bytes = plan_memory_at_run_time<T>(p.view(), inputs, purpose, plan.tables(),
                                          scratch_of(scratch), inputs_with_gradients, has_views);
}

}  // namespace detail

/// Plans the workspace of a program whose shapes are all static. Time runs from the forward of the
/// first node to the backward of the first. A constant expression for static shapes; no allocation.
/// Inputs, and the gradients that backward writes of them, are in the caller's memory.
template <class T, program_sizes N>
[[gnu::cold]] constexpr memory_plan<N> plan_memory(const program<N>& p, std::size_t inputs,
                                                   pass_purpose purpose = pass_purpose::training) {
  memory_plan<N> plan;
  detail::planning_tables<N> scratch;
  plan.bytes = detail::memory_planner(p.view(), inputs, purpose, sizeof(T), plan.tables(),
                                      detail::scratch_of(scratch))
                   .run();
  return plan;
}

}  // namespace ikebana
