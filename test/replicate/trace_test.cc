#include "ikebana/replicate/trace.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include "ikebana/core/error.hpp"
#include "ikebana/replicate/launch.hpp"
#include "test/support/count_allocations.hpp"
#include "trace_checks.hpp"

namespace ike = ikebana;
using ike::trace_kind;

TEST_CASE("A trace holds the last events, as many as there is room for") {
  ike::step_trace t(3, 4);
  CHECK(t.rank() == 3);
  CHECK(t.capacity() == 4);
  CHECK(t.size() == 0);
  for (std::size_t i = 0; i < 7; ++i) {
    t.record(trace_kind::wait, i, static_cast<std::int64_t>(i), 10);
    CHECK(t.size() == std::min<std::size_t>(i + 1, 4));
    CHECK(t[t.size() - 1].index == i);
  }
  CHECK(t.recorded() == 7);
  for (std::size_t i = 0; i < 4; ++i) CHECK(t[i].index == i + 3);
  t.clear();
  CHECK(t.size() == 0);
  CHECK_THROWS_WITH_AS(ike::step_trace(0, 0), "a trace needs room for one event or more, got 0",
                       ike::error);
}

TEST_CASE("The clock of traces does not go back") {
  const std::int64_t first = ike::step_trace::now();
  CHECK(ike::step_trace::now() >= first);
}

TEST_CASE("A trace has every leaf, bucket and phase of a step") {
  for (const int ranks : {1, 2, 3, 4})
    ike::launch(ike::threads{ranks},
                [](ike::process_group auto& group) { trace_checks::events<float>(group); });
}

TEST_CASE("Reductions begin before backward ends") {
  for (const int ranks : {1, 2, 4})
    ike::launch(ike::threads{ranks},
                [](ike::process_group auto& group) { trace_checks::overlap(group); });
}

TEST_CASE("Under no_sync nothing is reduced") {
  ike::launch(ike::threads{2},
              [](ike::process_group auto& group) { trace_checks::no_sync(group); });
}

TEST_CASE("A static graph's buckets are named as they are") {
  for (const int ranks : {1, 2})
    ike::launch(ike::threads{ranks},
                [](ike::process_group auto& group) { trace_checks::static_graph(group); });
}

TEST_CASE("Tracing allocates nothing and changes no number") {
  using trace_checks::replica;
  const auto losses = [](ike::process_group auto& group, auto policy) {
    auto model = replica<float, decltype(policy)>(group);
    std::vector<float> out;
    out.reserve(10);
    long before = 0;
    trace_checks::steps(model, 7, [&](float loss) {
      out.push_back(loss);
      if (out.size() == 2) before = allocation_count_here;
    });
    CHECK(allocation_count_here == before);
    return out;
  };
  const auto traced = ike::launch(ike::threads{2}, [&](ike::process_group auto& group) {
    return losses(group, trace_checks::traced{});
  });
  const auto plain = ike::launch(ike::threads{2}, [&](ike::process_group auto& group) {
    return losses(group, ike::replicate_policy<ike::bucket_cap<1>>{});
  });
  CHECK(traced == plain);
}

TEST_CASE("A replica is moved, its trace goes on, and a copy of it stays") {
  const auto traces = ike::launch(ike::threads{2}, [](ike::process_group auto& group) {
    auto first = trace_checks::replica<float, trace_checks::traced>(group);
    trace_checks::steps(first, 1, [](float) {});
    auto second = std::move(first);
    const std::size_t before = ike::trace_of(second).size();
    trace_checks::steps(second, 1, [](float) {});
    CHECK(ike::trace_of(second).size() > before);
    return ike::trace_of(second);
  });
  CHECK(traces[1].rank() == 1);
  CHECK(traces[1].size() == traces[1].recorded());
}
