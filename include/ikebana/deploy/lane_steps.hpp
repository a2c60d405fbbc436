#pragma once

#include "ikebana/core/shape.hpp"
#include "ikebana/model/element.hpp"
#include "ikebana/model/passes/execution.hpp"
#include "ikebana/model/passes/forward_pass.hpp"
#include "ikebana/module/context.hpp"
#include "ikebana/module/lowering.hpp"
#include "ikebana/module/program.hpp"

namespace ikebana::detail {

/// What a lane does for one node: `run(step)`.
template <class T>
struct lane_step {
  void (*run)(const lane_step&);
  const void* leaf;
  const execution<T>* of;
  int node;
  int from;          ///< The value that the node reads first, or that it is a view of.
  dim_t offset;      ///< Of a view.
  bool changes;      ///< `given` must be made in each call.
  context<T> given;  ///< Pointers to tables, whose values calls may change.
};

/// What a leaf is to a lane.
enum class lane_leaf : unsigned char { any, view, maybe_view, join, layer };

/// Collects the steps of a lane: what a pass over its leaves would find out in each call.
template <class T>
struct step_collector {
  using step = lane_step<T>;

  const execution<T>& run;
  step* next;
  bool*
      moves;  ///< By value: in memory of an input, which calls may change. Those of inputs are set.
  int k = 0;

  [[gnu::cold]] void collect(lane_leaf kind, const void* leaf, void (*runs)(const step&)) {
    static constexpr fused_call plain{};
    const program_node& node = run.nodes[k];
    const fused_call& call = run.fused == nullptr ? plain : run.fused[k];
    step& s = *next;
    s.of = &run;
    s.node = k++;
    if (!run.does_run(node) || call.forward_is_done) return;
    const int out = node.first_output;
    const bool is_step = call.loop > 0;
    bool is_view = is_step ? node.is_view : kind == lane_leaf::view || kind == lane_leaf::join;
    s.from = node.inputs[kind == lane_leaf::join ? run.partial.taken[node.choice] : 0];
    s.offset = 0;
    if (kind == lane_leaf::maybe_view && !is_step && run.layouts[out].is_view) {
      is_view = true;
      s.offset = run.layouts[out].offset;
    }
    if (is_view) {
      moves[out] = moves[s.from];
      // Inputs have no memory yet.
      if (!moves[out]) run.values[out] = run.values[s.from] + s.offset;
    }
    bool has_step = is_view && moves[out];
    s.run = is_step ? &run_step : &follow;
    s.changes = false;
    if (is_step) {
      has_step = has_step || call.runs_loop;
    } else if (!is_view && (kind != lane_leaf::layer || call.layers > 0)) {
      has_step = true;
      s.run = runs;
      s.leaf = leaf;
      s.changes = call.normalises || (call.adds && moves[call.added]);
      s.given = run.forward_context_of(node);
    }
    if (has_step) ++next;
  }

 private:
  static void follow(const step& s) {
    T** const values = s.of->values;
    values[s.of->nodes[s.node].first_output] = values[s.from] + s.offset;
  }
  static void run_step(const step& s) { s.of->run_step(s.node); }
};

/// Visits the leaves of a network in order and collects their steps. E is a model_element.
template <class E>
struct collect_steps {
  using T = element_of<E>;
  step_collector<T> to;

  template <class Leaf>
  [[gnu::noinline, gnu::cold]] void operator()(const Leaf& leaf) {
    lane_leaf kind = lane_leaf::any;
    auto* runs = &forward<Leaf>;
    if constexpr (is_view_module<Leaf>()) {
      kind = lane_leaf::view;
    } else if constexpr (joins_alternatives<Leaf>) {
      kind = lane_leaf::join;
    } else if constexpr (runs_layers<E, Leaf>) {
      const execution<T>& run = to.run;
      if (run.fused != nullptr && run.chains != nullptr && run.fused[to.k].layers != 0) {
        kind = lane_leaf::layer;
        runs = &forward_layers<Leaf>;
      }
    } else if constexpr (maybe_view<Leaf>) {
      kind = lane_leaf::maybe_view;
    }
    to.collect(kind, &leaf, runs);
  }

 private:
  template <class Leaf>
  static void forward(const lane_step<T>& s) {
    if constexpr (!is_view_module<Leaf>() && !joins_alternatives<Leaf>)
      static_cast<const Leaf*>(s.leaf)->forward(
          element_traits<E>::given(s.given, s.of->is_full(s.of->nodes[s.node])));
  }
  template <class Leaf>
  static void forward_layers(const lane_step<T>& s) {
    Leaf::template forward_layers<E>(s.of->values[s.from], s.of->chains[s.node], s.of->stamp);
  }
};

}  // namespace ikebana::detail
