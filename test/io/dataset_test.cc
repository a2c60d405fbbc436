#include "ikebana/io/dataset.hpp"

#include <doctest/doctest.h>

#include <cstdint>
#include <set>
#include <type_traits>
#include <utility>

#include "ikebana/core/error.hpp"
#include "ikebana/core/tensor.hpp"
#include "test/support/scratch.hpp"

namespace ike = ikebana;
using ike::dim_t;
using ike::dynamic;
using ike::shape;

namespace {

/// Sample i holds 10 i, 10 i + 1, 10 i + 2; its label is i.
auto numbered(dim_t n) {
  ike::tensor<float, shape{dynamic, 3}> x(shape{n, 3});
  ike::tensor<std::int64_t, shape{dynamic}> t(shape{n});
  for (dim_t i = 0; i < n; ++i) {
    for (dim_t k = 0; k < 3; ++k) x(i, k) = static_cast<float>(10 * i + k);
    t[i] = i;
  }
  return ike::tensor_dataset(std::move(x), std::move(t));
}

}  // namespace

TEST_CASE("features and targets go together by their first extent") {
  const auto dataset = numbered(5);
  CHECK(dataset.size() == 5);
  CHECK(dataset.features()(4, 1) == 41);
  CHECK(dataset.targets()[4] == 4);
  CHECK(message_of<ike::shape_error>([] {
          ike::tensor_dataset(ike::zeros<float, shape{dynamic, 3}>(5),
                              ike::zeros<float, shape{dynamic, 2}>(4));
        }) == "tensor_dataset expects 5 targets, got 4 (features [5, 3])");
}

TEST_CASE("a dataset of views copies nothing") {
  const auto x = ike::ones<double, shape{4, 2}>();
  const auto t = ike::ones<double, shape{4, 1}>();
  const ike::tensor_dataset dataset(x.view(), t.view());
  CHECK(dataset.features().data() == x.data());
  const auto [train, test] = ike::random_split(dataset, 3, ike::seed{1});
  static_assert(std::is_same_v<std::remove_cvref_t<decltype(train.features())>,
                               ike::tensor<double, shape{dynamic, 2}>>);
  CHECK(train.size() == 3);
  CHECK(test.targets().extents() == shape{1, 1});
}

TEST_CASE("a split is a partition that the seed determines") {
  const auto dataset = numbered(100);
  const auto parts = ike::random_split(dataset, 80, ike::seed{3});
  const auto again = ike::random_split(dataset, 80, ike::seed{3});
  const auto other = ike::random_split(dataset, 80, ike::seed{4});
  CHECK(parts.train.size() == 80);
  CHECK(parts.test.size() == 20);
  std::set<std::int64_t> seen;
  bool same = true, differs = false, paired = true, in_order = true;
  for (dim_t i = 0; i < 100; ++i) {
    const auto& part = i < 80 ? parts.train : parts.test;
    const dim_t k = i < 80 ? i : i - 80;
    const std::int64_t label = part.targets()[k];
    seen.insert(label);
    paired = paired && part.features()(k, 2) == static_cast<float>(10 * label + 2);
    in_order = in_order && label == i;
    same = same && label == (i < 80 ? again.train : again.test).targets()[k];
    differs = differs || label != (i < 80 ? other.train : other.test).targets()[k];
  }
  CHECK(seen.size() == 100);
  CHECK(paired);
  CHECK(same);
  CHECK(differs);
  CHECK_FALSE(in_order);
  CHECK(ike::random_split(dataset, 0, ike::seed{3}).train.size() == 0);
  CHECK(ike::random_split(dataset, 100, ike::seed{3}).test.size() == 0);
  CHECK_THROWS_AS(ike::random_split(dataset, 101, ike::seed{3}), ike::shape_error);
  CHECK_THROWS_AS(ike::random_split(dataset, -1, ike::seed{3}), ike::shape_error);
}
