#include "ikebana/compose/parallel.hpp"

#include <doctest/doctest.h>

#include <string>
#include <tuple>

#include "ikebana/compose/choose.hpp"
#include "ikebana/compose/graph.hpp"
#include "ikebana/compose/repeat.hpp"
#include "ikebana/compose/residual.hpp"
#include "ikebana/compose/sequential.hpp"
#include "ikebana/model/initialize.hpp"
#include "ikebana/nn/activation.hpp"
#include "ikebana/nn/concat.hpp"
#include "ikebana/nn/identity.hpp"
#include "ikebana/nn/linear.hpp"
#include "ikebana/nn/lstm.hpp"
#include "ikebana/nn/split.hpp"
#include "test/compose/compositions.hpp"

namespace ike = ikebana;
using namespace ike::literals;
using ike::shape;

TEST_CASE("the branches of parallel see the same input, and concat joins them") {
  constexpr auto branches = ike::sequential(
      ike::parallel("left"_m = ike::lazy_linear<2>{},
                    "right"_m = ike::sequential(ike::lazy_linear<3>{}, ike::tanh{})),
      ike::concat<ike::dim<-1>>{}, "last"_m = ike::lazy_linear<2>{});
  auto m = ike::initialize<double, three_by_four>(branches, ike::seed{1});
  CHECK(paths(m) == path_names{"0.left.weight", "0.left.bias", "0.right.0.weight", "0.right.0.bias",
                               "last.weight", "last.bias"});
  CHECK(m["last.weight"_s].extents() == shape{2, 5});
  check_gradients(branches);
}

TEST_CASE("add after parallel takes both branches") {
  constexpr auto sum = ike::sequential(
      ike::parallel("a"_m = ike::lazy_linear<4>{}, "b"_m = ike::lazy_linear<4>{}), ike::add{});
  check_gradients(sum);
}

TEST_CASE("a parallel alone has several outputs") {
  auto m = ike::initialize<double, three_by_four>(ike::parallel(ike::relu{}, ike::lazy_linear<2>{}),
                                                  ike::seed{1});
  const auto x = ike::uniform<double, three_by_four>(ike::seed{2});
  const auto [positive, y] = m(x);
  CHECK(positive.extents() == three_by_four);
  CHECK(y.extents() == shape{3, 2});
  CHECK(positive[0] == (x[0] > 0 ? x[0] : 0));
}

TEST_CASE("what split cuts, concat joins") {
  constexpr auto same = ike::sequential(ike::split<ike::sections<1, ike::lazy, 1>, ike::dim<1>>{},
                                        ike::concat<ike::dim<1>>{});
  auto m = ike::initialize<double, three_by_four>(same, ike::seed{1});
  const auto x = ike::uniform<double, three_by_four>(ike::seed{2});
  const auto y = m(x);
  for (ike::dim_t i = 0; i < x.size(); ++i) CHECK(x[i] == y[i]);
  check_gradients(same);
}

TEST_CASE("a graph takes the outputs of a module apart") {
  constexpr auto gated = ike::graph([](auto x) {
    const auto [value, gate] =
        ike::split<ike::sections<3, 3>, ike::dim<-1>>{}("fc"_m(ike::lazy_linear<6>{}, x));
    const auto [other, same] = ike::parallel(ike::tanh{}, ike::identity{})(gate);
    return ike::concat<ike::dim<1>>{}(value * ike::sigmoid{}(gate), other + same, value);
  });
  auto m = ike::initialize<double, three_by_four>(gated, ike::seed{1});
  CHECK(decltype(m)::output_shape == shape{3, 9});
  check_gradients(gated);
}

TEST_CASE("repeat gives each copy parameters of its own") {
  auto m = ike::initialize<double, three_by_four>(
      ike::sequential("layers"_m = ike::repeat<3>(ike::lazy_linear<4, ike::bias<false>>{})),
      ike::seed{1});
  CHECK(paths(m) == path_names{"layers.0.weight", "layers.1.weight", "layers.2.weight"});
  CHECK(m["layers.0.weight"_s][0] != m["layers.1.weight"_s][0]);
}

TEST_CASE("a parallel in a parallel has a level of its own") {
  constexpr auto inner = ike::parallel(ike::lazy_linear<2>{}, ike::lazy_linear<3>{});
  auto m = ike::initialize<double, three_by_four>(ike::parallel(inner), ike::seed{1});
  CHECK(paths(m) == path_names{"0.0.weight", "0.0.bias", "0.1.weight", "0.1.bias"});
}

namespace {

template <class M>
std::string refusal(const M& m) {
  const ike::inferred made = ike::infer(m, ike::shape_list{three_by_four});
  return made.ok() ? "accepted" : std::string(made.error.message().view());
}

}  // namespace

TEST_CASE("a chain does not go on with one of several results") {
  const std::string wrong =
      "fc: linear takes 1 input, got 2: concat, add and mul make one value of several";
  constexpr auto fc = ike::linear<4, 4>{};
  constexpr auto both = ike::parallel(ike::relu{}, ike::tanh{});
  CHECK(refusal(ike::sequential(both, "fc"_m = fc)) == wrong);
  CHECK(refusal(ike::sequential(ike::sequential(fc, both), "fc"_m = fc)) == wrong);
  CHECK(refusal(ike::sequential(ike::choose(both, both), "fc"_m = fc)) == wrong);
  CHECK(refusal(ike::sequential(ike::graph([](auto x) {
                                  return std::tuple{ike::relu{}(x), ike::tanh{}(x)};
                                }),
                                "fc"_m = fc)) == wrong);
  CHECK(refusal(ike::sequential(ike::split<ike::sections<2, 2>, ike::dim<1>>{}, "fc"_m = fc)) ==
        wrong);
  CHECK(refusal(ike::sequential(both, "head"_m = ike::sequential(fc))) ==
        "head: a composition takes 1 input, got 2: concat, add and mul make one value of several");
  CHECK(refusal(ike::residual(both, "fc"_m = fc)) == wrong);
  CHECK(refusal(ike::residual(both)) ==
        "add: add takes 2 inputs, got 3: concat, add and mul make one value of several");
}

TEST_CASE("a chain goes on with the result of a recurrence, without its states") {
  constexpr auto lstm = ike::lstm<4, 4>{};
  constexpr auto fc = ike::linear<4, 4>{};
  CHECK(refusal(ike::sequential(lstm, fc)) == "accepted");
  CHECK(refusal(ike::sequential(ike::sequential(fc, lstm), fc)) == "accepted");
  CHECK(refusal(ike::sequential(ike::choose(lstm, lstm), fc)) == "accepted");
  CHECK(refusal(ike::residual(lstm)) == "accepted");
}
