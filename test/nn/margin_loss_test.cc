#include "ikebana/nn/margin_loss.hpp"

#include <doctest/doctest.h>

#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <string>
#include <vector>

#include "ikebana/compose/sequential.hpp"
#include "ikebana/model/initialize.hpp"
#include "ikebana/nn/linear.hpp"
#include "ikebana/optim/sgd.hpp"
#include "test/support/load_recorded.hpp"

namespace ike = ikebana;
using namespace ike::literals;

namespace {

const ike::state_dict& recorded_margins() {
  static const ike::state_dict all = load_recorded("margin_losses");
  return all;
}

template <class T, class Loss, class X, class Y>
void compare_margin(const std::string& name, Loss loss, const X& x, const Y& target) {
  CAPTURE(name);
  const std::string type = sizeof(T) == 4 ? "f32/" : "f64/";
  const double tolerance = sizeof(T) == 4 ? 1e-6 : 1e-14;
  for (const bool mean : {true, false}) {
    loss.reduction = mean ? ike::reduction::mean : ike::reduction::sum;
    const std::string key = type + name + (mean ? "_mean" : "_sum");
    const T expected = recorded_margins().at(key).template view<T, ike::shape{1}>()[0];
    const auto* slopes =
        reinterpret_cast<const T*>(recorded_margins().at(key + "/gradient").bytes.data());
    std::vector<T> gradient(static_cast<std::size_t>(x.size()), T{7});
    CHECK(std::abs(loss(x, target) - expected) <= 10 * tolerance);
    CHECK(loss.backward(x, target, gradient.data()) == loss(x, target));
    for (std::size_t i = 0; i < gradient.size(); ++i)
      CHECK(std::abs(gradient[i] - slopes[i]) <= tolerance);
  }
}

constexpr ike::shape nine_rows{9, 7}, one_row{7};

template <class T>
void compare_all() {
  const std::string type = sizeof(T) == 4 ? "f32/" : "f64/";
  const auto& all = recorded_margins();
  const auto x = all.at(type + "x").template view<T, nine_rows>();
  const auto shares = all.at(type + "shares").template view<T, nine_rows>();
  const auto labels = all.at("labels").view<std::int64_t, ike::shape{9}>();
  const auto sets = all.at("sets").view<std::int64_t, nine_rows>();
  const auto both = [&](const std::string& name, const auto& loss, const auto& target,
                        const auto& first) {
    compare_margin<T>(name, loss, x, target);
    compare_margin<T>(name + "_one", loss, ike::tensor_view<const T, one_row>(x.data()), first);
  };
  const ike::tensor_view<const std::int64_t, ike::shape{}> label(labels.data());
  both("multi_margin", ike::multi_margin_loss{}, labels, label);
  both("multi_margin_squared", ike::multi_margin_loss{.p = 2, .margin = 0.7}, labels, label);
  both("multilabel_margin", ike::multilabel_margin_loss{}, sets,
       ike::tensor_view<const std::int64_t, one_row>(sets.data()));
  both("multilabel_soft_margin", ike::multilabel_soft_margin_loss{}, shares,
       ike::tensor_view<const T, one_row>(shares.data()));
  const std::array<float, 7> weights{0.5f, 1, 2, 0.25f, 1.5f, 0, 3};
  both("multi_margin_weight", ike::multi_margin_loss{.p = 2, .weight = weights}, labels, label);
  both("multilabel_soft_margin_weight", ike::multilabel_soft_margin_loss{.weight = weights}, shares,
       ike::tensor_view<const T, one_row>(shares.data()));
}

template <class Error, class F>
std::string error_of(F&& f) {
  try {
    f();
  } catch (const Error& e) {
    return e.what();
  }
  return "nothing was thrown";
}

}  // namespace

TEST_CASE("losses by margins of several classes compute what PyTorch recorded") {
  compare_all<float>();
  compare_all<double>();
}

TEST_CASE("losses by margins train a network, and refuse what is no label") {
  auto model = ike::initialize<float, ike::shape{ike::dynamic, 4}>(
      ike::sequential("fc"_m = ike::lazy_linear<3>{}), ike::seed{1});
  ike::sgd optimizer{model, {.lr = 0.5}};
  const auto x = ike::uniform<float, ike::shape{6, 4}>(ike::seed{2});
  auto labels = ike::zeros<std::int64_t, ike::shape{6}>();
  for (ike::dim_t i = 0; i < 6; ++i) labels[i] = i % 3;
  const float first = ike::multi_margin_loss{}(model(x), labels);
  float loss = 0;
  for (int i = 0; i < 300; ++i)
    loss = model.train_step(x, labels, ike::multi_margin_loss{}, optimizer);
  CHECK(loss < first / 3);

  labels[4] = 3;
  const auto before = model["fc.weight"_s](0, 0);
  CHECK(error_of<ike::error>([&] {
          model.train_step(x, labels, ike::multi_margin_loss{}, optimizer);
        }) == "multi_margin_loss expects labels from 0 to 2, got 3 at index 4");
  CHECK(model["fc.weight"_s](0, 0) == before);
  labels[4] = 1;
  CHECK(error_of<ike::error>([&] { ike::multi_margin_loss{.p = 3}(model(x), labels); }) ==
        "multi_margin_loss expects p = 1 or 2, got 3");
  CHECK(error_of<ike::error>([&] {
          ike::multi_margin_loss{.weight = std::array<float, 2>{}}(model(x), labels);
        }) == "multi_margin_loss expects a weight for each of 3 classes, got 2");
  auto sets = ike::zeros<std::int64_t, ike::shape{6, 3}>();
  sets(1, 0) = -2;
  CHECK(error_of<ike::error>([&] { ike::multilabel_margin_loss{}(model(x), sets); }) ==
        "multilabel_margin_loss expects labels from 0 to 2, got -2 at index 3");
  ike::tensor<std::int64_t, ike::shape{ike::dynamic}> five(ike::shape{5});
  CHECK(error_of<ike::shape_error>([&] {
          ike::multi_margin_loss{}(model(x), five);
        }).find("multi_margin_loss expects scores (N, C) and labels (N)") == 0);

  // No samples.
  ike::tensor<float, ike::shape{ike::dynamic, 3}> none(ike::shape{0, 3});
  ike::tensor<std::int64_t, ike::shape{ike::dynamic}> no_labels(ike::shape{0});
  CHECK(std::isnan(ike::multi_margin_loss{}(none, no_labels)));
}
