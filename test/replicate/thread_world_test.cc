#include "ikebana/replicate/threads/thread_world.hpp"

#include <doctest/doctest.h>

#include <array>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <span>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "ikebana/replicate/launch.hpp"

namespace ike = ikebana;
using namespace std::chrono_literals;
using ike::reduce_op;
using ike::threads;

namespace {

/// The text of what each rank throws; the empty string if it does not.
template <class F>
std::vector<std::string> messages(const threads& how, F f) {
  std::vector<std::string> texts(static_cast<std::size_t>(how.count));
  try {
    ike::launch(how, [&](ike::process_group auto& group) {
      try {
        f(group);
      } catch (const std::exception& e) {
        texts[static_cast<std::size_t>(group.rank())] = e.what();
        throw;
      }
    });
  } catch (...) {
  }
  return texts;
}

bool contains(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

template <class G>
void reduce(G& group, std::size_t n = 100) {
  std::vector<float> x(n, 1.0f);
  group.all_reduce(std::span<float>(x), reduce_op::avg);
}

}  // namespace

TEST_CASE("A rank that throws before a collective ends the others' waiting") {
  for (int failing = 0; failing < 4; ++failing) {
    const auto texts = messages(threads{4}, [&](auto& group) {
      reduce(group);
      if (group.rank() == failing) throw std::runtime_error("out of apples");
      reduce(group);
    });
    for (int r = 0; r < 4; ++r) {
      const std::string& text = texts[static_cast<std::size_t>(r)];
      INFO(text);
      if (r == failing) {
        CHECK(text == "out of apples");
        continue;
      }
      CHECK(contains(text, "rank " + std::to_string(r) + ": all_reduce of 100 float32 (avg): "));
      CHECK(contains(text, "rank " + std::to_string(failing) + " failed (waited "));
      CHECK(contains(text, "out of apples"));
    }
  }
}

TEST_CASE("A rank that throws after a collective leaves that one complete") {
  std::array<float, 2> results{};
  const auto texts = messages(threads{2}, [&](auto& group) {
    std::vector<float> x(100, 1.0f + static_cast<float>(group.rank()));
    group.all_reduce(std::span<float>(x), reduce_op::sum);
    results[static_cast<std::size_t>(group.rank())] = x[99];
    if (group.rank() == 0) throw std::runtime_error("enough");
    std::this_thread::sleep_for(5ms);
    group.barrier();
  });
  CHECK(results == std::array<float, 2>{3, 3});
  CHECK(contains(texts[1], "rank 1: barrier: rank 0 failed (waited "));
}

TEST_CASE("A rank that throws within a collective withdraws its buffer") {
  for (int repetition = 0; repetition < 50; ++repetition) {
    const auto texts = messages(threads{3}, [&](auto& group) {
      std::vector<float> x(5000, 1.0f);
      auto work = group.all_reduce_async(std::span<float>(x), reduce_op::avg);
      if (group.rank() == repetition % 3) throw std::runtime_error("in the middle");
      // The buffer of the failing rank is gone now or soon; nothing may touch it.
      work.wait();
      group.barrier();
    });
    for (int r = 0; r < 3; ++r) CHECK(texts[static_cast<std::size_t>(r)] != "");
  }
}

TEST_CASE("Polling learns of a failure too") {
  const auto texts = messages(threads{2}, [](auto& group) {
    if (group.rank() == 1) throw std::runtime_error("gone");
    std::vector<float> x(8);
    auto work = group.all_reduce_async(std::span<float>(x), reduce_op::avg);
    while (!work.poll()) std::this_thread::yield();
  });
  CHECK(contains(texts[0], "rank 1 failed"));
}

TEST_CASE("A failure reaches those who sleep and those who wait for a place in the table") {
  const auto start = std::chrono::steady_clock::now();
  const auto texts = messages(threads{3}, [](auto& group) {
    if (group.rank() == 2) {
      std::this_thread::sleep_for(50ms);
      throw std::runtime_error("late");
    }
    std::vector<std::int64_t> x(1);
    std::vector<ike::thread_work> works;
    if (group.rank() == 0)
      for (int i = 0; i < 100; ++i)
        works.push_back(group.all_reduce_async(std::span<std::int64_t>(x), reduce_op::sum));
    group.barrier();
  });
  CHECK(contains(texts[0], "rank 0: all_reduce of 1 int64 (sum): rank 2 failed (waited "));
  CHECK(contains(texts[1], "rank 1: barrier: rank 2 failed (waited "));
  CHECK(std::chrono::steady_clock::now() - start < 5s);
}

TEST_CASE("Different lengths: every rank says who called what") {
  for (int repetition = 0; repetition < 20; ++repetition) {
    const auto texts = messages(threads{3}, [](auto& group) {
      reduce(group);
      reduce(group, group.rank() == 1 ? 12 : 10);
    });
    for (int r = 0; r < 3; ++r)
      CHECK(texts[static_cast<std::size_t>(r)] ==
            "rank " + std::to_string(r) +
                ": rank 1 called all_reduce of 12 float32 (avg), rank 0 called all_reduce of 10 "
                "float32 (avg)");
  }
}

TEST_CASE("Different types, operations, roots and collectives are found out") {
  const auto differ = [](auto f) { return messages(threads{2}, f)[0]; };
  std::array<std::array<float, 4>, 2> x{};
  std::array<std::array<double, 4>, 2> y{};
  CHECK(
      differ([&](auto& g) {
        const auto r = static_cast<std::size_t>(g.rank());
        if (g.rank() == 0)
          g.all_reduce(std::span<float>(x[r]), reduce_op::sum);
        else
          g.all_reduce(std::span<double>(y[r]), reduce_op::sum);
      }) ==
      "rank 0: rank 1 called all_reduce of 4 float64 (sum), rank 0 called all_reduce of 4 float32 "
      "(sum)");
  CHECK(
      differ([&](auto& g) {
        g.all_reduce(std::span<float>(x[static_cast<std::size_t>(g.rank())]),
                     g.rank() == 0 ? reduce_op::sum : reduce_op::max);
      }) ==
      "rank 0: rank 1 called all_reduce of 4 float32 (max), rank 0 called all_reduce of 4 float32 "
      "(sum)");
  CHECK(differ([&](auto& g) {
          g.broadcast(std::span<float>(x[static_cast<std::size_t>(g.rank())]), g.rank());
        }) ==
        "rank 0: rank 1 called broadcast of 4 float32 (from rank 1), rank 0 called broadcast of 4 "
        "float32 (from rank 0)");
  CHECK(differ([&](auto& g) {
          if (g.rank() == 0)
            g.barrier();
          else
            g.broadcast(std::span<float>(x[1]), 0);
        }) == "rank 0: rank 1 called broadcast of 4 float32 (from rank 0), rank 0 called barrier");
}

TEST_CASE("A rank that never comes is given up after the timeout") {
  std::atomic<int> given_up{0};
  const auto texts = messages(threads{3, 60ms}, [&](auto& group) {
    // Rank 1 comes too late, however slow the machine is.
    if (group.rank() == 1)
      while (given_up < 2) std::this_thread::sleep_for(1ms);
    try {
      group.barrier();
    } catch (...) {
      ++given_up;
      throw;
    }
  });
  INFO(texts[0]);
  INFO(texts[2]);
  // One of the two times out first, and the other is notified or times out too.
  CHECK(contains(texts[0], "rank 0: barrier: "));
  CHECK(contains(texts[0], "rank 1 did not come (waited "));
  CHECK(contains(texts[2], "rank 2: barrier: "));
  CHECK(contains(texts[2], "rank 1 did not come (waited "));
  INFO(texts[1]);
  CHECK(contains(texts[1], "rank 1: barrier: rank "));
  CHECK(contains(texts[1], " gave up (waited 0.000 s): barrier: rank 1 did not come"));
}

TEST_CASE("A rank that comes and does no more is given up too") {
  // The last rank is the one that a search which ends too early does not name.
  for (const std::size_t idle : {std::size_t{1}, std::size_t{2}}) {
    CAPTURE(idle);
    std::atomic<int> announced{0}, given_up{0};
    const auto texts = messages(threads{3, 60ms}, [&](auto& group) {
      std::vector<float> x(64, 1.0f);
      auto work = group.all_reduce_async(std::span<float>(x), reduce_op::avg);
      for (++announced; announced < 3;) std::this_thread::sleep_for(1ms);
      if (static_cast<std::size_t>(group.rank()) == idle)
        while (given_up < 2) std::this_thread::sleep_for(1ms);
      try {
        work.wait();
      } catch (...) {
        ++given_up;
        throw;
      }
    });
    const std::string named = "rank " + std::to_string(idle) + " has not done its share";
    for (std::size_t r = 0; r < 3; ++r) {
      INFO(texts[r]);
      if (r == idle)
        CHECK(contains(texts[r], " gave up"));
      else
        CHECK(contains(texts[r], "all_reduce of 64 float32 (avg): " + named));
    }
  }
}

TEST_CASE("A rank that returns early is not waited for") {
  const auto start = std::chrono::steady_clock::now();
  const auto texts = messages(threads{3}, [](auto& group) {
    reduce(group);
    if (group.rank() == 2) return;
    std::vector<float> x(7);
    group.all_reduce(std::span<float>(x), reduce_op::max);
  });
  CHECK(std::chrono::steady_clock::now() - start < 5s);
  for (std::size_t r : {std::size_t{0}, std::size_t{1}}) {
    INFO(texts[r]);
    CHECK(contains(texts[r], "all_reduce of 7 float32 (max): rank 2 has returned without it"));
  }
  CHECK(texts[2] == "");
}

TEST_CASE("A world that has failed stays so") {
  const auto texts = messages(threads{2}, [](auto& group) {
    if (group.rank() == 1) throw std::runtime_error("first");
    CHECK_THROWS_AS(reduce(group), ike::communication_error);
    CHECK_THROWS_AS(reduce(group), ike::communication_error);
    group.barrier();
  });
  CHECK(contains(texts[0], "rank 0: barrier: rank 1 failed (waited 0.000 s): first"));
}

TEST_CASE("Arguments that one rank alone can judge") {
  ike::launch(threads{1}, [](ike::process_group auto& group) {
    std::array<float, 4> x{};
    const std::span<float> all(x);
    CHECK_THROWS_WITH_AS(group.all_gather(std::span<const float>(all), all.first(3)),
                         "rank 0: all_gather of 4 float32: expects 4 elements for all ranks "
                         "together, got 3",
                         ike::communication_error);
    CHECK_THROWS_WITH_AS(group.broadcast(all, 3),
                         "rank 0: broadcast of 4 float32 (from rank 3): there is no such rank",
                         ike::communication_error);
    CHECK_THROWS_AS(group.all_reduce(all, reduce_op::bit_or), ike::communication_error);
  });
}

TEST_CASE("A world has a size that makes sense") {
  CHECK_THROWS_AS(ike::thread_world(0), ike::error);
  CHECK_THROWS_AS(ike::thread_world(ike::thread_world::max_size + 1), ike::error);
  CHECK(ike::thread_world(4).size() == 4);
}
