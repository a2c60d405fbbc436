#include <doctest/doctest.h>

#include <vector>

#include "ikebana/nn/loss.hpp"
#include "ikebana/optim/sgd.hpp"
#include "ikebana/replicate/launch.hpp"
#include "test/replicate/on_threads.hpp"
#include "test/replicate/sparse_checks.hpp"
#include "test/support/count_allocations.hpp"

namespace ike = ikebana;

TEST_CASE("replicas with rows as gradients train as those with dense gradients") {
  on_threads([](auto& group) { sparse_checks::steps<float>(group); });
  on_threads([](auto& group) { sparse_checks::steps<double>(group); });
}

TEST_CASE("gradients that are rows accumulate in replicas") {
  on_threads([](auto& group) { sparse_checks::accumulation<float>(group); });
}

TEST_CASE("gradients that are rows join") {
  on_threads([](auto& group) { sparse_checks::uneven(group); });
}

TEST_CASE("gradients that are rows follow the policy") {
  on_threads([](auto& group) { sparse_checks::policies(group); }, 3);
  on_threads([](auto& group) { sparse_checks::left_out(group); }, 2);
}

TEST_CASE("a step of replicas touches the rows that a batch of any rank selects") {
  on_threads([](auto& group) { sparse_checks::touched_rows(group); });
}

TEST_CASE("a step of replicas with rows as gradients does not allocate") {
  const auto counts = ike::launch(ike::threads{2}, [](ike::thread_group& group) {
    using policy = ike::replicate_policy<>;
    auto model = sparse_checks::make<policy, true, float>(group);
    ike::sgd optimizer{model, {.lr = 0.1, .max_norm = 1}};
    const auto target = sparse_checks::goal<float>(group.rank());
    std::vector<sparse_checks::words> x;
    for (int step = 0; step < 5; ++step) x.push_back(sparse_checks::batch(group.rank(), step));
    const auto train = [&] {
      for (const auto& each : x) model.train_step(each, target, ike::mse_loss{}, optimizer);
    };
    train();
    group.barrier();
    const long before = allocation_count.load();
    train();
    group.barrier();
    const long after = allocation_count.load();
    group.barrier();
    return after - before;
  });
  for (const long n : counts) CHECK(n == 0);
}
