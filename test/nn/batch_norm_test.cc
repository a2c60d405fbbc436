#include "ikebana/nn/batch_norm.hpp"

#include <doctest/doctest.h>

#include "layers.hpp"

using namespace ikebana;

TEST_CASE("batch_norm2d computes what PyTorch recorded") {
  using no_affine = affine<false>;
  using no_tracking = track_running_stats<false>;
  compare("batch_norm2d_train", batch_norm2d<3>{});
  compare("batch_norm2d_train_options", batch_norm2d<5>{.eps = 1e-3, .momentum = 0.3});
  compare("batch_norm2d_train_no_affine", batch_norm2d<3, no_affine>{});
  compare("batch_norm2d_train_no_tracking", batch_norm2d<3, no_tracking>{});
  compare("batch_norm2d_train_cumulative", batch_norm2d<3>{.momentum = std::nullopt});
  compare("batch_norm2d_eval", batch_norm2d<3>{}, false);
  compare("batch_norm2d_eval_no_affine", batch_norm2d<3, no_affine>{}, false);
  compare("batch_norm2d_eval_no_tracking", batch_norm2d<3, no_tracking>{}, false);
  CHECK(not_compared("modules", {"batch_norm2d_"}).empty());
}

TEST_CASE("the gradients of batch norm are those of its forward") {
  check_gradients(batch_norm2d<3>{}, {3, 3, 2, 3});
  check_gradients(batch_norm2d<3>{}, {3, 3, 2, 3}, false);
  check_gradients(batch_norm2d<3, affine<false>, track_running_stats<false>>{}, {3, 3, 2, 3});
}

TEST_CASE("batch norm over one and three spatial dimensions computes what PyTorch recorded") {
  using untracked = batch_norm1d<3, track_running_stats<false>>;
  for (bool training : {true, false}) {
    const std::string when = training ? "_train" : "_eval";
    compare_layer("norm", "batch_norm1d_2d" + when, batch_norm1d<5>{}, training);
    compare_layer("norm", "batch_norm1d_3d" + when, batch_norm1d<3>{}, training);
    compare_layer("norm", "batch_norm1d_no_tracking" + when, untracked{}, training);
    compare_layer("norm", "batch_norm3d" + when, batch_norm3d<3>{}, training);
  }
  compare_layer("norm", "batch_norm1d_options",
                batch_norm1d<3, affine<false>>{.eps = 1e-3, .momentum = 0.3});
  compare_layer("norm", "batch_norm1d_cumulative", batch_norm1d<3>{.momentum = std::nullopt});
  CHECK(layers_not_compared("norm", "batch_norm").empty());
  CHECK(batch_norm1d<3>::kind == "batch_norm1d");
}

TEST_CASE("the gradients of batch norm over one and three dimensions are those of its forward") {
  check_gradients(batch_norm1d<3>{}, {3, 3, 4});
  check_gradients(batch_norm1d<3>{}, {5, 3});
  check_gradients(batch_norm3d<2>{}, {2, 2, 2, 1, 3});
}

TEST_CASE("num_features that only run time knows") {
  leaf_run<float, batch_norm2d<dynamic>> run({}, {2, 3, 4, 4});
  CHECK(run.parameter_specs[0].extents == shape{3});
  CHECK(run.buffer_specs[1].extents == shape{3});
  const shape of_state[] = {{7}, {7}};
  batch_norm2d<dynamic> loaded;
  loaded.bind_state(of_state, {});
  CHECK(loaded.num_features.value() == 7);
  batch_norm1d<dynamic, affine<false>> plain;
  plain.bind_state({}, of_state);
  CHECK(plain.num_features.value() == 7);
}

TEST_CASE("an empty batch leaves the running statistics as they are") {
  check_empty_batch(batch_norm2d<3>{}, {0, 3, 4, 4});
  check_empty_batch(batch_norm2d<3>{}, {0, 3, 4, 4}, false);
  leaf_run<float, batch_norm2d<3>> run({}, {0, 3, 4, 4});
  auto* mean = reinterpret_cast<float*>(run.buffer(0));
  mean[1] = 2;
  run.forward();
  CHECK(mean[1] == 2);
  CHECK(*reinterpret_cast<std::int64_t*>(run.buffer(2)) == 1);
}

TEST_CASE("batch norm does not train on one value per channel") {
  constexpr shape_list one{shape{1, 3, 1, 1}};
  CHECK(std::string{batch_norm2d<3>{}.check(one, true).message().c_str()} ==
        "batch_norm2d expects more than 1 value per channel when training, got 1 "
        "(input [1, 3, 1, 1])");
  CHECK(batch_norm2d<3>{}.check(one, false).ok());
  CHECK_FALSE(batch_norm2d<3, track_running_stats<false>>{}.check(one, false).ok());
  CHECK_FALSE(batch_norm1d<3>{}.check({shape{1, 3}}, true).ok());
  CHECK(batch_norm1d<3>{}.check({shape{2, 3}}, true).ok());
  CHECK(batch_norm1d<3>{}.check({shape{0, 3}}, true).ok());
  // Unknown extents do not count as 1.
  CHECK(batch_norm2d<dynamic>{}.check({shape{dynamic, dynamic, 1, dynamic}}, true).ok());
}

TEST_CASE("batch norm says what is wrong with its input") {
  CHECK(sentence_of(batch_norm2d<3>{}.infer(shape{2, 4, 5, 5})) ==
        "batch_norm2d expects num_features = 3, got 4 (input [2, 4, 5, 5])");
  CHECK(sentence_of(batch_norm2d<3>{}.infer(shape{3, 5, 5})) ==
        "batch_norm2d expects an input of 4 dimensions, got 3 (input [3, 5, 5])");
  CHECK(sentence_of(batch_norm1d<3>{}.infer(shape{2, 3, 4, 4})) ==
        "batch_norm1d expects an input of 2 or 3 dimensions, got 4 (input [2, 3, 4, 4])");
}

TEST_CASE("a lazy batch norm becomes what the input brings, and keeps its options") {
  static_assert(lazy_batch_norm2d<>::is_lazy);
  constexpr auto made = lazy_batch_norm2d<affine<false>>{.eps = 1e-3, .momentum = std::nullopt}
                            .become<shape{dynamic, 7, 5, 5}>();
  static_assert(std::is_same_v<decltype(made), const batch_norm2d<7, affine<false>>>);
  static_assert(made.eps == 1e-3 && !made.momentum);
  static_assert(
      std::is_same_v<decltype(lazy_batch_norm1d<>{}.become<shape{dynamic, 7}>()), batch_norm1d<7>>);
  static_assert(std::is_same_v<decltype(lazy_batch_norm3d<>{}.become<shape{2, dynamic, 5, 5, 5}>()),
                               batch_norm3d<dynamic>>);
}

TEST_CASE("batch norm describes itself by PyTorch's names") {
  CHECK(described(batch_norm2d<7>{}) ==
        "num_features=7, eps=1e-05, momentum=0.1, affine=true, track_running_stats=true");
  CHECK(
      described(lazy_batch_norm2d<affine<false>>{.momentum = std::nullopt}) ==
      "num_features=lazy, eps=1e-05, momentum=cumulative, affine=false, track_running_stats=true");
}

TEST_CASE("batch norm has PyTorch's parameters and buffers, in its order") {
  constexpr batch_norm2d<7> m;
  CHECK(std::string{m.parameters()[0].name} == "weight");
  CHECK(std::string{m.parameters()[1].name} == "bias");
  CHECK(m.parameters()[0].init.value == 1);
  CHECK(std::string{m.buffers()[0].name} == "running_mean");
  CHECK(m.buffers()[1].init.value == 1);
  CHECK(m.buffers()[2].type == dtype::int64);
  CHECK(m.buffers()[2].extents == shape{});
}
