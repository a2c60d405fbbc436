#pragma once

#include <array>
#include <cstddef>

#include "ikebana/core/aligned_buffer.hpp"
#include "ikebana/model/fusion.hpp"
#include "ikebana/module/lowering.hpp"

namespace ikebana {

/// Where activations, their gradients and what forward saves for backward stand in the workspace,
/// in bytes from its start; -1 for what has no place of its own. Two things share memory when they
/// are never needed at the same time.
template <program_sizes N>
struct memory_plan {
  program_table<dim_t, N.values> values{};
  program_table<dim_t, N.values> value_gradients{};
  /// By edge: the scratch for a contribution that is added to the value's gradient; -1 where the
  /// edge writes the value's gradient itself.
  program_table<dim_t, N.edges> edge_scratch{};
  program_table<bool, N.edges> edge_needed{};
  program_table<dim_t, N.saved> saved{};
  /// By value: the value whose memory it shares (a view of it, or written over it), or itself.
  program_table<int, N.values> root{};
  program_table<int, N.values> gradient_root{};
  program_table<bool, N.values> gradient_written{};
  program_table<bool, N.nodes> runs_backward{};
  fusion_plan<N> fusion{};
  dim_t bytes = 0;
};

namespace detail {

struct memory_request {
  dim_t bytes = 0;
  int begin = 0;
  int end = 0;
  dim_t offset = -1;
  dim_t* to = nullptr;
  int arm = -1;  ///< The alternative without which it is not needed.
};

/// Whether two alternatives never run in one pass.
constexpr bool exclude_each_other(const program_arm* arms, int a, int b) {
  for (; a >= 0; a = arms[a].parent)
    for (int c = b; c >= 0; c = arms[c].parent)
      if (arms[a].choice == arms[c].choice && arms[a].alternative != arms[c].alternative)
        return true;
  return false;
}

/// Gives each request an offset such that requests whose lifetimes overlap do not: largest first,
/// each at the lowest place that is free (the greedy-by-size strategy of Pisarchyk and Lee,
/// Efficient Memory Management for Deep Neural Net Inference, 2020). Returns the bytes needed.
/// What alternatives of one choice need stands in the same memory.
constexpr dim_t place(memory_request* requests, std::size_t count,
                      const program_arm* arms = nullptr) {
  for (std::size_t i = 1; i < count; ++i)
    for (std::size_t j = i; j > 0 && requests[j - 1].bytes < requests[j].bytes; --j) {
      const memory_request swapped = requests[j];
      requests[j] = requests[j - 1];
      requests[j - 1] = swapped;
    }
  dim_t total = 0;
  for (std::size_t i = 0; i < count; ++i) {
    memory_request& r = requests[i];
    r.offset = 0;
    for (bool moved = true; moved;) {
      moved = false;
      for (std::size_t j = 0; j < i; ++j) {
        const memory_request& other = requests[j];
        const bool alive_together = r.begin <= other.end && other.begin <= r.end;
        const bool overlap =
            r.offset < other.offset + other.bytes && other.offset < r.offset + r.bytes;
        if (alive_together && overlap && !exclude_each_other(arms, r.arm, other.arm)) {
          r.offset = other.offset + other.bytes;
          moved = true;
        }
      }
    }
    *r.to = r.offset;
    if (r.offset + r.bytes > total) total = r.offset + r.bytes;
  }
  return total;
}

}  // namespace detail

/// Plans the workspace of a program whose shapes are all numbers. Time runs from the forward of the
/// first node to the backward of the first. A constant expression for static shapes; does not
/// allocate. Inputs are the caller's memory. `input_gradients`: whether backward also gives the
/// gradients of the inputs (into the caller's memory).
template <class T, program_sizes N>
[[gnu::cold]] constexpr memory_plan<N> plan_memory(const program<N>& p, std::size_t inputs,
                                                   bool input_gradients) {
  memory_plan<N> plan;
  plan.fusion = plan_fusion(p, inputs);
  constexpr auto nodes = static_cast<int>(N.nodes);
  const auto backward_time = [](int node) { return 2 * nodes - node; };

  struct lifetime {
    int begin = 0, end = -1;
    constexpr void cover(int t) {
      if (t > end) end = t;
    }
  };
  program_table<lifetime, N.values> alive{};
  program_table<int, N.values> producer{};
  program_table<int, N.values> arm{};
  program_table<int, N.values> last_consumer{};
  program_table<int, N.values> consumers{};
  program_table<bool, N.values> needs_gradient{};
  for (std::size_t v = 0; v < N.values; ++v) {
    plan.values[v] = plan.value_gradients[v] = -1;
    plan.root[v] = plan.gradient_root[v] = static_cast<int>(v);
    producer[v] = arm[v] = -1;
    last_consumer[v] = -1;
    needs_gradient[v] = v < inputs && input_gradients && p.kinds[v] == element_kind::real;
  }

  for (int k = 0; k < nodes; ++k) {
    const program_node& node = p.nodes[static_cast<std::size_t>(k)];
    bool backward = p.leaves[static_cast<std::size_t>(node.leaf)].parameter_count > 0;
    for (std::size_t i = 0; i < node.input_count; ++i) {
      const auto v = static_cast<std::size_t>(node.inputs[i]);
      backward = backward || needs_gradient[v];
      ++consumers[v];
      last_consumer[v] = k;
    }
    plan.runs_backward[static_cast<std::size_t>(k)] = backward;
    for (std::size_t i = 0; i < node.output_count; ++i) {
      const auto v = static_cast<std::size_t>(node.first_output) + i;
      producer[v] = k;
      arm[v] = node.arm;
      needs_gradient[v] = backward;
      const int shared = node.is_view ? 0 : plan.fusion.overwrites[static_cast<std::size_t>(k)];
      if (shared >= 0) plan.root[v] = plan.root[static_cast<std::size_t>(node.inputs[shared])];
      alive[v].begin = k;
    }
  }
  // A call that makes another's output as well uses its memory before its time.
  program_table<int, N.nodes> first_use{};
  for (int k = 0; k < nodes; ++k) first_use[static_cast<std::size_t>(k)] = k;
  for (int k = 0; k < nodes; ++k) {
    const fused_call& f = plan.fusion.evaluation_calls[static_cast<std::size_t>(k)];
    if (f.normalises) first_use[static_cast<std::size_t>(f.norm)] = k;
    if (f.gives_other) alive[static_cast<std::size_t>(f.output)].begin = k;
  }
  for (int k = 0; k < nodes; ++k) {
    const program_node& node = p.nodes[static_cast<std::size_t>(k)];
    const bool backward = plan.runs_backward[static_cast<std::size_t>(k)];
    const auto keeps = static_cast<unsigned>(node.keeps);
    if (node.is_view || node.choice >= 0) continue;
    if (const fused_call& f = plan.fusion.calls[static_cast<std::size_t>(k)]; f.adds)
      alive[static_cast<std::size_t>(plan.root[static_cast<std::size_t>(f.added)])].cover(k);
    for (std::size_t i = 0; i < node.input_count; ++i) {
      lifetime& a =
          alive[static_cast<std::size_t>(plan.root[static_cast<std::size_t>(node.inputs[i])])];
      a.cover(k);
      if (backward && (keeps & static_cast<unsigned>(kept::input)) != 0) a.cover(backward_time(k));
    }
    for (std::size_t i = 0; i < node.output_count; ++i) {
      lifetime& a = alive[static_cast<std::size_t>(
          plan.root[static_cast<std::size_t>(node.first_output) + i])];
      a.cover(k);
      if (backward && (keeps & static_cast<unsigned>(kept::output)) != 0) a.cover(backward_time(k));
    }
  }
  program_table<bool, N.values> is_output{};
  for (std::size_t i = 0; i < p.output_count; ++i) {
    const auto v = static_cast<std::size_t>(p.outputs[i]);
    is_output[v] = true;
    // The caller reads outputs until the next call.
    alive[static_cast<std::size_t>(plan.root[v])].cover(backward_time(0) + 1);
  }

  if constexpr (N.choices > 0) {
    // The output of a choice is in the memory of the alternative that ran.
    for (int k = nodes; k-- > 0;) {
      const program_node& node = p.nodes[static_cast<std::size_t>(k)];
      if (node.choice < 0) continue;
      for (std::size_t i = 0; i < node.input_count; ++i)
        alive[static_cast<std::size_t>(plan.root[static_cast<std::size_t>(node.inputs[i])])].cover(
            alive[static_cast<std::size_t>(node.first_output)].end);
    }
  }

  // A view hands its gradient on without a copy where nobody else adds to it, and so does a choice.
  // What overwrites its input in forward does so in backward.
  for (int k = nodes; k-- > 0;) {
    const program_node& node = p.nodes[static_cast<std::size_t>(k)];
    const int overwritten = plan.fusion.overwrites[static_cast<std::size_t>(k)];
    if (overwritten >= 0)
      plan.gradient_root[static_cast<std::size_t>(node.inputs[overwritten])] =
          plan.gradient_root[static_cast<std::size_t>(node.first_output)];
    if (!node.is_view && node.choice < 0) continue;
    for (std::size_t i = 0; i < node.input_count; ++i) {
      const auto in = static_cast<std::size_t>(node.inputs[i]);
      if (in >= inputs && consumers[in] == 1 && !is_output[in] &&
          (node.choice >= 0 || arm[in] == node.arm))
        plan.gradient_root[in] = plan.gradient_root[static_cast<std::size_t>(node.first_output)];
    }
  }
  program_table<lifetime, N.values> gradient_alive{};
  for (std::size_t v = 0; v < N.values; ++v) gradient_alive[v].begin = backward_time(0) + 1;
  const auto cover_gradient = [&](std::size_t v, int t) {
    lifetime& a = gradient_alive[static_cast<std::size_t>(plan.gradient_root[v])];
    if (t < a.begin) a.begin = t;
    a.cover(t);
  };
  for (std::size_t v = 0; v < N.values; ++v) {
    if (!needs_gradient[v]) continue;
    if (is_output[v]) cover_gradient(v, nodes);
    if (last_consumer[v] >= 0) cover_gradient(v, backward_time(last_consumer[v]));
    if (producer[v] >= 0) cover_gradient(v, backward_time(producer[v]));
    plan.gradient_written[v] = is_output[v];
  }

  std::array<detail::memory_request, 2 * N.values + N.edges + N.saved + 1> requests{};
  std::size_t count = 0;
  const auto request = [&](dim_t elements, std::size_t element_size, lifetime a, dim_t& to,
                           int alternative) {
    const dim_t bytes =
        round_up_to_alignment<std::byte>(elements * static_cast<dim_t>(element_size));
    requests[count++] = {bytes, a.begin, a.end, -1, &to, alternative};
  };
  for (int k = nodes; k-- > 0;) {
    const program_node& node = p.nodes[static_cast<std::size_t>(k)];
    const bool backward = plan.runs_backward[static_cast<std::size_t>(k)];
    for (std::size_t i = 0; i < node.input_count; ++i) {
      const auto e = static_cast<std::size_t>(node.first_edge) + i;
      const auto v = static_cast<std::size_t>(node.inputs[i]);
      plan.edge_scratch[e] = -1;
      plan.edge_needed[e] = backward && needs_gradient[v];
      if (!plan.edge_needed[e]) continue;
      const bool same_memory =
          node.is_view &&
          plan.gradient_root[v] == plan.gradient_root[static_cast<std::size_t>(node.first_output)];
      if (plan.gradient_written[v] && !same_memory && node.choice < 0)
        request(p.values[v].numel(), sizeof(T), {backward_time(k), backward_time(k)},
                plan.edge_scratch[e], node.arm);
      plan.gradient_written[v] = true;
    }
    if constexpr (N.saved > 0) {
      for (std::size_t i = 0; i < node.saved_count; ++i) {
        const auto s = static_cast<std::size_t>(node.first_saved) + i;
        const saved_spec& spec = p.saved[s].spec;
        request(spec.extents.numel(), spec.element_size == 0 ? sizeof(T) : spec.element_size,
                {first_use[static_cast<std::size_t>(k)], backward ? backward_time(k) : k},
                plan.saved[s], node.arm);
      }
    }
  }
  for (std::size_t v = inputs; v < N.values; ++v) {
    const bool is_choice = p.nodes[static_cast<std::size_t>(producer[v])].choice >= 0;
    if (plan.root[v] == static_cast<int>(v) && !is_choice)
      request(p.values[v].numel(), sizeof(T), alive[v], plan.values[v], arm[v]);
    if (needs_gradient[v] && plan.gradient_root[v] == static_cast<int>(v))
      request(p.values[v].numel(), sizeof(T), gradient_alive[v], plan.value_gradients[v], arm[v]);
  }
  plan.bytes = detail::place(requests.data(), count, p.arms.data());
  return plan;
}

}  // namespace ikebana
