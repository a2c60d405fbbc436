#include "ikebana/model/state/name_index.hpp"

#include <doctest/doctest.h>

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

using ikebana::detail::name_index;

TEST_CASE("names are found among any number of them, and others are not") {
  std::vector<std::string> names;
  name_index index;
  const auto name_of = [&](std::size_t i) -> std::string_view { return names[i]; };
  CHECK(index.find("x", name_of) == name_index::none);
  int wrong = 0;
  for (std::size_t n = 0; n < 200; ++n) {
    names.push_back(std::to_string(n * 7919 % 200));
    index.add(name_of);
    for (std::size_t i = 0; i <= n; ++i) wrong += index.find(names[i], name_of) != i;
    wrong += index.find(std::to_string((n + 1) * 7919 % 200), name_of) !=
             (n == 199 ? std::size_t{0} : name_index::none);
    wrong += index.find("", name_of) != name_index::none;
    wrong += index.find("~", name_of) != name_index::none;
  }
  CHECK(wrong == 0);
}

TEST_CASE(
    "an index of all at once finds the same, takes more, and tells of names that are there twice") {
  std::vector<std::string> names{"b", "a", "d"};
  const auto name_of = [&](std::size_t i) -> std::string_view { return names[i]; };
  name_index index;
  CHECK(index.assign(3, name_of) == name_index::none);
  names.push_back("c");
  index.add(name_of);
  for (std::size_t i = 0; i < 4; ++i) CHECK(index.find(names[i], name_of) == i);
  names[2] = "a";
  const std::size_t twice = index.assign(4, name_of);
  CHECK((twice == 1 || twice == 2));
}

TEST_CASE("65,536 names are added and found in a number of comparisons that is nearly linear") {
  constexpr std::size_t count = 65536;
  std::vector<std::string> names;
  std::size_t looked_up = 0;
  const auto name_of = [&](std::size_t i) -> std::string_view {
    ++looked_up;
    return names[i];
  };
  name_index index;
  for (std::size_t i = 0; i < count; ++i) {
    names.push_back(std::to_string(i * 40503 % count));
    if (index.find(names[i], name_of) != name_index::none) FAIL(names[i]);
    index.add(name_of);
  }
  // log2(count) is 16: merging compares up to 2 * 16 names per name, finding up to 16 * 17 / 2.
  CHECK(looked_up < count * (32 + 136));
}
