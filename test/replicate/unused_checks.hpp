#pragma once

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "ikebana/compose/choose.hpp"
#include "ikebana/compose/parallel.hpp"
#include "ikebana/compose/sequential.hpp"
#include "ikebana/core/error.hpp"
#include "ikebana/model/initialize.hpp"
#include "ikebana/nn/activation.hpp"
#include "ikebana/nn/linear.hpp"
#include "ikebana/nn/loss.hpp"
#include "ikebana/optim/adam.hpp"
#include "ikebana/optim/sgd.hpp"
#include "ikebana/replicate/replicate.hpp"
#include "test/replicate/counting_group.hpp"

// Replicas whose backward leaves parameters out, on every kind of group. All ranks call each
// function.
namespace unused_checks {

namespace ike = ikebana;
using namespace ike::literals;
using ike::shape;

inline constexpr shape in{3, 4};

/// The flat gradients are out, path.b, path.a.fc2, path.a.fc1, in.
inline constexpr auto net = ike::sequential(
    "in"_m = ike::lazy_linear<5>{},
    "path"_m = ike::choose("a"_m = ike::sequential("fc1"_m = ike::lazy_linear<7>{}, ike::tanh{},
                                                   "fc2"_m = ike::lazy_linear<5>{}),
                           "b"_m = ike::lazy_linear<5>{}),
    "out"_m = ike::lazy_linear<2>{});

template <class... Options>
using policy = ike::replicate_policy<ike::bucket_cap<64>, Options...>;
using finding = policy<ike::find_unused_parameters<true>>;

template <class T>
auto fresh() {
  return ike::initialize<T, in>(net, ike::seed{1});
}

template <class T>
auto input(int rank, int step) {
  return ike::uniform<T, in>(ike::seed{static_cast<std::uint64_t>(100 * rank + step)});
}
template <class T>
auto output_gradient(int rank, int step) {
  return ike::uniform<T, shape{3, 2}>(
      ike::seed{static_cast<std::uint64_t>(7000 + 100 * rank + step)});
}

/// One backward of rank `rank` through an alternative, which adds to the gradients.
template <class Net>
void backward(Net& m, int rank, int step, int alternative) {
  using T = typename Net::value_type;
  m.choose("path"_s, alternative);
  const auto x = input<T>(rank, step);
  m(x);
  m.backward(output_gradient<T>(rank, step));
}

/// The sum of all ranks' backwards, one after the other on one model: `chosen(rank)`.
template <class T, class Chosen>
std::vector<T> average(int ranks, int step, const Chosen& chosen) {
  auto m = fresh<T>();
  for (int r = 0; r < ranks; ++r) backward(m, r, step, chosen(r));
  std::vector<T> out(m.gradients().begin(), m.gradients().end());
  for (T& g : out) g /= static_cast<T>(ranks);
  return out;
}

template <class T>
void compare(std::span<const T> got, const std::vector<T>& expected) {
  REQUIRE(got.size() == expected.size());
  double worst = 0;
  for (std::size_t i = 0; i < got.size(); ++i)
    worst =
        std::max(worst, std::abs(static_cast<double>(got[i]) - static_cast<double>(expected[i])));
  CHECK(worst < (sizeof(T) == 4 ? 1e-6 : 1e-13));
}

template <class T>
std::vector<T> all_gradients(std::span<const T> g) {
  return {g.begin(), g.end()};
}

template <class F>
std::string complaint_of(F&& f) {
  try {
    f();
  } catch (const ike::state_error& e) {
    return e.what();
  }
  return "no error";
}

/// ddp_control_flow_same_across_ranks: what no rank uses stays absent, and is untouched.
template <class T, class Group>
void the_same_branch_on_every_rank(Group& group) {
  auto m = ike::replicate<finding>(fresh<T>(), group);
  for (const int alternative : {0, 1, 0}) {
    m.zero_grad();
    backward(m, group.rank(), alternative, alternative);
    CHECK(m.has_gradient("path.a.fc1.weight"_s) == (alternative == 0));
    CHECK(m.has_gradient("path.a.fc2.bias"_s) == (alternative == 0));
    CHECK(m.has_gradient("path.b.weight"_s) == (alternative == 1));
    CHECK(m.ranks_with_gradient("in.weight"_s) == group.size());
    CHECK(m.ranks_with_gradient("path.b.bias"_s) == (alternative == 1 ? group.size() : 0));
    CHECK_FALSE(m.has_rebuilt_buckets());
    compare(std::span<const T>{m.gradients()},
            average<T>(group.size(), alternative, [=](int) { return alternative; }));
  }
}

/// ddp_control_flow_different_across_ranks: a rank that does not use a parameter contributes zero.
template <class T, class Group>
void another_branch_on_each_rank(Group& group) {
  auto m = ike::replicate<finding>(fresh<T>(), group);
  const auto chosen = [](int rank) { return rank == 0 ? 1 : 0; };
  for (int step = 0; step < 3; ++step) {
    m.zero_grad();
    backward(m, group.rank(), step, chosen(group.rank()));
    CHECK(m.has_gradient("path.b.weight"_s));
    CHECK(m.has_gradient("path.a.fc1.weight"_s) == (group.size() > 1));
    CHECK(m.ranks_with_gradient("path.b.weight"_s) == 1);
    CHECK(m.ranks_with_gradient("path.a.fc1.weight"_s) == group.size() - 1);
    compare(std::span<const T>{m.gradients()}, average<T>(group.size(), step, chosen));
  }
}

/// The same without the option: all ranks are notified in that backward, and none waits
/// indefinitely.
template <class T, class Group>
void left_out_without_the_option(Group& group) {
  auto m = ike::replicate<policy<>>(fresh<T>(), group);
  const std::string ranks = std::to_string(group.size());
  const std::string others = std::to_string(group.size() - 1);
  const std::string end =
      "; branches that are chosen at run time, and outputs without a gradient, need "
      "find_unused_parameters<true> or static_graph<true>";
  const auto on = [&](const std::string& count) {
    return " (on " + count + " of " + ranks + " ranks)";
  };
  CHECK(complaint_of([&] { backward(m, group.rank(), 0, 0); }) ==
        "not every rank's backward gives a gradient to path.b.weight" + on("0") + ", path.b.bias" +
            on("0") + end);
  if (group.size() > 1)
    CHECK(complaint_of([&] { backward(m, group.rank(), 1, group.rank() == 0); }) ==
          "not every rank's backward gives a gradient to path.b.weight" + on("1") +
              ", path.b.bias" + on("1") + ", path.a.fc2.weight" + on(others) + ", path.a.fc2.bias" +
              on(others) + ", path.a.fc1.weight" + on(others) + ", path.a.fc1.bias" + on(others) +
              end);
  // All of them can continue.
  m.zero_grad();
  {
    const auto guard = m.no_sync();
    backward(m, group.rank(), 2, 0);
  }
  backward(m, group.rank(), 2, 1);  // What was reached since the last reduction counts.
  CHECK(m.has_gradient("path.b.weight"_s));
  CHECK(m.has_gradient("path.a.fc2.weight"_s));
}

/// grads_same_across_ranks_with_no_sync: usage accumulates with the gradients.
template <class T, class Group>
void usage_accumulates_without_synchronisation(Group& group) {
  auto m = ike::replicate<finding>(fresh<T>(), group);
  auto alone = fresh<T>();
  for (int r = 0; r < group.size(); ++r)
    for (int micro = 0; micro < 3; ++micro) backward(alone, r, micro, micro == 0 && r == 0);
  std::vector<T> expected = all_gradients<T>(std::as_const(alone).gradients());
  for (T& g : expected) g /= static_cast<T>(group.size());
  {
    const auto guard = m.no_sync();
    for (int micro = 0; micro < 2; ++micro)
      backward(m, group.rank(), micro, micro == 0 && group.rank() == 0);
  }
  CHECK(m.has_gradient("path.b.weight"_s) == (group.rank() == 0));
  backward(m, group.rank(), 2, 0);
  CHECK(m.has_gradient("path.b.weight"_s));
  CHECK(m.ranks_with_gradient("path.b.weight"_s) == 1);
  compare(std::span<const T>{m.gradients()}, expected);

  // What no rank has reached since then is untouched: the same bits, though it is present.
  const ike::tensor<T, shape{5, 5}> before{m.gradient("path.b.weight"_s)};
  backward(m, group.rank(), 3, 0);
  CHECK(m.ranks_with_gradient("path.b.weight"_s) == 0);
  CHECK(m.has_gradient("path.b.weight"_s));
  for (ike::dim_t i = 0; i < before.size(); ++i)
    CHECK(m.gradient("path.b.weight"_s)[i] == before[i]);
}

/// Steps with an optimizer: what has no gradient on any rank is skipped, and weights are equal
/// everywhere.
template <class T, class Group>
void steps_of_an_optimizer(Group& group) {
  const auto chosen = [](int rank, int step) {
    return step % 3 == 0 ? 0 : step % 3 == 1 ? 1 : rank % 2;
  };
  auto m = ike::replicate<finding>(fresh<T>(), group);
  ike::adam optimizer{m, {.lr = 0.01, .weight_decay = 0.1}};
  auto alone = fresh<T>();
  ike::adam expected{alone, {.lr = 0.01, .weight_decay = 0.1}};
  for (int step = 0; step < 7; ++step) {
    m.zero_grad();
    backward(m, group.rank(), step, chosen(group.rank(), step));
    optimizer.step();
    alone.zero_grad();
    for (int r = 0; r < group.size(); ++r) backward(alone, r, step, chosen(r, step));
    for (T& g : alone.gradients()) g /= static_cast<T>(group.size());
    expected.step();
  }
  const auto a = m.parameters(), b = alone.parameters();
  double worst = 0;
  for (std::size_t i = 0; i < a.size(); ++i)
    worst = std::max(worst, std::abs(static_cast<double>(a[i] - b[i])));
  CHECK(worst < (sizeof(T) == 4 ? 1e-4 : 1e-10));
  std::vector<T> first(a.begin(), a.end());
  group.broadcast(std::span<T>{first}, 0);
  CHECK(std::vector<T>(a.begin(), a.end()) == first);
}

/// invalid_static_graph: all ranks refuse a graph that changes after the first step.
template <class T, class Group>
void a_static_graph_that_changes(Group& group) {
  auto m = ike::replicate<policy<ike::static_graph<true>>>(fresh<T>(), group);
  for (int step = 0; step < 3; ++step) {
    m.zero_grad();
    backward(m, group.rank(), step, 0);
    CHECK_FALSE(m.has_gradient("path.b.weight"_s));
    compare(std::span<const T>{m.gradients()},
            average<T>(group.size(), step, [](int) { return 0; }));
  }
  m.zero_grad();
  const int last = group.size() - 1;
  CHECK(complaint_of([&] { backward(m, group.rank(), 3, group.rank() == last); }) ==
        "the training graph has changed in this backward: path.b.weight was reached, which it was "
        "not in the first one; static_graph<true> expects every backward to be like the first");
  m.zero_grad();
  backward(m, group.rank(), 4, 0);
  compare(std::span<const T>{m.gradients()}, average<T>(group.size(), 4, [](int) { return 0; }));
}

/// different_graph_across_ranks: buckets are rebuilt under static_graph only, and then what no rank
/// reaches is never sent.
template <class T, class Group>
void buckets_of_a_static_graph(Group& group) {
  auto m = ike::replicate<ike::replicate_policy<ike::static_graph<true>>>(fresh<T>(), group);
  CHECK(m.bucket_plan().size() == 1);
  CHECK_FALSE(m.has_rebuilt_buckets());
  backward(m, group.rank(), 0, 0);
  CHECK(m.has_rebuilt_buckets());
  // out; path.b, which no rank reaches; the rest.
  REQUIRE(m.bucket_plan().size() == 3);
  CHECK(m.bucket_plan().parameters(1).size() == 2);
  CHECK(m.bucket_plan().parameters(1)[0].path.view() == "path.b.weight");
  for (int step = 1; step < 3; ++step) {
    m.zero_grad();
    backward(m, group.rank(), step, 0);
    compare(std::span<const T>{m.gradients()},
            average<T>(group.size(), step, [](int) { return 0; }));
  }

  // Each rank has its own graph, which does not change.
  auto own = ike::replicate<policy<ike::static_graph<true>>>(fresh<T>(), group);
  const auto chosen = [](int rank) { return rank % 2; };
  for (int step = 0; step < 3; ++step) {
    own.zero_grad();
    backward(own, group.rank(), step, chosen(group.rank()));
    compare(std::span<const T>{own.gradients()}, average<T>(group.size(), step, chosen));
  }
  CHECK(own.has_rebuilt_buckets());
}

/// skip_all_reduce_unused_params.
template <class T, class Group>
void buckets_of_nobody_are_skipped(Group& inner) {
  counting_group group(inner);
  auto m = ike::replicate<policy<ike::skip_unused<true>, ike::find_unused_parameters<true>>>(
      fresh<T>(), group);
  // One reduction for the ranks' counts, and one for each bucket with a parameter that any rank
  // reaches.
  const auto reductions = [&](const auto& model, const char* unreached) {
    int count = 1;
    for (std::size_t b = 0; b < model.bucket_plan().size(); ++b) {
      bool any = false;
      for (const auto& p : model.bucket_plan().parameters(b))
        any = any || !p.path.view().starts_with(unreached);
      count += any;
    }
    return count;
  };
  CHECK(reductions(m, "path.a") < reductions(m, "nothing"));
  CHECK(reductions(m, "path.b") < reductions(m, "nothing"));
  for (int step = 0; step < 4; ++step) {
    const auto chosen = [=](int rank) { return step == 3 ? rank % 2 : step % 2; };
    m.zero_grad();
    static_cast<void>(group.take());
    backward(m, group.rank(), step, chosen(group.rank()));
    CHECK(group.take().all_reduces == reductions(m, step == 3 && group.size() > 1 ? "nothing"
                                                    : step % 2 == 0 || step == 3  ? "path.b"
                                                                                  : "path.a"));
    compare(std::span<const T>{m.gradients()}, average<T>(group.size(), step, chosen));
    CHECK(m.has_gradient("path.b.weight"_s) == (step == 1 || (step == 3 && group.size() > 1)));
  }
  auto agreeing = ike::replicate<policy<ike::skip_unused<true>>>(fresh<T>(), group);
  for (int step = 0; step < 2; ++step) {
    agreeing.zero_grad();
    static_cast<void>(group.take());
    backward(agreeing, group.rank(), step, step);
    CHECK(group.take().all_reduces == reductions(agreeing, step == 0 ? "path.b" : "path.a"));
    compare(std::span<const T>{agreeing.gradients()},
            average<T>(group.size(), step, [=](int) { return step; }));
  }
  if (group.size() == 1) return;
  agreeing.zero_grad();
  const std::string complaint =
      complaint_of([&] { backward(agreeing, group.rank(), 2, group.rank() == 0); });
  CHECK(
      complaint.starts_with("skip_unused: not every rank's backward would give a gradient to "
                            "path.b.weight (on 1 of "));
  for (const T g : agreeing.gradients()) CHECK(g == T{0});
}

inline constexpr auto two_outputs = ike::sequential(
    "in"_m = ike::lazy_linear<4>{},
    "both"_m = ike::parallel("left"_m = ike::lazy_linear<2>{}, "right"_m = ike::lazy_linear<2>{}));

/// output_unused_in_loss: None stays None.
template <class T, class Group>
void an_output_that_no_loss_uses(Group& group) {
  const auto make = [] { return ike::initialize<T, in>(two_outputs, ike::seed{1}); };
  auto m = ike::replicate<finding>(make(), group);
  auto alone = make();
  for (int step = 0; step < 2; ++step) {
    m.zero_grad();
    const auto x = input<T>(group.rank(), step);
    m(x);
    m.backward(std::tuple(output_gradient<T>(group.rank(), step), ike::no_gradient));
    CHECK(m.has_gradient("both.left.weight"_s));
    CHECK_FALSE(m.has_gradient("both.right.weight"_s));
    CHECK_FALSE(m.has_gradient("both.right.bias"_s));
    alone.zero_grad();
    for (int r = 0; r < group.size(); ++r) {
      const auto own = input<T>(r, step);
      alone(own);
      alone.backward(std::tuple(output_gradient<T>(r, step), ike::no_gradient));
    }
    std::vector<T> expected = all_gradients<T>(std::as_const(alone).gradients());
    for (T& g : expected) g /= static_cast<T>(group.size());
    compare(std::span<const T>{m.gradients()}, expected);
  }
}

/// undefined_grad_parity_unused_parameters: an output that only some ranks' losses use.
template <class T, class Group>
void an_output_that_some_losses_use(Group& group) {
  const auto make = [] { return ike::initialize<T, in>(two_outputs, ike::seed{1}); };
  auto m = ike::replicate<finding>(make(), group);
  auto alone = make();
  const auto run = [](auto& each, int rank) {
    const auto x = input<T>(rank, 0);
    each(x);
    if (rank % 2 == 0)
      each.backward(std::tuple(output_gradient<T>(rank, 0), ike::no_gradient));
    else
      each.backward(std::tuple(ike::no_gradient, output_gradient<T>(rank, 0)));
  };
  for (int r = 0; r < group.size(); ++r) run(alone, r);
  std::vector<T> expected = all_gradients<T>(std::as_const(alone).gradients());
  for (T& g : expected) g /= static_cast<T>(group.size());
  run(m, group.rank());
  CHECK(m.has_gradient("both.left.weight"_s));
  CHECK(m.has_gradient("both.right.weight"_s) == (group.size() > 1));
  compare(std::span<const T>{m.gradients()}, expected);
}

/// Steps of an optimizer; with Kind 1, all have the same graph.
template <int Kind, class Net, class Optimizer, class Group, class X, class Y>
void train(Net& m, Optimizer& optimizer, Group& group, const X& x, const Y& y) {
  for (int step = 0; step < 9; ++step) {
    m.choose("path"_s, Kind == 1 ? 0 : step % 3 == 0 ? group.rank() % 2 : step % 2);
    m.train_step(x, y, ike::mse_loss{}, optimizer);
    m.loss_backward(x, y, ike::mse_loss{});
  }
}

template <class T, class Group>
void all(Group& group) {
  the_same_branch_on_every_rank<T>(group);
  another_branch_on_each_rank<T>(group);
  left_out_without_the_option<T>(group);
  usage_accumulates_without_synchronisation<T>(group);
  steps_of_an_optimizer<T>(group);
  a_static_graph_that_changes<T>(group);
  buckets_of_a_static_graph<T>(group);
  buckets_of_nobody_are_skipped<T>(group);
  an_output_that_no_loss_uses<T>(group);
  an_output_that_some_losses_use<T>(group);
}

}  // namespace unused_checks
