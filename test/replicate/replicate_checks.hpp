#pragma once

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "ikebana/compose/sequential.hpp"
#include "ikebana/model/initialize.hpp"
#include "ikebana/nn/activation.hpp"
#include "ikebana/nn/batch_norm.hpp"
#include "ikebana/nn/linear.hpp"
#include "ikebana/nn/loss.hpp"
#include "ikebana/optim/sgd.hpp"
#include "ikebana/replicate/replicate.hpp"
#include "ikebana/replicate/utils/broadcast_coalesced.hpp"
#include "ikebana/replicate/utils/verify_parameters.hpp"

// `replicate` and its utilities on every kind of group. All ranks call each function.
namespace replicate_checks {

namespace ike = ikebana;
using namespace ike::literals;
using ike::dynamic;
using ike::shape;

inline constexpr auto mlp = ike::sequential(
    "fc1"_m = ike::lazy_linear<13>{}, "tanh"_m = ike::tanh{}, "fc2"_m = ike::lazy_linear<7>{},
    "relu"_m = ike::relu{}, "fc3"_m = ike::lazy_linear<3>{});
inline constexpr auto normed =
    ike::sequential("norm"_m = ike::lazy_batch_norm1d<>{}, "fc"_m = ike::lazy_linear<3>{});
inline constexpr shape rows{dynamic, 5};
inline constexpr ike::dim_t batch = 12;  // Divisible by 1, 2, 3 and 4 ranks.

/// A rank's part of the batch of a step.
template <class T>
struct part {
  ike::tensor<T, rows> x;
  ike::tensor<std::int64_t, shape{dynamic}> y;

  part(std::int64_t step, int rank, int ranks)
      : x(shape{batch / ranks, 5}), y(shape{batch / ranks}) {
    const ike::dim_t n = batch / ranks;
    const auto whole =
        ike::uniform<T, rows>(ike::seed{100 + static_cast<std::uint64_t>(step)}, batch);
    std::copy_n(whole.data() + rank * n * 5, n * 5, x.data());
    for (ike::dim_t i = 0; i < n; ++i) y[i] = (rank * n + i + step) % 3;
  }
};

template <class T>
double apart(std::span<const T> a, std::span<const T> b) {
  REQUIRE(a.size() == b.size());
  double most = 0, worst = 0;
  for (std::size_t i = 0; i < a.size(); ++i) {
    most = std::max(most, std::fabs(static_cast<double>(b[i])));
    worst = std::max(worst, std::fabs(static_cast<double>(a[i]) - static_cast<double>(b[i])));
  }
  return worst / most;
}

template <class T, class Group>
bool same_everywhere(std::span<const T> mine, Group& group) {
  std::vector<T> all(mine.size() * static_cast<std::size_t>(group.size()));
  group.all_gather(mine, std::span<T>{all});
  for (std::size_t i = 0; i < all.size(); ++i)
    if (!(all[i] == all[i % mine.size()])) return false;
  return true;
}

/// Some steps on this rank's parts with a policy; returns the parameters at the end.
template <class Policy, class T, class Group, class... Hook>
std::vector<T> trained(Group& group, int steps, Hook... hook) {
  auto model = ike::replicate<Policy>(ike::initialize<T, rows>(mlp, ike::seed{1}), group,
                                      std::move(hook)...);
  ike::sgd optimizer{model, {.lr = 0.1, .momentum = 0.9}};
  for (int s = 0; s < steps; ++s) {
    const part<T> p(s, group.rank(), group.size());
    model.train_step(p.x, p.y, ike::cross_entropy{}, optimizer);
  }
  CHECK(same_everywhere(std::span<const T>{std::as_const(model).parameters()}, group));
  return {model.parameters().begin(), model.parameters().end()};
}

/// Replicas on parts of the batch end with the weights of one model on all of it, wherever buckets
/// are cut, with the same bits on every rank.
template <class T, class Group>
void full_batch(Group& group, double tolerance) {
  ike::single one;
  using split = ike::replicate_policy<ike::bucket_cap<64>>;
  const auto alone = trained<split, T>(one, 20);
  const auto together = trained<split, T>(group, 20);
  CHECK(apart<T>(together, alone) <= tolerance);
  CHECK(trained<ike::replicate_policy<ike::bucket_cap<(1 << 20)>>, T>(group, 20) == together);
}

/// Compressing hooks approximate the exact average, with the same bits on all ranks.
template <class Policy, class Group>
void hook_comes_near(Group& group, double tolerance) {
  ike::single one;
  const auto exact = trained<ike::replicate_policy<ike::bucket_cap<64>>, float>(one, 20);
  CHECK(apart<float>(trained<Policy, float>(group, 20), exact) <= tolerance);
}

/// Parameters and buffers are rank 0's at the start, buffers after every step. Under no_sync,
/// gradients stay local to a rank, and the first backward afterwards averages their sum.
template <class Group>
void states_and_no_sync(Group& group) {
  using T = double;
  const auto rank = static_cast<std::uint64_t>(group.rank());
  auto made = ike::initialize<T, rows>(normed, ike::seed{1 + rank});
  if (group.rank() > 0) made(ike::uniform<T, rows>(ike::seed{rank}, 4));  // Changes its statistics.
  auto model = ike::replicate<ike::replicate_policy<ike::bucket_cap<64>>>(std::move(made), group);
  const auto first = ike::initialize<T, rows>(normed, ike::seed{1});
  CHECK(std::ranges::equal(model.parameters(), first.parameters()));
  CHECK(std::ranges::equal(model.buffers(), first.buffers()));

  const part<T> p(0, group.rank(), group.size()), q(1, group.rank(), group.size());
  auto alone = first.clone();
  {
    const auto guard = model.no_sync();
    model.loss_backward(p.x, p.y, ike::cross_entropy{});
    alone.loss_backward(p.x, p.y, ike::cross_entropy{});
  }
  CHECK(std::ranges::equal(model.gradients(), alone.gradients()));
  model.loss_backward(q.x, q.y, ike::cross_entropy{});
  alone.loss_backward(q.x, q.y, ike::cross_entropy{});
  group.all_reduce(alone.gradients(), ike::reduce_op::avg);
  CHECK(apart<T>(std::as_const(model).gradients(), std::as_const(alone).gradients()) < 1e-15);
  CHECK(same_everywhere(std::span<const std::byte>{std::as_const(model).buffers()}, group));
}

/// Models that differ are named on every rank, and nothing hangs; coalesced chunks of any size.
template <class Group>
void utilities(Group& group) {
  const int last = group.size() - 1;
  std::vector<ike::parameter_identity> list{{{"fc.weight"}, ike::dtype::float32, shape{2, 3}},
                                            {{"fc.bias"}, ike::dtype::float32, shape{2}}};
  const auto said = [&] {
    try {
      ike::verify_parameters(std::span<const ike::parameter_identity>{list}, group);
    } catch (const ike::state_error& e) {
      return std::string(e.what());
    }
    return std::string("equal");
  };
  CHECK(said() == "equal");
  const std::string r = std::to_string(last);
  if (group.rank() == last) list[1].extents = shape{4};
  if (last > 0)
    CHECK(said() == "verify_parameters: rank 0 and rank " + r +
                        " have different models: the first difference is at fc.bias: rank 0 has "
                        "float32 [2], rank " +
                        r + " has float32 [4]");
  list.resize(group.rank() == last ? 1 : 2);
  if (last > 0) CHECK(said().find("different numbers of parameters") != std::string::npos);

  for (const ike::dim_t chunk : {1, 7, 100, 1 << 20}) {
    std::vector<double> a(11, group.rank()), b;
    std::vector<std::int32_t> c(3, group.rank() + 1);
    ike::broadcast_coalesced(group, {.bytes = chunk, .src = last}, a, b, c);
    CHECK(a == std::vector<double>(11, last));
    CHECK(c == std::vector<std::int32_t>(3, last + 1));
  }

  // What `replicate` refuses, it refuses on every rank.
  bool refused = false;
  try {
    if (group.rank() == last)
      static_cast<void>(
          ike::replicate(ike::initialize<double, shape{dynamic, 6}>(normed, ike::seed{1}), group));
    else
      static_cast<void>(ike::replicate(ike::initialize<double, rows>(normed, ike::seed{1}), group));
  } catch (const ike::state_error& e) {
    CAPTURE(std::string(e.what()));
    CHECK(std::string(e.what()).find("norm.weight: rank 0 has float64 [5]") != std::string::npos);
    refused = true;
  }
  CHECK(refused == (last > 0));
}

}  // namespace replicate_checks
