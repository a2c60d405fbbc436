#include "ikebana/nn/rnn_cell.hpp"

#include <doctest/doctest.h>

#include "layers.hpp"

using namespace ikebana;

TEST_CASE("recurrent cells compute what PyTorch recorded") {
  const auto compare = [](const char* name, const auto& m) { compare_layer("recurrent", name, m); };
  compare("cell_rnn", rnn_cell<4, 5>{});
  compare("cell_rnn_wide", rnn_cell<3, 19>{});
  compare("cell_rnn_no_state", rnn_cell<2, 3>{});
  compare("cell_rnn_unbatched", rnn_cell<4, 3>{});
  compare("cell_rnn_no_bias", rnn_cell<5, 4, bias<false>>{});
  compare("cell_rnn_relu", rnn_cell<3, 5, nonlinearity<"relu">>{});
  compare("cell_lstm", lstm_cell<4, 5>{});
  compare("cell_lstm_wide", lstm_cell<3, 19>{});
  compare("cell_lstm_no_state", lstm_cell<2, 3>{});
  compare("cell_lstm_unbatched", lstm_cell<4, 3>{});
  compare("cell_lstm_no_bias", lstm_cell<5, 4, bias<false>>{});
  compare("cell_gru", gru_cell<4, 5>{});
  compare("cell_gru_wide", gru_cell<3, 19>{});
  compare("cell_gru_no_state", gru_cell<2, 3>{});
  compare("cell_gru_unbatched", gru_cell<4, 3>{});
  compare("cell_gru_no_bias", gru_cell<5, 4, bias<false>>{});
  CHECK(layers_not_compared("recurrent", "cell_").empty());
}

TEST_CASE("the gradients of recurrent cells are those of their forward") {
  check_gradients(rnn_cell<3, 2>{}, shape_list{shape{2, 3}, shape{2, 2}});
  check_gradients(lstm_cell<2, 3>{}, shape_list{shape{2, 2}, shape{2, 3}, shape{2, 3}});
  check_gradients(lstm_cell<3, 2, bias<false>>{}, shape{3});
  check_gradients(gru_cell<2, 3>{}, shape_list{shape{2, 2}, shape{2, 3}});
}

TEST_CASE("an input_size of a cell that only run time knows gives the same bits") {
  const shape_list ins{shape{3, 4}, shape{3, 5}, shape{3, 5}};
  leaf_run<float, lstm_cell<4, 5>> fixed({}, ins);
  leaf_run<float, lstm_cell<dynamic, 5>> bound({}, ins);
  for (any_leaf_run<float>* run :
       {static_cast<any_leaf_run<float>*>(&fixed), static_cast<any_leaf_run<float>*>(&bound)}) {
    fill_random(run->parameters.data(), run->parameters.size(), 1);
    for (std::size_t i = 0; i < 3; ++i)
      fill_random(run->inputs[i].data(), run->inputs[i].size(), 2 + i);
    run->forward();
  }
  for (std::size_t o = 0; o < 2; ++o)
    for (dim_t i = 0; i < 15; ++i) CHECK(fixed.outputs[o][i] == bound.outputs[o][i]);
}

TEST_CASE("recurrent cells take an empty batch") {
  check_empty_batch(lstm_cell<3, 2>{}, shape{0, 3});
  check_empty_batch(gru_cell<3, 2>{}, shape_list{shape{0, 3}, shape{0, 2}});
}

TEST_CASE("recurrent cells say what is wrong with their inputs") {
  CHECK(sentence_of(rnn_cell<3, 2>{}.infer(shape_list{shape{4, 5}})) ==
        "rnn_cell expects input_size = 3, got 5 (input [4, 5])");
  CHECK(sentence_of(gru_cell<3, 2>{}.infer(shape_list{shape{1, 4, 3}})) ==
        "gru_cell expects an input of 1 (unbatched) or 2 dimensions, got 3 (input [1, 4, 3])");
  CHECK(sentence_of(lstm_cell<3, 2>{}.infer(shape_list{shape{4, 3}, shape{4, 2}})) ==
        "lstm_cell expects an input and all states or none, got 2 inputs");
  CHECK(sentence_of(lstm_cell<3, 2>{}.infer(shape_list{shape{4, 3}, shape{4, 2}, shape{2}})) ==
        "lstm_cell expects states of shape [4, 2], got [2]");
  const inferred made =
      lstm_cell<3, 2>{}.infer(shape_list{shape{dynamic, 3}, shape{dynamic, 2}, shape{dynamic, 2}});
  CHECK(made.output(0) == shape{dynamic, 2});
  CHECK(made.output(1) == shape{dynamic, 2});
}

TEST_CASE("a lazy cell becomes what the first input brings") {
  static_assert(lazy_gru_cell<3>::is_lazy);
  static_assert(
      std::is_same_v<decltype(lazy_lstm_cell<3>{}.become<shape{5, 4}>()), lstm_cell<4, 3>>);
  static_assert(std::is_same_v<
                decltype(lazy_rnn_cell<3, bias<false>>{}.become<shape{5, dynamic}, shape{5, 3}>()),
                rnn_cell<dynamic, 3, bias<false>>>);
  gru_cell<dynamic, 3> loaded;
  const shape parameters[] = {shape{9, 7}, shape{9, 3}, shape{9}, shape{9}};
  loaded.bind_state(parameters, {});
  CHECK(loaded.input_size.value() == 7);
}

TEST_CASE("recurrent cells describe themselves by PyTorch's names") {
  CHECK(lstm_cell<3, 2>::kind == "lstm_cell");
  CHECK(described(lstm_cell<3, 2>{}) == "input_size=3, hidden_size=2");
  CHECK(described(lazy_rnn_cell<2, bias<false>, nonlinearity<"relu">>{}) ==
        "input_size=lazy, hidden_size=2, nonlinearity=relu, bias=false");
  CHECK(lstm_cell<3, 2>{}.multiply_adds(shape_list{shape{4, 3}}, shape_list{shape{4, 2}}) == 160);
}
