#include "ikebana/replicate/utils/cast_forward_inputs.hpp"

#include <doctest/doctest.h>

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

#include "ikebana/compose/graph.hpp"
#include "ikebana/core/bfloat16.hpp"
#include "ikebana/model/initialize.hpp"
#include "ikebana/module/arithmetic.hpp"
#include "ikebana/nn/linear.hpp"
#include "ikebana/replicate/utils/pack_arguments.hpp"

namespace ike = ikebana;
using namespace ike::literals;
using ike::dynamic;
using ike::shape;

namespace {

using doubles = ike::tensor<double, shape{dynamic, 3}>;
using singles = ike::tensor<float, shape{dynamic, 3}>;
using indices = ike::tensor<std::int64_t, shape{2}>;

doubles numbers() { return ike::uniform<double, shape{dynamic, 3}>(ike::seed{1}, 5); }

}  // namespace

TEST_CASE("only tensors of another floating type are cast") {
  const doubles d = numbers();
  const singles f(shape{4, 3});
  const indices i;
  const ike::tensor<bool, shape{2}> b;
  const std::string s = "text";
  const auto y = ike::cast_forward_inputs<float>(d, f, i, b, s, d.view());
  static_assert(
      std::is_same_v<decltype(y), const std::tuple<singles, const singles&, const indices&,
                                                   const ike::tensor<bool, shape{2}>&,
                                                   const std::string&, singles>>);
  REQUIRE(std::get<0>(y).extents() == d.extents());
  for (ike::dim_t n = 0; n < d.size(); ++n) {
    CHECK(std::get<0>(y)[n] == static_cast<float>(d[n]));
    CHECK(std::get<5>(y)[n] == static_cast<float>(d[n]));
  }
  CHECK_MESSAGE(&std::get<1>(y) == &f, "passed on, not copied");
  CHECK(&std::get<2>(y) == &i);
  CHECK(&std::get<4>(y) == &s);
}

TEST_CASE("casts reach into containers, which keep their kind") {
  std::map<std::string, std::vector<doubles>> x;
  x["a"].push_back(numbers());
  const auto [y] = ike::cast_forward_inputs<float>(x);
  static_assert(std::is_same_v<decltype(y), const std::map<std::string, std::vector<singles>>>);
  CHECK(y.at("a")[0][7] == static_cast<float>(x["a"][0][7]));

  const auto [up] = ike::cast_forward_inputs<double>(std::optional<singles>(singles(shape{1, 3})));
  static_assert(std::is_same_v<decltype(up), const std::optional<doubles>>);
  CHECK(up->extents() == shape{1, 3});

  // A tuple's other elements are not copied.
  const std::tuple<doubles, std::tuple<indices, doubles>> t{numbers(), {indices{}, numbers()}};
  const auto [z] = ike::cast_forward_inputs<float>(t);
  static_assert(
      std::is_same_v<decltype(z), const std::tuple<singles, std::tuple<const indices&, singles>>>);
  CHECK(&std::get<0>(std::get<1>(z)) == &std::get<0>(std::get<1>(t)));
}

TEST_CASE("bfloat16 is cast to and from") {
  const doubles d = numbers();
  const auto [h] = ike::cast_forward_inputs<ike::bfloat16>(d);
  const auto [f] = ike::cast_forward_inputs<float>(h);
  for (ike::dim_t i = 0; i < d.size(); ++i) {
    CHECK(h[i].bits == ike::bfloat16(static_cast<float>(d[i])).bits);
    CHECK(f[i] == static_cast<float>(h[i]));
  }
}

TEST_CASE("rvalues that stay are moved") {
  std::vector<singles> x;
  x.emplace_back(shape{2, 3});
  const float* const elements = x[0].data();
  const auto [y] = ike::cast_forward_inputs<float>(std::move(x));
  static_assert(std::is_same_v<decltype(y), const std::vector<singles>>);
  CHECK(y[0].data() == elements);
}

TEST_CASE("no type to cast to changes nothing") {
  const doubles d = numbers();
  const auto y = ike::cast_forward_inputs<void>(d, 3);
  static_assert(std::is_same_v<decltype(y), const std::tuple<const doubles&, int>>);
  CHECK(&std::get<0>(y) == &d);
}

TEST_CASE("a model in float is called with doubles, by position and by name") {
  constexpr auto net = ike::graph<"source", "bias">(
      [](auto x, auto b) { return "fc"_m(ike::lazy_linear<2>{}, x) + b; });
  auto model = ike::initialize<float, shape{dynamic, 3}, shape{dynamic, 2}>(net, ike::seed{1});
  const doubles x = numbers();
  const auto b = ike::ones<double, shape{dynamic, 2}>(5);
  const singles xf = std::get<0>(ike::cast_forward_inputs<float>(x));
  const auto bf = ike::ones<float, shape{dynamic, 2}>(5);
  const ike::tensor expected(model(xf, bf));

  const ike::tensor by_position(std::apply(model, ike::cast_forward_inputs<float>(x, b)));
  const auto packed = ike::pack_arguments(x, "bias"_arg = b);
  const auto cast = std::apply(
      [](const auto&... v) { return ike::cast_forward_inputs<float>(v...); }, packed.values);
  const ike::tensor by_name(std::apply(model, ike::unpack_arguments(cast, packed.names)));
  for (ike::dim_t i = 0; i < expected.size(); ++i) {
    CHECK(by_position[i] == expected[i]);
    CHECK(by_name[i] == expected[i]);
  }
}
