#include "ikebana/replicate/utils/replace_by_prefix.hpp"

#include <doctest/doctest.h>

#include <string>
#include <vector>

namespace ike = ikebana;
using names = std::vector<std::string>;

namespace {

ike::state_dict dict_of(const names& keys) {
  ike::state_dict d;
  for (std::size_t i = 0; i < keys.size(); ++i)
    reinterpret_cast<float*>(d.add_owned(keys[i], ike::dtype::float32, ike::shape{1}))[0] =
        static_cast<float>(i);
  return d;
}

names keys_of(const ike::state_dict& d) {
  names keys;
  for (const auto& e : d) keys.push_back(e.name);
  return keys;
}

}  // namespace

TEST_CASE("a prefix is replaced there and back, and nowhere but at the beginning") {
  const names before{"layer.a.weight", "layer.b.weight", "x.layer.c", "layers.d"};
  auto d = dict_of(before);
  ike::replace_by_prefix(d, "layer.", "module.layer.");
  CHECK(keys_of(d) ==
        names{"module.layer.a.weight", "module.layer.b.weight", "x.layer.c", "layers.d"});
  CHECK(d.at("module.layer.b.weight").view<float, ike::shape{1}>()[0] == 1);
  ike::replace_by_prefix(d, "module.layer.", "layer.");
  CHECK(keys_of(d) == before);
}

TEST_CASE("an empty prefix is the beginning of every key") {
  auto d = dict_of({"a", "b"});
  ike::replace_by_prefix(d, "", "m.");
  CHECK(keys_of(d) == names{"m.a", "m.b"});
  ike::replace_by_prefix(d, "m.", "");
  CHECK(keys_of(d) == names{"a", "b"});
}

TEST_CASE("equal prefixes are refused") {
  auto d = dict_of({"a"});
  CHECK_THROWS_WITH_AS(ike::replace_by_prefix(d, "a", "a"),
                       "replace_by_prefix: the prefixes must be distinct, got \"a\" twice",
                       ike::state_error);
}

TEST_CASE("keys that would meet another are refused before anything has changed") {
  const names before{"a.x", "a.y", "b.y"};
  auto d = dict_of(before);
  CHECK_THROWS_WITH_AS(ike::replace_by_prefix(d, "a.", "b."),
                       "b.y: would be the name of two tensors of this state_dict",
                       ike::state_error);
  CHECK(keys_of(d) == before);
}

TEST_CASE("a key may take the name that another leaves") {
  auto d = dict_of({"ax", "aax", "aaax"});
  ike::replace_by_prefix(d, "a", "aa");
  CHECK(keys_of(d) == names{"aax", "aaax", "aaaax"});
  CHECK(d.at("aax").view<float, ike::shape{1}>()[0] == 0);
  CHECK(d.at("aaax").view<float, ike::shape{1}>()[0] == 1);
  ike::replace_by_prefix(d, "aa", "a");
  CHECK(keys_of(d) == names{"ax", "aax", "aaax"});
  CHECK(d.at("ax").view<float, ike::shape{1}>()[0] == 0);
}
