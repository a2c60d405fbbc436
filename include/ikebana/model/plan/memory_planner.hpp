#pragma once

#include <cstddef>

#include "ikebana/core/aligned_buffer.hpp"
#include "ikebana/cpu/detail/targets.hpp"
#include "ikebana/model/plan/fusion.hpp"
#include "ikebana/model/plan/memory_placement.hpp"
#include "ikebana/model/plan/value_uses.hpp"
#include "ikebana/model/plan/view_planner.hpp"
#include "ikebana/module/program.hpp"

namespace ikebana::detail {
IKEBANA_CPU_BEGIN_SMALL

/// The tables of a memory_plan.
struct memory_tables {
  dim_t* values = nullptr;
  dim_t* value_gradients = nullptr;
  dim_t* edge_scratch = nullptr;
  bool* edge_needed = nullptr;
  dim_t* saved = nullptr;
  int* root = nullptr;
  int* gradient_root = nullptr;
  bool* gradient_written = nullptr;
  bool* runs_backward = nullptr;
  bool* runs_again = nullptr;
  value_layout* layouts = nullptr;
  fusion_tables fusion{};
};

/// Of an edge whose leaf adds its contribution to the gradient itself.
inline constexpr dim_t adds_in_place = -2;

struct lifetime {
  int begin, end;

  constexpr void cover(int t) {
    if (t > end) end = t;
  }
};

/// The planner's record of a value.
// No initial values: g++ 12 drops those of array members in a constant expression.
struct planned_value {
  lifetime alive, again, gradient_alive;
  int arm;
  bool needs_gradient;
};

/// Scratch of the planner.
struct planner_scratch {
  value_use* uses = nullptr;        ///< By value.
  planned_value* values = nullptr;  ///< By value.
  int* indices = nullptr;           ///< Number of values plus thrice that of nodes.
  memory_request* requests = nullptr;
};

/// Plans the memory of one program: determines the lifetime of each item, then places all. Time
/// runs from the forward of the first node to the backward of the first; for inference, no node has
/// a backward. What a checkpoint contains runs again before the backward of its last node, and what
/// backward reads of it is written then: its memory is free in between. Not instantiated per
/// network.
class memory_planner {
 public:
  constexpr memory_planner(const program_view& p, std::size_t inputs, pass_purpose purpose,
                           std::size_t element_size, const memory_tables& plan,
                           const planner_scratch& scratch, unsigned inputs_with_gradients = ~0U,
                           bool has_views = true)
      : p_{p},
        nodes_{static_cast<int>(p.n.nodes)},
        count_{static_cast<int>(p.n.values)},
        inputs_{static_cast<int>(inputs)},
        purpose_{purpose},
        inputs_with_gradients_{inputs_with_gradients},
        has_views_{has_views},
        element_size_{element_size},
        plan_{plan},
        uses_{scratch.uses},
        values_{scratch.values},
        taker_{scratch.indices},
        first_use_{scratch.indices + p.n.values},
        backward_times_{first_use_ + p.n.nodes},
        again_times_{backward_times_ + p.n.nodes},
        requests_{scratch.requests} {}

  /// Returns the bytes of the workspace.
  [[gnu::cold]] constexpr dim_t run() {
    find_uses(p_, uses_);
    fusion_planner fusion(p_, static_cast<std::size_t>(inputs_), purpose_, plan_.fusion, uses_,
                          taker_, element_size_, plan_.layouts);
    fusion.find_loops();
    view_planner(p_, uses_, plan_.fusion.calls, plan_.layouts, has_views_).run();
    fusion.fuse_calls();
    begin_values();
    follow_forward();
    for (int k = 0; k < nodes_ && has_views_; ++k)
      if (joins_in_order(k)) make_in_whole(k);
    follow_backward();
    find_parts();
    find_loop_backwards();
    find_times();
    begin_early();
    keep_activations();
    share_gradients();
    keep_gradients();
    request_contributions_and_saved();
    request_values();
    return place(requests_, requested_, p_.arms);
  }

 private:
  constexpr bool is_inference() const { return purpose_ == pass_purpose::inference; }
  constexpr int backward_time(int node) const { return backward_times_[node]; }
  constexpr bool runs_again(int node) const { return again_times_[node] >= 0; }
  constexpr bool is_kept(int k) const {
    return !is_inference() && is_kept_until_backward(p_, uses_, k);
  }
  /// When the backward of node k, or of its loop, runs.
  constexpr int contribution_time(int k) const {
    const fused_call& f = plan_.fusion.calls[k];
    return backward_time(f.loop > 0 ? f.loop_end : k);
  }
  constexpr lifetime& alive(int v) { return values_[plan_.root[v]].alive; }
  /// The lifetime in which the backward of node k, or its repeated forward, needs a value.
  constexpr lifetime& alive_again(int v, int k) {
    const int root = plan_.root[v], made = uses_[root].producer;
    const bool is_within =
        made >= 0 && runs_again(made) && p_.nodes[made].checkpoint == p_.nodes[k].checkpoint;
    return is_within ? values_[root].again : values_[root].alive;
  }
  /// Node k reads a value, or writes it, at its own time or that of node `at`.
  constexpr void cover(int v, int k, int at) {
    alive(v).cover(at);
    if (runs_again(k)) alive_again(v, k).cover(again_times_[at]);
  }
  constexpr void cover_backward(int v, int k) { alive_again(v, k).cover(backward_time(k)); }
  static constexpr bool keeps(const program_node& node, kept what) {
    return (static_cast<unsigned>(node.keeps) & static_cast<unsigned>(what)) != 0;
  }

  [[gnu::cold]] constexpr void begin_values() {
    for (int v = 0; v < count_; ++v) {
      values_[v] = {{0, -1}, {0, -1}, {4 * nodes_, -1}, -1, false};
      values_[v].needs_gradient =
          v < inputs_ && purpose_ == pass_purpose::training_with_input_gradients &&
          (inputs_with_gradients_ >> v & 1) != 0 && p_.kinds[v] == element_kind::real;
      plan_.values[v] = plan_.value_gradients[v] = -1;
      plan_.root[v] = plan_.gradient_root[v] = v;
      plan_.gradient_written[v] = false;
    }
  }

  /// Determines which values need a gradient, and which share memory.
  [[gnu::cold]] constexpr void follow_forward() {
    for (int k = 0; k < nodes_; ++k) {
      const program_node& node = p_.nodes[k];
      bool backward = p_.leaves[node.leaf].parameter_count > 0;
      for (std::size_t i = 0; i < node.input_count && !node.role.stops_gradient; ++i)
        backward = backward || values_[node.inputs[i]].needs_gradient;
      backward = backward && !is_inference();
      plan_.runs_backward[k] = backward;
      const bool is_view = plan_.layouts[node.first_output].is_view;
      const int shared = is_view ? 0 : plan_.fusion.overwrites[k];
      for (int i = 0; i < static_cast<int>(node.output_count); ++i) {
        const int v = node.first_output + i;
        values_[v].arm = node.arm;
        values_[v].needs_gradient = backward;
        values_[v].alive.begin = k;
        if (shared >= 0) plan_.root[v] = plan_.root[node.inputs[shared]];
      }
    }
  }

  /// Whether node k sets its inputs one after the other in memory that no other overwrites.
  constexpr bool joins_in_order(int k) const {
    const program_node& node = p_.nodes[k];
    if (!node.role.joins || is_alone(k)) return false;
    const shape& whole = p_.values[node.first_output];
    const auto rank = static_cast<dim_t>(whole.rank());
    const dim_t d = node.role.joins_along + (node.role.joins_along < 0 ? rank : 0);
    bool in_order = whole.numel(0, static_cast<std::size_t>(d)) == 1;
    for (int j = k + 1; j <= uses_[node.first_output].last_consumer; ++j)
      if (const int i = plan_.fusion.overwrites[j]; i >= 0)
        in_order = in_order && p_.nodes[j].inputs[i] != node.first_output;
    return in_order;
  }
  /// Whether the output of node k may not share memory with other values.
  constexpr bool is_alone(int k) const {
    const program_node& node = p_.nodes[k];
    return node.choice >= 0 || (!is_inference() && node.checkpoint >= 0) ||
           (is_inference() && uses_[node.first_output].is_constant);
  }

  /// The inputs of node k are computed where it would copy them to.
  [[gnu::cold]] constexpr void make_in_whole(int k) {
    const program_node& node = p_.nodes[k];
    const int whole = node.first_output;
    dim_t at = 0;
    for (std::size_t i = 0; i < node.input_count; at += p_.values[node.inputs[i++]].numel()) {
      const int part = plan_.root[node.inputs[i]];
      bool can_be = part >= inputs_ && part != whole &&
                    p_.values[part].numel() == p_.values[node.inputs[i]].numel();
      for (int v = inputs_; v < count_ && can_be; ++v)
        if (plan_.root[v] == part)
          can_be = !is_alone(uses_[v].producer) && values_[v].arm == node.arm;
      if (!can_be) continue;
      lifetime& a = values_[whole].alive;
      if (values_[part].alive.begin < a.begin) a.begin = values_[part].alive.begin;
      for (int v = inputs_; v < count_; ++v)
        if (plan_.root[v] == part) {
          plan_.root[v] = whole;
          plan_.layouts[v].first_in_whole += at;
        }
    }
  }

  /// What has no gradient of its results passes none on, unless it has parameters.
  [[gnu::cold]] constexpr void follow_backward() {
    for (int v = 0; v < count_; ++v) taker_[v] = uses_[v].is_output;
    for (int k = nodes_; k-- > 0;) {
      const program_node& node = p_.nodes[k];
      bool is_given = p_.leaves[node.leaf].parameter_count > 0;
      for (int i = 0; i < static_cast<int>(node.output_count); ++i)
        is_given = is_given || taker_[node.first_output + i] != 0;
      plan_.runs_backward[k] = plan_.runs_backward[k] && is_given;
      for (int i = 0; i < static_cast<int>(node.output_count) && !is_given; ++i)
        values_[node.first_output + i].needs_gradient = false;
      if (plan_.runs_backward[k] && !node.role.stops_gradient)
        for (std::size_t i = 0; i < node.input_count; ++i) taker_[node.inputs[i]] = 1;
    }
  }

  /// Parts that together are a value, each of its elements once, write its gradient without a sum,
  /// unless a backward may leave some of them out.
  [[gnu::cold]] constexpr void find_parts() {
    if (p_.n.choices > 0 || p_.output_count > 1) return;
    for (int k = 0; k < nodes_ && has_views_; ++k) {
      const int v = p_.nodes[k].inputs[0];
      if (!is_part_at(k, v, p_.nodes[k].view.dim, 0) || uses_[v].is_output) continue;
      const std::size_t d = p_.nodes[k].view.dim;
      dim_t at = 0;
      int parts = 0;
      const auto for_each_part = [&](auto f) {
        for (int before = -1; before != parts;) {
          before = parts;
          for (int j = uses_[v].producer + 1; j <= uses_[v].last_consumer; ++j)
            if (is_part_at(j, v, d, at)) {
              at += part_extent(j);
              ++parts;
              f(j);
            }
        }
      };
      for_each_part([](int) {});
      if (at != p_.values[v][d] || parts != uses_[v].consumers) continue;
      at = parts = 0;
      for_each_part([&](int j) { plan_.layouts[p_.nodes[j].first_output].is_part = true; });
    }
  }
  /// Whether node j takes a part of v that starts there, and passes a gradient on.
  constexpr bool is_part_at(int j, int v, std::size_t dim, dim_t first) const {
    const program_node& node = p_.nodes[j];
    return node.view.exists && node.view.step == 1 && node.view.dim == dim &&
           node.view.first == first && node.inputs[0] == v && plan_.runs_backward[j] &&
           node.role.adds_gradient && node.arm == values_[v].arm && values_[v].needs_gradient &&
           p_.values[node.first_output].numel() > 0;
  }
  constexpr dim_t part_extent(int j) const {
    const program_node& node = p_.nodes[j];
    const shape& whole = p_.values[node.inputs[0]];
    return p_.values[node.first_output].numel() / (whole.numel() / whole[node.view.dim]);
  }

  /// The backward of a loop runs first of those of its steps.
  [[gnu::cold]] constexpr void find_loop_backwards() {
    for (int k = 0; k < nodes_; ++k)
      if (plan_.fusion.calls[k].loop > 0)
        for (fused_call* calls : {plan_.fusion.calls, plan_.fusion.evaluation_calls}) {
          const int last = calls[k].loop_end;
          bool is_last = plan_.runs_backward[k];
          for (int j = k + 1; j <= last && is_last; ++j)
            is_last = calls[j].loop != calls[k].loop || !plan_.runs_backward[j];
          calls[k].runs_loop_backward = is_last;
        }
  }

  [[gnu::cold]] constexpr void find_times() {
    for (int k = 0; k < nodes_; ++k) {
      again_times_[k] = -1;
      plan_.runs_again[k] = false;
    }
    int time = nodes_ + 1;
    for (int k = nodes_; k-- > 0;) {
      const int c = p_.nodes[k].checkpoint;
      if (!is_inference() && c >= 0 && (k + 1 == nodes_ || p_.nodes[k + 1].checkpoint != c)) {
        int first = k;
        while (first > 0 && p_.nodes[first - 1].checkpoint == c) --first;
        const int end = end_of_repeated(first, k + 1);
        for (int j = first; j < end; ++j) {
          again_times_[j] = time++;
          plan_.runs_again[j] = true;
        }
      }
      backward_times_[k] = time++;
    }
    for (int v = inputs_; v < count_; ++v)
      if (const int at = again_times_[uses_[v].producer]; at >= 0) values_[v].again = {at, at};
  }

  /// The last nodes of a checkpoint do not run again if backward does not read what they write.
  constexpr int end_of_repeated(int first, int end) {
    bool any = false;
    for (int k = first; k < end; ++k) any = any || plan_.runs_backward[k];
    if (!any) return first;
    for (int v = 0; v < count_; ++v) taker_[v] = 0;
    for (int k = end; k-- > first; --end) {
      const program_node& node = p_.nodes[k];
      const bool backward = plan_.runs_backward[k];
      bool is_read = plan_.fusion.calls[k].loop > 0 || node.choice >= 0 ||
                     (backward && (keeps(node, kept::output) || node.saved_count > 0 ||
                                   p_.leaves[node.leaf].buffer_count > 0));
      for (int i = 0; i < static_cast<int>(node.output_count); ++i)
        is_read = is_read || taker_[plan_.root[node.first_output + i]] != 0;
      if (is_read) break;
      for (std::size_t i = 0; backward && keeps(node, kept::input) && i < node.input_count; ++i)
        taker_[plan_.root[node.inputs[i]]] = 1;
    }
    return end;
  }

  /// A fused call writes another's output before that call's own time.
  [[gnu::cold]] constexpr void begin_early() {
    for (int k = 0; k < nodes_; ++k) first_use_[k] = k;
    for (int k = 0; k < nodes_; ++k) {
      const fused_call& f = plan_.fusion.evaluation_calls[k];
      if (f.normalises) first_use_[f.norm] = k;
      if (f.gives_other && k < alive(f.output).begin) alive(f.output).begin = k;
    }
  }

  [[gnu::cold]] constexpr void keep_activations() {
    for (int k = 0; k < nodes_; ++k) {
      const program_node& node = p_.nodes[k];
      if (plan_.layouts[node.first_output].is_view || node.choice >= 0) continue;
      const bool backward = plan_.runs_backward[k];
      if (const fused_call& f = plan_.fusion.calls[k]; f.adds) cover(f.added, k, k);
      for (std::size_t i = 0; i < node.input_count; ++i) {
        cover(node.inputs[i], k, k);
        if (backward && keeps(node, kept::input)) cover_backward(node.inputs[i], k);
      }
      if (plan_.fusion.calls[k].loop > 0) keep_for_loop(k);
      for (int i = 0; i < static_cast<int>(node.output_count); ++i) {
        const int v = node.first_output + i;
        cover(v, k, k);
        if (is_kept(k)) alive(v).cover(nodes_);
        if (backward && keeps(node, kept::output)) cover_backward(v, k);
      }
    }
    if (is_inference()) keep_constants();
    // The caller reads outputs until the next call.
    for (std::size_t i = 0; i < p_.output_count; ++i) alive(p_.outputs[i]).cover(4 * nodes_);
    // The output of a choice is in the memory of the alternative that ran.
    for (int k = nodes_; k-- > 0;) {
      const program_node& node = p_.nodes[k];
      if (node.choice < 0) continue;
      for (std::size_t i = 0; i < node.input_count; ++i) {
        alive(node.inputs[i]).cover(values_[node.first_output].alive.end);
        alive_again(node.inputs[i], k).cover(values_[node.first_output].again.end);
      }
    }
  }

  /// What is computed once and read by each call.
  [[gnu::cold]] constexpr void keep_constants() {
    const auto keep = [&](int v) {
      if (uses_[v].is_constant) alive(v) = {0, 4 * nodes_};
    };
    for (int k = 0; k < nodes_; ++k)
      for (std::size_t i = 0; i < p_.nodes[k].input_count; ++i)
        if (!uses_[p_.nodes[k].first_output].is_constant) keep(p_.nodes[k].inputs[i]);
    for (std::size_t i = 0; i < p_.output_count; ++i) keep(p_.outputs[i]);
  }

  /// A loop reads its inputs when it runs, and again in backward, which reads results of rows, too.
  constexpr void keep_for_loop(int k) {
    const program_node& node = p_.nodes[k];
    const fused_call& f = plan_.fusion.calls[k];
    for (std::size_t i = 0; i < node.input_count; ++i) {
      cover(node.inputs[i], k, f.loop_end);
      if (!is_inference()) cover_backward(node.inputs[i], k);
    }
    cover(node.first_output, k, f.loop_end);
    if ((f.of_rows || f.is_costly) && !is_inference()) cover_backward(node.first_output, k);
  }

  /// A view passes its gradient on without a copy if it is the only contribution, and so does a
  /// choice. What runs in place in forward does so in backward.
  [[gnu::cold]] constexpr void share_gradients() {
    for (int k = nodes_; k-- > 0;) {
      const program_node& node = p_.nodes[k];
      if (!is_inference() && !values_[node.first_output].needs_gradient) continue;
      const int overwritten = plan_.fusion.overwrites[k];
      if (overwritten >= 0) share_gradient(node.inputs[overwritten], node, 0);
      const bool joins = has_views_ && !is_inference() && joins_in_order(k);
      if (!node.is_view && node.choice < 0 && !joins) continue;
      dim_t at = 0;
      for (std::size_t i = 0; i < node.input_count; ++i) {
        const int in = node.inputs[i];
        if ((in >= inputs_ ? !joins || !is_alone(uses_[in].producer) : is_view_alone(node)) &&
            has_one_contribution(in) && !uses_[in].is_output &&
            (node.choice >= 0 || values_[in].arm == node.arm))
          share_gradient(in, node, at);
        if (joins) at += p_.values[in].numel();
      }
    }
  }
  constexpr bool has_one_contribution(int v) const {
    int n = 0;
    for (int k = uses_[v].producer + 1; k <= uses_[v].last_consumer && n < 2; ++k)
      for (std::size_t i = 0; i < p_.nodes[k].input_count; ++i)
        n += p_.nodes[k].inputs[i] == v && !p_.nodes[k].role.stops_gradient;
    return n == 1;
  }
  /// Whether the node is a view of an input, and its gradient can be in the caller's memory: no
  /// larger one contains it, and none that the caller gives is in it.
  constexpr bool is_view_alone(const program_node& node) const {
    const int root = plan_.gradient_root[node.first_output];
    bool is_alone = node.is_view && p_.n.choices == 0 && values_[node.inputs[0]].needs_gradient &&
                    p_.values[root].numel() == p_.values[node.first_output].numel();
    for (int v = inputs_; v < count_; ++v)
      is_alone = is_alone && (plan_.gradient_root[v] != root || !uses_[v].is_output);
    return is_alone;
  }
  /// The gradient of v starts there in that of the node's output.
  constexpr void share_gradient(int v, const program_node& node, dim_t at) {
    plan_.gradient_root[v] = plan_.gradient_root[node.first_output];
    plan_.layouts[v].first_in_gradient = plan_.layouts[node.first_output].first_in_gradient + at;
  }

  [[gnu::cold]] constexpr void keep_gradients() {
    for (int v = 0; v < count_; ++v) {
      if (!values_[v].needs_gradient) continue;
      lifetime& a = values_[plan_.gradient_root[v]].gradient_alive;
      const auto cover = [&a](int t) {
        if (t < a.begin) a.begin = t;
        a.cover(t);
      };
      const value_use& use = uses_[v];
      if (use.is_output) cover(nodes_);
      if (use.last_consumer >= 0) cover(backward_time(use.last_consumer));
      if (use.producer >= 0) cover(backward_time(use.producer));
      plan_.gradient_written[v] = use.is_output;
    }
    // A loop writes the gradients of all its inputs at once.
    for (int k = 0; k < nodes_; ++k)
      if (plan_.fusion.calls[k].loop > 0)
        for (std::size_t i = 0; i < p_.nodes[k].input_count; ++i) {
          lifetime& a = values_[plan_.gradient_root[p_.nodes[k].inputs[i]]].gradient_alive;
          if (contribution_time(k) < a.begin) a.begin = contribution_time(k);
        }
  }

  [[gnu::cold]] constexpr void request(const shape& extents, std::size_t element_size, lifetime a,
                                       dim_t& to, int arm, lifetime again = {0, -1}) {
    const dim_t bytes =
        round_up_to_alignment<std::byte>(extents.numel() * static_cast<dim_t>(element_size));
    requests_[requested_++] = {bytes, a.begin, a.end, -1, &to, arm, again.begin, again.end};
  }

  /// Scratch for all contributions to a gradient but the first, and what forward saves.
  [[gnu::cold]] constexpr void request_contributions_and_saved() {
    for (int k = nodes_; k-- > 0;) {
      const program_node& node = p_.nodes[k];
      const bool backward = plan_.runs_backward[k];
      for (int i = 0; i < static_cast<int>(node.input_count); ++i) {
        const int e = node.first_edge + i, v = node.inputs[i];
        plan_.edge_scratch[e] = -1;
        plan_.edge_needed[e] = backward && values_[v].needs_gradient && !node.role.stops_gradient;
        if (!plan_.edge_needed[e]) continue;
        const bool same_memory =
            node.is_view && plan_.gradient_root[v] == plan_.gradient_root[node.first_output];
        const bool is_first = !plan_.gradient_written[v];
        if ((!is_first || plan_.layouts[node.first_output].is_part) && node.role.adds_gradient)
          plan_.edge_scratch[e] = adds_in_place;
        else if (!is_first && !same_memory && node.choice < 0)
          request(p_.values[v], element_size_, {contribution_time(k), backward_time(k)},
                  plan_.edge_scratch[e], node.arm);
        plan_.gradient_written[v] = true;
      }
      const bool again = runs_again(k);
      lifetime saved{first_use_[k], is_kept(k) ? nodes_ : k}, saved_again{0, -1};
      if (backward && !again) saved.end = backward_time(k);
      if (again) {
        saved_again = {again_times_[first_use_[k]], again_times_[k]};
        if (backward) saved_again.end = backward_time(k);
      }
      const int own = static_cast<int>(node.saved_count),
                kept = static_cast<int>(node.kept_buffers);
      for (int i = 0; i < own; ++i) request_saved(node, i, saved, saved_again);
      for (int i = 0; i < 2 * kept; ++i) {
        plan_.saved[node.first_saved + own + i] = -1;
        if (again)
          request_saved(node, own + i, {i < kept ? k : again_times_[k], again_times_[k]}, {0, -1});
      }
    }
  }

  constexpr void request_saved(const program_node& node, int i, lifetime a, lifetime again) {
    const int s = node.first_saved + i;
    const saved_spec& spec = p_.saved[s].spec;
    request(spec.extents, spec.element_size == 0 ? element_size_ : spec.element_size, a,
            plan_.saved[s], node.arm, again);
  }

  [[gnu::cold]] constexpr void request_values() {
    for (int v = inputs_; v < count_; ++v) {
      const planned_value& value = values_[v];
      const bool is_choice = p_.nodes[uses_[v].producer].choice >= 0;
      if (plan_.root[v] == v && !is_choice)
        request(p_.values[v], element_size_, value.alive, plan_.values[v], value.arm, value.again);
      if (value.needs_gradient && plan_.gradient_root[v] == v)
        request(p_.values[v], element_size_, value.gradient_alive, plan_.value_gradients[v],
                value.arm);
    }
  }

  program_view p_;
  int nodes_, count_, inputs_;
  pass_purpose purpose_;
  unsigned inputs_with_gradients_;  ///< A bit for each input that has one if any has.
  bool has_views_;                  ///< Of parts and permutations.
  std::size_t element_size_;
  memory_tables plan_;
  value_use* uses_;
  planned_value* values_;
  int* taker_;
  int* first_use_;
  int* backward_times_;  ///< By node.
  int* again_times_;     ///< By node: that of its repeated forward; -1 for none.
  memory_request* requests_;
  std::size_t requested_ = 0;
};

IKEBANA_CPU_END_SMALL
}  // namespace ikebana::detail
