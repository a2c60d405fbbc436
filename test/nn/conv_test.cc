#include "ikebana/nn/conv.hpp"

#include <doctest/doctest.h>

#include "layers.hpp"
#include "recorded.hpp"

using namespace ikebana;

TEST_CASE("conv2d computes what PyTorch recorded") {
  compare("conv2d_plain", conv2d<3, 4, kernel<3>>{});
  compare("conv2d_stride", conv2d<2, 3, kernel<3>, stride<2>>{});
  compare("conv2d_padding", conv2d<3, 5, padding<1>, kernel<3>>{});
  compare("conv2d_dilation", conv2d<2, 3, kernel<3>, dilation<2>>{});
  compare("conv2d_groups", conv2d<4, 6, kernel<3>, padding<1>, groups<2>>{});
  compare("conv2d_depthwise", conv2d<5, 5, kernel<3>, padding<1>, groups<5>>{});
  compare("conv2d_depthwise_multiplier", conv2d<3, 6, kernel<3>, stride<2>, groups<3>>{});
  compare("conv2d_non_square", conv2d<3, 4, kernel<3, 5>, stride<2, 1>, padding<1, 2>>{});
  compare("conv2d_non_square_dilation",
          conv2d<2, 3, kernel<2, 3>, stride<1, 2>, padding<0, 1>, dilation<3, 2>>{});
  compare("conv2d_no_bias", conv2d<2, 3, kernel<3>, bias<false>>{});
  compare("conv2d_1x1", conv2d<5, 7, kernel<1>>{});
  compare("conv2d_1x1_stride", conv2d<3, 4, kernel<1>, stride<2>>{});
  compare("conv2d_unbatched", conv2d<3, 4, kernel<3>, padding<1>>{});
  compare("conv2d_whole_input", conv2d<2, 3, kernel<4, 5>>{});
  compare("conv2d_wide", conv2d<9, 17, kernel<3>, padding<1>>{});
  compare("conv2d_everything", conv2d<4, 6, kernel<3, 2>, stride<2, 3>, padding<2, 1>,
                                      dilation<2, 3>, groups<2>, bias<false>>{});
  CHECK(not_compared("modules", {"conv2d_"}).empty());
}

TEST_CASE("in_channels that only run time knows give the same bits") {
  leaf_run<float, conv2d<4, 6, kernel<3>, groups<2>>> fixed({}, {2, 4, 6, 5});
  leaf_run<float, conv2d<dynamic, 6, kernel<3>, groups<2>>> bound({}, {2, 4, 6, 5});
  REQUIRE(bound.parameters.size() == fixed.parameters.size());
  for (auto* x : {&fixed.parameters, &bound.parameters}) fill_random(x->data(), x->size(), 1);
  for (auto* x : {&fixed.input, &bound.input}) fill_random(x->data(), x->size(), 2);
  fixed.forward();
  bound.forward();
  for (dim_t i = 0; i < fixed.output.size(); ++i) CHECK(fixed.output[i] == bound.output[i]);
}

TEST_CASE("the gradients of a convolution are those of its forward") {
  check_gradients(conv2d<4, 2, kernel<3, 2>, stride<2, 1>, padding<1>, dilation<1, 2>, groups<2>>{},
                  {2, 4, 5, 4});
}

TEST_CASE("convolutions over one and three dimensions compute what PyTorch recorded") {
  const auto check_case = [](const std::string& name, const auto& m) {
    compare_layer("conv", name, m);
  };
  check_case("conv1d", conv1d<3, 4, kernel<3>>{});
  check_case("conv1d_stride", conv1d<2, 5, kernel<4>, stride<3>, padding<2>>{});
  check_case("conv1d_dilation", conv1d<2, 3, kernel<3>, padding<4>, dilation<5>>{});
  check_case("conv1d_groups", conv1d<4, 6, kernel<2>, groups<2>, bias<false>>{});
  check_case("conv1d_depthwise", conv1d<5, 5, kernel<3>, padding<1>, groups<5>>{});
  check_case("conv1d_1", conv1d<7, 3, kernel<1>>{});
  check_case("conv1d_unbatched", conv1d<3, 2, kernel<3>>{});
  check_case("conv1d_everything",
             conv1d<6, 9, kernel<3>, stride<2>, padding<3>, dilation<2>, groups<3>, bias<false>>{});
  check_case("conv3d", conv3d<2, 3, kernel<2>>{});
  check_case("conv3d_stride", conv3d<2, 2, kernel<3>, stride<2>, padding<1>>{});
  check_case("conv3d_non_cubic",
             conv3d<2, 3, kernel<1, 3, 2>, stride<2, 1, 3>, padding<0, 2, 1>, dilation<1, 2, 3>>{});
  check_case("conv3d_groups", conv3d<4, 2, kernel<2, 2, 3>, groups<2>, bias<false>>{});
  check_case("conv3d_unbatched", conv3d<2, 3, kernel<3>, padding<1>>{});
  CHECK(layers_not_compared("conv").empty());
}

TEST_CASE("a convolution over one and three dimensions is the same module") {
  using one = conv1d<3, 4, kernel<3>, padding<1>>;
  using three = conv3d<2, 4, kernel<2, 3, 1>, stride<1, 2, 1>>;
  CHECK(one::kind == "conv1d");
  CHECK(three::kind == "conv3d");
  CHECK(one{}.infer(shape{2, 3, 7}).output() == shape{2, 4, 7});
  CHECK(three{}.infer(shape{2, 3, 5, 4}).output() == shape{4, 2, 2, 4});
  CHECK(three{}.parameters()[0].extents == shape{4, 2, 2, 3, 1});
  check_gradients(one{}, {2, 3, 5});
  check_gradients(three{}, {1, 2, 3, 5, 2});
}

TEST_CASE("a convolution of an empty batch") {
  check_empty_batch(conv2d<3, 4, kernel<3>>{}, {0, 3, 5, 5});
  check_empty_batch(conv2d<3, 6, kernel<3>, groups<3>>{}, {0, 3, 5, 5});
}

TEST_CASE("a convolution says what is wrong with its input") {
  using c = conv2d<3, 6, kernel<5, 3>>;
  CHECK(sentence_of(c{}.infer(shape{2, 4, 8, 8})) ==
        "conv2d expects in_channels = 3, got 4 (input [2, 4, 8, 8])");
  CHECK(sentence_of(c{}.infer(shape{4, 8, 8})) ==
        "conv2d expects in_channels = 3, got 4 (input [4, 8, 8])");
  CHECK(sentence_of(c{}.infer(shape{3, 8})) ==
        "conv2d expects an input of 3 (unbatched) or 4 dimensions, got 2 (input [3, 8])");
  CHECK(sentence_of(c{}.infer(shape{dynamic, 3, 4, 8})) ==
        "conv2d expects a padded input of at least 5 (the reach of the kernel), got 4 (input "
        "[dynamic, 3, 4, 8])");
  CHECK(sentence_of(conv2d<3, 6, kernel<3>, groups<2>>{}.infer(shape{1, 3, 8, 8})) ==
        "conv2d expects in_channels divisible by groups = 2, got 3 (input [1, 3, 8, 8])");
  CHECK(sentence_of(lazy_conv2d<6, kernel<3>, groups<2>>{}.infer(shape{1, 3, 8, 8})) ==
        "conv2d expects in_channels divisible by groups = 2, got 3 (input [1, 3, 8, 8])");
  CHECK(sentence_of(conv2d<4, 5, kernel<3>, groups<2>>{}.infer(shape{1, 4, 8, 8})) ==
        "conv2d expects out_channels divisible by groups = 2, got 5 (input [1, 4, 8, 8])");
}

TEST_CASE("a lazy convolution becomes what the input brings") {
  static_assert(lazy_conv2d<6, kernel<3>>::is_lazy);
  static_assert(
      std::is_same_v<decltype(lazy_conv2d<6, kernel<3>>{}.become<shape{dynamic, 3, 8, 8}>()),
                     conv2d<3, 6, kernel<3>>>);
  static_assert(std::is_same_v<decltype(lazy_conv2d<6, kernel<3>>{}.become<shape{dynamic, 8, 8}>()),
                               conv2d<dynamic, 6, kernel<3>>>);
  static_assert(
      std::is_same_v<decltype(lazy_conv1d<6, kernel<3>, same_padding>{}.become<shape{3, 8}>()),
                     conv1d<3, 6, kernel<3>, same_padding>>);
  static_assert(
      std::is_same_v<decltype(lazy_conv3d<6, kernel<3>>{}.become<shape{2, dynamic, 8, 8, 8}>()),
                     conv3d<dynamic, 6, kernel<3>>>);
  CHECK(lazy_conv2d<6, kernel<3>>{}.infer(shape{dynamic, 3, dynamic, 8}).output() ==
        shape{dynamic, 6, dynamic, 6});
}

TEST_CASE("a convolution takes in_channels from a state") {
  conv2d<dynamic, 6, kernel<3>, groups<2>> m;
  const shape state[] = {{6, 4, 3, 3}, {6}};
  m.bind_state(state, {});
  CHECK(m.in_channels.value() == 8);
  CHECK(m.parameters()[0].extents == state[0]);
}

TEST_CASE("a convolution describes itself by PyTorch's names") {
  CHECK(described(conv2d<3, 6, kernel<3>>{}) ==
        "in_channels=3, out_channels=6, kernel_size=3, stride=1");
  CHECK(
      described(
          lazy_conv2d<6, kernel<3, 5>, padding<1, 2>, dilation<2>, groups<3>, bias<false>>{}) ==
      "in_channels=lazy, out_channels=6, kernel_size=(3, 5), stride=1, padding=(1, 2), dilation=2, "
      "groups=3, bias=false");
  CHECK(described(conv1d<3, 6, kernel<2>, same_padding, padding_mode<"reflect">>{}) ==
        "in_channels=3, out_channels=6, kernel_size=2, stride=1, padding=same, "
        "padding_mode=reflect");
  CHECK(described(conv1d<3, 6, kernel<2>, stride<2>, valid_padding>{}) ==
        "in_channels=3, out_channels=6, kernel_size=2, stride=2");
  CHECK(conv2d<4, 6, kernel<3>, groups<2>>{}.multiply_adds(
            shape_list{shape{2, 4, 5, 5}}, shape_list{shape{2, 6, 3, 3}}) == 2 * 6 * 3 * 3 * 2 * 9);
}
