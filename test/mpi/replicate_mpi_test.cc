// Run by mpirun: each rank runs all of it. The tests of test/replicate on processes.
#include <doctest/doctest.h>

#include <chrono>

#include "ikebana/replicate/compress.hpp"
#include "ikebana/replicate/mpi_group.hpp"
#include "ikebana/replicate/powersgd.hpp"
#include "ikebana/replicate/replicate.hpp"
#include "test/replicate/join_checks.hpp"
#include "test/replicate/policy_checks.hpp"
#include "test/replicate/replicate_checks.hpp"
#include "test/replicate/synchronisation_checks.hpp"

namespace ike = ikebana;
using namespace std::chrono_literals;

namespace {

ike::mpi_group world() { return ike::mpi_group::world(60s); }

}  // namespace

TEST_CASE("replicas on parts of the batch end with the weights of one model on all of it") {
  ike::mpi_group group = world();
  replicate_checks::full_batch<float>(group, 1e-6);
  replicate_checks::full_batch<double>(group, 1e-14);
}

TEST_CASE("hooks of one stage and of two") {
  ike::mpi_group group = world();
  using ike::bucket_cap, ike::comm_hook, ike::replicate_policy;
  replicate_checks::hook_comes_near<
      replicate_policy<bucket_cap<64>, comm_hook<ike::bf16_compress>>>(group, 1e-2);
  replicate_checks::hook_comes_near<replicate_policy<bucket_cap<64>, comm_hook<ike::powersgd>>>(
      group, 0.3);
}

TEST_CASE("states at the start and after steps, and no_sync") {
  ike::mpi_group group = world();
  replicate_checks::states_and_no_sync(group);
}

TEST_CASE("models that differ throw on every rank; coalesced broadcasts") {
  ike::mpi_group group = world();
  for (int repetition = 0; repetition < 20; ++repetition) replicate_checks::utilities(group);
}

TEST_CASE("uneven inputs") {
  ike::mpi_group group = world();
  join_checks::uneven_training<double>(group, 1e-14);
  join_checks::shadows_are_zeros<join_checks::policy>(group);
  join_checks::shadows_are_zeros<
      ike::replicate_policy<ike::comm_hook<ike::powersgd>, ike::bucket_cap<64>>>(group);
  join_checks::accumulated_leftovers(group);
  join_checks::throws_on_early_termination(group);
  join_checks::odd_joins(group);
}

TEST_CASE("ignored, delayed and overridden parameters; buffer hooks") {
  ike::mpi_group group = world();
  CHECK(policy_checks::ignore_module<ike::replicate_policy<ike::ignored<"fc2">>>(group) == 0);
  CHECK(policy_checks::delay(group) == 0);
  CHECK(policy_checks::overrides(group) == 0);
  CHECK(policy_checks::buffer_hook<ike::buffer_hook_location::before_forward>(group) == 0);
}

TEST_CASE("which backwards are synchronised, and what of them") {
  ike::mpi_group group = world();
  using namespace synchronisation_checks;
  CHECK(gradient_accumulation<float>(group, flags::some_mlps) == 0);
  CHECK(microbatching<float>(group, false) == 0);
}
