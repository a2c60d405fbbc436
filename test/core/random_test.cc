#include "ikebana/core/random.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <set>
#include <vector>

namespace ike = ikebana;
using ike::dim_t;
using ike::philox4x32;
using ike::random_stream;
using ike::seed;

// The known answers of the paper's library, Random123 (kat_vectors, philox4x32 10).
static_assert(philox4x32::generate({0, 0, 0, 0}, {0, 0}) ==
              philox4x32::counter_type{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8});
static_assert(philox4x32::generate({~0u, ~0u, ~0u, ~0u}, {~0u, ~0u}) ==
              philox4x32::counter_type{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd});
static_assert(philox4x32::generate({0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344},
                                   {0xa4093822, 0x299f31d0}) ==
              philox4x32::counter_type{0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1});

// FNV-1a's own test vectors.
static_assert(ike::hash_path("") == 0xcbf29ce484222325u);
static_assert(ike::hash_path("a") == 0xaf63dc4c8601ec8cu);
static_assert(ike::hash_path("foobar") == 0x85944171f73967e8u);
static_assert(ike::hash_path("bar", ike::hash_path("foo")) == ike::hash_path("foobar"));

static_assert(ike::signed_unit(0u) == -1.0f && ike::signed_unit(0x80000000u) == 0.0f);
static_assert(ike::signed_unit(~0u) < 1.0f && ike::signed_unit(~0u, ~0u) < 1.0);
static_assert(ike::signed_unit(0u, 0u) == -1.0 && ike::signed_unit(0u, 0x80000000u) == 0.0);

namespace {
constexpr random_stream stream{seed{0x123456789abcdef0u}, ike::hash_path("fc1.weight"), 3};
}

TEST_CASE_TEMPLATE("an element depends on the stream and its index alone", T, float, double) {
  std::vector<T> whole(1003);
  ike::fill_uniform(stream, T{1}, whole.data(), 1003);
  for (dim_t n : {0, 1, 2, 3, 4, 5, 7, 64, 1001}) {
    std::vector<T> part(static_cast<std::size_t>(n) + 1, T{9});
    ike::fill_uniform(stream, T{1}, part.data(), n);
    CHECK(std::equal(part.begin(), part.end() - 1, whole.begin()));
    CHECK(part.back() == 9);
  }
  for (T x : whole) {
    CHECK(x >= -1);
    CHECK(x < 1);
  }
}

TEST_CASE("seed, path, step and stream each give other numbers") {
  const auto first = [](const random_stream& s) { return s.words(0); };
  const std::set<philox4x32::counter_type> all{
      first(stream),
      first({seed{0x123456789abcdef1u}, ike::hash_path("fc1.weight"), 3}),
      first({seed{0x023456789abcdef0u}, ike::hash_path("fc1.weight"), 3}),
      first({seed{0x123456789abcdef0u}, ike::hash_path("fc1.bias"), 3}),
      first({seed{0x123456789abcdef0u}, ike::hash_path("fc1.weight"), 4}),
      first({seed{0x123456789abcdef0u}, ike::hash_path("fc1.weight"), 3, 1}),
      first({seed{0x123456789abcdef0u}, ike::hash_path("fc1.weight"), 3, 2}),
      stream.words(1)};
  CHECK(all.size() == 8);
}

TEST_CASE("uniform numbers have the mean, deviation and bound of theirs") {
  constexpr dim_t n = 40000;
  std::vector<double> x(n);
  ike::fill_uniform(stream, 2.0, x.data(), n);
  double sum = 0, squares = 0;
  for (double v : x) {
    sum += v;
    squares += v * v;
  }
  CHECK(std::fabs(sum / n) < 6 * 2 / std::sqrt(3.0 * n));
  CHECK(std::sqrt(squares / n) == doctest::Approx(2 / std::sqrt(3.0)).epsilon(0.01));
}

TEST_CASE("a shuffle is a permutation, another for another epoch, and even") {
  for (dim_t n : {0, 1, 2, 3, 10, 1000}) {
    std::vector<dim_t> order(static_cast<std::size_t>(n));
    ike::shuffle(stream, order.data(), n);
    std::vector<dim_t> sorted = order;
    std::sort(sorted.begin(), sorted.end());
    for (dim_t i = 0; i < n; ++i) CHECK(sorted[static_cast<std::size_t>(i)] == i);
  }
  std::vector<dim_t> a(100), b(100);
  ike::shuffle(random_stream{seed{1}, 1, 0}, a.data(), 100);
  ike::shuffle(random_stream{seed{1}, 1, 1}, b.data(), 100);
  CHECK(a != b);
  // Each of the six orders of three elements occurs 1000 times, within chance.
  int counts[27]{};
  for (std::uint32_t epoch = 0; epoch < 6000; ++epoch) {
    dim_t o[3];
    ike::shuffle(random_stream{seed{1}, 1, epoch}, o, 3);
    ++counts[9 * o[0] + 3 * o[1] + o[2]];
  }
  int orders = 0;
  for (int c : counts) {
    if (c == 0) continue;
    ++orders;
    CHECK(c > 820);
    CHECK(c < 1180);
  }
  CHECK(orders == 6);
}
