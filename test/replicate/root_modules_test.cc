#include "ikebana/replicate/utils/root_modules.hpp"

#include <doctest/doctest.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "ikebana/compose/repeat.hpp"
#include "ikebana/compose/sequential.hpp"
#include "ikebana/core/random.hpp"
#include "ikebana/nn/linear.hpp"

namespace ike = ikebana;
using namespace ike::literals;
using paths = std::vector<std::string_view>;

namespace {

template <std::size_t N>
paths roots_of(const std::array<std::string_view, N>& given) {
  const auto roots = ike::root_modules(given);
  return {roots.begin(), roots.end()};
}

}  // namespace

TEST_CASE("a path is below another where names end, and everything is below the network") {
  static_assert(ike::is_below("a.b", "a"));
  static_assert(!ike::is_below("a", "a"));
  static_assert(!ike::is_below("ab.c", "a"));
  static_assert(!ike::is_below("a", "a.b"));
  static_assert(ike::is_below("p", ""));
  static_assert(!ike::is_below("", ""));
  static_assert(ike::is_at_or_below("a", "a"));
}

TEST_CASE("roots are the paths that are below no other, in their order") {
  CHECK(roots_of(std::array<std::string_view, 4>{"b.c", "a", "b", "a.x.y"}) == paths{"a", "b"});
  CHECK(roots_of(std::array<std::string_view, 3>{"layers.10", "layers.1", "layers.1.fc"}) ==
        paths{"layers.10", "layers.1"});
  CHECK_MESSAGE(
      (roots_of(std::array<std::string_view, 4>{"a", "a-b", "a.c", "a-b.c"}) == paths{"a", "a-b"}),
      "a character before the dot in the alphabet does not come between");
  CHECK(roots_of(std::array<std::string_view, 2>{"fc", ""}) == paths{""});
  CHECK_MESSAGE((roots_of(std::array<std::string_view, 3>{"b", "a", "b"}) == paths{"b", "a"}),
                "a repeated path is there once");
  CHECK(roots_of(std::array<std::string_view, 0>{}).empty());
}

TEST_CASE("roots agree with a search of all pairs") {
  const std::uint64_t seed = 2026;
  CAPTURE(seed);
  for (std::uint32_t run = 0; run < 200; ++run) {
    std::vector<std::string> names;
    for (std::uint32_t i = 0; i < 12; ++i) {
      const auto drawn = ike::random_stream{ike::seed{seed}, run}.words(i);
      std::string name(1, static_cast<char>('a' + drawn[0] % 2));
      for (std::uint32_t depth = 0; depth < drawn[1] % 4; ++depth)
        name += (drawn[2] >> depth) % 2 == 0 ? ".a" : "b";
      names.push_back(name);
    }
    const paths given(names.begin(), names.end());
    std::vector<std::size_t> expected;
    for (std::size_t i = 0; i < given.size(); ++i) {
      bool root = true;
      for (std::size_t j = 0; j < given.size(); ++j)
        root = root && !ike::is_below(given[i], given[j]) && !(j < i && given[j] == given[i]);
      if (root) expected.push_back(i);
    }
    std::vector<std::size_t> places(given.size());
    places.resize(ike::root_modules(given, places));
    CHECK(places == expected);
  }
}

TEST_CASE("the compiler finds roots and looks their paths up in the network") {
  constexpr auto net =
      ike::sequential("layers"_m = ike::repeat<3>(ike::sequential("fc"_m = ike::linear<4, 4>{})),
                      "out"_m = ike::linear<4, 4>{});
  constexpr auto roots = ike::root_modules<"layers.1.fc", "out", "layers.1">(net);
  static_assert(roots.size() == 2);
  static_assert(roots[0] == "out");
  static_assert(roots[1] == "layers.1");
}

TEST_CASE("what is replicated from the bottom up is managed by the deepest root above it") {
  constexpr std::array<std::string_view, 3> roots{"", "layers.1", "layers.1.fc"};
  static_assert(ike::managing_root("layers.1.fc.weight", roots) == 2);
  static_assert(ike::managing_root("layers.1.norm.weight", roots) == 1);
  static_assert(ike::managing_root("layers.10.weight", roots) == 0);
  constexpr std::array<std::string_view, 1> one{"layers.1"};
  static_assert(ike::managing_root("out.weight", one) == -1);
}
