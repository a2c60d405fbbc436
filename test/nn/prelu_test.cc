#include "ikebana/nn/prelu.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <string>

#include "ikebana/nn/glu.hpp"
#include "ikebana/nn/rrelu.hpp"
#include "ikebana/nn/softmax.hpp"
#include "layers.hpp"

using namespace ikebana;

TEST_CASE("prelu, glu and softmin compute what PyTorch recorded") {
  const auto compare_feature = [](const std::string& name, const auto& m) {
    compare_layer("features", name, m);
  };
  compare_feature("prelu", prelu{});
  compare_feature("prelu_scalar", prelu{});
  compare_feature("prelu_channels", prelu<3>{});
  compare_feature("prelu_columns", prelu<5>{});
  compare_feature("prelu_bends", prelu{});
  compare_feature("prelu_long", prelu{});
  compare_feature("glu", glu{});
  compare_feature("glu_dim1", glu<dim<1>>{});
  compare_feature("glu_wide", glu<dim<0>>{});
  compare_feature("softmin", softmin{});
  compare_feature("softmin_dim1", softmin<dim<1>>{});
  CHECK(layers_not_compared("features", "prelu").empty());
  CHECK(layers_not_compared("features", "glu").empty());
  CHECK(layers_not_compared("features", "softmin").empty());
}

TEST_CASE("the gradients of prelu, glu, softmin and rrelu are those of their forward") {
  check_gradients(prelu<2>{}, {2, 2, 17});
  check_gradients(prelu{}, {3, 5});
  check_gradients(glu<dim<1>>{}, {2, 4, 3});
  check_gradients(softmin{}, {2, 5});
  check_gradients(rrelu{}, {5, 9});
  check_gradients(rrelu{}, {5, 9}, false);
}

TEST_CASE("prelu starts with the slope that it is given") {
  leaf_run<float, prelu<3>> run({.init = 0.5}, {2, 3});
  run.initialize(seed{1});
  for (int i = 0; i < 3; ++i) CHECK(run.parameter(0)[i] == 0.5f);
  leaf_run<float, prelu<>> one({}, {2, 3});
  one.initialize(seed{1});
  CHECK(one.parameter(0)[0] == 0.25f);
}

TEST_CASE("rrelu draws slopes between its bounds, and takes their mean in evaluation") {
  leaf_run<double, rrelu> run({.lower = 0.1, .upper = 0.4}, {4000});
  for (double& x : run.input.span()) x = -1;
  run.forward();
  double sum = 0, least = 1, most = 0;
  for (double y : run.output.span()) {
    sum -= y;
    least = -y < least ? -y : least;
    most = -y > most ? -y : most;
  }
  CHECK(least >= 0.1);
  CHECK(most < 0.4);
  CHECK(most - least > 0.29);
  CHECK(sum / 4000 == doctest::Approx(0.25).epsilon(0.02));
  run.forward(false);
  for (double y : run.output.span()) CHECK(y == -0.25);
}

TEST_CASE("rrelu computes what PyTorch recorded, and in training keeps to the same bounds") {
  compare_layer("written", "rrelu", rrelu{}, false);
  compare_layer("written", "rrelu_bounds", rrelu{.lower = 0.25, .upper = 0.75}, false);
  compares("layers_written", "rrelu_random");
  CHECK(layers_not_compared("written", "rrelu").empty());
  const double lower = 0.1, upper = 0.4;
  const auto check = [&](double x, double y, double dy, double dx) {
    if (x > 0) {
      CHECK(y == x);
      CHECK(dx == dy);
    } else {
      CHECK(y / x >= lower * (1 - 1e-12));
      CHECK(y / x <= upper * (1 + 1e-12));
      CHECK(dx == doctest::Approx(dy * y / x).epsilon(1e-12));
    }
  };
  const auto values = [](const char* tensor) {
    return reinterpret_cast<const double*>(
        recorded<double>("layers_written").at(std::string("rrelu_random/") + tensor).bytes.data());
  };
  const double *x = values("x0"), *y = values("y0"), *dy = values("gy0"), *dx = values("gx0");
  leaf_run<double, rrelu> run({.lower = lower, .upper = upper}, {200});
  std::copy_n(x, 200, run.input.data());
  std::copy_n(dy, 200, run.output_gradient.data());
  run.forward();
  run.backward(false);
  for (dim_t i = 0; i < 200; ++i) {
    check(x[i], y[i], dy[i], dx[i]);
    check(x[i], run.output[i], dy[i], run.input_gradient[i]);
  }
}

TEST_CASE("prelu, glu and rrelu take an empty batch, and say what is wrong with their input") {
  check_empty_batch(prelu<3>{}, {0, 3});
  check_empty_batch(prelu<3>{}, {0, 3, 20});
  check_empty_batch(glu{}, {0, 4});
  check_empty_batch(rrelu{}, {0, 4});
  CHECK(sentence_of(prelu<3>{}.infer(shape{2, 4, 5})) ==
        "prelu expects 3 channels, got 4 (input [2, 4, 5])");
  CHECK(sentence_of(prelu<3>{}.infer(shape{3})) ==
        "prelu expects an input of at least 2 dimensions, got 1 (input [3])");
  CHECK(sentence_of(glu{}.infer(shape{2, 5})) ==
        "glu expects an extent divisible by 2, got 5 (input [2, 5])");
  CHECK(sentence_of(glu<dim<2>>{}.infer(shape{2, 4})) ==
        "glu expects a dim within 2 dimensions, got 2 (input [2, 4])");
  CHECK(glu{}.infer(shape{dynamic, 6}).output() == shape{dynamic, 3});
  CHECK(glu<dim<0>>{}.infer(shape{dynamic, 6}).output() == shape{dynamic, 6});
  CHECK(described(prelu<3>{}) == "num_parameters=3");
  CHECK(described(rrelu{.lower = 0.25, .upper = 0.5}) == "lower=0.25, upper=0.5");
  CHECK(described(glu{}) == "dim=-1");
}
