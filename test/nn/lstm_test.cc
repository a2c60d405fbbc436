#include "ikebana/nn/lstm.hpp"

#include <doctest/doctest.h>

#include "layers.hpp"

using namespace ikebana;

TEST_CASE("lstm computes what PyTorch recorded") {
  const auto compare = [](const char* name, const auto& m, bool training = true) {
    compare_layer("lstm", name, m, training);
  };
  compare("lstm_plain", lstm<4, 3>{});
  compare("lstm_one_step", lstm<3, 5>{});
  compare("lstm_wide", lstm<3, 17>{});
  compare("lstm_states", lstm<3, 5>{});
  compare("lstm_no_bias", lstm<5, 4, bias<false>>{});
  compare("lstm_batch_first", lstm<4, 3, batch_first<true>>{});
  compare("lstm_unbatched", lstm<3, 5>{});
  compare("lstm_bidirectional", lstm<2, 3, bidirectional<true>>{});
  compare("lstm_two_layers", lstm<4, 3, num_layers<2>>{});
  compare("lstm_everything",
          lstm<3, 3, num_layers<2>, bidirectional<true>, batch_first<true>, bias<false>>{});
  compare("lstm_three_layers", lstm<2, 2, num_layers<3>, bidirectional<true>>{});
  compare("lstm_evaluation", lstm<3, 3, num_layers<2>>{.dropout = 0.5}, false);
  compare("lstm_packed", lstm<3, 3, packed<true>>{});
  compare("lstm_packed_states", lstm<2, 5, packed<true>>{});
  compare("lstm_packed_everything",
          lstm<2, 3, packed<true>, num_layers<2>, bidirectional<true>, batch_first<true>>{});
  compare("lstm_packed_three_layers", lstm<2, 3, packed<true>, num_layers<3>>{});
  compare("lstm_projection", lstm<2, 5, proj_size<3>>{});
  compare("lstm_projection_no_bias", lstm<2, 4, proj_size<1>, bias<false>>{});
  compare("lstm_projection_layers", lstm<3, 4, proj_size<2>, num_layers<2>, bidirectional<true>>{});
  compare("lstm_projection_packed", lstm<2, 3, proj_size<2>, packed<true>, num_layers<2>,
                                         bidirectional<true>, batch_first<true>>{});
  CHECK(layers_not_compared("lstm").empty());
}

TEST_CASE("the gradients of lstm are those of its forward") {
  check_gradients(lstm<2, 3>{}, shape_list{shape{3, 2, 2}, shape{1, 2, 3}, shape{1, 2, 3}});
  check_gradients(lstm<2, 3, proj_size<2>, num_layers<2>, bidirectional<true>, batch_first<true>>{},
                  shape_list{shape{2, 3, 2}, shape{4, 2, 2}, shape{4, 2, 3}});
  check_gradients(lstm<2, 2, packed<true>, num_layers<2>, bidirectional<true>>{},
                  shape_list{shape{4, 3, 2}, shape{3}, shape{4, 3, 2}, shape{4, 3, 2}}, true,
                  [](any_leaf_run<double>& run) {
                    run.indices[1][0] = 2, run.indices[1][1] = 4, run.indices[1][2] = 1;
                  });
}

TEST_CASE("an input_size of an lstm that only run time knows gives the same bits") {
  leaf_run<float, lstm<4, 3, packed<true>>> fixed({}, shape_list{shape{5, 2, 4}, shape{2}});
  leaf_run<float, lstm<dynamic, 3, packed<true>>> bound({}, shape_list{shape{5, 2, 4}, shape{2}});
  REQUIRE(bound.parameters.size() == fixed.parameters.size());
  for (any_leaf_run<float>* run :
       {static_cast<any_leaf_run<float>*>(&fixed), static_cast<any_leaf_run<float>*>(&bound)}) {
    fill_random(run->parameters.data(), run->parameters.size(), 1);
    fill_random(run->input.data(), run->input.size(), 2);
    run->indices[1][0] = 3, run->indices[1][1] = 5;
    run->forward();
  }
  for (std::size_t o = 0; o < 3; ++o)
    for (dim_t i = 0; i < fixed.outputs[o].size(); ++i)
      CHECK(fixed.outputs[o][i] == bound.outputs[o][i]);
}

TEST_CASE("an lstm takes an empty batch") {
  check_empty_batch(lstm<3, 2, num_layers<2>, bidirectional<true>, proj_size<1>>{}, shape{4, 0, 3});
  check_empty_batch(lstm<3, 2, packed<true>>{}, shape_list{shape{4, 0, 3}, shape{0}});
}

TEST_CASE("an lstm says what is wrong with its inputs") {
  const auto says = [](const auto& m, const auto&... in) {
    return sentence_of(m.infer(shape_list{in...}));
  };
  CHECK(says(lstm<4, 3>{}, shape{5, 2, 6}) ==
        "lstm expects input_size = 4, got 6 (input [5, 2, 6])");
  CHECK(says(lstm<4, 3>{}, shape{4}) ==
        "lstm expects an input of 2 (unbatched) or 3 dimensions, got 1 (input [4])");
  CHECK(says(lstm<4, 3>{}, shape{0, 2, 4}) ==
        "lstm expects a sequence of at least 1 step, got 0 (input [0, 2, 4])");
  CHECK(says(lstm<4, 3, batch_first<true>>{}, shape{2, 0, 4}) ==
        "lstm expects a sequence of at least 1 step, got 0 (input [2, 0, 4])");
  CHECK(says(lstm<4, 3>{}, shape{5, 2, 4}, shape{1, 2, 3}) ==
        "lstm expects an input and all initial states or none, got 2 inputs");
  CHECK(says(lstm<4, 3>{}, shape{5, 2, 4}, shape{2, 2, 3}, shape{1, 2, 3}) ==
        "lstm expects h_0 of shape [1, 2, 3], got [2, 2, 3]");
  CHECK(says(lstm<4, 3, proj_size<2>>{}, shape{5, 4}, shape{1, 2}, shape{1, 2}) ==
        "lstm expects c_0 of shape [1, 3], got [1, 2]");
  CHECK(says(lstm<4, 3, packed<true>>{}, shape{5, 2, 4}) ==
        "lstm expects an input, its lengths and all initial states or none, got 1 inputs");
  CHECK(says(lstm<4, 3, packed<true>>{}, shape{5, 4}, shape{5}) ==
        "lstm that is packed expects an input of 3 dimensions, got 2 (input [5, 4])");
  CHECK(says(lstm<4, 3, packed<true>>{}, shape{5, 2, 4}, shape{5}) ==
        "lstm expects lengths of shape [2], got [5]");
  CHECK(says(lstm<4, 3, stateful<2>>{}, shape{5, 3, 4}) ==
        "lstm keeps the states of a batch of 2, got 3 (input [5, 3, 4])");
  CHECK(says(lstm<4, 3, stateful<1>>{}, shape{5, 1, 4}, shape{1, 1, 3}, shape{1, 1, 3}) ==
        "lstm that is stateful expects 1 inputs, no initial states, got 3");
  const inferred made = lstm<4, 3, num_layers<2>, bidirectional<true>, proj_size<2>>{}.infer(
      shape_list{shape{dynamic, dynamic, 4}});
  REQUIRE(made.outputs.size() == 3);
  CHECK(made.output(0) == shape{dynamic, dynamic, 4});
  CHECK(made.output(1) == shape{4, dynamic, 2});
  CHECK(made.output(2) == shape{4, dynamic, 3});
}

TEST_CASE("a lazy lstm becomes what the first input brings") {
  static_assert(lazy_lstm<3>::is_lazy);
  static_assert(std::is_same_v<decltype(lazy_lstm<3>{}.become<shape{5, 2, 4}>()), lstm<4, 3>>);
  static_assert(std::is_same_v<
                decltype(lazy_lstm<3, packed<true>>{}.become<shape{5, 2, dynamic}, shape{2}>()),
                lstm<dynamic, 3, packed<true>>>);
  CHECK(lazy_lstm<3, num_layers<2>>{.dropout = 0.25}.become<shape{5, 4}>().dropout == 0.25);
  CHECK(lazy_lstm<3>{}.infer(shape_list{shape{5, 2, 4}}).output(0) == shape{5, 2, 3});
  lstm<dynamic, 3> loaded;
  const shape parameters[] = {shape{12, 7}, shape{12, 3}, shape{12}, shape{12}};
  loaded.bind_state(parameters, {});
  CHECK(loaded.input_size.value() == 7);
}

TEST_CASE("an lstm draws its parameters within 1 / sqrt(hidden_size)") {
  leaf_run<double, lstm<5, 16, num_layers<2>, proj_size<3>>> run({}, shape{2, 1, 5});
  run.initialize(seed{3});
  double most = 0;
  for (double x : run.parameters.span()) most = std::max(most, std::abs(x));
  CHECK(most <= 0.25);
  CHECK(most > 0.24);
}

TEST_CASE("an lstm describes itself by PyTorch's names") {
  CHECK(described(lstm<10, 3>{}) == "input_size=10, hidden_size=3");
  CHECK(described(lazy_lstm<4, num_layers<2>, bias<false>, batch_first<true>, bidirectional<true>,
                            proj_size<3>, packed<true>, stateful<8>>{.dropout = 0.5}) ==
        "input_size=lazy, hidden_size=4, proj_size=3, num_layers=2, bias=false, batch_first=true, "
        "dropout=0.5, bidirectional=true, packed=true, stateful=8");
  // 12 rows of 4 weights for x and of 3 for h, 2 * 5 times.
  CHECK(lstm<4, 3>{}.multiply_adds(shape_list{shape{5, 2, 4}}, shape_list{}) == 840);
  CHECK(lstm<4, 3, num_layers<2>, bidirectional<true>, proj_size<2>>{}.multiply_adds(
            shape_list{shape{1, 4}}, shape_list{}) ==
        2 * (12 * (4 + 2) + 2 * 3) + 2 * (12 * (4 + 2) + 2 * 3));
}
