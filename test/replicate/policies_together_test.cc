// Independent options can be combined: replicas train like one model.

#include <doctest/doctest.h>

#include <cstdint>
#include <utility>

#include "ikebana/compose/sequential.hpp"
#include "ikebana/model/initialize.hpp"
#include "ikebana/nn/activation.hpp"
#include "ikebana/nn/linear.hpp"
#include "ikebana/nn/loss.hpp"
#include "ikebana/optim/adam.hpp"
#include "ikebana/optim/clip_grad.hpp"
#include "ikebana/replicate/launch.hpp"
#include "ikebana/replicate/replicate.hpp"
#include "ikebana/replicate/trace.hpp"
#include "test/replicate/conformance_checks.hpp"

namespace ike = ikebana;
using namespace ike::literals;
using namespace conformance_checks;
using ike::threads;

namespace {

constexpr auto net =
    ike::sequential("a"_m = ike::lazy_linear<7>{}, "tanh"_m = ike::tanh{},
                    "b"_m = ike::sequential("c"_m = ike::lazy_linear<9>{}, ike::tanh{},
                                            "d"_m = ike::lazy_linear<4>{}),
                    "e"_m = ike::lazy_linear<5>{});

/// Three batches, the first of which is not reduced separately, and a step with clipped gradients.
template <class Model, class Optimizer, class X, class Y>
void accumulated_step(Model& model, Optimizer& optimizer, const X& x, const Y& y) {
  model.zero_grad();
  if constexpr (requires { model.no_sync(); }) {
    const auto guard = model.no_sync();
    model.loss_backward(x, y, ike::mse_loss{});
  } else {
    model.loss_backward(x, y, ike::mse_loss{});
  }
  for (int i = 0; i < 2; ++i) model.loss_backward(x, y, ike::mse_loss{});
  ike::clip_grad_norm(model, 0.1);
  optimizer.step();
}

template <class... Options>
void train(double tolerance) {
  using policy = ike::replicate_policy<Options...>;
  for (const int ranks : {1, 3, 4}) {
    CAPTURE(ranks);
    ike::launch(threads{ranks}, [&](ike::thread_group& group) {
      const auto made = ike::initialize<double, shape{dynamic, 3}>(net, ike::seed{1});
      auto model = ike::replicate<policy>(made.clone(), group);
      auto local = made.clone();
      ike::adam optimizer{model, {.lr = 1e-2}}, local_optimizer{local, {.lr = 1e-2}};
      for (std::uint64_t step = 0; step < 6; ++step) {
        const auto x = whole<double, 3>(step);
        const auto y = whole<double, 5>(step + 100);
        const auto mine = slice(x, group.rank(), ranks);
        const auto target = slice(y, group.rank(), ranks);
        bool accumulates = false;
        if constexpr (!decltype(model)::steps_in_backward)
          if (step % 2 == 1) {
            accumulates = true;
            accumulated_step(model, optimizer, mine, target);
            accumulated_step(local, local_optimizer, x, y);
          }
        if (!accumulates) {
          model.train_step(mine, target, ike::mse_loss{}, optimizer);
          local.train_step(x, y, ike::mse_loss{}, local_optimizer);
        }
        CHECK(are_close(model.parameters(), local.parameters(), tolerance));
      }
      CHECK(is_same_everywhere<double>(std::as_const(model).parameters(), group));
    });
  }
}

}  // namespace

TEST_CASE("groups, delays, overrides, sums in another type and traces") {
  using namespace ike;
  train<delay_all_reduce<"b.c">, gradient_accumulation<double>, bucket_cap<100>, traced<64>>(1e-12);
  train<groups_by_module<"a", "b", "b.d">, delay_all_reduce<"e.bias">,
        override_at<"b.c", bucket_cap<1>>, traced<>>(1e-12);
}

TEST_CASE("shards of the optimizer, which steps in backward or not, and traces") {
  using namespace ike;
  train<shard_optimizer<true>, traced<>, bucket_cap<200>>(1e-12);
  train<shard_optimizer<true>, optimizer_in_backward<true>, traced<>, bucket_cap<200>>(1e-12);
  train<optimizer_in_backward<true>, delay_all_reduce<"a">, groups_by_module<"b">, traced<>>(1e-12);
}

TEST_CASE("smaller types with any of them") {
  using namespace ike;
  train<mixed_precision<float, double>, shard_optimizer<true>, traced<>>(1e-3);
  train<mixed_precision<float>, optimizer_in_backward<true>, shard_optimizer<true>>(1e-3);
  train<mixed_precision<void, float>, delay_all_reduce<"b">, groups_by_module<"e">>(1e-3);
}
