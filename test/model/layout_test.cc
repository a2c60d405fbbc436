#include "ikebana/model/plan/layout.hpp"

#include <doctest/doctest.h>

#include <boost/hana/tuple.hpp>
#include <string_view>
#include <utility>

#include "ikebana/compose/graph.hpp"
#include "ikebana/compose/residual.hpp"
#include "ikebana/compose/sequential.hpp"
#include "ikebana/model/initialize.hpp"
#include "ikebana/nn/activation.hpp"
#include "ikebana/nn/batch_norm.hpp"
#include "ikebana/nn/conv.hpp"
#include "ikebana/nn/flatten.hpp"
#include "ikebana/nn/linear.hpp"

namespace ike = ikebana;
using namespace ike::literals;
using ike::dim_t;
using ike::shape;

namespace somebody {

/// Of three children, the second is the only one that runs.
template <class A, class B, class C>
struct only_second {
  static constexpr std::string_view kind = "only_second";
  boost::hana::tuple<A, B, C> children{};

  static constexpr auto wiring() {
    ike::wiring_table<1> w;
    w.steps[0] = {1, {0}, 1};
    w.outputs[0] = 1;
    return w;
  }
  template <class X, class Y, class Z>
  static constexpr auto rebind(X x, Y y, Z z) {
    return only_second<X, Y, Z>{
        boost::hana::tuple<X, Y, Z>{std::move(x), std::move(y), std::move(z)}};
  }
};

}  // namespace somebody

namespace {

constexpr auto net =
    ike::sequential("conv"_m = ike::conv2d<1, 3, ike::kernel<3>>{},
                    "norm"_m = ike::batch_norm2d<3>{}, "flatten"_m = ike::flatten{},
                    "skip"_m = ike::residual("a"_m = ike::linear<12, 12>{}, ike::relu{}),
                    "out"_m = ike::linear<12, 5>{});
using model = decltype(ike::initialize<float, shape{2, 1, 4, 4}>(net, ike::seed{1}));
constexpr auto program = model::lowered();
constexpr auto layout = ike::lay_out<float>(program);

// Last module first; each aligned to 64 bytes: out.weight, out.bias, skip.a.weight, ...
static_assert(layout.offsets[6] == 0 && layout.offsets[7] == 64);
static_assert(layout.offsets[4] == 80 && layout.offsets[5] == 80 + 144);
static_assert(layout.offsets[2] == 240 && layout.offsets[3] == 256);
static_assert(layout.offsets[0] == 272 && layout.offsets[1] == 272 + 32);
static_assert(layout.parameter_elements == 320);
static_assert(layout.buffer_offsets[0] == 0 && layout.buffer_offsets[1] == 64 &&
              layout.buffer_bytes == 192);

}  // namespace

TEST_CASE("what is complete is always a prefix") {
  dim_t before = 0;
  for (std::size_t leaf = program.all_leaves().size(); leaf-- > 0;) {
    const ike::program_leaf& l = program.leaves[leaf];
    if (l.parameter_count == 0) continue;
    CHECK(layout.completed[leaf] > before);
    for (std::size_t i = 0; i < l.parameter_count; ++i) {
      const auto p = static_cast<std::size_t>(l.first_parameter) + i;
      CHECK(layout.offsets[p] >= before);
      CHECK(layout.offsets[p] % 16 == 0);
      CHECK(layout.offsets[p] + program.parameters[p].spec.extents.numel() <=
            layout.completed[leaf]);
    }
    before = layout.completed[leaf];
  }
  CHECK(before == layout.parameter_elements);
}

TEST_CASE("parameters that no step uses follow the others") {
  using one = ike::linear<4, 4, ike::bias<false>>;
  using unused = decltype(ike::initialize<float, shape{2, 4}>(
      somebody::only_second<one, one, one>{}, ike::seed{1}));
  constexpr auto l = ike::lay_out<float>(unused::lowered());
  CHECK(l.offsets[1] == 0);
  CHECK(l.offsets[0] == 16);
  CHECK(l.offsets[2] == 32);
  CHECK(l.parameter_elements == 48);
}

TEST_CASE("in double, offsets are multiples of eight elements") {
  constexpr auto wide = ike::lay_out<double>(program);
  for (dim_t o : wide.offsets) CHECK(o % 8 == 0);
  CHECK(wide.buffer_offsets[2] == 128);
}
