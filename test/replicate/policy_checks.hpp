#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "ikebana/compose/sequential.hpp"
#include "ikebana/core/tensor.hpp"
#include "ikebana/model/initialize.hpp"
#include "ikebana/nn/activation.hpp"
#include "ikebana/nn/batch_norm.hpp"
#include "ikebana/nn/flatten.hpp"
#include "ikebana/nn/linear.hpp"
#include "ikebana/nn/loss.hpp"
#include "ikebana/nn/rms_norm.hpp"
#include "ikebana/replicate/powersgd.hpp"
#include "ikebana/replicate/replicate.hpp"
#include "test/replicate/counting_group.hpp"

// A policy's options on every kind of group. All ranks call each function, which returns the number
// of failures on this rank: 0.
namespace policy_checks {

namespace ike = ikebana;
using namespace ike::literals;
using ike::dynamic;
using ike::shape;

inline constexpr shape rows{dynamic, 7};
inline constexpr auto net = ike::sequential(
    "fc1"_m = ike::lazy_linear<9>{}, "act"_m = ike::rms_norm<shape{9}>{},
    "fc2"_m = ike::lazy_linear<11>{}, "tanh"_m = ike::tanh{}, "fc3"_m = ike::lazy_linear<5>{});

template <class T>
auto made(std::uint64_t seed = 1) {
  return ike::initialize<T, rows>(net, ike::seed{seed});
}

/// Adds the gradients of this rank's data of a step.
template <class Model>
void accumulate(Model& m, int rank, int step = 0) {
  using T = typename Model::value_type;
  const auto part = static_cast<std::uint64_t>(100 * step + rank);
  m.loss_backward(ike::uniform<T, rows>(ike::seed{part}, 3),
                  ike::uniform<T, shape{dynamic, 5}>(ike::seed{7000 + part}, 3), ike::mse_loss{});
}

/// Whether all ranks have the same values.
template <class T, class Group>
bool agree(Group& group, std::span<const T> mine) {
  std::vector<T> low(mine.begin(), mine.end()), high = low;
  group.all_reduce(std::span<T>(low), ike::reduce_op::min);
  group.all_reduce(std::span<T>(high), ike::reduce_op::max);
  return low == high;
}

template <class View>
auto values(const View& v) {
  return std::span<const typename View::value_type>(v.data(), static_cast<std::size_t>(v.size()));
}

/// Whether these are sum / divisor over the ranks of each rank's `own`.
template <class A, class B, class Group>
bool are_sums(Group& group, const A& gradients, const B& own, double divisor, double tolerance) {
  using T = typename A::value_type;
  const auto got = std::span<const T>(gradients.data(), static_cast<std::size_t>(gradients.size()));
  std::vector<double> sum(own.data(), own.data() + own.size());
  group.all_reduce(std::span<double>(sum), ike::reduce_op::sum);
  double largest = 0, worst = 0;
  for (std::size_t i = 0; i < sum.size(); ++i) {
    largest = std::max(largest, std::fabs(sum[i] / divisor));
    worst = std::max(worst, std::fabs(static_cast<double>(got[i]) - sum[i] / divisor));
  }
  return worst <= tolerance * largest && largest > 0;
}

constexpr bool is_middle(std::string_view path) { return path == "fc2"; }

/// PyTorch's replicate_ignore_module: gradients of ignored parameters differ across ranks, those of
/// the rest are averages; likewise for initial values. Ignored parameters close buckets.
template <class Policy, class Group>
int ignore_module(Group& group) {
  using T = double;
  int failures = 0;
  const auto rank = static_cast<std::uint64_t>(group.rank());
  auto model = ike::replicate<Policy>(made<T>(1 + rank), group);
  failures += agree<T>(group, values(model["fc2.weight"_s])) != (group.size() == 1);
  failures += !agree<T>(group, values(model["fc1.weight"_s]));
  failures += !agree<T>(group, values(model["fc3.bias"_s]));
  auto plain = made<T>();
  std::ranges::copy(model.parameters(), plain.parameters().begin());
  accumulate(model, group.rank());
  accumulate(plain, group.rank());
  failures += model.bucket_plan().size() != 2;
  failures += !std::ranges::equal(values(model.gradient("fc2.weight"_s)),
                                  values(plain.gradient("fc2.weight"_s)));
  failures += agree<T>(group, values(model.gradient("fc2.bias"_s))) != (group.size() == 1);
  const double n = group.size();
  failures +=
      !are_sums(group, model.gradient("fc1.weight"_s), plain.gradient("fc1.weight"_s), n, 1e-14);
  failures +=
      !are_sums(group, model.gradient("act.weight"_s), plain.gradient("act.weight"_s), n, 1e-14);
  failures +=
      !are_sums(group, model.gradient("fc3.bias"_s), plain.gradient("fc3.bias"_s), n, 1e-14);
  return failures;
}

/// Delayed parameters are averaged in one separate reduction, whatever the hook does with the rest.
template <class Group>
int delay(Group& inner) {
  counting_group group(inner);
  using policy = ike::replicate_policy<ike::delay_all_reduce<"fc3.bias", "fc1.weight", "act">,
                                       ike::comm_hook<ike::noop_hook>>;
  int failures = 0;
  auto model = ike::replicate<policy>(made<double>(), group);
  auto plain = made<double>();
  static_cast<void>(group.take());
  const double n = group.size();
  for (int step = 0; step < 2; ++step) {
    {
      const auto guard = model.no_sync();
      accumulate(model, group.rank(), 2 * step);
      failures += group.take().all_reduces != 0;
    }
    accumulate(model, group.rank(), 2 * step + 1);
    failures += group.take().all_reduces != 1;
    accumulate(plain, group.rank(), 2 * step);
    accumulate(plain, group.rank(), 2 * step + 1);
    const auto reduced = [&](auto path) {
      return are_sums(inner, model.gradient(path), plain.gradient(path), n, 1e-14);
    };
    failures += !reduced("fc3.bias"_s) + !reduced("fc1.weight"_s) + !reduced("act.weight"_s);
    const auto own = values(model.gradient("fc2.weight"_s));
    failures += !std::ranges::equal(own, values(plain.gradient("fc2.weight"_s)));
  }
  return failures;
}

/// Sum / 3 whatever the number of ranks, also of what was reduced before; changed at run time.
template <class Policy, class T, class Group>
int divide_factor(Group& group, double factor, double tolerance) {
  int failures = 0;
  auto before = made<T>(), plain = made<T>();
  // Gradients from before the replica count as those of the first backward do.
  accumulate(before, group.rank(), 5);
  accumulate(plain, group.rank(), 5);
  auto model = ike::replicate<Policy>(std::move(before), group);
  const auto matches = [&](double divisor) {
    return are_sums(group, std::as_const(model).gradients(), std::as_const(plain).gradients(),
                    divisor, tolerance);
  };
  accumulate(model, group.rank(), 0);
  accumulate(plain, group.rank(), 0);
  failures += !matches(factor);
  // Adds to existing averages: reduced, then own, then reduced.
  accumulate(model, group.rank(), 1);
  {
    const auto guard = model.no_sync();
    accumulate(model, group.rank(), 2);
  }
  accumulate(model, group.rank(), 3);
  for (int step = 1; step < 4; ++step) accumulate(plain, group.rank(), step);
  failures += !matches(factor);
  for (const double set : {7.0, 3.0, 0.25}) {
    model.zero_grad();
    plain.zero_grad();
    model.set_gradient_divide_factor(set);
    accumulate(model, group.rank(), 4);
    accumulate(plain, group.rank(), 4);
    failures += !matches(set);
  }
  return failures;
}

/// Another hook, cap, divisor and flag for one module, and another for a part of it.
template <class Group>
int overrides(Group& inner) {
  counting_group group(inner);
  using policy = ike::replicate_policy<
      ike::override_at<"fc2", ike::comm_hook<ike::noop_hook>, ike::bucket_cap<1>>,
      ike::override_at<"fc2.bias", ike::comm_hook<ike::all_reduce_hook>,
                       ike::gradient_divide_factor<1, 2>>,
      ike::override_at<"fc3", ike::requires_gradient_sync<false>>, ike::gradient_divide_factor<5>>;
  int failures = 0;
  auto model = ike::replicate<policy>(made<double>(), group);
  auto plain = made<double>();
  static_cast<void>(group.take());
  accumulate(model, group.rank());
  accumulate(plain, group.rank());
  failures += group.take().all_reduces != 2;  // fc2.bias, and fc1 with act.
  const auto is_own = [&](auto path) {
    return std::ranges::equal(values(model.gradient(path)), values(plain.gradient(path)));
  };
  const auto is_sum = [&](auto path, double divisor) {
    return are_sums(inner, model.gradient(path), plain.gradient(path), divisor, 1e-14);
  };
  failures += !is_own("fc2.weight"_s) + !is_own("fc3.weight"_s);
  failures += !is_sum("fc2.bias"_s, 0.5) + !is_sum("fc1.weight"_s, 5) + !is_sum("act.weight"_s, 5);
  model.set_requires_gradient_sync("fc3"_s, true);
  accumulate(model, group.rank(), 1);
  accumulate(plain, group.rank(), 1);
  failures += group.take().all_reduces != 3;
  failures += !is_own("fc2.weight"_s) + !is_sum("fc3.weight"_s, 5) + !is_sum("fc3.bias"_s, 5);
  failures += !is_sum("fc2.bias"_s, 0.5) + !is_sum("fc1.weight"_s, 5);
  // At run time, by path: for one group, then for all groups below a module.
  model.zero_grad();
  plain.zero_grad();
  model.set_gradient_divide_factor("fc3"_s, 3);
  accumulate(model, group.rank(), 2);
  accumulate(plain, group.rank(), 2);
  failures += !is_sum("fc3.weight"_s, 3) + !is_sum("fc3.bias"_s, 3);
  failures += !is_sum("fc2.bias"_s, 0.5) + !is_sum("fc1.weight"_s, 5);
  model.zero_grad();
  plain.zero_grad();
  model.set_gradient_divide_factor("fc2"_s, 7);
  accumulate(model, group.rank(), 3);
  accumulate(plain, group.rank(), 3);
  failures += !is_sum("fc2.bias"_s, 7) + !is_sum("fc3.bias"_s, 3) + !is_sum("fc1.weight"_s, 5);
  return failures;
}

/// A hook of two stages for one module among hooks of one.
template <class Group>
int staged_override(Group& group) {
  using policy = ike::replicate_policy<ike::bucket_cap<1>,
                                       ike::override_at<"fc2", ike::comm_hook<ike::powersgd>>>;
  int failures = 0;
  auto model = ike::replicate<policy>(made<double>(), group);
  auto plain = made<double>();
  for (int step = 0; step < 3; ++step) {
    accumulate(model, group.rank(), step);
    plain.zero_grad();
    accumulate(plain, group.rank(), step);
    const double n = group.size();
    const auto averaged = [&](auto path) {
      return are_sums(group, model.gradient(path), plain.gradient(path), n, 1e-14);
    };
    failures += !averaged("fc1.weight"_s) + !averaged("fc2.bias"_s) + !averaged("fc3.weight"_s);
    failures += !agree<double>(group, values(model.gradient("fc2.weight"_s)));
    failures += model.hook("fc2"_s).iteration() != step + 1;
    model.zero_grad();
  }
  failures += !(model.hook("fc2"_s).compression().rate() > 1.5);
  return failures;
}

/// Sums of float gradients in double: many small backwards come closer to the sum than in float.
template <class Group>
int wide_accumulation(Group& group) {
  using policy = ike::replicate_policy<ike::gradient_accumulation<double>>;
  int failures = 0;
  auto model = ike::replicate<policy>(made<float>(), group);
  auto one = made<float>();
  std::vector<double> sum(model.gradients().size());
  for (int round = 0; round < 2; ++round) {
    const int batches = 60;
    for (int m = 0; m < batches; ++m) {
      model.set_requires_gradient_sync(m + 1 == batches);
      accumulate(model, group.rank(), m);
      one.zero_grad();
      accumulate(one, group.rank(), m);
      for (std::size_t i = 0; i < sum.size(); ++i)
        sum[i] += static_cast<double>(one.gradients()[i]);
      if (m + 1 < batches)
        for (std::size_t i = 0; i < sum.size(); ++i)
          failures += model.gradients()[i] != static_cast<float>(sum[i]);
    }
    // Each rank rounds once, and so does the average.
    failures += !are_sums(group, std::as_const(model).gradients(), std::span<const double>(sum),
                          group.size(), 1.5e-7);
    model.zero_grad();
    std::ranges::fill(sum, 0.0);
  }
  return failures;
}

inline constexpr shape images{dynamic, 2, 3, 3};
inline constexpr auto normed =
    ike::sequential("norm"_m = ike::lazy_batch_norm2d<>{}, "flatten"_m = ike::flatten{},
                    "fc"_m = ike::lazy_linear<5>{});

/// A buffer hook instead of the broadcast: running means become those of all ranks, before the next
/// forward in training or after backward, no more often than gradients are synchronised.
template <ike::buffer_hook_location Where, class Group>
int buffer_hook(Group& inner) {
  counting_group group(inner);
  using policy = ike::replicate_policy<ike::buffer_comm_hook<ike::average_buffers, Where>>;
  constexpr bool before = Where == ike::buffer_hook_location::before_forward;
  int failures = 0;
  auto model = ike::replicate<policy>(ike::initialize<double, images>(normed, ike::seed{1}), group);
  auto plain = ike::initialize<double, images>(normed, ike::seed{1});
  const auto x =
      ike::uniform<double, images>(ike::seed{static_cast<std::uint64_t>(group.rank())}, 4);
  const auto g = ike::ones<double, shape{dynamic, 5}>(4);
  static_cast<void>(group.take());
  model(x);
  plain(x);
  model.backward(g);
  failures += group.take().all_reduces != (before ? 1 : 3);
  if (before) {
    model.eval();
    model(x);
    failures += group.take().all_reduces != 0;
    failures += !std::ranges::equal(values(model.buffer("norm.running_mean"_s)),
                                    values(plain.buffer("norm.running_mean"_s)));
    model.train();
    model(x);
    failures += group.take().all_reduces != 2;
  } else {
    failures += !are_sums(inner, model.buffer("norm.running_mean"_s),
                          plain.buffer("norm.running_mean"_s), group.size(), 1e-14);
    const auto guard = model.no_sync();
    model(x);
    model.backward(g);
    failures += group.take().all_reduces != 0;
  }
  return failures;
}

/// An ignored module's buffers stay local to its rank.
template <class Group>
int ignored_buffers(Group& group) {
  int failures = 0;
  auto model = ike::replicate<ike::replicate_policy<ike::ignored<"norm.running_var">>>(
      ike::initialize<double, images>(normed, ike::seed{1}), group);
  const auto x =
      ike::uniform<double, images>(ike::seed{static_cast<std::uint64_t>(group.rank())}, 4);
  model(x);
  model.backward(ike::ones<double, shape{dynamic, 5}>(4));
  failures +=
      agree<double>(group, values(model.buffer("norm.running_var"_s))) != (group.size() == 1);
  failures += !agree<double>(group, values(model.buffer("norm.running_mean"_s)));
  return failures;
}

}  // namespace policy_checks
