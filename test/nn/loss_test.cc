#include "ikebana/nn/loss.hpp"

#include <doctest/doctest.h>

#include <vector>

#include "recorded.hpp"

using namespace ikebana;

namespace {

template <class T, shape X, shape Y, class Label, class Loss>
void compare_loss_once(const std::string& name, const Loss& loss, const std::string& where) {
  const state_dict& dict = recorded<T>("losses");
  const auto x = dict.at(name + "/x").template view<T, X>();
  const auto target = dict.at(name + "/target").template view<Label, Y>();
  const T value = loss(x, target);
  check_close<T>(&value, dict.at(name + "/loss"), name + " loss" + where);
  std::vector<T> gradient(static_cast<std::size_t>(x.size()), T{7});
  const T with_gradient = loss.backward(x, target, gradient.data());
  check_close<T>(&with_gradient, dict.at(name + "/loss"), name + " loss with gradient" + where);
  check_close<T>(gradient.data(), dict.at(name + "/gx"), name + " gx" + where);
  static_assert(Loss::check(X, Y).ok());
}

template <shape X, shape Y, class Loss>
void compare_loss(const std::string& name, const Loss& loss) {
  constexpr bool labelled = std::is_same_v<Loss, cross_entropy>;
  compares("losses", name);
  for_each_instruction_set([&](const std::string& where) {
    compare_loss_once<float, X, Y, std::conditional_t<labelled, std::int64_t, float>>(name, loss,
                                                                                      where);
    compare_loss_once<double, X, Y, std::conditional_t<labelled, std::int64_t, double>>(name, loss,
                                                                                        where);
  });
}

constexpr shape rows{dynamic, dynamic}, labels{dynamic};
constexpr shape images{2, 5, 3, 4}, pixels{2, 3, 4};

}  // namespace

TEST_CASE("losses compute what PyTorch recorded") {
  constexpr auto sum = reduction::sum;
  compare_loss<rows, labels>("cross_entropy_mean", cross_entropy{});
  compare_loss<rows, labels>("cross_entropy_sum", cross_entropy{.reduction = sum});
  compare_loss<shape{7}, shape{}>("cross_entropy_unbatched", cross_entropy{});
  compare_loss<rows, labels>("cross_entropy_one_row", cross_entropy{});
  compare_loss<rows, labels>("cross_entropy_large", cross_entropy{});
  compare_loss<rows, labels>("cross_entropy_smoothing", cross_entropy{.label_smoothing = 0.1});
  compare_loss<rows, labels>("cross_entropy_smoothing_sum",
                             cross_entropy{.reduction = sum, .label_smoothing = 0.1});
  compare_loss<rows, labels>("cross_entropy_ignore", cross_entropy{});
  compare_loss<rows, labels>("cross_entropy_ignore_sum", cross_entropy{.reduction = sum});
  compare_loss<rows, labels>("cross_entropy_ignore_class2", cross_entropy{.ignore_index = 2});
  compare_loss<rows, labels>("cross_entropy_ignore_smoothing",
                             cross_entropy{.label_smoothing = 0.1});
  compare_loss<images, pixels>("cross_entropy_4d_mean", cross_entropy{});
  compare_loss<images, pixels>("cross_entropy_4d_sum", cross_entropy{.reduction = sum});
  compare_loss<images, pixels>("cross_entropy_4d_ignore_smoothing",
                               cross_entropy{.label_smoothing = 0.1, .ignore_index = 255});
  compare_loss<rows, rows>("mse_loss_mean", mse_loss{});
  compare_loss<rows, rows>("mse_loss_sum", mse_loss{.reduction = sum});
  compare_loss<labels, labels>("mse_loss_1d", mse_loss{});
  compare_loss<shape{2, 3, 4, 5}, shape{2, 3, 4, 5}>("mse_loss_4d", mse_loss{});
  CHECK(not_compared("losses", {"cross_entropy_", "mse_loss_"}).empty());
}

TEST_CASE("a label that is no class is named, and nothing is written") {
  const auto x = ones<float, shape{4, 3}>();
  auto target = zeros<std::int64_t, shape{4}>();
  auto gradient = full<float, shape{4, 3}>(7);
  target[1] = -100;
  target[2] = 3;
  CHECK_THROWS_WITH_AS(cross_entropy{}.backward(x, target, gradient.data()),
                       "cross_entropy expects labels from 0 to 2, got 3 at index 2", error);
  CHECK_THROWS_AS(cross_entropy{}.validate(x.extents(), target), error);
  for (float g : gradient) CHECK(g == 7);
  target[2] = -1;
  CHECK_THROWS_AS(cross_entropy{}(x, target), error);
  target[2] = 2;
  cross_entropy{}.validate(x.extents(), target);
  CHECK_THROWS_AS(cross_entropy{.label_smoothing = 1.5}(x, target), error);
}

TEST_CASE("losses say what is wrong with shapes, for the compiler and at run time") {
  const auto said = [](const diagnostic& d) { return std::string{d.message().c_str()}; };
  CHECK(said(cross_entropy::check({5, 3}, {4})) ==
        "cross_entropy expects a target extent of 5, got 4 (logits [5, 3], target [4])");
  CHECK(said(cross_entropy::check({5, 3}, {5, 3})) ==
        "cross_entropy expects a target of 1 dimensions, got 2 (logits [5, 3], target [5, 3])");
  CHECK(said(cross_entropy::check({5, 3, 7}, {5, 6})) ==
        "cross_entropy expects a target extent of 7, got 6 (logits [5, 3, 7], target [5, 6])");
  CHECK(said(cross_entropy::check({}, {})) ==
        "cross_entropy expects logits of at least 1 dimension, got []");
  CHECK(cross_entropy::check({dynamic, 3}, {4}).ok());
  CHECK(said(mse_loss::check({5, 3}, {5})) == "mse_loss expects a target of shape [5, 3], got [5]");
  const auto x = ones<float, rows>(4, 3);
  const auto target = zeros<std::int64_t, labels>(5);
  CHECK_THROWS_AS(cross_entropy{}(x, target), shape_error);
}

TEST_CASE("the mean over nothing is not a number, its gradient zero; the sum is zero") {
  const auto x = ones<float, rows>(2, 3);
  auto ignored = full<std::int64_t, labels>(-100, 2);
  auto gradient = full<float, rows>(7, 2, 3);
  CHECK(std::isnan(cross_entropy{}.backward(x, ignored, gradient.data())));
  for (float g : gradient) CHECK(g == 0);
  CHECK(cross_entropy{.reduction = reduction::sum}(x, ignored) == 0);
  const auto none = zeros<float, rows>(0, 3);
  CHECK(std::isnan(cross_entropy{}(none, zeros<std::int64_t, labels>(0))));
  CHECK(std::isnan(mse_loss{}(none, none)));
  CHECK(mse_loss{.reduction = reduction::sum}(none, none) == 0);
}
