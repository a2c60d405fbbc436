#include "ikebana/replicate/invariant.hpp"

#include <doctest/doctest.h>

#include <cstddef>
#include <vector>

#include "ikebana/core/random.hpp"
#include "ikebana/core/shape.hpp"
#include "ikebana/model/passes/gradient_presence.hpp"
#include "ikebana/replicate/invariant/invariant_presence.hpp"
#include "ikebana/replicate/invariant/invariant_sum.hpp"
#include "ikebana/replicate/launch.hpp"

namespace ike = ikebana;
using ike::dim_t;
using ike::index_range;
using ike::threads;

namespace {

// Shards are divided among ranks, and rows among shards, as by torch.tensor_split.
static_assert(ike::invariant_shards(8, 0, 3) == index_range{0, 2});
static_assert(ike::invariant_shards(8, 1, 3) == index_range{2, 5});
static_assert(ike::invariant_shards(8, 2, 3) == index_range{5, 8});
static_assert(ike::invariant_rows(10, 4, {0, 1}) == index_range{0, 3});
static_assert(ike::invariant_rows(10, 4, {1, 2}) == index_range{3, 6});
static_assert(ike::invariant_rows(10, 4, {2, 3}) == index_range{6, 8});
static_assert(ike::invariant_rows(10, 4, {3, 4}) == index_range{8, 10});
static_assert(ike::invariant_rows(3, 8, {3, 8}).size() == 0);
static_assert(ike::invariant_rows(32, 8, 1, 2) == index_range{16, 32});

// The tree of 7 shards: ((0 1) (2 3)) ((4 5) 6).
static_assert(ike::detail::are_siblings(7, 0, 1, 2) && ike::detail::are_siblings(7, 4, 5, 6));
static_assert(ike::detail::are_siblings(7, 4, 6, 7) && ike::detail::are_siblings(7, 0, 4, 7));
static_assert(!ike::detail::are_siblings(7, 1, 2, 3) && !ike::detail::are_siblings(7, 5, 6, 7));

/// A shard's contribution: numbers whose sum depends on the order.
template <class T>
std::vector<T> values(dim_t shard, dim_t n) {
  std::vector<T> x(static_cast<std::size_t>(n));
  ike::fill_uniform(ike::random_stream{ike::seed{7}, static_cast<std::uint64_t>(shard)}, T{1},
                    x.data(), n);
  return x;
}

/// The sum over a node by definition.
template <class T>
std::vector<T> tree_sum(dim_t begin, dim_t end, dim_t n) {
  if (end - begin == 1) return values<T>(begin, n);
  dim_t left = 1;
  while (2 * left < end - begin) left *= 2;
  std::vector<T> a = tree_sum<T>(begin, begin + left, n);
  const std::vector<T> b = tree_sum<T>(begin + left, end, n);
  for (std::size_t i = 0; i < a.size(); ++i) a[i] += b[i];
  return a;
}

template <class T>
std::vector<std::vector<T>> sums(int ranks, dim_t shards, dim_t n) {
  return ike::launch(threads{ranks}, [&](ike::process_group auto& group) {
    ike::detail::invariant_sum<T, std::remove_reference_t<decltype(group)>> sum(group, shards, n);
    std::vector<T> out;
    for (int time = 0; time < 2; ++time) {
      for (dim_t s = sum.own_shards().begin; s < sum.own_shards().end; ++s) {
        const std::vector<T> x = values<T>(s, n);
        std::copy(x.begin(), x.end(), sum.next());
        sum.add();
      }
      const T* total = sum.total();
      out.assign(total, total + n);
    }
    return out;
  });
}

}  // namespace

TEST_CASE_TEMPLATE("The sum is that of the tree for every number of ranks", T, float, double) {
  for (dim_t shards : {1, 2, 3, 5, 6, 7, 8, 13, 16}) {
    const std::vector<T> expected = tree_sum<T>(0, shards, 37);
    for (int ranks = 1; ranks <= std::min<dim_t>(shards, 8); ++ranks) {
      CAPTURE(shards);
      CAPTURE(ranks);
      for (const auto& total : sums<T>(ranks, shards, 37)) CHECK(total == expected);
    }
  }
}

TEST_CASE("A long sum goes in pieces") {
  const dim_t n = 300'001;
  const std::vector<float> expected = tree_sum<float>(0, 8, n);
  for (int ranks : {2, 3, 4})
    for (const auto& total : sums<float>(ranks, 8, n)) CHECK(total == expected);
}

TEST_CASE(
    "A step that fails restores which parameters had a gradient, one that accumulates keeps") {
  for (const std::size_t had : {std::size_t{0}, std::size_t{1}, std::size_t{2}}) {
    CAPTURE(had);
    ike::gradient_presence model;
    for (int i = 0; i < 3; ++i) model.add({});
    model.set(had);
    ike::detail::invariant_presence presence{&model};
    const auto expect = [&](bool of_had, bool of_others) {
      for (std::size_t i = 0; i < 3; ++i) CHECK(model[i] == (i == had ? of_had : of_others));
    };
    presence.begin(&model);
    presence.begin_shard(&model);
    expect(false, false);
    presence.restore(&model);
    expect(true, false);
    const std::vector<float> none(3);
    presence.finish(none.data(), true, &model);
    expect(true, false);
    presence.finish(none.data(), false, &model);
    expect(false, false);
  }
}
