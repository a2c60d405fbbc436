// Run by mpirun: each rank runs all of it.
#include "ikebana/replicate/mpi_group.hpp"

#include <doctest/doctest.h>

#include <array>
#include <chrono>
#include <cstdint>
#include <cstdlib>
#include <span>
#include <stdexcept>
#include <string>
#include <thread>
#include <type_traits>
#include <utility>
#include <vector>

#include "test/support/group_checks.hpp"

namespace ike = ikebana;
using namespace std::chrono_literals;
using ike::reduce_op;

namespace {

/// The text of what f throws; the empty string if nothing.
template <class F>
std::string message(F f) {
  try {
    f();
  } catch (const ike::communication_error& e) {
    return e.what();
  }
  return {};
}

std::string rank_text(int rank) { return "rank " + std::to_string(rank); }

bool contains(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

}  // namespace

TEST_CASE("The world has as many ranks as were started") {
  const ike::mpi_group group = ike::mpi_group::world();
  CHECK(group.size() == std::atoi(std::getenv("OMPI_COMM_WORLD_SIZE")));
  CHECK(group.rank() == std::atoi(std::getenv("OMPI_COMM_WORLD_RANK")));
}

TEST_CASE_TEMPLATE("Collectives", T, float, double, ike::bfloat16, ike::float16, std::int64_t,
                   std::int32_t, std::uint8_t) {
  ike::mpi_group group = ike::mpi_group::world();
  CHECK(group_checks::collectives<T>(group) == 0);
}

TEST_CASE_TEMPLATE("Sums are taken in the order of the ranks", T, float, double, ike::bfloat16,
                   ike::float16) {
  ike::mpi_group group = ike::mpi_group::world();
  CHECK(group_checks::order_of_sums<T>(group) == 0);
}

TEST_CASE("Many collectives are under way at once, more than there is room for") {
  ike::mpi_group group = ike::mpi_group::world();
  CHECK(group_checks::many_at_once(group) == 0);
}

TEST_CASE("Works of different collectives complete by polling alone") {
  ike::mpi_group group = ike::mpi_group::world();
  CHECK(group_checks::polling(group) == 0);
}

TEST_CASE("A group is cut into parts, and those too") {
  ike::mpi_group group = ike::mpi_group::world();
  for (int repetition = 0; repetition < 20; ++repetition) CHECK(group_checks::split(group) == 0);
}

TEST_CASE("Ranks stand in a grid") {
  ike::mpi_group group = ike::mpi_group::world();
  CHECK(group_checks::mesh(group) == 0);
}

TEST_CASE("Large buffers, broadcast from every rank") {
  ike::mpi_group group = ike::mpi_group::world();
  for (int root = 0; root < group.size(); ++root) {
    std::vector<std::int32_t> x(1000000, group.rank());
    group.broadcast(std::span<std::int32_t>(x), root);
    CHECK(x == std::vector<std::int32_t>(x.size(), root));
  }
}

TEST_CASE("A work moves, and one that nobody waits for is complete when its handle is gone") {
  static_assert(!std::is_copy_constructible_v<ike::mpi_work>);
  ike::mpi_work none;
  CHECK(none.poll());
  ike::mpi_group group = ike::mpi_group::world();
  std::vector<double> x(10000, 1.0);
  {
    ike::mpi_work a = group.all_reduce_async(std::span<double>(x), reduce_op::sum);
    ike::mpi_work b = std::move(a);
    none = std::move(b);
  }
  { const ike::mpi_work c = std::move(none); }
  CHECK(x == std::vector<double>(x.size(), group.size()));
}

TEST_CASE("Different lengths, types and collectives: every rank says who called what") {
  ike::mpi_group world = ike::mpi_group::world();
  const int last = world.size() - 1;
  const auto differ = [&](auto call) {
    ike::mpi_group group = world.split(0, 0);
    group.barrier();
    return message([&] { call(group, group.rank() == last); });
  };
  CHECK(differ([](auto& g, bool odd) {
          std::vector<float> x(odd ? 12 : 10);
          g.all_reduce(std::span<float>(x), reduce_op::avg);
        }) == rank_text(world.rank()) + ": " + rank_text(last) +
                  " called all_reduce of 12 float32 (avg), rank 0 called all_reduce of 10 float32 "
                  "(avg)");
  CHECK(contains(differ([](auto& g, bool odd) {
                   std::vector<float> x(100000);
                   std::vector<ike::bfloat16> y(100000);
                   if (odd)
                     g.broadcast(std::span<ike::bfloat16>(y), 0);
                   else
                     g.broadcast(std::span<float>(x), 0);
                 }),
                 " called broadcast of 100000 bfloat16 (from rank 0), rank 0 called broadcast"));
  CHECK(contains(differ([](auto& g, bool odd) {
                   std::int64_t x = 0;
                   if (odd)
                     g.barrier();
                   else
                     g.all_reduce(std::span<std::int64_t>(&x, 1), reduce_op::max);
                 }),
                 " called barrier, rank 0 called all_reduce of 1 int64 (max)"));
  // A failed group stays failed; the others are unaffected.
  ike::mpi_group group = world.split(0, 0);
  const auto barrier = [&] { group.barrier(); };
  CHECK(message([&] {
          std::vector<float> x(world.rank() == last ? 2 : 1);
          group.broadcast(std::span<float>(x), 0);
        }) != "");
  CHECK(message(barrier) != "");
  CHECK(message(barrier) != "");
  world.barrier();
}

TEST_CASE("A rank that never comes is given up after the timeout, and hears of it") {
  ike::mpi_group world = ike::mpi_group::world();
  const int last = world.size() - 1;
  ike::mpi_group group = ike::mpi_group::world(300ms);
  if (world.rank() == last) std::this_thread::sleep_for(900ms);
  const std::string text = message([&] {
    std::vector<float> x(100000);
    group.all_reduce(std::span<float>(x), reduce_op::avg);
  });
  INFO(text);
  CHECK(contains(text, rank_text(world.rank()) + ": all_reduce of 100000 float32 (avg): "));
  CHECK(contains(text, rank_text(last) + " did not come (waited "));
  if (world.rank() == last) CHECK(contains(text, " gave up (waited "));
  world.barrier();
}

TEST_CASE("A rank that leaves a group is not waited for") {
  ike::mpi_group world = ike::mpi_group::world();
  const int last = world.size() - 1;
  std::string text;
  {
    ike::mpi_group group = world.split(0, 0);
    group.barrier();
    if (world.rank() != last) text = message([&] { group.barrier(); });
  }
  if (world.rank() != last) {
    INFO(text);
    CHECK(contains(text, "barrier: " + rank_text(last) + " has returned without it"));
  }
  world.barrier();
}

TEST_CASE("An exception withdraws what is under way, and the others hear of it") {
  ike::mpi_group world = ike::mpi_group::world();
  const int last = world.size() - 1;
  for (int repetition = 0; repetition < 4; ++repetition) {
    std::string text;
    try {
      ike::mpi_group group = world.split(0, 0);
      std::vector<float> x(200000, 1.0f);
      auto work = group.all_reduce_async(std::span<float>(x), reduce_op::sum);
      if (world.rank() == last) throw std::runtime_error("mine alone");
      text = message([&] {
        work.wait();
        group.barrier();
      });
    } catch (const std::runtime_error& e) {
      text = e.what();
    }
    INFO(text);
    CHECK(contains(text, world.rank() == last ? "mine alone" : rank_text(last) + " failed"));
  }
  world.barrier();
}

TEST_CASE("The survivors' group is apart from groups that only some of them still have") {
  ike::mpi_group world = ike::mpi_group::world(5s);
  std::vector<ike::mpi_group> kept;
  for (int i = 0; i < 3; ++i) {
    ike::mpi_group alone = world.split(world.rank(), 0);
    if (world.rank() == 0) kept.push_back(std::move(alone));
  }
  ike::mpi_group left = world.survivors();
  CHECK(left.size() == world.size());
  std::array<std::int64_t, 1> ranks{left.rank()};
  left.all_reduce(std::span<std::int64_t>(ranks), reduce_op::sum);
  CHECK(ranks[0] == left.size() * (left.size() - 1) / 2);
  left.barrier();
}

TEST_CASE("What is said to a group before it is made here is kept for it") {
  struct listener : ike::detail::mpi_listener {
    bool handle(const ike::detail::mpi_notice& notice) override {
      if (notice.group != 12345) return false;
      heard_from = notice.sender;
      return true;
    }
    int heard_from = -1;
  } late;
  ike::mpi_group world = ike::mpi_group::world(5s);
  ike::detail::mpi_process& process = ike::detail::mpi_process::instance();
  const int last = world.size() - 1;
  if (world.rank() == last) {
    const std::array<int, 1> to{0};
    process.send(process.notice_of(ike::detail::mpi_notice_kind::gave_up, 12345, "early"), to);
  }
  // It arrives meanwhile, as a rule.
  for (int i = 0; i < 3; ++i) world.barrier();
  process.poll();
  process.attach(&late);
  const auto deadline = std::chrono::steady_clock::now() + 2s;
  while (world.rank() == 0 && late.heard_from < 0 && std::chrono::steady_clock::now() < deadline)
    process.poll();
  CHECK(late.heard_from == (world.rank() == 0 ? last : -1));
  process.detach(&late);
  world.barrier();
}

TEST_CASE("Arguments that one rank alone can judge") {
  ike::mpi_group group = ike::mpi_group::world().split(0, 0);
  std::array<float, 3> x{};
  CHECK(contains(message([&] { group.broadcast(std::span<float>(x), group.size()); }),
                 "there is no such rank"));
}
