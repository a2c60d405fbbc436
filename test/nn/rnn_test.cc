#include "ikebana/nn/rnn.hpp"

#include <doctest/doctest.h>

#include "layers.hpp"

using namespace ikebana;

TEST_CASE("rnn computes what PyTorch recorded") {
  const auto compare = [](const char* name, const auto& m, bool training = true) {
    compare_layer("recurrent", name, m, training);
  };
  compare("rnn_plain", rnn<4, 3>{});
  compare("rnn_wide", rnn<3, 17>{});
  compare("rnn_states", rnn<3, 5>{});
  compare("rnn_no_bias", rnn<5, 4, bias<false>>{});
  compare("rnn_batch_first", rnn<4, 3, batch_first<true>>{});
  compare("rnn_unbatched", rnn<3, 5>{});
  compare("rnn_bidirectional", rnn<2, 3, bidirectional<true>>{});
  compare("rnn_everything",
          rnn<3, 3, num_layers<2>, bidirectional<true>, batch_first<true>, bias<false>>{});
  compare("rnn_evaluation", rnn<3, 3, num_layers<2>>{.dropout = 0.5}, false);
  compare("rnn_packed", rnn<3, 3, packed<true>>{});
  compare("rnn_packed_everything",
          rnn<2, 3, packed<true>, num_layers<2>, bidirectional<true>, batch_first<true>>{});
  compare("rnn_relu", rnn<4, 5, num_layers<2>, bidirectional<true>, nonlinearity<"relu">>{});
  CHECK(layers_not_compared("recurrent", "rnn_").empty());
}

TEST_CASE("the gradients of rnn are those of its forward") {
  check_gradients(rnn<2, 3>{}, shape_list{shape{3, 2, 2}, shape{1, 2, 3}});
  check_gradients(
      rnn<2, 2, num_layers<3>, bidirectional<true>, batch_first<true>, packed<true>>{.dropout =
                                                                                         0.3},
      shape_list{shape{3, 4, 2}, shape{3}, shape{6, 3, 2}}, true, [](any_leaf_run<double>& run) {
        run.indices[1][0] = 2, run.indices[1][1] = 4, run.indices[1][2] = 1;
      });
}

TEST_CASE("a stateful rnn goes on where its last call ended") {
  leaf_run<double, rnn<2, 3, batch_first<true>>> whole({}, shape{1, 6, 2});
  leaf_run<double, rnn<2, 3, batch_first<true>, stateful<1>>> part({}, shape{3, 2});
  REQUIRE(part.buffer_specs.size() == 2);
  for (auto* x : {&whole.parameters, &part.parameters}) fill_random(x->data(), x->size(), 1);
  fill_random(whole.input.data(), whole.input.size(), 2);
  whole.forward();
  for (dim_t half = 0; half < 2; ++half) {
    std::memcpy(part.input.data(), whole.input.data() + half * 6, 6 * sizeof(double));
    part.forward(half == 0);
    for (dim_t i = 0; i < 9; ++i) CHECK(part.output[i] == whole.output[half * 9 + i]);
  }
}

TEST_CASE("an empty batch and wrong inputs of rnn") {
  check_empty_batch(rnn<3, 2, num_layers<2>>{}, shape_list{shape{4, 0, 3}, shape{2, 0, 2}});
  CHECK(sentence_of(rnn<4, 3>{}.infer(shape_list{shape{5, 2, 6}})) ==
        "rnn expects input_size = 4, got 6 (input [5, 2, 6])");
  CHECK(
      sentence_of(rnn<4, 3>{}.infer(shape_list{shape{5, 2, 4}, shape{1, 2, 3}, shape{1, 2, 3}})) ==
      "rnn expects an input and all initial states or none, got 3 inputs");
  CHECK(rnn<4, 3>{}.infer(shape_list{shape{5, dynamic, 4}}).outputs.size() == 2);
}

TEST_CASE("a lazy rnn becomes what the first input brings, and describes itself") {
  static_assert(lazy_rnn<3>::is_lazy);
  static_assert(std::is_same_v<decltype(lazy_rnn<3>{}.become<shape{5, 2, 4}>()), rnn<4, 3>>);
  CHECK(described(lazy_rnn<3, bias<false>>{}) == "input_size=lazy, hidden_size=3, bias=false");
}

TEST_CASE("rnn describes its nonlinearity") {
  CHECK(described(rnn<4, 3, nonlinearity<"relu">>{}) ==
        "input_size=4, hidden_size=3, nonlinearity=relu");
  CHECK(described(rnn<4, 3, nonlinearity<"tanh">>{}) == "input_size=4, hidden_size=3");
}
