#include "ikebana/compose/graph.hpp"

#include <doctest/doctest.h>

#include <string>
#include <vector>

#include "ikebana/model/initialize.hpp"
#include "ikebana/nn/activation.hpp"
#include "ikebana/nn/linear.hpp"
#include "test/compose/compositions.hpp"

namespace ike = ikebana;
using namespace ike::literals;
using ike::shape;

namespace {

template <class M>
constexpr std::size_t nodes_of(const M&) {
  return ike::sizes_of<M>(1).nodes;
}

}  // namespace

TEST_CASE("a value of a graph may be used twice, thrice, and as the output too") {
  constexpr auto twice = ike::graph([](auto x) {
    auto h = "fc"_m(ike::lazy_linear<4>{}, x);
    return ike::tanh{}(h) + h;
  });
  check_gradients(twice);
  constexpr auto thrice = ike::graph([](auto x) {
    auto h = "fc"_m(ike::lazy_linear<4>{}, x);
    return ike::tanh{}(h) + h + "other"_m(ike::lazy_linear<4>{}, h);
  });
  check_gradients(thrice);
  constexpr auto same_twice = ike::graph([](auto x) { return x + x; });
  check_gradients(same_twice);
  constexpr auto output_used = ike::graph([](auto x) {
    auto h = "fc"_m(ike::lazy_linear<4>{}, x);
    auto unused = "dead"_m(ike::lazy_linear<2>{}, h);  // Unused.
    (void)unused;
    return h;
  });
  check_gradients(output_used);
}

TEST_CASE("a diamond has one top, two sides and one bottom") {
  constexpr auto net = ike::graph([](auto x) {
    auto top = "top"_m(ike::lazy_linear<5>{}, x);
    auto left = ike::tanh{}("left"_m(ike::lazy_linear<3>{}, top));
    auto right = ike::sigmoid{}("right"_m(ike::lazy_linear<3>{}, top));
    return "bottom"_m(ike::lazy_linear<2>{}, left + right);
  });
  CHECK(nodes_of(net) == 7);
  auto m = ike::initialize<double, three_by_four>(net, ike::seed{1});
  CHECK(paths(m).size() == 8);
  CHECK(paths(m)[0] == "top.weight");
  check_gradients(net);
}

TEST_CASE("the same module on the same value is one node, whoever writes it") {
  constexpr auto net = ike::graph([](auto x) {
    auto a = ike::relu{}("fc"_m(ike::lazy_linear<4>{}, x));
    auto b = ike::relu{}("fc"_m(ike::lazy_linear<4>{}, x));
    return a + b;
  });
  CHECK(nodes_of(net) == 3);
  auto m = ike::initialize<double, three_by_four>(net, ike::seed{1});
  CHECK(paths(m) == path_names{"fc.weight", "fc.bias"});
  check_gradients(net);
  // On another value, it is another node.
  constexpr auto other =
      ike::graph([](auto x) { return ike::tanh{}(x) + ike::tanh{}(ike::tanh{}(x)); });
  CHECK(nodes_of(other) == 3);
  check_gradients(other);
}

TEST_CASE("branches that meet late are merged without doubling what they share") {
  constexpr auto net = ike::graph([](auto x) {
    auto a = ike::tanh{}(x);
    auto b = a + ike::sigmoid{}(a);
    auto c = b + ike::tanh{}(b);
    auto d = ike::gelu{}(a);
    auto e = ike::gelu{}(x) + d;
    return (c + e) + (b + d);
  });
  CHECK(nodes_of(net) == 11);
  check_gradients(net);
}

TEST_CASE("a graph's function takes one to eight symbols, by value or reference, or any number") {
  constexpr auto count = [](const auto& g) { return g.wiring().inputs; };
  CHECK(count(ike::graph([](auto x) { return x; })) == 1);
  CHECK(count(ike::graph([](const auto& x, auto&& y) { return x + y; })) == 2);
  CHECK(count(ike::graph([](auto a, auto b, auto c, auto d, auto e, auto f, auto g, auto h) {
          return a + b + c + d + e + f + g + h;
        })) == 8);
  CHECK(count(ike::graph([](auto... x) { return (x + ...); })) == 1);
  CHECK(count(ike::graph([](auto x, ike::symbolic auto y) { return x * y; })) == 2);
}
