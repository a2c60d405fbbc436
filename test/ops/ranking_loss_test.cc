#include "ikebana/ops/ranking_loss.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <iterator>
#include <limits>
#include <string>
#include <tuple>
#include <type_traits>
#include <utility>

#include "ikebana/compose/loss.hpp"
#include "ikebana/model/gradient_check.hpp"
#include "ikebana/model/initialize.hpp"
#include "ikebana/model/inputs.hpp"
#include "ikebana/nn/ctc_loss.hpp"
#include "ikebana/nn/linear.hpp"
#include "ikebana/nn/softmax.hpp"
#include "ikebana/ops/gaussian_nll_loss.hpp"
#include "ikebana/ops/rearrange.hpp"
#include "ikebana/optim/sgd.hpp"
#include "test/nn/layers.hpp"
#include "test/support/count_allocations.hpp"

using namespace ikebana;
using namespace ikebana::literals;

namespace {

constexpr shape list{dynamic}, matrix{dynamic, dynamic}, one{};

/// The value and the gradients of a loss of `Real` real values, after which come indices.
template <class T, class Net, int Real, shape... In>
void compare_once(const std::string& name, const Net& net) {
  const auto& dict = recorded<T>("layers_ranking");
  const auto at = [&](const std::string& tensor) -> const state_dict::entry& {
    return dict.at(name + "/" + tensor);
  };
  auto model = initialize<T, In...>(net, seed{1});
  int i = 0;
  [&]<std::size_t... I>(std::index_sequence<I...>) {
    const std::tuple<std::conditional_t<(I < Real), tensor<T, In>, tensor<std::int64_t, In>>...> x{
        at("x" + std::to_string(I))
            .template view<std::conditional_t<(I < Real), T, std::int64_t>, In>()...};
    const auto y = std::apply([&](const auto&... each) { return model(each...); }, x);
    check_close<T>(y.data(), at("y0"), name + " y");
    const T above = at("gy0").template view<T, one>()[0];
    const auto dy = full<T, one>(above);
    auto dx = x;
    const auto check = [&](const auto& d) {
      check_close<T>(d.data(), at("gx" + std::to_string(i)), name + " gx" + std::to_string(i));
      ++i;
    };
    if constexpr (Real == 3) {
      model.backward(dy, std::get<0>(dx), std::get<1>(dx), std::get<2>(dx));
      check(std::get<0>(dx));
      check(std::get<1>(dx));
      check(std::get<2>(dx));
    } else {
      model.backward(dy, std::get<0>(dx));
      check(std::get<0>(dx));
    }
  }
  (std::make_index_sequence<sizeof...(In)>{});
}

template <int Real, shape... In, class Loss>
void compare_loss(const std::string& name, Loss loss) {
  for (const bool mean : {true, false}) {
    const std::string whole = name + (mean ? "_mean" : "_sum");
    CAPTURE(whole);
    compares("layers_ranking", whole);
    const reduction how = mean ? reduction::mean : reduction::sum;
    if constexpr (requires { loss.reduction; })
      loss.reduction = how;
    else
      loss.options.reduction = how;
    const auto net = [&] {
      if constexpr (Real == 3)
        return graph(loss);
      else
        return graph([loss](auto x, auto targets, auto of_inputs, auto of_targets) {
          return loss(log_softmax<dim<-1>>{}(x), targets, of_inputs, of_targets);
        });
    }();
    compare_once<float, std::remove_const_t<decltype(net)>, Real, In...>(whole, net);
    compare_once<double, std::remove_const_t<decltype(net)>, Real, In...>(whole, net);
  }
}

constexpr auto cosine_distance = [](auto a, auto b) { return 1 - cosine_similarity(a, b); };

}  // namespace

TEST_CASE("losses of several values compute what PyTorch recorded") {
  compare_loss<3, matrix, matrix, matrix>("margin_ranking", margin_ranking_loss{});
  compare_loss<3, list, list, list>("margin_ranking_margin", margin_ranking_loss{.margin = 0.75});
  compare_loss<3, list, list, list>("margin_ranking_edge", margin_ranking_loss{.margin = 0.5});
  compare_loss<3, matrix, matrix, list>("cosine_embedding", cosine_embedding_loss{});
  compare_loss<3, matrix, matrix, list>("cosine_embedding_margin",
                                        cosine_embedding_loss{.margin = -0.25});
  compare_loss<3, list, list, one>("cosine_embedding_one", cosine_embedding_loss{});
  compare_loss<3, matrix, matrix, matrix>("triplet_margin", triplet_margin_loss{});
  compare_loss<3, matrix, matrix, matrix>("triplet_margin_swap",
                                          triplet_margin_loss{.margin = 2.5, .swap = true});
  compare_loss<3, list, list, list>("triplet_margin_tie", triplet_margin_loss{.swap = true});
  compare_loss<3, list, list, list>("triplet_margin_one_norm",
                                    triplet_margin_loss{.margin = 0.5, .p = 1, .eps = 1e-3});
  compare_loss<3, matrix, matrix, matrix>(
      "triplet_margin_with_distance",
      triplet_margin_with_distance_loss(cosine_distance, {.margin = 0.25, .swap = true}));
  compare_loss<3, matrix, matrix, matrix>("gaussian_nll", gaussian_nll_loss{});
  compare_loss<3, matrix, matrix, matrix>("gaussian_nll_full",
                                          gaussian_nll_loss{.full = true, .eps = 0.75});
}

TEST_CASE("ctc_loss computes what PyTorch recorded") {
  constexpr shape steps{dynamic, dynamic, dynamic};
  compare_loss<1, steps, matrix, list, list>("ctc", ctc_loss{});
  compare_loss<1, steps, list, list, list>("ctc_joined", ctc_loss{});
  compare_loss<1, steps, matrix, list, list>("ctc_blank", ctc_loss{.blank = 4});
  compare_loss<1, matrix, list, one, one>("ctc_one", ctc_loss{});
  compare_loss<1, steps, matrix, list, list>("ctc_zero_infinity", ctc_loss{.zero_infinity = true});
  CHECK(layers_not_compared("ranking").empty());
}

TEST_CASE("gradients of losses of several values are exact") {
  const auto x = [](std::uint64_t s) { return uniform<double, shape{5, 4}>(seed{s}); };
  const std::tuple three{x(1), x(2), x(3)};
  CHECK(gradient_check(graph(margin_ranking_loss{.margin = 0.3}), three).largest < 1e-7);
  CHECK(gradient_check(graph(triplet_margin_loss{.p = 3, .swap = true}), three).largest < 1e-7);
  CHECK(gradient_check(graph(cosine_embedding_loss{.margin = -0.5}),
                       std::tuple{x(1), x(2), full<double, shape{5}>(-1)})
            .largest < 1e-7);
  auto variances = x(4);
  for (double& v : variances) v = v * v + 0.1;
  CHECK(gradient_check(graph(gaussian_nll_loss{.full = true}), std::tuple{x(1), variances, x(2)},
                       seed{1}, true, 1e-5)
            .largest < 1e-7);
  // Without log_softmax before it: the gradient is that by its input.
  tensor<std::int64_t, shape{2, 3}> targets;
  const std::int64_t labels[] = {1, 1, 3, 2, 0, 0}, lengths[] = {5, 4}, of_labels[] = {3, 1};
  std::copy(std::begin(labels), std::end(labels), targets.begin());
  tensor<std::int64_t, shape{2}> of_inputs, of_targets;
  std::copy(std::begin(lengths), std::end(lengths), of_inputs.begin());
  std::copy(std::begin(of_labels), std::end(of_labels), of_targets.begin());
  CHECK(gradient_check(graph(ctc_loss{}), std::tuple{uniform<double, shape{5, 2, 4}>(seed{5}),
                                                     targets, of_inputs, of_targets})
            .largest < 1e-7);
}

TEST_CASE("a siamese network trains with a loss of two outputs, without allocating") {
  constexpr auto siamese = graph([](auto a, auto b) {
    constexpr auto embed = linear<3, 2>{};
    return std::tuple("embed"_m(embed, a), "embed"_m(embed, b));
  });
  auto model = initialize<float, shape{dynamic, 3}, shape{dynamic, 3}>(siamese, seed{1});
  sgd optimizer{model, {.lr = 0.5}};
  const auto a = uniform<float, shape{8, 3}>(seed{2}), b = uniform<float, shape{8, 3}>(seed{3});
  auto t = ones<float, shape{8}>();
  for (dim_t i = 0; i < 8; i += 2) t[i] = -1;
  const cosine_embedding_loss loss{.margin = -0.5};
  const auto [first_a, first_b] = model(a, b);
  const float before = loss(first_a, first_b, t);
  CHECK(model.train_step(inputs(a, b), t, loss, optimizer) == before);
  const long allocations = allocation_count_here;
  float last = before;
  for (int i = 0; i < 200; ++i) last = model.train_step(inputs(a, b), t, loss, optimizer);
  CHECK(allocation_count_here == allocations);
  CHECK(last < before / 2);
  // Other options are not taken for the last ones.
  const auto [y, z] = model(a, b);
  const float others = cosine_embedding_loss{.margin = 0.5}(y, z, t);
  CHECK(model.loss_backward(inputs(a, b), t, cosine_embedding_loss{.margin = 0.5}) == others);
  CHECK(others != model.loss_backward(inputs(a, b), t, loss));
}

TEST_CASE("ctc_loss trains a batch of any size, and refuses lengths and labels that do not fit") {
  constexpr auto net = graph([](auto x) {  // [N, T, F]
    return log_softmax<dim<-1>>{}(transpose<0, 1>("fc"_m(linear<3, 4>{}, x)));
  });
  auto model = initialize<float, shape{dynamic, 6, 3}>(net, seed{1});
  sgd optimizer{model, {.lr = 1}};
  for (const dim_t n : {2, 5}) {
    tensor<float, shape{dynamic, 6, 3}> x(shape{n, 6, 3});
    for (dim_t i = 0; i < x.size(); ++i) x[i] = static_cast<float>(i * 7 % 11) / 11;
    tensor<std::int64_t, shape{dynamic, 2}> targets(shape{n, 2});
    tensor<std::int64_t, shape{dynamic}> of_inputs(shape{n}), of_targets(shape{n});
    for (dim_t i = 0; i < n; ++i)
      targets(i, 0) = 1 + i % 3, targets(i, 1) = 2, of_inputs[i] = 6, of_targets[i] = 2;
    const auto all = inputs(targets, of_inputs, of_targets);
    const float first = model.train_step(x, all, ctc_loss{}, optimizer);
    float last = first;
    for (int i = 0; i < 50; ++i) last = model.train_step(x, all, ctc_loss{}, optimizer);
    CHECK(last < first);

    const float before = model["fc.weight"_s](0, 0);
    const auto refuses = [&](std::int64_t& at, std::int64_t wrong, const char* sentence) {
      const std::int64_t right = at;
      at = wrong;
      CHECK_THROWS_WITH_AS(model.train_step(x, all, ctc_loss{}, optimizer), sentence, error);
      at = right;
    };
    refuses(of_inputs[1], 7, "0: ctc_loss expects lengths of inputs from 0 to 6, got 7 at index 1");
    refuses(of_targets[0], -1,
            "0: ctc_loss expects lengths of targets from 0 to 2, got -1 at index 0");
    refuses(targets(1, 1), 4,
            "0: ctc_loss expects labels other than blank, from 0 to 3, got 4 at index 1");
    refuses(targets(1, 0), 0,
            "0: ctc_loss expects labels other than blank, from 0 to 3, got 0 at index 0");
    CHECK(model["fc.weight"_s](0, 0) == before);
  }
}

TEST_CASE("of no samples the mean is not a number, the sum 0; an input of no steps has no loss") {
  tensor<double, shape{dynamic, 3}> none(shape{0, 3});
  CHECK(std::isnan(margin_ranking_loss{}(none, none, none)));
  CHECK(margin_ranking_loss{.reduction = reduction::sum}(none, none, none) == 0);
  const auto x = zeros<double, shape{2, 3}>();
  const auto targets = ones<std::int64_t, shape{1}>();
  auto length = zeros<std::int64_t, shape{}>();
  CHECK(ctc_loss{}(x, targets, length, length) == 0);
  const auto one_label = ones<std::int64_t, shape{}>();
  CHECK(ctc_loss{}(x, targets, length, one_label) == std::numeric_limits<double>::infinity());
  CHECK(ctc_loss{.zero_infinity = true}(x, targets, length, one_label) == 0);
}
