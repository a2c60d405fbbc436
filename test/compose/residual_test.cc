#include "ikebana/compose/residual.hpp"

#include <doctest/doctest.h>

#include <string>
#include <string_view>
#include <vector>

#include "ikebana/compose/sequential.hpp"
#include "ikebana/model/initialize.hpp"
#include "ikebana/nn/activation.hpp"
#include "ikebana/nn/linear.hpp"
#include "ikebana/nn/lstm.hpp"
#include "test/compose/compositions.hpp"

namespace ike = ikebana;
using namespace ike::literals;
using ike::shape;

TEST_CASE("five levels of nesting are one function") {
  constexpr auto l1 = ike::sequential("a"_m = ike::lazy_linear<4>{}, ike::tanh{});
  constexpr auto l2 = ike::residual("b"_m = l1);
  constexpr auto l3 = ike::sequential("c"_m = l2, ike::tanh{});
  constexpr auto l4 = ike::residual("d"_m = l3, "again"_m = l3);
  constexpr auto l5 = ike::sequential("e"_m = l4, "out"_m = ike::lazy_linear<2>{});
  auto m = ike::initialize<double, three_by_four>(l5, ike::seed{1});
  CHECK(paths(m)[0] == "e.d.c.b.a.weight");
  CHECK(paths(m)[2] == "e.again.c.b.a.weight");
  check_gradients(l5);
}

TEST_CASE("the empty sequential is the identity, also within others") {
  constexpr auto net = ike::sequential("none"_m = ike::sequential(), "fc"_m = ike::lazy_linear<4>{},
                                       ike::residual(), ike::sequential(ike::sequential()));
  check_gradients(net);
  auto m = ike::initialize<double, three_by_four>(net, ike::seed{1});
  const auto x = ike::uniform<double, three_by_four>(ike::seed{11});
  auto fc = ike::initialize<double, three_by_four>(ike::sequential("fc"_m = ike::lazy_linear<4>{}),
                                                   ike::seed{1});
  const auto y = fc(x);
  const auto z = m(x);  // residual() is x + x
  for (ike::dim_t i = 0; i < 12; ++i) CHECK(z[i] == 2 * y[i]);
}

TEST_CASE("residual adds its input, nested and around compositions") {
  constexpr auto net = ike::residual(
      "f"_m = ike::sequential(ike::lazy_linear<6>{}, ike::tanh{}, ike::lazy_linear<4>{}),
      "g"_m = ike::residual("h"_m = ike::lazy_linear<4>{}, ike::tanh{}));
  check_gradients(net);
  // x + g(f(x)), by hand.
  auto m = ike::initialize<double, three_by_four>(net, ike::seed{1});
  auto f = ike::initialize<double, three_by_four>(
      ike::sequential(
          "f"_m = ike::sequential(ike::lazy_linear<6>{}, ike::tanh{}, ike::lazy_linear<4>{})),
      ike::seed{1});
  const auto x = ike::uniform<double, three_by_four>(ike::seed{11});
  const ike::tensor<double, three_by_four> fx{f(x)};
  auto h = ike::initialize<double, three_by_four>(
      ike::sequential("g"_m = ike::sequential("h"_m = ike::lazy_linear<4>{}, ike::tanh{})),
      ike::seed{1});
  const auto hx = h(fx);
  const auto y = m(x);
  for (ike::dim_t i = 0; i < 12; ++i) CHECK(y[i] == doctest::Approx(x[i] + fx[i] + hx[i]));
}

TEST_CASE("a residual whose shapes differ is refused with its path") {
  constexpr ike::inferred r =
      ike::infer(ike::sequential("block"_m = ike::residual(ike::linear<4, 5>{})),
                 ike::shape_list{shape{3, 4}});
  static_assert(!r.ok());
  CHECK(std::string_view{r.error.message().c_str()} ==
        "block.add: add expects equal shapes, got [3, 5] and [3, 4]");
}

TEST_CASE("a residual of a residual is two of them") {
  constexpr auto f = ike::lazy_linear<4, ike::bias<false>>{};
  constexpr auto once = ike::residual("f"_m = f);
  constexpr auto twice = ike::residual(once);
  auto m = ike::initialize<double, three_by_four>(twice, ike::seed{1});
  CHECK(paths(m) == path_names{"0.f.weight"});
  CHECK(paths(ike::initialize<double, three_by_four>(ike::residual("again"_m = ike::residual(once)),
                                                     ike::seed{1})) ==
        path_names{"again.0.f.weight"});
  auto inner = ike::initialize<double, three_by_four>(ike::sequential(once), ike::seed{1});
  const auto x = ike::uniform<double, three_by_four>(ike::seed{11});
  const auto y = m(x);
  const auto z = inner(x);  // x + f(x), with the same weights
  for (ike::dim_t i = 0; i < 12; ++i) CHECK(y[i] == x[i] + z[i]);
  check_gradients(twice);
}

TEST_CASE("a residual goes on with the result of a recurrence, not with its states") {
  constexpr auto rnn = ike::lazy_lstm<4>{};
  constexpr auto fc = ike::lazy_linear<4>{};
  constexpr auto chain = ike::sequential("rnn"_m = rnn, "fc"_m = fc, ike::tanh{});
  constexpr auto net = ike::residual("rnn"_m = rnn, "fc"_m = fc, ike::tanh{});
  check_gradients(net);
  auto m = ike::initialize<double, three_by_four>(net, ike::seed{1});
  auto f = ike::initialize<double, three_by_four>(chain, ike::seed{1});
  const auto x = ike::uniform<double, three_by_four>(ike::seed{11});
  const auto y = m(x), fx = f(x);
  for (ike::dim_t i = 0; i < 12; ++i) CHECK(y[i] == x[i] + fx[i]);
}
