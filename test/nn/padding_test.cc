#include "ikebana/nn/padding.hpp"

#include <doctest/doctest.h>

#include <string>

#include "layers.hpp"

using namespace ikebana;

namespace {

template <class M>
void check_case(const std::string& name, const M& m) {
  compare_layer("padding", name, m);
}

template <template <std::size_t, class...> class Pad, class... Value>
void compare_pads(const std::string& name, Value... value) {
  check_case(name + "_1d", Pad<1, padding<2>>(value...));
  check_case(name + "_1d_sides", Pad<1, padding<1, 3>>(value...));
  check_case(name + "_1d_unbatched", Pad<1, padding<2, 0>>(value...));
  check_case(name + "_2d", Pad<2, padding<1>>(value...));
  check_case(name + "_2d_sides", Pad<2, padding<1, 2, 3, 0>>(value...));
  check_case(name + "_2d_unbatched", Pad<2, padding<0, 1, 2, 1>>(value...));
  check_case(name + "_3d", Pad<3, padding<1>>(value...));
  check_case(name + "_3d_sides", Pad<3, padding<1, 2, 0, 1, 2, 1>>(value...));
}

}  // namespace

TEST_CASE("padding modules compute what PyTorch recorded") {
  compare_pads<zero_pad>("zero");
  compare_pads<constant_pad>("constant", -1.25);
  compare_pads<reflection_pad>("reflection");
  compare_pads<replication_pad>("replication");
  check_case("circular_1d", circular_pad1d<padding<2>>{});
  check_case("circular_1d_sides", circular_pad1d<padding<1, 4>>{});
  check_case("circular_2d", circular_pad2d<padding<1, 1>>{});
  check_case("circular_2d_sides", circular_pad2d<padding<1, 2, 3, 0>>{});
  check_case("circular_3d_sides", circular_pad3d<padding<1, 2, 0, 1, 2, 1>>{});
  CHECK(layers_not_compared("padding").empty());
}

TEST_CASE("padding takes one number for each dimension, as convolutions do") {
  CHECK(zero_pad2d<padding<1, 0>>{}.infer(shape{1, 2, 5, 5}).output() == shape{1, 2, 7, 5});
  CHECK(zero_pad3d<padding<1, 2, 3>>{}.infer(shape{2, 5, 5, 5}).output() == shape{2, 7, 9, 11});
  CHECK(described(zero_pad2d<padding<1, 0>>{}) == "padding=(0, 0, 1, 1)");
  CHECK(described(constant_pad1d<padding<1, 2>>{0.5}) == "padding=(1, 2), value=0.5");
  CHECK(zero_pad2d<padding<1>>::kind == "zero_pad2d");
}

TEST_CASE("the gradients of padding are those of its forward") {
  check_gradients(zero_pad2d<padding<1, 0, 2, 1>>{}, {2, 1, 3, 2});
  check_gradients(constant_pad1d<padding<2>>{3}, {1, 2, 3});
  check_gradients(reflection_pad2d<padding<1, 2, 2, 1>>{}, {1, 2, 3, 4});
  check_gradients(replication_pad3d<padding<1>>{}, {1, 2, 2, 1, 3});
  check_gradients(circular_pad1d<padding<3, 2>>{}, {2, 1, 3});
}

TEST_CASE("padding of an empty batch, and zeros around nothing") {
  check_empty_batch(reflection_pad2d<padding<1>>{}, {0, 3, 5, 5});
  check_empty_batch(constant_pad1d<padding<1>>{2}, {0, 3, 5});
  leaf_run<float, constant_pad1d<padding<1, 2>>> run(constant_pad1d<padding<1, 2>>{7}, {1, 2, 0});
  run.forward();
  for (float y : run.output.span()) CHECK(y == 7);
}

TEST_CASE("padding says what is wrong with its input, and keeps what only run time knows") {
  CHECK(sentence_of(zero_pad2d<padding<1>>{}.infer(shape{8, 8})) ==
        "zero_pad2d expects an input of 3 (unbatched) or 4 dimensions, got 2 (input [8, 8])");
  CHECK(sentence_of(reflection_pad1d<padding<3>>{}.infer(shape{2, 1, 3})) ==
        "reflection_pad1d expects spatial extents of at least 4 (more than the padding, which "
        "reflects), got 3 (input [2, 1, 3])");
  CHECK(sentence_of(circular_pad1d<padding<0, 4>>{}.infer(shape{2, 1, 3})) ==
        "circular_pad1d expects spatial extents of at least 4 (the padding, which is circular), "
        "got 3 (input [2, 1, 3])");
  CHECK(sentence_of(replication_pad1d<padding<1>>{}.infer(shape{2, 1, 0})) ==
        "replication_pad1d expects spatial extents of at least 1 (padding replicates the edge), "
        "got 0 (input [2, 1, 0])");
  CHECK(reflection_pad2d<padding<1>>{}.infer(shape{dynamic, 3, dynamic, 8}).output() ==
        shape{dynamic, 3, dynamic, 10});
}
