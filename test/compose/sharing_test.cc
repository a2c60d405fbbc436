#include <doctest/doctest.h>

#include <tuple>

#include "ikebana/compose/graph.hpp"
#include "ikebana/compose/sequential.hpp"
#include "ikebana/model/initialize.hpp"
#include "ikebana/nn/activation.hpp"
#include "ikebana/nn/linear.hpp"
#include "ikebana/nn/split.hpp"
#include "test/compose/compositions.hpp"

namespace ike = ikebana;
using namespace ike::literals;
using ike::shape;

TEST_CASE("a module applied twice under one name has its parameters once") {
  constexpr auto twice = ike::graph([](auto x) {
    const auto h = ike::tanh{}("fc"_m(ike::lazy_linear<4>{}, x));
    return "fc"_m(ike::lazy_linear<4>{}, h) * x;
  });
  auto m = ike::initialize<double, three_by_four>(twice, ike::seed{1});
  CHECK(paths(m) == path_names{"fc.weight", "fc.bias"});
  check_gradients(twice);
}

TEST_CASE("a named module is applied by calling it, as often as it is used") {
  constexpr auto twice = ike::graph([](auto x) {
    const auto fc = "fc"_m = ike::lazy_linear<4>{};
    return fc(ike::tanh{}(fc(x))) * x;
  });
  auto m = ike::initialize<double, three_by_four>(twice, ike::seed{1});
  CHECK(paths(m) == path_names{"fc.weight", "fc.bias"});
  check_gradients(twice);
}

TEST_CASE("a composition applied twice shares what is in it") {
  static constexpr auto inner =
      ike::sequential("a"_m = ike::lazy_linear<4>{}, ike::tanh{}, "b"_m = ike::lazy_linear<4>{});
  constexpr auto twice = ike::graph([](auto x) {
    const auto h = "block"_m(inner, x);
    return "block"_m(inner, h) + "own"_m(ike::lazy_linear<4>{}, h);
  });
  auto m = ike::initialize<double, three_by_four>(twice, ike::seed{1});
  CHECK(paths(m) == path_names{"block.a.weight", "block.a.bias", "block.b.weight", "block.b.bias",
                               "own.weight", "own.bias"});
  check_gradients(twice);
}

TEST_CASE("a graph may have several outputs, and backward takes the gradient of each") {
  constexpr auto two = ike::graph([](auto x) {
    const auto h = "fc"_m(ike::lazy_linear<4>{}, x);
    return std::tuple(ike::tanh{}(h), "head"_m(ike::lazy_linear<2>{}, h));
  });
  auto m = ike::initialize<double, three_by_four>(two, ike::seed{1});
  const auto x = ike::uniform<double, three_by_four>(ike::seed{2});
  const auto [a, b] = m(x);
  CHECK(a.extents() == shape{3, 4});
  CHECK(b.extents() == shape{3, 2});

  // The gradient of a weighted sum of both outputs, compared with the sum of the separate
  // gradients.
  const auto ga = ike::uniform<double, shape{3, 4}>(ike::seed{3});
  const auto gb = ike::uniform<double, shape{3, 2}>(ike::seed{4});
  const auto none_a = ike::zeros<double, shape{3, 4}>();
  const auto none_b = ike::zeros<double, shape{3, 2}>();
  auto dx = ike::zeros<double, three_by_four>(), dx_a = dx, dx_b = dx;
  m.backward(std::tuple(ga, gb), dx);
  const std::vector<double> both(m.gradients().begin(), m.gradients().end());
  m.zero_grad();
  m(x);
  m.backward(std::tuple(ga, none_b), dx_a);
  m(x);
  m.backward(std::tuple(none_a, gb), dx_b);
  for (std::size_t i = 0; i < both.size(); ++i)
    CHECK(m.gradients()[i] == doctest::Approx(both[i]).epsilon(1e-12));
  for (ike::dim_t i = 0; i < dx.size(); ++i)
    CHECK(dx[i] == doctest::Approx(dx_a[i] + dx_b[i]).epsilon(1e-12));
}

TEST_CASE("inputs may be given by name, in any order") {
  constexpr auto difference = ike::graph<"source", "target">([](auto s, auto t) {
    return "s"_m(ike::lazy_linear<2>{}, s) + "t"_m(ike::lazy_linear<2>{}, t);
  });
  auto m = ike::initialize<double, shape{3, 4}, shape{3, 5}>(difference, ike::seed{1});
  const auto s = ike::uniform<double, shape{3, 4}>(ike::seed{2});
  auto t = ike::uniform<double, shape{3, 5}>(ike::seed{3});
  const ike::tensor y{m(s, t)};
  for (int order = 0; order < 2; ++order) {
    const auto named = order == 0 ? m("target"_arg = t, "source"_arg = s) : m(s, "target"_arg = t);
    for (ike::dim_t i = 0; i < y.size(); ++i) CHECK(named[i] == y[i]);
  }
}

TEST_CASE("gradient_check takes several inputs and outputs") {
  constexpr auto two = ike::graph([](auto a, auto b) {
    const auto h = "h"_m(ike::lazy_linear<3>{}, a) * "g"_m(ike::lazy_linear<3>{}, b);
    return std::tuple(ike::tanh{}(h), h);
  });
  const auto r =
      ike::gradient_check(two, std::tuple(ike::uniform<double, shape{2, 4}>(ike::seed{5}),
                                          ike::uniform<double, shape{2, 5}>(ike::seed{6})));
  CHECK_MESSAGE(r.largest < 1e-7, r.where);
}
