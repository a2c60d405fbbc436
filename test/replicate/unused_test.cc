#include "ikebana/replicate/unused.hpp"

#include <doctest/doctest.h>

#include "ikebana/replicate/launch.hpp"
#include "test/replicate/on_threads.hpp"
#include "test/replicate/unused_checks.hpp"
#include "test/support/count_allocations.hpp"

namespace ike = ikebana;
using namespace ike::literals;
using ike::threads;

TEST_CASE("what no rank uses stays absent, what some use is averaged") {
  on_threads([](auto& group) { unused_checks::the_same_branch_on_every_rank<double>(group); });
  on_threads([](auto& group) { unused_checks::another_branch_on_each_rank<double>(group); });
}

TEST_CASE("without find_unused_parameters all ranks hear what was left out, in that backward") {
  on_threads([](auto& group) { unused_checks::left_out_without_the_option<double>(group); });
}

TEST_CASE("usage accumulates under no_sync") {
  on_threads(
      [](auto& group) { unused_checks::usage_accumulates_without_synchronisation<double>(group); });
}

TEST_CASE("optimizers of all ranks leave alone what has no gradient") {
  on_threads([](auto& group) { unused_checks::steps_of_an_optimizer<double>(group); });
}

TEST_CASE("parameters of an output that no loss uses") {
  on_threads([](auto& group) { unused_checks::an_output_that_no_loss_uses<double>(group); });
  on_threads([](auto& group) { unused_checks::an_output_that_some_losses_use<double>(group); });
}

TEST_CASE("steps through branches allocate nothing") {
  ike::launch(threads{2}, [](ike::thread_group& group) {
    auto m = ike::replicate<unused_checks::finding>(unused_checks::fresh<double>(), group);
    const auto x = unused_checks::input<double>(group.rank(), 0);
    const auto y = unused_checks::output_gradient<double>(group.rank(), 0);
    ike::sgd optimizer{m, {.lr = 0.01, .momentum = 0.9}};
    unused_checks::train<0>(m, optimizer, group, x, y);
    const long before = allocation_count_here;
    unused_checks::train<0>(m, optimizer, group, x, y);
    CHECK(allocation_count_here == before);
  });
}
