#pragma once

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <span>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "ikebana/compose/sequential.hpp"
#include "ikebana/model/initialize.hpp"
#include "ikebana/nn/activation.hpp"
#include "ikebana/nn/batch_norm.hpp"
#include "ikebana/nn/linear.hpp"
#include "ikebana/nn/loss.hpp"
#include "ikebana/optim/sgd.hpp"
#include "ikebana/replicate/join.hpp"
#include "ikebana/replicate/replicate.hpp"

// join on every kind of group. All ranks call each function.
namespace join_checks {

namespace ike = ikebana;
using namespace ike::literals;
using ike::dynamic;
using ike::shape;

inline constexpr auto net =
    ike::sequential("norm"_m = ike::lazy_batch_norm1d<>{}, "fc1"_m = ike::lazy_linear<7>{},
                    "tanh"_m = ike::tanh{}, "fc2"_m = ike::lazy_linear<3>{});
inline constexpr shape rows{dynamic, 5};

/// Several buckets.
using policy = ike::replicate_policy<ike::bucket_cap<64>>;

template <class T>
auto fresh() {
  return ike::initialize<T, rows>(net, ike::seed{1});
}

template <class T>
struct batch {
  ike::tensor<T, rows> x;
  ike::tensor<std::int64_t, shape{dynamic}> y;
};

template <class T>
batch<T> batch_of(int rank, int step) {
  batch<T> b{ike::uniform<T, rows>(ike::seed{static_cast<std::uint64_t>(100 * rank + step)}, 4),
             ike::tensor<std::int64_t, shape{dynamic}>(shape{4})};
  for (ike::dim_t i = 0; i < 4; ++i) b.y[i] = (i + rank + step) % 3;
  return b;
}

/// The number of batches of a rank: different for neighbours, none for the fourth.
inline int batches_of(int rank) {
  constexpr int counts[] = {3, 5, 2, 0, 5};
  return counts[rank % 5];
}
inline int most_batches(int ranks) {
  int most = 0;
  for (int r = 0; r < ranks; ++r) most = std::max(most, batches_of(r));
  return most;
}

template <class T>
std::vector<batch<T>> batches(int rank, int count) {
  std::vector<batch<T>> all;
  for (int s = 0; s < count; ++s) all.push_back(batch_of<T>(rank, s));
  return all;
}

template <class T>
void check_close(std::span<const T> a, std::span<const T> b, double tolerance) {
  REQUIRE(a.size() == b.size());
  double worst = 0;
  for (std::size_t i = 0; i < a.size(); ++i)
    worst = std::max(worst, std::fabs(static_cast<double>(a[i]) - static_cast<double>(b[i])));
  CHECK(worst <= tolerance);
}

/// Whether a span is equal on all ranks.
template <class T, class Group>
void check_same_everywhere(std::span<const T> mine, Group& group) {
  std::vector<T> all(mine.size() * static_cast<std::size_t>(group.size()));
  group.all_gather(mine, std::span<T>{all});
  for (std::size_t i = 0; i < all.size(); ++i)
    if (!(all[i] == all[i % mine.size()])) {
      CHECK_MESSAGE(false, "element ", i, " differs");
      return;
    }
}

/// The result of one model that sums the gradients of all ranks' batches itself: parameters, and
/// buffers. Each step starts from the buffers of the highest rank with a batch.
template <class T, class Model>
void train_by_hand(Model& model, int ranks, bool by_initial) {
  ike::sgd optimizer{model, {.lr = 0.1, .momentum = 0.9}};
  const auto buffers = [&] {
    return std::vector<std::byte>(model.buffers().begin(), model.buffers().end());
  };
  std::vector<std::vector<std::byte>> of_rank(static_cast<std::size_t>(ranks), buffers());
  for (int s = 0; s < most_batches(ranks); ++s) {
    model.zero_grad();
    int source = 0;
    for (int r = 0; r < ranks; ++r)
      if (s < batches_of(r)) source = r;
    const auto before = of_rank[static_cast<std::size_t>(source)];
    int active = 0;
    for (int r = 0; r < ranks; ++r) {
      if (s >= batches_of(r)) continue;
      ++active;
      std::ranges::copy(before, model.buffers().begin());
      const auto b = batch_of<T>(r, s);
      model.loss_backward(b.x, b.y, ike::cross_entropy{});
      of_rank[static_cast<std::size_t>(r)] = buffers();
    }
    for (T& g : model.gradients()) g /= static_cast<T>(by_initial ? ranks : active);
    optimizer.step();
  }
}

/// Ranks with different numbers of batches end with the weights of one model that sees all of them,
/// for both divisors.
template <class T, class Group>
void uneven_training(Group& group, double tolerance) {
  for (const bool by_initial : {true, false}) {
    CAPTURE(by_initial);
    auto expected = fresh<T>();
    train_by_hand<T>(expected, group.size(), by_initial);
    auto model = ike::replicate<policy>(fresh<T>(), group);
    ike::sgd optimizer{model, {.lr = 0.1, .momentum = 0.9}};
    ike::for_each_uneven(
        model, batches<T>(group.rank(), batches_of(group.rank())),
        [&](const batch<T>& b) { model.train_step(b.x, b.y, ike::cross_entropy{}, optimizer); },
        {.divide_by_initial_world_size = by_initial});
    CHECK(model.steps() == most_batches(group.size()));
    check_close<T>(model.parameters(), expected.parameters(), tolerance);
    check_same_everywhere(std::span<const T>{model.parameters()}, group);
    check_same_everywhere(std::span<const std::byte>{model.buffers()}, group);
    const auto mean = model.buffer("norm.running_mean"_s);
    const auto expected_mean = expected.buffer("norm.running_mean"_s);
    for (ike::dim_t i = 0; i < 5; ++i)
      CHECK(static_cast<double>(mean[i]) ==
            doctest::Approx(static_cast<double>(expected_mean[i])).epsilon(1e-6));
    // Everything continues as before.
    const auto b = batch_of<T>(group.rank(), 9);
    model.train_step(b.x, b.y, ike::cross_entropy{}, optimizer);
  }
}

/// Running statistics after joins in which the highest rank is exhausted first, and others. The
/// expected values are those of torch.nn.parallel.DistributedDataParallel (1.13, gloo) with Join,
/// for the same inputs.
template <class Group>
void running_statistics(Group& group) {
  struct recorded {
    std::vector<int> batches;
    double mean, variance;
  };
  const recorded all[] = {{{3, 1}, 0.561, 1.271},
                          {{1, 3}, 3.542, 2.897},
                          {{4, 4, 2}, 5.4897, 4.1363},
                          {{2, 4, 1}, 4.6878, 3.4073},
                          {{0, 2, 1}, 2.38, 2.33}};
  for (const recorded& r : all) {
    if (static_cast<int>(r.batches.size()) != group.size()) continue;
    const double rank = group.rank();
    auto model = ike::replicate(
        ike::initialize<double, shape{2, 1}>(
            ike::sequential("norm"_m = ike::lazy_batch_norm1d<>{}, "fc"_m = ike::lazy_linear<1>{}),
            ike::seed{1}),
        group);
    model.join([&] {
      for (int s = 0; s < r.batches[static_cast<std::size_t>(group.rank())]; ++s) {
        ike::tensor<double, shape{2, 1}> x;
        x[0] = 10 * rank + s;
        x[1] = x[0] + 2 * (rank + 1);
        model(x);
        model.backward(ike::ones<double, shape{2, 1}>());
      }
    });
    CHECK(model.buffer("norm.running_mean"_s)[0] == doctest::Approx(r.mean).epsilon(1e-12));
    CHECK(model.buffer("norm.running_var"_s)[0] == doctest::Approx(r.variance).epsilon(1e-12));
  }
}

/// If the optimizer is passed, that of an exhausted rank behaves as if it had made steps with zero
/// gradients: bit by bit as with a hook where every rank does that.
template <class Policy, class Group>
void shadows_are_zeros(Group& group) {
  using T = float;
  const ike::sgd_options options{.lr = 0.1, .momentum = 0.9};
  auto model = ike::replicate<Policy>(fresh<T>(), group);
  ike::sgd optimizer{model, options};
  ike::for_each_uneven(
      model, optimizer, batches<T>(group.rank(), batches_of(group.rank())),
      [&](const batch<T>& b) { model.train_step(b.x, b.y, ike::cross_entropy{}, optimizer); });

  auto padded = ike::replicate<Policy>(fresh<T>(), group);
  ike::sgd padded_optimizer{padded, options};
  for (int s = 0; s < most_batches(group.size()); ++s) {
    const auto b = batch_of<T>(group.rank(), s);
    if (s < batches_of(group.rank())) {
      padded.train_step(b.x, b.y, ike::cross_entropy{}, padded_optimizer);
    } else {
      padded.zero_grad();
      padded(b.x);
      padded.backward(ike::zeros<T, shape{dynamic, 3}>(4));
      padded.step(padded_optimizer);
    }
  }
  // At the end of a join, all ranks get the last ranks' parameters; without averaging they differ
  // before.
  if constexpr (Policy::hook_type::result != ike::hook_result::local) {
    CHECK(std::ranges::equal(model.parameters(), padded.parameters()));
    CHECK(std::ranges::equal(optimizer.state()[1].bytes, padded_optimizer.state()[1].bytes));
  }
  check_same_everywhere(std::span<const T>{model.parameters()}, group);
}

/// What a rank accumulated before it was exhausted counts in the sum it belongs to.
template <class Group>
void accumulated_leftovers(Group& group) {
  using T = double;
  auto model = ike::replicate<policy>(fresh<T>(), group);
  const auto run = [&](const auto& b) {
    return model.loss_backward(b.x, b.y, ike::cross_entropy{});
  };
  // Rank 0 has three batches, the others four; two make a step.
  const int count = group.rank() == 0 ? 3 : 4;
  std::vector<std::vector<T>> steps;
  model.join([&] {
    for (int s = 0; s < count; ++s) {
      if (s % 2 == 0) model.zero_grad();
      if (s % 2 == 0) {
        const auto guard = model.no_sync();
        run(batch_of<T>(group.rank(), s));
      } else {
        run(batch_of<T>(group.rank(), s));
        steps.emplace_back(model.gradients().begin(), model.gradients().end());
      }
    }
  });
  for (int step = 0; step < (group.size() > 1 ? 2 : 1); ++step) {
    auto expected = fresh<T>();
    for (int r = 0; r < group.size(); ++r)
      for (int s = 2 * step; s < 2 * step + 2; ++s) {
        if (r == 0 && s == 3) continue;
        const auto b = batch_of<T>(r, s);
        expected.loss_backward(b.x, b.y, ike::cross_entropy{});
      }
    for (T& g : expected.gradients()) g /= group.size();
    if (static_cast<std::size_t>(step) < steps.size())
      check_close<T>(steps[static_cast<std::size_t>(step)], expected.gradients(), 1e-15);
    else
      check_close<T>(model.gradients(), expected.gradients(), 1e-15);
  }
}

/// If requested, every rank throws before the step has changed a parameter, and all can continue.
template <class Group>
void throws_on_early_termination(Group& group) {
  auto model = ike::replicate<policy>(fresh<float>(), group);
  ike::sgd optimizer{model, {.lr = 0.1}};
  const auto step = [&](int s) {
    const auto b = batch_of<float>(group.rank(), s);
    model.train_step(b.x, b.y, ike::cross_entropy{}, optimizer);
  };
  const int last = group.size() - 1;
  const int count = group.rank() == last ? 2 : 4;
  std::string text;
  int made = 0;
  try {
    model.join(
        [&] {
          for (int s = 0; s < count; ++s) {
            step(s);
            ++made;
          }
        },
        {.throw_on_early_termination = true});
  } catch (const ike::early_termination& e) {
    text = e.what();
  }
  const std::string rank = "rank " + std::to_string(group.rank());
  CHECK(made == 2);
  CHECK(model.steps() == 2);
  if (group.size() == 1)
    CHECK(text == "");
  else if (group.rank() == last)
    CHECK(text == rank + ": exhausted all inputs");
  else
    CHECK(text == rank +
                      ": detected at least one rank that exhausted its inputs; throwing across "
                      "all ranks");
  step(5);
  check_same_everywhere(std::span<const float>{model.parameters()}, group);
  // No rank throws if all end together, and joins may follow each other.
  model.join([&] { step(6); }, {.throw_on_early_termination = true});
  model.join([&] {
    if (group.rank() == 0) step(7);
  });
  check_same_everywhere(std::span<const float>{model.parameters()}, group);
}

/// No batch anywhere, a join within a join, and a disabled one.
template <class Group>
void odd_joins(Group& group) {
  auto model = ike::replicate<policy>(fresh<float>(), group);
  const std::vector<float> before(model.parameters().begin(), model.parameters().end());
  model.join([] {});
  CHECK(std::ranges::equal(model.parameters(), before));
  CHECK(model.steps() == 0);
  model.join([&] { CHECK_THROWS_AS(model.join([] {}), ike::state_error); });
  int runs = 0;
  model.join([&] { ++runs; }, {.enable = false});
  CHECK(runs == 1);
  ike::sgd optimizer{model, {.lr = 0.1}};
  ike::for_each_uneven(
      model, batches<float>(group.rank(), 2),
      [&](const auto& b) { model.train_step(b.x, b.y, ike::cross_entropy{}, optimizer); },
      {.enable = false});
  CHECK(model.steps() == 2);
  check_same_everywhere(std::span<const float>{model.parameters()}, group);
}

}  // namespace join_checks
