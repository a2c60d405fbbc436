#include "ikebana/replicate/shard_optimizer.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <utility>
#include <vector>

#include "ikebana/replicate/launch.hpp"
#include "shard_optimizer_checks.hpp"
#include "test/replicate/on_threads.hpp"
#include "test/support/count_allocations.hpp"

namespace ike = ikebana;
namespace checks = shard_optimizer_checks;
using namespace optimizer_run;

TEST_CASE("Ranks share a bucket in whole steps, evenly but for what is left over") {
  using ike::detail::share_bucket;
  using piece = ike::shared_piece;
  // 70 steps of 16 for 4 ranks: 17 for each, and 2 are left.
  CHECK(share_bucket(32, 32 + 70 * 16, 4, 16) ==
        std::array{piece{32, 32 + 68 * 16, 17 * 16}, piece{32 + 68 * 16, 32 + 70 * 16, 16}});
  // A small bucket is reduced at once.
  CHECK(share_bucket(0, 5 * 8, 4, 8) == std::array{piece{0, 0, 0}, piece{0, 5 * 8, 2 * 8}});
  CHECK(share_bucket(8, 8, 3, 8) == std::array{piece{8, 8, 0}, piece{8, 8, 0}});
  for (ike::dim_t steps = 0; steps < 200; ++steps)
    for (int world = 1; world < 9; ++world) {
      ike::dim_t at = 16;
      ike::dim_t most = 0;
      for (const auto& p : share_bucket(16, 16 + steps * 16, world, 16)) {
        ike::dim_t own = 0;
        for (int r = 0; r < world; ++r) {
          if (p.of(r).begin != at) CHECK(p.of(r).begin == at);
          at = p.of(r).end;
          own = std::max(own, p.of(r).size());
        }
        most += own;
      }
      if (at != 16 + steps * 16 || most > (steps + world - 1) / world * 16) {
        CAPTURE(steps);
        CAPTURE(world);
        CHECK(at == 16 + steps * 16);
        CHECK(most <= (steps + world - 1) / world * 16);
      }
    }
}

TEST_CASE_TEMPLATE("Sharing the optimizer's work gives the bits that are had without", T, float,
                   double) {
  on_threads([](auto& group) { return checks::optimizers<T>(group); });
}

TEST_CASE("Whatever the buckets, and with ranks that own nothing") {
  on_threads([](auto& group) { return checks::buckets<float>(group); });
}

TEST_CASE("Gradients sent in bfloat16") {
  on_threads([](auto& group) { return checks::compressed<float>(group); });
}

TEST_CASE("Steps allocate nothing, and a model may move after its optimizer was made") {
  ike::launch(ike::threads{3}, [](auto& group) {
    auto made = ike::replicate<checks::sharded<>>(fresh<float>(network), group);
    ike::sgd optimizer{made, {.lr = 0.1, .momentum = 0.9}};
    auto model = std::move(made);
    auto other = ike::replicate<plain<>>(fresh<float>(network), group);
    ike::sgd reference{other, {.lr = 0.1, .momentum = 0.9}};
    const auto x = input<float>(group.rank(), 0);
    const auto y = target<float>(model, group.rank(), 0);
    long before = 0, after = 0;
    for (int s = 0; s < 4; ++s) {
      model.train_step(x, y, ike::mse_loss{}, optimizer);
      after = allocation_count_here;
      if (s == 0) before = after;
    }
    CHECK(after == before);
    for (int s = 0; s < 4; ++s) other.train_step(x, y, ike::mse_loss{}, reference);
    CHECK(same_parameters(model, other));
  });
}
