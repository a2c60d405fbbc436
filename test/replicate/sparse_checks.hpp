#pragma once

#include <doctest/doctest.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "ikebana/compose/graph.hpp"
#include "ikebana/model/initialize.hpp"
#include "ikebana/nn/embedding.hpp"
#include "ikebana/nn/embedding_bag.hpp"
#include "ikebana/nn/flatten.hpp"
#include "ikebana/nn/linear.hpp"
#include "ikebana/nn/loss.hpp"
#include "ikebana/optim/adagrad.hpp"
#include "ikebana/optim/adam.hpp"
#include "ikebana/optim/sgd.hpp"
#include "ikebana/optim/sparse_adam.hpp"
#include "ikebana/replicate/compress.hpp"
#include "ikebana/replicate/join.hpp"
#include "ikebana/replicate/optimizer_in_backward.hpp"
#include "ikebana/replicate/replicate.hpp"

// Embeddings with sparse<true> on every kind of group. All ranks call each function.
namespace sparse_checks {

namespace ike = ikebana;
using namespace ike::literals;
using ike::dim_t;
using ike::shape;

using words = ike::tensor<std::int64_t, shape{4, 3}>;
using target = ike::tensor<double, shape{4, 5}>;

/// Two tables, one of which is read twice, and a layer between whose parameters they are.
template <bool Sparse>
constexpr auto network() {
  return ike::graph([](auto x) {
    using rows = ike::sparse<Sparse>;
    auto a = "a"_m(ike::embedding<40, 3, ike::padding_idx<0>, rows>{}, x);
    auto again = "a"_m(ike::embedding<40, 3, ike::padding_idx<0>, rows>{}, x);
    auto h = "fc"_m(ike::linear<9, 5>{}, ike::flatten<>{}(a * again));
    auto bag = "b"_m(ike::embedding_bag<37, 5, ike::mode<"max">, rows>{}, x);
    return h + bag;
  });
}

template <class Policy, bool Sparse, class T, class Group>
auto make(Group& group) {
  return ike::replicate<Policy>(ike::initialize<T, shape{4, 3}>(network<Sparse>(), ike::seed{1}),
                                group);
}

/// Different rows on each rank, some of them in common.
inline words batch(int rank, int step) {
  words x;
  for (dim_t i = 0; i < 12; ++i) x[i] = (i * i + 5 * step + (step % 3) * i + 11 * rank) % 37;
  return x;
}
template <class T>
ike::tensor<T, shape{4, 5}> goal(int rank) {
  return ike::uniform<T, shape{4, 5}>(ike::seed{static_cast<std::uint64_t>(rank) + 2});
}

template <class T>
void check_same(std::span<const T> a, std::span<const T> b, double tolerance) {
  REQUIRE(a.size() == b.size());
  std::size_t different = 0;
  for (std::size_t i = 0; i < a.size(); ++i)
    different += tolerance == 0 ? a[i] != b[i]
                                : static_cast<double>(a[i]) !=
                                      doctest::Approx(static_cast<double>(b[i])).epsilon(tolerance);
  CHECK(different == 0);
}

/// Whether the parameters have the same bits on all ranks.
template <class Model>
void check_equal_ranks(Model& model) {
  using T = typename Model::value_type;
  const std::span<const T> mine = model.parameters();
  std::vector<T> lowest(mine.begin(), mine.end()), highest = lowest;
  model.group().all_reduce(std::span<T>(lowest), ike::reduce_op::min);
  model.group().all_reduce(std::span<T>(highest), ike::reduce_op::max);
  CHECK(lowest == highest);
}

/// Trains with rows and with dense gradients: `train(model, optimizer)` makes the steps.
template <class Policy, class T, class Group, class Make, class Train>
void compare(Group& group, const Make& make_optimizer, double tolerance, const Train& train) {
  auto sparse = make<Policy, true, T>(group);
  auto dense = make<Policy, false, T>(group);
  auto of_sparse = make_optimizer(sparse);
  auto of_dense = make_optimizer(dense);
  train(sparse, of_sparse);
  train(dense, of_dense);
  check_same<T>(sparse.gradients(), dense.gradients(), tolerance);
  check_same<T>(sparse.parameters(), dense.parameters(), tolerance);
  check_equal_ranks(sparse);
}

template <class T>
auto some_steps() {
  return [](auto& model, auto& optimizer) {
    const int rank = model.group().rank();
    for (int step = 0; step < 6; ++step)
      model.train_step(batch(rank, step), goal<T>(rank), ike::mse_loss{}, optimizer);
  };
}

/// A step has the bits of one with dense gradients, but for the order in which a norm is summed.
template <class T, class Group>
void steps(Group& group) {
  using policy = ike::replicate_policy<ike::bucket_cap<64>>;
  const auto run = [&](double tolerance, const auto& make_optimizer) {
    compare<policy, T>(group, make_optimizer, tolerance, some_steps<T>());
  };
  run(0, [](auto& m) { return ike::sgd{m, {.lr = 0.3}}; });
  run(1e-5, [](auto& m) { return ike::sgd{m, {.lr = 0.3, .max_norm = 0.05}}; });
  run(0, [](auto& m) { return ike::sgd{m, {.lr = 0.3, .momentum = 0.9}}; });
  run(0, [](auto& m) { return ike::adagrad{m, {.lr = 0.3}}; });
  run(0, [](auto& m) { return ike::sparse_adam{m, {.lr = 0.3}}; });
  run(0, [](auto& m) { return ike::adam{m, {.lr = 0.3}}; });
}

/// Sums of several batches: within no_sync, of a backward that leaves its reduction in flight, and
/// on top of what was reduced before.
template <class T, class Group>
void accumulation(Group& group) {
  const auto train = [](auto& model, auto& optimizer) {
    const int rank = model.group().rank();
    const auto backward = [&](int step) {
      model.loss_backward(batch(rank, step), goal<T>(rank), ike::mse_loss{});
    };
    for (int round = 0; round < 2; ++round) {
      model.zero_grad();
      {
        const auto guard = model.no_sync();
        backward(0);
        backward(4 + round);
      }
      backward(1);
      model.step(optimizer);
      backward(2);
      model.step(optimizer);
    }
    model.zero_grad();
    model.set_is_last_backward(false);
    backward(5);
    model.set_is_last_backward(true);
    backward(6);
    model.step(optimizer);
  };
  const auto sgd = [](auto& m) { return ike::sgd{m, {.lr = 0.03}}; };
  compare<ike::replicate_policy<>, T>(group, sgd, 0, train);
  compare<ike::replicate_policy<ike::gradient_divide_factor<1>>, T>(group, sgd, 0, train);
}

/// Ranks with different numbers of batches.
template <class Group>
void uneven(Group& group) {
  for (const bool initial : {true, false})
    compare<ike::replicate_policy<>, double>(
        group,
        [](auto& m) {
          return ike::sparse_adam{m, {.lr = 0.1}};
        },
        0,
        [&](auto& model, auto& optimizer) {
          const int rank = group.rank();
          std::vector<int> own(static_cast<std::size_t>(2 + 3 * (rank % 3)));
          for (std::size_t i = 0; i < own.size(); ++i) own[i] = static_cast<int>(i);
          ike::for_each_uneven(model, optimizer, own,
                               [&](int step) {
                                 model.train_step(batch(rank, step), goal<double>(rank),
                                                  ike::mse_loss{}, optimizer);
                               },
                               {.divide_by_initial_world_size = initial});
          model.zero_grad();
        });
}

/// The other options of a policy.
template <class Group>
void policies(Group& group) {
  const auto sgd = [](auto& m) { return ike::sgd{m, {.lr = 0.03}}; };
  const auto run = [&]<class Policy>(Policy) {
    compare<Policy, float>(group, sgd, 0, some_steps<float>());
  };
  run(ike::replicate_policy<ike::optimizer_in_backward<true>>{});
  run(ike::replicate_policy<ike::delay_all_reduce<"a.weight", "fc.bias">>{});
  run(ike::replicate_policy<ike::groups_by_module<"a", "fc">,
                            ike::override_at<"b", ike::gradient_divide_factor<3>>>{});
  run(ike::replicate_policy<ike::override_at<"fc", ike::comm_hook<ike::bf16_compress>>>{});
}

/// What a policy ignores, or does not synchronise, keeps the gradients of its rank.
template <class Group>
void left_out(Group& group) {
  const auto sgd = [](auto& m) { return ike::sgd{m, {.lr = 0.03}}; };
  const auto run = [&]<class Policy>(Policy) {
    auto sparse = make<Policy, true, float>(group);
    auto dense = make<Policy, false, float>(group);
    auto of_sparse = sgd(sparse);
    auto of_dense = sgd(dense);
    some_steps<float>()(sparse, of_sparse);
    some_steps<float>()(dense, of_dense);
    check_same<float>(sparse.parameters(), dense.parameters(), 0);
  };
  run(ike::replicate_policy<ike::ignored<"a">>{});
  run(ike::replicate_policy<ike::override_at<"b", ike::requires_gradient_sync<false>>>{});
}

/// The rows of all ranks are listed on each, in one order, and no others are read or written.
template <class Group>
void touched_rows(Group& group) {
  constexpr shape indices{2};
  auto model = ike::replicate(
      ike::initialize<float, indices>(ike::embedding<50, 2, ike::sparse<true>>{}, ike::seed{1}),
      group);
  ike::sgd optimizer{model, {.lr = 0.1}};
  const auto zeros = ike::zeros<float, shape{2, 2}>();
  ike::tensor<std::int64_t, indices> x;
  x[0] = 3 * group.rank() + 1;
  x[1] = 40;
  std::vector<std::int32_t> expected{1, 40};
  for (int r = 1; r < group.size(); ++r) expected.push_back(3 * r + 1);
  model.gradients()[98] = 7;  // Row 49, which no rank reads.
  const float before = model.parameters()[98];
  for (int step = 0; step < 2; ++step) {
    model.train_step(x, zeros, ike::mse_loss{}, optimizer);
    const auto listed = model.gradient_rows()[0].listed();
    CHECK(std::vector<std::int32_t>(listed.begin(), listed.end()) == expected);
    CHECK(model.gradients()[98] == 7);
    CHECK(model.parameters()[98] == before);
  }
  model.zero_grad();
  CHECK(model.gradient_rows()[0].listed().empty());
  const auto gradients = model.gradients();
  CHECK(std::count(gradients.begin(), gradients.end(), 0.0f) + 1 ==
        static_cast<std::ptrdiff_t>(gradients.size()));
  CHECK(model.bucket_plan().empty());
}

template <class Group>
void everything(Group& group) {
  steps<float>(group);
  steps<double>(group);
  accumulation<float>(group);
  uneven(group);
  policies(group);
  left_out(group);
  touched_rows(group);
}

}  // namespace sparse_checks
