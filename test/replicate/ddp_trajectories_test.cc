#include "ddp_trajectories_checks.hpp"
#include "ikebana/replicate/launch.hpp"

namespace ike = ikebana;

namespace {

void on_two(auto f) {
  ike::launch(ike::threads{2}, [&](ike::process_group auto& group) { f(group); });
}

}  // namespace

TEST_CASE_TEMPLATE("SGD with momentum goes as DistributedDataParallel's", T, float, double) {
  on_two([](auto& group) { ddp_trajectories::sgd_with_momentum<T>(group); });
}

TEST_CASE_TEMPLATE("Adam goes as DistributedDataParallel's", T, float, double) {
  on_two([](auto& group) { ddp_trajectories::adam_steps<T>(group); });
}

TEST_CASE_TEMPLATE("Accumulation under no_sync goes as DistributedDataParallel's", T, float,
                   double) {
  on_two([](auto& group) { ddp_trajectories::accumulation<T>(group); });
}
