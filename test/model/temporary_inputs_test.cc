#include <doctest/doctest.h>

#include <cstdint>
#include <limits>
#include <vector>

#include "ikebana/compose/graph.hpp"
#include "ikebana/compose/sequential.hpp"
#include "ikebana/core/tensor.hpp"
#include "ikebana/model/initialize.hpp"
#include "ikebana/model/inputs.hpp"
#include "ikebana/model/lazy_model.hpp"
#include "ikebana/module/arithmetic.hpp"
#include "ikebana/nn/activation.hpp"
#include "ikebana/nn/embedding.hpp"
#include "ikebana/nn/linear.hpp"
#include "ikebana/nn/loss.hpp"
#include "ikebana/optim/sgd.hpp"
#include "ikebana/replicate/launch.hpp"
#include "ikebana/replicate/policy.hpp"
#include "ikebana/replicate/replicate.hpp"
#include "test/support/count_allocations.hpp"

namespace ike = ikebana;
using namespace ike::literals;
using ike::dynamic;
using ike::shape;

namespace {

constexpr shape in{16, 30}, out{16, 2};
constexpr auto net = ike::sequential("fc1"_m = ike::lazy_linear<4>{}, "relu"_m = ike::relu{},
                                     "fc2"_m = ike::lazy_linear<2>{});

auto make_x(std::uint64_t s = 1) { return ike::uniform<float, in>(ike::seed{s}); }
const auto dy = ike::uniform<float, out>(ike::seed{9});

/// Allocates the memory that was freed last and fills it with NaN, so that any use of it is
/// visible.
std::vector<ike::tensor<float, in>> use_freed_memory() {
  std::vector<ike::tensor<float, in>> all;
  for (int i = 0; i < 8; ++i)
    all.push_back(ike::full<float, in>(std::numeric_limits<float>::quiet_NaN()));
  return all;
}

template <class Model>
std::vector<float> gradients(Model& m) {
  const auto others = use_freed_memory();
  m.zero_grad();
  m.backward(dy);
  return {m.gradients().begin(), m.gradients().end()};
}

}  // namespace

TEST_CASE("backward finds the temporary tensor that its forward was called with") {
  auto m = ike::initialize<float, in>(net, ike::seed{1}), same = m.clone();
  const auto x = make_x();
  std::vector<float> expected;
  for (const bool training : {true, false}) {
    // In evaluation, layers are fused, which sums in another order.
    same.train(training);
    same(x);
    expected = gradients(same);
    m.train(training);
    m(make_x());
    CHECK(gradients(m) == expected);
    m.forward(make_x());
    CHECK(gradients(m) == expected);
  }
  // A named tensor still belongs to its owner; one that was moved belongs to the model.
  auto given = make_x();
  m(given);
  CHECK(given.size() == x.size());
  m(std::move(given));
  CHECK(gradients(m) == expected);
}

TEST_CASE("a temporary is kept until the next one, and keeping it allocates nothing") {
  auto m = ike::initialize<float, shape{dynamic, 30}>(net, ike::seed{1});
  const auto x = ike::uniform<float, shape{dynamic, 30}>(ike::seed{1}, 16);
  m(x);
  auto a = x, b = x;
  const long before = allocation_count.load();
  m(std::move(a));
  m(std::move(b));
  m.backward(dy);
  CHECK(allocation_count.load() == before);
}

TEST_CASE("a refused call leaves the temporary of the last forward where it was") {
  auto m = ike::initialize<float, shape{dynamic, 30}>(net, ike::seed{1}), same = m.clone();
  const auto x = make_x();
  same(x);
  m(make_x());
  const ike::tensor<float, shape{dynamic, dynamic}> wrong(shape{16, 31});
  CHECK_THROWS_AS(m(ike::tensor<float, shape{dynamic, dynamic}>(wrong)), ike::shape_error);
  CHECK(gradients(m) == gradients(same));
}

TEST_CASE("no backward follows the forward of a training step, whose inputs may be gone") {
  auto m = ike::initialize<float, in>(net, ike::seed{1}), same = m.clone();
  const ike::tensor<std::int64_t, shape{16}> classes;
  ike::sgd optimizer{m, {.lr = 0.0}};
  m.train_step(make_x(), classes, ike::cross_entropy{}, optimizer);
  CHECK_THROWS_WITH_AS(m.backward(dy),
                       "backward needs a forward of its own: the last one was that of train_step "
                       "or loss_backward",
                       ike::error);
  m.loss_backward(ike::inputs(make_x()), classes, ike::cross_entropy{});
  ike::tensor<float, in> dx;
  const auto others = use_freed_memory();
  CHECK_THROWS_AS(m.backward(dy, dx), ike::error);
  const auto x = make_x();
  m(x);
  same(x);
  CHECK(gradients(m) == gradients(same));
  ike::launch(ike::threads{1}, [&](ike::process_group auto& group) {
    auto replica = ike::replicate(ike::initialize<float, in>(net, ike::seed{1}), group);
    replica.loss_backward(make_x(), classes, ike::cross_entropy{});
    CHECK_THROWS_AS(replica.backward(dy), ike::error);
    replica(make_x());
    CHECK(gradients(replica) == gradients(same));
  });
}

TEST_CASE("temporaries among several inputs, of numbers and of indices") {
  constexpr auto two = ike::graph([](auto x, auto i) {
    return "fc"_m(ike::lazy_linear<2>{}, x + "rows"_m(ike::embedding<7, 30>{}, i));
  });
  auto m = ike::initialize<float, in, shape{16}>(two, ike::seed{1}), same = m.clone();
  const auto x = make_x();
  const ike::tensor<std::int64_t, shape{16}> i;
  same(x, i);
  m(x, ike::tensor<std::int64_t, shape{16}>{});
  CHECK(gradients(m) == gradients(same));
  m(make_x(), i);
  CHECK(gradients(m) == gradients(same));
}

TEST_CASE("replicas and lazy models keep temporaries, too") {
  auto same = ike::initialize<float, shape{dynamic, 30}>(net, ike::seed{1});
  const auto x = make_x();
  same(x);
  const auto expected = gradients(same);
  ike::launch(ike::threads{1}, [&](ike::process_group auto& group) {
    auto replica =
        ike::replicate(ike::initialize<float, shape{dynamic, 30}>(net, ike::seed{1}), group);
    replica(make_x());
    CHECK(gradients(replica) == expected);
  });
  ike::lazy_model holder{net, ike::seed{1}};
  holder(make_x());
  CHECK(gradients(holder.model_of(x)) == expected);
}
