// Sharding the optimizer, and stepping during backward, with other options.

#include <doctest/doctest.h>

#include <cmath>
#include <cstddef>

#include "ikebana/core/bfloat16.hpp"
#include "ikebana/optim/adam.hpp"
#include "ikebana/optim/sgd.hpp"
#include "ikebana/replicate/launch.hpp"
#include "ikebana/replicate/mixed_precision.hpp"
#include "optimizer_run.hpp"

namespace ike = ikebana;
using namespace optimizer_run;

TEST_CASE("With masters of parameters in half precision") {
  using mixed = ike::mixed_precision<ike::bfloat16, float>;
  for (int ranks : {1, 2, 3}) {
    CAPTURE(ranks);
    const auto all = ike::launch(ike::threads{ranks}, [](auto& group) {
      const auto make = [](auto& m) { return ike::adam{m, {.lr = 0.01}}; };
      return compare<float, plain<mixed, ike::optimizer_in_backward<true>>, plain<mixed>>(
                 network, group, make) +
             compare<float, plain<mixed, ike::shard_optimizer<true>>, plain<mixed>>(network, group,
                                                                                    make);
    });
    for (int wrong : all) CHECK(wrong == 0);
  }
}

TEST_CASE("With sums divided by a number of one's own") {
  using third = ike::gradient_divide_factor<3>;
  using each = ike::bucket_cap<1>;
  for (int ranks : {1, 2, 3, 4}) {
    CAPTURE(ranks);
    const auto all = ike::launch(ike::threads{ranks}, [](auto& group) {
      auto shared = ike::replicate<plain<third, each, ike::shard_optimizer<true>>>(
          fresh<double>(network), group);
      auto whole = ike::replicate<plain<third, each>>(fresh<double>(network), group);
      ike::sgd mine{shared, {.lr = 0.1}}, reference{whole, {.lr = 0.1}};
      train(shared, mine, group.rank(), 0, 4);
      train(whole, reference, group.rank(), 0, 4);
      int wrong = 0;
      for (std::size_t i = 0; i < whole.parameters().size(); ++i)
        wrong += !(std::abs(shared.parameters()[i] - whole.parameters()[i]) <= 1e-14);
      return wrong;
    });
    for (int wrong : all) CHECK(wrong == 0);
  }
}
