#include "ikebana/nn/loss.hpp"

#include <doctest/doctest.h>

#include <array>
#include <cmath>
#include <cstdint>
#include <string>
#include <type_traits>
#include <vector>

#include "ikebana/cpu/softmax.hpp"
#include "ikebana/nn/nll_loss.hpp"
#include "layers.hpp"
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

/// The value and the gradient of a loss with weights, from logits or from their log_softmax.
template <class T, shape X, shape Y, class U, class Loss>
void compare_weighted_once(const std::string& name, Loss loss) {
  const state_dict& dict = recorded<T>("layers_cross_entropy");
  const auto x = dict.at(name + "/x0").template view<T, X>();
  const auto target = dict.at(name + "/x1").template view<U, Y>();
  const auto weight = dict.at(name + "/x2").template view<T, shape{dynamic}>();
  if (name.find("unweighted") == std::string::npos) loss.weight = weight;
  const T above = dict.at(name + "/gy0").template view<T, shape{}>()[0];
  std::vector<T> gradient(static_cast<std::size_t>(x.size()), T{7});
  if constexpr (std::is_same_v<Loss, cross_entropy>) {
    const T value = loss(x, target), with_gradient = loss.backward(x, target, gradient.data());
    check_close<T>(&value, dict.at(name + "/y0"), name);
    check_close<T>(&with_gradient, dict.at(name + "/y0"), name + " with gradient");
  } else {
    const dim_t n = x.extents()[0], c = x.extents()[1];
    std::vector<T> logp(gradient.size());
    cpu::log_softmax_forward<T>(n, c, 1, x.data(), logp.data());
    const tensor_view<const T, X> of(logp.data(), x.extents());
    const T value = loss.backward(of, target, gradient.data());
    check_close<T>(&value, dict.at(name + "/y0"), name);
    cpu::log_softmax_backward<T>(n, c, 1, logp.data(), gradient.data(), gradient.data());
  }
  for (T& g : gradient) g *= above;
  check_close<T>(gradient.data(), dict.at(name + "/gx0"), name + " gx");
}

template <shape X, shape Y, bool OfLabels, class Loss>
void compare_weighted(const std::string& name, Loss loss) {
  for (const bool mean : {true, false}) {
    loss.reduction = mean ? reduction::mean : reduction::sum;
    const std::string whole = name + (mean ? "_mean" : "_sum");
    compares("layers_cross_entropy", whole);
    compare_weighted_once<float, X, Y, std::conditional_t<OfLabels, std::int64_t, float>>(whole,
                                                                                          loss);
    compare_weighted_once<double, X, Y, std::conditional_t<OfLabels, std::int64_t, double>>(whole,
                                                                                            loss);
  }
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

TEST_CASE("weights of classes and probabilities as targets are PyTorch's") {
  constexpr bool of_labels = true, of_shares = false;
  constexpr shape image{dynamic, 3, 2, 2}, pixel{dynamic, 2, 2};
  compare_weighted<rows, labels, of_labels>("weight", cross_entropy{});
  compare_weighted<rows, labels, of_labels>("weight_smoothing",
                                            cross_entropy{.label_smoothing = 0.1});
  compare_weighted<rows, labels, of_labels>(
      "weight_ignore", cross_entropy{.label_smoothing = 0.2, .ignore_index = 2});
  compare_weighted<labels, shape{}, of_labels>("weight_one", cross_entropy{});
  compare_weighted<image, pixel, of_labels>("weight_image", cross_entropy{.label_smoothing = 0.1});
  compare_weighted<rows, rows, of_shares>("probabilities", cross_entropy{});
  compare_weighted<rows, rows, of_shares>("probabilities_smoothing",
                                          cross_entropy{.label_smoothing = 0.3});
  compare_weighted<labels, labels, of_shares>("probabilities_one", cross_entropy{});
  compare_weighted<image, image, of_shares>("probabilities_image", cross_entropy{});
  compare_weighted<rows, rows, of_shares>("probabilities_unweighted", cross_entropy{});
  compare_weighted<rows, labels, of_labels>("nll_weight", nll_loss{});
  CHECK(layers_not_compared("cross_entropy").empty());
}

TEST_CASE("weights are of any floats, one for each class; probabilities have no target to ignore") {
  const auto x = uniform<float, shape{4, 3}>(seed{1});
  auto target = zeros<std::int64_t, shape{4}>();
  target[3] = 2;
  const std::vector<double> twice{1, 2, 3};
  const std::array<float, 3> single{1, 2, 3};
  CHECK(cross_entropy{.weight = twice}(x, target) == cross_entropy{.weight = single}(x, target));
  CHECK(cross_entropy{.weight = twice}(x, target) != cross_entropy{}(x, target));
  const std::vector<float> two{1, 2};
  CHECK_THROWS_WITH_AS(cross_entropy{.weight = two}(x, target),
                       "cross_entropy expects a weight for each of 3 classes, got 2", error);
  CHECK_THROWS_WITH_AS(nll_loss{.weight = two}(x, target),
                       "nll_loss expects a weight for each of 3 classes, got 2", error);
  CHECK_THROWS_WITH_AS(
      cross_entropy{.ignore_index = 1}(x, x),
      "cross_entropy of probabilities has no targets to ignore, but ignore_index is set", error);
  const auto others = ones<float, rows>(4, 2);
  const tensor_view<const float, rows> logits(x.data(), x.extents());
  CHECK_THROWS_AS(cross_entropy{}(logits, others), shape_error);
  // The gradient may take the place of the logits.
  tensor same(x), gradient(x);
  cross_entropy{.weight = twice}.backward(x, target, gradient.data());
  cross_entropy{.weight = twice}.backward(same, target, same.data());
  for (dim_t i = 0; i < x.size(); ++i) CHECK(same[i] == gradient[i]);
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
