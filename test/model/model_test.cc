#include "ikebana/model/model.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <string>
#include <vector>

#include "ikebana/compose/graph.hpp"
#include "ikebana/compose/sequential.hpp"
#include "ikebana/model/initialize.hpp"
#include "ikebana/model/state.hpp"
#include "ikebana/nn/activation.hpp"
#include "ikebana/nn/batch_norm.hpp"
#include "ikebana/nn/dropout.hpp"
#include "ikebana/nn/flatten.hpp"
#include "ikebana/nn/linear.hpp"
#include "ikebana/nn/loss.hpp"
#include "ikebana/optim/sgd.hpp"

namespace ike = ikebana;
using namespace ike::literals;
using ike::dynamic;
using ike::shape;

namespace {

constexpr auto mlp = ike::sequential("fc1"_m = ike::lazy_linear<7>{}, "tanh"_m = ike::tanh{},
                                     "fc2"_m = ike::lazy_linear<3>{});
constexpr auto normed =
    ike::sequential("norm"_m = ike::lazy_batch_norm2d<>{}, "flatten"_m = ike::flatten{},
                    "fc"_m = ike::lazy_linear<3>{});
constexpr shape rows{dynamic, 5};
constexpr shape images{dynamic, 2, 3, 3};
using labels = ike::tensor<std::int64_t, shape{dynamic}>;

labels classes(ike::dim_t n) {
  labels t(shape{n});
  for (ike::dim_t i = 0; i < n; ++i) t[i] = i % 3;
  return t;
}

template <class Model>
std::vector<std::byte> state_of(const Model& m) {
  std::vector<std::byte> all;
  for (const auto& e : ike::get_state_dict(m))
    all.insert(all.end(), e.bytes.begin(), e.bytes.end());
  return all;
}

template <class T>
std::vector<T> copy(std::span<const T> s) {
  return {s.begin(), s.end()};
}

}  // namespace

TEST_CASE("a label that is no class changes nothing") {
  auto m = ike::initialize<float, images>(normed, ike::seed{1});
  ike::sgd optimizer{m, {.lr = 0.1, .momentum = 0.9}};
  const auto x = ike::uniform<float, images>(ike::seed{1}, 4);
  m.train_step(x, classes(4), ike::cross_entropy{}, optimizer);
  const auto before = state_of(m);
  const auto gradients = copy<float>(m.gradients());
  labels bad = classes(4);
  bad[2] = 3;
  CHECK_THROWS_WITH_AS(m.train_step(x, bad, ike::cross_entropy{}, optimizer),
                       "cross_entropy expects labels from 0 to 2, got 3 at index 2", ike::error);
  CHECK(state_of(m) == before);
  CHECK(copy<float>(m.gradients()) == gradients);
}

TEST_CASE("targets of another batch change nothing") {
  auto m = ike::initialize<float, images>(normed, ike::seed{1});
  ike::sgd optimizer{m, {.lr = 0.1}};
  const auto x = ike::uniform<float, images>(ike::seed{1}, 4);
  m.train_step(x, classes(4), ike::cross_entropy{}, optimizer);
  const auto before = state_of(m);
  CHECK_THROWS_AS(m.train_step(x, classes(5), ike::cross_entropy{}, optimizer), ike::shape_error);
  CHECK_THROWS_AS(m.loss_backward(x, classes(5), ike::cross_entropy{}), ike::shape_error);
  CHECK(state_of(m) == before);
}

TEST_CASE("asking for input gradients moves no statistics") {
  auto a = ike::initialize<double, images>(normed, ike::seed{1});
  auto b = ike::initialize<double, images>(normed, ike::seed{1});
  const auto x = ike::uniform<double, images>(ike::seed{1}, 4);
  const auto g = ike::uniform<double, shape{dynamic, 3}>(ike::seed{2}, 4);
  ike::tensor<double, images> dx(x.extents());
  a(x);
  a.backward(g);
  b(x);
  b.backward(g, dx);
  CHECK(state_of(a) == state_of(b));
  CHECK(copy<double>(a.gradients()) == copy<double>(b.gradients()));
}

TEST_CASE("input gradients are written where they were asked for, and only then") {
  auto m = ike::initialize<double, rows>(mlp, ike::seed{1});
  const auto x = ike::uniform<double, rows>(ike::seed{1}, 4);
  const auto g = ike::uniform<double, shape{dynamic, 3}>(ike::seed{2}, 4);
  ike::tensor<double, rows> dx(x.extents());
  m(x);
  m.backward(g, dx);
  double largest = 0;
  for (double v : dx) largest = std::max(largest, std::fabs(v));
  CHECK(largest > 0);
  const ike::tensor<double, rows> kept = dx;
  std::fill(dx.begin(), dx.end(), 77.0);
  m(x);
  m.backward(g);
  ike::sgd optimizer{m, {.lr = 0.0}};
  m.train_step(x, classes(4), ike::cross_entropy{}, optimizer);
  CHECK(std::all_of(dx.begin(), dx.end(), [](double v) { return v == 77.0; }));
  m(x);
  m.backward(g, dx);
  CHECK(std::equal(dx.begin(), dx.end(), kept.begin()));

  // Another shape is refused; another batch is planned anew.
  ike::tensor<double, rows> wrong(shape{3, 5});
  m(x);
  CHECK_THROWS_AS(m.backward(g, wrong), ike::shape_error);
  const auto x2 = ike::uniform<double, rows>(ike::seed{1}, 2);
  ike::tensor<double, rows> dx2(x2.extents());
  m(x2);
  m.backward(ike::uniform<double, shape{dynamic, 3}>(ike::seed{2}, 2), dx2);
  CHECK(dx2[0] != 0);
}

TEST_CASE("an input that nothing uses has a gradient of zero") {
  constexpr auto net = ike::graph([](auto x, auto) { return "fc"_m(ike::lazy_linear<2>{}, x); });
  auto m = ike::initialize<double, shape{2, 3}, shape{2, 4}>(net, ike::seed{1});
  const auto a = ike::uniform<double, shape{2, 3}>(ike::seed{1});
  const auto b = ike::uniform<double, shape{2, 4}>(ike::seed{1});
  ike::tensor<double, shape{2, 3}> da;
  auto db = ike::ones<double, shape{2, 4}>();
  m(a, b);
  m.backward(ike::ones<double, shape{2, 2}>(), da, db);
  CHECK(da[0] != 0);
  for (double v : db) CHECK(v == 0);
}

TEST_CASE("backward before any forward is refused") {
  auto fixed = ike::initialize<double, shape{4, 5}>(mlp, ike::seed{1});
  const auto g = ike::ones<double, shape{4, 3}>();
  ike::tensor<double, shape{4, 5}> dx;
  CHECK_THROWS_AS(fixed.backward(g), ike::error);
  CHECK_THROWS_AS(fixed.backward(g, dx), ike::error);
  auto open = ike::initialize<double, rows>(mlp, ike::seed{1});
  CHECK_THROWS_AS(open.backward(g), ike::error);
  CHECK_THROWS_AS(open.backward(g, dx), ike::error);
  const auto x = ike::ones<double, shape{4, 5}>();
  CHECK(open(x).extents() == shape{4, 3});
  open.backward(g, dx);
}

TEST_CASE("an output gradient of another shape is refused") {
  auto m = ike::initialize<double, rows>(mlp, ike::seed{1});
  m(ike::ones<double, rows>(4));
  CHECK_THROWS_AS(m.backward(ike::ones<double, shape{5, 3}>()), ike::shape_error);
  CHECK_THROWS_WITH_AS(m.backward(ike::ones<double, shape{dynamic, dynamic}>(4, 2)),
                       "the gradient of the output has shape [4, 3], got [4, 2]", ike::shape_error);
}

TEST_CASE("gradients accumulate until zero_grad; train_step takes its own alone") {
  auto m = ike::initialize<double, rows>(mlp, ike::seed{1});
  const auto x = ike::uniform<double, rows>(ike::seed{1}, 4);
  const auto t = classes(4);
  m.loss_backward(x, t, ike::cross_entropy{});
  const auto once = copy<double>(m.gradients());
  m.loss_backward(x, t, ike::cross_entropy{});
  for (std::size_t i = 0; i < once.size(); ++i)
    CHECK(m.gradients()[i] == doctest::Approx(2 * once[i]));
  ike::sgd optimizer{m, {.lr = 0.0}};
  m.train_step(x, t, ike::cross_entropy{}, optimizer);
  CHECK(copy<double>(m.gradients()) == once);
  m.zero_grad();
  for (double g : m.gradients()) CHECK(g == 0);
}

TEST_CASE("a batch of no rows passes through, and gives gradients of zero") {
  constexpr auto net = ike::sequential(
      "norm"_m = ike::lazy_batch_norm2d<>{}, "flatten"_m = ike::flatten{},
      "drop"_m = ike::dropout{.p = 0.5}, "fc"_m = ike::lazy_linear<3>{}, "gelu"_m = ike::gelu{});
  auto m = ike::initialize<float, images>(net, ike::seed{1});
  ike::sgd optimizer{m, {.lr = 0.1}};
  const auto some = ike::uniform<float, images>(ike::seed{1}, 4);
  const auto none = ike::uniform<float, images>(ike::seed{1}, 0);
  CHECK(m(none).extents() == shape{0, 3});  // Before the workspace has any memory.
  m.train_step(some, classes(4), ike::cross_entropy{}, optimizer);
  CHECK(m(none).size() == 0);
  m.zero_grad();
  m.backward(ike::tensor<float, shape{0, 3}>{});
  for (float g : m.gradients()) CHECK(g == 0);
  ike::tensor<float, images> dx(none.extents());
  m(none);
  m.backward(ike::tensor<float, shape{0, 3}>{}, dx);
  const auto weights = copy<float>(m.parameters());
  const float loss = m.train_step(none, classes(0), ike::cross_entropy{}, optimizer);
  CHECK(std::isnan(loss));  // The mean of nothing, as in PyTorch.
  CHECK(copy<float>(m.parameters()) == weights);
  m.eval();
  CHECK(m(none).extents() == shape{0, 3});
}

TEST_CASE("a batch of one row gives what a larger one gives for that row") {
  auto m = ike::initialize<double, rows>(mlp, ike::seed{1});
  const auto x = ike::uniform<double, rows>(ike::seed{1}, 9);
  const ike::tensor<double, shape{dynamic, 3}> all{m(x)};
  for (ike::dim_t i = 0; i < 9; ++i) {
    const auto y = m(ike::tensor_view<const double, shape{1, 5}>(x.data() + 5 * i));
    for (ike::dim_t j = 0; j < 3; ++j) CHECK(y[j] == doctest::Approx(all(i, j)).epsilon(1e-14));
  }
  ike::sgd optimizer{m, {.lr = 0.1}};
  const ike::tensor_view<const double, shape{1, 5}> one(x.data());
  CHECK(std::isfinite(m.train_step(one, classes(1), ike::cross_entropy{}, optimizer)));
}

TEST_CASE("a network without parameters runs forward and backward") {
  auto m = ike::initialize<double, rows>(ike::sequential(ike::relu{}, ike::tanh{}), ike::seed{1});
  const auto x = ike::uniform<double, rows>(ike::seed{1}, 4);
  CHECK(m.parameters().empty());
  CHECK(m(x)[3] == std::tanh(std::max(0.0, x[3])));
  ike::tensor<double, rows> dx(x.extents());
  m.backward(ike::ones<double, shape{4, 5}>(), dx);
  for (ike::dim_t i = 0; i < dx.size(); ++i)
    CHECK(dx[i] == doctest::Approx(x[i] > 0 ? 1 - std::pow(std::tanh(x[i]), 2) : 0));
  m.zero_grad();
  auto copy = m.clone();
  CHECK(copy(x).extents() == shape{4, 5});
  ike::load_state_dict(copy, ike::get_state_dict(m));
  m.backward(ike::ones<double, shape{4, 5}>());
}

TEST_CASE("dropout draws anew each step, and the same for the same seed") {
  const auto net = ike::sequential("drop"_m = ike::dropout{.p = 0.5});
  auto a = ike::initialize<float, shape{64}>(net, ike::seed{9});
  auto b = ike::initialize<float, shape{64}>(net, ike::seed{9});
  auto c = ike::initialize<float, shape{64}>(net, ike::seed{10});
  const auto x = ike::ones<float, shape{64}>();
  const ike::tensor<float, shape{64}> first{a(x)};
  const auto equal = [](const auto& u, const auto& v) {
    return std::equal(u.begin(), u.end(), v.begin());
  };
  CHECK(equal(first, b(x)));
  CHECK_FALSE(equal(first, c(x)));
  CHECK_FALSE(equal(first, a(x)));
  // Backward uses the mask of its forward, also when input gradients are first requested.
  ike::tensor<float, shape{64}> dx;
  const ike::tensor<float, shape{64}> y{a(x)};
  a.backward(x, dx);
  CHECK(equal(dx, y));
  a.eval();
  CHECK(equal(a(x), x));
}

TEST_CASE("the gaps between parameters stay zero") {
  auto m = ike::initialize<float, rows>(mlp, ike::seed{1});
  ike::sgd optimizer{m, {.lr = 0.1, .momentum = 0.9, .weight_decay = 0.1}};
  const auto x = ike::uniform<float, rows>(ike::seed{1}, 4);
  for (int i = 0; i < 5; ++i) m.train_step(x, classes(4), ike::cross_entropy{}, optimizer);
  std::vector<bool> used(m.parameters().size(), false);
  for (std::size_t i = 0; i < decltype(m)::parameter_count; ++i)
    for (ike::dim_t j = 0; j < m.current_program().parameters[i].spec.extents.numel(); ++j)
      used[static_cast<std::size_t>(m.layout().offsets[i] + j)] = true;
  for (std::size_t i = 0; i < used.size(); ++i)
    if (!used[i]) {
      CHECK(m.parameters()[i] == 0);
      CHECK(m.gradients()[i] == 0);
    }
}

TEST_CASE("const inputs are read, never written") {
  auto m = ike::initialize<float, rows>(ike::sequential(ike::relu{}, ike::relu{}), ike::seed{1});
  const auto x = ike::uniform<float, rows>(ike::seed{1}, 4);
  const ike::tensor<float, rows> before = x;
  m(x);
  CHECK(std::equal(x.begin(), x.end(), before.begin()));
}

TEST_CASE("the empty network is the identity") {
  auto m = ike::initialize<float, rows>(ike::sequential(), ike::seed{1});
  const auto x = ike::uniform<float, rows>(ike::seed{1}, 4);
  const auto y = m(x);
  CHECK(y.data() == x.data());
  ike::tensor<float, rows> dx(x.extents());
  m.backward(x, dx);
  CHECK(std::equal(x.begin(), x.end(), dx.begin()));
}

TEST_CASE("a buffer is had by its path, with its type") {
  auto m = ike::initialize<double, ike::shape{4, 3}>(
      ike::sequential("bn"_m = ike::lazy_batch_norm1d<>{}), ike::seed{1});
  CHECK(m.buffer("bn.running_var"_s)[2] == 1.0);
  const std::int64_t& batches = m.buffer("bn.num_batches_tracked"_s)[0];
  m(ike::uniform<double, ike::shape{4, 3}>(ike::seed{2}));
  CHECK(batches == 1);
  CHECK(std::as_const(m).buffer("bn.running_mean"_s).extents() == ike::shape{3});
}
