#include "ikebana/nn/identity.hpp"

#include <doctest/doctest.h>

#include "ikebana/compose/sequential.hpp"
#include "ikebana/model/initialize.hpp"
#include "ikebana/nn/linear.hpp"

using namespace ikebana;
using namespace ikebana::literals;

TEST_CASE("identity keeps every shape") {
  CHECK(identity{}.infer(shape{}).output() == shape{});
  CHECK(identity{}.infer(shape{dynamic, 3, 4}).output() == shape{dynamic, 3, 4});
}

TEST_CASE("identity in a network changes nothing and takes no room") {
  constexpr auto with = sequential("fc"_m = linear<3, 4>{}, identity{}, "out"_m = linear<4, 2>{});
  constexpr auto without = sequential("fc"_m = linear<3, 4>{}, "out"_m = linear<4, 2>{});
  auto a = initialize<float, shape{5, 3}>(with, seed{1});
  auto b = initialize<float, shape{5, 3}>(without, seed{1});
  const auto x = uniform<float, shape{5, 3}>(seed{2});
  const auto y = a(x), z = b(x);
  for (dim_t i = 0; i < 10; ++i) CHECK(y.data()[i] == z.data()[i]);
  CHECK(a.workspace_bytes() == b.workspace_bytes());
}
