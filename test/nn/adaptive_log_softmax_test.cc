#include "ikebana/nn/adaptive_log_softmax.hpp"

#include <doctest/doctest.h>

#include <cstdint>
#include <string>

#include "ikebana/compose/loss.hpp"
#include "ikebana/model/initialize.hpp"
#include "ikebana/model/state.hpp"
#include "ikebana/nn/loss.hpp"
#include "ikebana/ops.hpp"
#include "ikebana/optim/sgd.hpp"
#include "layers.hpp"

using namespace ikebana;

namespace {

using two = adaptive_log_softmax<9, 12, cutoffs<3, 7>>;
using biased = adaptive_log_softmax<5, 8, cutoffs<2>, div_value<5, 2>, head_bias<true>>;
using three = adaptive_log_softmax<8, 20, cutoffs<4, 9, 13>, div_value<2>>;

}  // namespace

TEST_CASE("adaptive_log_softmax computes what PyTorch recorded") {
  const auto check = [](const std::string& name, const auto& m) {
    compare_layer("adaptive_softmax", name, m);
  };
  check("log_prob", two{});
  check("output", two{});
  check("log_prob_bias", biased{});
  check("output_bias", biased{});
  check("log_prob_three", three{});
  check("output_three", three{});
  check("output_of_the_head", adaptive_log_softmax<4, 6, cutoffs<3>>{});
  CHECK(layers_not_compared("adaptive_softmax").empty());
}

TEST_CASE("the gradients of adaptive_log_softmax are those of its forward") {
  check_gradients(adaptive_log_softmax<4, 7, cutoffs<2, 4>, div_value<2>, head_bias<true>>{},
                  shape{3, 4});
  check_gradients(adaptive_log_softmax<4, 7, cutoffs<2, 4>, div_value<2>>{},
                  shape_list{shape{5, 4}, shape{5}}, true, [](any_leaf_run<double>& run) {
                    for (dim_t i = 0; i < 5; ++i) run.indices[1][i] = i * 3 % 7;
                  });
}

TEST_CASE("adaptive_log_softmax takes an empty batch, and says what is wrong") {
  check_empty_batch(two{}, shape{0, 9});
  check_empty_batch(two{}, {shape{0, 9}, shape{0}});
  CHECK(sentence_of(two{}.infer(shape_list{shape{3, 8}})) ==
        "adaptive_log_softmax expects in_features = 9, got 8 (input [3, 8])");
  CHECK(sentence_of(two{}.infer(shape_list{shape{3, 9}, shape{4}})) ==
        "adaptive_log_softmax expects a target for each row, [3], got [4]");
  CHECK(described(biased{}) ==
        "in_features=5, n_classes=8, cutoffs=2, div_value=2.5, head_bias=true");
  auto net = initialize<float, shape{2, 9}, shape{2}>(two{}, seed{1});
  CHECK_THROWS_WITH_AS(net(zeros<float, shape{2, 9}>(), tensor_of<std::int64_t, shape{2}>({0, 12})),
                       "adaptive_log_softmax expects targets from 0 to 11, got 12", error);
}

TEST_CASE("a network with adaptive_log_softmax trains on minus the mean") {
  auto net = initialize<float, shape{4, 9}, shape{4}>(two{}, seed{1});
  const auto x = uniform<float, shape{4, 9}>(seed{2});
  const auto t = tensor_of<std::int64_t, shape{4}>({0, 4, 11, 7});
  sgd optimizer{net, {.lr = 0.5}};
  const auto step = [&] {
    return net.train_step(
        inputs(x, t), zeros<float, shape{4}>(), [](auto y, auto zero) { return mean(zero - y); },
        optimizer);
  };
  const float before = step();
  for (int i = 0; i < 20; ++i) step();
  CHECK(step() < before / 2);
  // The other use of the same parameters gives the same numbers.
  auto all = initialize<float, shape{4, 9}>(two{}, seed{3});
  load_state_dict(all, get_state_dict(net));
  net.eval();
  all.eval();
  const auto of_targets = net(x, t);
  const auto of_all = all(x);
  for (dim_t i = 0; i < 4; ++i) CHECK(of_targets[i] == doctest::Approx(of_all(i, t[i])));
}
