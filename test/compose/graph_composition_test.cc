#include <doctest/doctest.h>

#include <string>
#include <vector>

#include "ikebana/compose/graph.hpp"
#include "ikebana/compose/sequential.hpp"
#include "ikebana/model/initialize.hpp"
#include "ikebana/nn/activation.hpp"
#include "ikebana/nn/flatten.hpp"
#include "ikebana/nn/linear.hpp"
#include "test/compose/compositions.hpp"

namespace ike = ikebana;
using namespace ike::literals;
using ike::dynamic;
using ike::shape;

TEST_CASE("a graph of two inputs") {
  constexpr auto net = ike::graph([](auto x, auto y) {
    auto h = "a"_m(ike::lazy_linear<3>{}, x) + "b"_m(ike::lazy_linear<3>{}, y);
    return ike::tanh{}(h) + "c"_m(ike::lazy_linear<3>{}, y);
  });
  auto m = ike::initialize<double, shape{dynamic, 4}, shape{dynamic, 2}>(net, ike::seed{1});
  const auto x = ike::uniform<double, shape{2, 4}>(ike::seed{1});
  auto y = ike::uniform<double, shape{2, 2}>(ike::seed{2});
  const auto weights = ike::uniform<double, shape{2, 3}>(ike::seed{3});
  const auto value = [&] {
    const auto out = m(x, y);
    double sum = 0;
    for (ike::dim_t i = 0; i < 6; ++i) sum += out[i] * weights[i];
    return sum;
  };
  ike::tensor<double, shape{2, 4}> dx;
  ike::tensor<double, shape{2, 2}> dy;
  value();
  m.backward(weights, dx, dy);
  for (ike::dim_t i = 0; i < 4; ++i) {
    const double at = y[i];
    y[i] = at + 1e-6;
    const double above = value();
    y[i] = at - 1e-6;
    CHECK(dy[i] == doctest::Approx((above - value()) / 2e-6).epsilon(1e-6));
    y[i] = at;
  }
  const auto y3 = ike::uniform<double, shape{3, 2}>(ike::seed{2});
  CHECK_THROWS_AS(m(x, ike::tensor_view<const double, shape{dynamic, 2}>(y3.data(), y3.extents())),
                  ike::shape_error);
}

TEST_CASE("a graph stands in a sequential, and a sequential in a graph") {
  constexpr auto block = ike::graph([](auto x) {
    auto h = "body"_m(ike::sequential("fc"_m = ike::lazy_linear<4>{}, ike::tanh{}), x);
    return ike::relu{}(h) + x;
  });
  constexpr auto net =
      ike::sequential("first"_m = block, "second"_m = block, "out"_m = ike::lazy_linear<2>{});
  auto m = ike::initialize<double, three_by_four>(net, ike::seed{1});
  CHECK(paths(m) == path_names{"first.body.fc.weight", "first.body.fc.bias",
                               "second.body.fc.weight", "second.body.fc.bias", "out.weight",
                               "out.bias"});
  constexpr auto smooth = ike::graph([](auto x) {
    return ike::gelu{}("body"_m(ike::sequential("fc"_m = ike::lazy_linear<4>{}, ike::tanh{}), x)) +
           x;
  });
  check_gradients(ike::sequential("a"_m = smooth, "b"_m = smooth));
}

TEST_CASE("a graph that only returns its input is the identity") {
  constexpr auto net =
      ike::sequential(ike::graph([](auto x) { return x; }), "fc"_m = ike::lazy_linear<2>{});
  check_gradients(net);
}

TEST_CASE("views may be used by several") {
  constexpr auto net = ike::graph([](auto x) {
    auto f = ike::flatten{}(x);
    return "a"_m(ike::lazy_linear<3>{}, f) + "b"_m(ike::lazy_linear<3>{}, f) +
           "c"_m(ike::lazy_linear<3>{}, ike::flatten{}(ike::tanh{}(x)));
  });
  const auto r = ike::gradient_check(net, ike::uniform<double, shape{2, 3, 2}>(ike::seed{3}));
  CHECK_MESSAGE(r.largest < 1e-7, r.where);
  constexpr auto used_before_and_after = ike::graph([](auto x) {
    auto h = "a"_m(ike::lazy_linear<2>{}, x);
    auto f = ike::flatten{}(h);
    return "b"_m(ike::lazy_linear<3>{}, f) +
           "c"_m(ike::lazy_linear<3>{}, ike::flatten{}(ike::tanh{}(h)));
  });
  const auto s = ike::gradient_check(used_before_and_after,
                                     ike::uniform<double, shape{2, 3, 2}>(ike::seed{3}));
  CHECK_MESSAGE(s.largest < 1e-7, s.where);
}
