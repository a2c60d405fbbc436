#include "ikebana/core/shape.hpp"

#include <doctest/doctest.h>

namespace ike = ikebana;
using ike::dynamic;
using ike::lazy;
using ike::shape;

static_assert(shape{}.rank() == 0 && shape{}.numel() == 1 && shape{}.is_static());
static_assert(shape{3, 0, 5}.numel() == 0);
static_assert(shape{2, 3, 4}.numel() == 24 && shape{2, 3, 4}.numel(1, 3) == 12);
static_assert(shape{2, dynamic}.numel() == dynamic && !shape{2, dynamic}.is_static());
static_assert(shape{2, dynamic, 5}.numel(2, 3) == 5 && shape{2, dynamic, 5}.numel(0, 0) == 1);
static_assert(shape{lazy, dynamic, 3}.dynamic_count() == 2);
static_assert(shape{1, 2} != shape{1, 2, 1} && shape{1, 2} != shape{2, 1});
static_assert(shape{1, 2}.with(0, 7) == shape{7, 2});
static_assert(shape{4, 5}.front() == 4 && shape{4, 5}.back() == 5);

static_assert(shape{1L << 28, 1L << 28}.is_countable() &&
              !shape{1L << 28, 1L << 29}.is_countable());
static_assert(!shape{1L << 62, 4}.is_countable() && !shape{0, 1L << 60}.is_countable());
static_assert(shape{dynamic, 1L << 56}.is_countable() && !shape{lazy, 1L << 57}.is_countable());
static_assert(ike::extent_product(6, 7) == 42 &&
              !shape{ike::extent_product(1L << 40, 1L << 40)}.is_countable());

template <shape S>
struct holder {
  static constexpr shape value = S;
};
static_assert(holder<shape{32, 10}>::value.back() == 10, "a shape is a template argument");

TEST_CASE("shapes that differ only beyond their rank are equal") {
  shape a{1, 2, 3}, b{1, 2};
  a.count = 2;
  CHECK(a == b);
  b.push_back(9);
  CHECK(b == shape{1, 2, 9});
}

TEST_CASE("a product of extents that overflows is an error") {
  constexpr ike::dim_t large = ike::dim_t{1} << 32;
  CHECK_THROWS_WITH_AS((void)(shape{large, large}.numel()),
                       "a tensor has at most 2^56 elements, got the shape [4294967296, 4294967296]",
                       ike::shape_error);
  CHECK_THROWS_AS((void)(shape{large << 30, 4}.numel()), ike::shape_error);
  CHECK_THROWS_AS((void)(shape{2, large << 30, 4}.numel(1, 3)), ike::shape_error);
  CHECK((shape{large << 20, 4, large}.numel(0, 2) == large << 22));
  CHECK((shape{large, large, dynamic}.numel() == dynamic));
}

TEST_CASE("compatible asks for equal ranks and for extents that are equal or unknown") {
  CHECK(ike::compatible(shape{}, shape{}));
  CHECK(ike::compatible(shape{dynamic, 3}, shape{5, 3}));
  CHECK(ike::compatible(shape{5, 3}, shape{dynamic, 3}));
  CHECK(ike::compatible(shape{lazy, 3}, shape{5, 3}));
  CHECK_FALSE(ike::compatible(shape{dynamic, 3}, shape{5, 4}));
  CHECK_FALSE(ike::compatible(shape{dynamic, 3}, shape{5, 3, 1}));
  CHECK_FALSE(ike::compatible(shape{0}, shape{1}));
}
