#include "ikebana/nn/pool.hpp"

#include <doctest/doctest.h>

#include "layers.hpp"
#include "recorded.hpp"

using namespace ikebana;

TEST_CASE("max_pool2d computes what PyTorch recorded") {
  compare("max_pool2d_kernel2", max_pool2d<kernel<2>>{});
  compare("max_pool2d_odd", max_pool2d<kernel<2>>{});
  compare("max_pool2d_overlap", max_pool2d<kernel<3>, stride<2>, padding<1>>{});
  compare("max_pool2d_dilation", max_pool2d<kernel<3>, stride<1>, dilation<2>>{});
  compare("max_pool2d_ceil_mode", max_pool2d<kernel<3>, stride<2>, ceil_mode<true>>{});
  compare("max_pool2d_ceil_mode_dropped",
          max_pool2d<kernel<2>, stride<3>, padding<1>, ceil_mode<true>>{});
  compare("max_pool2d_non_square", max_pool2d<kernel<2, 3>, stride<1, 2>, padding<1, 0>>{});
  compare("max_pool2d_unbatched", max_pool2d<kernel<2>>{});
  compare("max_pool2d_negative", max_pool2d<kernel<3>, stride<2>, padding<1>>{});
  compare("max_pool2d_ties", max_pool2d<kernel<3>, stride<2>, padding<1>>{});
}

TEST_CASE("avg_pool2d computes what PyTorch recorded") {
  using no_padding_counted = count_include_pad<false>;
  compare("avg_pool2d_kernel2", avg_pool2d<kernel<2>>{});
  compare("avg_pool2d_overlap", avg_pool2d<kernel<3>, stride<2>, padding<1>>{});
  compare("avg_pool2d_exclude_pad",
          avg_pool2d<kernel<3>, stride<2>, padding<1>, no_padding_counted>{});
  compare("avg_pool2d_divisor_override",
          avg_pool2d<kernel<3>, stride<2>, padding<1>, divisor_override<5>>{});
  compare("avg_pool2d_ceil_mode", avg_pool2d<kernel<3>, stride<2>, ceil_mode<true>>{});
  compare("avg_pool2d_ceil_mode_padding",
          avg_pool2d<kernel<3>, stride<2>, padding<1>, ceil_mode<true>>{});
  compare("avg_pool2d_ceil_mode_exclude_pad",
          avg_pool2d<kernel<3>, stride<2>, padding<1>, ceil_mode<true>, no_padding_counted>{});
  compare("avg_pool2d_ceil_mode_dropped",
          avg_pool2d<kernel<2>, stride<3>, padding<1>, ceil_mode<true>>{});
  compare("avg_pool2d_non_square", avg_pool2d<kernel<2, 3>, stride<1, 2>, padding<1, 0>>{});
  compare("avg_pool2d_unbatched", avg_pool2d<kernel<2>>{});
  CHECK(not_compared("modules", {"max_pool2d_", "avg_pool2d_"}).empty());
}

TEST_CASE("pooling over one, two and three dimensions computes what PyTorch recorded") {
  const auto compare_pool = [](const std::string& name, const auto& m) {
    compare_layer("pool", name, m);
  };
  compare_pool("max_pool1d", max_pool1d<kernel<2>>{});
  compare_pool("max_pool1d_overlap", max_pool1d<kernel<3>, stride<2>, padding<1>>{});
  compare_pool("max_pool1d_ceil_mode_dilation",
               max_pool1d<kernel<3>, stride<2>, padding<1>, dilation<2>, ceil_mode<true>>{});
  compare_pool("max_pool1d_unbatched", max_pool1d<kernel<4>, stride<3>>{});
  compare_pool("max_pool2d_wide", max_pool2d<kernel<3>, stride<2>, padding<1>>{});
  compare_pool("max_pool3d", max_pool3d<kernel<2>>{});
  compare_pool("max_pool3d_everything",
               max_pool3d<kernel<2, 3, 2>, stride<1, 2, 3>, padding<1, 1, 0>, dilation<2, 1, 3>,
                          ceil_mode<true>>{});
  compare_pool("max_pool3d_unbatched", max_pool3d<kernel<3>, stride<1>, padding<1>>{});

  using no_padding_counted = count_include_pad<false>;
  compare_pool("avg_pool1d", avg_pool1d<kernel<2>>{});
  compare_pool("avg_pool1d_overlap", avg_pool1d<kernel<3>, stride<2>, padding<1>>{});
  compare_pool("avg_pool1d_ceil_mode_exclude_pad",
               avg_pool1d<kernel<4>, stride<3>, padding<2>, ceil_mode<true>, no_padding_counted>{});
  compare_pool("avg_pool1d_unbatched", avg_pool1d<kernel<5>, stride<1>>{});
  compare_pool("avg_pool2d_wide", avg_pool2d<kernel<3>, stride<2>, padding<1>>{});
  compare_pool("avg_pool3d", avg_pool3d<kernel<2>>{});
  compare_pool("avg_pool3d_ceil_mode",
               avg_pool3d<kernel<2, 3, 2>, stride<1, 2, 3>, padding<1, 1, 0>, ceil_mode<true>>{});
  compare_pool("avg_pool3d_exclude_pad",
               avg_pool3d<kernel<3>, stride<2>, padding<1>, no_padding_counted>{});
  compare_pool("avg_pool3d_divisor_override",
               avg_pool3d<kernel<3>, stride<2>, padding<1>, divisor_override<7>>{});
  CHECK(layers_not_compared("pool").empty());
}

TEST_CASE("the gradients of pooling are those of its forward") {
  check_gradients(max_pool2d<kernel<3, 2>, stride<2>, padding<1>>{}, {2, 2, 5, 4});
  check_gradients(avg_pool2d<kernel<3>, stride<2>, padding<1>, ceil_mode<true>>{}, {2, 2, 6, 5});
}

TEST_CASE("pooling over one and three dimensions is the same module") {
  using pool1d = max_pool1d<kernel<2>>;
  using pool3d = avg_pool3d<kernel<2, 1, 3>>;
  CHECK(pool1d::kind == "max_pool1d");
  CHECK(pool3d::kind == "avg_pool3d");
  CHECK(pool1d{}.infer(shape{2, 3, 7}).output() == shape{2, 3, 3});
  CHECK(pool3d{}.infer(shape{2, 5, 4, 7}).output() == shape{2, 2, 4, 2});
  check_gradients(pool1d{}, {2, 3, 5});
  check_gradients(pool3d{}, {1, 2, 3, 2, 4});
}

TEST_CASE("pooling of an empty batch") {
  check_empty_batch(max_pool2d<kernel<2>>{}, {0, 3, 5, 5});
  check_empty_batch(avg_pool2d<kernel<2>>{}, {0, 3, 5, 5});
  check_empty_batch(max_pool1d<kernel<2>>{}, {0, 3, 5});
  check_empty_batch(avg_pool3d<kernel<2>>{}, {0, 3, 5, 5, 5});
}

TEST_CASE("pooling says what is wrong with its input") {
  using max2 = max_pool2d<kernel<2>>;
  CHECK(sentence_of(max2{}.infer(shape{8, 8})) ==
        "max_pool2d expects an input of 3 (unbatched) or 4 dimensions, got 2 (input [8, 8])");
  CHECK(sentence_of(max2{}.infer(shape{2, 3, 8, 1})) ==
        "max_pool2d expects a padded input of at least 2 (the reach of the kernel), got 1 (input "
        "[2, 3, 8, 1])");
  CHECK(sentence_of(max2{}.infer(shape{2, 3, 0, 1})) ==
        "max_pool2d expects spatial extents of at least 1, got 0 (input [2, 3, 0, 1])");
  CHECK(sentence_of(avg_pool2d<kernel<3>, padding<2>>{}.infer(shape{2, 3, 8, 8})) ==
        "avg_pool2d expects padding of at most kernel / 2 = 1, got 2 (input [2, 3, 8, 8])");
  // Both elements of the only window would be in the padding.
  CHECK(sentence_of(max_pool2d<kernel<2>, padding<1>, dilation<2>>{}.infer(shape{1, 1, 1})) ==
        "max_pool2d expects every window to meet the input, needs an extent of 2, got 1 (input [1, "
        "1, 1])");
}

TEST_CASE("pooling keeps the extents that only run time knows") {
  CHECK(max_pool2d<kernel<2>>{}.infer(shape{dynamic, 3, dynamic, 8}).output() ==
        shape{dynamic, 3, dynamic, 4});
  CHECK(max_pool2d<kernel<2>>{}.saved(shape_list{shape{dynamic, 3, 8, 8}})[0].extents ==
        shape{dynamic, 3, 4, 4});
}

TEST_CASE("pooling describes itself by PyTorch's names") {
  CHECK(described(max_pool2d<kernel<2>>{}) ==
        "kernel_size=2, stride=2, padding=0, dilation=1, ceil_mode=false");
  CHECK(described(avg_pool2d<kernel<3, 2>, stride<2>, count_include_pad<false>>{}) ==
        "kernel_size=(3, 2), stride=2, padding=0, count_include_pad=false");
}
