#pragma once

#include <cstddef>

#include "ikebana/core/shape.hpp"
#include "ikebana/cpu/activation.hpp"
#include "ikebana/cpu/detail/targets.hpp"
#include "ikebana/cpu/loop_step.hpp"
#include "ikebana/cpu/strided.hpp"
#include "ikebana/model/plan/value_uses.hpp"
#include "ikebana/module/program.hpp"

namespace ikebana {

/// What the passes over a network are for, which decides how long its values are needed.
enum class pass_purpose : unsigned char { training, training_with_input_gradients, inference };

/// What is fused into the call of a leaf, so that it needs no separate pass over memory.
// All zero at first: g++ 12 drops other initial values of array members in a constant expression.
struct fused_call {
  bool normalises = false;  ///< The output is normalised by channel, as by node `norm`.
  int norm = 0;
  bool adds = false;  ///< Then the value `added` is added.
  int added = 0;
  cpu::activation function = cpu::activation::none;  ///< Then it is applied.
  bool gives_other = false;  ///< Writes the value `output` instead of the leaf's own.
  int output = 0;
  bool forward_is_done = false;                   ///< By another call.
  cpu::activation slope = cpu::activation::none;  ///< Applied to the gradient of input 0.
  bool backward_is_done = false;                  ///< By another call.
  /// The number of consecutive layers that start with this one and run in one call; -1 for the
  /// later ones.
  int layers = 0;
  /// The number of the loop that this call is a step of, from 1 on; 0 for none. The loop runs at
  /// the time of its last step, and its backward at that of the last step that has one.
  int loop = 0;
  int loop_end = 0;        ///< The last step of the loop.
  bool of_rows = false;    ///< Its results are of rows.
  bool is_costly = false;  ///< Backward reads its result again instead of repeating it.
  bool runs_loop = false;
  bool runs_loop_backward = false;
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

/// Which calls of a program are fused, and which run in place.
template <program_sizes N>
struct fusion_plan {
  program_table<fused_call, N.nodes> calls{};
  /// Those of a forward in evaluation mode. If one call replaces another's output, a backward runs
  /// the forward again to get what it needs.
  program_table<fused_call, N.nodes> evaluation_calls{};
  bool evaluation_leaves_out = false;
  program_table<int, N.nodes> overwrites{};  ///< By node: the overwritten input; -1 for none.

  constexpr detail::fusion_tables tables() {
    return {calls.data(), evaluation_calls.data(), overwrites.data(), &evaluation_leaves_out};
  }
};

namespace detail {
IKEBANA_CPU_BEGIN_SMALL

/// Finds what can be fused in a program. Not instantiated per network.
class fusion_planner {
 public:
  constexpr fusion_planner(const program_view& program, std::size_t input_count,
                           pass_purpose purpose, const fusion_tables& tables,
                           const value_use* value_uses, int* scratch,
                           std::size_t size_of_element = sizeof(float),
                           const value_layout* value_layouts = nullptr)
      : p{program},
        inputs{static_cast<int>(input_count)},
        is_inference{purpose == pass_purpose::inference},
        plan{tables},
        uses{value_uses},
        taker{scratch},
        element_size{static_cast<dim_t>(size_of_element)},
        layouts{value_layouts} {}

  [[gnu::cold]] constexpr void run() {
    find_loops();
    fuse_calls();
  }

  /// Finds element-wise steps, and reductions of rows, that run in one loop. Each reads a step
  /// before it, or comes right after it; what is between the steps of a loop reads nothing of it,
  /// and no other input of its steps.
  [[gnu::cold]] constexpr void find_loops() {
    for (std::size_t k = 0; k < p.n.nodes; ++k) {
      plan.calls[k] = plan.evaluation_calls[k] = {};
      plan.overwrites[k] = -1;
    }
    *plan.evaluation_leaves_out = false;
    if (p.n.choices == 0 && p.output_count == 1) collect_loops();
  }

  /// Afterwards: what else can be fused, if the values have these layouts.
  [[gnu::cold]] constexpr void fuse_calls() {
    take_forward(plan.calls, false);
    take_forward(plan.evaluation_calls, true);
    take_layers(plan.evaluation_calls);
    take_slopes();
  }

 private:
  static constexpr bool keeps(const program_node& node, kept what) {
    return (static_cast<unsigned>(node.keeps) & static_cast<unsigned>(what)) != 0;
  }

  /// Inference computes it once: nothing else runs with it or overwrites it.
  constexpr bool is_constant(std::size_t k) const {
    return is_inference && uses[p.nodes[k].first_output].is_constant;
  }

  // ---- loops ----

  /// The loop that is being found.
  struct open_loop {
    int number = 0;
    int first = -1, last = -1, steps = 0;
    bool leads = false;
    bool is_interrupted = false;  ///< By a node between its steps that is no view.
    dim_t size = 0, length = 0;   ///< Elements, and those of a row; 0 if there are no rows.
  };
  static constexpr int most_steps = 48;
  /// Rows of this many bytes, and no longer ones, are reduced and read again within a block.
  static constexpr dim_t longest_row = 32 * 1024;

  /// Marks of values, in `taker`: made or read by a loop.
  constexpr bool is_made(int v, int loop) const { return taker[v] == 2 * loop; }
  constexpr bool is_met(int v, int loop) const { return taker[v] >= 2 * loop; }

  [[gnu::cold]] constexpr void collect_loops() {
    for (std::size_t v = 0; v < p.n.values; ++v) taker[v] = 0;
    open_loop loop;
    int number = 0;
    for (int k = 0; k < static_cast<int>(p.n.nodes); ++k) {
      if (is_constant(static_cast<std::size_t>(k))) continue;
      if (loop.number > 0 && join_loop(loop, k)) continue;
      const bool is_step = p.nodes[k].role.step.kind != cpu::loop_step::kinds::none;
      if (loop.number > 0 && !is_step && !ends_loop(loop, k)) {
        loop.is_interrupted =
            loop.is_interrupted || !(p.nodes[k].is_view || p.nodes[k].view.exists);
        continue;
      }
      if (loop.number > 0 && end_loop(loop)) ++number;
      loop = {};
      if (!is_step) continue;
      loop.number = number + 1;
      if (!join_loop(loop, k)) loop = {};
    }
    if (loop.number > 0) end_loop(loop);
  }

  constexpr bool ends_loop(const open_loop& loop, int k) const {
    const program_node& node = p.nodes[k];
    if (node.role.is_source) return false;
    for (std::size_t i = 0; i < node.input_count; ++i)
      if (is_met(node.inputs[i], loop.number)) return true;
    return false;
  }

  /// A loop of several steps remains.
  constexpr bool end_loop(const open_loop& loop) {
    const bool remains = loop.leads && loop.steps > 1;
    for (int k = loop.first; k <= loop.last; ++k)
      for (fused_call* calls : {plan.calls, plan.evaluation_calls}) {
        if (calls[k].loop != loop.number) continue;
        calls[k].loop = remains ? loop.number : 0;
        calls[k].loop_end = remains ? loop.last : 0;
        calls[k].runs_loop = remains && k == loop.last;
      }
    for (std::size_t v = 0; !remains && v < p.n.values; ++v)
      if (taker[v] >= 2 * loop.number) taker[v] = 0;
    return remains;
  }

  /// Whether a call beside it takes the step at no cost.
  constexpr bool is_taken(int k) const {
    const program_node& node = p.nodes[k];
    const auto producer = [&](int v) -> const program_node* {
      return v < inputs ? nullptr : &p.nodes[uses[v].producer];
    };
    if (node.role.as_activation != cpu::activation::none) {
      const program_node* const made = producer(node.inputs[0]);
      return made != nullptr && (made->role.takes_function || made->role.is_channel_norm ||
                                 (made->role.is_sum && is_taken(uses[node.inputs[0]].producer)));
    }
    if (!node.role.is_sum) return false;
    for (int i = 0; i < 2; ++i) {
      const program_node* const made = producer(node.inputs[i]);
      if (made != nullptr && (made->role.takes_residual || made->role.is_channel_norm ||
                              made->role.is_identity_in_evaluation))
        return true;
    }
    const auto next = static_cast<std::size_t>(k) + 1;
    return next < p.n.nodes && p.nodes[next].role.adds_before &&
           p.nodes[next].inputs[0] == node.first_output;
  }

  constexpr bool is_costly(const open_loop& loop, const cpu::loop_step& s) const {
    constexpr dim_t cached = 1 << 20;
    return s.cost > (loop.size * element_size <= cached ? 0 : 1);
  }

  constexpr dim_t numel(int v) const { return p.values[v].numel(); }

  [[gnu::cold]] constexpr bool join_loop(open_loop& loop, int k) {
    const program_node& node = p.nodes[k];
    const cpu::loop_step& step = node.role.step;
    open_loop next = loop;
    if (loop.first >= 0 && p.nodes[loop.first].checkpoint != node.checkpoint) return false;
    if (node.is_view) {
      if (!is_made(node.inputs[0], loop.number)) return false;
    } else {
      if (step.kind == cpu::loop_step::kinds::none || node.output_count != 1 || is_taken(k) ||
          loop.steps == most_steps)
        return false;
      bool reads = loop.first < 0 || !loop.is_interrupted;
      for (std::size_t i = 0; i < node.input_count; ++i) {
        reads = reads || is_made(node.inputs[i], loop.number);
        if (p.kinds[node.inputs[i]] != element_kind::real) return false;
      }
      if (!reads || !(step.kind == cpu::loop_step::kinds::fold ? fold_fits(next, node)
                                                               : map_fits(next, node)))
        return false;
      ++next.steps;
      next.leads = next.leads || step.leads;
    }
    if (next.first < 0) next.first = k;
    next.last = k;
    loop = next;
    for (fused_call* calls : {plan.calls, plan.evaluation_calls}) {
      calls[k].loop = loop.number;
      calls[k].of_rows = numel(node.first_output) != loop.size;
      calls[k].is_costly = !node.is_view && is_costly(loop, step);
    }
    for (std::size_t i = 0; i < node.input_count; ++i)
      if (int& mark = taker[node.inputs[i]]; mark < 2 * loop.number) mark = 2 * loop.number + 1;
    taker[node.first_output] = 2 * loop.number;
    return true;
  }

  constexpr bool is_short(const open_loop& loop) const {
    return loop.length * element_size <= longest_row;
  }

  constexpr bool map_fits(open_loop& loop, const program_node& node) const {
    const dim_t n = numel(node.first_output);
    if (loop.first < 0) loop.size = n;
    if (n < 2 && loop.first < 0) return false;
    const bool of_rows = loop.length > 0 && n * loop.length == loop.size;
    if (n != loop.size && !of_rows) return false;
    for (std::size_t i = 0; i < node.input_count; ++i) {
      const int v = node.inputs[i];
      if (!is_made(v, loop.number)) continue;
      if (numel(v) == n) continue;
      // A result of each row, read for its elements.
      if (of_rows || loop.length == 0 || numel(v) * loop.length != loop.size || !is_short(loop))
        return false;
      const cpu::strided_map m = cpu::broadcast_map(p.values[v], p.values[node.first_output]);
      const bool repeats =
          m.rank == 2 && m.extents[1] == loop.length && m.strides[1] == 0 && m.strides[0] == 1;
      if (!repeats && !m.is_repeated()) return false;
    }
    return true;
  }

  constexpr bool fold_fits(open_loop& loop, const program_node& node) const {
    const int v = node.inputs[0];
    const shape &in = p.values[v], &out = p.values[node.first_output];
    const dim_t n = in.numel(), rows = out.numel();
    if (loop.first < 0) loop.size = n;
    if (n != loop.size || n < 2 || rows == 0) return false;
    const dim_t length = n / rows;
    if (length < 2 || (loop.length > 0 && loop.length != length)) return false;
    // The last dimensions are reduced.
    bool reduces = false;
    for (std::size_t d = 0; d < in.rank(); ++d) {
      if (in[d] == 1) continue;
      const bool this_one =
          node.role.step.reduces(static_cast<unsigned>(d), static_cast<unsigned>(in.rank()));
      if (reduces && !this_one) return false;
      reduces = this_one;
    }
    const cpu::reduction_op f = node.role.step.reduction();
    if (f == cpu::reduction_op::norm && node.role.step.number[0] != 2) return false;
    loop.length = length;
    return f == cpu::reduction_op::sum || f == cpu::reduction_op::mean || is_short(loop);
  }

  /// Whether node is the only reader of v in every pass in which v is computed.
  constexpr bool reads_alone(int v, const program_node& node) const {
    return v >= inputs && uses[v].consumers == 1 && !uses[v].is_output && node.choice < 0 &&
           p.nodes[uses[v].producer].arm == node.arm;
  }
  constexpr bool is_view(int v) const {
    const program_node& made = p.nodes[uses[v].producer];
    return layouts != nullptr ? layouts[v].is_view : made.is_view || made.view.exists;
  }
  constexpr bool may_overwrite(int v, const program_node& node) const {
    if (!reads_alone(v, node) || (is_inference && uses[v].is_constant)) return false;
    const program_node& made = p.nodes[uses[v].producer];
    return !is_view(v) && made.choice < 0 && made.output_count == 1 &&
           made.checkpoint == node.checkpoint && plan.calls[uses[v].producer].loop == 0 &&
           (is_inference ||
            (!keeps(made, kept::output) && !is_kept_until_backward(p, uses, uses[v].producer)));
  }

  /// Whether the call that v could be fused into can add `other`, which must be computed before it.
  constexpr bool could_add(const fused_call* calls, int v, int other) const {
    const int by = taker[v];
    // A loop may compute it later than its place in the program.
    if (by >= 0 && other >= inputs && plan.calls[uses[other].producer].loop_end > by) return false;
    return by >= 0 && p.nodes[by].role.takes_residual && !calls[by].adds &&
           other < p.nodes[by].first_output;
  }

  [[gnu::cold]] constexpr void take_forward(fused_call* calls, bool evaluating) {
    for (std::size_t v = 0; v < p.n.values; ++v) taker[v] = -1;
    for (std::size_t k = 0; k < p.n.nodes; ++k) {
      const program_node& node = p.nodes[k];
      const leaf_role& role = node.role;
      const auto out = node.first_output;
      if (is_constant(k)) {
        calls[k].forward_is_done = evaluating;
        continue;
      }
      if (calls[k].loop > 0) continue;
      if ((role.takes_residual || role.takes_function) && !role.is_stateful)
        taker[out] = static_cast<int>(k);
      if (role.is_sum) {
        take_sum(calls, k, evaluating);
        continue;
      }
      if (node.input_count != 1) continue;
      const int v = node.inputs[0], by = taker[v];
      const bool overwrites = role.in_place && may_overwrite(v, node);
      if (overwrites) plan.overwrites[k] = 0;
      if (evaluating && role.is_identity_in_evaluation && overwrites && by < 0) {
        calls[k].forward_is_done = true;
        taker[out] = -1;
      } else if (role.adds_before) {
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
        if (taker[out] == static_cast<int>(k)) taker[out] = -1;
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
      // Fused sums do not broadcast.
      if (!(p.values[v] == p.values[other])) break;
      // Both modes share the memory plan.
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

  /// A sum right before a leaf that can add it itself.
  constexpr void take_sum_before(fused_call* calls, std::size_t k) const {
    if (k == 0) return;
    const program_node &node = p.nodes[k], &sum = p.nodes[k - 1];
    if (!sum.role.is_sum || node.inputs[0] != sum.first_output || node.arm != sum.arm ||
        node.checkpoint != sum.checkpoint || plan.overwrites[k - 1] < 0 ||
        calls[k - 1].forward_is_done)
      return;
    calls[k].adds = true;
    calls[k].added = sum.inputs[1 - plan.overwrites[k - 1]];
    calls[k - 1].forward_is_done = true;
  }

  /// Consecutive layers, each followed by an activation at most, run in one call.
  [[gnu::cold]] constexpr void take_layers(fused_call* calls) const {
    const auto is_layer = [&](std::size_t k) {
      return p.nodes[k].role.is_layer && !calls[k].adds && !calls[k].normalises &&
             !calls[k].forward_is_done;
    };
    for (std::size_t k = 0; k < p.n.nodes; ++k) {
      if (!is_layer(k)) continue;
      const std::size_t first = k;
      calls[first].layers = 1;
      for (int v = p.nodes[k].first_output; k + 1 < p.n.nodes; v = p.nodes[++k].first_output) {
        const program_node& next = p.nodes[k + 1];
        if (next.input_count != 1 || next.inputs[0] != v || next.arm != p.nodes[first].arm) break;
        if (calls[k + 1].loop > 0 || next.checkpoint != p.nodes[first].checkpoint) break;
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
  bool is_inference;
  fusion_tables plan;
  const value_use* uses;  ///< By value.
  int* taker;             ///< By value: the node into which more can be fused, or -1.
  dim_t element_size = 4;
  const value_layout* layouts;  ///< By value; null if they are not known.
};

IKEBANA_CPU_END_SMALL
}  // namespace detail

/// Finds the calls that can be fused into a preceding leaf: an activation, or a sum and then an
/// activation, after a product, and in evaluation a batch norm before these. Into a following leaf:
/// a sum before a norm, and the backward of an activation whose output goes to a leaf that computes
/// its input gradient by a product. In evaluation, consecutive layers are joined. Element-wise
/// leaves run in place if they are the last reader of their input. A constant expression for static
/// shapes; O(nodes).
template <program_sizes N>
constexpr fusion_plan<N> plan_fusion(const program<N>& p, std::size_t inputs) {
  fusion_plan<N> plan;
  program_table<detail::value_use, N.values> uses{};
  program_table<int, N.values> taker{};
  detail::find_uses(p.view(), uses.data());
  detail::fusion_planner(p.view(), inputs, pass_purpose::training, plan.tables(), uses.data(),
                         taker.data())
      .run();
  return plan;
}

}  // namespace ikebana
