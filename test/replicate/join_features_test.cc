// A join together with other options of policies.

#include <doctest/doctest.h>

#include <algorithm>
#include <cstddef>
#include <span>
#include <vector>

#include "ikebana/replicate/launch.hpp"
#include "test/replicate/join_checks.hpp"
#include "test/replicate/on_threads.hpp"

namespace ike = ikebana;
using ike::replicate_policy;
using ike::threads;

TEST_CASE("ranks that are through make their part of a sharded optimizer's steps") {
  on_threads([](auto& group) {
    join_checks::shadows_are_zeros<
        replicate_policy<ike::shard_optimizer<true>, ike::bucket_cap<64>>>(group);
  });
}

TEST_CASE("with mixed precision, delayed parameters and a divisor of one's own") {
  on_threads([](auto& group) {
    join_checks::shadows_are_zeros<
        replicate_policy<ike::mixed_precision<ike::bfloat16, float>, ike::bucket_cap<64>>>(group);
    join_checks::shadows_are_zeros<
        replicate_policy<ike::delay_all_reduce<"fc1.bias">, ike::gradient_divide_factor<3>>>(group);
  });
}

TEST_CASE("buffer hooks before forward, and sums in another type over several backwards") {
  using policy = replicate_policy<
      ike::buffer_comm_hook<ike::average_buffers, ike::buffer_hook_location::before_forward>,
      ike::gradient_accumulation<double>>;
  on_threads([](auto& group) {
    auto model = ike::replicate<policy>(join_checks::fresh<float>(), group);
    auto padded = ike::replicate<policy>(join_checks::fresh<float>(), group);
    const int steps = group.rank() == 0 ? 2 : 4;
    ike::sgd optimizer{model, {.lr = 0.1}}, padded_optimizer{padded, {.lr = 0.1}};
    const auto backward = [&](auto& m, int s, bool last) {
      const auto b = join_checks::batch_of<float>(group.rank(), s);
      if (!last) m.zero_grad();
      m.set_is_last_backward(last);
      m.loss_backward(b.x, b.y, ike::cross_entropy{});
    };
    model.join(optimizer, [&] {
      for (int s = 0; s < steps; ++s) {
        backward(model, 2 * s, false);
        backward(model, 2 * s + 1, true);
        model.step(optimizer);
      }
    });
    for (int s = 0; s < (group.size() == 1 ? 2 : 4); ++s) {
      for (const bool last : {false, true}) {
        if (s < steps) {
          backward(padded, 2 * s + last, last);
          continue;
        }
        if (!last) padded.zero_grad();
        padded.set_is_last_backward(last);
        padded(join_checks::batch_of<float>(0, 0).x);
        padded.backward(ike::zeros<float, ike::shape{ike::dynamic, 3}>(4));
      }
      padded.step(padded_optimizer);
    }
    CHECK(std::ranges::equal(model.parameters(), padded.parameters()));
    join_checks::check_same_everywhere(std::span<const float>{model.parameters()}, group);
    join_checks::check_same_everywhere(std::span<const std::byte>{model.buffers()}, group);
    // And with buffers due at the start: a rank without a batch.
    model.join([&] {
      if (group.rank() > 0) backward(model, 1, true);
    });
  });
}
