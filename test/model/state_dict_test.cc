#include "ikebana/model/state_dict.hpp"

#include <doctest/doctest.h>

#include <cstdint>
#include <string>
#include <type_traits>
#include <utility>

namespace ike = ikebana;
using ike::dtype;
using ike::shape;
using ike::state_dict;
using ike::state_view;

static_assert(!std::is_copy_constructible_v<state_dict>);
static_assert(std::is_nothrow_move_constructible_v<state_dict>);

TEST_CASE("a dict keeps the order of addition and finds by name") {
  const float weight[6] = {1, 2, 3, 4, 5, 6};
  state_dict dict;
  CHECK(dict.find("fc.weight") == nullptr);
  dict.add_view("fc.weight", dtype::float32, shape{2, 3}, weight);
  std::byte* owned = dict.add_owned("bn.num_batches_tracked", dtype::int64, shape{});
  *reinterpret_cast<std::int64_t*>(owned) = 7;

  REQUIRE(dict.size() == 2);
  CHECK(dict.begin()->name == "fc.weight");
  CHECK(dict[1].name == "bn.num_batches_tracked");
  CHECK(dict.at("fc.weight").bytes.data() == reinterpret_cast<const std::byte*>(weight));
  CHECK(dict.at("fc.weight").bytes.size() == 24);
  CHECK(dict.at("fc.weight").view<float, shape{2, 3}>()(1, 2) == 6);
  CHECK(dict.at("fc.weight").view<float, shape{ike::dynamic, 3}>().extent(0) == 2);
  CHECK(*dict.at("bn.num_batches_tracked").view<std::int64_t, shape{}>().data() == 7);
  CHECK(reinterpret_cast<std::uintptr_t>(owned) % ike::storage_alignment == 0);
  CHECK_FALSE(dict.contains("fc.bias"));
  CHECK_THROWS_WITH_AS(dict.at("fc.bias"), "fc.bias: not in this state_dict", ike::state_error);
}

TEST_CASE("a view of another type or shape is refused with both") {
  state_dict dict;
  dict.add_owned("w", dtype::float32, shape{2, 3});
  CHECK_THROWS_WITH_AS((dict.at("w").view<double, shape{2, 3}>()),
                       "w: expected float64 [2, 3], got float32 [2, 3]", ike::state_error);
  CHECK_THROWS_WITH_AS((dict.at("w").view<float, shape{3, 2}>()),
                       "w: expected float32 [3, 2], got float32 [2, 3]", ike::state_error);
}

TEST_CASE("what cannot be added leaves the dict as it was") {
  state_dict dict;
  dict.add_owned("w", dtype::float32, shape{2});
  CHECK_THROWS_AS(dict.add_owned("w", dtype::float32, shape{2}), ike::state_error);
  CHECK_THROWS_AS(dict.add_view("w", dtype::float32, shape{2}, nullptr), ike::state_error);
  CHECK_THROWS_AS(dict.add_owned("d", dtype::float32, shape{ike::dynamic, 2}), ike::state_error);
  const ike::dim_t huge = ike::dim_t{1} << 62;
  CHECK_THROWS_AS(dict.add_owned("h", dtype::float32, shape{huge}), ike::state_error);
  CHECK_THROWS_AS(dict.add_owned("h", dtype::uint8, shape{huge, huge, 0}), ike::state_error);
  CHECK(dict.size() == 1);
  CHECK_FALSE(dict.contains("h"));
}

TEST_CASE("a thousand entries are all found, also after a move") {
  state_dict dict;
  for (int i = 0; i < 1000; ++i)
    *reinterpret_cast<std::int32_t*>(
        dict.add_owned("layer" + std::to_string(i), dtype::int32, shape{1})) = i;
  const state_dict moved = std::move(dict);
  CHECK(dict.empty());  // NOLINT(bugprone-use-after-move): a moved-from dict is an empty one.
  CHECK(dict.find("layer1") == nullptr);
  int wrong = 0;
  for (int i = 0; i < 1000; ++i)
    wrong += moved.at("layer" + std::to_string(i)).view<std::int32_t, shape{1}>()[0] != i;
  CHECK(wrong == 0);
  CHECK_FALSE(moved.contains("layer1000"));
  dict.add_owned("again", dtype::uint8, shape{1});
  CHECK(dict.size() == 1);
}

TEST_CASE("a clone owns its bytes, keeps order and metadata") {
  float weight[2] = {1, 2};
  state_dict dict;
  dict.add_view("w", dtype::float32, shape{2}, weight);
  dict.add_owned("empty", dtype::float64, shape{0, 3});
  dict.set_metadata("epoch", "3");
  const state_dict copy = dict.clone();
  weight[0] = 9;
  CHECK(dict.at("w").view<float, shape{2}>()[0] == 9);
  CHECK(copy.at("w").view<float, shape{2}>()[0] == 1);
  CHECK(copy[1].name == "empty");
  CHECK(copy[1].bytes.empty());
  REQUIRE(copy.find_metadata("epoch") != nullptr);
  CHECK(*copy.find_metadata("epoch") == "3");
}

TEST_CASE("metadata keeps its order and is replaced by key") {
  state_dict dict;
  dict.set_metadata("format", "pt");
  dict.set_metadata("epoch", "1");
  dict.set_metadata("format", "ikebana");
  REQUIRE(dict.metadata().size() == 2);
  CHECK(dict.metadata()[0].first == "format");
  CHECK(dict.metadata()[0].second == "ikebana");
  CHECK(dict.find_metadata("none") == nullptr);
}

TEST_CASE("names change and entries go, the others stay as they were") {
  state_dict dict;
  for (const char* name : {"a", "b", "c", "d"})
    *dict.add_owned(name, dtype::uint8, shape{1}) = static_cast<std::byte>(*name);
  state_view views = dict.views();
  views.rename("b", "a.b");
  views.rename("c", "c");
  CHECK(views[1].name == "a.b");
  CHECK(views.at("a.b").bytes.data() == dict.at("b").bytes.data());
  CHECK_FALSE(views.contains("b"));
  CHECK_THROWS_AS(views.rename("a", "d"), ike::state_error);
  CHECK_THROWS_AS(views.rename("b", "e"), ike::state_error);
  views.erase("a");
  views.erase("a");
  REQUIRE(views.size() == 3);
  for (const char* name : {"a.b", "c", "d"}) CHECK(views.at(name).name == name);
  CHECK(dict.size() == 4);
  CHECK(dict.contains("b"));
}

TEST_CASE("an entry may say that there is nothing yet") {
  state_dict dict;
  dict.add_uninitialized("w", dtype::float32, shape{3, ike::lazy});
  CHECK(dict.at("w").uninitialized);
  CHECK(dict.at("w").bytes.empty());
  CHECK_THROWS_AS((dict.at("w").view<float, shape{3, 2}>()), ike::state_error);
  CHECK_THROWS_AS(dict.add_uninitialized("w", dtype::float32, shape{}), ike::state_error);
  const state_dict copy = dict.clone();
  CHECK(copy.at("w").uninitialized);
  CHECK(copy.at("w").extents == shape{3, ike::lazy});
}
