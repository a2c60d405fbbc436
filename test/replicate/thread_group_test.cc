#include "ikebana/replicate/thread_group.hpp"

#include <doctest/doctest.h>

#include <array>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <span>
#include <stdexcept>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "ikebana/core/bfloat16.hpp"
#include "ikebana/replicate/launch.hpp"
#include "test/support/group_checks.hpp"

namespace ike = ikebana;
using ike::reduce_op;
using ike::threads;

static_assert(ike::divisible_group<ike::single> && ike::divisible_group<ike::thread_group>);

namespace {

/// f(group) on 1 to 4 ranks finds no failure.
template <class F>
void check(F f) {
  for (int ranks = 1; ranks <= 4; ++ranks)
    CHECK(ike::launch(threads{ranks}, f) == std::vector<int>(static_cast<std::size_t>(ranks)));
}

}  // namespace

TEST_CASE_TEMPLATE("Collectives, 1 to 4 ranks", T, float, double, ike::bfloat16, ike::float16,
                   std::int64_t, std::int32_t, std::uint8_t) {
  check([](auto& group) { return group_checks::collectives<T>(group); });
}

TEST_CASE_TEMPLATE("Sums are taken in the order of the ranks", T, float, double, ike::bfloat16,
                   ike::float16) {
  check([](auto& group) { return group_checks::order_of_sums<T>(group); });
}

TEST_CASE("Many collectives are under way at once, more than the table holds") {
  static_assert(3 * ike::thread_world::max_in_flight + 5 == 3 * 64 + 5);
  check([](auto& group) { return group_checks::many_at_once(group); });
}

TEST_CASE("Works of different collectives complete by polling alone") {
  check([](auto& group) { return group_checks::polling(group); });
}

TEST_CASE("A group is cut into parts, and those too") {
  check([](auto& group) { return group_checks::split(group); });
}

TEST_CASE("A rank that throws ends the waiting in the parts of its world") {
  for (int repetition = 0; repetition < 50; ++repetition) {
    std::array<std::string, 4> texts;
    const auto run = [&](ike::process_group auto& group) {
      auto part = group.split(group.rank() % 2, 0);
      auto alone = part.split(group.rank() / 2, 0);
      group.barrier();
      if (group.rank() == 3) throw std::runtime_error("out of apples");
      try {
        part.barrier();
        group.barrier();
      } catch (const ike::communication_error& e) {
        texts[static_cast<std::size_t>(group.rank())] = e.what();
        CHECK_THROWS_AS(alone.barrier(), ike::communication_error);
        throw;
      }
    };
    CHECK_THROWS_WITH_AS(ike::launch(threads{4}, run), "out of apples", std::runtime_error);
    INFO(texts[0]);
    INFO(texts[1]);
    // A rank notified by rank 1 gets the text that rank 1 got.
    CHECK(texts[1].find("rank 1: barrier: rank 3 failed (waited ") == 0);
    CHECK(texts[0].find("rank 3 failed (waited ") != std::string::npos);
  }
}

TEST_CASE("What goes wrong in a part is told to its ranks alone, with their names in the world") {
  ike::launch(threads{4}, [](ike::process_group auto& group) {
    const bool odd = group.rank() % 2 != 0;
    const std::string own = "rank " + std::to_string(group.rank());
    {
      auto part = group.split(odd, 0);
      std::vector<float> x(group.rank() == 3 ? 5 : 4, 1.0f);
      const auto reduce = [&] { part.all_reduce(std::span<float>(x), reduce_op::sum); };
      if (odd)
        CHECK_THROWS_WITH_AS(reduce(),
                             (own + ": rank 3 called all_reduce of 5 float32 (sum), rank 1 called "
                                    "all_reduce of 4 float32 (sum)")
                                 .c_str(),
                             ike::communication_error);
      else
        CHECK_NOTHROW(reduce());
    }
    {
      auto part = group.split(odd, 0);
      part.barrier();
      if (group.rank() == 1) {
        try {
          part.barrier();
          FAIL("it must throw");
        } catch (const ike::communication_error& e) {
          CHECK(std::string(e.what()).find("rank 1: barrier: rank 3 has returned without it") == 0);
        }
      }
    }
    group.barrier();
    CHECK(group_checks::split(group) == 0);
  });
}

TEST_CASE("Slices cover a buffer once, in whole cache lines, wherever it begins") {
  for (ike::dim_t n : {0, 1, 15, 16, 17, 100, 1000})
    for (int parts = 1; parts <= 5; ++parts)
      for (ike::dim_t lead = 0; lead < 16; ++lead) {
        ike::dim_t at = 0;
        for (int p = 0; p < parts; ++p) {
          const ike::detail::slice s = ike::detail::slice_of(n, parts, p, 16, lead);
          REQUIRE(s.begin == at);
          REQUIRE(s.end >= s.begin);
          if (s.end != n) REQUIRE((s.end + lead) % 16 == 0);
          at = s.end;
        }
        REQUIRE(at == n);
      }
}

TEST_CASE("Buffers that begin anywhere are reduced within their bounds") {
  const auto wrong = ike::launch(threads{3}, [](ike::process_group auto& group) {
    int failures = 0;
    for (std::size_t begin = 0; begin < 20; ++begin) {
      // Each rank at another alignment.
      const std::size_t at = begin + static_cast<std::size_t>(group.rank());
      std::vector<float> x(100, -1.0f);
      group.all_reduce(std::span<float>(x).subspan(at, 61), reduce_op::sum);
      for (std::size_t i = 0; i < x.size(); ++i)
        failures += x[i] != (i < at || i >= at + 61 ? -1.0f : -3.0f);
    }
    return failures;
  });
  for (int failures : wrong) CHECK(failures == 0);
}

TEST_CASE("Every run gives the same bits") {
  constexpr std::size_t n = 1003;
  const std::vector<float> mean =
      group_checks::expected<float>(reduce_op::avg, 4, n, group_checks::awkward<float>);
  for (int run = 0; run < 100; ++run) {
    const auto results = ike::launch(threads{4}, [](ike::process_group auto& group) {
      std::vector<float> x = group_checks::awkward<float>(group.rank(), n);
      group.all_reduce(std::span<float>(x), reduce_op::avg);
      return x;
    });
    for (const auto& x : results) REQUIRE(group_checks::same_bits(x, mean));
  }
}

TEST_CASE("A rank's share is done by its own poll, while it does other things") {
  std::atomic<int> stage{0};  // Decides who is ahead.
  ike::launch(threads{2}, [&](ike::process_group auto& group) {
    std::vector<float> first(64, 1.0f);
    const auto reach = [&](int s) {
      while (stage.load() < s) std::this_thread::yield();
    };
    if (group.rank() == 0) {
      auto work = group.all_reduce_async(std::span<float>(first), reduce_op::sum);
      CHECK(!work.poll());  // No other rank has come.
      stage = 1;
      reach(2);
      CHECK(!work.poll());  // This does its own share; the other's is not done.
      stage = 3;
      reach(4);
      CHECK(work.poll());
      CHECK(work.poll());
      work.wait();
    } else {
      reach(1);
      auto work = group.all_reduce_async(std::span<float>(first), reduce_op::sum);
      stage = 2;
      reach(3);
      CHECK(work.poll());
      stage = 4;
    }
    CHECK(first[63] == 2.0f);
  });
}

TEST_CASE("A work that nobody waits for is complete when its handle is gone") {
  ike::launch(threads{2}, [](ike::process_group auto& group) {
    std::vector<float> x(1000, 1.0f);
    { auto work = group.all_reduce_async(std::span<float>(x), reduce_op::sum); }
    CHECK(x[0] == 2.0f);
    CHECK(x[999] == 2.0f);
  });
}

TEST_CASE("Values of any plain type are exchanged") {
  struct entry {
    std::uint64_t hash;
    char path[24];
  };
  ike::launch(threads{3}, [](ike::process_group auto& group) {
    entry mine{static_cast<std::uint64_t>(group.rank()) * 3, "fc.weight"};
    std::array<entry, 3> all{};
    ike::exchange(group, mine, std::span<entry>(all));
    for (std::size_t r = 0; r < 3; ++r) {
      CHECK(all[r].hash == r * 3);
      CHECK(std::string_view(all[r].path) == "fc.weight");
    }
  });
}

TEST_CASE("Ranks that sleep are woken") {
  ike::launch(threads{3}, [](ike::process_group auto& group) {
    for (int i = 0; i < 3; ++i) {
      if (group.rank() == i) std::this_thread::sleep_for(std::chrono::milliseconds(30));
      group.barrier();
    }
  });
}
