// Custom compositions, outside of the library's namespace, with children that run more than once or
// in another order.

#include <doctest/doctest.h>

#include <boost/hana/tuple.hpp>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "ikebana/compose/sequential.hpp"
#include "ikebana/model/gradient_check.hpp"
#include "ikebana/model/initialize.hpp"
#include "ikebana/model/state.hpp"
#include "ikebana/nn/activation.hpp"
#include "ikebana/nn/linear.hpp"
#include "ikebana/optim/sgd.hpp"

namespace ike = ikebana;
using namespace ike::literals;
using ike::shape;

namespace somebody {

/// f(f(x)): one child, two steps, one set of weights.
template <class M>
struct twice {
  static constexpr std::string_view kind = "twice";
  boost::hana::tuple<M> children{};

  static constexpr auto wiring() {
    ike::wiring_table<2> w;
    w.steps[0] = {0, {0}, 1};
    w.steps[1] = {0, {1}, 1};
    w.outputs[0] = 2;
    return w;
  }
  template <class C>
  static constexpr auto rebind(C c) {
    return twice<C>{boost::hana::tuple<C>{std::move(c)}};
  }
};

/// g(f(x)) with g as the first child: as many steps as children, in another order.
template <class G, class F>
struct after {
  static constexpr std::string_view kind = "after";
  boost::hana::tuple<G, F> children{};

  static constexpr auto wiring() {
    ike::wiring_table<2> w;
    w.steps[0] = {1, {0}, 1};
    w.steps[1] = {0, {1}, 1};
    w.outputs[0] = 2;
    return w;
  }
  template <class A, class B>
  static constexpr auto rebind(A a, B b) {
    return after<A, B>{boost::hana::tuple<A, B>{std::move(a), std::move(b)}};
  }
};

}  // namespace somebody

namespace {

constexpr shape in{3, 4};

template <class M>
void check_gradients(const M& m) {
  const auto r = ike::gradient_check(m, ike::uniform<double, in>(ike::seed{11}));
  CHECK_MESSAGE(r.largest < 1e-7, r.where);
}

template <class M>
std::vector<std::string> paths(const M& module) {
  std::vector<std::string> names;
  const auto m = ike::initialize<double, in>(module, ike::seed{1});
  for (const auto& e : ike::get_state_dict(m)) names.push_back(e.name);
  return names;
}

using names = std::vector<std::string>;

}  // namespace

TEST_CASE("a child that runs twice has one set of weights, whose gradients add up") {
  using fc = decltype("fc"_m = ike::lazy_linear<4>{});
  constexpr somebody::twice<fc> net{};
  CHECK(paths(net) == names{"fc.weight", "fc.bias"});
  check_gradients(net);
  check_gradients(ike::sequential("a"_m = net, ike::tanh{}, "b"_m = ike::lazy_linear<2>{}));
}

TEST_CASE("a composition that runs twice has one set of weights") {
  constexpr auto body = ike::sequential("a"_m = ike::lazy_linear<5>{}, ike::tanh{},
                                        "b"_m = ike::lazy_linear<4>{}, ike::sigmoid{});
  constexpr somebody::twice<std::remove_const_t<decltype(body)>> net{{body}};
  CHECK(paths(net) == names{"0.a.weight", "0.a.bias", "0.b.weight", "0.b.bias"});
  check_gradients(net);
  constexpr somebody::twice<std::remove_const_t<decltype(net)>> four{{net}};
  CHECK(paths(four).size() == 4);
  check_gradients(four);
}

TEST_CASE("steps may run children in another order than they stand") {
  using g = decltype("g"_m = ike::lazy_linear<2>{});
  using f = decltype("f"_m = ike::sequential(ike::lazy_linear<6>{}, ike::tanh{}));
  constexpr somebody::after<g, f> net{};
  auto m = ike::initialize<double, in>(net, ike::seed{1});
  CHECK(m(ike::uniform<double, in>(ike::seed{1})).extents() == shape{3, 2});
  CHECK(m["g.weight"_s].extents() == shape{2, 6});
  CHECK(m["f.0.weight"_s].extents() == shape{6, 4});
  check_gradients(net);
}
