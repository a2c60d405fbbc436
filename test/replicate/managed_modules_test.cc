#include "ikebana/replicate/managed_modules.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <string>
#include <string_view>
#include <vector>

#include "ikebana/compose/repeat.hpp"
#include "ikebana/compose/sequential.hpp"
#include "ikebana/nn/activation.hpp"
#include "ikebana/nn/batch_norm.hpp"
#include "ikebana/nn/dropout.hpp"
#include "ikebana/nn/embedding.hpp"
#include "ikebana/nn/layer_norm.hpp"
#include "ikebana/nn/linear.hpp"
#include "ikebana/replicate/parameter_groups.hpp"
#include "ikebana/replicate/policy.hpp"

namespace ike = ikebana;
using namespace ike::literals;
using ike::shape;

namespace {

// The modules of the transformer in PyTorch's test of managed modules; their wiring does not matter
// here.
constexpr auto norm = ike::layer_norm<shape{16}>{};
constexpr auto projection = ike::linear<16, 16>{};
constexpr auto block = ike::sequential(
    "attention_norm"_m = norm,
    "attention"_m = ike::sequential("wq"_m = projection, "wk"_m = projection, "wv"_m = projection,
                                    "wo"_m = projection, "resid_dropout"_m = ike::dropout{}),
    "ffn_norm"_m = norm,
    "feed_forward"_m =
        ike::sequential("w1"_m = ike::linear<16, 64>{}, "gelu"_m = ike::gelu{},
                        "w2"_m = ike::linear<64, 16>{}, "resid_dropout"_m = ike::dropout{}));
constexpr auto transformer = ike::sequential(
    "tok_embeddings"_m = ike::embedding<8, 16>{}, "pos_embeddings"_m = ike::embedding<16, 16>{},
    "dropout"_m = ike::dropout{}, "layers"_m = ike::repeat<3>(block), "norm"_m = norm,
    "output"_m = ike::linear<16, 8, ike::bias<false>>{});
constexpr auto tree = ike::module_tree_of(transformer);

constexpr auto mixed = ike::module_tree_of(ike::sequential(
    "fc"_m = ike::linear<4, 4>{}, "act"_m = ike::relu{},
    "part"_m = ike::sequential("fc"_m = ike::linear<4, 4>{}, "norm"_m = ike::batch_norm1d<4>{})));

template <class Tree>
std::vector<std::string> paths_of(const Tree& t, const ike::management& said) {
  std::vector<std::string> paths;
  for (const std::size_t m : ike::managed_modules(t, said))
    paths.emplace_back(t.modules[m].path.view());
  return paths;
}
template <class Tree>
std::vector<std::string> states_of(const Tree& t, const ike::management& said) {
  std::vector<std::string> paths;
  const auto states = ike::managed_states(t, said);
  for (const std::size_t p : states.parameters) paths.emplace_back(t.parameters[p].path.view());
  for (const std::size_t b : states.buffers) paths.emplace_back(t.buffers[b].path.view());
  return paths;
}
using list = std::vector<std::string>;

}  // namespace

TEST_CASE("of 49 modules 21 are left when one layer is replicated and another is sharded") {
  static_assert(tree.size() == 49);
  static_assert(ike::managed_modules(ike::module_tree_of(block)).size() == 14);
  static_assert(ike::managed_modules(tree).size() == 49);
  static_assert(ike::managed_modules(tree, {.replicated = {"layers.0"}}).size() == 35);
  static_assert(ike::managed_modules(tree, {.sharded = {"layers.1"}}).size() == 35);
  static_assert(
      ike::managed_modules(tree, {.replicated = {"layers.0"}, .sharded = {"layers.1"}}).size() ==
      21);
  const ike::management said{.replicated = {"layers.0"}, .sharded = {"layers.1"}};
  for (const std::string& p : paths_of(tree, said)) {
    CHECK(!ike::is_at_or_below(p, "layers.0"));
    CHECK(!ike::is_at_or_below(p, "layers.1"));
  }
}

TEST_CASE("a module comes after those below it, and once though roots overlap") {
  CHECK(paths_of(mixed, {}) == list{"fc", "act", "part.fc", "part.norm", "part", ""});
  CHECK(paths_of(mixed, {.roots = {"part", "act"}}) == list{"part.fc", "part.norm", "part", "act"});
  CHECK(paths_of(mixed, {.roots = {"part", "", "part.fc"}}) ==
        list{"part.fc", "part.norm", "part", "fc", "act", ""});
}

TEST_CASE("a root that was replicated is managed, one that is sharded is not") {
  CHECK(paths_of(mixed, {.roots = {"part"}, .replicated = {"part"}}).size() == 3);
  CHECK(paths_of(mixed, {.roots = {"part"}, .replicated = {"part", "part.fc"}}) ==
        list{"part.norm", "part"});
  CHECK(paths_of(mixed, {.roots = {"part"}, .sharded = {"part"}}).empty());
  CHECK(paths_of(mixed, {.roots = {"part"}, .sharded = {""}}).size() == 3);
}

TEST_CASE("modules in which all is ignored are left out") {
  CHECK_MESSAGE((paths_of(mixed, {.ignored = {"fc.weight"}}) ==
                 list{"fc", "part.fc", "part.norm", "part", ""}),
                "one that has no state too, once anything is ignored");
  CHECK(paths_of(mixed, {.ignored = {"fc.weight", "fc.bias"}}) ==
        list{"part.fc", "part.norm", "part", ""});
  CHECK_MESSAGE((paths_of(mixed, {.ignored = {"part"}}) == list{"fc", "part.norm", "part", ""}),
                "a module with a buffer stays, and so do those above it");
  CHECK(paths_of(mixed, {.ignored = {""}}) == list{"part.norm", "part", ""});
  // 6 of the attention, and 9 dropouts and activations elsewhere.
  static_assert(ike::managed_modules(tree, {.ignored = {"layers.0.attention"}}).size() == 34);
}

TEST_CASE("what has nothing but ignored parameters is ignorable") {
  const auto at = [](std::string_view path) { return static_cast<std::size_t>(mixed.find(path)); };
  CHECK(ike::is_ignorable(mixed, at("act"), {}));
  CHECK(!ike::is_ignorable(mixed, at("fc"), {}));
  CHECK(ike::is_ignorable(mixed, at("fc"), {"fc"}));
  CHECK(!ike::is_ignorable(mixed, at("fc"), {"f", "fc.weigh"}));
  CHECK(!ike::is_ignorable(mixed, at("part"), {"part"}));
}

TEST_CASE("managed states are the parameters that are not ignored, and the buffers") {
  const list buffers{"part.norm.running_mean", "part.norm.running_var",
                     "part.norm.num_batches_tracked"};
  list expected{"fc.weight",    "fc.bias",          "part.fc.weight",
                "part.fc.bias", "part.norm.weight", "part.norm.bias"};
  expected.insert(expected.end(), buffers.begin(), buffers.end());
  CHECK(states_of(mixed, {}) == expected);

  expected = {"fc.bias", "part.norm.weight", "part.norm.bias"};
  expected.insert(expected.end(), buffers.begin(), buffers.end());
  CHECK(states_of(mixed, {.ignored = {"fc.weight", "part.fc"}}) == expected);
  CHECK(states_of(mixed, {.replicated = {"part"}}) == list{"fc.weight", "fc.bias"});
}

TEST_CASE("a parameter of the network itself is ignored by its name") {
  constexpr auto leaf = ike::module_tree_of(ike::linear<2, 3>{});
  CHECK(states_of(leaf, {.ignored = {"weight"}}) == list{"bias"});
}

TEST_CASE("the groups of a policy are what is managed from each of their modules") {
  using groups = ike::detail::parameter_groups<ike::replicate_policy<
      ike::groups_by_module<"layers", ike::together<"layers.0.attention", "output">, "layers.2">,
      ike::ignored<"layers.1.feed_forward", "layers.2.ffn_norm.bias">>>;
  const auto check = [](std::string_view root, int group) {
    const ike::management said{.roots = {root},
                               .replicated = {"layers", "layers.0.attention", "output", "layers.2"},
                               .ignored = {"layers.1.feed_forward", "layers.2.ffn_norm.bias"}};
    list managed, grouped;
    for (const std::size_t p : ike::managed_states(tree, said).parameters)
      managed.emplace_back(tree.parameters[p].path.view());
    const auto roots = groups::roots.all();
    for (const auto& p : tree.parameters)
      if (const std::string_view path = p.path.view();
          groups::group_of(path) == group &&
          roots[static_cast<std::size_t>(ike::managing_root(path, roots))] == root)
        grouped.emplace_back(path);
    std::ranges::sort(managed);
    std::ranges::sort(grouped);
    CHECK(managed == grouped);
    CHECK_FALSE(managed.empty());
  };
  check("", 0);
  check("layers", 1);
  check("layers.0.attention", 2);
  check("output", 2);
  check("layers.2", 3);
}

TEST_CASE("a path that is not in the network is refused") {
  CHECK_THROWS_WITH_AS(ike::managed_modules(mixed, {.sharded = {"parts"}}),
                       "managed_modules: \"parts\" is not the path of a module", ike::state_error);
  CHECK_THROWS_AS(ike::managed_modules(mixed, {.ignored = {"fc.weights"}}), ike::state_error);
  CHECK_THROWS_AS(ike::managed_states(mixed, {.roots = {"part."}}), ike::state_error);
}
