#include "ikebana/replicate/buckets/buckets.hpp"

#include <doctest/doctest.h>

#include <array>
#include <cstddef>
#include <numeric>
#include <span>
#include <sstream>
#include <vector>

namespace ike = ikebana;
using ike::bucket_range;
using ike::dim_t;

namespace {

template <std::size_t N>
constexpr std::array<dim_t, N> ends_of(const std::array<dim_t, N>& sizes) {
  std::array<dim_t, N> ends{};
  dim_t at = 0;
  for (std::size_t i = 0; i < N; ++i) ends[i] = at += sizes[i];
  return ends;
}

}  // namespace

TEST_CASE("A bucket is closed by the parameter that reaches its cap, which it includes") {
  // Caps 100, then 250: 40 + 70 >= 100; 200 + 60 >= 250; 249 stays open; 1 closes it; 10 is left.
  constexpr auto plan =
      ike::plan_buckets(ends_of(std::array<dim_t, 7>{40, 70, 200, 60, 249, 1, 10}), 100, 250);
  static_assert(plan.size() == 4);
  static_assert(plan[0] == bucket_range{0, 110, 0, 1});
  static_assert(plan[1] == bucket_range{110, 370, 2, 3});
  static_assert(plan[2] == bucket_range{370, 620, 4, 5});
  static_assert(plan[3] == bucket_range{620, 630, 6, 6});
  CHECK(plan.size() == 4);
}

TEST_CASE("A parameter larger than the cap is not split") {
  constexpr auto plan = ike::plan_buckets(ends_of(std::array<dim_t, 3>{1, 1000, 1}), 10, 10);
  static_assert(plan.size() == 2);
  static_assert(plan[0] == bucket_range{0, 1001, 0, 1});
  static_assert(plan[1] == bucket_range{1001, 1002, 2, 2});
  CHECK(plan[0].bytes() == 1001);
}

TEST_CASE("What exactly fills the cap leaves no empty bucket behind") {
  constexpr auto plan = ike::plan_buckets(ends_of(std::array<dim_t, 2>{64, 64}), 64, 64);
  static_assert(plan.size() == 2 && plan[1] == bucket_range{64, 128, 1, 1});
  constexpr auto one = ike::plan_buckets(ends_of(std::array<dim_t, 2>{64, 64}), 128, 1);
  static_assert(one.size() == 1 && one[0] == bucket_range{0, 128, 0, 1});
  CHECK(one.size() == 1);
}

TEST_CASE("A list of caps gives each bucket its own, the last for all that follow") {
  constexpr auto plan = ike::plan_buckets(ends_of(std::array<dim_t, 6>{10, 10, 10, 10, 10, 10}),
                                          std::array<dim_t, 3>{1, 30, 20});
  static_assert(plan.size() == 3);
  static_assert(plan[0].bytes() == 10 && plan[1].bytes() == 30 && plan[2].bytes() == 20);
  CHECK(plan.size() == 3);
}

TEST_CASE("No parameters make no buckets, and small models one") {
  static_assert(ike::plan_buckets(std::array<dim_t, 0>{}).empty());
  constexpr auto plan = ike::plan_buckets(ends_of(std::array<dim_t, 3>{4, 0, 8}));
  static_assert(plan.size() == 1 && plan[0] == bucket_range{0, 12, 0, 2});
  CHECK(plan.size() == 1);
}

TEST_CASE("Groups end buckets, count their caps apart, and leave out what is in none") {
  constexpr std::array<int, 7> group{0, 0, 1, -1, 0, 0, 1};
  constexpr std::array<dim_t, 2> small_first{8, 20};
  constexpr std::array<dim_t, 1> large{100};
  constexpr auto ends = ends_of(std::array<dim_t, 7>{8, 8, 8, 8, 8, 8, 8});
  constexpr auto plan = [&] {
    std::array<bucket_range, 7> out{};
    const std::size_t n = ike::detail::plan_grouped_buckets(
        ends, [&](std::size_t i) { return group[i]; },
        [&](std::size_t g) {
          return g == 0 ? std::span<const dim_t>(small_first) : std::span<const dim_t>(large);
        },
        out);
    return ike::bucket_plan<7>(out, n);
  }();
  static_assert(plan.size() == 5);
  static_assert(plan[0] == bucket_range{0, 8, 0, 0, 0} && plan[1] == bucket_range{8, 16, 1, 1, 0});
  static_assert(plan[2] == bucket_range{16, 24, 2, 2, 1});
  static_assert(plan[3] == bucket_range{32, 48, 4, 5, 0});
  static_assert(plan[4] == bucket_range{48, 56, 6, 6, 1});
  static_assert(plan.bucket_of(2) == 2 && plan.bucket_of(3) == 5 && plan.bucket_of(5) == 3);
  CHECK(plan.size() == 5);
}

TEST_CASE("Buckets become ready as backward goes on") {
  constexpr auto plan = ike::plan_buckets(ends_of(std::array<dim_t, 5>{5, 5, 5, 5, 5}), 10, 10);
  static_assert(plan.size() == 3);
  static_assert(plan.ready_after(0) == 0 && plan.ready_after(1) == 0 && plan.ready_after(2) == 1);
  static_assert(plan.ready_after(4) == 2 && plan.ready_after(5) == 3);
  static_assert(plan.ready_up_to(9) == 0 && plan.ready_up_to(10) == 1 && plan.ready_up_to(25) == 3);
  static_assert(plan.bucket_of(0) == 0 && plan.bucket_of(1) == 0 && plan.bucket_of(4) == 2);
  CHECK(plan.size() == 3);
}

// The three bucket sizes that PyTorch's issue 48880 reports for ResNet-18.
TEST_CASE("ResNet-18 is cut where DistributedDataParallel cuts it") {
  std::vector<dim_t> sizes;  // In the order of definition.
  const auto conv = [&](dim_t out, dim_t in, dim_t k) { sizes.push_back(4 * out * in * k * k); };
  const auto norm = [&](dim_t n) { sizes.insert(sizes.end(), {4 * n, 4 * n}); };
  conv(64, 3, 7), norm(64);
  for (dim_t layer = 0, in = 64; layer < 4; ++layer) {
    const dim_t out = 64 << layer;
    for (int block = 0; block < 2; ++block) {
      conv(out, in, 3), norm(out), conv(out, out, 3), norm(out);
      if (in != out) conv(out, in, 1), norm(out);
      in = out;
    }
  }
  sizes.insert(sizes.end(), {4 * 1000 * 512, 4 * 1000});

  std::vector<dim_t> ends(sizes.rbegin(), sizes.rend());
  std::partial_sum(ends.begin(), ends.end(), ends.begin());
  REQUIRE(ends.back() == 4 * 11'689'512);
  std::vector<bucket_range> buckets(ends.size());
  const std::size_t count = ike::plan_buckets(ends, ike::default_bucket_caps, buckets);
  REQUIRE(count == 3);
  CHECK(buckets[0].bytes() == 2'052'000);
  CHECK(buckets[1].bytes() == 28'852'224);
  CHECK(buckets[2].bytes() == 15'853'824);
}

TEST_CASE("A plan prints one line for each bucket") {
  std::ostringstream out;
  out << ike::plan_buckets(ends_of(std::array<dim_t, 3>{8, 8, 4}), 16, 16);
  CHECK(out.str() ==
        "bucket 0: parameters 0 to 1, bytes [0, 16), 16 bytes\n"
        "bucket 1: parameters 2 to 2, bytes [16, 20), 4 bytes\n");
}

TEST_CASE("A plan that knows its parameters prints their paths") {
  constexpr auto parameters = [] {
    std::array<ike::bucket_parameter, 3> p{};
    p[0] = {ike::path_text("fc2.weight"), {2}, 0};
    p[1] = {ike::path_text("fc2.bias"), {2}, 2};
    p[2] = {ike::path_text("fc1.weight"), {1}, 4};
    return p;
  }();
  constexpr ike::named_bucket_plan<3> plan{
      ike::plan_buckets(ends_of(std::array<dim_t, 3>{8, 8, 4}), 16, 16), parameters};
  static_assert(plan.size() == 2 && plan.parameters(0).size() == 2);
  static_assert(plan.parameters(1)[0].path.view() == "fc1.weight");
  std::ostringstream out;
  out << plan;
  CHECK(out.str() ==
        "bucket 0: bytes [0, 16), 16 bytes: fc2.weight fc2.bias\n"
        "bucket 1: bytes [16, 20), 4 bytes: fc1.weight\n");
}
