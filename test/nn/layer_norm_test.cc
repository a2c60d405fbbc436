#include "ikebana/nn/layer_norm.hpp"

#include <doctest/doctest.h>

#include "layers.hpp"

using namespace ikebana;

TEST_CASE("layer norm computes what PyTorch recorded") {
  compare_layer("norm", "layer_norm", layer_norm<5>{});
  compare_layer("norm", "layer_norm_1d", layer_norm<13>{});
  compare_layer("norm", "layer_norm_wide", layer_norm<83>{});
  compare_layer("norm", "layer_norm_many_rows", layer_norm<11>{});
  compare_layer("norm", "layer_norm_two", layer_norm<shape{5, 7}>{});
  compare_layer("norm", "layer_norm_eps", layer_norm<5>{.eps = 1e-2});
  compare_layer("norm", "layer_norm_no_affine", layer_norm<17, elementwise_affine<false>>{});
  compare_layer("norm", "layer_norm_no_bias", layer_norm<11, bias<false>>{});
  CHECK(layers_not_compared("norm", "layer_norm").empty());
}

TEST_CASE("the gradients of layer norm are those of its forward") {
  check_gradients(layer_norm<5>{}, {3, 2, 5});
  check_gradients(layer_norm<shape{2, 9}>{}, {3, 2, 9});
  check_gradients(layer_norm<5, elementwise_affine<false>>{}, {3, 5}, false);
  check_gradients(layer_norm<5, bias<false>>{}, {3, 5});
}

TEST_CASE("a lazy layer norm becomes what the input brings, and keeps its options") {
  static_assert(lazy_layer_norm<>::is_lazy && !layer_norm<5>::is_lazy);
  constexpr auto made = lazy_layer_norm<bias<false>>{.eps = 1e-3}.become<shape{dynamic, 3, 7}>();
  static_assert(std::is_same_v<decltype(made), const layer_norm<7, bias<false>>>);
  static_assert(made.eps == 1e-3);
  static_assert(std::is_same_v<decltype(layer_norm<shape{lazy, lazy}>{}.become<shape{2, 3, 7}>()),
                               layer_norm<shape{3, 7}>>);
  static_assert(std::is_same_v<decltype(lazy_layer_norm<>{}.become<shape{2, dynamic}>()),
                               layer_norm<dynamic>>);
}

TEST_CASE("layer norm of static and of dynamic extents gives the same bits") {
  leaf_run<float, layer_norm<shape{3, 37}>> known({}, {5, 3, 37});
  leaf_run<float, layer_norm<shape{3, dynamic}>> found({}, {5, 3, 37});
  CHECK(found.parameter_specs[1].extents == shape{3, 37});
  for (any_leaf_run<float>* run :
       {static_cast<any_leaf_run<float>*>(&known), static_cast<any_leaf_run<float>*>(&found)}) {
    fill_random(run->input.data(), run->input.size(), 1);
    fill_random(run->parameters.data(), run->parameters.size(), 2);
    run->forward();
  }
  for (dim_t i = 0; i < known.output.size(); ++i) CHECK(known.output[i] == found.output[i]);
  const shape of_state[] = {{3, 41}, {3, 41}};
  layer_norm<shape{3, dynamic}> loaded;
  loaded.bind_state(of_state, {});
  CHECK(loaded.normalized_shape.value() == shape{3, 41});
}

TEST_CASE("layer norm of nothing") {
  check_empty_batch(layer_norm<5>{}, {0, 3, 5});
  check_empty_batch(layer_norm<0>{}, {3, 0});
  check_empty_batch(layer_norm<shape{4, 0}, bias<false>>{}, {3, 4, 0});
}

TEST_CASE("layer norm says what is wrong with its input") {
  CHECK(sentence_of(layer_norm<5>{}.infer(shape{2, 4})) ==
        "layer_norm expects normalized_shape = 5, got 4 (input [2, 4])");
  CHECK(sentence_of(layer_norm<shape{5, 7}>{}.infer(shape{2, 6, 7})) ==
        "layer_norm expects normalized_shape = [5, 7], got 6 where it has 5 (input [2, 6, 7])");
  CHECK(sentence_of(layer_norm<shape{5, 7}>{}.infer(shape{7})) ==
        "layer_norm expects an input of at least 2 dimensions, got 1 (input [7])");
  CHECK(layer_norm<5>{}.infer(shape{dynamic, dynamic}).ok());
}

TEST_CASE("layer norm describes itself by PyTorch's names") {
  CHECK(described(layer_norm<shape{5, 7}>{}) ==
        "normalized_shape=[5, 7], eps=1e-05, elementwise_affine=true, bias=true");
  CHECK(described(lazy_layer_norm<elementwise_affine<false>>{}) ==
        "normalized_shape=lazy, eps=1e-05, elementwise_affine=false");
}
