#include "ikebana/nn/linear.hpp"

#include <doctest/doctest.h>

#include <limits>

#include "recorded.hpp"

using namespace ikebana;

TEST_CASE("linear computes what PyTorch recorded") {
  compare("linear_2d", linear<13, 7>{});
  compare("linear_1d", linear<13, 7>{});
  compare("linear_3d", linear<13, 7>{});
  compare("linear_no_bias", linear<13, 7, bias<false>>{});
  compare("linear_one_feature", linear<1, 1>{});
  compare("linear_wide", linear<33, 17>{});
  CHECK(not_compared("modules", {"linear_"}).empty());
}

TEST_CASE("in_features that only run time knows give the same bits") {
  leaf_run<float, linear<13, 7>> fixed({}, {5, 13});
  leaf_run<float, linear<dynamic, 7>> bound({}, {5, 13});
  REQUIRE(bound.parameters.size() == fixed.parameters.size());
  for (auto* x : {&fixed.parameters, &bound.parameters}) fill_random(x->data(), x->size(), 1);
  for (auto* x : {&fixed.input, &bound.input}) fill_random(x->data(), x->size(), 2);
  fixed.forward();
  bound.forward();
  for (dim_t i = 0; i < fixed.output.size(); ++i) CHECK(fixed.output[i] == bound.output[i]);
}

TEST_CASE("the gradients of linear are those of its forward") {
  check_gradients(linear<5, 3>{}, {2, 2, 5});
  check_gradients(linear<5, 3, bias<false>>{}, {5});
}

TEST_CASE("linear takes an empty batch") { check_empty_batch(linear<5, 3>{}, {0, 5}); }

TEST_CASE("linear says what is wrong with its input") {
  CHECK(sentence_of(linear<12, 3>{}.infer(shape{32, 10})) ==
        "linear expects in_features = 12, got 10 (input [32, 10])");
  CHECK(sentence_of(linear<12, 3>{}.infer(shape{})) ==
        "linear expects an input of at least 1 dimension, got []");
  CHECK(linear<12, 3>{}.infer(shape{dynamic, dynamic}).output() == shape{dynamic, 3});
}

TEST_CASE("a lazy linear becomes what the input brings") {
  static_assert(lazy_linear<3>::is_lazy);
  static_assert(std::is_same_v<decltype(lazy_linear<3>{}.become<shape{32, 10}>()), linear<10, 3>>);
  static_assert(std::is_same_v<decltype(lazy_linear<3, bias<false>>{}.become<shape{32, dynamic}>()),
                               linear<dynamic, 3, bias<false>>>);
  CHECK(lazy_linear<3>{}.infer(shape{32, 10}).output() == shape{32, 3});
}

TEST_CASE("linear describes itself by PyTorch's names") {
  CHECK(described(linear<10, 3>{}) == "in_features=10, out_features=3, bias=true");
  CHECK(described(lazy_linear<3, bias<false>>{}) == "in_features=lazy, out_features=3, bias=false");
  CHECK(linear<10, 3>{}.multiply_adds(shape_list{shape{4, 10}}, shape_list{shape{4, 3}}) == 120);
}

TEST_CASE("multiply-adds beyond the largest number are that number") {
  constexpr dim_t most = std::numeric_limits<dim_t>::max(), large = dim_t{1} << 40;
  constexpr dim_t wide = dim_t{1} << 20;
  CHECK(linear<wide, wide>{}.multiply_adds(shape_list{shape{wide, wide}}, {}) == (dim_t{1} << 60));
  CHECK(linear<wide, wide>{}.multiply_adds(shape_list{shape{large, 1024}}, {}) == most);
  static_assert((saturated{most} + 1).value == most && (saturated{most - 1} + 1).value == most);
  static_assert((saturated{large} * 0).value == 0 && (saturated{large} * large).value == most);
}
