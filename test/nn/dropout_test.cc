#include "ikebana/nn/dropout.hpp"

#include <doctest/doctest.h>

#include "ikebana/cpu/dispatch.hpp"
#include "leaf_run.hpp"

using namespace ikebana;

TEST_CASE("dropout zeroes about as many elements as it says and scales the others") {
  for (double p : {0.25, 0.5, 0.9}) {
    leaf_run<float, dropout> run({.p = p}, {100, 100});
    for (float& x : run.input.span()) x = 3;
    run.forward();
    int dropped = 0;
    for (float y : run.output.span()) {
      if (y == 0)
        ++dropped;
      else
        CHECK(std::abs(y - 3 / (1 - p)) < 1e-5);
    }
    CHECK(std::abs(dropped / 1e4 - p) < 0.02);  // four standard deviations
  }
}

TEST_CASE("dropout's backward drops what its forward dropped") {
  check_gradients(dropout{.p = 0.3}, {5, 9});
  check_gradients(dropout{}, {5, 9}, false);
}

TEST_CASE("dropout in evaluation is the identity") {
  leaf_run<double, dropout> run({.p = 0.9}, {37});
  fill_random(run.input.data(), 37, 1);
  run.forward(false);
  for (dim_t i = 0; i < 37; ++i) CHECK(run.output[i] == run.input[i]);
}

TEST_CASE("dropout of nothing and of everything") {
  leaf_run<float, dropout> none({.p = 0}, {37});
  fill_random(none.input.data(), 37, 1);
  none.forward();
  for (dim_t i = 0; i < 37; ++i) CHECK(none.output[i] == none.input[i]);
  leaf_run<float, dropout> all({.p = 1}, {37});
  fill_random(all.input.data(), 37, 1);
  fill_random(all.output_gradient.data(), 37, 2);
  all.forward();
  all.backward(false);
  for (dim_t i = 0; i < 37; ++i) CHECK((all.output[i] == 0 && all.input_gradient[i] == 0));
}

TEST_CASE("dropout drops the same elements on every instruction set and in float and double") {
  const cpu::instruction_set before = cpu::active_instruction_set();
  leaf_run<float, dropout> single({}, {1003});
  leaf_run<double, dropout> twice({}, {1003});
  for (float& x : single.input.span()) x = 1;
  for (double& x : twice.input.span()) x = 1;
  single.forward();
  const std::vector<float> expected(single.output.data(), single.output.data() + 1003);
  for (const auto s : cpu::instruction_sets) {
    if (!cpu::supports(s)) continue;
    cpu::set_instruction_set(s);
    single.forward();
    twice.forward();
    for (dim_t i = 0; i < 1003; ++i) {
      CHECK(single.output[i] == expected[static_cast<std::size_t>(i)]);
      CHECK(twice.output[i] == static_cast<double>(single.output[i]));
    }
  }
  cpu::set_instruction_set(before);
}

TEST_CASE("dropout drops other elements in another step and under another path") {
  leaf_run<float, dropout> run({}, {256});
  for (float& x : run.input.span()) x = 1;
  run.forward();
  const std::vector<float> first(run.output.data(), run.output.data() + 256);
  const auto differs = [&] {
    run.forward();
    dim_t n = 0;
    for (dim_t i = 0; i < 256; ++i) n += run.output[i] != first[static_cast<std::size_t>(i)];
    return n;
  };
  CHECK(differs() == 0);
  run.stream.step = 4;
  CHECK(differs() > 50);
  run.stream.step = 3;
  run.stream.path = hash_path("other");
  CHECK(differs() > 50);
}

TEST_CASE("dropout refuses what is no probability") {
  CHECK_THROWS_WITH_AS(static_cast<void>(dropout{.p = 1.5}),
                       "a probability is between 0 and 1, got 1.5", error);
  CHECK_THROWS_AS(static_cast<void>(dropout{.p = -0.1}), error);
  CHECK_THROWS_AS(static_cast<void>(dropout{.p = std::nan("")}), error);
  CHECK(described(dropout{.p = 0.25}) == "p=0.25");
}

TEST_CASE("dropout of an empty batch") { check_empty_batch(dropout{}, {0, 3}); }
