#include "ikebana/nn/upsample.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <string>

#include "ikebana/nn/fold.hpp"
#include "ikebana/nn/local_response_norm.hpp"
#include "ikebana/nn/pixel_shuffle.hpp"
#include "ikebana/nn/unflatten.hpp"
#include "layers.hpp"

using namespace ikebana;

namespace {

template <class M>
void check_case(const std::string& name, const M& m) {
  compare_layer("features", name, m);
}

template <detail::literal Mode, class Size>
void compare_mode(const std::string& name) {
  using how = mode<Mode>;
  check_case(name, upsample<scale_factor<2>, how>{});
  check_case(name + "_fraction", upsample<how, scale_factor<1.5>>{});
  check_case(name + "_size", upsample<Size, how>{});
  if constexpr (!upsample<Size, how>::is_nearest) {
    using corners = align_corners<true>;
    check_case(name + "_corners", upsample<scale_factor<2>, how, corners>{});
    check_case(name + "_fraction_corners", upsample<scale_factor<1.5>, how, corners>{});
  }
}

}  // namespace

TEST_CASE("upsample computes what PyTorch recorded") {
  compare_mode<"nearest", output_size<7>>("upsample_nearest_1d");
  compare_mode<"nearest", output_size<7, 3>>("upsample_nearest_2d");
  compare_mode<"nearest", output_size<7, 3, 6>>("upsample_nearest_3d");
  compare_mode<"nearest-exact", output_size<7>>("upsample_nearest_exact_1d");
  compare_mode<"nearest-exact", output_size<7, 3>>("upsample_nearest_exact_2d");
  compare_mode<"nearest-exact", output_size<7, 3, 6>>("upsample_nearest_exact_3d");
  compare_mode<"linear", output_size<7>>("upsample_linear_1d");
  compare_mode<"bilinear", output_size<7, 3>>("upsample_bilinear_2d");
  compare_mode<"trilinear", output_size<7, 3, 6>>("upsample_trilinear_3d");
  compare_mode<"bicubic", output_size<7, 3>>("upsample_bicubic_2d");
  using corners = align_corners<true>;
  check_case("upsample_linear_1d_size_corners",
             upsample<output_size<7>, mode<"linear">, corners>{});
  check_case("upsample_bilinear_2d_size_corners", upsampling_bilinear2d<output_size<7, 1>>{});
  check_case("upsample_trilinear_3d_size_corners",
             upsample<output_size<7, 1, 6>, mode<"trilinear">, corners>{});
  check_case("upsample_bicubic_2d_size_corners",
             upsample<output_size<7, 1>, mode<"bicubic">, corners>{});
  CHECK(layers_not_compared("features", "upsample").empty());
}

TEST_CASE("the gradients of upsample are those of its forward") {
  check_gradients(upsample<scale_factor<2, 1.5>>{}, {2, 1, 3, 4});
  check_gradients(upsample<output_size<2, 5>, mode<"bilinear">>{}, {1, 2, 3, 4});
  check_gradients(upsample<scale_factor<3>, mode<"bicubic">>{}, {1, 1, 3, 2});
}

TEST_CASE("upsample infers extents and says what is wrong") {
  CHECK(upsample<scale_factor<1.5>>{}.infer(shape{dynamic, 3, 5, dynamic}).output() ==
        shape{dynamic, 3, 7, dynamic});
  CHECK(upsample<output_size<4>>{}.infer(shape{2, 3, dynamic}).output() == shape{2, 3, 4});
  CHECK(sentence_of(upsample<scale_factor<2>, mode<"bilinear">>{}.infer(shape{2, 3, 4})) ==
        "upsample expects an input of 4 dimensions, got 3 (input [2, 3, 4])");
  CHECK(sentence_of(upsample<scale_factor<2>>{}.infer(shape{2, 3})) ==
        "upsample expects an input of 3 to 5 dimensions, got 2 (input [2, 3])");
  CHECK(sentence_of(upsample<scale_factor<2>>{}.infer(shape{2, 3, 0})) ==
        "upsample expects spatial extents of at least 1, got 0 (input [2, 3, 0])");
  CHECK(sentence_of(upsample<scale_factor<0.25>>{}.infer(shape{2, 3, 3})) ==
        "upsample expects spatial extents that its factor leaves at least 1 of, got 3 (input [2, "
        "3, 3])");
  CHECK(described(upsample<scale_factor<1.5>, mode<"bicubic">, align_corners<true>>{}) ==
        "scale_factor=1.5, mode=bicubic, align_corners=true");
  CHECK(described(upsample<output_size<2, 3>>{}) == "size=(2, 3), mode=nearest");
  check_empty_batch(upsample<scale_factor<2>>{}, {0, 3, 4, 4});
  check_empty_batch(upsample<scale_factor<2>, mode<"linear">>{}, {2, 0, 4});
}

TEST_CASE("pixel_shuffle and pixel_unshuffle compute what PyTorch recorded") {
  check_case("pixel_shuffle", pixel_shuffle<2>{});
  check_case("pixel_shuffle_three", pixel_shuffle<3>{});
  check_case("pixel_unshuffle", pixel_unshuffle<2>{});
  check_case("pixel_unshuffle_three", pixel_unshuffle<3>{});
  CHECK(layers_not_compared("features", "pixel_").empty());
  check_empty_batch(pixel_shuffle<2>{}, {0, 4, 3, 3});
  check_empty_batch(pixel_unshuffle<2>{}, {0, 4, 2, 2});
  CHECK(pixel_shuffle<2>{}.infer(shape{dynamic, 8, dynamic, 3}).output() ==
        shape{dynamic, 2, dynamic, 6});
  CHECK(sentence_of(pixel_shuffle<2>{}.infer(shape{1, 6, 2, 2})) ==
        "pixel_shuffle expects channels divisible by the squared factor 4, got 6 (input [1, 6, 2, "
        "2])");
  CHECK(sentence_of(pixel_unshuffle<2>{}.infer(shape{1, 6, 2, 3})) ==
        "pixel_unshuffle expects a height and a width divisible by the factor 2, got 3 (input [1, "
        "6, 2, 3])");
  CHECK(sentence_of(pixel_shuffle<2>{}.infer(shape{4, 2})) ==
        "pixel_shuffle expects an input of at least 3 dimensions, got 2 (input [4, 2])");
  CHECK(described(pixel_shuffle<2>{}) == "upscale_factor=2");
  CHECK(described(pixel_unshuffle<3>{}) == "downscale_factor=3");
}

TEST_CASE("channel_shuffle and unflatten compute what PyTorch recorded") {
  compare_layer("written", "channel_shuffle_2", channel_shuffle<2>{});
  compare_layer("written", "channel_shuffle_3", channel_shuffle<3>{});
  compare_layer("written", "channel_shuffle_5", channel_shuffle<5>{});
  CHECK(layers_not_compared("written", "channel_shuffle").empty());
  // unflatten is a view: no leaf of it runs.
  const auto check_view = [](const std::string& name, const auto& m) {
    compares("layers_written", name);
    const state_dict& dict = recorded<double>("layers_written");
    const auto &x = dict.at(name + "/x0"), &y = dict.at(name + "/y0");
    CHECK(m.infer(x.extents).output() == y.extents);
    CHECK(std::ranges::equal(x.bytes, y.bytes));
    CHECK(std::ranges::equal(dict.at(name + "/gx0").bytes, dict.at(name + "/gy0").bytes));
  };
  check_view("unflatten", unflatten<dim<1>, unflattened_size<2, 3>>{});
  check_view("unflatten_last", unflatten<dim<-1>, unflattened_size<5, 1, 2>>{});
  CHECK(layers_not_compared("written", "unflatten").empty());
}

TEST_CASE("channel_shuffle deals channels out to groups") {
  leaf_run<float, channel_shuffle<2>> run({}, {1, 6, 2});
  for (dim_t i = 0; i < 12; ++i) run.input[i] = static_cast<float>(i / 2);
  run.forward();
  // torch.nn.ChannelShuffle(2) of channels 0 to 5.
  const float expected[] = {0, 3, 1, 4, 2, 5};
  for (dim_t i = 0; i < 12; ++i) CHECK(run.output[i] == expected[i / 2]);
  check_gradients(channel_shuffle<3>{}, {2, 6, 2});
  check_empty_batch(channel_shuffle<3>{}, {0, 6, 2});
  CHECK(sentence_of(channel_shuffle<4>{}.infer(shape{1, 6, 2})) ==
        "channel_shuffle expects channels divisible by groups = 4, got 6 (input [1, 6, 2])");
}

TEST_CASE("unfold and fold compute what PyTorch recorded") {
  check_case("unfold", unfold<kernel<2>>{});
  check_case("unfold_everything",
             unfold<kernel<2, 3>, dilation<2, 1>, padding<1, 2>, stride<1, 2>>{});
  check_case("unfold_unbatched", unfold<kernel<3, 2>, padding<1>>{});
  check_case("fold", fold<output_size<4, 5>, kernel<2>>{});
  check_case("fold_everything",
             fold<output_size<5, 6>, kernel<2, 3>, dilation<2, 1>, padding<1, 2>, stride<1, 2>>{});
  check_case("fold_unbatched", fold<output_size<4, 3>, kernel<3, 2>, padding<1>>{});
  CHECK(layers_not_compared("features", "fold").empty());
  CHECK(layers_not_compared("features", "unfold").empty());
  check_empty_batch(unfold<kernel<2>>{}, {0, 2, 3, 3});
  check_empty_batch(fold<output_size<3>, kernel<2>>{}, {0, 4, 4});
  CHECK(unfold<kernel<2>>{}.infer(shape{dynamic, 3, dynamic, 4}).output() ==
        shape{dynamic, 12, dynamic});
  CHECK(sentence_of(unfold<kernel<3>>{}.infer(shape{1, 2, 4, 2})) ==
        "unfold expects a padded input of at least 3 (the reach of the kernel), got 2 (input [1, "
        "2, 4, 2])");
  CHECK(sentence_of(fold<output_size<3>, kernel<2>>{}.infer(shape{1, 5, 4})) ==
        "fold expects channels divisible by the kernel's 4 elements, got 5 (input [1, 5, 4])");
  CHECK(sentence_of(fold<output_size<3>, kernel<2>>{}.infer(shape{1, 8, 5})) ==
        "fold expects 4 windows, got 5 (input [1, 8, 5])");
}

TEST_CASE("local_response_norm computes what PyTorch recorded") {
  check_case("local_response_norm", local_response_norm<2>{});
  check_case("local_response_norm_2d", local_response_norm<3>{.alpha = 0.5, .beta = 0.6, .k = 2});
  check_case("local_response_norm_wide", local_response_norm<5>{.alpha = 2});
  CHECK(layers_not_compared("features", "local_").empty());
  check_gradients(local_response_norm<3>{.alpha = 1}, {1, 4, 2});
  check_empty_batch(local_response_norm<3>{}, {0, 4, 2});
  CHECK(sentence_of(local_response_norm<3>{}.infer(shape{2, 3})) ==
        "local_response_norm expects an input of at least 3 dimensions, got 2 (input [2, 3])");
  CHECK(described(local_response_norm<3>{}) == "size=3, alpha=0.0001, beta=0.75, k=1");
}

TEST_CASE("unflatten divides a dimension") {
  using halves = unflatten<dim<1>, unflattened_size<2, dynamic>>;
  CHECK(halves{}.infer(shape{5, 12, 3}).output() == shape{5, 2, 6, 3});
  CHECK(halves{}.infer(shape{5, dynamic}).output() == shape{5, 2, dynamic});
  CHECK(unflatten<unflattened_size<3, 4>, dim<-1>>{}.infer(shape{dynamic, 12}).output() ==
        shape{dynamic, 3, 4});
  CHECK(unflatten<unflattened_size<3, 4>>{}.infer(shape{2, dynamic}).output() == shape{2, 3, 4});
  CHECK(sentence_of(unflatten<unflattened_size<3, 4>>{}.infer(shape{2, 13})) ==
        "unflatten expects an extent of 12 (the product of the sizes), got 13 (input [2, 13])");
  CHECK(sentence_of(halves{}.infer(shape{2, 13})) ==
        "unflatten expects an extent divisible by 2 (the product of the sizes), got 13 (input [2, "
        "13])");
  CHECK(sentence_of(halves{}.infer(shape{2})) ==
        "unflatten expects a dim within 1 dimensions, got 1 (input [2])");
  CHECK(described(halves{}) == "dim=1, unflattened_size=(2, -1)");
}
