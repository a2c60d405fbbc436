#include "ikebana/replicate/utils/broadcast_coalesced.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

#include "ikebana/compose/sequential.hpp"
#include "ikebana/model/initialize.hpp"
#include "ikebana/nn/batch_norm.hpp"
#include "ikebana/nn/linear.hpp"
#include "ikebana/nn/rnn.hpp"
#include "ikebana/replicate/launch.hpp"
#include "ikebana/replicate/replicate.hpp"

namespace ike = ikebana;
using namespace ike::literals;
using ike::dim_t;
using ike::dynamic;
using ike::shape;
using ike::threads;

namespace {

/// The calls of a group.
struct record {
  std::vector<std::size_t> chunks;
  std::vector<const void*> places;
  int under_way = 0, most_under_way = 0;
};

struct recorded_work {
  record* of = nullptr;
  bool poll() const { return true; }
  void wait() {
    if (of != nullptr) --of->under_way;
    of = nullptr;
  }
};

struct recording_group : ike::single {
  record* to;
  explicit recording_group(record& r) : to{&r} {}
  template <ike::transferable T>
  recorded_work broadcast_async(std::span<T> data, int) {
    to->chunks.push_back(data.size_bytes());
    to->places.push_back(data.data());
    to->most_under_way = std::max(to->most_under_way, ++to->under_way);
    return {to};
  }
};

template <class T>
using row = ike::tensor<T, shape{dynamic}>;

template <class T>
row<T> numbers(dim_t n, int from) {
  row<T> t(shape{n});
  for (dim_t i = 0; i < n; ++i) t[i] = static_cast<T>(from + i);
  return t;
}

}  // namespace

TEST_CASE("small tensors travel together in chunks up to the bytes asked for") {
  record r;
  recording_group group(r);
  auto a = numbers<float>(3, 0), b = numbers<float>(2, 0), empty = numbers<float>(0, 0),
       d = numbers<float>(4, 0);
  auto c = numbers<double>(1, 0);
  ike::broadcast_coalesced(group, {.bytes = 28}, a, b, empty, c, d);
  CHECK(r.chunks == std::vector<std::size_t>{28, 16});
  CHECK(r.under_way == 0);

  r = {};
  ike::broadcast_coalesced(group, {}, a, b, empty, c, d);
  CHECK(r.chunks == std::vector<std::size_t>{44});
}

TEST_CASE("a large tensor is sent from its place, in slices, two of them under way") {
  record r;
  recording_group group(r);
  auto a = numbers<float>(1, 0), b = numbers<float>(11, 0);
  ike::broadcast_coalesced(group, {.bytes = 16}, a, b);
  CHECK(r.chunks == std::vector<std::size_t>{4, 16, 16, 12});
  CHECK(r.places[0] == a.data());
  CHECK(r.places[1] == b.data());
  CHECK(r.places[3] == b.data() + 8);
  CHECK(r.most_under_way == 2);
  CHECK(r.under_way == 0);
}

TEST_CASE("nothing is sent where there is nothing") {
  record r;
  recording_group group(r);
  auto empty = numbers<float>(0, 0);
  ike::broadcast_coalesced(group, {});
  ike::broadcast_coalesced(group, {}, empty, empty);
  CHECK(r.chunks.empty());
  CHECK_THROWS_WITH_AS(ike::broadcast_coalesced(group, {.bytes = 0}, empty),
                       "broadcast_coalesced: expected chunks of more than 0 bytes, got 0",
                       ike::state_error);
}

TEST_CASE("every rank ends with the values of the source") {
  for (int ranks : {1, 2, 3})
    for (int src = 0; src < ranks; ++src)
      for (dim_t bytes : {1, 7, 16, 64, 1000}) {
        CAPTURE(ranks);
        CAPTURE(src);
        CAPTURE(bytes);
        const auto equal = ike::launch(threads{ranks}, [&](ike::process_group auto& group) {
          const int mine = 100 * group.rank(), theirs = 100 * src;
          auto a = numbers<float>(5, mine);
          auto b = numbers<double>(3, mine);
          auto none = numbers<float>(0, 0);
          auto c = numbers<std::int64_t>(9, mine);
          std::uint8_t d[3]{static_cast<std::uint8_t>(group.rank()), 1, 2};
          ike::broadcast_coalesced(group, {.bytes = bytes, .src = src}, a, b.view(), none, c,
                                   std::span{d});
          const auto same = [](const auto& x, const auto& y) {
            return std::equal(x.begin(), x.end(), y.begin(), y.end());
          };
          return same(a, numbers<float>(5, theirs)) && same(b, numbers<double>(3, theirs)) &&
                 same(c, numbers<std::int64_t>(9, theirs)) && d[0] == src && d[2] == 2;
        });
        CHECK(std::count(equal.begin(), equal.end(), true) == ranks);
      }
}

TEST_CASE("the states of a model come from the source, but for what is ignored") {
  constexpr auto net =
      ike::sequential("fc1"_m = ike::linear<3, 2>{}, "norm"_m = ike::batch_norm1d<2>{},
                      "fc2"_m = ike::linear<2, 2>{});
  constexpr shape in{4, 3};
  const auto fill = [](auto& m, int rank) {
    for (float& x : m.parameters()) x = static_cast<float>(rank);
    for (std::byte& x : m.buffers()) x = static_cast<std::byte>(rank);
  };
  struct outcome {
    float fc1, fc2_weight, fc2_bias;
    std::byte running_mean, batches;
  };
  const auto all = ike::launch(threads{3}, [&](ike::process_group auto& group) {
    auto m = ike::initialize<float, in>(net, ike::seed{1});
    fill(m, group.rank());
    ike::sync_module_states(m, group, {.bytes = 40, .src = 1}, [](std::string_view path) {
      return path == "fc2.bias" || path == "norm.running_mean";
    });
    const auto& layout = m.layout();
    return outcome{m["fc1.weight"_s][5], m["fc2.weight"_s][3], m["fc2.bias"_s][1],
                   m.buffers()[static_cast<std::size_t>(layout.buffer_offsets[0])],
                   m.buffers()[static_cast<std::size_t>(layout.buffer_offsets[2]) + 7]};
  });
  for (int r = 0; r < 3; ++r) {
    const outcome& o = all[static_cast<std::size_t>(r)];
    CHECK(o.fc1 == 1);
    CHECK(o.fc2_weight == 1);
    CHECK(o.fc2_bias == static_cast<float>(r));
    CHECK(o.running_mean == static_cast<std::byte>(r));
    CHECK(o.batches == std::byte{1});
  }
}

TEST_CASE("a state that is not saved is a rank's own, whatever the policy ignores") {
  constexpr auto net =
      ike::sequential("rnn"_m = ike::rnn<3, 2, ike::stateful<1>>{}, "fc"_m = ike::linear<2, 2>{});
  const auto made = [&](int rank) {
    auto m = ike::initialize<float, shape{4, 1, 3}>(net, ike::seed{1});
    for (float& x : m.parameters()) x = static_cast<float>(rank);
    m.buffer("rnn.h"_s)[1] = static_cast<float>(rank);
    return m;
  };
  ike::launch(threads{3}, [&](ike::thread_group& group) {
    const float rank = static_cast<float>(group.rank());
    const auto check = [&](auto model, float h) {
      CHECK(model["rnn.weight_hh_l0"_s][3] == 0);
      CHECK(model.buffer("rnn.h"_s)[1] == h);
    };
    check(ike::replicate(made(group.rank()), group), rank);
    check(ike::replicate<ike::replicate_policy<ike::ignored<"fc">>>(made(group.rank()), group),
          rank);
    // An explicit sync_module_states broadcasts all buffers.
    auto m = made(group.rank());
    ike::sync_module_states(m, group);
    check(std::move(m), 0);
  });
}
