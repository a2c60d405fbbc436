#include "ikebana/io/sample_loader.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdint>
#include <map>
#include <span>
#include <stdexcept>
#include <thread>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

#include "ikebana/io/transform.hpp"
#include "test/support/count_allocations.hpp"
#include "test/support/scratch.hpp"

namespace ike = ikebana;
using ike::data_loader;
using ike::dim_t;
using ike::dynamic;
using ike::shape;

namespace {

/// Sample i is a random number, the number i as a float, and [i, -i].
struct numbers {
  dim_t n = 23;
  dim_t bad = -1;
  bool slow = false;

  dim_t size() const { return n; }
  auto sample(dim_t i, const ike::random_stream& stream) const {
    if (i == bad) throw std::runtime_error("cannot read");
    if (slow) std::this_thread::sleep_for(std::chrono::milliseconds(1));
    ike::tensor<double, shape{2}> pair;
    pair[0] = static_cast<double>(i);
    pair[1] = static_cast<double>(-i);
    return std::tuple(static_cast<int>(stream.words(0)[0] & 0xffff), static_cast<float>(i),
                      std::move(pair));
  }
};

/// Sentence i has i % 4 words of number i, each a row of two.
struct sentences {
  dim_t size() const { return 9; }
  auto sample(dim_t i) const {
    auto words = ike::full<float, shape{dynamic, 2}>(static_cast<float>(i), i % 4);
    auto tags = ike::full<std::int64_t, shape{dynamic}>(i, i % 4);
    return std::tuple(std::move(words), i % 4, std::move(tags));
  }
};

using row = std::array<double, 3>;

template <class Loader>
std::vector<row> epoch_of(Loader& loader) {
  std::vector<row> all;
  dim_t batches = 0;
  for (auto [random, number, pair] : loader) {
    static_assert(
        std::is_same_v<decltype(random), ike::tensor_view<const std::int64_t, shape{dynamic}>>);
    static_assert(
        std::is_same_v<decltype(pair), ike::tensor_view<const double, shape{dynamic, 2}>>);
    ++batches;
    for (dim_t i = 0; i < number.size(); ++i) {
      CHECK(pair(i, 0) == static_cast<double>(number[i]));
      all.push_back({static_cast<double>(random[i]), static_cast<double>(number[i]), pair(i, 1)});
    }
  }
  CHECK(batches == loader.size());
  return all;
}

auto images() {
  ike::tensor<float, shape{6, 1, 2, 3}> x;
  ike::tensor<std::int64_t, shape{6}> t;
  for (dim_t i = 0; i < x.size(); ++i) x[i] = static_cast<float>(i);
  for (dim_t i = 0; i < 6; ++i) t[i] = i;
  return ike::tensor_dataset(std::move(x), std::move(t));
}

}  // namespace

TEST_CASE("samples of one's own have the same bits for any number of workers and ranks") {
  const numbers data;
  data_loader alone{data, {.batch = 4, .shuffle = ike::seed{3}}};
  const auto first = epoch_of(alone), second = epoch_of(alone);
  CHECK(first.size() == 23);
  CHECK(first != second);
  for (const int workers : {1, 2, 3})
    for (const dim_t prefetch : {1, 2, 7}) {
      CAPTURE(workers);
      data_loader loader{
          data, {.batch = 4, .shuffle = ike::seed{3}, .workers = workers, .prefetch = prefetch}};
      CHECK(std::get<0>(*loader.begin()).size() == 4);  // Others are being read meanwhile.
      loader.set_epoch(0);
      CHECK(epoch_of(loader) == first);
      data_loader moved{std::move(loader)};
      CHECK(epoch_of(moved) == second);
    }
  const numbers slow{.slow = true};
  data_loader reading{slow, {.batch = 4, .shuffle = ike::seed{3}, .workers = 2, .prefetch = 5}};
  reading.begin();
  reading.set_epoch(0);
  data_loader moved{std::move(reading)};  // While batches are being read.
  CHECK(epoch_of(moved) == first);
  std::vector<row> together(23);
  for (const int rank : {0, 1}) {
    data_loader part{data, {.batch = 2, .shuffle = ike::seed{3}, .shard = {rank, 2}, .workers = 1}};
    const auto rows = epoch_of(part);
    CHECK(rows.size() == 12);
    for (std::size_t i = 0; 2 * i + static_cast<std::size_t>(rank) < 23; ++i)
      together[2 * i + static_cast<std::size_t>(rank)] = rows[i];
  }
  CHECK(together == first);
  const numbers none{0};
  data_loader empty{none, {.batch = 4, .workers = 1}};
  CHECK(epoch_of(empty).empty());
}

TEST_CASE("a loop of samples continues from a position, whatever was read ahead") {
  const numbers data;
  data_loader whole{data, {.batch = 4, .shuffle = ike::seed{3}, .workers = 2, .prefetch = 3}};
  std::vector<float> all, resumed;
  ike::loader_position at;
  for (auto [random, number, pair] : whole) {
    if (whole.position().batch == 3) at = whole.position();
    all.insert(all.end(), number.begin(), number.end());
  }
  CHECK(at == ike::loader_position{0, 3});
  data_loader other{data, {.batch = 4, .shuffle = ike::seed{3}, .workers = 1}};
  other.set_position(at);
  for (auto [random, number, pair] : other)
    resumed.insert(resumed.end(), number.begin(), number.end());
  CHECK(std::equal(resumed.begin(), resumed.end(), all.begin() + 12, all.end()));
}

TEST_CASE("sequences are padded to the longest of the batch") {
  const sentences data;
  for (const int workers : {0, 2}) {
    data_loader loader{data, {.batch = 3, .workers = workers, .padding = {0.5, 0, -100}}};
    std::vector<dim_t> longest;
    dim_t sample = 0;
    for (auto [words, lengths, tags] : loader) {
      CHECK(words.extents() == shape{3, tags.extent(1), 2});
      longest.push_back(words.extent(1));
      for (dim_t n = 0; n < 3; ++n, ++sample) {
        CHECK(lengths[n] == sample % 4);
        for (dim_t k = 0; k < words.extent(1); ++k) {
          CHECK(words(n, k, 1) == (k < lengths[n] ? static_cast<float>(sample) : 0.5F));
          CHECK(tags(n, k) == (k < lengths[n] ? sample : -100));
        }
      }
    }
    CHECK(longest == std::vector<dim_t>{2, 3, 3});
  }
}

TEST_CASE("an exception of a sample comes to the loop with its batch") {
  for (const int workers : {0, 2}) {
    const numbers data{23, 9};
    data_loader loader{data, {.batch = 4, .workers = workers}};
    int batches = 0;
    CHECK_THROWS_WITH_AS(([&] {
                           for (auto it = loader.begin(); it != loader.end(); ++it) ++batches;
                         }()),
                         "cannot read", std::runtime_error);
    CHECK(batches == 2);
  }
  const numbers data;
  CHECK_THROWS_WITH_AS(data_loader(data, {.workers = -1}),
                       "data_loader: expected workers >= 0 and prefetch >= 1", ike::error);
}

TEST_CASE("samples are drawn by weights") {
  const auto data = images();
  std::array<double, 6> weights{0, 1, 0, 3, 0, 0};
  data_loader loader{data, {.batch = 6, .shuffle = ike::seed{1}, .weights = weights}};
  weights = {};  // They were copied.
  std::map<std::int64_t, int> count;
  for (int epoch = 0; epoch < 200; ++epoch)
    for (auto [x, t] : loader)
      for (const std::int64_t label : t) ++count[label];
  CHECK(count.size() == 2);
  CHECK(count[1] + count[3] == 1200);
  CHECK(count[3] == doctest::Approx(900).epsilon(0.05));
  const auto refused = [&](std::span<const double> w) {
    return message_of<ike::error>(
        [&] { data_loader(data, {.shuffle = ike::seed{1}, .weights = w}); });
  };
  CHECK(refused(std::array{1., 2.}) == "data_loader expects 6 weights, got 2");
  CHECK(refused(std::array{1., 2., 3., -4., 5., 6.}) ==
        "data_loader: the weight of sample 3 is negative or not a number");
  CHECK(refused(std::array{0., 0., 0., 0., 0., 0.}) ==
        "data_loader: the weights must have a positive, finite sum");
  CHECK_THROWS_AS(data_loader(data, {.weights = std::array{1., 1., 1., 1., 1., 1.}}), ike::error);
}

TEST_CASE("strata have their proportion in every batch") {
  const numbers data{40};
  std::vector<std::int64_t> strata(40);
  for (std::size_t i = 0; i < 40; ++i) strata[i] = i < 30 ? 7 : -2;
  data_loader loader{data, {.batch = 8, .shuffle = ike::seed{1}, .strata = strata, .workers = 1}};
  std::vector<float> orders[2];
  for (auto& order : orders) {
    for (auto [random, number, pair] : loader) {
      const auto rare =
          std::count_if(number.begin(), number.end(), [](float x) { return x >= 30; });
      CHECK(rare >= 1);
      CHECK(rare <= 3);
      order.insert(order.end(), number.begin(), number.end());
    }
  }
  CHECK(orders[0] != orders[1]);
  std::sort(orders[0].begin(), orders[0].end());
  for (std::size_t i = 0; i < 40; ++i) CHECK(orders[0][i] == static_cast<float>(i));
  CHECK(message_of<ike::error>([&] {
          data_loader(
              data,
              {.shuffle = ike::seed{1}, .weights = std::vector<double>(40, 1), .strata = strata});
        }) == "data_loader takes weights or strata, not both");
}

TEST_CASE("an epoch of samples allocates only what samples do") {
  const auto data = images();
  const auto labels = ike::mapped(data, [](const auto&, std::int64_t t) { return t; });
  data_loader loader{labels, {.batch = 4, .shuffle = ike::seed{1}}};
  std::int64_t sum = 0;
  const long before = allocation_count_here;
  for (auto [t] : loader) sum += t[0];
  CHECK(allocation_count_here == before);
  CHECK(sum >= 0);
}

TEST_CASE("transforms of images compute what torchvision does") {
  const auto data = images();
  const auto x = std::get<0>(ike::detail::sample_of(data, 0, {}));  // [[0, 1, 2], [3, 4, 5]]
  const auto values = [](const auto& y) { return std::vector<float>(y.begin(), y.end()); };
  using list = std::vector<float>;
  CHECK(values(ike::random_horizontal_flip{1}(x, {})) == list{2, 1, 0, 5, 4, 3});
  CHECK(values(ike::random_vertical_flip{1}(x, {})) == list{3, 4, 5, 0, 1, 2});
  CHECK(values(ike::random_vertical_flip{0}(x, {})) == values(x));
  CHECK(values(ike::center_crop<2, 1>{}(x)) == list{1, 4});
  CHECK(values(ike::center_crop<1, 2>{}(x)) == list{0, 1});
  CHECK(values(ike::normalize_channels{std::array{1.F}, std::array{2.F}}(x)) ==
        list{-0.5F, 0, 0.5F, 1, 1.5F, 2});
  std::map<list, int> seen;
  for (std::uint64_t i = 0; i < 200; ++i)
    ++seen[values(ike::random_crop<2, 3>{.padding = 1}(x, {ike::seed{i}, 0}))];
  CHECK(seen.size() == 9);
  CHECK(seen.contains(list{0, 0, 0, 0, 0, 1}));
  CHECK(seen.contains(list{4, 5, 0, 0, 0, 0}));
  CHECK(message_of<ike::shape_error>([&] { ike::random_crop<4, 3>{}(x, {}); }) ==
        "random_crop expects an image of at least [1, 4, 3], got [1, 2, 3] padded by 0");

  const auto flipped =
      ike::transformed(data, ike::random_horizontal_flip{}, ike::center_crop<1, 1>{},
                       [](const auto& image) { return image[0]; });
  data_loader loader{flipped, {.batch = 6, .shuffle = ike::seed{1}, .workers = 1}};
  for (auto [pixel, t] : loader)
    for (dim_t i = 0; i < 6; ++i) CHECK(pixel[i] == static_cast<float>(6 * t[i] + 1));
}

TEST_CASE("mixtures are those of their shares") {
  const auto data = images();
  const auto mixed = ike::mixup<6>(data, 0.4);
  data_loader loader{mixed, {.batch = 6, .shuffle = ike::seed{1}}};
  double squares = 0, n = 0;
  for (int epoch = 0; epoch < 300; ++epoch)
    for (auto [x, t] : loader)
      for (dim_t i = 0; i < 6; ++i) {
        float sum = 0, first = 0;
        int classes = 0;
        for (dim_t c = 0; c < 6; ++c) {
          sum += t(i, c);
          first += t(i, c) * static_cast<float>(6 * c);
          classes += t(i, c) != 0;
        }
        CHECK(sum == doctest::Approx(1));
        CHECK(x(i, 0, 0, 0) == doctest::Approx(first).epsilon(1e-5));
        if (classes < 2) continue;
        float share = 0;
        for (dim_t c = 0; c < 6; ++c) share = t(i, c) != 0 ? t(i, c) : share;
        squares += static_cast<double>((share - 0.5F) * (share - 0.5F));
        ++n;
      }
  // Beta(a, a) has the variance 1 / (8 a + 4).
  CHECK(7.2 * squares / n == doctest::Approx(1).epsilon(0.02));
  CHECK_THROWS_AS(ike::mixup<6>(data, 0), ike::error);
  const auto less = ike::mixup<3>(data, 1);
  data_loader wrong{less, {.batch = 6}};
  CHECK_THROWS_AS(wrong.begin(), ike::error);
}

TEST_CASE("a dataset of one's own is split by a permutation of the seed") {
  const numbers data;
  const auto [train, test] = ike::random_split(data, 17, ike::seed{1});
  CHECK(train.size() == 17);
  CHECK(test.size() == 6);
  data_loader first{train, {.batch = 4}}, second{test, {.batch = 4}};
  std::vector<double> all;
  for (const auto& part : {epoch_of(first), epoch_of(second)})
    for (const row& r : part) all.push_back(r[1]);
  CHECK(!std::is_sorted(all.begin(), all.end()));
  std::sort(all.begin(), all.end());
  for (std::size_t i = 0; i < 23; ++i) CHECK(all[i] == static_cast<double>(i));
  CHECK_THROWS_AS(ike::random_split(data, 24, ike::seed{1}), ike::shape_error);
  CHECK_THROWS_WITH_AS(ike::subset(data, {0, 23}), "subset: there is no sample 23 of 23",
                       ike::error);
}
