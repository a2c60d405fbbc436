#include "ikebana/compose/observe.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <string>
#include <tuple>
#include <type_traits>
#include <vector>

#include "ikebana/compose/choose.hpp"
#include "ikebana/compose/graph.hpp"
#include "ikebana/compose/loss.hpp"
#include "ikebana/compose/methods.hpp"
#include "ikebana/compose/residual.hpp"
#include "ikebana/compose/sequential.hpp"
#include "ikebana/model/hooks.hpp"
#include "ikebana/model/initialize.hpp"
#include "ikebana/model/part.hpp"
#include "ikebana/nn/activation.hpp"
#include "ikebana/nn/linear.hpp"
#include "ikebana/nn/loss.hpp"
#include "ikebana/ops/elementwise.hpp"
#include "ikebana/ops/reduction.hpp"
#include "ikebana/optim/sgd.hpp"
#include "test/support/count_allocations.hpp"

using namespace ikebana;
using namespace ikebana::literals;

namespace {

constexpr auto block = sequential("fc"_m = lazy_linear<5>{}, ikebana::tanh{});
constexpr auto net =
    sequential("first"_m = block, "second"_m = residual(block), "head"_m = lazy_linear<3>{});
constexpr auto seen = observe<"first.fc", "second">(net);

constexpr shape rows{dynamic, 4}, x_shape{7, 4};

// A loss with terms of inner values.
constexpr auto with_terms = [](auto y, auto a, auto b, auto t) {
  return mse_loss{}(y, t) + 0.1 * mean(square(a)) + 0.2 * mean(exp(b));
};

}  // namespace

TEST_CASE("inner values are further outputs, and paths stay") {
  auto model = initialize<double, rows>(seen, seed{1});
  auto plain = initialize<double, rows>(net, seed{1});
  CHECK(std::ranges::equal(model["first.fc.weight"_s], plain["first.fc.weight"_s]));
  const auto x = uniform<double, x_shape>(seed{2});
  std::vector<double> inner;
  plain.register_forward_hook("first.fc"_s, [&](const module_call& call) {
    const auto y = call.output<double>();
    inner.assign(y.begin(), y.end());
  });
  const auto expected = plain(x);
  const auto [y, a, b] = model(x);
  static_assert(std::remove_cvref_t<decltype(a)>::static_shape == shape{dynamic, 5});
  static_assert(std::remove_cvref_t<decltype(b)>::static_shape == shape{dynamic, 5});
  for (dim_t i = 0; i < y.size(); ++i) CHECK(y[i] == doctest::Approx(expected[i]).epsilon(1e-12));
  REQUIRE(inner.size() == static_cast<std::size_t>(a.size()));
  for (dim_t i = 0; i < a.size(); ++i)
    CHECK(a[i] == doctest::Approx(inner[static_cast<std::size_t>(i)]).epsilon(1e-12));
}

TEST_CASE("losses have terms of inner values, without allocating") {
  auto model = initialize<double, rows>(seen, seed{1});
  const auto x = uniform<double, x_shape>(seed{2});
  const auto t = uniform<double, shape{7, 3}>(seed{3});
  const auto value = [&] {
    const auto [y, a, b] = model(x);
    double sum = 0;
    for (dim_t i = 0; i < y.size(); ++i) sum += (y[i] - t[i]) * (y[i] - t[i]) / 21;
    for (dim_t i = 0; i < a.size(); ++i) sum += (0.1 * a[i] * a[i] + 0.2 * std::exp(b[i])) / 35;
    return sum;
  };
  CHECK(model.loss_backward(x, t, with_terms) == doctest::Approx(value()).epsilon(1e-12));
  const std::vector<double> gradient(model.gradients().begin(), model.gradients().end());
  const auto parameters = model.parameters();
  for (std::size_t i = 0; i < gradient.size(); i += 3) {
    const double at = parameters[i];
    parameters[i] = at + 1e-6;
    const double above = value();
    parameters[i] = at - 1e-6;
    CHECK(gradient[i] == doctest::Approx((above - value()) / 2e-6).epsilon(1e-5));
    parameters[i] = at;
  }
  sgd optimizer{model, {.lr = 0.1}};
  const double first = model.train_step(x, t, with_terms, optimizer);
  const long before = allocation_count_here;
  for (int i = 0; i < 5; ++i) model.train_step(x, t, with_terms, optimizer);
  CHECK(allocation_count_here == before);
  CHECK(value() < first);
}

TEST_CASE("what is observed can be part of another composition, and of a method") {
  constexpr auto outer = graph([](auto x) {
    const auto [y, a, b] = "net"_m(seen, x);
    return std::tuple("tail"_m(lazy_linear<2>{}, y), a + b);
  });
  auto model = initialize<double, rows>(outer, seed{1});
  const auto x = uniform<double, x_shape>(seed{2});
  const auto [y, sum] = model(x);
  CHECK(y.extents() == shape{7, 2});
  CHECK(sum.extents() == shape{7, 5});

  auto both = initialize<double, rows, rows>(
      methods("train"_m = observe<"first">(net), "predict"_m = net), seed{1});
  auto train = both.part<"train">();
  auto predict = both.part<"predict">();
  const auto [z, h] = train(x);
  const auto expected = predict(x);
  for (dim_t i = 0; i < z.size(); ++i) CHECK(z[i] == doctest::Approx(expected[i]).epsilon(1e-12));
  CHECK(h.extents() == shape{7, 5});
}

TEST_CASE("what may not run, or is an output already, is refused") {
  constexpr auto choice = sequential("way"_m = choose("a"_m = ikebana::tanh{}, "b"_m = relu{}));
  constexpr inferred of_choice = infer(observe<"way.a">(choice), shape_list{shape{2, 3}});
  static_assert(!of_choice.ok());
  CHECK(of_choice.error.message().view() ==
        "way.a: is observed, but belongs to an alternative, which may not run");
  constexpr inferred of_output =
      infer(observe<"1">(sequential(relu{}, ikebana::tanh{})), shape_list{shape{2, 3}});
  static_assert(!of_output.ok());
  CHECK(of_output.error.message().view() ==
        "an observed value is an output of the network already");
}
