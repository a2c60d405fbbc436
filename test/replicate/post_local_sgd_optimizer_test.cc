#include "ikebana/replicate/post_local_sgd_optimizer.hpp"

#include <doctest/doctest.h>

#include "ikebana/replicate/launch.hpp"
#include "post_local_sgd_checks.hpp"

namespace ike = ikebana;

TEST_CASE_TEMPLATE("Post-local SGD goes the way that its rule says", T, float, double) {
  for (int ranks : {1, 2, 3, 4}) {
    CAPTURE(ranks);
    const auto all = ike::launch(ike::threads{ranks}, [](auto& group) {
      return post_local_sgd_checks::trajectory<T>(group);
    });
    for (int wrong : all) CHECK(wrong == 0);
  }
}

TEST_CASE("Its options and state are the inner optimizer's") {
  ike::single group;
  auto model = optimizer_run::fresh<float>(optimizer_run::network);
  ike::post_local_sgd_optimizer optimizer{
      ike::sgd{model, {.lr = 0.5, .momentum = 0.9}}, model, group, {.period = 4}};
  optimizer.options().lr = 0.25;
  CHECK(optimizer.inner().options().lr == 0.25);
  CHECK(optimizer.state()[1].name == "momentum_buffer");
  CHECK(optimizer.parameters().data() == model.parameters().data());
  optimizer.averager().set_step(7);
  CHECK_THROWS_AS(optimizer.averager().set_step(-1), ike::state_error);
  CHECK(optimizer.averager().step() == 7);
  optimizer.check_options();
  optimizer.options().lr = -1;
  CHECK_THROWS_AS(optimizer.check_options(), ike::error);
}
