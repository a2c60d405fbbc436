// Losses as values of graphs: with reduction::none, in sums, and of computed targets.

#include <doctest/doctest.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <string>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

#include "ikebana/compose/graph.hpp"
#include "ikebana/compose/loss.hpp"
#include "ikebana/compose/sequential.hpp"
#include "ikebana/model/gradient_check.hpp"
#include "ikebana/model/initialize.hpp"
#include "ikebana/model/inputs.hpp"
#include "ikebana/nn/ctc_loss.hpp"
#include "ikebana/nn/elementwise_loss.hpp"
#include "ikebana/nn/linear.hpp"
#include "ikebana/nn/loss.hpp"
#include "ikebana/nn/margin_loss.hpp"
#include "ikebana/nn/nll_loss.hpp"
#include "ikebana/nn/softmax.hpp"
#include "ikebana/ops/constant.hpp"
#include "ikebana/ops/elementwise.hpp"
#include "ikebana/ops/gaussian_nll_loss.hpp"
#include "ikebana/ops/ranking_loss.hpp"
#include "ikebana/ops/reduction.hpp"
#include "ikebana/optim/sgd.hpp"
#include "test/nn/layers.hpp"
#include "test/support/count_allocations.hpp"

using namespace ikebana;
using namespace ikebana::literals;

namespace {

constexpr std::array<double, 5> weights{0.5, 1.25, 0.25, 2.0, 0.75};

template <element_kind Target, class Loss>
void compare_leaf(const std::string& name, Loss loss) {
  loss.reduction = reduction::none;
  compare_layer("loss_values", name, detail::loss_leaf<Loss, Target>{loss});
}
template <class Loss>
void compare_leaf(const std::string& name, const Loss& loss) {
  compare_leaf<Loss::target_kind>(name, loss);
}

/// The value and the gradients of a formula of real values and, after the first, indices.
template <class T, shape... In, class Net>
void compare_once(const std::string& name, const Net& net) {
  const state_dict& dict = recorded<T>("layers_loss_values");
  const auto at = [&](const std::string& tensor) -> const state_dict::entry& {
    return dict.at(name + "/" + tensor);
  };
  auto model = initialize<T, In...>(net, seed{1});
  constexpr auto kinds = decltype(model)::lowered().kinds;
  [&]<std::size_t... I>(std::index_sequence<I...>) {
    const std::tuple<
        tensor<std::conditional_t<kinds[I] == element_kind::real, T, std::int64_t>, In>...>
        x{at("x" + std::to_string(I))
              .template view<std::conditional_t<kinds[I] == element_kind::real, T, std::int64_t>,
                             In>()...};
    const auto y = std::apply([&](const auto&... each) { return model(each...); }, x);
    check_close<T>(y.data(), at("y0"), name + " y");
    constexpr shape of_y = decltype(y)::static_shape;
    const tensor dy(at("gy0").template view<T, of_y>());
    auto dx = x;
    const auto real = [](auto& d) {
      if constexpr (std::is_same_v<typename std::remove_cvref_t<decltype(d)>::value_type, T>)
        return std::tie(d);
      else
        return std::tuple<>();
    };
    std::apply([&](auto&... d) { model.backward(dy, d...); },
               std::tuple_cat(real(std::get<I>(dx))...));
    const auto check = [&](const auto& d, const std::string& i) {
      if constexpr (std::is_same_v<typename std::remove_cvref_t<decltype(d)>::value_type, T>)
        check_close<T>(d.data(), at("gx" + i), name + " gx" + i);
    };
    (check(std::get<I>(dx), std::to_string(I)), ...);
  }
  (std::make_index_sequence<sizeof...(In)>{});
}
template <shape... In, class F>
void compare_formula(const std::string& name, const F& f) {
  compares("layers_loss_values", name);
  compare_once<float, In...>(name, graph(f));
  compare_once<double, In...>(name, graph(f));
}

// A weight for each sample.
constexpr auto of_samples = [](auto y, auto label, auto weight) {
  return mean(weight * cross_entropy{.reduction = reduction::none}(y, label));
};

// Terms of losses.
constexpr auto of_two_outputs = [](auto y, auto label, auto z) {
  return 0.75 * cross_entropy{}(y, label) + 0.25 * mse_loss{.reduction = reduction::sum}(y, z);
};

// Distillation (Hinton et al., Distilling the Knowledge in a Neural Network, 2015): both sides are
// computed.
constexpr auto distillation = [](auto y, auto teacher) {
  const auto softened =
      kl_div{.batch_mean = true}(log_softmax<dim<1>>{}(y / 2), softmax<dim<1>>{}(teacher / 2));
  return 4 * softened + cross_entropy{}(y, softmax<dim<1>>{}(teacher));
};

constexpr std::array<double, 4> of_four{0.5, 2, 0, 1.5};

}  // namespace

TEST_CASE("losses without a reduction compute what PyTorch recorded") {
  compare_leaf("mse_loss", mse_loss{});
  compare_leaf("l1_loss", l1_loss{});
  compare_leaf("smooth_l1_loss", smooth_l1_loss{.beta = 0.5});
  compare_leaf("huber_loss", huber_loss{.delta = 2.5});
  compare_leaf("bce_with_logits", bce_with_logits{.pos_weight = 2.5});
  compare_leaf("bce_loss", bce_loss{});
  compare_leaf("kl_div", kl_div{});
  compare_leaf("kl_div_log", kl_div{.log_target = true});
  compare_leaf("poisson_nll_loss", poisson_nll_loss{});
  compare_leaf("poisson_nll_loss_full", poisson_nll_loss{.log_input = false, .full = true});
  compare_leaf("multilabel_soft_margin_loss", multilabel_soft_margin_loss{});
  constexpr auto index = element_kind::index, real = element_kind::real;
  compare_leaf<index>("cross_entropy", cross_entropy{});
  compare_leaf<index>("cross_entropy_smoothing",
                      cross_entropy{.label_smoothing = 0.2, .ignore_index = 2});
  compare_leaf<index>("cross_entropy_weight",
                      cross_entropy{.label_smoothing = 0.1, .weight = weights});
  compare_leaf<index>("cross_entropy_one", cross_entropy{});
  compare_leaf<index>("cross_entropy_image", cross_entropy{});
  compare_leaf<real>("cross_entropy_probabilities",
                     cross_entropy{.label_smoothing = 0.3, .weight = weights});
  compare_leaf("nll_loss", nll_loss{.weight = weights});
  compare_leaf("multi_margin_loss", multi_margin_loss{.p = 2, .margin = 0.7});
  compare_leaf("multilabel_margin_loss", multilabel_margin_loss{});
  compare_layer("loss_values", "margin_ranking_loss",
                ops::elementwise_loss<ops::margin_ranking_formula>{.reduction = reduction::none});
  compare_layer("loss_values", "gaussian_nll_loss",
                ops::elementwise_loss<ops::gaussian_nll_formula>{.reduction = reduction::none});

  constexpr shape list{dynamic}, matrix{dynamic, dynamic}, steps{dynamic, dynamic, dynamic};
  compare_formula<matrix, matrix>("soft_margin_loss", [](auto y, auto t) {
    return soft_margin_loss{.reduction = reduction::none}(y, stop_gradient(t));
  });
  compare_leaf("hinge_embedding_loss", hinge_embedding_loss{.margin = 1.5});
  compare_formula<matrix, matrix, matrix>("triplet_margin_loss", [](auto a, auto b, auto c) {
    return triplet_margin_loss{.margin = 2.5, .swap = true, .reduction = reduction::none}(a, b, c);
  });
  compare_formula<steps, matrix, list, list>(
      "ctc_loss", [](auto x, auto t, auto of_inputs, auto of_targets) {
        return ctc_loss{.reduction = reduction::none}(log_softmax<dim<-1>>{}(x), t, of_inputs,
                                                      of_targets);
      });
  compare_formula<matrix, list, list>("weighted", of_samples);
  compare_formula<matrix, list, matrix>("sum", of_two_outputs);
  compare_formula<matrix, matrix>("distillation", distillation);
  CHECK(layers_not_compared("loss_values").empty());
}

TEST_CASE("gradients of reduced losses by their targets are exact") {
  const auto x = uniform<double, shape{5, 4}>(seed{1});
  auto t = uniform<double, shape{5, 4}>(seed{2});
  const std::tuple pair{x, t};
  const auto largest = [](const auto& loss, const auto& at) {
    return gradient_check(graph(loss), at).largest;
  };
  CHECK(largest(mse_loss{}, pair) < 1e-7);
  CHECK(largest(mse_loss{.reduction = reduction::sum}, pair) < 1e-7);
  CHECK(largest(huber_loss{.delta = 0.2}, pair) < 1e-7);
  CHECK(largest(bce_with_logits{.pos_weight = 3}, pair) < 1e-7);
  CHECK(largest(bce_with_logits{.weight = of_four, .pos_weight = of_four}, pair) < 1e-7);
  CHECK(largest(soft_margin_loss{}, pair) < 1e-7);
  CHECK(largest(multilabel_soft_margin_loss{}, pair) < 1e-7);
  CHECK(largest(multilabel_soft_margin_loss{.weight = of_four}, pair) < 1e-7);
  for (double& p : t) p = 0.5 + p / 4;
  CHECK(largest(kl_div{.batch_mean = true}, std::tuple{x, t}) < 1e-7);
  CHECK(largest([](auto y, auto p) { return cross_entropy{.label_smoothing = 0.2}(y, 1 * p); },
                std::tuple{x, t}) < 1e-7);
}

TEST_CASE("samples with weights train a network, and a loss is refused before anything changes") {
  auto model = initialize<float, shape{dynamic, 4}>(sequential("fc"_m = lazy_linear<3>{}), seed{1});
  sgd optimizer{model, {.lr = 0.5}};
  const auto x = uniform<float, shape{6, 4}>(seed{2});
  tensor<std::int64_t, shape{6}> labels;
  auto weight = ones<float, shape{6}>();
  for (dim_t i = 0; i < 6; ++i) labels[i] = i % 3;
  // Two weights of 3 are the sample three times.
  weight[1] = 0;
  const auto values = loss_values(cross_entropy{}, model(x), labels);
  static_assert(values.static_shape == shape{6});
  float expected = 0;
  for (dim_t i = 0; i < 6; ++i) expected += weight[i] * values[i] / 6;
  CHECK(model.train_step(x, inputs(labels, weight), of_samples, optimizer) ==
        doctest::Approx(expected).epsilon(1e-6));
  const long before = allocation_count_here;
  for (int i = 0; i < 2; ++i) model.train_step(x, inputs(labels, weight), of_samples, optimizer);
  CHECK(allocation_count_here == before);

  const std::vector<float> kept_values(model.parameters().begin(), model.parameters().end());
  const auto unchanged = [&] {
    return std::equal(kept_values.begin(), kept_values.end(), model.parameters().begin());
  };
  CHECK_THROWS_AS(
      model.train_step(x, labels, cross_entropy{.reduction = reduction::none}, optimizer), error);
  CHECK_THROWS_AS(mse_loss{.reduction = reduction::none}(x, x), error);
  CHECK_THROWS_AS(nll_loss{.reduction = reduction::none}(x, labels), error);
  CHECK_THROWS_AS(multi_margin_loss{.reduction = reduction::none}(x, labels), error);
  labels[5] = 3;
  CHECK_THROWS_WITH_AS(model.train_step(x, inputs(labels, weight), of_samples, optimizer),
                       "0: cross_entropy expects labels from 0 to 2, got 3 at index 5", error);
  CHECK(unchanged());
}

TEST_CASE("what a graph captures cannot turn a number into values") {
  const auto with = [](reduction how) {
    return graph([how](auto y, auto t) { return mse_loss{.reduction = how}(y, t); });
  };
  CHECK_NOTHROW(with(reduction::sum));
  CHECK_THROWS_AS(with(reduction::none), error);
}

TEST_CASE("losses of no samples have no values") {
  const tensor<float, shape{dynamic, 3}> none(shape{0, 3});
  const tensor<std::int64_t, shape{dynamic}> labels(shape{0});
  CHECK(loss_values(cross_entropy{}, none, labels).size() == 0);
  CHECK(loss_values(mse_loss{}, none, none).size() == 0);
  CHECK(loss_values(multi_margin_loss{}, none, labels).size() == 0);
}
