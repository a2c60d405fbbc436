#include <doctest/doctest.h>

#include <cmath>
#include <cstring>
#include <vector>

#include "ikebana/nn/lstm.hpp"
#include "ikebana/nn/rnn.hpp"
#include "leaf_run.hpp"

using namespace ikebana;

TEST_CASE("dropout falls between layers, in training") {
  check_gradients(lstm<2, 3, num_layers<3>>{.dropout = 0.4}, shape{3, 2, 2});
  check_gradients(lstm<2, 3, num_layers<2>, packed<true>>{.dropout = 0.4},
                  shape_list{shape{3, 2, 2}, shape{2}}, true,
                  [](any_leaf_run<double>& run) { run.indices[1][0] = 2, run.indices[1][1] = 3; });

  // Three layers that pass their input on: an output is what two masks let through.
  constexpr dim_t hidden = 1000;
  leaf_run<double, rnn<1, hidden, num_layers<3>, nonlinearity<"relu">, bias<false>>> run(
      {.dropout = 0.25}, shape{1, 1, 1});
  run.input[0] = 1;
  for (dim_t i = 0; i < hidden; ++i) {
    run.parameter(0)[i] = 1;
    run.parameter(2)[i * hidden + i] = run.parameter(4)[i * hidden + i] = 1;
  }
  run.forward(false);
  for (double y : run.output.span()) CHECK(y == 1);
  const auto forward = [&] {
    run.forward();
    return std::vector<double>(run.output.data(), run.output.data() + hidden);
  };
  const std::vector<double> once = forward();
  dim_t kept = 0;
  for (double y : once) {
    CHECK((y == 0 || std::abs(y - 1 / (0.75 * 0.75)) < 1e-12));
    kept += y != 0;
  }
  CHECK(std::abs(static_cast<double>(kept) / hidden - 0.75 * 0.75) < 0.063);  // four sigma
  CHECK(forward() == once);
  run.stream.step = 4;
  CHECK(forward() != once);
  CHECK_THROWS_AS(static_cast<void>(lstm<1, 2, num_layers<2>>{.dropout = 1.5}), error);
}

TEST_CASE("an lstm never reads what stands beyond a length") {
  using module = lstm<2, 3, packed<true>, bidirectional<true>>;
  leaf_run<double, module> run({}, shape_list{shape{4, 2, 2}, shape{2}});
  fill_random(run.parameters.data(), run.parameters.size(), 1);
  fill_random(run.input.data(), run.input.size(), 2);
  fill_random(run.output_gradient.data(), run.output_gradient.size(), 3);
  run.indices[1][0] = 4, run.indices[1][1] = 2;
  for (dim_t t = 2; t < 4; ++t)
    for (dim_t i = 0; i < 2; ++i) run.input[(t * 2 + 1) * 2 + i] = std::nan("");
  run.forward();
  run.backward(false);
  for (const auto* x :
       {&run.outputs[0], &run.outputs[1], &run.outputs[2], &run.input_gradient, &run.gradients})
    for (double v : x->span()) CHECK(std::isfinite(v));
  for (dim_t t = 2; t < 4; ++t) {
    for (dim_t i = 0; i < 6; ++i) CHECK(run.output[(t * 2 + 1) * 6 + i] == 0);
    for (dim_t i = 0; i < 2; ++i) CHECK(run.input_gradient[(t * 2 + 1) * 2 + i] == 0);
  }
  // If all sequences end before the input does, as if it were shorter.
  run.indices[1][0] = 2;
  run.forward();
  leaf_run<double, lstm<2, 3, bidirectional<true>>> shorter({}, shape{2, 2, 2});
  fill_random(shorter.parameters.data(), shorter.parameters.size(), 1);
  fill_random(shorter.input.data(), shorter.input.size(), 2);
  shorter.forward();
  for (dim_t i = 0; i < shorter.output.size(); ++i) CHECK(run.output[i] == shorter.output[i]);
  for (dim_t i = shorter.output.size(); i < run.output.size(); ++i) CHECK(run.output[i] == 0);
}

TEST_CASE("an lstm refuses lengths that no sequence has") {
  leaf_run<float, lstm<2, 3, packed<true>>> run({}, shape_list{shape{4, 2, 2}, shape{2}});
  run.indices[1][0] = 4;
  CHECK_THROWS_WITH_AS(run.forward(), "lstm expects lengths between 1 and 4, got 0", shape_error);
  run.indices[1][1] = 5;
  CHECK_THROWS_WITH_AS(run.forward(), "lstm expects lengths between 1 and 4, got 5", shape_error);
  run.indices[1][1] = -1;
  CHECK_THROWS_WITH_AS(run.forward(), "lstm expects lengths between 1 and 4, got -1", shape_error);
  run.indices[1][1] = -2;
  CHECK_THROWS_WITH_AS(run.forward(), "lstm expects lengths between 1 and 4, got -2", shape_error);
}

TEST_CASE("a stateful lstm goes on where its last call ended") {
  using whole_module = lstm<2, 3, num_layers<2>, proj_size<2>>;
  using part_module = lstm<2, 3, num_layers<2>, proj_size<2>, stateful<2>>;
  leaf_run<double, whole_module> whole({}, shape{6, 2, 2});
  leaf_run<double, part_module> part({}, shape{3, 2, 2});
  REQUIRE(part.buffer_specs.size() == 3);
  CHECK(part.buffer_specs[0].extents == shape{2, 2, 2});
  CHECK(part.buffer_specs[1].extents == shape{2, 2, 3});
  CHECK_FALSE(part.buffer_specs[0].persistent);
  for (auto* x : {&whole.parameters, &part.parameters}) fill_random(x->data(), x->size(), 1);
  fill_random(whole.input.data(), whole.input.size(), 2);
  whole.forward(false);
  for (bool training : {true, false})
    for (dim_t half = 0; half < 2; ++half) {
      std::memcpy(part.input.data(), whole.input.data() + half * 12, 12 * sizeof(double));
      part.forward(training);
      // The products of a longer sequence may be summed in another order.
      for (dim_t i = 0; i < 12; ++i)
        CHECK(part.output[i] == doctest::Approx(whole.output[half * 12 + i]).epsilon(1e-12));
      if (half == 1)
        for (std::size_t b = 0; b < 2; ++b)
          std::memset(part.buffer(b), 0, sizeof(double) * (b == 0 ? 8 : 12));
    }
  for (std::size_t o = 1; o < 3; ++o)
    for (dim_t i = 0; i < whole.outputs[o].size(); ++i)
      CHECK(part.outputs[o][i] == doctest::Approx(whole.outputs[o][i]).epsilon(1e-12));
  check_gradients(part_module{}, shape{3, 2, 2});
  check_gradients(lstm<2, 3, stateful<1>>{}, shape{3, 2});
}

TEST_CASE("an lstm's states carry over by being passed on") {
  leaf_run<float, lstm<2, 3>> whole({}, shape{4, 2});
  leaf_run<float, lstm<2, 3>> part({}, shape_list{shape{2, 2}, shape{1, 3}, shape{1, 3}});
  for (auto* x : {&whole.parameters, &part.parameters}) fill_random(x->data(), x->size(), 1);
  fill_random(whole.input.data(), whole.input.size(), 2);
  whole.forward();
  for (dim_t half = 0; half < 2; ++half) {
    std::memcpy(part.input.data(), whole.input.data() + half * 4, 4 * sizeof(float));
    part.forward();
    for (dim_t i = 0; i < 6; ++i) CHECK(part.output[i] == whole.output[half * 6 + i]);
    for (std::size_t s = 1; s < 3; ++s)
      std::memcpy(part.inputs[s].data(), part.outputs[s].data(), 3 * sizeof(float));
  }
}
