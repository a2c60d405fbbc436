#include "ikebana/compose/choose.hpp"

#include <doctest/doctest.h>

#include <string>
#include <string_view>
#include <tuple>

#include "ikebana/compose/graph.hpp"
#include "ikebana/compose/parallel.hpp"
#include "ikebana/compose/residual.hpp"
#include "ikebana/compose/sequential.hpp"
#include "ikebana/core/error.hpp"
#include "ikebana/nn/activation.hpp"
#include "ikebana/nn/linear.hpp"
#include "test/compose/compositions.hpp"

namespace ike = ikebana;
using namespace ike::literals;
using ike::shape;

namespace {

constexpr auto two_paths = ike::sequential(
    "in"_m = ike::lazy_linear<5>{},
    "path"_m = ike::choose("short"_m = ike::lazy_linear<4>{},
                           "long"_m = ike::sequential("a"_m = ike::lazy_linear<6>{}, ike::tanh{},
                                                      "b"_m = ike::lazy_linear<4>{})),
    "out"_m = ike::lazy_linear<2>{});

/// The gradients of a network after choosing.
template <class M, class Choose>
void check_gradients_of(const M& m, const Choose& choose) {
  auto net = ike::initialize<double, three_by_four>(m, ike::seed{1});
  choose(net);
  const auto r =
      ike::gradient_check(net, std::tuple(ike::uniform<double, three_by_four>(ike::seed{11})));
  CHECK_MESSAGE(r.largest < 1e-7, r.where);
}

template <class Net>
void backward_of_ones(Net& net) {
  ike::tensor<double, Net::output_shape> ones;
  for (double& g : ones) g = 1;
  net.backward(ones);
}

const auto x = ike::uniform<double, three_by_four>(ike::seed{11});

}  // namespace

TEST_CASE("one alternative runs, the first as long as nobody chooses") {
  auto net = ike::initialize<double, three_by_four>(two_paths, ike::seed{1});
  CHECK(paths(net) == path_names{"in.weight", "in.bias", "path.short.weight", "path.short.bias",
                                 "path.long.a.weight", "path.long.a.bias", "path.long.b.weight",
                                 "path.long.b.bias", "out.weight", "out.bias"});
  auto expected = [](auto branch) {
    auto alone = ike::initialize<double, three_by_four>(
        ike::sequential("in"_m = ike::lazy_linear<5>{}, "path"_m = ike::sequential(branch),
                        "out"_m = ike::lazy_linear<2>{}),
        ike::seed{1});
    return ike::tensor<double, shape{3, 2}>{alone(x)};
  };
  const auto by_short = expected("short"_m = ike::lazy_linear<4>{});
  const auto by_long =
      expected("long"_m = ike::sequential("a"_m = ike::lazy_linear<6>{}, ike::tanh{},
                                          "b"_m = ike::lazy_linear<4>{}));
  const auto same = [](const auto& a, const auto& b) {
    for (ike::dim_t i = 0; i < 6; ++i)
      if (a[i] != b[i]) return false;
    return true;
  };
  CHECK(net.chosen("path"_s) == 0);
  CHECK(same(net(x), by_short));
  net.choose("path"_s, 1);
  CHECK(same(net(x), by_long));
  CHECK(net.chosen("path"_s) == 1);
  net.choose("path", "short"_s);
  CHECK(same(net(x), by_short));
  net.choose("path"_s, "long");
  CHECK(same(net(x), by_long));
  auto copy = net.clone();
  CHECK(same(copy(x), by_long));
  CHECK_THROWS_WITH_AS(net.choose("path"_s, 2), "path: has 2 alternatives, got 2", ike::error);
  CHECK_THROWS_WITH_AS(net.choose("path"_s, "wide"), "path: has no alternative 'wide'", ike::error);
  CHECK_THROWS_WITH_AS(net.choose("in", 0), "the network has no choose at 'in'", ike::error);
}

TEST_CASE("gradients are right through each alternative") {
  for (const int alternative : {0, 1})
    check_gradients_of(two_paths, [&](auto& net) { net.choose("path"_s, alternative); });
}

TEST_CASE("a layer may be skipped, at the ends of a network too") {
  constexpr auto net = ike::sequential(
      "first"_m = ike::skippable("layer"_m = ike::lazy_linear<4>{}),
      "middle"_m = ike::skippable("layer"_m = ike::residual("f"_m = ike::lazy_linear<4>{})),
      "last"_m = ike::skippable("layer"_m = ike::sequential("f"_m = ike::lazy_linear<4>{})));
  for (const int choices : {0, 1, 2, 3, 4, 5, 6, 7})
    check_gradients_of(net, [&](auto& m) {
      m.choose("first"_s, choices & 1);
      m.choose("middle"_s, (choices >> 1) & 1);
      m.choose("last"_s, (choices >> 2) & 1);
    });
}

TEST_CASE("a value may have consumers that run and consumers that do not") {
  // f's output is used by both alternatives, by what follows and by a choice whose alternative is
  // the value itself: the first contribution in backward writes its gradient, the others add.
  constexpr auto net = ike::graph([](auto v) {
    const auto f = "f"_m(ike::lazy_linear<4>{}, v);
    const auto early = ike::tanh{}(f);
    const auto chosen = "path"_m(
        ike::choose(
            "linear"_m = ike::lazy_linear<4>{}, "same"_m = ike::sequential<>{},
            "twice"_m = ike::graph([](auto w) { return "l"_m(ike::lazy_linear<4>{}, w) * w; })),
        f);
    const auto skipped = "skip"_m(ike::skippable("g"_m = ike::lazy_linear<4>{}), f);
    return chosen + skipped * early + f;
  });
  for (const int alternative : {0, 1, 2})
    for (const int skip : {0, 1})
      check_gradients_of(net, [&](auto& m) {
        m.choose("path"_s, alternative);
        m.choose("skip"_s, skip);
      });
}

TEST_CASE("choices stand within choices, and one module of a graph may run twice") {
  static constexpr auto inner = ike::choose(
      "one"_m = ike::lazy_linear<4>{},
      "two"_m = ike::skippable("l"_m = ike::sequential(ike::lazy_linear<4>{}, ike::tanh{})));
  constexpr auto net = ike::graph([](auto v) {
    const auto a = "block"_m(ike::choose("deep"_m = inner, "flat"_m = ike::tanh{}), v);
    const auto b = "block"_m(ike::choose("deep"_m = inner, "flat"_m = ike::tanh{}), a);
    return "block"_m(ike::choose("deep"_m = inner, "flat"_m = ike::tanh{}), b) + a;
  });
  for (const int choices : {0, 1, 2, 3, 4})
    check_gradients_of(net, [&](auto& m) {
      m.choose("block"_s, choices == 4 ? 1 : 0);
      m.choose("block.deep"_s, choices / 2 % 2);
      m.choose("block.deep.two"_s, choices % 2);
    });
}

TEST_CASE("alternatives may have several inputs and outputs") {
  constexpr auto swap =
      ike::graph([](auto a, auto b) { return std::tuple(b, "l"_m(ike::lazy_linear<4>{}, a)); });
  constexpr auto mix = ike::graph([](auto a, auto b) {
    return std::tuple("m"_m(ike::lazy_linear<4>{}, a) + b, ike::tanh{}(b));
  });
  constexpr auto net =
      ike::sequential(ike::parallel("a"_m = ike::lazy_linear<4>{}, "b"_m = ike::lazy_linear<4>{}),
                      "path"_m = ike::choose("swap"_m = swap, "mix"_m = mix),
                      ike::graph([](auto a, auto b) { return a * b + a; }));
  for (const int alternative : {0, 1})
    check_gradients_of(net, [&](auto& m) { m.choose("path"_s, alternative); });
}

TEST_CASE("alternatives that differ are refused with the path") {
  constexpr ike::inferred shapes =
      ike::infer(ike::sequential("path"_m = ike::choose(ike::linear<4, 3>{}, ike::linear<4, 5>{})),
                 ike::shape_list{shape{2, 4}});
  static_assert(!shapes.ok());
  CHECK(std::string_view{shapes.error.message().c_str()} ==
        "path.choice: the alternatives of choose give equal shapes, got [2, 3] and [2, 5]");
  constexpr ike::inferred inputs =
      ike::infer(ike::sequential("path"_m = ike::choose(ike::linear<4, 3>{}, ike::linear<5, 3>{})),
                 ike::shape_list{shape{2, 4}});
  static_assert(!inputs.ok());
  CHECK(std::string_view{inputs.error.message().c_str()}.starts_with("path.1: linear expects"));
}

TEST_CASE("a function that chooses is asked before each forward that gets there") {
  constexpr auto net = ike::sequential(
      "outer"_m =
          ike::choose("a"_m = ike::tanh{}, "b"_m = ike::skippable("l"_m = ike::lazy_linear<4>{})));
  auto m = ike::initialize<double, three_by_four>(net, ike::seed{3});
  int asked = 0;
  m.choose("outer.b", [&](const ike::choice_context& c) {
    CHECK(c.path == "outer.b");
    CHECK(c.alternatives == 2);
    ++asked;
    return c.step % 2;
  });
  m(x);
  CHECK(asked == 0);
  CHECK(m.chosen("outer.b"_s) == -1);
  m.choose("outer"_s, "b"_s);
  for (int step = 2; step < 6; ++step) {
    m(x);
    CHECK(m.chosen("outer.b"_s) == step % 2);
  }
  CHECK(asked == 4);
  m.choose("outer.b"_s, [](const ike::choice_context&) { return 2; });
  CHECK_THROWS_WITH_AS(m(x), "outer.b: has 2 alternatives, got 2", ike::error);
  // Nothing has changed: backward follows the last forward, which skipped l.
  CHECK(m.chosen("outer.b"_s) == 1);
  m.zero_grad();
  backward_of_ones(m);
  CHECK_FALSE(m.has_gradient("outer.b.l.weight"_s));
}

TEST_CASE("layer drop skips in training with its probability") {
  auto m = ike::initialize<double, three_by_four>(
      ike::sequential("layer"_m = ike::skippable("l"_m = ike::lazy_linear<4>{})), ike::seed{7});
  m.choose("layer"_s, ike::layer_drop{.p = 0.25});
  int skipped = 0;
  for (int step = 0; step < 1000; ++step) {
    m(x);
    skipped += m.chosen("layer"_s);
  }
  CHECK(skipped > 200);
  CHECK(skipped < 300);
  m.eval();
  for (int step = 0; step < 100; ++step) {
    m(x);
    CHECK(m.chosen("layer"_s) == 0);
  }
}

TEST_CASE("a choice in a choice has a level of its own") {
  constexpr auto inner = ike::choose(ike::lazy_linear<4>{});
  auto m = ike::initialize<double, three_by_four>(ike::choose(inner), ike::seed{1});
  CHECK(paths(m) == path_names{"0.0.weight", "0.0.bias"});
}
