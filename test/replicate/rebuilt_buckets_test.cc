#include "ikebana/replicate/buckets/rebuilt_buckets.hpp"

#include <doctest/doctest.h>

#include "ikebana/replicate/launch.hpp"
#include "test/replicate/on_threads.hpp"
#include "test/replicate/unused_checks.hpp"
#include "test/support/count_allocations.hpp"

namespace ike = ikebana;
using namespace ike::literals;
using ike::threads;

TEST_CASE("a static graph may leave parameters out, and must not change") {
  on_threads([](auto& group) { unused_checks::a_static_graph_that_changes<float>(group); });
}

TEST_CASE("buckets are made anew for a static graph") {
  on_threads([](auto& group) { unused_checks::buckets_of_a_static_graph<float>(group); });
}

TEST_CASE("buckets that nobody uses are not reduced") {
  on_threads([](auto& group) { unused_checks::buckets_of_nobody_are_skipped<float>(group); });
}

TEST_CASE("steps of a static graph allocate nothing") {
  ike::launch(threads{2}, [](ike::thread_group& group) {
    auto m = ike::replicate<unused_checks::policy<ike::static_graph<true>>>(
        unused_checks::fresh<float>(), group);
    const auto x = unused_checks::input<float>(group.rank(), 0);
    const auto y = unused_checks::output_gradient<float>(group.rank(), 0);
    ike::sgd optimizer{m, {.lr = 0.01, .momentum = 0.9}};
    unused_checks::train<1>(m, optimizer, group, x, y);
    const long before = allocation_count_here;
    unused_checks::train<1>(m, optimizer, group, x, y);
    CHECK(allocation_count_here == before);
  });
}
