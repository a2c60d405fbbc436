#include "ikebana/nn/spectral_norm.hpp"

#include <doctest/doctest.h>

#include "ikebana/nn/conv.hpp"
#include "ikebana/nn/conv_transpose.hpp"
#include "ikebana/nn/linear.hpp"
#include "layers.hpp"

using namespace ikebana;

TEST_CASE("spectral_norm computes what PyTorch recorded") {
  for (bool training : {true, false}) {
    const std::string when = training ? "_train" : "_eval";
    compare_layer("norm", "spectral_norm_linear" + when, spectral_norm(linear<5, 7>{}), training);
    compare_layer("norm", "spectral_norm_conv2d" + when, spectral_norm(conv2d<3, 5, kernel<3>>{}),
                  training);
  }
  compare_layer("norm", "spectral_norm_linear_dim1", spectral_norm<linear<19, 3>, "weight", 1>{});
  compare_layer("norm", "spectral_norm_linear_3_iterations",
                spectral_norm(linear<5, 7, bias<false>>{}, 3, 1e-3));
  compare_layer("norm", "spectral_norm_conv_transpose1d",
                spectral_norm(conv_transpose1d<3, 5, kernel<4>>{}));
  CHECK(layers_not_compared("norm", "spectral_norm").empty());
}

TEST_CASE("in evaluation, the gradients of spectral_norm are those of its forward") {
  check_gradients(spectral_norm(linear<3, 5>{}), {2, 3}, false);
  check_gradients(spectral_norm<linear<3, 5>, "weight", 1>{}, {2, 3}, false);
}

TEST_CASE("power iteration finds the largest singular value, in training alone") {
  leaf_run<double, spectral_norm<linear<2, 2, bias<false>>>> run({}, {1, 2});
  run.initialize(seed{1});
  run.parameter(0)[0] = 3;
  run.parameter(0)[1] = run.parameter(0)[2] = 0;
  run.parameter(0)[3] = -1;
  run.input[0] = run.input[1] = 1;
  for (int i = 0; i < 60; ++i) run.forward();
  CHECK(run.output[0] == doctest::Approx(1));
  CHECK(run.output[1] == doctest::Approx(-1.0 / 3));
  const auto* u = reinterpret_cast<const double*>(run.buffer(0));
  const double before = u[0];
  run.parameter(0)[3] = 2;
  run.forward(false);
  CHECK(u[0] == before);
}

TEST_CASE("spectral_norm's vectors begin as unit vectors") {
  leaf_run<double, spectral_norm<linear<5, 7>>> run({}, {1, 5});
  run.initialize(seed{1});
  for (std::size_t b : {0u, 1u}) {
    const auto* x = reinterpret_cast<const double*>(run.buffer(b));
    double squares = 0;
    for (dim_t i = 0; i < run.buffer_specs[b].extents.numel(); ++i) squares += x[i] * x[i];
    CHECK(squares == doctest::Approx(1));
  }
}

TEST_CASE("a forward between a forward and its backward does not change the gradients") {
  using norm = spectral_norm<linear<3, 4>>;
  leaf_run<double, norm> run({}, {2, 3});
  run.initialize(seed{1});
  fill_random(run.input.data(), run.input.size(), 1);
  fill_random(run.output_gradient.data(), run.output_gradient.size(), 2);
  run.forward();
  run.backward(false);
  std::vector<double> first(run.gradient(1), run.gradient(1) + 12);
  // Another node's forward updates the vectors that both share.
  for (std::size_t b : {0u, 1u})
    fill_random(reinterpret_cast<double*>(run.buffer(b)), run.buffer_specs[b].extents.numel(), 9);
  run.backward(false);
  for (std::size_t i = 0; i < first.size(); ++i) CHECK(run.gradient(1)[i] == first[i]);
}

TEST_CASE("spectral_norm has PyTorch's parameters and buffers, in its order") {
  constexpr spectral_norm m{conv_transpose1d<3, 5, kernel<4>>{}};
  constexpr auto p = m.parameters();
  static_assert(p.size() == 2);
  CHECK(std::string{p[0].name} == "bias");
  CHECK(std::string{p[1].name} == "weight_orig");
  CHECK(std::string{p[1].drawn_as} == "weight");
  CHECK(p[1].extents == shape{3, 5, 4});
  constexpr auto b = m.buffers();
  CHECK(std::string{b[0].name} == "weight_u");
  CHECK(b[0].extents == shape{5});
  CHECK(std::string{b[1].name} == "weight_v");
  CHECK(b[1].extents == shape{12});
  CHECK(m.kind == "conv_transpose1d");
  CHECK(described(spectral_norm(linear<5, 7>{})) ==
        "in_features=5, out_features=7, bias=true, spectral_norm=weight");
}

TEST_CASE("spectral_norm of a module whose extents only run time knows") {
  using norm = spectral_norm<linear<dynamic, 4>>;
  leaf_run<float, norm> run({}, {2, 3});
  CHECK(run.parameter_specs[1].extents == shape{4, 3});
  CHECK(run.buffer_specs[1].extents == shape{3});
  const shape of_state[] = {{4}, {4, 9}}, of_buffers[] = {{4}, {9}};
  norm loaded;
  loaded.bind_state(of_state, of_buffers);
  CHECK(loaded.buffers()[1].extents == shape{9});
}
