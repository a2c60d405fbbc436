#include "ikebana/nn/elementwise_loss.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <limits>
#include <string>
#include <type_traits>
#include <vector>

#include "ikebana/compose/sequential.hpp"
#include "ikebana/model/initialize.hpp"
#include "ikebana/nn/linear.hpp"
#include "ikebana/optim/sgd.hpp"
#include "layers.hpp"
#include "recorded.hpp"

using namespace ikebana;
using namespace ikebana::literals;

namespace {

template <class T, shape X, bool Signs, class Loss>
void compare_once(const std::string& name, const Loss& loss, const std::string& where) {
  const state_dict& dict = recorded<T>("layers_losses");
  const auto x = dict.at(name + "/x0").template view<T, X>();
  tensor target(dict.at(name + "/x1").template view<T, X>());
  if (Signs)
    for (T& t : target) t = t > 0 ? T{1} : T{-1};
  const T value = loss(x, target);
  check_close<T>(&value, dict.at(name + "/y0"), name + " loss" + where);
  std::vector<T> gradient(static_cast<std::size_t>(x.size()), T{7});
  const T again = loss.backward(x, target, gradient.data());
  CHECK(again == value);
  const T above = dict.at(name + "/gy0").template view<T, shape{}>()[0];
  for (T& g : gradient) g *= above;
  check_close<T>(gradient.data(), dict.at(name + "/gx0"), name + " gx" + where);
}

template <shape X, bool Signs = false, class Loss>
void compare_loss(const std::string& name, const Loss& loss) {
  compares("layers_losses", name);
  for_each_instruction_set([&](const std::string& where) {
    compare_once<float, X, Signs>(name, loss, where);
    compare_once<double, X, Signs>(name, loss, where);
  });
}
template <shape X, bool Signs = false, class Loss>
void compare_both(const std::string& name, Loss loss) {
  compare_loss<X, Signs>(name + "_mean", loss);
  loss.reduction = reduction::sum;
  compare_loss<X, Signs>(name + "_sum", loss);
}

constexpr shape matrix{dynamic, dynamic}, list{dynamic};

}  // namespace

TEST_CASE("losses of equal shapes compute what PyTorch recorded") {
  compare_both<matrix>("l1_loss", l1_loss{});
  compare_both<list>("l1_loss_equal", l1_loss{});
  compare_both<matrix>("smooth_l1_loss", smooth_l1_loss{});
  compare_both<matrix>("smooth_l1_loss_beta", smooth_l1_loss{.beta = 0.5});
  compare_both<matrix>("huber_loss", huber_loss{});
  compare_both<matrix>("huber_loss_delta", huber_loss{.delta = 2.5});
  compare_both<matrix>("bce_with_logits", bce_with_logits{});
  compare_both<list>("bce_with_logits_far", bce_with_logits{});
  compare_loss<matrix>("bce_with_logits_pos_weight", bce_with_logits{.pos_weight = 2.5});
  const std::vector<float> of_classes{0.5f, 1, 2, 0, 1.5f};
  const std::array<double, 5> of_positive{3, 1, 0.5, 2, 0.25};
  compare_loss<matrix>("bce_with_logits_weights",
                       bce_with_logits{.weight = of_classes, .pos_weight = of_positive});
  std::vector<double> of_elements(15);
  for (std::size_t i = 0; i < 15; ++i) of_elements[i] = static_cast<double>(i % 4) / 2;
  compare_loss<matrix>("bce_loss_weight", bce_loss{.weight = of_elements});
  compare_both<matrix>("bce_loss", bce_loss{});
  compare_both<list>("bce_loss_ends", bce_loss{});
  compare_both<matrix>("kl_div", kl_div{});
  compare_both<list>("kl_div_zero", kl_div{});
  compare_both<matrix>("kl_div_log", kl_div{.log_target = true});
  compare_loss<matrix>("kl_div_batchmean", kl_div{.batch_mean = true});
  compare_both<matrix>("poisson_nll_loss", poisson_nll_loss{});
  compare_both<matrix>("poisson_nll_loss_full", poisson_nll_loss{.log_input = false, .full = true});
  compare_both<matrix, true>("soft_margin_loss", soft_margin_loss{});
  compare_both<matrix, true>("hinge_embedding_loss", hinge_embedding_loss{.margin = 1.5});
  CHECK(layers_not_compared("losses").empty());
}

TEST_CASE("weights that no broadcast gives to the elements are refused") {
  const auto x = uniform<double, shape{4, 3}>(seed{1});
  const auto message = [&](const auto& loss) {
    try {
      loss(x, x);
    } catch (const error& e) {
      return std::string(e.what());
    }
    return std::string{};
  };
  const std::vector<double> four(4), three(3), twelve(12), one(1);
  CHECK(message(bce_with_logits{.pos_weight = four}) ==
        "bce_with_logits expects as many elements of pos_weight as the last dimensions of the "
        "prediction have, got 4");
  CHECK(message(bce_loss{.weight = four}).substr(0, 44) ==
        "bce_loss expects as many elements of weight ");
  for (const auto* w : {&three, &twelve, &one}) CHECK(message(bce_with_logits{.weight = *w}) == "");
}

TEST_CASE("a model trains with such a loss, and bce_with_logits refuses a sigmoid before it") {
  constexpr auto net = sequential("fc"_m = lazy_linear<1>{});
  auto m = initialize<float, shape{8, 3}>(net, seed{1});
  const auto x = uniform<float, shape{8, 3}>(seed{2});
  tensor<float, shape{8, 1}> t;
  for (dim_t i = 0; i < 8; ++i) t[i] = x(i, 0) > 0 ? 1.f : 0.f;
  sgd optimizer{m, {.lr = 1}};
  const float first = m.train_step(x, t, bce_with_logits{}, optimizer);
  float last = first;
  for (int i = 0; i < 100; ++i) last = m.train_step(x, t, bce_with_logits{}, optimizer);
  CHECK(last < first / 3);
  CHECK_FALSE(bce_with_logits::check_last("sigmoid").ok());
  CHECK(bce_with_logits::check_last("linear").ok());
}

TEST_CASE("a loss of equal shapes says what does not fit, before it writes anything") {
  const auto x = ones<float, shape{dynamic, 3}>(2);
  const auto t = ones<float, shape{dynamic, 3}>(3);
  auto gradient = full<float, shape{2, 3}>(7);
  CHECK_THROWS_WITH_AS(huber_loss{}.backward(x, t, gradient.data()),
                       "huber_loss expects a target of shape [2, 3], got [3, 3]", shape_error);
  for (float g : gradient) CHECK(g == 7);
  CHECK_FALSE(l1_loss::check(shape{2, 3}, shape{2, 4}).ok());
  constexpr diagnostic wrong = l1_loss::check_elements<float, double>();
  CHECK(wrong.message().view() ==
        "l1_loss expects a target of the prediction type float, got double");
  static_assert(l1_loss::check_elements<float, float>().ok());
}

TEST_CASE("bce_loss refuses what is no probability, as PyTorch does, before it writes anything") {
  using row = tensor<float, shape{4}>;
  const row t = zeros<float, shape{4}>();
  for (const float bad : {-1e-6f, 1.0001f, std::numeric_limits<float>::quiet_NaN()}) {
    row x = full<float, shape{4}>(0.5f), gradient = full<float, shape{4}>(7);
    x[2] = bad;
    CHECK_THROWS_AS(bce_loss{}(x, t), error);
    CHECK_THROWS_AS(loss_values(bce_loss{}, x, t), error);
    CHECK_THROWS_AS(bce_loss{}.backward(x, t, gradient.data()), error);
    for (const float g : gradient) CHECK(g == 7);
  }
  CHECK_THROWS_WITH_AS(bce_loss{}(full<float, shape{4}>(1.5f), t),
                       "bce_loss expects probabilities between 0 and 1, got 1.5 (element 0); "
                       "bce_with_logits takes logits",
                       error);
  // A step of a model leaves its parameters as they were.
  auto model = initialize<float, shape{4, 3}>(linear<3, 1>{}, seed{1});
  sgd optimizer{model, {.lr = 1}};
  const auto before = model.clone();
  const auto far = full<float, shape{4, 3}>(1e6f);
  CHECK_THROWS_AS(model.train_step(far, zeros<float, shape{4, 1}>(), bce_loss{}, optimizer), error);
  CHECK(std::equal(before.parameters().begin(), before.parameters().end(),
                   model.parameters().begin()));
}

TEST_CASE("the mean over no elements is not a number, their sum 0") {
  const auto none = zeros<double, shape{0, 3}>();
  CHECK(std::isnan(l1_loss{}(none, none)));
  CHECK(l1_loss{.reduction = reduction::sum}(none, none) == 0);
}
