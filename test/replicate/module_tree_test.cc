#include "ikebana/replicate/utils/module_tree.hpp"

#include <doctest/doctest.h>

#include <string>
#include <vector>

#include "ikebana/compose/graph.hpp"
#include "ikebana/compose/residual.hpp"
#include "ikebana/compose/sequential.hpp"
#include "ikebana/model/initialize.hpp"
#include "ikebana/model/state.hpp"
#include "ikebana/nn/activation.hpp"
#include "ikebana/nn/batch_norm.hpp"
#include "ikebana/nn/linear.hpp"

namespace ike = ikebana;
using namespace ike::literals;
using ike::shape;

namespace {
constexpr auto net =
    ike::sequential("in"_m = ike::lazy_linear<4>{}, ike::relu{},
                    "block"_m = ike::residual("fc"_m = ike::lazy_linear<4>{},
                                              "norm"_m = ike::lazy_batch_norm1d<>{}),
                    "twice"_m = ike::graph([](auto x) {
                      const auto fc = "fc"_m(ike::lazy_linear<4>{}, x);
                      return "fc"_m(ike::lazy_linear<4>{}, fc);
                    }));
}  // namespace

TEST_CASE("a tree has every module once, before those below it") {
  constexpr auto tree = ike::module_tree_of(net);
  static_assert(tree.size() == 9);
  std::vector<std::string> paths;
  for (const auto& m : tree.modules) paths.emplace_back(m.path.view());
  CHECK(paths == std::vector<std::string>{"", "in", "1", "block", "block.fc", "block.norm",
                                          "block.add", "twice", "twice.fc"});
  static_assert(tree[0].kind == "sequential");
  static_assert(tree[0].parent == -1);
  static_assert(tree[0].end == 9);
  static_assert(tree[3].kind == "residual");
  static_assert(tree[3].end == 7);
  static_assert(tree[5].parent == 3);
  static_assert(tree[5].has_buffer());
  static_assert(!tree[3].has_buffer());
  static_assert(tree.find("block.norm") == 5);
  static_assert(tree.find("") == 0);
  static_assert(tree.find("bloc") == -1);
  static_assert(tree.has_state("block.norm.running_mean"));
  static_assert(!tree.has_state("block.norm"));
}

TEST_CASE("the states of a tree are those of the model, with a lazy module's names known too") {
  constexpr auto tree = ike::module_tree_of(net);
  const auto model = ike::initialize<float, shape{2, 3}>(net, ike::seed{1});
  const auto dict = ike::get_state_dict(model);
  CHECK(dict.size() == tree.parameter_count() + tree.buffer_count());
  for (const auto& p : tree.parameters) CHECK_MESSAGE(dict.contains(p.path.view()), p.path.c_str());
  for (const auto& b : tree.buffers) CHECK_MESSAGE(dict.contains(b.path.view()), b.path.c_str());
  CHECK(tree.parameters[2].path.view() == "block.fc.weight");
  CHECK(tree.parameters[2].module == 4);
}

TEST_CASE("a leaf alone is a tree of one, with names that have no dot") {
  constexpr auto tree = ike::module_tree_of(ike::linear<3, 2>{});
  static_assert(tree.size() == 1);
  static_assert(tree.parameters[1].path.view() == "bias");
  static_assert(ike::module_tree_of(ike::sequential()).size() == 1);
}
