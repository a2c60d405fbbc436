#include "ikebana/nn/group_norm.hpp"

#include <doctest/doctest.h>

#include "layers.hpp"

using namespace ikebana;

TEST_CASE("group norm computes what PyTorch recorded") {
  compare_layer("norm", "group_norm", group_norm<2, 6>{});
  compare_layer("norm", "group_norm_one", group_norm<1, 5>{});
  compare_layer("norm", "group_norm_each", group_norm<3, 3>{});
  compare_layer("norm", "group_norm_flat", group_norm<3, 12>{});
  compare_layer("norm", "group_norm_no_affine", group_norm<2, 4, affine<false>>{});
  compare_layer("norm", "group_norm_eps", group_norm<2, 10>{.eps = 1e-2});
  CHECK(layers_not_compared("norm", "group_norm").empty());
}

TEST_CASE("the gradients of group norm are those of its forward") {
  check_gradients(group_norm<2, 4>{}, {2, 4, 3});
  check_gradients(group_norm<2, 6>{}, {3, 6});
  check_gradients(group_norm<3, 3, affine<false>>{}, {2, 3, 2, 3});
}

TEST_CASE("a lazy group norm becomes what the input brings, and keeps its options") {
  static_assert(lazy_group_norm<2>::is_lazy);
  constexpr auto made =
      lazy_group_norm<2, affine<false>>{.eps = 1e-3}.become<shape{dynamic, 6, 5}>();
  static_assert(std::is_same_v<decltype(made), const group_norm<2, 6, affine<false>>>);
  static_assert(made.eps == 1e-3);
}

TEST_CASE("group norm of static and of dynamic extents gives the same bits") {
  leaf_run<float, group_norm<2, 6>> known({}, {5, 6, 17});
  leaf_run<float, group_norm<2, dynamic>> found({}, {5, 6, 17});
  CHECK(found.parameter_specs[1].extents == shape{6});
  for (any_leaf_run<float>* run :
       {static_cast<any_leaf_run<float>*>(&known), static_cast<any_leaf_run<float>*>(&found)}) {
    fill_random(run->input.data(), run->input.size(), 1);
    fill_random(run->parameters.data(), run->parameters.size(), 2);
    run->forward();
  }
  for (dim_t i = 0; i < known.output.size(); ++i) CHECK(known.output[i] == found.output[i]);
  const shape of_state[] = {{8}, {8}};
  group_norm<2, dynamic> loaded;
  loaded.bind_state(of_state, {});
  CHECK(loaded.num_channels.value() == 8);
}

TEST_CASE("group norm of nothing") {
  check_empty_batch(group_norm<2, 4>{}, {0, 4, 3});
  check_empty_batch(group_norm<2, 4>{}, {0, 4});
  check_empty_batch(group_norm<2, 4>{}, {3, 4, 0});
}

TEST_CASE("a group of one element becomes its channel's bias") {
  leaf_run<float, group_norm<3, 3>> run({}, {1, 3});
  for (dim_t i = 0; i < 3; ++i) {
    run.input[i] = static_cast<float>(i);
    run.parameter(0)[i] = 5;
    run.parameter(1)[i] = static_cast<float>(10 + i);
  }
  run.forward();
  for (dim_t i = 0; i < 3; ++i) CHECK(run.output[i] == static_cast<float>(10 + i));
}

TEST_CASE("group norm says what is wrong with its input, and describes itself") {
  CHECK(sentence_of(group_norm<2, 6>{}.infer(shape{2, 4, 5})) ==
        "group_norm expects num_channels = 6, got 4 (input [2, 4, 5])");
  CHECK(sentence_of(lazy_group_norm<2>{}.infer(shape{2, 5, 5})) ==
        "group_norm expects num_channels divisible by num_groups = 2, got 5 (input [2, 5, 5])");
  CHECK(sentence_of(group_norm<2, 6>{}.infer(shape{6})) ==
        "group_norm expects an input of at least 2 dimensions, got 1 (input [6])");
  CHECK(described(group_norm<2, 6>{}) == "num_groups=2, num_channels=6, eps=1e-05, affine=true");
}
