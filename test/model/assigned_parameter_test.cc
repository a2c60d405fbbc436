#include <doctest/doctest.h>

#include <utility>
#include <vector>

#include "ikebana/compose/sequential.hpp"
#include "ikebana/core/error.hpp"
#include "ikebana/core/tensor.hpp"
#include "ikebana/model/initialize.hpp"
#include "ikebana/nn/batch_norm.hpp"
#include "ikebana/nn/linear.hpp"

namespace ike = ikebana;
using namespace ike::literals;
using ike::dynamic;
using ike::shape;

namespace {

auto make() {
  return ike::initialize<float, shape{dynamic, 3}>(
      ike::sequential("fc1"_m = ike::lazy_linear<4>{}, "norm"_m = ike::lazy_batch_norm1d<>{}),
      ike::seed{1});
}

template <class View>
std::vector<float> copy(const View& v) {
  return {v.begin(), v.end()};
}

}  // namespace

TEST_CASE("a parameter or a buffer is assigned elements by its path") {
  auto m = make();
  m.eval();
  const auto x = ike::uniform<float, shape{2, 3}>(ike::seed{3});
  const auto before = copy(m(x));
  const auto z = ike::uniform<float, shape{4, 3}>(ike::seed{2});
  m["fc1.weight"_s] = z;
  CHECK(copy(m["fc1.weight"_s]) == copy(z));
  CHECK(copy(m(x)) != before);
  m["fc1.weight"_s] = make()["fc1.weight"_s];
  CHECK(copy(m(x)) == before);
  m.buffer("norm.running_mean"_s) = ike::full<float, shape{4}>(2);
  CHECK(copy(std::as_const(m).buffer("norm.running_mean"_s)) == std::vector<float>(4, 2));
  m["fc1.weight"_s] = std::as_const(m)["fc1.weight"_s];
  CHECK(copy(m(x)) != before);
}

TEST_CASE("elements of another shape, known only at run time, are refused before any is written") {
  auto m = make();
  const auto before = copy(m["fc1.weight"_s]);
  const ike::tensor<float, shape{dynamic, 3}> wrong(shape{5, 3});
  CHECK_THROWS_WITH_AS(m["fc1.weight"_s] = wrong,
                       "a view of shape [4, 3] cannot be assigned elements of [5, 3]",
                       ike::shape_error);
  CHECK(copy(m["fc1.weight"_s]) == before);
  const ike::tensor<float, shape{dynamic, 3}> right(shape{4, 3});
  m["fc1.weight"_s] = right;
  CHECK(copy(m["fc1.weight"_s]) == copy(right));
}

TEST_CASE("a view of a parameter may be written at any time, also after a notice of a change") {
  auto m = ike::initialize<float, shape{1, 3}>(
      ike::sequential("fc1"_m = ike::linear<3, 4>{}, "fc2"_m = ike::linear<4, 2>{}), ike::seed{1});
  m.eval();
  const auto x = ike::uniform<float, shape{1, 3}>(ike::seed{3});
  auto weight = m["fc2.weight"_s];
  m.parameters_changed();
  const auto before = copy(m(x));
  CHECK(copy(m(x)) == before);
  weight[0] += 1;
  CHECK(copy(m(x)) != before);
}

TEST_CASE("a view with a name is pointed at something else") {
  auto m = make();
  const auto before = copy(m["fc1.weight"_s]);
  auto z = ike::uniform<float, shape{4, 3}>(ike::seed{2});
  auto view = m["fc1.weight"_s];
  view = z.view();
  CHECK(view.data() == z.data());
  CHECK(copy(m["fc1.weight"_s]) == before);
}
