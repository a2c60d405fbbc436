#include "ikebana/core/pad_sequence.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <cstdint>
#include <utility>
#include <vector>

#include "ikebana/core/error.hpp"

namespace ike = ikebana;

namespace {

using rows = ike::tensor<double, ike::shape{ike::dynamic, 2}>;

/// Sequences of these lengths, with the numbers 100 i + 10 t + feature.
std::vector<rows> sequences(std::initializer_list<ike::dim_t> lengths) {
  std::vector<rows> all;
  int i = 0;
  for (const ike::dim_t n : lengths) {
    rows& s = all.emplace_back(ike::shape{n, 2});
    for (ike::dim_t t = 0; t < n; ++t)
      for (ike::dim_t f = 0; f < 2; ++f) s(t, f) = static_cast<double>(100 * i + 10 * t + f);
    ++i;
  }
  return all;
}

}  // namespace

TEST_CASE("sequences of different lengths are padded, and taken apart again") {
  const auto all = sequences({3, 1, 0, 4});
  const std::vector<std::int64_t> lengths{3, 1, 0, 4};
  for (const bool batch_first : {false, true}) {
    const auto x = ike::pad_sequence(all, {.batch_first = batch_first, .padding_value = -1});
    static_assert(decltype(x)::static_shape == ike::shape{ike::dynamic, ike::dynamic, 2});
    CHECK(x.extents() == ike::shape{4, 4, 2});
    for (ike::dim_t i = 0; i < 4; ++i)
      for (ike::dim_t t = 0; t < 4; ++t)
        for (ike::dim_t f = 0; f < 2; ++f) {
          const double expected = t < lengths[static_cast<std::size_t>(i)]
                                      ? static_cast<double>(100 * i + 10 * t + f)
                                      : -1;
          CHECK((batch_first ? x(i, t, f) : x(t, i, f)) == expected);
        }
    const auto again = ike::unpad_sequence(x, lengths, batch_first);
    REQUIRE(again.size() == 4);
    for (std::size_t i = 0; i < 4; ++i) {
      CHECK(again[i].extents() == all[i].extents());
      CHECK(std::ranges::equal(again[i], all[i]));
    }
  }
  CHECK(ike::pad_sequence(sequences({2, 1, 1}), {.batch_first = true}).extents() ==
        ike::shape{3, 2, 2});
  CHECK(ike::pad_sequence(sequences({2, 1, 1})).extents() == ike::shape{2, 3, 2});
}

TEST_CASE("sequences that do not fit together, and lengths that do not fit, are refused") {
  const auto x = ike::pad_sequence(sequences({2, 1, 1}));
  CHECK_THROWS_WITH_AS(ike::unpad_sequence(x, std::vector<std::int64_t>{2, 1}),
                       "unpad_sequence expects 3 lengths, got 2 (input [2, 3, 2])",
                       ike::shape_error);
  CHECK_THROWS_WITH_AS(ike::unpad_sequence(x, std::vector<std::int64_t>{2, 3, 1}),
                       "unpad_sequence expects lengths up to 2, got 3 (input [2, 3, 2])",
                       ike::shape_error);
  CHECK_THROWS_WITH_AS(ike::pad_sequence(std::vector<rows>{}),
                       "pad_sequence expects at least 1 sequence, got 0", ike::shape_error);
  using any = ike::tensor<float, ike::shape{ike::dynamic, ike::dynamic}>;
  std::vector<any> mixed;
  mixed.emplace_back(ike::shape{2, 3});
  mixed.emplace_back(ike::shape{2, 4});
  CHECK_THROWS_WITH_AS(ike::pad_sequence(mixed),
                       "pad_sequence expects elements of one shape, got [2, 3] and [2, 4]",
                       ike::shape_error);
}
