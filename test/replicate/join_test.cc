#include "ikebana/replicate/join.hpp"

#include <doctest/doctest.h>

#include <span>
#include <stdexcept>
#include <string>
#include <vector>

#include "ikebana/replicate/launch.hpp"
#include "ikebana/replicate/powersgd.hpp"
#include "test/replicate/join_checks.hpp"
#include "test/support/count_allocations.hpp"

namespace ike = ikebana;
using ike::threads;

namespace {

/// check(group) on 1 to 4 threads, and on 5.
template <class Check>
void on_threads(Check check) {
  for (int ranks : {1, 2, 3, 4, 5}) {
    CAPTURE(ranks);
    ike::launch(threads{ranks}, [&](ike::thread_group& group) { check(group); });
  }
}

}  // namespace

TEST_CASE("ranks with different numbers of batches train as one model that sees them all") {
  on_threads([](auto& group) { join_checks::uneven_training<double>(group, 1e-14); });
  on_threads([](auto& group) { join_checks::uneven_training<float>(group, 1e-6); });
}

TEST_CASE("running statistics are PyTorch's where the highest rank is through first") {
  on_threads([](auto& group) { join_checks::running_statistics(group); });
}

TEST_CASE("a rank that is through follows the others bit by bit, whatever the hook") {
  using low_rank = ike::replicate_policy<ike::comm_hook<ike::powersgd>, ike::bucket_cap<64>>;
  on_threads([](auto& group) {
    join_checks::shadows_are_zeros<join_checks::policy>(group);
    join_checks::shadows_are_zeros<low_rank>(group);
  });
}

TEST_CASE("a rank that averages nothing ends with the model of the highest that was last") {
  using alone = ike::replicate_policy<ike::comm_hook<ike::noop_hook>>;
  on_threads([](auto& group) { join_checks::shadows_are_zeros<alone>(group); });
}

TEST_CASE("what a rank accumulated before it was through counts") {
  on_threads([](auto& group) { join_checks::accumulated_leftovers(group); });
}

TEST_CASE("early termination throws on every rank where that is asked for") {
  on_threads([](auto& group) { join_checks::throws_on_early_termination(group); });
}

TEST_CASE("joins without batches, within each other, and switched off") {
  on_threads([](auto& group) { join_checks::odd_joins(group); });
}

TEST_CASE("what the body throws reaches the launcher, and the others hear of it") {
  std::vector<std::string> heard(3);
  const auto run = [&] {
    ike::launch(threads{3}, [&](ike::thread_group& group) {
      auto model = ike::replicate<join_checks::policy>(join_checks::fresh<float>(), group);
      ike::sgd optimizer{model, {.lr = 0.1}};
      try {
        model.join([&] {
          for (int s = 0; s < group.rank() * 2; ++s) {
            if (group.rank() == 1 && s == 1) throw std::runtime_error("no more paper");
            const auto b = join_checks::batch_of<float>(group.rank(), s);
            model.train_step(b.x, b.y, ike::cross_entropy{}, optimizer);
          }
        });
      } catch (const ike::communication_error& e) {
        heard[static_cast<std::size_t>(group.rank())] = e.what();
        throw;
      }
    });
  };
  CHECK_THROWS_WITH_AS(run(), "no more paper", std::runtime_error);
  CHECK(heard[0].find("rank 1 failed") != std::string::npos);
  CHECK(heard[1] == "");
  CHECK(heard[2].find("rank 1 failed") != std::string::npos);
}

TEST_CASE("steps under a join allocate nothing, neither those of ranks that are through") {
  std::vector<long> few(3), many(3);
  ike::launch(threads{3}, [&](ike::thread_group& group) {
    auto model = ike::replicate<join_checks::policy>(join_checks::fresh<float>(), group);
    ike::sgd optimizer{model, {.lr = 0.1, .momentum = 0.9}};
    const auto b = join_checks::batch_of<float>(group.rank(), 0);
    const auto allocations = [&](int steps) {
      const long before = allocation_count_here;
      model.join(optimizer, [&] {
        for (int s = 0; s < steps; ++s) model.train_step(b.x, b.y, ike::cross_entropy{}, optimizer);
      });
      return allocation_count_here - before;
    };
    allocations(1);
    // The rest are the allocations of the join itself.
    few[static_cast<std::size_t>(group.rank())] = allocations(1 + group.rank());
    many[static_cast<std::size_t>(group.rank())] = allocations(9 - 3 * group.rank());
  });
  CHECK(few == many);
}
