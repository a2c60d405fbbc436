#include <doctest/doctest.h>

#include <string>

#include "ikebana/nn/conv.hpp"
#include "layers.hpp"

using namespace ikebana;

namespace {

template <class M>
void check_case(const std::string& name, const M& m) {
  compare_layer("conv_padding", name, m);
}

template <detail::literal Mode>
void compare_mode() {
  using how = padding_mode<Mode>;
  const std::string mode{how::value};
  check_case(mode + "_1d", conv1d<3, 2, kernel<3>, padding<2>, how>{});
  check_case(mode + "_1d_stride", conv1d<2, 3, kernel<4>, padding<3>, stride<2>, how>{});
  check_case(mode + "_1d_same", conv1d<2, 2, kernel<4>, same_padding, how>{});
  check_case(mode + "_1d_unbatched", conv1d<2, 3, kernel<3>, padding<1>, how>{});
  check_case(mode + "_2d", conv2d<2, 3, kernel<3>, padding<1, 2>, how>{});
  check_case(
      mode + "_2d_same_groups",
      conv2d<4, 2, kernel<2, 3>, same_padding, dilation<3, 1>, groups<2>, bias<false>, how>{});
  check_case(mode + "_3d", conv3d<2, 2, kernel<2>, padding<1, 2, 1>, how>{});
}

}  // namespace

TEST_CASE("padding that keeps the extents is what PyTorch recorded") {
  check_case("same_1d", conv1d<3, 2, kernel<3>, same_padding>{});
  check_case("same_1d_even", conv1d<3, 2, kernel<4>, same_padding>{});
  check_case("same_1d_dilation", conv1d<2, 3, kernel<2>, same_padding, dilation<3>>{});
  check_case("same_2d", conv2d<3, 2, kernel<3, 2>, same_padding>{});
  check_case("same_2d_groups",
             conv2d<4, 2, kernel<2, 4>, same_padding, dilation<1, 3>, groups<2>>{});
  check_case("same_2d_wider_than_the_input", conv2d<2, 2, kernel<6, 5>, same_padding>{});
  check_case("same_3d", conv3d<2, 2, kernel<2, 3, 4>, same_padding>{});
  check_case("valid_2d", conv2d<2, 3, kernel<3, 2>, stride<2>, valid_padding>{});
}

TEST_CASE("padding of every mode is what PyTorch recorded") {
  compare_mode<"reflect">();
  compare_mode<"replicate">();
  compare_mode<"circular">();
  check_case("reflect_2d_most", conv2d<2, 2, kernel<3>, padding<2, 3>, padding_mode<"reflect">>{});
  check_case("reflect_3d_same",
             conv3d<1, 2, kernel<3, 2, 3>, same_padding, padding_mode<"reflect">>{});
  check_case("circular_2d_whole_input",
             conv2d<2, 2, kernel<3>, padding<2, 3>, padding_mode<"circular">>{});
  check_case("replicate_2d_beyond_the_input",
             conv2d<2, 2, kernel<3>, padding<3, 5>, padding_mode<"replicate">>{});
  check_case("reflect_2d_without_padding", conv2d<2, 2, kernel<3>, padding_mode<"reflect">>{});
  check_case("reflect_2d_one_side",
             conv2d<2, 2, kernel<1, 3>, padding<0, 1>, padding_mode<"reflect">>{});
  CHECK(layers_not_compared("conv_padding").empty());
}

TEST_CASE("the gradients of a convolution with padding are those of its forward") {
  check_gradients(conv2d<4, 2, kernel<2, 4>, same_padding, dilation<1, 3>, groups<2>>{},
                  {2, 4, 3, 4});
  check_gradients(conv1d<2, 3, kernel<4>, padding<3>, stride<2>, padding_mode<"reflect">>{},
                  {2, 5});
  check_gradients(conv2d<2, 3, kernel<3>, padding<1, 2>, padding_mode<"circular">>{}, {2, 2, 1, 3});
  check_gradients(conv3d<2, 2, kernel<2>, padding<1, 2, 1>, padding_mode<"replicate">>{},
                  {1, 2, 2, 1, 2});
}

TEST_CASE("a convolution with padding of an empty batch") {
  check_empty_batch(conv2d<3, 2, kernel<3, 2>, same_padding>{}, {0, 3, 5, 5});
  check_empty_batch(conv2d<2, 3, kernel<3>, padding<1, 2>, padding_mode<"reflect">>{},
                    {0, 2, 5, 5});
}

TEST_CASE("extents that only run time knows are padded too") {
  using c = conv2d<3, 4, kernel<4, 3>, same_padding, padding_mode<"circular">>;
  CHECK(c{}.infer(shape{dynamic, 3, dynamic, 5}).output() == shape{dynamic, 4, dynamic, 5});
  CHECK(c{}.saved(shape_list{shape{dynamic, 3, dynamic, 5}})[0].extents ==
        shape{dynamic, 3, dynamic, 7});
  CHECK(c{}.saved(shape_list{shape{2, 3, 4, 5}})[0].extents == shape{2, 3, 7, 7});
  CHECK(conv2d<3, 4, kernel<3>, padding<1>>{}.saved(shape_list{shape{2, 3, 4, 5}}).empty());
}

TEST_CASE("a convolution says how much padding an input bears") {
  CHECK(sentence_of(conv2d<3, 6, kernel<3>, padding<1, 4>, padding_mode<"reflect">>{}.infer(
            shape{2, 3, 8, 4})) ==
        "conv2d expects spatial extents of at least 5 (more than the padding, which reflects), got "
        "4 (input [2, 3, 8, 4])");
  CHECK(sentence_of(
            conv1d<3, 6, kernel<3>, padding<5>, padding_mode<"circular">>{}.infer(shape{3, 4})) ==
        "conv1d expects spatial extents of at least 5 (the padding, which is circular), got 4 "
        "(input [3, 4])");
  CHECK(sentence_of(
            conv1d<3, 6, kernel<3>, padding<5>, padding_mode<"replicate">>{}.infer(shape{3, 0})) ==
        "conv1d expects spatial extents of at least 1 (padding replicates the edge), got 0 (input "
        "[3, 0])");
  CHECK(sentence_of(conv1d<3, 6, kernel<3>, same_padding>{}.infer(shape{3, 0})) ==
        "conv1d expects a padded input of at least 3 (the reach of the kernel), got 2 (input [3, "
        "0])");
  CHECK(conv1d<3, 6, kernel<3>, padding<3>, padding_mode<"reflect">>{}.infer(shape{3, 4}).ok());
  CHECK(conv1d<3, 6, kernel<3>, padding<4>, padding_mode<"circular">>{}.infer(shape{3, 4}).ok());
}
