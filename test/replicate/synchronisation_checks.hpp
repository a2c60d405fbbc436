#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "ikebana/compose/graph.hpp"
#include "ikebana/compose/sequential.hpp"
#include "ikebana/core/tensor.hpp"
#include "ikebana/model/initialize.hpp"
#include "ikebana/nn/activation.hpp"
#include "ikebana/nn/linear.hpp"
#include "ikebana/nn/loss.hpp"
#include "ikebana/optim/sgd.hpp"
#include "ikebana/replicate/replicate.hpp"
#include "test/replicate/counting_group.hpp"

// Gradient synchronisation on every kind of group. All ranks call each function, which returns the
// number of failures on this rank: 0.
namespace synchronisation_checks {

namespace ike = ikebana;
using namespace ike::literals;
using ike::dynamic;
using ike::shape;

inline constexpr shape rows{dynamic, 7};

/// Three blocks and the rest for the root, all of odd sizes.
inline constexpr auto block =
    ike::sequential("up"_m = ike::lazy_linear<13>{}, ike::tanh{}, "down"_m = ike::lazy_linear<7>{});
inline constexpr auto blocks =
    ike::sequential("in"_m = ike::lazy_linear<7>{}, "mlp1"_m = block, "mlp2"_m = block,
                    "mlp3"_m = block, "out"_m = ike::lazy_linear<5>{});
/// One module that runs twice.
inline constexpr auto shared = ike::graph([](auto x) {
  const auto h = "mlp"_m(block, ike::tanh{}("mlp"_m(block, x)));
  return "out"_m(ike::lazy_linear<5>{}, h);
});

using by_block = ike::groups_by_module<"mlp1", "mlp2", "mlp3">;

/// The data of one rank: different at each step.
template <class T>
auto inputs(int rank, int step) {
  return ike::uniform<T, rows>(ike::seed{static_cast<std::uint64_t>(100 * step + rank)}, 3);
}
template <class T>
auto targets(int rank, int step) {
  return ike::uniform<T, shape{dynamic, 5}>(
      ike::seed{static_cast<std::uint64_t>(7000 + 100 * step + rank)}, 3);
}

/// Adds the gradients of a step to a model's.
template <class T, class Model>
void accumulate(Model& m, int rank, int step) {
  m.loss_backward(inputs<T>(rank, step), targets<T>(rank, step), ike::mse_loss{});
}

/// Whether gradients are sum/divisor of those of all ranks' plain models, to a few ulp of the
/// largest.
template <class T, class Group>
bool are_sums(Group& group, std::span<const T> gradients, const std::vector<T>& own,
              double divisor) {
  std::vector<T> sum = own;
  group.all_reduce(std::span<T>(sum), ike::reduce_op::sum);
  double largest = 0, worst = 0;
  for (std::size_t i = 0; i < sum.size(); ++i) {
    const double expected = static_cast<double>(sum[i]) / divisor;
    largest = std::max(largest, std::fabs(expected));
    worst = std::max(worst, std::fabs(static_cast<double>(gradients[i]) - expected));
  }
  return worst <= largest * (sizeof(T) == 4 ? 2e-6 : 1e-14) && largest > 0;
}

template <class T>
std::vector<T> copied(std::span<T> s) {
  return {s.begin(), s.end()};
}

enum class flags { all, root_only, some_mlps };

/// PyTorch's test_gradient_accumulation: 3 microbatches, of which the groups `which` reduce only
/// the last. Exact numbers of reductions; parity with the average of the sums; the optimizer steps
/// before zero_grad.
template <class T, class Group>
int gradient_accumulation(Group& inner, flags which) {
  constexpr int microbatches = 3, steps = 3;
  counting_group group(inner);
  int failures = 0;
  const auto made = ike::initialize<T, rows>(blocks, ike::seed{1});
  auto model = ike::replicate<ike::replicate_policy<by_block, ike::broadcast_buffers<false>>>(
      made.clone(), group);
  auto plain = made.clone();
  ike::sgd optimizer{model, {.lr = 0.1}}, plain_optimizer{plain, {.lr = 0.1}};
  static_cast<void>(group.take());
  for (int step = 0; step < steps; ++step) {
    for (int m = 0; m < microbatches; ++m) {
      const bool last = m + 1 == microbatches;
      int expected = 5;  // 4 groups; the blocks in between cut the root's in two.
      if (which == flags::all) {
        model.set_requires_gradient_sync(last);
        expected = last ? 5 : 0;
      } else if (which == flags::root_only) {
        model.set_requires_gradient_sync(last, false);
        expected = last ? 5 : 3;
      } else {
        model.set_requires_gradient_sync("mlp1"_s, last);
        model.set_requires_gradient_sync("mlp2"_s, last, false);
        expected = last ? 5 : 3;
      }
      accumulate<T>(model, group.rank(), microbatches * step + m);
      failures += group.take().all_reduces != expected;
      accumulate<T>(plain, group.rank(), microbatches * step + m);
    }
    failures += !are_sums<T>(inner, std::as_const(model).gradients(), copied(plain.gradients()),
                             group.size());
    optimizer.step();
    // The plain models also step by the average.
    inner.all_reduce(plain.gradients(), ike::reduce_op::avg);
    plain_optimizer.step();
    for (std::size_t i = 0; i < plain.parameters().size(); ++i)
      failures += std::fabs(static_cast<double>(plain.parameters()[i] - model.parameters()[i])) >
                  (sizeof(T) == 4 ? 1e-5 : 1e-13);
    model.zero_grad();
    plain.zero_grad();
  }
  return failures;
}

/// PyTorch's test_1f1b_microbatching: only the last backward waits, and reduces either only itself
/// or everything before it as well.
template <class T, class Group>
int microbatching(Group& inner, bool reduce_each) {
  counting_group group(inner);
  int failures = 0;
  const auto made = ike::initialize<T, rows>(blocks, ike::seed{1});
  auto model = ike::replicate<ike::replicate_policy<by_block>>(made.clone(), group);
  auto plain = made.clone();
  static_cast<void>(group.take());
  for (int step = 0; step < 2; ++step) {
    for (int m = 0; m < 3; ++m) {
      const bool last = m == 2;
      model.set_requires_gradient_sync(last || reduce_each);
      model.set_is_last_backward(last);
      accumulate<T>(model, group.rank(), 3 * step + m);
      failures += group.take().all_reduces != (last || reduce_each ? 5 : 0);
      accumulate<T>(plain, group.rank(), 3 * step + m);
    }
    failures += !are_sums<T>(inner, std::as_const(model).gradients(), copied(plain.gradients()),
                             group.size());
    model.zero_grad();
    plain.zero_grad();
  }
  // What is left in flight is waited for where requested.
  model.set_is_last_backward(false);
  accumulate<T>(model, group.rank(), 9);
  accumulate<T>(plain, group.rank(), 9);
  model.wait_for_gradients();
  failures += !are_sums<T>(inner, std::as_const(model).gradients(), copied(plain.gradients()),
                           group.size());
  accumulate<T>(model, group.rank(), 10);
  auto moved = std::move(model);
  moved.zero_grad();
  for (const T g : moved.gradients()) failures += g != 0;
  return failures;
}

/// PyTorch's multi_groups and multi_forward_module: whatever the groups are, replicas train like
/// one model with the averages; a module that runs twice is reduced once.
template <class T, class Policy, class Group, class Net>
int train_parity(Group& group, const Net& net) {
  int failures = 0;
  const auto made = ike::initialize<T, rows>(net, ike::seed{1});
  auto model = ike::replicate<Policy>(made.clone(), group);
  auto plain = made.clone();
  ike::sgd optimizer{model, {.lr = 0.05, .momentum = 0.9}};
  ike::sgd plain_optimizer{plain, {.lr = 0.05, .momentum = 0.9}};
  for (int step = 0; step < 10; ++step) {
    model.train_step(inputs<T>(group.rank(), step), targets<T>(group.rank(), step), ike::mse_loss{},
                     optimizer);
    plain.zero_grad();
    accumulate<T>(plain, group.rank(), step);
    failures += !are_sums<T>(group, std::as_const(model).gradients(), copied(plain.gradients()),
                             group.size());
    group.all_reduce(plain.gradients(), ike::reduce_op::avg);
    plain_optimizer.step();
    for (std::size_t i = 0; i < plain.parameters().size(); ++i)
      plain.parameters()[i] = model.parameters()[i];  // So that rounding errors do not grow.
  }
  return failures;
}

}  // namespace synchronisation_checks
