#include "ikebana/model/plan/memory_plan.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <cstdint>
#include <vector>

#include "ikebana/compose/residual.hpp"
#include "ikebana/compose/sequential.hpp"
#include "ikebana/core/random.hpp"
#include "ikebana/model/initialize.hpp"
#include "ikebana/model/workspace.hpp"
#include "ikebana/nn/activation.hpp"
#include "ikebana/nn/flatten.hpp"
#include "ikebana/nn/linear.hpp"

namespace ike = ikebana;
using namespace ike::literals;
using ike::dim_t;
using ike::shape;

namespace {

constexpr std::size_t node_count = 14;
constexpr std::size_t input_count = 2;

constexpr ike::program_sizes sizes{.nodes = node_count,
                                   .values = node_count + input_count,
                                   .edges = 2 * node_count,
                                   .leaves = node_count,
                                   .scopes = 1,
                                   .parameters = 0,
                                   .buffers = 0,
                                   .saved = node_count};
using random_program = ike::program<sizes>;

/// Draws numbers below n.
struct dice {
  std::uint64_t at = 0;
  std::uint64_t which;
  int operator()(int n) {
    const auto w = ike::random_stream{ike::seed{which}, 7}.words(static_cast<std::uint32_t>(at++));
    return static_cast<int>(w[0] % static_cast<std::uint32_t>(n));
  }
};

random_program draw(std::uint64_t seed) {
  dice roll{0, seed};
  random_program p;
  for (std::size_t v = 0; v < input_count; ++v) p.values[v] = shape{1 + roll(100)};
  int edge = 0;
  for (std::size_t k = 0; k < node_count; ++k) {
    ike::program_node& node = p.nodes[k];
    const auto known = static_cast<int>(k + input_count);
    node.leaf = static_cast<int>(k);
    p.leaves[k].parameter_count = roll(3) == 0 ? 1 : 0;
    node.is_view = roll(4) == 0;
    const bool is_part = !node.is_view && roll(4) == 0;
    node.input_count = node.is_view || is_part ? 1 : static_cast<std::size_t>(1 + roll(2));
    // Mostly recent values, so that chains are common.
    for (std::size_t i = 0; i < node.input_count; ++i)
      node.inputs[i] = roll(2) == 0 ? known - 1 : roll(known);
    node.first_edge = edge;
    edge += static_cast<int>(node.input_count);
    node.first_output = known;
    node.keeps = static_cast<ike::kept>(roll(4));
    node.role.stops_gradient = roll(16) == 0;
    const shape& first = p.values[static_cast<std::size_t>(node.inputs[0])];
    if (is_part) {
      // Parts start at the lines of which the simulation keeps account.
      const auto n = static_cast<int>(first.numel());
      node.keeps = ike::kept::nothing;
      node.view.exists = true;
      node.view.first = 16 * roll(1 + n / 16);
      p.leaves[k].parameter_count = 0;
      p.values[k + input_count] = shape{roll(1 + n - static_cast<int>(node.view.first))};
      continue;
    }
    node.role.joins = node.input_count == 2 && roll(2) == 0 && first.numel() % 16 == 0;
    if (node.role.joins) {
      // The second begins at a line.
      node.keeps = ike::kept::nothing;
      p.leaves[k].parameter_count = 0;
      p.values[k + input_count] =
          shape{first.numel() + p.values[static_cast<std::size_t>(node.inputs[1])].numel()};
      continue;
    }
    if (!node.is_view && node.input_count == 1 && roll(2) == 0) {
      node.role.in_place = true;
      if (roll(3) > 0) {
        node.role.as_activation = ike::cpu::activation::relu;
        node.keeps = ike::kept::output;
      } else {
        node.keeps = ike::kept::nothing;
        node.role.is_identity_in_evaluation = true;
        node.role.takes_residual = roll(2) == 0;
      }
    } else if (!node.is_view && node.input_count == 2 && roll(2) == 0 &&
               first == p.values[static_cast<std::size_t>(node.inputs[1])]) {
      node.role.is_sum = true;
      node.keeps = ike::kept::nothing;
    } else if (!node.is_view) {
      node.role.takes_residual = roll(3) > 0;
      node.role.takes_function = roll(3) > 0;
      node.role.takes_norm = roll(2) > 0;
      node.role.is_channel_norm = node.input_count == 1 && roll(3) == 0;
      if (node.input_count == 1 && roll(4) == 0)
        node.role.as_activation = ike::cpu::activation::gelu;
      node.role.adds_before = !node.role.takes_residual && roll(2) > 0;
      node.role.takes_slope = roll(3) > 0 && node.input_count == 1;
    }
    const bool same_shape = node.is_view || node.role.in_place || node.role.is_sum;
    if (same_shape) p.leaves[k].parameter_count = 0;
    p.values[k + input_count] = same_shape ? first : shape{16 * roll(7) + 5 * roll(2)};
    node.first_saved = static_cast<int>(k);
    node.saved_count = same_shape ? 0 : 1;
    p.saved[k].node = static_cast<int>(k);
    p.saved[k].spec = {roll(2) == 0 ? std::size_t{0} : std::size_t{1}, shape{roll(60)}};
  }
  p.output_count = 1;
  p.outputs[0] = roll(3) == 0 ? roll(static_cast<int>(node_count + input_count))
                              : static_cast<int>(node_count + input_count) - 1;
  return p;
}

enum class mode { unfused, training, evaluation };

/// Runs a program on memory in which each cache line remembers its last writer, and counts reads of
/// overwritten data.
struct simulation {
  const random_program& p;
  const ike::memory_plan<sizes>& plan;
  mode how;
  std::vector<int> memory;
  std::vector<int> contributions;
  std::vector<int> final_output;  ///< By node: of the last call fused into it.
  int wrong = 0, taken_over = 0, views_read = 0, joined = 0;

  simulation(const random_program& program, const ike::memory_plan<sizes>& planned, mode run_as)
      : p{program},
        plan{planned},
        how{run_as},
        memory(static_cast<std::size_t>(planned.bytes / 64), -1),
        contributions(sizes.values, 0),
        final_output(node_count) {
    for (std::size_t k = 0; k < node_count; ++k) {
      final_output[k] = p.nodes[k].first_output;
      if (!call(k).forward_is_done) continue;
      ++taken_over;
      if (added_later(k)) continue;
      std::size_t by = k;
      while (call(by).forward_is_done && !added_later(by))
        by = index(p.nodes[by].inputs[std::max(plan.fusion.overwrites[by], 0)]) - input_count;
      final_output[by] = p.nodes[k].first_output;
    }
    for (std::size_t k = 0; k < node_count; ++k) taken_over += call(k).backward_is_done ? 1 : 0;
  }

  /// Whether node k is a sum that the next node computes.
  bool added_later(std::size_t k) const {
    return k + 1 < node_count && p.nodes[k].role.is_sum && p.nodes[k + 1].role.adds_before &&
           call(k + 1).adds;
  }
  ike::fused_call call(std::size_t k) const {
    if (how == mode::unfused) return {};
    return how == mode::training ? plan.fusion.calls[k] : plan.fusion.evaluation_calls[k];
  }

  static std::size_t index(int i) { return static_cast<std::size_t>(i); }
  dim_t bytes_of_value(int v) const { return p.values[index(v)].numel() * 4; }

  template <class F>
  void each_line(dim_t offset, dim_t bytes, F&& f) {
    if (bytes == 0) return;
    if (offset < 0 || offset % 64 != 0 || offset + bytes > plan.bytes) {
      ++wrong;
      return;
    }
    for (dim_t line = offset / 64; line < (offset + bytes + 63) / 64; ++line)
      f(memory[static_cast<std::size_t>(line)], line);
  }
  void write(dim_t offset, dim_t bytes, int tag) {
    each_line(offset, bytes, [&](int& m, dim_t) { m = tag; });
  }
  void read(dim_t offset, dim_t bytes, int tag) {
    each_line(offset, bytes, [&](int& m, dim_t) { wrong += m != tag; });
  }

  /// The value that v is a view of, or v.
  int content(int v) const {
    while (plan.layouts[index(v)].is_view) v = p.nodes[index(v) - input_count].inputs[0];
    return v;
  }
  const ike::program_node& maker(int v) const { return p.nodes[index(v) - input_count]; }
  bool is_joined(int v) const { return index(v) >= input_count && maker(v).role.joins; }
  /// Where a value is; -1 for the caller's memory.
  dim_t address(int v) const {
    const int root = plan.root[index(v)];
    if (index(root) < input_count) return -1;
    dim_t at = plan.values[index(root)];
    for (; plan.layouts[index(v)].is_view; v = maker(v).inputs[0])
      at += 4 * plan.layouts[index(v)].offset;
    return at + 4 * plan.layouts[index(v)].first_in_whole;
  }
  /// Whether input i of the node that joins them to v is made in place.
  bool is_in_place(int v, std::size_t i) const {
    const int in = maker(v).inputs[i];
    return plan.root[index(in)] == plan.root[index(v)] &&
           address(in) == address(v) + (i == 0 ? 0 : bytes_of_value(maker(v).inputs[0]));
  }
  /// The value that writes this line of v's memory.
  int writer(int v, dim_t line) const {
    v = content(v);
    for (std::size_t i = 0; is_joined(v) && i < 2; ++i) {
      const int in = maker(v).inputs[i];
      if (is_in_place(v, i) && line * 64 >= address(in) &&
          line * 64 < address(in) + bytes_of_value(in))
        return writer(in, line);
    }
    return v;
  }
  void value(int v, bool writes) {
    const dim_t at = address(v);
    if (at == -1 && index(plan.root[index(v)]) < input_count) return;
    for (int u = v; plan.layouts[index(u)].is_view; u = maker(u).inputs[0]) {
      wrong += writes;
      ++views_read;
    }
    each_line(at, bytes_of_value(v), [&](int& m, dim_t line) {
      const int tag = 1000 + writer(v, line);
      if (writes && tag == 1000 + v)
        m = tag;
      else
        wrong += m != tag;
    });
  }
  void saved(std::size_t k, bool writes) {
    if (p.nodes[k].saved_count == 0) return;
    const ike::saved_spec& spec = p.saved[k].spec;
    const dim_t bytes = spec.extents.numel() * static_cast<dim_t>(spec.element_size == 0 ? 4 : 1);
    const int tag = 2000 + static_cast<int>(k);
    writes ? write(plan.saved[k], bytes, tag) : read(plan.saved[k], bytes, tag);
  }
  /// The value whose gradient carries the tag of v's: views that share its memory carry the same.
  int gradient_content(int v) const {
    for (bool moved = true; moved;) {
      moved = false;
      for (std::size_t k = 0; k < node_count && !moved; ++k) {
        const ike::program_node& node = p.nodes[k];
        if (node.is_view && node.inputs[0] == v &&
            plan.gradient_root[index(v)] == plan.gradient_root[index(node.first_output)]) {
          v = node.first_output;
          moved = true;
        }
      }
    }
    return v;
  }
  void gradient(int v, bool writes, int of = -1) {
    const int root = plan.gradient_root[index(v)];
    if (index(root) < input_count) return;  // The caller's memory.
    const dim_t at =
        plan.value_gradients[index(root)] + 4 * plan.layouts[index(v)].first_in_gradient;
    const int tag = 3000 + gradient_content(of >= 0 ? of : v);
    writes ? write(at, bytes_of_value(v), tag) : read(at, bytes_of_value(v), tag);
  }

  void forward() {
    for (std::size_t k = 0; k < node_count; ++k) {
      const ike::program_node& node = p.nodes[k];
      if (plan.layouts[k + input_count].is_view || call(k).forward_is_done) continue;
      const int overwritten = plan.fusion.overwrites[k];
      if (overwritten >= 0) value(node.inputs[overwritten], false);
      if (k > 0 && added_later(k - 1)) {
        value(p.nodes[k - 1].inputs[plan.fusion.overwrites[k - 1]], false);
        value(call(k).added, false);
        value(node.inputs[0], true);
      }
      value(final_output[k], true);
      saved(k, true);
      if (call(k).normalises) {
        saved(index(call(k).norm), true);
        value(final_output[k], false);
        saved(k, false);
      }
      // Outputs were written first: what a node reads must be elsewhere.
      for (std::size_t i = 0; i < node.input_count; ++i)
        if (static_cast<int>(i) != overwritten) value(node.inputs[i], false);
      if (call(k).adds) value(call(k).added, false);
      value(final_output[k], false);
    }
  }

  void run(ike::pass_purpose purpose) {
    forward();
    if (how == mode::evaluation || purpose == ike::pass_purpose::inference)
      return value(p.outputs[0], false);
    const bool input_gradients = purpose == ike::pass_purpose::training_with_input_gradients;
    std::vector<bool> needed(sizes.values, false);
    for (std::size_t v = 0; v < input_count; ++v) needed[v] = input_gradients;
    for (std::size_t k = 0; k < node_count; ++k) {
      bool backward = p.leaves[k].parameter_count > 0;
      for (std::size_t i = 0; i < p.nodes[k].input_count && !p.nodes[k].role.stops_gradient; ++i)
        backward = backward || needed[index(p.nodes[k].inputs[i])];
      needed[k + input_count] = backward;
    }
    std::vector<bool> reached(sizes.values, false);
    reached[index(p.outputs[0])] = true;
    for (std::size_t k = node_count; k-- > 0;) {
      const bool given = reached[k + input_count] || p.leaves[k].parameter_count > 0;
      if (!given) needed[k + input_count] = false;
      wrong += needed[k + input_count] != plan.runs_backward[k];
      for (std::size_t i = 0; i < p.nodes[k].input_count; ++i)
        if (needed[k + input_count] && !p.nodes[k].role.stops_gradient)
          reached[index(p.nodes[k].inputs[i])] = true;
    }
    if (needed[index(p.outputs[0])]) {
      gradient(p.outputs[0], true);
      ++contributions[index(p.outputs[0])];
    }
    for (std::size_t k = node_count; k-- > 0;) {
      const ike::program_node& node = p.nodes[k];
      if (!plan.runs_backward[k]) continue;
      const int out = node.first_output;
      if (!plan.gradient_written[index(out)]) {
        gradient(out, true);  // Set to zero.
        wrong += contributions[index(out)] != 0;
      }
      if (node.role.joins) {
        join_backward(k);
        continue;
      }
      const bool done = call(k).backward_is_done || (node.is_view && reader_took_slope(node));
      const int overwritten = plan.fusion.overwrites[k];
      for (std::size_t i = 0; i < node.input_count; ++i) {
        const std::size_t e = index(node.first_edge) + i;
        const int in = node.inputs[i];
        wrong += plan.edge_needed[e] != (needed[index(in)] && !node.role.stops_gradient);
        if (!plan.edge_needed[e]) continue;
        const bool handed_on =
            (node.is_view && plan.gradient_root[index(in)] == plan.gradient_root[index(out)]) ||
            static_cast<int>(i) == overwritten;
        if (handed_on)
          wrong += contributions[index(in)] != 0;
        else if (plan.edge_scratch[e] >= 0 || contributions[index(in)] != 0)
          write(plan.edge_scratch[e], bytes_of_value(in), 4000 + static_cast<int>(e));
        else
          gradient(in, true, i == 0 ? before_slope(k, in) : in);
      }
      // All of a node's results were written, except over what it reads, which is still there.
      if (!done) gradient(out, false);
      saved(k, false);
      const auto keeps = static_cast<unsigned>(node.keeps);
      if (!node.is_view && (keeps & 1) != 0)
        for (std::size_t i = 0; i < node.input_count; ++i) value(node.inputs[i], false);
      if (!node.is_view && (keeps & 2) != 0) value(out, false);
      if (overwritten >= 0 && plan.edge_needed[index(node.first_edge + overwritten)] && !done)
        gradient(node.inputs[overwritten], true);
      for (std::size_t i = 0; i < node.input_count; ++i) {
        const std::size_t e = index(node.first_edge) + i;
        if (!plan.edge_needed[e]) continue;
        if (plan.edge_scratch[e] >= 0)
          read(plan.edge_scratch[e], bytes_of_value(node.inputs[i]), 4000 + static_cast<int>(e));
        gradient(node.inputs[i], false, i == 0 ? before_slope(k, node.inputs[0]) : node.inputs[i]);
        ++contributions[index(node.inputs[i])];
      }
    }
    value(p.outputs[0], false);  // Read until the next call.
  }

  /// The gradients that are not parts of the whole's are copied; the others are it from now on.
  void join_backward(std::size_t k) {
    const ike::program_node& node = p.nodes[k];
    const int out = node.first_output;
    for (const bool in_place : {false, true}) {
      for (std::size_t i = 0; i < node.input_count; ++i) {
        const std::size_t e = index(node.first_edge) + i;
        const int in = node.inputs[i];
        if (!plan.edge_needed[e] ||
            in_place != (plan.gradient_root[index(in)] == plan.gradient_root[index(out)]))
          continue;
        if (plan.edge_scratch[e] >= 0 || contributions[index(in)] != 0) {
          write(plan.edge_scratch[e], bytes_of_value(in), 4000 + static_cast<int>(e));
          wrong += in_place;
          gradient(in, false);
        } else {
          gradient(in, true);
        }
        joined += in_place;
        ++contributions[index(in)];
      }
      if (!in_place) gradient(out, false);
    }
  }

  /// Whether the gradient that this view passes on is already multiplied by an activation's slope.
  bool reader_took_slope(const ike::program_node& view) const {
    const int v = content(view.inputs[0]);
    return index(v) >= input_count && call(index(v) - input_count).backward_is_done;
  }
  /// The value of which the gradient that node k writes for v is already the gradient.
  int before_slope(std::size_t k, int v) const {
    const bool hands_on = p.nodes[k].is_view && reader_took_slope(p.nodes[k]);
    if (call(k).slope == ike::cpu::activation::none && !hands_on) return v;
    return p.nodes[index(content(v)) - input_count].inputs[0];
  }
};

}  // namespace

TEST_CASE("nothing that is still needed is overwritten, in two thousand random networks") {
  using enum ike::pass_purpose;
  dim_t planned = 0, for_inference = 0, separate = 0;
  int taken_over = 0, views_read = 0, joined = 0;
  for (std::uint64_t seed = 0; seed < 2000; ++seed) {
    const random_program p = draw(seed);
    for (const ike::pass_purpose purpose : {training, training_with_input_gradients, inference}) {
      const auto plan = ike::plan_memory<float>(p, input_count, purpose);
      for (mode how : {mode::unfused, mode::training, mode::evaluation}) {
        if (purpose == inference && how == mode::training) continue;
        simulation s(p, plan, how);
        s.run(purpose);
        REQUIRE_MESSAGE(s.wrong == 0, "seed ", seed, " purpose ", static_cast<int>(purpose),
                        " mode ", static_cast<int>(how));
        taken_over += s.taken_over;
        views_read += s.views_read;
        joined += s.joined;
      }
      if (purpose == inference) {
        for_inference += plan.bytes;
        continue;
      }
      planned += plan.bytes;
      for (std::size_t v = input_count; v < sizes.values; ++v)
        separate += 2 * ike::round_up_to_alignment<std::byte>(p.values[v].numel() * 4);
    }
  }
  CHECK(planned < separate);
  CHECK(for_inference < planned / 3);
  CHECK(taken_over > 300);
  CHECK(views_read > 1000);
  CHECK(joined > 100);
}

namespace {
constexpr auto mlp =
    ike::sequential("fc1"_m = ike::linear<4, 16>{}, ike::relu{}, "fc2"_m = ike::linear<16, 3>{});
using fixed = decltype(ike::initialize<float, shape{32, 4}>(mlp, ike::seed{1}));
using open = decltype(ike::initialize<float, shape{ike::dynamic, 4}>(mlp, ike::seed{1}));

// For 32 rows: 16 and 16 hidden numbers (fc2 keeps relu's output), 3 and their gradients.
constexpr dim_t bytes = ike::workspace_bytes<fixed>;
static_assert(bytes > 0 && bytes % 64 == 0);
static_assert(ike::workspace_bytes<open> > 0 && ike::workspace_bytes<open> < bytes);
static_assert(ike::workspace_bytes<ike::model<float, ike::sequential<>, shape{8}>> == 0);
static_assert(
    ike::workspace_bytes<decltype(ike::initialize<float, shape{0, 4}>(mlp, ike::seed{1}))> == 0);
}  // namespace

TEST_CASE("the constant is what a model takes") {
  auto a = ike::initialize<float, shape{32, 4}>(mlp, ike::seed{1});
  CHECK(a.workspace_bytes() == bytes);
  auto b = ike::initialize<float, shape{ike::dynamic, 4}>(mlp, ike::seed{1});
  b(ike::ones<float, shape{1, 4}>());
  CHECK(b.workspace_bytes() == ike::workspace_bytes<open>);
  b(ike::ones<float, shape{32, 4}>());
  CHECK(b.workspace_bytes() == bytes);
  b(ike::ones<float, shape{2, 4}>());
  CHECK(b.workspace_bytes() == bytes);
}

TEST_CASE("a long chain of activations reuses memory") {
  constexpr auto tanhs = ike::sequential(ike::relu{}, ike::relu{}, ike::relu{}, ike::relu{},
                                         ike::relu{}, ike::relu{}, ike::relu{}, ike::relu{});
  using model = decltype(ike::initialize<float, shape{16}>(tanhs, ike::seed{1}));
  static_assert(ike::workspace_bytes<model> == 2 * 64, "nothing to learn: input and output of one");
  CHECK(ike::workspace_bytes<model> == 128);
}
