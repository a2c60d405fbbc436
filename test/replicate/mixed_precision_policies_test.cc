// Mixed precision with the other options of a policy: the same bits.

#include <doctest/doctest.h>

#include <cstddef>
#include <vector>

#include "ikebana/optim/adam.hpp"
#include "ikebana/replicate/launch.hpp"
#include "ikebana/replicate/mixed_precision.hpp"
#include "ikebana/replicate/optimizer_in_backward.hpp"
#include "ikebana/replicate/path_options.hpp"
#include "ikebana/replicate/shard_optimizer.hpp"
#include "optimizer_run.hpp"

using namespace optimizer_run;
using ike::bfloat16;
using ike::float16;

namespace {

using low = ike::mixed_precision<bfloat16>;
using kept =
    ike::mixed_precision<bfloat16, float16, void, void, ike::mixed_precision_at<"2", float, float>>;

const auto adam = [](auto& m) { return ike::adam{m, {.lr = 0.01}}; };

template <class F>
void on_ranks(F f) {
  for (int ranks : {1, 3})
    CHECK(ike::launch(ike::threads{ranks}, [&](ike::process_group auto& group) {
            return f(group);
          }) == std::vector<int>(static_cast<std::size_t>(ranks)));
}

}  // namespace

TEST_CASE("Ranks share the optimizer's work, and send gradients in their type") {
  using zero = ike::shard_optimizer<true>;
  on_ranks([](auto& group) {
    return compare<float, ike::replicate_policy<zero, low>, ike::replicate_policy<low>>(
        larger, group, adam);
  });
}

TEST_CASE("Optimizers step while backward runs on the rounded copy") {
  on_ranks([](auto& group) {
    using early = ike::optimizer_in_backward<true>;
    using each = ike::bucket_cap<1>;
    return compare<float, ike::replicate_policy<early, each, kept>,
                   ike::replicate_policy<each, kept>>(network, group, adam);
  });
}

TEST_CASE("However gradients are cut, two types in a bucket or apart") {
  on_ranks([](auto& group) {
    return compare<float, ike::replicate_policy<ike::bucket_cap<1>, kept>,
                   ike::replicate_policy<kept>>(network, group, adam) +
           compare<float, ike::replicate_policy<ike::groups_by_module<"2">, kept>,
                   ike::replicate_policy<kept>>(network, group, adam);
  });
}
