#include "ikebana/nn/rms_norm.hpp"

#include <doctest/doctest.h>

#include "layers.hpp"

using namespace ikebana;

TEST_CASE("rms norm computes what PyTorch's does") {
  compare_layer("norm", "rms_norm", rms_norm<5>{});
  compare_layer("norm", "rms_norm_two", rms_norm<shape{5, 7}>{});
  compare_layer("norm", "rms_norm_eps", rms_norm<19>{.eps = 1e-2});
  compare_layer("norm", "rms_norm_no_affine", rms_norm<11, elementwise_affine<false>>{});
  CHECK(layers_not_compared("norm", "rms_norm").empty());
}

TEST_CASE("without eps, rms norm takes the machine epsilon of its type") {
  leaf_run<float, rms_norm<2, elementwise_affine<false>>> run({}, {1, 2});
  run.input[0] = run.input[1] = 1e-4f;
  run.forward();
  CHECK(run.output[0] == doctest::Approx(1e-4 / std::sqrt(1e-8 + 0x1p-23)));
}

TEST_CASE("the gradients of rms norm are those of its forward") {
  check_gradients(rms_norm<5>{}, {3, 2, 5});
  check_gradients(rms_norm<shape{2, 9}>{.eps = 1e-3}, {3, 2, 9});
  check_gradients(rms_norm<5, elementwise_affine<false>>{}, {5});
}

TEST_CASE("a lazy rms norm becomes what the input brings, and keeps its options") {
  static_assert(lazy_rms_norm<>::is_lazy);
  constexpr auto made =
      lazy_rms_norm<elementwise_affine<false>>{.eps = 1e-3}.become<shape{dynamic, 3, 7}>();
  static_assert(std::is_same_v<decltype(made), const rms_norm<7, elementwise_affine<false>>>);
  static_assert(*made.eps == 1e-3);
  leaf_run<float, rms_norm<dynamic>> run({}, {2, 3});
  CHECK(run.parameter_specs[0].extents == shape{3});
  const shape of_state[] = {{7}};
  rms_norm<dynamic> loaded;
  loaded.bind_state(of_state, {});
  CHECK(loaded.normalized_shape.value() == shape{7});
}

TEST_CASE("rms norm of nothing") {
  check_empty_batch(rms_norm<5>{}, {0, 5});
  check_empty_batch(rms_norm<0>{}, {3, 0});
}

TEST_CASE("rms norm says what is wrong with its input, and describes itself") {
  CHECK(sentence_of(rms_norm<5>{}.infer(shape{2, 4})) ==
        "rms_norm expects normalized_shape = 5, got 4 (input [2, 4])");
  CHECK(described(rms_norm<5>{}) == "normalized_shape=5, eps=epsilon, elementwise_affine=true");
  CHECK(described(lazy_rms_norm<>{.eps = 1e-6}) ==
        "normalized_shape=lazy, eps=1e-06, elementwise_affine=true");
}
