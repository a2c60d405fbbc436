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

TEST_CASE("compatible asks for equal ranks and for extents that are equal or unknown") {
  CHECK(ike::compatible(shape{}, shape{}));
  CHECK(ike::compatible(shape{dynamic, 3}, shape{5, 3}));
  CHECK(ike::compatible(shape{5, 3}, shape{dynamic, 3}));
  CHECK(ike::compatible(shape{lazy, 3}, shape{5, 3}));
  CHECK_FALSE(ike::compatible(shape{dynamic, 3}, shape{5, 4}));
  CHECK_FALSE(ike::compatible(shape{dynamic, 3}, shape{5, 3, 1}));
  CHECK_FALSE(ike::compatible(shape{0}, shape{1}));
}
