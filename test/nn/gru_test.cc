#include "ikebana/nn/gru.hpp"

#include <doctest/doctest.h>

#include "layers.hpp"

using namespace ikebana;

TEST_CASE("gru computes what PyTorch recorded") {
  const auto compare = [](const char* name, const auto& m, bool training = true) {
    compare_layer("recurrent", name, m, training);
  };
  compare("gru_plain", gru<4, 3>{});
  compare("gru_wide", gru<3, 17>{});
  compare("gru_states", gru<3, 5>{});
  compare("gru_no_bias", gru<5, 4, bias<false>>{});
  compare("gru_batch_first", gru<4, 3, batch_first<true>>{});
  compare("gru_unbatched", gru<3, 5>{});
  compare("gru_bidirectional", gru<2, 3, bidirectional<true>>{});
  compare("gru_everything",
          gru<3, 3, num_layers<2>, bidirectional<true>, batch_first<true>, bias<false>>{});
  compare("gru_evaluation", gru<3, 3, num_layers<2>>{.dropout = 0.5}, false);
  compare("gru_packed", gru<3, 3, packed<true>>{});
  compare("gru_packed_everything",
          gru<2, 3, packed<true>, num_layers<2>, bidirectional<true>, batch_first<true>>{});
  CHECK(layers_not_compared("recurrent", "gru_").empty());
}

TEST_CASE("the gradients of gru are those of its forward") {
  check_gradients(gru<2, 3>{}, shape_list{shape{3, 2, 2}, shape{1, 2, 3}});
  check_gradients(
      gru<2, 2, num_layers<3>, bidirectional<true>, batch_first<true>, packed<true>>{.dropout =
                                                                                         0.3},
      shape_list{shape{3, 4, 2}, shape{3}, shape{6, 3, 2}}, true, [](any_leaf_run<double>& run) {
        run.indices[1][0] = 2, run.indices[1][1] = 4, run.indices[1][2] = 1;
      });
}

TEST_CASE("a stateful gru goes on where its last call ended") {
  leaf_run<double, gru<2, 3, batch_first<true>>> whole({}, shape{1, 6, 2});
  leaf_run<double, gru<2, 3, batch_first<true>, stateful<1>>> part({}, shape{3, 2});
  REQUIRE(part.buffer_specs.size() == 2);
  for (auto* x : {&whole.parameters, &part.parameters}) fill_random(x->data(), x->size(), 1);
  fill_random(whole.input.data(), whole.input.size(), 2);
  whole.forward();
  for (dim_t half = 0; half < 2; ++half) {
    std::memcpy(part.input.data(), whole.input.data() + half * 6, 6 * sizeof(double));
    part.forward(half == 0);
    for (dim_t i = 0; i < 9; ++i) CHECK(part.output[i] == whole.output[half * 9 + i]);
  }
  // A single step has a kernel of its own.
  leaf_run<double, gru<2, 3, batch_first<true>, stateful<1>>> step({}, shape{1, 2});
  std::memcpy(step.parameters.data(), whole.parameters.data(),
              static_cast<std::size_t>(whole.parameters.size()) * sizeof(double));
  for (dim_t t = 0; t < 6; ++t) {
    std::memcpy(step.input.data(), whole.input.data() + t * 2, 2 * sizeof(double));
    step.forward(t % 2 == 0);
    for (dim_t i = 0; i < 3; ++i)
      CHECK(step.output[i] == doctest::Approx(whole.output[t * 3 + i]).epsilon(1e-12));
  }
  check_gradients(gru<2, 3, stateful<1>>{}, shape{1, 2});
}

TEST_CASE("an empty batch and wrong inputs of gru") {
  check_empty_batch(gru<3, 2, num_layers<2>>{}, shape_list{shape{4, 0, 3}, shape{2, 0, 2}});
  CHECK(sentence_of(gru<4, 3>{}.infer(shape_list{shape{5, 2, 6}})) ==
        "gru expects input_size = 4, got 6 (input [5, 2, 6])");
  CHECK(
      sentence_of(gru<4, 3>{}.infer(shape_list{shape{5, 2, 4}, shape{1, 2, 3}, shape{1, 2, 3}})) ==
      "gru expects an input and all initial states or none, got 3 inputs");
  CHECK(gru<4, 3>{}.infer(shape_list{shape{5, dynamic, 4}}).outputs.size() == 2);
}

TEST_CASE("a lazy gru becomes what the first input brings, and describes itself") {
  static_assert(lazy_gru<3>::is_lazy);
  static_assert(std::is_same_v<decltype(lazy_gru<3>{}.become<shape{5, 2, 4}>()), gru<4, 3>>);
  CHECK(described(lazy_gru<3, bias<false>>{}) == "input_size=lazy, hidden_size=3, bias=false");
}
