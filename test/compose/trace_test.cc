// How the function of a graph becomes its nodes.

#include <doctest/doctest.h>

#include <string>
#include <vector>

#include "ikebana/compose/graph.hpp"
#include "ikebana/compose/sequential.hpp"
#include "ikebana/model/initialize.hpp"
#include "ikebana/module/print.hpp"
#include "ikebana/nn/activation.hpp"
#include "ikebana/nn/linear.hpp"
#include "test/compose/compositions.hpp"

namespace ike = ikebana;
using namespace ike::literals;
using ike::dynamic;
using ike::shape;

namespace {

/// x times a number, which is an option without a type of its own.
struct scaled {
  static constexpr std::string_view kind = "scaled";
  double by = 1;

  constexpr bool operator==(const scaled&) const = default;
  constexpr ike::kept keeps() const { return ike::kept::nothing; }
  constexpr ike::inferred infer(const shape& x) const { return x; }
  void describe(ike::description& d) const { d.add("by", by); }

  template <class T>
  void forward(const ike::context<T>& c) const {
    for (ike::dim_t i = 0; i < c.output_shape().numel(); ++i)
      c.output()[i] = static_cast<T>(by) * c.input()[i];
  }
  template <class T>
  void backward(const ike::context<T>& c) const {
    for (ike::dim_t i = 0; i < c.output_shape().numel(); ++i)
      c.input_gradient()[i] = static_cast<T>(by) * c.output_gradient()[i];
  }

  template <ike::symbolic X>
  constexpr auto operator()(const X& x) const {
    return apply(*this, x);
  }
};

/// The first `size` columns.
struct narrowed {
  static constexpr std::string_view kind = "narrowed";
  ike::dim_t size = 1;

  constexpr bool operator==(const narrowed&) const = default;
  constexpr ike::inferred infer(const shape& x) const { return shape{x[0], size}; }

  template <class T>
  void forward(const ike::context<T>& c) const {
    for (ike::dim_t r = 0; r < c.output_shape()[0]; ++r)
      for (ike::dim_t i = 0; i < size; ++i)
        c.output()[r * size + i] = c.input()[r * c.input_shape()[1] + i];
  }
  template <class T>
  void backward(const ike::context<T>& c) const {
    for (ike::dim_t i = 0; i < c.input_shape().numel(); ++i) c.input_gradient()[i] = 0;
    for (ike::dim_t r = 0; r < c.output_shape()[0]; ++r)
      for (ike::dim_t i = 0; i < size; ++i)
        c.input_gradient()[r * c.input_shape()[1] + i] = c.output_gradient()[r * size + i];
  }

  template <ike::symbolic X>
  constexpr auto operator()(const X& x) const {
    return apply(*this, x);
  }
};

template <class M>
constexpr std::size_t nodes_of(const M&) {
  return ike::sizes_of<M>(1).nodes;
}

}  // namespace

TEST_CASE("options that are members tell nodes apart, and equal ones are one node") {
  constexpr auto net = ike::graph(
      [](auto x) { return scaled{2}(x) + scaled{3}(x) + scaled{2}(x)*scaled{3}(scaled{2}(x)); });
  CHECK(nodes_of(net) == 6);
  auto m = ike::initialize<double, three_by_four>(net, ike::seed{1});
  const auto x = ike::uniform<double, three_by_four>(ike::seed{2});
  const auto y = m(x);
  for (ike::dim_t i = 0; i < x.size(); ++i)
    CHECK(y[i] == doctest::Approx(5 * x[i] + 12 * x[i] * x[i]));
  check_gradients(net);
  const std::string text = ike::to_string(net);
  CHECK_MESSAGE(text.find("(1): scaled(by=3)") != std::string::npos, text);
}

TEST_CASE("shapes depend on options that are members, through lazy layers too") {
  constexpr auto net = ike::graph([](auto x) {
    return "a"_m(ike::lazy_linear<2>{}, narrowed{3}(x)) +
           "b"_m(ike::lazy_linear<2>{}, narrowed{2}(x));
  });
  auto m = ike::initialize<double, shape{dynamic, 4}>(net, ike::seed{1});
  CHECK(m["a.weight"_s].extents() == shape{2, 3});
  CHECK(m["b.weight"_s].extents() == shape{2, 2});
  check_gradients(net);
}

TEST_CASE("a loop, and functions, write nodes") {
  constexpr auto net = ike::graph([](auto x) {
    auto h = ike::tanh{}(scaled{1}(x));
    for (int i = 2; i < 5; ++i) h = ike::tanh{}(scaled{1.0 / i}(h));
    return h;
  });
  CHECK(nodes_of(net) == 8);
  check_gradients(net);
}

TEST_CASE("the function may capture modules and numbers") {
  const auto make = [](double by, const auto& inner) {
    return ike::graph(
        [by, inner](auto x) { return scaled{by}("inner"_m(inner, x)) + scaled{by + 1}(x); });
  };
  const double by = std::vector<double>{2.5}[0];
  const auto net = make(by, ike::sequential("fc"_m = ike::lazy_linear<4>{}, ike::tanh{}));
  CHECK(nodes_of(net) == 5);
  auto m = ike::initialize<double, three_by_four>(net, ike::seed{1});
  CHECK(paths(m) == path_names{"inner.fc.weight", "inner.fc.bias"});
  for (double& p : m.parameters()) p = 0;
  const auto x = ike::uniform<double, three_by_four>(ike::seed{2});
  const auto y = m(x);
  for (ike::dim_t i = 0; i < x.size(); ++i) CHECK(y[i] == doctest::Approx(3.5 * x[i]));
  check_gradients(net);

  const auto count = [](int n) {
    return ike::graph([n](auto value) {
      auto h = scaled{2}(value);
      for (int i = 0; i < n; ++i) h = scaled{2}(h);
      return h;
    });
  };
  CHECK(nodes_of(count(0)) == 1);
  CHECK_THROWS_AS(count(2), ike::error);
}

TEST_CASE("unnamed children bear the index of their first node, named ones their name") {
  constexpr auto net = ike::graph([](auto x) {
    auto a = ike::tanh{}(x);
    auto b = ike::sigmoid{}("fc"_m(ike::lazy_linear<4>{}, a));
    auto unused = ike::relu{}(b);
    (void)unused;
    return ike::tanh{}(b) + "last"_m(ike::lazy_linear<4>{}, a);
  });
  const std::string text = ike::to_string(net);
  std::vector<std::string> found;
  for (std::size_t at = text.find("  ("); at != std::string::npos; at = text.find("  (", at + 1))
    found.push_back(text.substr(at + 2, text.find('(', at + 3) - at - 2));
  CHECK(found == path_names{"(0): tanh", "(fc): linear", "(2): sigmoid", "(3): tanh",
                            "(last): linear", "(5): add"});
}

namespace {

/// 200 operations and 20 layers, as many lines as a network of that size has.
constexpr auto large = ike::graph([](auto x) {
  auto k = ike::tanh{}("first"_m(ike::lazy_linear<4>{}, x)) + scaled{0}(x);
#define BLOCK(from, to)                                             \
  auto to##1 = from * scaled{0.5}(from) + ike::tanh{}(from);        \
  auto to##2 = scaled{0.25}(to##1) + ike::sigmoid{}(to##1 * to##1); \
  auto to = ike::tanh{}("layer_" #to##_m(ike::lazy_linear<4>{}, to##2)) + to##2;
  BLOCK(k, b)
  BLOCK(b, c)
  BLOCK(c, d)
  BLOCK(d, e)
  BLOCK(e, f)
  BLOCK(f, g)
  BLOCK(g, i)
  BLOCK(i, j)
  BLOCK(j, l)
  BLOCK(l, m)
  BLOCK(m, n)
  BLOCK(n, o)
  BLOCK(o, p)
  BLOCK(p, q)
  BLOCK(q, r)
  BLOCK(r, s)
  BLOCK(s, t)
  BLOCK(t, u)
  BLOCK(u, v)
#undef BLOCK
  return v;
});

}  // namespace

TEST_CASE("a graph of two hundred operations and twenty layers") {
  constexpr ike::program_sizes n = ike::sizes_of<std::remove_const_t<decltype(large)>>(1);
  CHECK(n.nodes > 200);
  CHECK(n.parameters == 40);
  check_gradients(large);
}
