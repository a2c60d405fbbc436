#include "ikebana/deploy/lane_memory.hpp"

#include <doctest/doctest.h>

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>
#include <tuple>
#include <vector>

#include "ikebana/compose/choose.hpp"
#include "ikebana/compose/graph.hpp"
#include "ikebana/compose/sequential.hpp"
#include "ikebana/deploy/freeze.hpp"
#include "ikebana/model/initialize.hpp"
#include "ikebana/nn/activation.hpp"
#include "ikebana/nn/dropout.hpp"
#include "ikebana/nn/flatten.hpp"
#include "ikebana/nn/identity.hpp"
#include "ikebana/nn/linear.hpp"
#include "ikebana/ops/elementwise.hpp"
#include "ikebana/ops/rearrange.hpp"
#include "ikebana/ops/view.hpp"

namespace ike = ikebana;
using namespace ike::literals;
using ike::dim_t;
using ike::shape;

namespace {

constexpr shape in{ike::dynamic, 4, 6};

template <class Y>
auto as_tuple(const Y& y) {
  if constexpr (requires { y.extents(); })
    return std::tuple<const Y&>(y);
  else
    return y;
}

/// 1 where a backward may follow.
struct follows {
  static constexpr std::string_view kind = "follows";
  constexpr shape infer(const shape& x) const { return x; }
  template <class T>
  void forward(const ike::context<T>& c) const {
    for (dim_t i = 0; i < c.output_shape().numel(); ++i)
      c.output()[i] = c.backward_follows() ? T{1} : T{0};
  }
  template <class T>
  void backward(const ike::context<T>& c) const {
    for (dim_t i = 0; i < c.output_shape().numel(); ++i) c.input_gradient()[i] = T{0};
  }
};

/// Compares the outputs of lanes of both kinds with those of the model, for inputs of several
/// extents, each in memory of its own, which calls leave as it is.
template <class Net>
void check_views(const Net& net) {
  auto model = ike::initialize<float, in>(net, ike::seed{1});
  model.eval();
  const auto frozen = ike::freeze(model);
  auto own = frozen.lane();
  std::vector<std::byte> memory(frozen.lane_bytes(shape{5, 4, 6}));
  auto placed = frozen.lane(std::span(memory), shape{5, 4, 6});
  const auto compare = [](const auto& y, const auto& expected) {
    REQUIRE(y.extents() == expected.extents());
    for (dim_t i = 0; i < y.size(); ++i) CHECK(y.data()[i] == expected.data()[i]);
  };
  std::vector<ike::tensor<float, in>> all;
  std::uint64_t s = 2;
  for (const dim_t n : {3, 3, 5, 5, 1, 0, 3}) {
    all.push_back(ike::uniform<float, in>(ike::seed{s++}, n));
    const auto& x = all.back();
    const auto copy = x;
    const auto expected = model(copy);
    for (auto* lane : {&own, &placed}) {
      const auto outputs = frozen(*lane, x);
      std::apply(
          [&](const auto&... y) {
            std::apply([&](const auto&... e) { (compare(y, e), ...); }, as_tuple(expected));
          },
          as_tuple(outputs));
      compare(x, copy);
    }
  }
}

}  // namespace

TEST_CASE("outputs of a lane that are views of the caller's input are those of each call") {
  check_views(ike::identity{});
  check_views(ike::sequential(ike::dropout{}, ike::flatten<>{}));
  check_views(ike::sequential(ike::choose(ike::identity{}, ike::relu{}), ike::identity{}));
  check_views(ike::graph([](auto x) {
    const auto flat = ike::reshape<-1, 24>(x);
    return std::tuple(flat, x, ike::relu{}(flat), ike::slice<1>(x, 1, 3));
  }));
  check_views(ike::graph([](auto x) { return ike::transpose<1, 2>("drop"_m(ike::dropout{}, x)); }));
}

TEST_CASE("what a lane computes of views of the caller's input leaves it as it is") {
  check_views(ike::sequential(ike::flatten<>{}, ike::dropout{}, ike::relu{}));
  check_views(ike::graph([](auto x) {
    const auto part = ike::slice<1>(x, 1, 3);
    return std::tuple(ike::tanh{}(part)*2, "fc"_m(ike::linear<12, 3>{}, ike::reshape<-1, 12>(part)),
                      ike::permute<2, 0, 1>(part) + 1);
  }));
  check_views(ike::graph([](auto x) {
    return "fc"_m(ike::linear<4, 3>{}, ike::transpose<1, 2>(x)) +
           ike::slice<2>(ike::reshape<-1, 6, 4>(x), 0, 3);
  }));
  check_views(ike::graph([](auto x) { return "fc"_m(ike::linear<6, 6>{}, x) + x; }));
}

TEST_CASE("a module knows whether a backward may follow") {
  auto model = ike::initialize<float, shape{1, 2}>(follows{}, ike::seed{1});
  model.eval();
  const ike::tensor<float, shape{1, 2}> x{};
  CHECK(model(x)[0] == 1);
  const auto frozen = ike::freeze(model);
  auto lane = frozen.lane();
  CHECK(frozen(lane, x)[0] == 0);
}
