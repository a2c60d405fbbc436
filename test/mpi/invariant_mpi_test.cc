// Run by mpirun: each rank runs all of it. The hashes that it prints equal those of threads.
#include <doctest/doctest.h>

#include <chrono>
#include <cstdint>
#include <string>

#include "ikebana/replicate/mpi_group.hpp"
#include "test/replicate/invariant_checks.hpp"

namespace ike = ikebana;
using namespace std::chrono_literals;

TEST_CASE("training on processes ends with the bits of one rank, resumed or not") {
  ike::mpi_group group = ike::mpi_group::world(60s);
  CHECK(
      invariant_checks::differences_from_one_rank(group, [&](const char* name, std::uint64_t hash) {
        const std::string text = std::string{name} + ": " + std::to_string(hash);
        if (group.rank() == 0) MESSAGE(text);
      }) == 0);
}
