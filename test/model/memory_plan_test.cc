#include "ikebana/model/memory_plan.hpp"

#include <doctest/doctest.h>

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

/// Numbers below n, drawn one after another.
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
    node.input_count = node.is_view ? 1 : static_cast<std::size_t>(1 + roll(2));
    // Mostly of what was made last, so that chains are common.
    for (std::size_t i = 0; i < node.input_count; ++i)
      node.inputs[i] = roll(2) == 0 ? known - 1 : roll(known);
    if (node.is_view) p.leaves[k].parameter_count = 0;
    node.first_edge = edge;
    edge += static_cast<int>(node.input_count);
    node.first_output = known;
    node.keeps = static_cast<ike::kept>(roll(4));
    p.values[k + input_count] =
        node.is_view ? p.values[static_cast<std::size_t>(node.inputs[0])] : shape{roll(100)};
    node.first_saved = static_cast<int>(k);
    node.saved_count = node.is_view ? 0 : 1;
    p.saved[k].node = static_cast<int>(k);
    p.saved[k].spec = {roll(2) == 0 ? std::size_t{0} : std::size_t{1}, shape{roll(60)}};
  }
  p.output_count = 1;
  p.outputs[0] = roll(3) == 0 ? roll(static_cast<int>(node_count + input_count))
                              : static_cast<int>(node_count + input_count) - 1;
  return p;
}

/// Runs a program on memory of which each cache line remembers what was written last, and counts
/// what is read and is no longer there.
struct simulation {
  const random_program& p;
  const ike::memory_plan<sizes>& plan;
  std::vector<int> memory;
  std::vector<int> contributions;
  int wrong = 0;

  simulation(const random_program& program, const ike::memory_plan<sizes>& planned)
      : p{program},
        plan{planned},
        memory(static_cast<std::size_t>(planned.bytes / 64), -1),
        contributions(sizes.values, 0) {}

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
      f(memory[static_cast<std::size_t>(line)]);
  }
  void write(dim_t offset, dim_t bytes, int tag) {
    each_line(offset, bytes, [&](int& m) { m = tag; });
  }
  void read(dim_t offset, dim_t bytes, int tag) {
    each_line(offset, bytes, [&](int& m) { wrong += m != tag; });
  }

  void value(int v, bool writes) {
    const int root = plan.root[index(v)];
    if (index(root) < input_count) return;  // the caller's
    const dim_t at = plan.values[index(root)];
    writes ? write(at, bytes_of_value(v), 1000 + root) : read(at, bytes_of_value(v), 1000 + root);
  }
  void saved(std::size_t k, bool writes) {
    if (p.nodes[k].saved_count == 0) return;
    const ike::saved_spec& spec = p.saved[k].spec;
    const dim_t bytes = spec.extents.numel() * static_cast<dim_t>(spec.element_size == 0 ? 4 : 1);
    const int tag = 2000 + static_cast<int>(k);
    writes ? write(plan.saved[k], bytes, tag) : read(plan.saved[k], bytes, tag);
  }
  void gradient(int v, bool writes) {
    const int root = plan.gradient_root[index(v)];
    if (index(root) < input_count) return;  // the caller's
    const dim_t at = plan.value_gradients[index(root)];
    writes ? write(at, bytes_of_value(v), 3000 + root) : read(at, bytes_of_value(v), 3000 + root);
  }

  void run(bool input_gradients) {
    for (std::size_t k = 0; k < node_count; ++k) {
      const ike::program_node& node = p.nodes[k];
      if (node.is_view) continue;
      value(node.first_output, true);
      saved(k, true);
      // Outputs were written first: what a node reads lies elsewhere.
      for (std::size_t i = 0; i < node.input_count; ++i) value(node.inputs[i], false);
      value(node.first_output, false);
    }
    std::vector<bool> needed(sizes.values, false);
    for (std::size_t v = 0; v < input_count; ++v) needed[v] = input_gradients;
    for (std::size_t k = 0; k < node_count; ++k) {
      bool backward = p.leaves[k].parameter_count > 0;
      for (std::size_t i = 0; i < p.nodes[k].input_count; ++i)
        backward = backward || needed[index(p.nodes[k].inputs[i])];
      wrong += backward != plan.runs_backward[k];
      needed[k + input_count] = backward;
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
        gradient(out, true);  // zeroed
        wrong += contributions[index(out)] != 0;
      }
      for (std::size_t i = 0; i < node.input_count; ++i) {
        const std::size_t e = index(node.first_edge) + i;
        const int in = node.inputs[i];
        wrong += plan.edge_needed[e] != needed[index(in)];
        if (!plan.edge_needed[e]) continue;
        const bool handed_on =
            node.is_view && plan.gradient_root[index(in)] == plan.gradient_root[index(out)];
        if (handed_on)
          wrong += contributions[index(in)] != 0;
        else if (plan.edge_scratch[e] >= 0 || contributions[index(in)] != 0)
          write(plan.edge_scratch[e], bytes_of_value(in), 4000 + static_cast<int>(e));
        else
          gradient(in, true);
      }
      // All of a node's results were written: what it reads is still there.
      gradient(out, false);
      saved(k, false);
      const auto keeps = static_cast<unsigned>(node.keeps);
      if (!node.is_view && (keeps & 1) != 0)
        for (std::size_t i = 0; i < node.input_count; ++i) value(node.inputs[i], false);
      if (!node.is_view && (keeps & 2) != 0) value(out, false);
      for (std::size_t i = 0; i < node.input_count; ++i) {
        const std::size_t e = index(node.first_edge) + i;
        if (!plan.edge_needed[e]) continue;
        if (plan.edge_scratch[e] >= 0)
          read(plan.edge_scratch[e], bytes_of_value(node.inputs[i]), 4000 + static_cast<int>(e));
        gradient(node.inputs[i], false);
        ++contributions[index(node.inputs[i])];
      }
    }
    value(p.outputs[0], false);  // read until the next call
  }
};

}  // namespace

TEST_CASE("nothing that is still needed is overwritten, in two thousand random networks") {
  dim_t planned = 0, separate = 0;
  for (std::uint64_t seed = 0; seed < 2000; ++seed) {
    const random_program p = draw(seed);
    for (bool input_gradients : {false, true}) {
      const auto plan = ike::plan_memory<float>(p, input_count, input_gradients);
      simulation s(p, plan);
      s.run(input_gradients);
      REQUIRE_MESSAGE(s.wrong == 0, "seed ", seed, " input gradients ", input_gradients);
      planned += plan.bytes;
      for (std::size_t v = input_count; v < sizes.values; ++v)
        separate += 2 * ike::round_up_to_alignment<std::byte>(p.values[v].numel() * 4);
    }
  }
  CHECK(planned < separate);
}

namespace {
constexpr auto mlp =
    ike::sequential("fc1"_m = ike::linear<4, 16>{}, ike::relu{}, "fc2"_m = ike::linear<16, 3>{});
using fixed = decltype(ike::initialize<float, shape{32, 4}>(mlp, ike::seed{1}));
using open = decltype(ike::initialize<float, shape{ike::dynamic, 4}>(mlp, ike::seed{1}));

// Of 32 rows: 16 and 16 hidden numbers (relu's output is what fc2 keeps), 3 and their gradients.
constexpr dim_t bytes = ike::workspace_bytes<fixed>;
static_assert(bytes > 0 && bytes % 64 == 0);
static_assert(ike::workspace_bytes<open> > 0 && ike::workspace_bytes<open> < bytes);
static_assert(ike::workspace_bytes<ike::model<float, ike::sequential<>, shape{8}>> == 0);
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
