#include "ikebana/replicate/utils/storage.hpp"

#include <doctest/doctest.h>

#include <cstddef>

namespace ike = ikebana;
using ike::dynamic;
using ike::shape;

TEST_CASE("a tensor keeps its extents while its storage is freed and taken again") {
  ike::tensor<float, shape{dynamic, 3}> t(shape{5, 3});
  for (float& x : t) x = 1;
  CHECK(ike::storage_allocated(t));
  ike::free_storage(t);
  CHECK(!ike::storage_allocated(t));
  CHECK(t.data() == nullptr);
  CHECK(t.size() == 0);
  CHECK(t.extents() == shape{5, 3});
  ike::free_storage(t);
  CHECK(t.extents() == shape{5, 3});

  ike::alloc_storage(t);
  CHECK(ike::storage_allocated(t));
  CHECK(t.size() == 15);
  CHECK(t.extents() == shape{5, 3});
  for (float x : t) CHECK(x == 0);
}

TEST_CASE("to take storage that is there changes nothing") {
  ike::tensor<double, shape{4}> t;
  t[2] = 7;
  const double* const before = t.data();
  ike::alloc_storage(t);
  CHECK(t.data() == before);
  CHECK(t[2] == 7);
}

TEST_CASE("a tensor of static extents is freed as well") {
  ike::tensor<double, shape{2, 2}> t;
  ike::free_storage(t);
  CHECK(!ike::storage_allocated(t));
  ike::alloc_storage(t);
  CHECK(t.size() == 4);
}

TEST_CASE("a tensor without elements has all the storage it needs") {
  ike::tensor<float, shape{dynamic, 3}> t(shape{0, 3});
  CHECK(ike::storage_allocated(t));
  ike::free_storage(t);
  CHECK(ike::storage_allocated(t));
  ike::alloc_storage(t);
  CHECK(t.extents() == shape{0, 3});
}

TEST_CASE("a buffer is freed, and taken again only when it was") {
  ike::aligned_buffer<float> b(8);
  CHECK(ike::storage_allocated(b));
  ike::alloc_storage(b, 8);
  b[0] = 3;
  CHECK_THROWS_WITH_AS(
      ike::alloc_storage(b, 9),
      "alloc_storage: expected a buffer without memory, got one of 8 elements (asked for 9)",
      ike::state_error);
  CHECK(b[0] == 3);
  ike::free_storage(b);
  CHECK(!ike::storage_allocated(b));
  ike::alloc_storage(b, 9);
  CHECK(b.size() == 9);
  CHECK(b[0] == 0);
}
