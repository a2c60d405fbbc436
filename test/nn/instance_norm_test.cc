#include "ikebana/nn/instance_norm.hpp"

#include <doctest/doctest.h>

#include "layers.hpp"

using namespace ikebana;

using tracking = track_running_stats<true>;

template <std::size_t Spatial>
void compare_spatial() {
  using full = instance_norm<Spatial, 3, affine<true>, tracking>;
  const std::string name = "instance_norm" + std::to_string(Spatial) + "d";
  compare_layer("norm", name, instance_norm<Spatial, 3>{});
  compare_layer("norm", name + "_unbatched", instance_norm<Spatial, 3, affine<true>>{});
  compare_layer("norm", name + "_affine_tracking_train", full{});
  compare_layer("norm", name + "_affine_tracking_eval", full{}, false);
}

TEST_CASE("instance norm computes what PyTorch recorded") {
  compare_spatial<1>();
  compare_spatial<2>();
  compare_spatial<3>();
  compare_layer("norm", "instance_norm1d_default_eval", instance_norm1d<3>{}, false);
  compare_layer("norm", "instance_norm1d_tracking_unbatched_train", instance_norm1d<5, tracking>{});
  compare_layer("norm", "instance_norm1d_tracking_unbatched_eval", instance_norm1d<5, tracking>{},
                false);
  compare_layer("norm", "instance_norm2d_options",
                instance_norm2d<5, tracking>{.eps = 1e-2, .momentum = 0.4});
  CHECK(layers_not_compared("norm", "instance_norm").empty());
}

TEST_CASE("the gradients of instance norm are those of its forward") {
  using full = instance_norm2d<3, affine<true>, tracking>;
  check_gradients(instance_norm1d<3>{}, {2, 3, 5});
  check_gradients(full{}, {2, 3, 2, 3});
  check_gradients(full{}, {3, 2, 3}, false);
}

TEST_CASE("instance norm's defaults are those of PyTorch's eager modules") {
  CHECK(described(instance_norm2d<7>{}) ==
        "num_features=7, eps=1e-05, momentum=0.1, affine=false, track_running_stats=false");
  CHECK(detail::parameter_count<instance_norm2d<7>>() == 0);
  CHECK(detail::buffer_count<instance_norm2d<7>>() == 0);
  CHECK(std::string_view{lazy_instance_norm3d<>::kind} == "instance_norm3d");
}

TEST_CASE("a lazy instance norm finds its channels with and without a batch") {
  static_assert(lazy_instance_norm2d<>::is_lazy);
  static_assert(std::is_same_v<decltype(lazy_instance_norm1d<>{}.become<shape{2, 5, 7}>()),
                               instance_norm1d<5>>);
  // PyTorch takes dimension 1 here, the length.
  static_assert(
      std::is_same_v<decltype(lazy_instance_norm1d<>{}.become<shape{5, 7}>()), instance_norm1d<5>>);
  static_assert(
      std::is_same_v<decltype(lazy_instance_norm3d<affine<true>>{}.become<shape{5, 7, 7, 7}>()),
                     instance_norm3d<5, affine<true>>>);
  constexpr auto made = lazy_instance_norm2d<tracking>{.eps = 1e-3, .momentum = 0.5}
                            .become<shape{dynamic, dynamic, 4, 4}>();
  static_assert(std::is_same_v<decltype(made), const instance_norm2d<dynamic, tracking>>);
  static_assert(made.eps == 1e-3 && made.momentum == 0.5);
}

TEST_CASE("num_features that only run time knows give an instance norm's state its extents") {
  using norm = instance_norm1d<dynamic, affine<true>, tracking>;
  leaf_run<float, norm> batched({}, {2, 3, 4}), unbatched({}, {3, 4});
  for (const auto* run : {&batched, &unbatched}) {
    CHECK(run->parameter_specs[0].extents == shape{3});
    CHECK(run->buffer_specs[0].extents == shape{3});
  }
  const shape of_state[] = {{7}, {7}, {}};
  instance_norm1d<dynamic, affine<true>> loaded;
  loaded.bind_state(of_state, {});
  CHECK(loaded.num_features.value() == 7);
  instance_norm1d<dynamic, tracking> from_buffers;
  from_buffers.bind_state({}, of_state);
  CHECK(from_buffers.num_features.value() == 7);
}

TEST_CASE("instance norm of static and of dynamic extents gives the same bits") {
  leaf_run<float, instance_norm1d<3, affine<true>>> known({}, {2, 3, 37});
  leaf_run<float, instance_norm1d<dynamic, affine<true>>> found({}, {2, 3, 37});
  for (any_leaf_run<float>* run :
       {static_cast<any_leaf_run<float>*>(&known), static_cast<any_leaf_run<float>*>(&found)}) {
    fill_random(run->input.data(), run->input.size(), 1);
    fill_random(run->parameters.data(), run->parameters.size(), 2);
    run->forward();
  }
  for (dim_t i = 0; i < known.output.size(); ++i) CHECK(known.output[i] == found.output[i]);
}

TEST_CASE("an empty batch leaves instance norm's statistics as they are") {
  using full = instance_norm2d<3, affine<true>, tracking>;
  check_empty_batch(full{}, {0, 3, 4, 4});
  check_empty_batch(full{}, {0, 3, 4, 4}, false);
  leaf_run<float, full> run({}, {0, 3, 4, 4});
  auto* mean = reinterpret_cast<float*>(run.buffer(0));
  mean[1] = 2;
  run.forward();
  CHECK(mean[1] == 2);
}

TEST_CASE("instance norm says what is wrong with its input") {
  CHECK(sentence_of(instance_norm2d<3>{}.infer(shape{2, 4, 5, 5})) ==
        "instance_norm2d expects num_features = 3, got 4 (input [2, 4, 5, 5])");
  CHECK(sentence_of(instance_norm2d<3>{}.infer(shape{4, 5, 5})) ==
        "instance_norm2d expects num_features = 3, got 4 (input [4, 5, 5])");
  CHECK(sentence_of(instance_norm2d<3>{}.infer(shape{4, 5})) ==
        "instance_norm2d expects an input of 3 (unbatched) or 4 dimensions, got 2 (input [4, 5])");
  const shape_list one{shape{2, 3, 1}};
  CHECK(std::string{instance_norm1d<3>{}.check(one, false).message().c_str()} ==
        "instance_norm1d expects more than 1 value per channel when training, got 1 "
        "(input [2, 3, 1])");
  CHECK_FALSE(instance_norm1d<3, tracking>{}.check(one, true).ok());
  CHECK(instance_norm1d<3, tracking>{}.check(one, false).ok());
  CHECK(instance_norm1d<3>{}.check({shape{2, 3, dynamic}}, true).ok());
}
