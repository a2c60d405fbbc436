#pragma once

#include <cstddef>

#include "ikebana/cpu/activation.hpp"
#include "ikebana/model/value_uses.hpp"
#include "ikebana/module/program.hpp"

namespace ikebana {

/// What the call of a leaf takes over from others, so that they need no pass of their own over
/// memory.
// All zero at first: g++ 12 forgets other initial values of a member of an array in a constant
// expression.
struct fused_call {
  bool normalises = false;  ///< What forward gives is normalised, by channel, as node `norm` would.
  int norm = 0;
  bool adds = false;  ///< Then the value `added` is added.
  int added = 0;
  cpu::activation function = cpu::activation::none;  ///< Then it is applied.
  bool gives_other = false;  ///< It is then the value `output`, and that of the leaf is not made.
  int output = 0;
  bool forward_is_done = false;                   ///< By another call.
  cpu::activation slope = cpu::activation::none;  ///< Applied to the gradient of input 0.
  bool backward_is_done = false;                  ///< By another call.
  /// It runs as many layers one after another, of which it is the first; -1: it is another of them.
  int layers = 0;
};

namespace detail {

/// The tables of a fusion_plan.
struct fusion_tables {
  fused_call* calls = nullptr;
  fused_call* evaluation_calls = nullptr;
  int* overwrites = nullptr;
  bool* evaluation_leaves_out = nullptr;
};

}  // namespace detail

/// Which calls of a program are made in one with others, and which write their output over an
/// input.
template <program_sizes N>
struct fusion_plan {
  program_table<fused_call, N.nodes> calls{};
  /// Those of a forward in evaluation mode. Where one gives another's output, what a backward
  /// needs is had by running the forward again.
  program_table<fused_call, N.nodes> evaluation_calls{};
  bool evaluation_leaves_out = false;
  program_table<int, N.nodes> overwrites{};  ///< By node: an input; -1 for none.

  constexpr detail::fusion_tables tables() {
    return {calls.data(), evaluation_calls.data(), overwrites.data(), &evaluation_leaves_out};
  }
};

namespace detail {

/// Finds what can be fused in one program. Not compiled for each network.
class fusion_planner {
 public:
  constexpr fusion_planner(const program_view& program, std::size_t input_count,
                           const fusion_tables& tables, const value_use* value_uses, int* scratch)
      : p{program},
        inputs{static_cast<int>(input_count)},
        plan{tables},
        uses{value_uses},
        taker{scratch} {}
  [[gnu::cold]] constexpr void run() {
    for (std::size_t k = 0; k < p.n.nodes; ++k) {
      plan.calls[k] = plan.evaluation_calls[k] = {};
      plan.overwrites[k] = -1;
    }
    *plan.evaluation_leaves_out = false;
    take_forward(plan.calls, false);
    take_forward(plan.evaluation_calls, true);
    take_layers(plan.evaluation_calls);
    take_slopes();
  }

 private:
  static constexpr bool keeps(const program_node& node, kept what) {
    return (static_cast<unsigned>(node.keeps) & static_cast<unsigned>(what)) != 0;
  }

  /// Whether node alone reads v, in every pass in which v is made.
  constexpr bool reads_alone(int v, const program_node& node) const {
    return v >= inputs && uses[v].consumers == 1 && !uses[v].is_output && node.choice < 0 &&
           p.nodes[uses[v].producer].arm == node.arm;
  }
  constexpr bool may_overwrite(int v, const program_node& node) const {
    if (!reads_alone(v, node)) return false;
    const program_node& made = p.nodes[uses[v].producer];
    return !made.is_view && made.choice < 0 && made.output_count == 1 && !keeps(made, kept::output);
  }

  /// Whether the taker of v could add `other` to it, which must be there when it runs.
  constexpr bool could_add(const fused_call* calls, int v, int other) const {
    const int by = taker[v];
    return by >= 0 && p.nodes[by].role.takes_residual && !calls[by].adds &&
           other < p.nodes[by].first_output;
  }

  [[gnu::cold]] constexpr void take_forward(fused_call* calls, bool evaluating) {
    for (std::size_t v = 0; v < p.n.values; ++v) taker[v] = -1;
    for (std::size_t k = 0; k < p.n.nodes; ++k) {
      const program_node& node = p.nodes[k];
      const leaf_role& role = node.role;
      const auto out = node.first_output;
      if (role.takes_residual || role.takes_function) taker[out] = static_cast<int>(k);
      if (role.is_sum) {
        take_sum(calls, k, evaluating);
        continue;
      }
      if (node.input_count != 1) continue;
      const int v = node.inputs[0], by = taker[v];
      const bool overwrites = role.in_place && may_overwrite(v, node);
      if (overwrites) plan.overwrites[k] = 0;
      if (role.adds_before) {
        take_sum_before(calls, k);
      } else if (by >= 0 && may_overwrite(v, node) && (overwrites || evaluating)) {
        fused_call& taking = calls[by];
        const leaf_role& taker_role = p.nodes[by].role;
        if (evaluating && role.is_identity_in_evaluation && overwrites) {
          calls[k].forward_is_done = true;
          taker[out] = by;
          continue;
        }
        if (role.as_activation != cpu::activation::none && taker_role.takes_function) {
          taking.function = role.as_activation;
        } else if (evaluating && role.is_channel_norm && taker_role.takes_norm &&
                   !taking.normalises && !taking.adds) {
          taking.normalises = true;
          taking.norm = static_cast<int>(k);
          taker[out] = by;
        } else {
          continue;
        }
        calls[k].forward_is_done = true;
        if (overwrites) continue;
        taking.gives_other = *plan.evaluation_leaves_out = true;
        taking.output = node.first_output;
      }
    }
  }

  [[gnu::cold]] constexpr void take_sum(fused_call* calls, std::size_t k, bool evaluating) {
    const program_node& node = p.nodes[k];
    for (int i = 0; i < 2; ++i) {
      const int v = node.inputs[i], other = node.inputs[1 - i];
      // Both modes share the plan of memory.
      if (evaluating ? plan.overwrites[k] != i : !may_overwrite(v, node)) continue;
      const bool taken = could_add(calls, v, other);
      if (plan.overwrites[k] >= 0 && !taken) continue;
      plan.overwrites[k] = i;
      if (!taken) continue;
      const int by = taker[v];
      calls[by].adds = true;
      calls[by].added = other;
      calls[k].forward_is_done = true;
      taker[node.first_output] = by;
      return;
    }
  }

  /// A sum right before a leaf that makes it along with its own work.
  constexpr void take_sum_before(fused_call* calls, std::size_t k) const {
    if (k == 0) return;
    const program_node &node = p.nodes[k], &sum = p.nodes[k - 1];
    if (!sum.role.is_sum || node.inputs[0] != sum.first_output || node.arm != sum.arm ||
        plan.overwrites[k - 1] < 0 || calls[k - 1].forward_is_done)
      return;
    calls[k].adds = true;
    calls[k].added = sum.inputs[1 - plan.overwrites[k - 1]];
    calls[k - 1].forward_is_done = true;
  }

  /// Layers that follow each other, each with nothing but an activation, run in one call.
  [[gnu::cold]] constexpr void take_layers(fused_call* calls) const {
    const auto is_layer = [&](std::size_t k) {
      return p.nodes[k].role.is_layer && !calls[k].adds && !calls[k].normalises;
    };
    for (std::size_t k = 0; k < p.n.nodes; ++k) {
      if (!is_layer(k)) continue;
      const std::size_t first = k;
      calls[first].layers = 1;
      for (int v = p.nodes[k].first_output; k + 1 < p.n.nodes; v = p.nodes[++k].first_output) {
        const program_node& next = p.nodes[k + 1];
        if (next.input_count != 1 || next.inputs[0] != v || next.arm != p.nodes[first].arm) break;
        if (calls[k + 1].forward_is_done) continue;
        if (!is_layer(k + 1)) break;
        calls[k + 1].layers = -1;
        ++calls[first].layers;
      }
    }
  }

  [[gnu::cold]] constexpr void take_slopes() {
    for (std::size_t k = 0; k < p.n.nodes; ++k) {
      const program_node& node = p.nodes[k];
      if (!node.role.takes_slope || !keeps(node, kept::input)) continue;
      int v = node.inputs[0];
      const program_node* reader = &node;
      while (reads_alone(v, *reader) && p.nodes[uses[v].producer].is_view) {
        reader = &p.nodes[uses[v].producer];
        v = reader->inputs[0];
      }
      if (!reads_alone(v, *reader)) continue;
      const auto a = uses[v].producer;
      const cpu::activation f = p.nodes[a].role.as_activation;
      if (f == cpu::activation::none || plan.overwrites[a] < 0) continue;
      for (fused_call* calls : {plan.calls, plan.evaluation_calls}) {
        calls[k].slope = f;
        calls[a].backward_is_done = true;
      }
    }
  }

  program_view p;
  int inputs;
  fusion_tables plan;
  const value_use* uses;  ///< By value.
  int* taker;             ///< By value: the node that could take over what follows, or -1.
};

}  // namespace detail

/// Finds the calls that a leaf before them can take over: an activation, or a sum, then an
/// activation, after a product; in evaluation a batch norm before these; and those that one after
/// them can: a sum before a norm, and the backward of an activation whose output goes to a leaf
/// that gives its input's gradient by a product; layers that follow each other, in evaluation. What
/// an element-wise leaf reads last, it overwrites. A constant expression for static shapes;
/// O(nodes).
template <program_sizes N>
constexpr fusion_plan<N> plan_fusion(const program<N>& p, std::size_t inputs) {
  fusion_plan<N> plan;
  program_table<detail::value_use, N.values> uses{};
  program_table<int, N.values> taker{};
  detail::find_uses(p.view(), uses.data());
  detail::fusion_planner(p.view(), inputs, plan.tables(), uses.data(), taker.data()).run();
  return plan;
}

}  // namespace ikebana
