#include <doctest/doctest.h>

#include <cmath>
#include <string>
#include <tuple>
#include <vector>

#include "ikebana/compose/choose.hpp"
#include "ikebana/compose/graph.hpp"
#include "ikebana/compose/parallel.hpp"
#include "ikebana/compose/sequential.hpp"
#include "ikebana/core/error.hpp"
#include "ikebana/model/initialize.hpp"
#include "ikebana/nn/activation.hpp"
#include "ikebana/nn/batch_norm.hpp"
#include "ikebana/nn/linear.hpp"
#include "ikebana/nn/loss.hpp"
#include "ikebana/nn/split.hpp"
#include "ikebana/optim/adam.hpp"
#include "test/support/count_allocations.hpp"

namespace ike = ikebana;
using namespace ike::literals;
using ike::shape;

namespace {

constexpr shape in{3, 4};
constexpr auto branching = ike::sequential(
    "in"_m = ike::lazy_linear<5>{},
    "path"_m = ike::choose("a"_m = ike::sequential("fc1"_m = ike::lazy_linear<7>{}, ike::tanh{},
                                                   "fc2"_m = ike::lazy_linear<5>{}),
                           "b"_m = ike::lazy_linear<5, ike::bias<false>>{}),
    "out"_m = ike::lazy_linear<2>{});

template <class T = double>
auto make() {
  return ike::initialize<T, in>(branching, ike::seed{1});
}

const auto x = ike::uniform<double, in>(ike::seed{2});
const auto y = ike::uniform<double, shape{3, 2}>(ike::seed{3});
const auto gradient = ike::uniform<double, shape{3, 2}>(ike::seed{4});

template <class M>
std::vector<double> values(const M& m) {
  return {m.gradients().begin(), m.gradients().end()};
}

template <class View>
bool is_zero(const View& v) {
  for (ike::dim_t i = 0; i < v.size(); ++i)
    if (v[i] != 0) return false;
  return true;
}

}  // namespace

TEST_CASE("a parameter has a gradient once a backward reached it") {
  auto m = make();
  CHECK_FALSE(m.has_gradient("in.weight"_s));
  m(x);
  m.backward(gradient);
  CHECK(m.has_gradient("in.weight"_s));
  CHECK(m.has_gradient("path.a.fc1.bias"_s));
  CHECK(m.has_gradient("path.a.fc2.weight"_s));
  CHECK_FALSE(m.has_gradient("path.b.weight"_s));
  CHECK(is_zero(m.gradient("path.b.weight"_s)));
  CHECK_FALSE(m.presence()->all());

  // Gradients accumulate: those of another branch stay.
  const ike::tensor<double, shape{7, 5}> before{m.gradient("path.a.fc1.weight"_s)};
  m.choose("path"_s, "b"_s);
  m(x);
  m.backward(gradient);
  CHECK(m.has_gradient("path.b.weight"_s));
  CHECK(m.has_gradient("path.a.fc1.weight"_s));
  CHECK(m.presence()->all());
  for (ike::dim_t i = 0; i < before.size(); ++i)
    CHECK(m.gradient("path.a.fc1.weight"_s)[i] == before[i]);

  m.zero_grad();
  CHECK_FALSE(m.has_gradient("path.a.fc1.weight"_s));
  CHECK_FALSE(m.has_gradient("in.weight"_s));
  CHECK(is_zero(m.gradient("path.a.fc1.weight"_s)));
}

TEST_CASE("a step's gradients are of that step alone") {
  auto m = make();
  struct {
    void step() {}
  } no_optimizer;
  m.train_step(x, y, ike::mse_loss{}, no_optimizer);
  CHECK(m.has_gradient("path.a.fc1.weight"_s));
  m.choose("path"_s, 1);
  m.train_step(x, y, ike::mse_loss{}, no_optimizer);
  CHECK_FALSE(m.has_gradient("path.a.fc1.weight"_s));
  CHECK(is_zero(m.gradient("path.a.fc1.weight"_s)));
  const auto once = values(m);
  m.train_step(x, y, ike::mse_loss{}, no_optimizer);
  CHECK(values(m) == once);
  m.choose("path"_s, 0);
  m.train_step(x, y, ike::mse_loss{}, no_optimizer);
  CHECK_FALSE(m.has_gradient("path.b.weight"_s));
  CHECK(is_zero(m.gradient("path.b.weight"_s)));
}

TEST_CASE("the calls of a module in a branch add up") {
  constexpr auto twice = ike::graph([](auto h) {
    constexpr ike::lazy_linear<4, ike::bias<false>> fc;
    return "fc"_m(fc, ike::tanh{}("fc"_m(fc, h)));
  });
  auto m = ike::initialize<double, in>(ike::sequential("p"_m = ike::choose("a"_m = twice)),
                                       ike::seed{1});
  auto expected = ike::initialize<double, in>(twice, ike::seed{1});
  expected["fc.weight"_s] = m["p.a.fc.weight"_s];
  const auto t = ike::uniform<double, in>(ike::seed{6});
  struct {
    void step() {}
  } no_optimizer;
  for (int i = 0; i < 2; ++i) {
    m.train_step(x, t, ike::mse_loss{}, no_optimizer);
    expected.train_step(x, t, ike::mse_loss{}, no_optimizer);
    CHECK(values(m) == values(expected));
  }
}

TEST_CASE("what is chosen after a forward is for the next one") {
  auto m = make();
  m(x);
  m.choose("path"_s, 1);
  m.backward(gradient);
  CHECK(m.has_gradient("path.a.fc1.weight"_s));
  CHECK_FALSE(m.has_gradient("path.b.weight"_s));
}

TEST_CASE("the gradients of inputs are planned for the branch that ran") {
  const auto net = ike::graph([](auto a, auto b) {
    return "path"_m(ike::choose("first"_m = ike::graph(
                                    [](auto c, auto d) { return c + ike::tanh{}(c) + d; }),
                                "second"_m = ike::graph([](auto c, auto d) { return d * d + c; })),
                    a, b) +
           a;
  });
  auto m = ike::initialize<double, in, in>(net, ike::seed{1});
  ike::tensor<double, in> ones, da, db;
  for (double& g : ones) g = 1;
  for (const int alternative : {0, 1, 0}) {
    m.choose("path"_s, alternative);
    m(x, x);
    m.choose("path"_s, 1 - alternative);
    m.backward(ones, da, db);
    for (ike::dim_t i = 0; i < x.size(); ++i) {
      const double t = std::tanh(x[i]);
      CHECK(da[i] == doctest::Approx(alternative == 0 ? 3 - t * t : 2));
      CHECK(db[i] == doctest::Approx(alternative == 0 ? 1 : 2 * x[i]));
    }
  }
}

TEST_CASE("an input that no branch reads has a gradient of zero") {
  const auto net = ike::graph([](auto a, auto b) {
    return "path"_m(ike::choose(ike::graph([](auto c, auto d) { return c + d; }),
                                ike::graph([](auto c, auto) { return c + c; })),
                    a, b);
  });
  auto m = ike::initialize<double, in, in>(net, ike::seed{1});
  ike::tensor<double, in> da, db;
  const ike::tensor<double, in> g = ike::uniform<double, in>(ike::seed{9});
  m.choose("path"_s, 1);
  for (double& v : db) v = 7;
  m(x, x);
  m.backward(g, da, db);
  for (ike::dim_t i = 0; i < x.size(); ++i) {
    CHECK(da[i] == 2 * g[i]);
    CHECK(db[i] == 0);
  }
}

TEST_CASE("alternatives share their memory") {
  const auto alone = [](auto branch) {
    auto m = ike::initialize<double, in>(branch, ike::seed{1});
    m(x);
    return m.workspace_bytes();
  };
  constexpr auto branch =
      ike::sequential(ike::lazy_linear<64>{}, ike::tanh{}, ike::lazy_linear<64>{}, ike::tanh{});
  const auto one = alone(ike::sequential("p"_m = ike::choose(branch)));
  CHECK(one == alone(branch));
  CHECK(alone(ike::sequential("p"_m = ike::choose(branch, branch, branch))) < one + one / 2);
}

TEST_CASE("parameters of an output that no loss depends on have no gradient") {
  constexpr auto net = ike::sequential(
      "in"_m = ike::lazy_linear<4>{},
      ike::parallel("left"_m = ike::lazy_linear<2>{},
                    "right"_m = ike::sequential("fc"_m = ike::lazy_linear<3>{}, ike::tanh{})));
  auto m = ike::initialize<double, in>(net, ike::seed{1});
  const auto right = ike::uniform<double, shape{3, 3}>(ike::seed{5});
  m(x);
  m.backward(std::tuple(gradient, ike::no_gradient));
  CHECK(m.has_gradient("1.left.weight"_s));
  CHECK(m.has_gradient("in.weight"_s));
  CHECK_FALSE(m.has_gradient("1.right.fc.weight"_s));
  const auto one = values(m);
  ike::tensor<double, in> dx, dx_of_zeros;
  m.backward(std::tuple(gradient, ike::no_gradient), dx);
  ike::tensor<double, shape{3, 3}> zeros;
  m.backward(std::tuple(gradient, zeros), dx_of_zeros);
  CHECK(m.presence()->all());
  for (ike::dim_t i = 0; i < x.size(); ++i) CHECK(dx[i] == dx_of_zeros[i]);
  for (std::size_t i = 0; i < one.size(); ++i)
    CHECK(m.gradients()[i] == doctest::Approx(3 * one[i]));
}

TEST_CASE("an output of a module that no loss depends on has a gradient of zero in its backward") {
  auto m =
      ike::initialize<double, in>(ike::sequential("in"_m = ike::lazy_linear<5>{},
                                                  ike::split<ike::sections<2, 3>, ike::dim<1>>{}),
                                  ike::seed{1});
  const auto second = ike::uniform<double, shape{3, 3}>(ike::seed{5});
  m(x);
  ike::tensor<double, in> dx, of_both;
  m.backward(std::tuple(ike::no_gradient, second), dx);
  m.backward(std::tuple(gradient, second), of_both);
  CHECK(of_both[0] != dx[0]);
  ike::tensor<double, in> again;
  m.backward(std::tuple(ike::no_gradient, second), again);
  for (ike::dim_t i = 0; i < x.size(); ++i) CHECK(again[i] == dx[i]);
}

TEST_CASE("only the branch that runs is asked whether it can") {
  constexpr auto net = ike::sequential(
      "path"_m = ike::choose("norm"_m = ike::lazy_batch_norm1d<>{}, "none"_m = ike::tanh{}));
  auto m = ike::initialize<double, shape{ike::dynamic, 4}>(net, ike::seed{1});
  const auto one = ike::uniform<double, shape{1, 4}>(ike::seed{2});
  CHECK_THROWS_AS(m(one), ike::shape_error);
  m.choose("path"_s, "none"_s);
  m(one);
  m.choose("path"_s, "norm"_s);
  CHECK_THROWS_AS(m(one), ike::shape_error);
}

TEST_CASE("hooks run in the branch that runs") {
  auto m = make();
  std::vector<std::string> ran;
  const auto note = [&](const ike::module_call& c) { ran.emplace_back(c.path); };
  for (const char* path : {"path", "path.a", "path.a.fc1", "path.b", "out"})
    m.register_forward_pre_hook(path, note);
  m.register_forward_hook("path"_s, [&](const ike::module_call& c) {
    CHECK(c.output<double>().size() == 15);
    CHECK(c.input<double>().size() == 15);
  });
  const ike::tensor<double, shape{3, 2}> hooked{m(x)};
  CHECK(ran == std::vector<std::string>{"path", "path.a", "path.a.fc1", "out"});
  m.choose("path"_s, 1);
  ran.clear();
  m(x);
  CHECK(ran == std::vector<std::string>{"path", "path.b", "out"});
  auto plain = make();
  const auto expected = plain(x);
  for (ike::dim_t i = 0; i < 6; ++i) CHECK(hooked[i] == expected[i]);
}

TEST_CASE("a network without branches keeps no account of gradients") {
  auto m = ike::initialize<double, in>(ike::sequential(ike::lazy_linear<2>{}), ike::seed{1});
  CHECK(m.presence() == nullptr);
  CHECK(m.has_gradient("0.weight"_s));
}

TEST_CASE("steps through branches allocate nothing") {
  auto m = make();
  ike::adam optimizer{m, {.lr = 0.01}};
  m.choose("path"_s, [](const ike::choice_context& c) { return c.step / 2 % 2; });
  const auto step = [&] { m.train_step(x, y, ike::mse_loss{}, optimizer); };
  for (int i = 0; i < 4; ++i) step();
  const long before = allocation_count;
  for (int i = 0; i < 8; ++i) step();
  CHECK(allocation_count == before);
}
