// Run by mpirun: each rank runs all of it. PyTorch's tests, on processes.
#include <doctest/doctest.h>

#include <chrono>

#include "ikebana/replicate/mpi_group.hpp"
#include "test/replicate/conformance_checks.hpp"

namespace ike = ikebana;
namespace checks = conformance_checks;
using namespace std::chrono_literals;

namespace {

ike::mpi_group world() { return ike::mpi_group::world(60s); }

}  // namespace

TEST_CASE("replicate_single_module and replicate_with_kwargs") {
  ike::mpi_group group = world();
  checks::single_module<float>(group);
  checks::with_kwargs<double>(group);
}

TEST_CASE("train_parity_single_group, against a network and Adam written out") {
  ike::mpi_group group = world();
  checks::train_parity<double>(group);
}

TEST_CASE("to_float64_after_init, param_registration and several outputs") {
  ike::mpi_group group = world();
  checks::to_float64(group);
  checks::param_registration<double, ike::replicate_policy<>>(group);
  checks::several_outputs<double>(group);
}

TEST_CASE("grads_same_across_ranks_with_no_sync, and along one dimension of a mesh") {
  ike::mpi_group group = world();
  checks::grads_same_across_ranks_with_no_sync<double>(group);
  checks::along_a_mesh<double>(group);
}
