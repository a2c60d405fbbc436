#include <doctest/doctest.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <vector>

#include "ikebana/compose/graph.hpp"
#include "ikebana/model/initialize.hpp"
#include "ikebana/nn/embedding.hpp"
#include "ikebana/nn/embedding_bag.hpp"
#include "ikebana/nn/flatten.hpp"
#include "ikebana/nn/linear.hpp"
#include "ikebana/nn/loss.hpp"
#include "ikebana/ops/reduction.hpp"
#include "ikebana/optim/adagrad.hpp"
#include "ikebana/optim/adam.hpp"
#include "ikebana/optim/clip_grad.hpp"
#include "ikebana/optim/sgd.hpp"
#include "ikebana/optim/sparse_adam.hpp"
#include "test/support/count_allocations.hpp"

/// With sparse<true>, embeddings train as with dense gradients, by the rows that a batch selects.

namespace ike = ikebana;
using namespace ike::literals;
using ike::dim_t;
using ike::shape;

namespace {

using words = ike::tensor<std::int64_t, shape{4, 3}>;

/// Two tables, one of which is read twice, and a layer between whose parameters they are.
template <bool Sparse>
constexpr auto network() {
  return ike::graph([](auto x) {
    using rows = ike::sparse<Sparse>;
    auto a = "a"_m(ike::embedding<40, 3, ike::padding_idx<0>, rows>{}, x);
    auto again = "a"_m(ike::embedding<40, 3, ike::padding_idx<0>, rows>{}, x);
    auto h = "fc"_m(ike::linear<9, 5>{}, ike::flatten<>{}(a * again));
    auto bag = "b"_m(ike::embedding_bag<17, 5, ike::mode<"max">, rows>{}, x);
    return h + bag;
  });
}

template <class T, bool Sparse>
auto make() {
  return ike::initialize<T, shape{4, 3}>(network<Sparse>(), ike::seed{1});
}

words batch(int step) {
  words x;
  for (dim_t i = 0; i < 12; ++i) x[i] = (i * i + 5 * step + (step % 3) * i) % 17;
  return x;
}

/// Trains both, and compares what they make of the same batches.
template <class T, class F>
void compare(const char* name, const F& make_optimizer) {
  CAPTURE(name);
  auto sparse = make<T, true>();
  auto dense = make<T, false>();
  auto of_sparse = make_optimizer(sparse);
  auto of_dense = make_optimizer(dense);
  const auto target = ike::uniform<T, shape{4, 5}>(ike::seed{2});
  for (int step = 0; step < 6; ++step) {
    const words x = batch(step);
    const T loss = sparse.train_step(x, target, ike::mse_loss{}, of_sparse);
    CHECK(loss == doctest::Approx(dense.train_step(x, target, ike::mse_loss{}, of_dense)));
    for (std::size_t i = 0; i < sparse.gradients().size(); ++i) {
      CHECK(sparse.gradients()[i] == doctest::Approx(dense.gradients()[i]));
      CHECK(sparse.parameters()[i] == doctest::Approx(dense.parameters()[i]));
    }
  }
}

template <class T>
void compare_all() {
  const double most = 0.05;
  compare<T>("sgd", [](auto& m) { return ike::sgd{m, {.lr = 0.3}}; });
  compare<T>("sgd clipped", [&](auto& m) { return ike::sgd{m, {.lr = 0.3, .max_norm = most}}; });
  compare<T>("momentum", [](auto& m) { return ike::sgd{m, {.lr = 0.3, .momentum = 0.9}}; });
  compare<T>("decay", [](auto& m) { return ike::sgd{m, {.lr = 0.3, .weight_decay = 0.1}}; });
  compare<T>("groups", [](auto& m) {
    return ike::sgd{m, {.lr = 0.3, .weight_decay = 0.1}, ike::no_decay<"a.*">{}};
  });
  compare<T>("adagrad", [&](auto& m) { return ike::adagrad{m, {.lr = 0.3, .max_norm = most}}; });
  compare<T>("adagrad with decay", [](auto& m) {
    return ike::adagrad{m, {.lr = 0.3, .weight_decay = 0.1}};
  });
  compare<T>("sparse_adam", [&](auto& m) {
    return ike::sparse_adam{m, {.lr = 0.3, .max_norm = most}};
  });
  compare<T>("adam", [](auto& m) { return ike::adam{m, {.lr = 0.3}}; });
}

}  // namespace

TEST_CASE("a step on the rows that a batch selects is that of a dense gradient") {
  compare_all<float>();
  compare_all<double>();
}

TEST_CASE("a step reads and clears the listed rows alone") {
  auto model =
      ike::initialize<float, shape{2}>(ike::embedding<5, 2, ike::sparse<true>>{}, ike::seed{1});
  const auto target = ike::zeros<float, shape{2, 2}>();
  const auto x = ike::tensor_of<std::int64_t, shape{2}>({3, 1}),
             later = ike::tensor_of<std::int64_t, shape{2}>({4, 4});
  const auto rows = [&] {
    const auto listed = model.gradient_rows()[0].listed();
    return std::vector<std::int32_t>(listed.begin(), listed.end());
  };
  const auto check = [&](const auto& make_optimizer) {
    model.zero_grad();
    auto optimizer = make_optimizer(model);
    model.loss_backward(x, target, ike::mse_loss{});
    CHECK(rows() == std::vector<std::int32_t>{3, 1});
    // What no backward wrote: row 2 is neither read nor cleared.
    model.gradients()[4] = 7;
    const float before = model.parameters()[4], listed = model.parameters()[6];
    CHECK(ike::clip_grad_norm(model, 1e9) < 5);
    optimizer.step();
    CHECK(model.parameters()[4] == before);
    CHECK(model.parameters()[6] != listed);
    model.loss_backward(later, target, ike::mse_loss{});
    CHECK(rows() == std::vector<std::int32_t>{3, 1, 4});
    model.train_step(later, target, ike::mse_loss{}, optimizer);
    CHECK(rows() == std::vector<std::int32_t>{4});
    CHECK(model.gradients()[6] == 0);
    CHECK(model.gradients()[4] == 7);
    model.zero_grad();
    CHECK(rows().empty());
    CHECK(model.gradients()[8] == 0);
  };
  check([](auto& m) { return ike::sgd{m, {.lr = 0.1, .max_norm = 1}}; });
  check([](auto& m) { return ike::adagrad{m, {.lr = 0.1}}; });
  check([](auto& m) { return ike::sparse_adam{m, {.lr = 0.1}}; });
}

TEST_CASE("gradients that are rows accumulate and are clipped as dense ones") {
  auto sparse = make<double, true>();
  auto dense = make<double, false>();
  const auto target = ike::uniform<double, shape{4, 5}>(ike::seed{2});
  const auto run = [&](auto& m) {
    m.zero_grad();
    for (int step = 0; step < 3; ++step) m.loss_backward(batch(step), target, ike::mse_loss{});
    return ike::clip_grad_norm(m, 0.01, {.norm_type = 1});
  };
  for (int round = 0; round < 2; ++round) {
    CHECK(run(sparse) == doctest::Approx(run(dense)));
    ike::clip_grad_value(sparse, 1e-4);
    ike::clip_grad_value(dense, 1e-4);
    for (std::size_t i = 0; i < sparse.gradients().size(); ++i)
      CHECK(sparse.gradients()[i] == doctest::Approx(dense.gradients()[i]));
  }
  const auto infinity = std::numeric_limits<double>::infinity();
  CHECK(ike::clip_grad_norm(sparse, 1, {.norm_type = infinity}) ==
        ike::clip_grad_norm(dense, 1, {.norm_type = infinity}));
}

TEST_CASE("the lists of rows are no state, and a clone has its own") {
  auto model = make<float, true>();
  const auto target = ike::uniform<float, shape{4, 5}>(ike::seed{2});
  model.loss_backward(batch(0), target, ike::mse_loss{});
  CHECK(model.persistent_buffers().empty());
  auto other = model.clone();
  ike::sparse_adam optimizer{other, {.lr = 0.1}};
  optimizer.step();
  CHECK(
      std::equal(model.parameters().begin(), model.parameters().end(), other.parameters().begin()));
  other.zero_grad();
  CHECK(other.gradient_rows()[0].list != model.gradient_rows()[0].list);
}

TEST_CASE("a step on rows does not allocate") {
  auto model = make<float, true>();
  ike::sgd optimizer{model, {.lr = 0.1, .max_norm = 1}};
  const auto target = ike::uniform<float, shape{4, 5}>(ike::seed{2});
  words x[5];
  for (int step = 0; step < 5; ++step) x[step] = batch(step);
  model.train_step(x[0], target, ike::mse_loss{}, optimizer);
  const long before = allocation_count;
  for (const words& each : x) {
    model.train_step(each, target, ike::mse_loss{}, optimizer);
    model.zero_grad();
  }
  CHECK(allocation_count == before);
}
