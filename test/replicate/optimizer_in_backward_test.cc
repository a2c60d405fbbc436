#include "ikebana/replicate/optimizer_in_backward.hpp"

#include <doctest/doctest.h>

#include "ikebana/replicate/launch.hpp"
#include "ikebana/replicate/process_group.hpp"
#include "optimizer_in_backward_checks.hpp"
#include "test/replicate/on_threads.hpp"
#include "test/support/count_allocations.hpp"

namespace ike = ikebana;
using namespace optimizer_in_backward_checks;

TEST_CASE_TEMPLATE("Stepping while backward runs gives the bits of a step at the end", T, float,
                   double) {
  on_threads([](auto& group) { return optimizers<T>(group); });
}

TEST_CASE("Hooks, and parameters that are in no bucket") {
  on_threads([](auto& group) { return hooks<float>(group); });
}

TEST_CASE("Ranks that share the optimizer's work") {
  on_threads([](auto& group) { return shared<float>(group); });
}

TEST_CASE("Every element is in one step, with its bucket") {
  on_threads([](auto& group) { return parts<double>(group); });
}

TEST_CASE("Options that make no sense are refused before anything has changed") {
  on_threads([](auto& group) { return refusal<float>(group); });
}

TEST_CASE("Alone, and without allocating") {
  ike::single group;
  auto model = ike::replicate<early<ike::bucket_cap<1>>>(fresh<float>(network), group);
  auto reference = fresh<float>(network);
  ike::adam a{model, {.lr = 0.01}}, b{reference, {.lr = 0.01}};
  const auto x = input<float>(0, 0);
  const auto y = target<float>(model, 0, 0);
  long before = 0;
  for (int s = 0; s < 4; ++s) {
    model.train_step(x, y, ike::mse_loss{}, a);
    if (s == 0) before = allocation_count_here;
  }
  CHECK(allocation_count_here == before);
  for (int s = 0; s < 4; ++s) reference.train_step(x, y, ike::mse_loss{}, b);
  CHECK(same_parameters(model, reference));
}
