// Run by mpirun: each rank runs all of it. The tests of test/replicate on processes: the policies
// that change what is communicated.
#include <doctest/doctest.h>

#include <chrono>

#include "ikebana/replicate/mpi_group.hpp"
#include "test/replicate/ddp_trajectories_checks.hpp"
#include "test/replicate/mixed_precision_checks.hpp"
#include "test/replicate/optimizer_in_backward_checks.hpp"
#include "test/replicate/shard_optimizer_checks.hpp"
#include "test/replicate/sparse_checks.hpp"
#include "test/replicate/sync_batch_norm_checks.hpp"
#include "test/replicate/trace_checks.hpp"
#include "test/replicate/unused_checks.hpp"

namespace ike = ikebana;
using namespace std::chrono_literals;

namespace {

ike::mpi_group world() { return ike::mpi_group::world(60s); }

}  // namespace

TEST_CASE("branches that not every rank chooses") {
  ike::mpi_group group = world();
  unused_checks::another_branch_on_each_rank<double>(group);
  unused_checks::left_out_without_the_option<double>(group);
  unused_checks::a_static_graph_that_changes<double>(group);
}

TEST_CASE("sharded optimizers, and those that step in backward") {
  ike::mpi_group group = world();
  CHECK(shard_optimizer_checks::compressed<float>(group) == 0);
  CHECK(shard_optimizer_checks::accumulation<float>(group) == 0);
  CHECK(optimizer_in_backward_checks::hooks<float>(group) == 0);
}

TEST_CASE("mixed precision") {
  ike::mpi_group group = world();
  mixed_precision_checks::trains<float>(group);
  mixed_precision_checks::accumulates<float, ike::bfloat16, float>(group);
}

TEST_CASE("batch norm over the batches of all ranks") {
  ike::mpi_group group = world();
  sync_batch_norm_checks::trains<float>(group);
  sync_batch_norm_checks::parts_of_any_size<double>(group);
  sync_batch_norm_checks::one_element(group);
}

TEST_CASE("gradients that are rows of embeddings") {
  ike::mpi_group group = world();
  sparse_checks::everything(group);
}

TEST_CASE("traces") {
  ike::mpi_group group = world();
  trace_checks::events<float>(group);
}

TEST_CASE("two ranks train as two of PyTorch's DistributedDataParallel") {
  ike::mpi_group group = world();
  if (group.size() != 2) return;
  ddp_trajectories::sgd_with_momentum<double>(group);
  ddp_trajectories::uneven_inputs<double>(group, true);
  ddp_trajectories::uneven_inputs<double>(group, false);
}
