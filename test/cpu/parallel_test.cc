#include "ikebana/cpu/parallel.hpp"

#include <doctest/doctest.h>

#include <atomic>
#include <mutex>
#include <set>
#include <stdexcept>
#include <thread>
#include <vector>

#include "ikebana/core/error.hpp"
#include "ikebana/cpu/threads.hpp"

namespace ike = ikebana;
using ikebana::dim_t;

namespace {

/// How often each index was visited, and by which threads.
struct meetings {
  std::vector<std::atomic<int>> counts;
  std::set<std::thread::id> threads;
  std::mutex mutex;
  bool aligned = true;

  explicit meetings(dim_t n) : counts(static_cast<std::size_t>(n)) {}
  void meet(dim_t b, dim_t e, dim_t begin, dim_t end, dim_t grain) {
    for (dim_t i = b; i < e; ++i) ++counts[static_cast<std::size_t>(i - begin)];
    const std::lock_guard lock(mutex);
    threads.insert(std::this_thread::get_id());
    aligned =
        aligned && b < e && (b - begin) % grain == 0 && (e == end || (e - begin) % grain == 0);
  }
  bool all_once() const {
    for (const std::atomic<int>& c : counts)
      if (c != 1) return false;
    return true;
  }
};

}  // namespace

TEST_CASE("every index is met once, in ranges of whole grains") {
  for (int threads : {1, 2, 3, 8}) {
    const ike::scoped_num_threads own(threads);
    for (dim_t n : {0, 1, 2, 7, 64, 1000, 1009})
      for (dim_t grain : {1, 3, 64, 5000}) {
        const dim_t begin = 5, end = begin + n;
        meetings all(n);
        ike::cpu::parallel_for(begin, end, grain,
                               [&](dim_t b, dim_t e) { all.meet(b, e, begin, end, grain); });
        INFO(threads << " threads, " << n << " by " << grain);
        CHECK(all.all_once());
        CHECK(all.aligned);
        CHECK(all.threads.size() <= static_cast<std::size_t>(threads));
      }
  }
}

TEST_CASE("one thread is the default, and does all in one call, itself") {
  CHECK(ike::num_threads() == 1);
  int calls = 0;
  ike::cpu::parallel_for(0, 1000, 1, [&](dim_t b, dim_t e) {
    ++calls;
    CHECK(b == 0);
    CHECK(e == 1000);
  });
  CHECK(calls == 1);
  ike::set_num_threads(4);
  calls = 0;
  ike::cpu::parallel_for(0, 1000, 1000, [&](dim_t, dim_t) { ++calls; });
  CHECK(calls == 1);
  ike::set_num_threads(1);
}

TEST_CASE("several threads do take part") {
  const ike::scoped_num_threads own(2);
  std::atomic<int> here{0};
  // Each waits until the other has arrived.
  ike::cpu::parallel_for(0, 2, 1, [&](dim_t, dim_t) {
    ++here;
    while (here < 2) std::this_thread::yield();
  });
  CHECK(here == 2);
}

TEST_CASE("the number is the process's, or the thread's own") {
  ike::set_num_threads(3);
  CHECK(ike::num_threads() == 3);
  {
    const ike::scoped_num_threads own(2);
    CHECK(ike::num_threads() == 2);
    std::thread([] { CHECK(ike::num_threads() == 3); }).join();
  }
  CHECK(ike::num_threads() == 3);
  ike::set_num_threads(1);
  CHECK_THROWS_WITH_AS(ike::set_num_threads(0), "set_num_threads: at least 1 thread is needed",
                       ike::error);
  CHECK_THROWS_AS(ike::scoped_num_threads(-1), ike::error);
  CHECK(ike::num_threads() == 1);
}

TEST_CASE("inside of a parallel loop there is one thread") {
  const ike::scoped_num_threads own(3);
  std::atomic<int> wrong{0}, inner{0};
  ike::cpu::parallel_for(0, 20, 1, [&](dim_t b, dim_t e) {
    if (ike::num_threads() != 1) ++wrong;
    const auto me = std::this_thread::get_id();
    ike::cpu::parallel_for(b * 10, e * 10, 1, [&](dim_t ib, dim_t ie) {
      if (std::this_thread::get_id() != me) ++wrong;
      inner += static_cast<int>(ie - ib);
    });
  });
  CHECK(wrong == 0);
  CHECK(inner == 200);
  CHECK(ike::num_threads() == 3);
}

TEST_CASE("the first exception comes out, and the next loop is as if there was none") {
  const ike::scoped_num_threads own(3);
  for (int turn = 0; turn < 20; ++turn) {
    CHECK_THROWS_AS(ike::cpu::parallel_for(0, 100, 1,
                                           [](dim_t b, dim_t) {
                                             if (b > 30) throw std::runtime_error("no");
                                           }),
                    std::runtime_error);
    std::atomic<dim_t> sum{0};
    ike::cpu::parallel_for(0, 100, 1, [&](dim_t b, dim_t e) { sum += e - b; });
    CHECK(sum == 100);
  }
}

TEST_CASE("several threads, each with helpers of its own, do not disturb each other") {
  std::atomic<int> wrong{0};
  std::vector<std::thread> callers;
  for (int c = 0; c < 3; ++c)
    callers.emplace_back([&wrong, c] {
      const ike::scoped_num_threads own(1 + c);
      std::vector<int> data(1000);
      for (int turn = 1; turn <= 200; ++turn) {
        ike::cpu::parallel_for(0, 1000, 10, [&](dim_t b, dim_t e) {
          for (dim_t i = b; i < e; ++i) ++data[static_cast<std::size_t>(i)];
        });
        for (int d : data) wrong += d != turn;
      }
    });
  for (std::thread& t : callers) t.join();
  CHECK(wrong == 0);
}
