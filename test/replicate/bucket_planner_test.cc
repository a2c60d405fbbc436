// Expected assignments are those of PyTorch's _compute_bucket_assignment_by_size and of the
// reducer's rebuild, as in their sources.

#include "ikebana/replicate/buckets/bucket_planner.hpp"

#include <doctest/doctest.h>

#include <cstddef>
#include <cstdint>
#include <numeric>
#include <span>
#include <sstream>
#include <string>
#include <vector>

#include "ikebana/core/random.hpp"
#include "ikebana/replicate/launch.hpp"
#include "test/support/count_allocations.hpp"
#include "test/support/load_recorded.hpp"

namespace ike = ikebana;
using ike::bucket_assignment;
using ike::dim_t;
using ike::dtype;
using ike::planned_tensor;
using buckets = std::vector<std::vector<std::size_t>>;

namespace {

std::vector<planned_tensor> floats(const std::vector<dim_t>& elements) {
  std::vector<planned_tensor> out;
  for (const dim_t n : elements) out.push_back({4 * n});
  return out;
}

/// 4 x Linear(2000, 2000): weight and bias of each.
std::vector<planned_tensor> four_linears() {
  return floats({4000000, 2000, 4000000, 2000, 4000000, 2000, 4000000, 2000});
}

}  // namespace

TEST_CASE("One dtype: a bucket is closed by the tensor that reaches the limit") {
  const std::vector<dim_t> limits{400};
  const auto plan = ike::assign_buckets(floats({100, 200, 100, 50}), limits);
  CHECK(plan.buckets == buckets{{0}, {1}, {2}, {3}});
  const auto small = ike::assign_buckets(floats({10, 20, 80, 10, 10}), limits);
  CHECK(small.buckets == buckets{{0, 1, 2}, {3, 4}});
  CHECK(small.limits == std::vector<dim_t>{400, 400});
}

TEST_CASE("Each dtype has its own bucket, and its own way through the limits") {
  std::vector<planned_tensor> tensors;
  for (int i = 0; i < 6; ++i)
    tensors.push_back(i % 2 == 0 ? planned_tensor{200, dtype::float32}
                                 : planned_tensor{200, dtype::float64});
  const std::vector<dim_t> limits{200, 400};
  const auto plan = ike::assign_buckets(tensors, limits);
  CHECK(plan.buckets == buckets{{0}, {1}, {2, 4}, {3, 5}});
  CHECK(plan.limits == std::vector<dim_t>{200, 200, 400, 400});
}

TEST_CASE("A list of limits: the last one stands for all that follow") {
  const std::vector<dim_t> limits{40, 80, 120};
  const auto plan = ike::assign_buckets(floats({10, 10, 10, 10, 10, 10, 10, 10, 10, 10}), limits);
  CHECK(plan.buckets == buckets{{0}, {1, 2}, {3, 4, 5}, {6, 7, 8}, {9}});
}

TEST_CASE("An order of arrival is kept, and nothing is sorted") {
  const std::vector<dim_t> limits{4, 80};
  const std::vector<std::size_t> order{4, 2, 0, 3, 1};
  const auto plan = ike::assign_buckets(floats({10, 10, 10, 10, 10}), limits, order);
  CHECK(plan.buckets == buckets{{4}, {2, 0}, {3, 1}});
}

TEST_CASE("Without an order buckets are sorted by their smallest tensor") {
  std::vector<planned_tensor> tensors{
      {4, dtype::float64}, {100, dtype::float32}, {4, dtype::float64}};
  const std::vector<dim_t> limits{50};
  CHECK(ike::assign_buckets(tensors, limits).buckets == buckets{{0, 2}, {1}});
  const std::vector<std::size_t> order{0, 1, 2};
  CHECK(ike::assign_buckets(tensors, limits, order).buckets == buckets{{1}, {0, 2}});
}

TEST_CASE("A sparse gradient has a bucket of its own, with no limit") {
  auto tensors = floats({10, 10, 10});
  tensors[1].sparse = true;
  const std::vector<dim_t> limits{1000};
  const auto plan = ike::assign_buckets(tensors, limits);
  CHECK(plan.buckets == buckets{{0, 2}, {1}});
  CHECK(plan.limits == std::vector<dim_t>{1000, 0});
}

TEST_CASE("Drawn cases are assigned as PyTorch does") {
  const ike::state_dict all = load_recorded("comm_hooks");
  for (int draw = 0; draw < 24; ++draw) {
    CAPTURE(draw);
    const auto numbers = [&](const char* key) {
      const auto& e = all.at("assignment" + std::to_string(draw) + "/" + key);
      const auto* first = reinterpret_cast<const std::int64_t*>(e.bytes.data());
      return std::vector<std::int64_t>(first, first + e.extents[0]);
    };
    std::vector<planned_tensor> tensors;
    const auto bytes = numbers("bytes"), kinds = numbers("kinds"), given = numbers("order");
    for (std::size_t i = 0; i < bytes.size(); ++i)
      tensors.push_back({bytes[i], kinds[i] == 0 ? dtype::float32 : dtype::float64});
    const std::vector<std::size_t> order(given.begin(), given.end());
    const auto plan = ike::assign_buckets(tensors, numbers("limits"), order);
    std::vector<std::int64_t> indices, counts;
    for (const auto& bucket : plan.buckets) {
      counts.push_back(static_cast<std::int64_t>(bucket.size()));
      indices.insert(indices.end(), bucket.begin(), bucket.end());
    }
    CHECK(indices == numbers("indices"));
    CHECK(counts == numbers("counts"));
    CHECK(plan.limits == numbers("result_limits"));
  }
}

TEST_CASE("No limits, and orders that are none, are refused") {
  const std::vector<dim_t> limits{1};
  CHECK_THROWS_AS(ike::assign_buckets(floats({1}), {}), ike::error);
  for (const auto& order : {std::vector<std::size_t>{0, 0}, {0, 2}, {1}, {0, 1, 1}})
    CHECK_THROWS_AS(ike::assign_buckets(floats({1, 1}), limits, order), ike::error);
}

TEST_CASE("In order of arrival it is the plan that the compiler makes") {
  for (std::uint32_t draw = 0; draw < 50; ++draw) {
    CAPTURE(draw);
    std::vector<planned_tensor> tensors;
    std::vector<dim_t> ends;
    std::vector<std::size_t> order;
    const ike::random_stream stream{ike::seed{7}, 0, draw};
    for (std::uint32_t i = 0; i < 20; ++i) {
      tensors.push_back({static_cast<dim_t>(stream.words(i)[0] % 100)});
      ends.push_back((ends.empty() ? 0 : ends.back()) + tensors.back().bytes);
      order.push_back(i);
    }
    const std::vector<dim_t> limits{1 + draw, 60, 130};
    const auto plan = ike::assign_buckets(tensors, limits, order);
    std::vector<ike::bucket_range> ranges(ends.size());
    ranges.resize(ike::plan_buckets(ends, limits, ranges));
    REQUIRE(plan.size() == ranges.size());
    for (std::size_t b = 0; b < ranges.size(); ++b) {
      CHECK(plan.buckets[b].front() == ranges[b].first_parameter);
      CHECK(plan.buckets[b].back() == ranges[b].last_parameter);
    }
  }
}

TEST_CASE("Four Linear(2000): one bucket at first, three in the order of backward") {
  ike::single group;
  ike::bucket_planner planner(four_linears());
  CHECK(planner.plan().buckets == buckets{{0, 1, 2, 3, 4, 5, 6, 7}});
  CHECK(!planner.rebuild(group));  // Nothing has arrived yet.
  for (std::size_t i : {7u, 6u, 5u, 4u, 3u, 2u, 1u, 0u}) planner.mark_ready(i);
  REQUIRE(planner.rebuild(group));
  CHECK(planner.plan().buckets == buckets{{7, 6}, {5, 4, 3, 2}, {1, 0}});
  CHECK(planner.plan().limits == std::vector<dim_t>{1 << 20, 25 << 20, 25 << 20});
  CHECK(planner.has_rebuilt());
  for (std::size_t i : {0u, 1u, 2u, 3u, 4u, 5u, 6u, 7u}) planner.mark_ready(i);
  CHECK(!planner.rebuild(group));  // Only once.
}

TEST_CASE("After the rebuild, backwards record nothing") {
  ike::single group;
  ike::bucket_planner planner(four_linears());
  const auto backward = [&] {
    for (std::size_t i = 8; i-- > 0;) planner.mark_ready(i);
  };
  backward();
  REQUIRE(planner.rebuild(group));
  const long before = allocation_count_here;
  for (int step = 0; step < 100; ++step) {
    planner.begin_backward();
    backward();
  }
  CHECK(allocation_count_here == before);
}

TEST_CASE("Where parameters may be unused there are caps from the start, and no rebuild") {
  ike::single group;
  ike::bucket_planner planner(four_linears(), {.find_unused_parameters = true});
  // From the first parameter: the first weight reaches 1 MiB, then the third 25 MiB, then the rest.
  // Reversed, since backward starts at the end.
  CHECK(planner.plan().buckets == buckets{{5, 6, 7}, {1, 2, 3, 4}, {0}});
  for (std::size_t i = 8; i-- > 0;) planner.mark_ready(i);
  CHECK(!planner.rebuild(group));
  ike::bucket_planner fixed(four_linears(), {.static_graph = true, .find_unused_parameters = true});
  CHECK(fixed.plan().size() == 1);
}

TEST_CASE("The small bucket may be the last") {
  ike::single group;
  ike::bucket_planner planner(floats({10, 10, 10, 10, 10}),
                              {.caps = {40, 80}, .small_last_bucket = true});
  for (std::size_t i = 5; i-- > 0;) planner.mark_ready(i);
  REQUIRE(planner.rebuild(group));
  CHECK(planner.plan().buckets == buckets{{3, 4}, {1, 2}, {0}});
}

TEST_CASE("Rank 0's order of arrival is that of all ranks") {
  const auto plans = ike::launch(ike::threads{4}, [](ike::process_group auto& group) {
    ike::bucket_planner planner(floats({10, 10, 10, 10, 10, 10}), {.caps = {40, 80}});
    std::vector<std::size_t> order{5, 3, 4, 2, 0, 1};
    if (group.rank() == 2) order = {0, 1, 2, 3, 4, 5};
    if (group.rank() == 3) order = {1, 0, 5, 4, 3, 2};
    for (const std::size_t i : order) planner.mark_ready(i);
    CHECK(planner.rebuild(group));
    return planner.plan();
  });
  for (const bucket_assignment& plan : plans) {
    CHECK(plan.buckets == buckets{{5}, {3, 4}, {2, 0}, {1}});
    CHECK(plan.limits == std::vector<dim_t>{40, 80, 80, 80});
  }
}

TEST_CASE("Even where ranks count buckets differently") {
  const auto plans = ike::launch(ike::threads{2}, [](ike::process_group auto& group) {
    const std::vector<dim_t> limits{group.rank() == 0 ? 40 : 4000};
    auto plan = ike::assign_buckets(floats({10, 10, 10}), limits);
    ike::broadcast_assignment(plan, 3, group);
    return plan;
  });
  CHECK(plans[0].size() == 3);
  CHECK(plans[0] == plans[1]);
}

TEST_CASE("Buckets are launched in the order of their index, whichever is complete first") {
  ike::bucket_planner planner(floats({10, 10, 10, 10}),
                              {.caps = {80}, .find_unused_parameters = true});
  REQUIRE(planner.plan().buckets == buckets{{2, 3}, {0, 1}});
  std::size_t b = 99;
  planner.mark_ready(0);
  planner.mark_ready(1);
  CHECK(!planner.take_ready(b));
  planner.mark_ready(3);
  CHECK(!planner.take_ready(b));
  CHECK(!planner.is_complete());
  planner.mark_ready(2);
  REQUIRE(planner.take_ready(b));
  CHECK(b == 0);
  REQUIRE(planner.take_ready(b));
  CHECK(b == 1);
  CHECK(!planner.take_ready(b));
  CHECK(planner.is_complete());
  CHECK_THROWS_WITH_AS(planner.mark_ready(2), "gradient 2 was marked ready twice",
                       ike::state_error);
  CHECK_THROWS_WITH_AS(planner.mark_ready(4), "gradient 4 does not exist", ike::state_error);
  planner.begin_backward();
  CHECK(!planner.is_complete());
  planner.mark_ready(2);
}

TEST_CASE("A gradient that never came is said at the rebuild") {
  ike::single group;
  ike::bucket_planner planner(floats({1, 1, 1}));
  planner.mark_ready(1);
  CHECK_THROWS_WITH_AS(planner.rebuild(group),
                       "bucket_planner: 2 of 3 gradients did not come in the first backward",
                       ike::state_error);
}

TEST_CASE("Another graph is planned afresh") {
  ike::single group;
  ike::bucket_planner planner(floats({1, 1}), {.caps = {4}});
  planner.mark_ready(1);
  planner.mark_ready(0);
  REQUIRE(planner.rebuild(group));
  planner.replan(floats({1, 1, 1}));
  CHECK(!planner.has_rebuilt());
  CHECK(planner.plan().buckets == buckets{{0, 1, 2}});
  for (std::size_t i : {2u, 0u, 1u}) planner.mark_ready(i);
  REQUIRE(planner.rebuild(group));
  CHECK(planner.plan().buckets == buckets{{2}, {0}, {1}});
}

TEST_CASE("An assignment prints") {
  const std::vector<dim_t> limits{8};
  std::ostringstream out;
  out << ike::assign_buckets(floats({1, 1, 1}), limits);
  CHECK(out.str() == "bucket 0: limit 8, parameters 0 1\nbucket 1: limit 8, parameters 2\n");
}
