#include "ikebana/replicate/mesh.hpp"

#include <doctest/doctest.h>

#include <array>
#include <string_view>
#include <vector>

#include "ikebana/replicate/launch.hpp"
#include "test/support/group_checks.hpp"

namespace ike = ikebana;

TEST_CASE("Ranks stand in a grid, with a group along each dimension") {
  for (int ranks = 1; ranks <= 4; ++ranks)
    CHECK(ike::launch(ike::threads{ranks}, [](auto& group) { return group_checks::mesh(group); }) ==
          std::vector<int>(static_cast<std::size_t>(ranks)));
  ike::launch(ike::threads{8}, [](auto& group) { CHECK(group_checks::mesh(group) == 0); });
}

TEST_CASE("One rank is a mesh too") {
  ike::single group;
  CHECK(group_checks::mesh(group) == 0);
  const auto m = ike::mesh<"dp", "tp", "pp">(group, {1, 1, 1});
  CHECK(m.coordinates() == std::array{0, 0, 0});
  CHECK(m.names()[1].view() == std::string_view("tp"));
  CHECK(m.slice<"tp", "pp">().size() == 1);
  CHECK_THROWS_WITH_AS((ike::mesh<"dp", "tp">(group, {2, 3})),
                       "mesh: 2 x 3 is not the shape of 1 ranks", ike::error);
}

TEST_CASE("A shape that does not fit is refused before any communication") {
  ike::launch(ike::threads{4}, [](auto& group) {
    CHECK_THROWS_WITH_AS((ike::mesh<"dp", "tp">(group, {2, 3})),
                         "mesh: 2 x 3 is not the shape of 4 ranks", ike::error);
  });
}
