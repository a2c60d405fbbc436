// Losses that are functions of symbols.

#include "ikebana/compose/loss.hpp"

#include <doctest/doctest.h>

#include <cmath>
#include <cstdint>
#include <tuple>
#include <vector>

#include "ikebana/compose/graph.hpp"
#include "ikebana/compose/sequential.hpp"
#include "ikebana/model/initialize.hpp"
#include "ikebana/model/precision.hpp"
#include "ikebana/nn/activation.hpp"
#include "ikebana/nn/linear.hpp"
#include "ikebana/nn/loss.hpp"
#include "ikebana/ops/elementwise.hpp"
#include "ikebana/ops/reduction.hpp"
#include "ikebana/optim/sgd.hpp"
#include "ikebana/replicate/launch.hpp"
#include "ikebana/replicate/replicate.hpp"
#include "test/support/count_allocations.hpp"

namespace ike = ikebana;
using namespace ike::literals;
using ike::dynamic;
using ike::shape;

namespace {

/// by times the sum over all elements; divided by their number if it is a mean.
struct total {
  static constexpr std::string_view kind = "total";
  static constexpr ike::kept keeps = ike::kept::nothing;
  double by = 1;
  bool is_mean = false;

  constexpr bool operator==(const total&) const = default;
  constexpr ike::inferred infer(const shape&) const { return shape{}; }

  template <class T>
  T factor(const ike::context<T>& c) const {
    return static_cast<T>(by / (is_mean ? static_cast<double>(c.input_shape().numel()) : 1));
  }
  template <class T>
  void forward(const ike::context<T>& c) const {
    double sum = 0;
    for (ike::dim_t i = 0; i < c.input_shape().numel(); ++i)
      sum += static_cast<double>(c.input()[i]);
    c.output()[0] = static_cast<T>(sum) * factor(c);
  }
  template <class T>
  void backward(const ike::context<T>& c) const {
    for (ike::dim_t i = 0; i < c.input_shape().numel(); ++i)
      c.input_gradient()[i] = c.output_gradient()[0] * factor(c);
  }

  template <ike::symbolic X>
  constexpr auto operator()(const X& x) const {
    return apply(*this, x);
  }
};

struct negative {
  static constexpr std::string_view kind = "negative";
  static constexpr ike::kept keeps = ike::kept::nothing;

  constexpr ike::inferred infer(const shape& x) const { return x; }
  template <class T>
  void forward(const ike::context<T>& c) const {
    for (ike::dim_t i = 0; i < c.input_shape().numel(); ++i) c.output()[i] = -c.input()[i];
  }
  template <class T>
  void backward(const ike::context<T>& c) const {
    for (ike::dim_t i = 0; i < c.input_shape().numel(); ++i)
      c.input_gradient()[i] = -c.output_gradient()[i];
  }
  template <ike::symbolic X>
  constexpr auto operator()(const X& x) const {
    return apply(*this, x);
  }
};

constexpr auto squares = [](auto y, auto t) {
  auto d = y + negative{}(t);
  return total{1, true}(d * d);
};

constexpr auto mlp =
    ike::sequential("fc1"_m = ike::lazy_linear<6>{}, ike::tanh{}, "fc2"_m = ike::lazy_linear<3>{});
// Mean squared error, with a weight for each sample.
constexpr auto weighted = ike::loss(
    [](auto y, auto target, auto weight) { return ike::mean(weight * ike::square(y - target)); });

constexpr shape x_shape{5, 4}, t_shape{5, 3};

template <class T>
constexpr double near = sizeof(T) == 4 ? 1e-5 : 1e-12;

}  // namespace

TEST_CASE_TEMPLATE("a function as a loss trains like the loss of its formula", T, float, double) {
  auto a = ike::initialize<T, shape{dynamic, 4}>(mlp, ike::seed{1});
  auto b = ike::initialize<T, shape{dynamic, 4}>(mlp, ike::seed{1});
  ike::sgd sa{a, {.lr = 0.1f}};
  ike::sgd sb{b, {.lr = 0.1f}};
  const auto x = ike::uniform<T, x_shape>(ike::seed{2});
  const auto t = ike::uniform<T, t_shape>(ike::seed{3});
  constexpr auto as_value = ike::loss(squares);
  for (int i = 0; i < 6; ++i) {
    const T expected = a.train_step(x, t, ike::mse_loss{}, sa);
    const T got = i % 2 == 0 ? b.train_step(x, t, squares, sb) : b.train_step(x, t, as_value, sb);
    CHECK(got == doctest::Approx(static_cast<double>(expected)).epsilon(near<T>));
  }
  for (std::size_t i = 0; i < a.parameters().size(); ++i)
    CHECK(b.parameters()[i] ==
          doctest::Approx(static_cast<double>(a.parameters()[i])).epsilon(near<T>));
  // Of another batch, and as a value.
  const auto x2 = ike::uniform<T, shape{2, 4}>(ike::seed{4});
  const auto t2 = ike::uniform<T, shape{2, 3}>(ike::seed{5});
  a.zero_grad();
  b.zero_grad();
  const T expected = a.loss_backward(x2, t2, ike::mse_loss{});
  CHECK(b.loss_backward(x2, t2, squares) ==
        doctest::Approx(static_cast<double>(expected)).epsilon(near<T>));
  for (std::size_t i = 0; i < a.gradients().size(); ++i)
    CHECK(b.gradients()[i] ==
          doctest::Approx(static_cast<double>(a.gradients()[i])).epsilon(near<T>));
  CHECK(as_value(b(x2), t2) ==
        doctest::Approx(static_cast<double>(ike::mse_loss{}(b(x2), t2))).epsilon(near<T>));
}

TEST_CASE("a loss of two outputs, two targets and captured numbers") {
  constexpr auto net = ike::graph([](auto x) {
    const auto h = ike::tanh{}("fc"_m(ike::lazy_linear<4>{}, x));
    return std::tuple(h, "head"_m(ike::lazy_linear<2>{}, h));
  });
  auto m = ike::initialize<double, x_shape>(net, ike::seed{1});
  const auto x = ike::uniform<double, x_shape>(ike::seed{2});
  const auto t = ike::uniform<double, shape{5, 2}>(ike::seed{3});
  const auto w = ike::uniform<double, shape{5, 2}>(ike::seed{4});
  for (const double beta : {0.5, 2.0}) {
    const auto loss = ike::loss([beta](auto h, auto y, auto target, auto weight) {
      const auto d = y + negative{}(target);
      return total{1}(d * d * weight) + total{beta}(h * h);
    });
    const auto value = [&] {
      const auto [h, y] = m(x);
      double sum = 0;
      for (ike::dim_t i = 0; i < h.size(); ++i) sum += beta * h[i] * h[i];
      for (ike::dim_t i = 0; i < y.size(); ++i) sum += w[i] * (y[i] - t[i]) * (y[i] - t[i]);
      return sum;
    };
    m.zero_grad();
    CHECK(m.loss_backward(x, ike::inputs(t, w), loss) == doctest::Approx(value()).epsilon(1e-12));
    const std::vector<double> gradient(m.gradients().begin(), m.gradients().end());
    const auto parameters = m.parameters();
    for (const std::size_t i : {0UL, 3UL, 17UL}) {
      const double at = parameters[i];
      parameters[i] = at + 1e-6;
      m.parameters_changed();
      const double above = value();
      parameters[i] = at - 1e-6;
      m.parameters_changed();
      CHECK(gradient[i] == doctest::Approx((above - value()) / 2e-6).epsilon(1e-6));
      parameters[i] = at;
      m.parameters_changed();
    }
  }
}

TEST_CASE("the first step allocates the memory of a loss, later ones allocate nothing") {
  auto m = ike::initialize<float, shape{dynamic, 4}>(mlp, ike::seed{1});
  ike::sgd optimizer{m, {.lr = 0.1f}};
  const auto x = ike::uniform<float, x_shape>(ike::seed{2});
  const auto t = ike::uniform<float, t_shape>(ike::seed{3});
  m.train_step(x, t, squares, optimizer);
  const long before = allocation_count_here;
  for (int i = 0; i < 3; ++i) m.train_step(x, t, squares, optimizer);
  CHECK(allocation_count_here == before);
}

TEST_CASE("a target that does not match is refused before anything changes") {
  auto m = ike::initialize<double, shape{dynamic, 4}>(mlp, ike::seed{1});
  const auto x = ike::uniform<double, x_shape>(ike::seed{2});
  const auto t = ike::uniform<double, shape{4, 3}>(ike::seed{3});
  const ike::tensor_view<const double, shape{dynamic, 3}> short_target(t.data(), t.extents());
  CHECK_THROWS_AS(m.loss_backward(x, short_target, squares), ike::shape_error);
  for (const double g : m.gradients()) CHECK(g == 0);
}

TEST_CASE("a model of bfloat16 products, and replicas, train with a function as a loss") {
  const auto x = ike::uniform<float, x_shape>(ike::seed{2});
  const auto t = ike::uniform<float, t_shape>(ike::seed{3});
  auto rounded = ike::initialize<ike::precision<ike::bf16>, x_shape>(mlp, ike::seed{1});
  auto same = rounded.clone();
  CHECK(rounded.loss_backward(x, t, squares) ==
        doctest::Approx(same.loss_backward(x, t, ike::mse_loss{})).epsilon(1e-5));
  for (std::size_t i = 0; i < same.gradients().size(); ++i)
    CHECK(rounded.gradients()[i] == doctest::Approx(same.gradients()[i]).epsilon(1e-2));

  const auto train = [&](const auto& loss) {
    return ike::launch(ike::threads{2}, [&](ike::process_group auto& group) {
      auto m = ike::replicate<ike::replicate_policy<>>(
          ike::initialize<float, x_shape>(mlp, ike::seed{1}), group);
      ike::sgd optimizer{m, {.lr = 0.1f}};
      const auto own =
          ike::uniform<float, x_shape>(ike::seed{10 + static_cast<std::uint64_t>(group.rank())});
      for (int i = 0; i < 3; ++i) m.train_step(own, t, loss, optimizer);
      return std::vector<float>(m.parameters().begin(), m.parameters().end());
    });
  };
  const auto got = train(squares), expected = train(ike::mse_loss{});
  for (std::size_t i = 0; i < expected[0].size(); ++i) {
    CHECK(got[0][i] == doctest::Approx(expected[0][i]).epsilon(1e-5));
    CHECK(got[1][i] == got[0][i]);
  }
}

TEST_CASE("samples have weights, which are broadcast, and nothing else changes") {
  auto m = ike::initialize<double, shape{dynamic, 4}>(mlp, ike::seed{1});
  const auto x = ike::uniform<double, x_shape>(ike::seed{2});
  const auto target = ike::uniform<double, t_shape>(ike::seed{3});
  ike::tensor<double, shape{5, 1}> weight;
  for (double& w : weight) w = 1;
  const double unweighted = m.loss_backward(x, target, ike::mse_loss{});
  std::vector<double> expected(m.gradients().begin(), m.gradients().end());
  m.zero_grad();
  CHECK(m.loss_backward(x, ike::inputs(target, weight), weighted) ==
        doctest::Approx(unweighted).epsilon(1e-12));
  for (std::size_t i = 0; i < expected.size(); ++i)
    CHECK(m.gradients()[i] == doctest::Approx(expected[i]).epsilon(1e-11));

  // Samples of weight 0 count for nothing.
  weight[1] = weight[3] = 0;
  const ike::tensor y{m(x)};
  double sum = 0;
  for (const ike::dim_t r : {0, 2, 4})
    for (ike::dim_t c = 0; c < 3; ++c) sum += std::pow(y[3 * r + c] - target[3 * r + c], 2) / 15;
  CHECK(weighted(y, target, weight) == doctest::Approx(sum).epsilon(1e-12));
  CHECK_THROWS_AS(weighted(y, target), ike::shape_error);
}
