#include "ikebana/io/data_loader.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <cstdint>
#include <iterator>
#include <numeric>
#include <ranges>
#include <type_traits>
#include <utility>
#include <vector>

#include "ikebana/core/error.hpp"
#include "ikebana/core/tensor.hpp"
#include "test/support/count_allocations.hpp"
#include "test/support/scratch.hpp"

namespace ike = ikebana;
using ike::data_loader;
using ike::dim_t;
using ike::dynamic;
using ike::shape;

namespace {

using order = std::vector<std::int64_t>;

/// Sample i is [[10 i, 10 i + 1]]; its label is i.
auto numbered(dim_t n) {
  ike::tensor<float, shape{dynamic, 1, 2}> x(shape{n, 1, 2});
  ike::tensor<std::int64_t, shape{dynamic}> t(shape{n});
  for (dim_t i = 0; i < n; ++i) {
    x(i, 0, 0) = static_cast<float>(10 * i);
    x(i, 0, 1) = static_cast<float>(10 * i + 1);
    t[i] = i;
  }
  return ike::tensor_dataset(std::move(x), std::move(t));
}

/// The labels of one epoch; checks that the features match them, and the batch boundaries.
template <class Loader>
order epoch_of(Loader& loader) {
  order labels;
  dim_t batches = 0;
  for (auto [x, t] : loader) {
    ++batches;
    REQUIRE(x.extent(0) == t.extent(0));
    REQUIRE(x.extent(0) >= 1);
    const dim_t full = loader.options().batch;
    CHECK((x.extent(0) == full || (batches == loader.size() && !loader.options().drop_last)));
    for (dim_t i = 0; i < t.extent(0); ++i) {
      CHECK(x(i, 0, 1) == static_cast<float>(10 * t[i] + 1));
      labels.push_back(t[i]);
    }
  }
  CHECK(batches == loader.size());
  CHECK(static_cast<dim_t>(labels.size()) == loader.samples());
  return labels;
}

order identity(dim_t n) {
  order o(static_cast<std::size_t>(n));
  std::iota(o.begin(), o.end(), 0);
  return o;
}

order sorted(order o) {
  std::sort(o.begin(), o.end());
  return o;
}

struct group {
  int rank_, size_;
  int rank() const { return rank_; }
  int size() const { return size_; }
};

using dataset = decltype(numbered(1));
static_assert(std::ranges::input_range<data_loader<dataset>>);
static_assert(std::is_same_v<decltype((*std::declval<data_loader<dataset>&>().begin()).x),
                             ike::tensor_view<const float, shape{dynamic, 1, 2}>>);
static_assert(!std::is_constructible_v<data_loader<dataset>, dataset, ike::data_loader_options>);
static_assert(std::is_constructible_v<data_loader<dataset>, dataset&, ike::data_loader_options>);

}  // namespace

TEST_CASE("samples come in order, straight from the dataset, in batches") {
  const auto digits = numbered(10);
  data_loader loader(digits, {.batch = 4});
  CHECK(loader.size() == 3);
  CHECK(loader.samples() == 10);
  CHECK(epoch_of(loader) == identity(10));
  CHECK((*loader.begin()).x.data() == digits.features().data());
  data_loader dropping(digits, {.batch = 4, .drop_last = true});
  CHECK(dropping.size() == 2);
  CHECK(epoch_of(dropping) == identity(8));
}

TEST_CASE("every epoch is another permutation, the same for the same seed and epoch") {
  const auto digits = numbered(50);
  data_loader loader(digits, {.batch = 8, .shuffle = ike::seed{7}});
  const order first = epoch_of(loader), second = epoch_of(loader);
  CHECK(sorted(first) == identity(50));
  CHECK(sorted(second) == identity(50));
  CHECK(first != identity(50));
  CHECK(first != second);
  CHECK(loader.epoch() == 2);
  loader.set_epoch(0);
  CHECK(epoch_of(loader) == first);
  data_loader restarted(digits, {.batch = 5, .shuffle = ike::seed{7}});
  restarted.set_epoch(1);
  CHECK(epoch_of(restarted) == second);
  data_loader other(digits, {.batch = 8, .shuffle = ike::seed{8}});
  CHECK(epoch_of(other) != first);
}

TEST_CASE("shards are PyTorch's: interleaved, of one length, wrapped or cut") {
  for (dim_t n : {1, 2, 5, 12, 13}) {
    for (int ranks : {1, 2, 3, 5}) {
      for (bool shuffled : {false, true}) {
        for (bool drop : {false, true}) {
          CAPTURE(n);
          CAPTURE(ranks);
          CAPTURE(shuffled);
          CAPTURE(drop);
          const auto digits = numbered(n);
          const auto shuffle = shuffled ? std::optional(ike::seed{3}) : std::nullopt;
          data_loader alone(digits, {.shuffle = shuffle});
          const order all = epoch_of(alone);
          // torch.utils.data.DistributedSampler, with batches of one.
          const dim_t each = drop ? n / ranks : (n + ranks - 1) / ranks;
          std::vector<order> parts;
          for (int rank = 0; rank < ranks; ++rank) {
            data_loader loader(
                digits, {.shuffle = shuffle, .shard = group{rank, ranks}, .drop_last = drop});
            parts.push_back(epoch_of(loader));
            order expected;
            for (dim_t i = 0; i < each; ++i)
              expected.push_back(all[static_cast<std::size_t>((rank + i * ranks) % n)]);
            CHECK(parts.back() == expected);
          }
          order together;
          for (const order& part : parts) together.insert(together.end(), part.begin(), part.end());
          together = sorted(together);
          const auto twice = std::unique(together.begin(), together.end());
          if (drop || n % ranks == 0) CHECK(twice == together.end());
          together.erase(twice, together.end());
          if (!drop) CHECK(together == identity(n));
        }
      }
    }
  }
}

TEST_CASE("the batches of all ranks together are the batches of one") {
  const auto digits = numbered(24);
  data_loader one(digits, {.batch = 8, .shuffle = ike::seed{1}});
  data_loader left(digits, {.batch = 4, .shuffle = ike::seed{1}, .shard = {0, 2}});
  data_loader right(digits, {.batch = 4, .shuffle = ike::seed{1}, .shard = {1, 2}});
  auto l = left.begin();
  auto r = right.begin();
  for (auto [x, t] : one) {
    order whole(t.begin(), t.end()), halves((*l).t.begin(), (*l).t.end());
    halves.insert(halves.end(), (*r).t.begin(), (*r).t.end());
    CHECK(sorted(whole) == sorted(halves));
    ++l;
    ++r;
  }
  CHECK(l == left.end());
}

TEST_CASE("drop_last leaves no short batch on any rank") {
  const auto digits = numbered(13);
  data_loader loader(digits, {.batch = 4, .shard = {1, 2}, .drop_last = true});
  CHECK(loader.size() == 1);
  CHECK(epoch_of(loader) == order{1, 3, 5, 7});
  data_loader none(digits, {.batch = 14, .drop_last = true});
  CHECK(none.size() == 0);
  CHECK(epoch_of(none).empty());
}

TEST_CASE("a batch larger than the dataset is the dataset") {
  const auto digits = numbered(3);
  data_loader loader(digits, {.batch = 1000, .shuffle = ike::seed{1}});
  CHECK(sorted(epoch_of(loader)) == identity(3));
  const auto nothing = numbered(0);
  data_loader empty(nothing, {.batch = 2, .shuffle = ike::seed{1}, .shard = {1, 2}});
  CHECK(empty.size() == 0);
  CHECK(epoch_of(empty).empty());
}

TEST_CASE("targets may be values to be met") {
  auto x = ike::uniform<double, shape{6, 3}>(ike::seed{1});
  const ike::tensor_dataset points(x, ike::full<double, shape{dynamic, 2}>(2.0, 6));
  for (auto [in, out] : data_loader(points, {.batch = 4, .shuffle = ike::seed{1}})) {
    static_assert(std::is_same_v<decltype(in), ike::tensor_view<const double, shape{dynamic, 3}>>);
    static_assert(std::is_same_v<decltype(out), ike::tensor_view<const double, shape{dynamic, 2}>>);
    CHECK(in.extent(0) == out.extent(0));
    CHECK(out(0, 1) == 2.0);
  }
}

TEST_CASE("epochs allocate nothing") {
  const auto digits = numbered(100);
  data_loader plain(digits, {.batch = 8});
  data_loader mixed(digits, {.batch = 8, .shuffle = ike::seed{1}, .shard = {1, 3}});
  const long before = allocation_count_here;
  std::int64_t sum = 0;
  for (int epoch = 0; epoch < 3; ++epoch) {
    for (auto [x, t] : plain) sum += t[0];
    for (auto [x, t] : mixed) sum += t[0];
  }
  CHECK(allocation_count_here == before);
  CHECK(sum > 0);
}

TEST_CASE("a loader may be moved between epochs") {
  const auto digits = numbered(10);
  data_loader loader(digits, {.batch = 3, .shuffle = ike::seed{1}});
  const order first = epoch_of(loader);
  loader.set_epoch(0);
  auto moved = std::move(loader);
  CHECK(epoch_of(moved) == first);
}

TEST_CASE("options that make no sense are refused") {
  const auto digits = numbered(3);
  CHECK(message_of<ike::shape_error>([&] { data_loader(digits, {.batch = 0}); }) ==
        "data_loader expects a batch of at least 1, got 0");
  CHECK(message_of<ike::shape_error>([&] { data_loader(digits, {.batch = -1}); }) ==
        "data_loader expects a batch of at least 1, got -1");
  CHECK(message_of<ike::shape_error>([&] {
          data_loader(digits, {.shard = {2, 2}});
        }) == "data_loader expects a rank below 2, got 2");
  CHECK_THROWS_AS(data_loader(digits, {.shard = {0, 0}}), ike::shape_error);
}

TEST_CASE("a loop continues from a position within an epoch") {
  const auto data = numbered(7);
  data_loader loader{data, {.batch = 2, .shuffle = ike::seed{3}}};
  CHECK(loader.position() == ike::loader_position{0, 0});
  std::vector<std::pair<std::int64_t, ike::loader_position>> seen;
  for (int epoch = 0; epoch < 2; ++epoch)
    for (auto [x, t] : loader) seen.emplace_back(t[0], loader.position());
  CHECK(seen[0].second == ike::loader_position{0, 1});
  CHECK(seen[3].second == ike::loader_position{1, 0});
  for (std::size_t k = 0; k + 1 < seen.size(); ++k) {
    CAPTURE(k);
    data_loader other{data, {.batch = 2, .shuffle = ike::seed{3}}};
    other.set_position(seen[k].second);
    CHECK(other.position() == seen[k].second);
    std::size_t i = k + 1;
    while (i < seen.size())
      for (auto [x, t] : other) CHECK(t[0] == seen[i++].first);
    CHECK(other.position() == ike::loader_position{2, 0});
  }
  CHECK_THROWS_WITH_AS(loader.set_position({1, 4}),
                       "data_loader: there is no batch 4 of 4 in epoch 1", ike::error);
  CHECK(loader.position() == ike::loader_position{2, 0});
}
