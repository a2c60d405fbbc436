#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <span>
#include <vector>

#include "ikebana/replicate/launch.hpp"
#include "ikebana/replicate/powersgd.hpp"
#include "ikebana/replicate/unused.hpp"
#include "test/replicate/on_threads.hpp"
#include "test/replicate/unused_checks.hpp"

// Parameters that a backward leaves out, with the other options of a policy.

namespace ike = ikebana;
using namespace ike::literals;
using ike::threads;
using unused_checks::fresh, unused_checks::policy;

namespace {

int chosen(int rank, int step) { return step % 3 == 0 ? 0 : step % 3 == 1 ? 1 : rank % 2; }

template <class T>
double distance(std::span<const T> a, std::span<const T> b) {
  double worst = 0;
  for (std::size_t i = 0; i < a.size(); ++i)
    worst = std::max(worst, std::abs(static_cast<double>(a[i]) - static_cast<double>(b[i])));
  return worst;
}

/// One model that takes two micro-batches of every rank per step.
template <class T, class Chosen>
std::vector<T> trained_alone(int ranks, int steps, const Chosen& which) {
  auto m = fresh<T>();
  ike::adam optimizer{m, {.lr = 0.01, .weight_decay = 0.1}};
  for (int step = 0; step < steps; ++step) {
    m.zero_grad();
    for (int r = 0; r < ranks; ++r)
      for (int micro = 0; micro < 2; ++micro)
        unused_checks::backward(m, r, 2 * step + micro, which(r, step + micro));
    for (T& g : m.gradients()) g /= static_cast<T>(ranks);
    optimizer.step();
  }
  return {m.parameters().begin(), m.parameters().end()};
}

template <class Policy, class T, class Chosen, class... Hook>
void trains_as_one(ike::thread_group& group, double tolerance, const Chosen& which, Hook... hook) {
  constexpr int steps = 6;
  auto m = ike::replicate<Policy>(fresh<T>(), group, hook...);
  ike::adam optimizer{m, {.lr = 0.01, .weight_decay = 0.1}};
  for (int step = 0; step < steps; ++step) {
    m.zero_grad();
    {
      const auto guard = m.no_sync();
      unused_checks::backward(m, group.rank(), 2 * step, which(group.rank(), step));
    }
    unused_checks::backward(m, group.rank(), 2 * step + 1, which(group.rank(), step + 1));
    m.step(optimizer);
  }
  const auto expected = trained_alone<T>(group.size(), steps, which);
  CHECK(distance(std::span<const T>{m.parameters()}, std::span<const T>{expected}) < tolerance);
}

}  // namespace

TEST_CASE("accumulation, groups, delays and shards of the optimizer go with branches") {
  on_threads([](ike::thread_group& group) {
    using finds = ike::find_unused_parameters<true>;
    trains_as_one<policy<finds>, double>(group, 1e-10, chosen);
    trains_as_one<policy<finds, ike::gradient_accumulation<double>>, float>(group, 1e-4, chosen);
    trains_as_one<policy<finds, ike::delay_all_reduce<"path.b", "in">>, double>(group, 1e-10,
                                                                                chosen);
    trains_as_one<ike::replicate_policy<finds, ike::groups_by_module<"path.a", "path.b">>, double>(
        group, 1e-10, chosen);
    trains_as_one<policy<finds, ike::shard_optimizer<true>>, double>(group, 1e-10, chosen);
    trains_as_one<policy<finds, ike::skip_unused<true>>, double>(group, 1e-10, chosen);
    trains_as_one<policy<finds, ike::skip_unused<true>, ike::shard_optimizer<true>>, double>(
        group, 1e-10, chosen);
  });
}

TEST_CASE("a static graph goes with shards of the optimizer and with groups") {
  on_threads([](ike::thread_group& group) {
    using is_static = ike::static_graph<true>;
    const auto same = [](int rank, int) { return rank == 0 ? 1 : 0; };
    const auto only_b = [](int, int) { return 1; };
    trains_as_one<policy<is_static>, double>(group, 1e-10, same);
    trains_as_one<policy<is_static>, double>(group, 1e-10, only_b);
    trains_as_one<policy<is_static, ike::shard_optimizer<true>>, double>(group, 1e-10, only_b);
    trains_as_one<ike::replicate_policy<is_static, ike::groups_by_module<"path.a", "path.b">>,
                  double>(group, 1e-10, only_b);
  });
}

TEST_CASE("micro-batches whose reductions are not waited for") {
  on_threads([](ike::thread_group& group) {
    using T = double;
    auto m = ike::replicate<unused_checks::finding>(fresh<T>(), group);
    std::vector<T> expected(m.gradients().size());
    for (int micro = 0; micro < 4; ++micro) {
      m.set_is_last_backward(micro == 3);
      const auto which = [=](int rank) { return micro == 2 && rank == 0 ? 1 : 0; };
      unused_checks::backward(m, group.rank(), micro, which(group.rank()));
      const auto one = unused_checks::average<T>(group.size(), micro, which);
      for (std::size_t i = 0; i < expected.size(); ++i) expected[i] += one[i];
    }
    CHECK(m.has_gradient("path.b.weight"_s));
    CHECK(distance(std::span<const T>{m.gradients()}, std::span<const T>{expected}) < 1e-12);
  });
}

TEST_CASE("what a policy ignores is nobody else's business") {
  on_threads([](ike::thread_group& group) {
    auto m = ike::replicate<policy<ike::ignored<"path">>>(fresh<double>(), group);
    unused_checks::backward(m, group.rank(), 0, group.rank() % 2);
    CHECK(m.has_gradient("path.b.weight"_s) == (group.rank() % 2 == 1));
    CHECK(m.has_gradient("in.weight"_s));
  });
}

TEST_CASE("a rank without batches reaches nothing, and gets what the others reach") {
  on_threads([](ike::thread_group& group) {
    const auto run = [&](auto m, auto which) {
      ike::sgd optimizer{m, {.lr = 0.1, .momentum = 0.9}};
      m.join(optimizer, [&] {
        for (int step = 0; step < 2 + group.rank(); ++step) {
          m.zero_grad();
          unused_checks::backward(m, group.rank(), step, which(step));
          m.step(optimizer);
        }
      });
      std::vector<double> first(m.parameters().begin(), m.parameters().end());
      group.broadcast(std::span<double>{first}, 0);
      CHECK(distance(std::span<const double>{m.parameters()}, std::span<const double>{first}) == 0);
    };
    run(ike::replicate<unused_checks::finding>(fresh<double>(), group),
        [](int s) { return s % 2; });
    run(ike::replicate<policy<ike::static_graph<true>>>(fresh<double>(), group),
        [](int) { return 1; });
  });
}

TEST_CASE("a hook that mixes the elements of a bucket leaves what nobody reached at zero") {
  on_threads([](ike::thread_group& group) {
    auto m = ike::replicate<
        ike::replicate_policy<ike::find_unused_parameters<true>, ike::comm_hook<ike::powersgd>>>(
        fresh<double>(), group, ike::powersgd{{.start_iteration = 2, .min_compression_rate = 0.1}});
    for (int step = 0; step < 6; ++step) {
      m.zero_grad();
      unused_checks::backward(m, group.rank(), step, step % 2);
      for (ike::dim_t i = 0; i < 25 && step % 2 == 0; ++i)
        CHECK(m.gradient("path.b.weight"_s)[i] == 0);
    }
  });
}

TEST_CASE("layer drop by rank") {
  on_threads([](ike::thread_group& group) {
    auto m = ike::replicate<unused_checks::finding>(fresh<double>(), group);
    m.choose("path"_s, ike::layer_drop{.p = 0.5});
    ike::sgd optimizer{m, {.lr = 0.1}};
    const auto x = unused_checks::input<double>(group.rank(), 0);
    const auto y = unused_checks::output_gradient<double>(group.rank(), 0);
    int differences = 0;
    for (int step = 0; step < 20; ++step) {
      m.train_step(x, y, ike::mse_loss{}, optimizer);
      const int n = m.ranks_with_gradient("path.b.weight"_s);
      differences += n != 0 && n != group.size();
    }
    CHECK((differences > 0) == (group.size() > 1));
  });
}
