#include "ikebana/replicate/thread_group.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <string_view>
#include <thread>
#include <type_traits>
#include <vector>

#include "ikebana/core/random.hpp"
#include "ikebana/replicate/launch.hpp"

namespace ike = ikebana;
using ike::reduce_op;
using ike::threads;

namespace {

constexpr std::array<std::size_t, 9> lengths{0, 1, 3, 15, 16, 17, 255, 1000, 4099};

/// Small integers, exact in every type and under every order of summation.
template <class T>
std::vector<T> values(int rank, std::size_t n) {
  std::vector<T> x(n);
  for (std::size_t i = 0; i < n; ++i) x[i] = static_cast<T>((i * 7 + 13 * std::size_t(rank)) % 50);
  return x;
}

template <class T>
std::vector<T> expected(reduce_op op, int ranks, std::size_t n) {
  std::vector<T> x = values<T>(0, n);
  for (int r = 1; r < ranks; ++r) {
    const std::vector<T> y = values<T>(r, n);
    for (std::size_t i = 0; i < n; ++i) {
      if (op == reduce_op::sum || op == reduce_op::avg) x[i] += y[i];
      if (op == reduce_op::max) x[i] = std::max(x[i], y[i]);
      if (op == reduce_op::min) x[i] = std::min(x[i], y[i]);
      if constexpr (std::is_integral_v<T>)
        if (op == reduce_op::bit_or) x[i] |= y[i];
    }
  }
  if (op == reduce_op::avg) {
    for (T& v : x) {
      if constexpr (std::is_integral_v<T>)
        v /= ranks;
      else
        v *= T{1} / static_cast<T>(ranks);
    }
  }
  return x;
}

template <class T>
void check_collectives(int ranks) {
  const auto wrong = ike::launch(threads{ranks}, [](ike::process_group auto& group) {
    int failures = 0;
    const auto same = [&](const auto& a, const auto& b) { failures += a != b; };
    const auto world = static_cast<std::size_t>(group.size());
    for (std::size_t n : lengths) {
      for (reduce_op op :
           {reduce_op::sum, reduce_op::avg, reduce_op::max, reduce_op::min, reduce_op::bit_or}) {
        if (op == reduce_op::bit_or && !std::is_integral_v<T>) continue;
        std::vector<T> x = values<T>(group.rank(), n);
        group.all_reduce(std::span<T>(x), op);
        same(x, expected<T>(op, group.size(), n));

        std::vector<T> all = values<T>(group.rank(), n * world), mine(n);
        group.reduce_scatter(std::span<const T>(all), std::span<T>(mine), op);
        const std::vector<T> whole = expected<T>(op, group.size(), n * world);
        const auto from = whole.begin() + static_cast<std::ptrdiff_t>(n) * group.rank();
        same(mine, std::vector<T>(from, from + static_cast<std::ptrdiff_t>(n)));
        const std::span<T> place =
            std::span<T>(all).subspan(n * static_cast<std::size_t>(group.rank()), n);
        group.reduce_scatter(std::span<const T>(all), place, op);
        same(std::vector<T>(place.begin(), place.end()), mine);
      }

      for (int root = 0; root < group.size(); ++root) {
        std::vector<T> x = values<T>(group.rank(), n);
        group.broadcast(std::span<T>(x), root);
        same(x, values<T>(root, n));
      }

      std::vector<T> mine = values<T>(group.rank(), n), all(n * world), whole;
      group.all_gather(std::span<const T>(mine), std::span<T>(all));
      for (int r = 0; r < group.size(); ++r) {
        const std::vector<T> part = values<T>(r, n);
        whole.insert(whole.end(), part.begin(), part.end());
      }
      same(all, whole);
      const std::span<T> place =
          std::span<T>(all).subspan(n * static_cast<std::size_t>(group.rank()), n);
      group.all_gather(std::span<const T>(place), std::span<T>(all));
      same(all, whole);
      group.barrier();
    }
    return failures;
  });
  for (int failures : wrong) CHECK(failures == 0);
}

/// Numbers whose sum depends on the order.
std::vector<float> awkward(int rank, std::size_t n) {
  std::vector<float> x(n);
  ike::fill_uniform(ike::random_stream{ike::seed{99}, static_cast<std::uint64_t>(rank)}, 1.0f,
                    x.data(), static_cast<ike::dim_t>(n));
  return x;
}

}  // namespace

TEST_CASE("Collectives of float, 1 to 4 ranks") {
  for (int ranks = 1; ranks <= 4; ++ranks) check_collectives<float>(ranks);
}
TEST_CASE("Collectives of double, 1 to 4 ranks") {
  for (int ranks = 1; ranks <= 4; ++ranks) check_collectives<double>(ranks);
}
TEST_CASE("Collectives of int64, 1 to 4 ranks") {
  for (int ranks = 1; ranks <= 4; ++ranks) check_collectives<std::int64_t>(ranks);
}
TEST_CASE("Collectives of int32, 3 ranks") { check_collectives<std::int32_t>(3); }

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

TEST_CASE("Sums are taken in the order of the ranks, with the same bits on every run") {
  constexpr std::size_t n = 1003;
  std::vector<float> sum = awkward(0, n);
  for (int r = 1; r < 4; ++r) {
    const std::vector<float> x = awkward(r, n);
    for (std::size_t i = 0; i < n; ++i) sum[i] += x[i];
  }
  for (float& x : sum) x *= 0.25f;
  for (int run = 0; run < 100; ++run) {
    const auto results = ike::launch(threads{4}, [](ike::process_group auto& group) {
      std::vector<float> x = awkward(group.rank(), n);
      group.all_reduce(std::span<float>(x), reduce_op::avg);
      return x;
    });
    for (const auto& x : results)
      REQUIRE(std::memcmp(x.data(), sum.data(), n * sizeof(float)) == 0);
  }
}

TEST_CASE("Many collectives are under way at once, more than the table holds") {
  const auto wrong = ike::launch(threads{3}, [](ike::process_group auto& group) {
    constexpr std::size_t count = 3 * ike::thread_world::max_in_flight + 5;
    std::vector<std::vector<double>> data(count);
    std::vector<ike::work_of<decltype(group)>> works(count);
    for (std::size_t i = 0; i < count; ++i) {
      data[i].assign(i, static_cast<double>(i));
      works[i] = group.all_reduce_async(std::span<double>(data[i]), reduce_op::sum);
    }
    int failures = 0;
    for (std::size_t i = count; i-- > 0;) {
      works[i].wait();
      failures += data[i] != std::vector<double>(i, 3.0 * static_cast<double>(i));
    }
    return failures;
  });
  for (int failures : wrong) CHECK(failures == 0);
}

TEST_CASE("Works of different collectives complete by polling alone") {
  const auto polls = ike::launch(threads{2}, [](ike::process_group auto& group) {
    std::vector<float> a(1000, 1.0f), b(10, static_cast<float>(group.rank()));
    std::array<std::int64_t, 2> all{};
    const std::int64_t mine = 10 + group.rank();
    std::array works{group.all_reduce_async(std::span<float>(a), reduce_op::sum),
                     group.broadcast_async(std::span<float>(b), 1),
                     group.all_gather_async(std::span<const std::int64_t>(&mine, 1),
                                            std::span<std::int64_t>(all)),
                     group.barrier_async()};
    for (std::size_t complete = 0; complete < works.size();)
      works[complete].poll() ? void(++complete) : std::this_thread::yield();
    return a[999] == 2.0f && b[9] == 1.0f && all[0] == 10 && all[1] == 11 ? 1 : 0;
  });
  CHECK(polls == std::vector<int>{1, 1});
}

TEST_CASE("A rank's share is done by its own poll, while it does other things") {
  std::atomic<int> stage{0};  // decides who is ahead
  ike::launch(threads{2}, [&](ike::process_group auto& group) {
    std::vector<float> first(64, 1.0f);
    const auto reach = [&](int s) {
      while (stage.load() < s) std::this_thread::yield();
    };
    if (group.rank() == 0) {
      auto work = group.all_reduce_async(std::span<float>(first), reduce_op::sum);
      CHECK(!work.poll());  // nobody else has come
      stage = 1;
      reach(2);
      CHECK(!work.poll());  // its own share is done by this, the other's is not
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
