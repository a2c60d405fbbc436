#include "ikebana/nn/conv_transpose.hpp"

#include <doctest/doctest.h>

#include <string>
#include <type_traits>

#include "ikebana/nn/conv.hpp"
#include "layers.hpp"

using namespace ikebana;

namespace {

template <class M>
void check_case(const std::string& name, const M& m) {
  compare_layer("conv_transpose", name, m);
}

/// `Channels` as in the recorded inputs; `Plain` is the first case's module.
template <std::size_t Spatial, dim_t Channels, class Plain, class OutputSize>
void compare_dimensions() {
  const std::string name{Plain::kind};
  check_case(name, Plain{});
  check_case(name + "_stride", conv_transpose<Spatial, Channels, 2, kernel<3>, stride<2>>{});
  check_case(
      name + "_output_padding",
      conv_transpose<Spatial, Channels, 2, kernel<3>, stride<2>, padding<1>, output_padding<1>>{});
  check_case(name + "_dilation", conv_transpose<Spatial, Channels, 2, kernel<2>, dilation<3>,
                                                padding<1>, output_padding<2>>{});
  check_case(name + "_unbatched", conv_transpose<Spatial, Channels, 2, kernel<2>, stride<2>>{});
  check_case(name + "_output_size",
             conv_transpose<Spatial, Channels, 2, kernel<3>, stride<2>, padding<1>, OutputSize>{});
}

}  // namespace

TEST_CASE("transposed convolutions compute what PyTorch recorded") {
  compare_dimensions<1, 3, conv_transpose1d<3, 4, kernel<3>>, output_size<14>>();
  compare_dimensions<2, 3, conv_transpose2d<3, 4, kernel<3>>, output_size<8, 10>>();
  compare_dimensions<3, 2, conv_transpose3d<2, 4, kernel<2>>, output_size<6, 4, 8>>();
  check_case("conv_transpose1d_no_bias", conv_transpose1d<3, 3, kernel<2>, bias<false>>{});
  check_case("conv_transpose1d_groups", conv_transpose1d<4, 6, kernel<3>, groups<2>>{});
  check_case("conv_transpose1d_1", conv_transpose1d<5, 3, kernel<1>>{});
  check_case("conv_transpose1d_stride_beyond_the_kernel",
             conv_transpose1d<3, 2, kernel<2>, stride<5>>{});
  check_case("conv_transpose1d_padding_beyond_the_kernel",
             conv_transpose1d<2, 3, kernel<2>, padding<3>>{});
  check_case("conv_transpose1d_wide", conv_transpose1d<3, 2, kernel<4>, padding<1>>{});
  check_case("conv_transpose2d_groups",
             conv_transpose2d<4, 2, kernel<2, 3>, groups<2>, padding<0, 1>>{});
  check_case("conv_transpose2d_depthwise",
             conv_transpose2d<3, 6, kernel<3>, stride<2>, groups<3>>{});
  check_case("conv_transpose2d_everything",
             conv_transpose2d<4, 6, kernel<3, 2>, stride<2, 3>, padding<2, 1>, output_padding<1, 3>,
                              dilation<2, 4>, groups<2>, bias<false>>{});
  check_case("conv_transpose2d_output_size_uneven",
             conv_transpose2d<2, 2, kernel<3>, stride<2, 3>, output_size<10, 11>>{});
  check_case("conv_transpose2d_many_channels", conv_transpose2d<2, 67, kernel<1>>{});
  check_case("conv_transpose3d_non_cubic",
             conv_transpose3d<2, 3, kernel<1, 3, 2>, stride<2, 1, 3>, padding<0, 2, 1>,
                              output_padding<1, 0, 2>, dilation<1, 2, 1>>{});
  check_case("conv_transpose3d_groups",
             conv_transpose3d<4, 2, kernel<2>, stride<1, 2, 2>, groups<2>>{});
  CHECK(layers_not_compared("conv_transpose").empty());
}

TEST_CASE("the gradients of a transposed convolution are those of its forward") {
  check_gradients(conv_transpose2d<4, 2, kernel<3, 2>, stride<2, 1>, padding<1>, dilation<1, 2>,
                                   output_padding<1>, groups<2>>{},
                  {2, 4, 3, 4});
  check_gradients(conv_transpose1d<3, 2, kernel<3>>{}, {3, 5});
  check_gradients(conv_transpose3d<1, 2, kernel<2>, stride<3>>{}, {1, 1, 2, 1, 2});
}

TEST_CASE("in_channels of a transposed convolution that only run time knows give the same bits") {
  using fixed_type = conv_transpose2d<4, 6, kernel<3>, stride<2>, groups<2>>;
  leaf_run<float, fixed_type> fixed({}, {2, 4, 6, 5});
  leaf_run<float, conv_transpose2d<dynamic, 6, kernel<3>, stride<2>, groups<2>>> bound(
      {}, {2, 4, 6, 5});
  REQUIRE(bound.parameters.size() == fixed.parameters.size());
  for (auto* x : {&fixed.parameters, &bound.parameters}) fill_random(x->data(), x->size(), 1);
  for (auto* x : {&fixed.input, &bound.input}) fill_random(x->data(), x->size(), 2);
  fixed.forward();
  bound.forward();
  for (dim_t i = 0; i < fixed.output.size(); ++i) CHECK(fixed.output[i] == bound.output[i]);
}

TEST_CASE("a transposed convolution of an empty batch") {
  check_empty_batch(conv_transpose2d<3, 4, kernel<3>>{}, {0, 3, 5, 5});
  check_empty_batch(conv_transpose1d<3, 6, kernel<3>, stride<2>, groups<3>>{}, {0, 3, 5});
}

TEST_CASE("a transposed convolution infers what a convolution came from") {
  CHECK(conv_transpose2d<16, 3, kernel<3>, stride<2>, padding<1>>{}
            .infer(shape{dynamic, 16, 6, dynamic})
            .output() == shape{dynamic, 3, 11, dynamic});
  using sized = conv_transpose2d<16, 3, kernel<3>, stride<2>, padding<1>, output_size<12>>;
  CHECK(sized{}.infer(shape{dynamic, 16, 6, dynamic}).output() == shape{dynamic, 3, 12, 12});
  CHECK(sized{}.infer(shape{16, 6, 6}).output() == shape{3, 12, 12});
}

TEST_CASE("a transposed convolution says what is wrong with its input") {
  using c = conv_transpose2d<4, 6, kernel<3>, stride<2>, padding<3>>;
  CHECK(sentence_of(c{}.infer(shape{2, 3, 8, 8})) ==
        "conv_transpose2d expects in_channels = 4, got 3 (input [2, 3, 8, 8])");
  CHECK(sentence_of(c{}.infer(shape{4, 8})) ==
        "conv_transpose2d expects an input of 3 (unbatched) or 4 dimensions, got 2 (input [4, 8])");
  CHECK(sentence_of(c{}.infer(shape{dynamic, 4, 8, 2})) ==
        "conv_transpose2d expects padding of at most 2, which leaves an output, got 3 (input "
        "[dynamic, 4, 8, 2])");
  CHECK(
      sentence_of(conv_transpose1d<4, 6, kernel<1>, stride<2>, padding<3>, output_size<1>>{}.infer(
          shape{4, 2})) ==
      "conv_transpose1d expects padding of at most 1, which leaves an output, got 3 (input [4, "
      "2])");
  CHECK(sentence_of(c{}.infer(shape{4, 0, 8})) ==
        "conv_transpose2d expects spatial extents of at least 1 (input [4, 0, 8])");
  CHECK(sentence_of(lazy_conv_transpose1d<6, kernel<3>, groups<2>>{}.infer(shape{3, 8})) ==
        "conv_transpose1d expects in_channels divisible by groups = 2, got 3 (input [3, 8])");
  CHECK(sentence_of(conv_transpose1d<4, 5, kernel<3>, groups<2>>{}.infer(shape{4, 8})) ==
        "conv_transpose1d expects out_channels divisible by groups = 2, got 5 (input [4, 8])");
  using sized = conv_transpose1d<4, 5, kernel<3>, stride<2>, output_size<10>>;
  CHECK(sized{}.infer(shape{4, 4}).ok());
  CHECK(sentence_of(sized{}.infer(shape{4, 5})) ==
        "conv_transpose1d expects an output_size of at least 11, got 10 (input [4, 5])");
  CHECK(sentence_of(sized{}.infer(shape{4, 3})) ==
        "conv_transpose1d expects an output_size of at most 8, got 10 (input [4, 3])");
}

TEST_CASE("a lazy transposed convolution becomes what the input brings") {
  using c = lazy_conv_transpose2d<6, kernel<3>, stride<2>>;
  static_assert(c::is_lazy);
  static_assert(std::is_same_v<decltype(c{}.become<shape{dynamic, 3, 8, 8}>()),
                               conv_transpose2d<3, 6, kernel<3>, stride<2>>>);
  static_assert(std::is_same_v<decltype(c{}.become<shape{dynamic, 8, 8}>()),
                               conv_transpose2d<dynamic, 6, kernel<3>, stride<2>>>);
  static_assert(
      std::is_same_v<decltype(lazy_conv_transpose1d<6, kernel<3>>{}.become<shape{4, 8}>()),
                     conv_transpose1d<4, 6, kernel<3>>>);
  static_assert(
      std::is_same_v<decltype(lazy_conv_transpose3d<6, kernel<3>>{}.become<shape{2, 4, 8, 8, 8}>()),
                     conv_transpose3d<4, 6, kernel<3>>>);
}

TEST_CASE("a transposed convolution takes in_channels from a state") {
  conv_transpose2d<dynamic, 6, kernel<3>, groups<2>> m;
  const shape state[] = {{8, 3, 3, 3}, {6}};
  m.bind_state(state, {});
  CHECK(m.in_channels.value() == 8);
  CHECK(m.parameters()[0].extents == state[0]);
}

TEST_CASE("a transposed convolution is drawn within PyTorch's bound, out_channels / groups' own") {
  const auto p = conv_transpose2d<64, 6, kernel<3>, groups<2>>{}.parameters();
  CHECK(p[0].init.value == initializer::kaiming_uniform(3 * 9).value);
  CHECK(p[1].init.value == p[0].init.value);
}

TEST_CASE("a transposed convolution describes itself by PyTorch's names") {
  using c = conv_transpose2d<4, 6, kernel<3>, stride<2>, padding<1>, output_padding<1, 0>,
                             dilation<2>, groups<2>, bias<false>>;
  CHECK(described(c{}) ==
        "in_channels=4, out_channels=6, kernel_size=3, stride=2, padding=1, dilation=2, "
        "output_padding=(1, 0), groups=2, bias=false");
  CHECK(described(lazy_conv_transpose1d<6, kernel<3>, output_size<9>>{}) ==
        "in_channels=lazy, out_channels=6, kernel_size=3, stride=1, output_size=9");
  CHECK(c{}.multiply_adds(shape_list{shape{2, 4, 5, 5}}, shape_list{shape{2, 6, 12, 11}}) ==
        2 * 4 * 5 * 5 * 3 * 9);
}
