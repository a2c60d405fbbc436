#include "ddp_trajectories_checks.hpp"
#include "ikebana/replicate/launch.hpp"

namespace ike = ikebana;

TEST_CASE_TEMPLATE("Batch norm goes as DistributedDataParallel's", T, float, double) {
  ike::launch(ike::threads{2}, [&](ike::process_group auto& group) {
    ddp_trajectories::buffers_of_rank_0<T>(group);
  });
}
