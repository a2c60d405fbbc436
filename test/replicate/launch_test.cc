#include "ikebana/replicate/launch.hpp"

#include <doctest/doctest.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cstdio>
#include <memory>
#include <span>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "ikebana/cpu/threads.hpp"

namespace ike = ikebana;
using ike::threads;

namespace {

struct foreign {
  int value;
};

class own_error : public ike::state_error {
 public:
  using ike::state_error::state_error;
};

/// Rank 1 of 3 throws; the others wait for it.
template <class E>
void fail_with(const E& e) {
  ike::launch(threads{3}, [&](ike::process_group auto& group) {
    if (group.rank() == 1) throw e;
    group.barrier();
  });
}

}  // namespace

TEST_CASE("Ranks share the threads that kernels may use") {
  for (const int n : {1, 2, 5}) {
    const ike::scoped_num_threads all(n);
    for (const int ranks : {1, 2, 3}) {
      for (const int each : ike::launch(threads{ranks}, [](auto&) { return ike::num_threads(); }))
        CHECK(each == (n < ranks ? 1 : n / ranks));
      CHECK(ike::num_threads() == n);
    }
  }
}

TEST_CASE("One rank is the default, and waits five minutes for the others") {
  static_assert(threads{}.count == 1 && threads{}.timeout == std::chrono::minutes{5});
  CHECK(ike::launch(threads{}, [](auto& group) { return group.size(); }) == std::vector<int>{1});
}

TEST_CASE("Every rank runs once, rank 0 on the calling thread") {
  for (int n = 1; n <= 4; ++n) {
    std::atomic<int> ranks{0}, here{0};
    const auto caller = std::this_thread::get_id();
    ike::launch(threads{n}, [&](ike::process_group auto& group) {
      CHECK(group.size() == n);
      ranks += 1 << group.rank();
      if (std::this_thread::get_id() == caller) here += 1 + group.rank();
    });
    CHECK(ranks == (1 << n) - 1);
    CHECK(here == 1);
  }
}

TEST_CASE("Results come by rank") {
  const std::vector<int> squares =
      ike::launch(threads{4}, [](auto& group) { return group.rank() * group.rank(); });
  CHECK(squares == std::vector<int>{0, 1, 4, 9});
  CHECK(ike::launch(threads{2}, [](auto& group) { return group.rank() == 1; }) ==
        std::vector<bool>{false, true});
  // Also for move-only types without a default constructor.
  const auto owned =
      ike::launch(threads{2}, [](auto& group) { return std::make_unique<int>(group.rank() + 5); });
  CHECK(*owned[0] == 5);
  CHECK(*owned[1] == 6);
}

TEST_CASE("Ikebana's exceptions keep their type and tell their rank") {
  CHECK_THROWS_WITH_AS(fail_with(ike::shape_error("a")), "rank 1: a", ike::shape_error);
  CHECK_THROWS_WITH_AS(fail_with(ike::state_error("b")), "rank 1: b", ike::state_error);
  CHECK_THROWS_WITH_AS(fail_with(ike::io_error("c")), "rank 1: c", ike::io_error);
  CHECK_THROWS_WITH_AS(fail_with(ike::communication_error("d")), "rank 1: d",
                       ike::communication_error);
  CHECK_THROWS_WITH_AS(fail_with(ike::error("e")), "rank 1: e", ike::error);
  CHECK_THROWS_WITH_AS(fail_with(own_error("f")), "f", own_error);
}

TEST_CASE("Other exceptions arrive as they are") {
  CHECK_THROWS_WITH_AS(fail_with(std::out_of_range("too far")), "too far", std::out_of_range);
  try {
    fail_with(foreign{42});
    FAIL("it must throw");
  } catch (const foreign& e) {
    CHECK(e.value == 42);
  }
}

TEST_CASE("The exception that began it is told, not what followed") {
  for (int repetition = 0; repetition < 20; ++repetition)
    for (int failing = 0; failing < 3; ++failing)
      CHECK_THROWS_AS(ike::launch(threads{3},
                                  [&](ike::process_group auto& group) {
                                    std::vector<double> x(100);
                                    auto work = group.all_reduce_async(std::span<double>(x),
                                                                       ike::reduce_op::sum);
                                    if (group.rank() == failing) throw std::logic_error("root");
                                    work.wait();
                                    group.barrier();
                                  }),
                      std::logic_error);
}

TEST_CASE("An exception that a rank caught is no failure") {
  const auto results = ike::launch(threads{2}, [](ike::process_group auto& group) {
    try {
      throw std::runtime_error("private");
    } catch (const std::runtime_error&) {
    }
    double x = 1;
    group.all_reduce(std::span<double>(&x, 1), ike::reduce_op::sum);
    return x;
  });
  CHECK(results == std::vector<double>{2, 2});
}

TEST_CASE("A mismatch names both ranks, and is told once") {
  // Whichever rank comes last and notices it.
  for (const int last : {0, 2})
    CHECK_THROWS_WITH_AS(
        ike::launch(threads{3},
                    [&](ike::process_group auto& group) {
                      if (group.rank() == last)
                        std::this_thread::sleep_for(std::chrono::milliseconds{20});
                      std::vector<float> x(group.rank() == 2 ? 5 : 4);
                      group.broadcast(std::span<float>(x), 0);
                    }),
        "rank 0: rank 2 called broadcast of 5 float32 (from rank 0), rank 0 called "
        "broadcast of 4 float32 (from rank 0)",
        ike::communication_error);
}

namespace {

/// The text that f writes to stderr.
template <class F>
std::string written_to_stderr(F f) {
  std::FILE* const file = std::tmpfile();
  REQUIRE(file != nullptr);
  std::fflush(stderr);
  const int before = ::dup(STDERR_FILENO);
  ::dup2(::fileno(file), STDERR_FILENO);
  f();
  std::fflush(stderr);
  ::dup2(before, STDERR_FILENO);
  ::close(before);
  std::rewind(file);
  std::string text(1000, '\0');
  text.resize(std::fread(text.data(), 1, text.size(), file));
  std::fclose(file);
  return text;
}

}  // namespace

TEST_CASE("A rank that never comes is named while launch waits for it, once") {
  using namespace std::chrono_literals;
  for (const int absent : {0, 2}) {
    const std::string text = written_to_stderr([&] {
      CHECK_THROWS_AS(ike::launch(threads{3, 20ms},
                                  [&](ike::process_group auto& group) {
                                    if (group.rank() == absent) std::this_thread::sleep_for(400ms);
                                    group.barrier();
                                  }),
                      ike::communication_error);
    });
    const std::string rank = "rank " + std::to_string(absent);
    CAPTURE(text);
    CHECK(text.starts_with("ikebana: launch waits for " + rank + ", which has not ended; rank "));
    CHECK(text.find("barrier: " + rank + " did not come (waited 0.") != std::string::npos);
    CHECK(text.find('\n') + 1 == text.size());
  }
  // A failure that all ranks learn of is not reported on stderr.
  CHECK(written_to_stderr([] {
          CHECK_THROWS_AS(fail_with(std::runtime_error("gone")), std::runtime_error);
        }).empty());
}

TEST_CASE("A world of no rank is refused") {
  CHECK_THROWS_AS(ike::launch(threads{0}, [](auto&) {}), ike::error);
  CHECK_THROWS_AS(ike::launch(threads{-1}, [](auto&) {}), ike::error);
}
