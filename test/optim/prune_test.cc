#include "ikebana/model/prune.hpp"

#include <doctest/doctest.h>

#include <array>
#include <cmath>
#include <limits>
#include <string>

#include "ikebana/compose/sequential.hpp"
#include "ikebana/model/initialize.hpp"
#include "ikebana/model/state.hpp"
#include "ikebana/nn/linear.hpp"
#include "ikebana/nn/loss.hpp"
#include "ikebana/optim/adam.hpp"
#include "ikebana/optim/sgd.hpp"
#include "test/support/load_recorded.hpp"

namespace ike = ikebana;
using namespace ike::literals;
using ike::dim_t;
using ike::shape;

namespace {

constexpr auto pruned_net = ike::sequential("fc"_m = ike::linear<7, 5>{});
constexpr shape pruned_in{4, 7}, pruned_out{4, 5};

template <shape S>
auto pruning(const std::string& name) {
  static const ike::state_dict all = load_recorded("prune");
  return all.at(name).view<double, S>();
}
template <class A, class B>
void check_equal(const A& a, const B& b) {
  for (dim_t i = 0; i < b.size(); ++i) CHECK(std::fabs(a[i] - b[i]) < 1e-14);
}

template <class F>
void compare_pruned(const std::string& name, const F& prune) {
  CAPTURE(name);
  auto model = ike::initialize<double, pruned_in>(pruned_net, ike::seed{1});
  for (dim_t i = 0; i < 35; ++i) model["fc.weight"_s][i] = pruning<shape{5, 7}>("weight")[i];
  for (dim_t i = 0; i < 5; ++i) model["fc.bias"_s][i] = pruning<shape{5}>("bias")[i];
  prune(model);
  check_equal(model["fc.weight"_s], pruning<shape{5, 7}>(name + "/pruned"));
  ike::sgd optimizer{model, {.lr = 0.2}};
  for (int i = 0; i < 4; ++i)
    model.train_step(pruning<pruned_in>("x"), pruning<pruned_out>("t"), ike::mse_loss{}, optimizer);
  check_equal(model["fc.weight"_s], pruning<shape{5, 7}>(name + "/trained"));
  check_equal(model["fc.bias"_s], pruning<shape{5}>(name + "/trained_bias"));
}

}  // namespace

TEST_CASE("what is pruned, and trained then, is what PyTorch recorded") {
  namespace prune = ike::prune;
  compare_pruned("l1", [](auto& m) { prune::l1_unstructured<"fc.weight">(m, 0.3); });
  compare_pruned("l1_count", [](auto& m) { prune::l1_unstructured<"*.weight">(m, 5); });
  compare_pruned("l1_twice", [](auto& m) {
    prune::l1_unstructured<"fc.weight">(m, 0.3);
    prune::l1_unstructured<"fc.weight">(m, 0.5);
  });
  compare_pruned("l2_rows", [](auto& m) { prune::ln_structured<"fc.weight">(m, 0.5, 2, 0); });
  compare_pruned("l1_columns", [](auto& m) { prune::ln_structured<"fc.weight">(m, 2, 1, -1); });
  compare_pruned("max_columns_then_l1", [](auto& m) {
    prune::ln_structured<"fc.weight">(m, 1, std::numeric_limits<double>::infinity(), 1);
    prune::l1_unstructured<"fc.weight">(m, 0.25);
  });
  compare_pruned("global", [](auto& m) { prune::global_l1_unstructured<"fc">(m, 0.4); });
}

TEST_CASE("pruned elements stay zero with momentum and weight decay, until they are removed") {
  auto model = ike::initialize<float, pruned_in>(pruned_net, ike::seed{1});
  ike::adamw optimizer{model, {.lr = 0.1}};
  const auto x = ike::uniform<float, pruned_in>(ike::seed{2});
  const auto t = ike::uniform<float, pruned_out>(ike::seed{3});
  const auto zeros = [&] {
    int n = 0;
    for (dim_t i = 0; i < 35; ++i) n += model["fc.weight"_s][i] == 0;
    return n;
  };
  model.train_step(x, t, ike::mse_loss{}, optimizer);
  ike::prune::random_unstructured<"fc.weight">(model, 0.4, ike::seed{4});
  CHECK(zeros() == 14);
  ike::prune::random_structured<"fc.weight">(model, 1, 1, ike::seed{5});
  const int all = zeros();
  CHECK(all > 14);
  CHECK(ike::prune::pruned_count<"fc">(model) == all);
  for (int i = 0; i < 3; ++i) model.train_step(x, t, ike::mse_loss{}, optimizer);
  CHECK(zeros() == all);
  ike::prune::remove<"fc.weight">(model);
  CHECK(zeros() == all);
  model.train_step(x, t, ike::mse_loss{}, optimizer);
  CHECK(zeros() == 0);
  const std::array<bool, 5> mask{true, false, true, true, false};
  ike::prune::custom_from_mask<"fc.bias">(model, mask);
  CHECK(model["fc.bias"_s][1] == 0);
  CHECK(model["fc.bias"_s][2] != 0);
}

TEST_CASE("an amount to prune that is not there is refused before anything has changed") {
  auto model = ike::initialize<float, pruned_in>(pruned_net, ike::seed{1});
  const float before = model["fc.weight"_s][0];
  CHECK_THROWS_AS(ike::prune::l1_unstructured<"fc.weight">(model, 1.5), ike::error);
  CHECK_THROWS_AS(ike::prune::l1_unstructured<"fc.weight">(model, 36), ike::error);
  CHECK_THROWS_AS(ike::prune::ln_structured<"fc.weight">(model, 1, 2, 2), ike::error);
  const std::array<bool, 4> mask{};
  CHECK_THROWS_AS(ike::prune::custom_from_mask<"fc.bias">(model, mask), ike::error);
  CHECK(model["fc.weight"_s][0] == before);
  CHECK(ike::prune::pruned_count<"fc">(model) == 0);
}
