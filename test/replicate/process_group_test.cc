#include "ikebana/replicate/process_group.hpp"

#include <doctest/doctest.h>

#include <array>
#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

namespace ike = ikebana;

namespace {

struct undivided : ike::single {
  undivided split(int color, int key) = delete;
};
static_assert(ike::process_group<undivided> && !ike::divisible_group<undivided>);

/// Written once for every group.
template <ike::process_group G>
std::vector<float> average(G& group, std::vector<float> x) {
  ike::work_of<G> none;
  none.wait();
  auto work = group.all_reduce_async(std::span<float>(x), ike::reduce_op::avg);
  while (!work.poll()) {
  }
  work.wait();
  group.barrier();
  return x;
}

}  // namespace

TEST_CASE("A world of one changes nothing") {
  ike::single group;
  static_assert(group.rank() == 0 && group.size() == 1);
  CHECK(average(group, {1, 2, 3}) == std::vector<float>{1, 2, 3});

  std::array<double, 2> x{5, 6}, y{};
  group.all_reduce(std::span<double>(x), ike::reduce_op::sum);
  group.broadcast(std::span<double>(x), 0);
  group.all_gather(std::span<const double>(x), std::span<double>(y));
  CHECK(y == std::array<double, 2>{5, 6});
  y = {};
  group.reduce_scatter(std::span<const double>(x), std::span<double>(y), ike::reduce_op::max);
  CHECK(y == x);

  std::array<std::uint64_t, 1> hashes{};
  ike::exchange(group, std::uint64_t{42}, std::span<std::uint64_t>(hashes));
  CHECK(hashes[0] == 42);
}

TEST_CASE("A world of one refuses what has no sense in it") {
  ike::single group;
  std::array<float, 2> x{};
  CHECK_THROWS_AS(group.broadcast(std::span<float>(x), 1), ike::communication_error);
  CHECK_THROWS_AS(group.all_gather(std::span<const float>(x), std::span<float>(x).first(1)),
                  ike::communication_error);
}

TEST_CASE("Only groups are groups") {
  static_assert(ike::process_group<ike::single>);
  static_assert(!ike::process_group<int>);
  static_assert(!ike::process_group<std::vector<int>>);
  CHECK(ike::name(ike::reduce_op::bit_or) == std::string_view("bit_or"));
}
