#include "ddp_trajectories_checks.hpp"
#include "ikebana/replicate/launch.hpp"

namespace ike = ikebana;

TEST_CASE_TEMPLATE("Uneven inputs under join go as DistributedDataParallel's", T, float, double) {
  for (const bool divide_by_initial_world_size : {true, false})
    ike::launch(ike::threads{2}, [&](ike::process_group auto& group) {
      ddp_trajectories::uneven_inputs<T>(group, divide_by_initial_world_size);
    });
}

TEST_CASE_TEMPLATE("Branches that some or no rank takes go as DistributedDataParallel's", T, float,
                   double) {
  ike::launch(ike::threads{2}, [&](ike::process_group auto& group) {
    ddp_trajectories::unused_parameters<T>(group);
  });
}
