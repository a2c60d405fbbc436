#include "ikebana/compose/sequential.hpp"

#include <doctest/doctest.h>

#include <string>
#include <string_view>
#include <vector>

#include "ikebana/compose/parallel.hpp"
#include "ikebana/compose/residual.hpp"
#include "ikebana/model/initialize.hpp"
#include "ikebana/nn/activation.hpp"
#include "ikebana/nn/identity.hpp"
#include "ikebana/nn/linear.hpp"
#include "test/compose/compositions.hpp"

namespace ike = ikebana;
using namespace ike::literals;
using ike::shape;

// Without children it is made from an empty list, too.
static_assert([] {
  [[maybe_unused]] ike::sequential<> none = {};
  return true;
}());

TEST_CASE("children without a name are named by their index") {
  auto m = ike::initialize<double, three_by_four>(
      ike::sequential(ike::lazy_linear<5>{}, ike::relu{}, "last"_m = ike::lazy_linear<2>{},
                      ike::lazy_linear<1, ike::bias<false>>{}),
      ike::seed{1});
  CHECK(paths(m) == path_names{"0.weight", "0.bias", "last.weight", "last.bias", "3.weight"});
}

namespace {

/// x + 2 y + 4 z.
struct weighted_sum {
  static constexpr std::string_view kind = "weighted_sum";
  constexpr ike::inferred infer(const shape& a, const shape&, const shape&) const { return a; }
  template <class T>
  void forward(const ike::context<T>& c) const {
    for (ike::dim_t i = 0; i < c.output_shape().numel(); ++i)
      c.output()[i] = c.input(0)[i] + 2 * c.input(1)[i] + 4 * c.input(2)[i];
  }
  template <class T>
  void backward(const ike::context<T>&) const {}
};

}  // namespace

TEST_CASE("a module of three inputs takes all three outputs, or the inputs of the network") {
  auto joined = ike::initialize<double, shape{1, 1}>(
      ike::sequential(ike::parallel(ike::identity{}, ike::relu{}, ike::identity{}), weighted_sum{}),
      ike::seed{1});
  const auto minus = ike::full<double, shape{1, 1}>(-1);
  CHECK(joined(minus)[0] == -5);
  auto first = ike::initialize<double, shape{1, 1}, shape{1, 1}, shape{1, 1}>(
      ike::sequential(weighted_sum{}, ike::relu{}), ike::seed{1});
  CHECK(first(minus, minus, ike::ones<double, shape{1, 1}>())[0] == 1);
}

TEST_CASE("a leaf alone has bare paths") {
  auto m = ike::initialize<double, three_by_four>(ike::lazy_linear<5>{}, ike::seed{1});
  CHECK(paths(m) == path_names{"weight", "bias"});
}

TEST_CASE("paths of nested compositions are joined by dots") {
  constexpr auto inner =
      ike::sequential("a"_m = ike::lazy_linear<4>{}, ike::residual(ike::lazy_linear<4>{}));
  auto m = ike::initialize<double, three_by_four>(
      ike::sequential("left"_m = inner, "skip"_m = ike::residual("f"_m = inner, ike::tanh{}),
                      inner),
      ike::seed{1});
  CHECK(paths(m) == path_names{"left.a.weight", "left.a.bias", "left.1.0.weight", "left.1.0.bias",
                               "skip.f.a.weight", "skip.f.a.bias", "skip.f.1.0.weight",
                               "skip.f.1.0.bias", "2.a.weight", "2.a.bias", "2.1.0.weight",
                               "2.1.0.bias"});
}

TEST_CASE("a sequential in a sequential has a level of its own") {
  constexpr auto inner = ike::sequential(ike::lazy_linear<4>{});
  auto m = ike::initialize<double, three_by_four>(ike::sequential(inner), ike::seed{1});
  CHECK(paths(m) == path_names{"0.0.weight", "0.0.bias"});
  auto n = ike::initialize<double, three_by_four>(ike::sequential("a"_m = ike::sequential(inner)),
                                                  ike::seed{1});
  CHECK(paths(n) == path_names{"a.0.0.weight", "a.0.0.bias"});
}

namespace {

template <int Levels, class M>
constexpr auto nested(M m) {
  if constexpr (Levels == 0)
    return m;
  else
    return nested<Levels - 1>(ike::residual("inner"_m = m, ike::relu{}));
}

}  // namespace

// Each level evaluates its children's properties once and continues the hash of its parent's path;
// otherwise clang would run into its limit of steps.
TEST_CASE("compositions stand in each other sixty-four deep") {
  constexpr auto deep = nested<64>(ike::sequential("fc"_m = ike::lazy_linear<4>{}));
  auto m = ike::initialize<double, three_by_four>(deep, ike::seed{1});
  std::string path;
  for (int i = 0; i < 64; ++i) path += "inner.";
  CHECK(paths(m) == path_names{path + "fc.weight", path + "fc.bias"});
  const auto x = ike::ones<double, three_by_four>();
  CHECK(m(x).extents() == three_by_four);
}
