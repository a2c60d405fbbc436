#include "ikebana/nn/bilinear.hpp"

#include <doctest/doctest.h>

#include <type_traits>

#include "layers.hpp"

using namespace ikebana;

TEST_CASE("bilinear computes what PyTorch recorded") {
  const auto compare = [](const std::string& name, const auto& m) {
    compare_layer("bilinear", name, m);
  };
  compare("bilinear", bilinear<5, 3, 4>{});
  compare("bilinear", bilinear<dynamic, dynamic, 4>{});
  compare("bilinear_no_bias", bilinear<3, 7, 2, bias<false>>{});
  compare("bilinear_1d", bilinear<4, 5, 3>{});
  compare("bilinear_4d", bilinear<2, 3, 5>{});
  compare("bilinear_many_rows", bilinear<3, 2, 2>{});
  compare("bilinear_wide", bilinear<17, 19, 3>{});
  CHECK(layers_not_compared("bilinear").empty());
}

TEST_CASE("the gradients of bilinear are those of its forward") {
  check_gradients(bilinear<3, 2, 4>{}, {shape{5, 3}, shape{5, 2}});
  check_gradients(bilinear<1, 3, 1, bias<false>>{}, {shape{1}, shape{3}});
}

TEST_CASE("bilinear of an empty batch") {
  check_empty_batch(bilinear<3, 2, 4>{}, {shape{0, 3}, shape{0, 2}});
}

TEST_CASE("a lazy bilinear takes its features from two inputs") {
  constexpr auto made = lazy_bilinear<7, bias<false>>{}.become<shape{5, 3}, shape{5, 2}>();
  CHECK(std::is_same_v<decltype(made), const bilinear<3, 2, 7, bias<false>>>);
  constexpr auto later = lazy_bilinear<7>{}.become<shape{dynamic, dynamic}, shape{dynamic, 2}>();
  CHECK(std::is_same_v<decltype(later), const bilinear<dynamic, 2, 7>>);
  CHECK(lazy_bilinear<7>::is_lazy);
  CHECK(bilinear<lazy, 2, 7>::is_lazy);
  CHECK_FALSE(bilinear<dynamic, 2, 7>::is_lazy);
}

TEST_CASE("a bilinear of dynamic features takes them from inputs or from its state") {
  bilinear<dynamic, dynamic, 4> m;
  CHECK(m.parameters()[0].extents == shape{4, dynamic, dynamic});
  m.bind(shape_list{shape{5, 3}, shape{5, 2}});
  CHECK(m.parameters()[0].extents == shape{4, 3, 2});
  bilinear<dynamic, dynamic, 4> n;
  const shape state[] = {shape{4, 6, 9}, shape{4}};
  n.bind_state(state, {});
  CHECK(n.in1_features.value() == 6);
  CHECK(n.in2_features.value() == 9);
  CHECK(bilinear<3, 2, 4>{}.parameters()[1].extents == shape{4});
}

TEST_CASE("bilinear says what is wrong with its inputs") {
  constexpr bilinear<3, 2, 4> m;
  CHECK(sentence_of(m.infer(shape{5, 4}, shape{5, 2})) ==
        "bilinear expects in1_features = 3, got 4 (input [5, 4])");
  CHECK(sentence_of(m.infer(shape{5, 3}, shape{5, 7})) ==
        "bilinear expects in2_features = 2, got 7 (input [5, 7])");
  CHECK(sentence_of(m.infer(shape{5, 3}, shape{2})) ==
        "bilinear expects inputs of equally many dimensions, at least 1, got [5, 3] and [2]");
  CHECK(sentence_of(m.infer(shape{5, 6, 3}, shape{5, 1, 2})) ==
        "bilinear expects inputs that differ in the last dimension alone, got [5, 6, 3] and [5, 1, "
        "2]");
  CHECK(m.infer(shape{dynamic, 3}, shape{6, 2}).output() == shape{6, 4});
  CHECK(m.infer(shape{dynamic, 3}, shape{dynamic, 2}).output() == shape{dynamic, 4});
}

TEST_CASE("bilinear describes itself by PyTorch's names") {
  CHECK(described(bilinear<3, 2, 4>{}) ==
        "in1_features=3, in2_features=2, out_features=4, bias=true");
  CHECK(described(lazy_bilinear<4>{}) ==
        "in1_features=lazy, in2_features=lazy, out_features=4, bias=true");
}
