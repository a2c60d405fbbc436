// Whatever is in flight when a rank fails is withdrawn, and no rank waits indefinitely.

#include <doctest/doctest.h>

#include <chrono>
#include <stdexcept>

#include "ikebana/compose/sequential.hpp"
#include "ikebana/core/tensor.hpp"
#include "ikebana/model/initialize.hpp"
#include "ikebana/nn/activation.hpp"
#include "ikebana/nn/linear.hpp"
#include "ikebana/nn/loss.hpp"
#include "ikebana/optim/adam.hpp"
#include "ikebana/replicate/launch.hpp"
#include "ikebana/replicate/powersgd.hpp"
#include "ikebana/replicate/quantization.hpp"
#include "ikebana/replicate/replicate.hpp"

namespace ike = ikebana;
using namespace ike::literals;
using ike::shape;
using ike::threads;

namespace {

constexpr auto net =
    ike::sequential("a"_m = ike::lazy_linear<7>{}, ike::tanh{}, "b"_m = ike::lazy_linear<9>{},
                    ike::tanh{}, "c"_m = ike::lazy_linear<5>{});

template <class... Options>
void fail_in_the_third_step() {
  for (const int ranks : {2, 4})
    for (int repetition = 0; repetition < 3; ++repetition) {
      CAPTURE(ranks);
      const auto train = [&](ike::thread_group& group) {
        auto model = ike::replicate<ike::replicate_policy<Options...>>(
            ike::initialize<double, shape{ike::dynamic, 3}>(net, ike::seed{1}), group);
        int step = 0;
        model.register_forward_hook("b"_s, [&](const ike::module_call&) {
          if (step == 2 && group.rank() == ranks - 1) throw std::runtime_error("out of apples");
        });
        ike::adam optimizer{model, {.lr = 1e-2}};
        const auto x = ike::uniform<double, shape{ike::dynamic, 3}>(ike::seed{1}, 3);
        const auto y = ike::uniform<double, shape{ike::dynamic, 5}>(ike::seed{2}, 3);
        for (; step < 5; ++step) model.train_step(x, y, ike::mse_loss{}, optimizer);
      };
      CHECK_THROWS_WITH_AS(ike::launch(threads{ranks, std::chrono::seconds{30}}, train),
                           "out of apples", std::runtime_error);
    }
}

}  // namespace

TEST_CASE("delays, groups and sums in another type") {
  using namespace ike;
  fail_in_the_third_step<delay_all_reduce<"b">, gradient_accumulation<double>, bucket_cap<100>>();
  fail_in_the_third_step<groups_by_module<"a">, optimizer_in_backward<true>>();
}

TEST_CASE("shards of the optimizer") {
  using namespace ike;
  fail_in_the_third_step<shard_optimizer<true>, optimizer_in_backward<true>, bucket_cap<200>>();
  fail_in_the_third_step<mixed_precision<float, double>, shard_optimizer<true>>();
}

TEST_CASE("hooks of several stages, and of 8 bits") {
  using namespace ike;
  fail_in_the_third_step<comm_hook<powersgd>, bucket_cap<1>>();
  fail_in_the_third_step<comm_hook<quantize_8bit>, bucket_cap<1>>();
}
