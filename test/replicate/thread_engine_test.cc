#include "ikebana/replicate/threads/thread_engine.hpp"

#include <doctest/doctest.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <type_traits>
#include <utility>
#include <vector>

#include "ikebana/replicate/launch.hpp"
#include "test/support/count_allocations.hpp"

namespace ike = ikebana;

TEST_CASE("Collectives allocate nothing") {
  const auto counts = ike::launch(ike::threads{2}, [](ike::process_group auto& group) {
    std::vector<float> x(1000, 1.0f), y(500), z(1000);
    std::array<ike::thread_work, 4> works;
    const long before = allocation_count_here;
    for (int i = 0; i < 200; ++i) {
      for (auto& work : works)
        work = group.all_reduce_async(std::span<float>(x), ike::reduce_op::avg);
      for (auto& work : works) work.wait();
      group.broadcast(std::span<float>(x), i % 2);
      group.reduce_scatter(std::span<const float>(x), std::span<float>(y), ike::reduce_op::max);
      group.all_gather(std::span<const float>(y), std::span<float>(z));
      group.barrier();
    }
    return allocation_count_here - before;
  });
  CHECK(counts == std::vector<long>{0, 0});
}

TEST_CASE("The handle of a collective moves, and an empty one is complete") {
  static_assert(!std::is_copy_constructible_v<ike::thread_work>);
  ike::thread_work none;
  CHECK(none.poll());
  none.wait();
  ike::launch(ike::threads{2}, [](ike::process_group auto& group) {
    std::array<std::int64_t, 3> x{1, 2, 3};
    ike::thread_work a = group.all_reduce_async(std::span<std::int64_t>(x), ike::reduce_op::sum);
    ike::thread_work b = std::move(a);
    ike::thread_work c;
    c = std::move(b);
    c.wait();
    CHECK(x == std::array<std::int64_t, 3>{2, 4, 6});
  });
}

// A replica's backward: each bucket is started when it is ready, and polled from then on.
TEST_CASE("Buckets are reduced while the ranks go on, each at its own pace") {
  constexpr std::size_t buckets = 8, length = 300;
  const auto sums = ike::launch(ike::threads{3}, [](ike::process_group auto& group) {
    std::vector<double> gradients(buckets * length);
    std::array<ike::work_of<decltype(group)>, buckets> works;
    std::size_t complete = 0;
    for (std::size_t b = 0; b < buckets; ++b) {
      const auto bucket = std::span<double>(gradients).subspan(b * length, length);
      for (double& g : bucket) g = static_cast<double>(b) + group.rank();
      works[b] = group.all_reduce_async(bucket, ike::reduce_op::sum);
      while (complete <= b && works[complete].poll()) ++complete;
    }
    for (; complete < buckets; ++complete) works[complete].wait();
    double wrong = 0;
    for (std::size_t i = 0; i < gradients.size(); ++i)
      wrong += gradients[i] != 3.0 * static_cast<double>(i / length) + 3.0;
    return wrong;
  });
  CHECK(sums == std::vector<double>{0, 0, 0});
}
