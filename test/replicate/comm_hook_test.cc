#include "ikebana/replicate/comm_hook.hpp"

#include <doctest/doctest.h>

#include <cmath>
#include <cstddef>
#include <limits>
#include <span>
#include <vector>

#include "ikebana/replicate/launch.hpp"

namespace ike = ikebana;
using ike::gradient_bucket;

namespace {

/// The gradients of rank r after a hook.
template <class Hook, class T>
std::vector<std::vector<T>> run(int ranks, const std::vector<std::vector<T>>& gradients) {
  return ike::launch(ike::threads{ranks}, [&](ike::process_group auto& group) {
    std::vector<T> g = gradients[static_cast<std::size_t>(group.rank())];
    Hook hook;
    const gradient_bucket<T> bucket{std::span<T>(g)};
    auto work = hook.start(bucket, group);
    work.wait();
    hook.finish(bucket, group);
    return g;
  });
}

struct sum_hook {
  static constexpr ike::hook_result result = ike::hook_result::sum;
  template <class T, class G>
  auto start(gradient_bucket<T> bucket, G& group) {
    return group.all_reduce_async(bucket.data, ike::reduce_op::sum);
  }
  template <class T, class G>
  void finish(gradient_bucket<T>, G&) {}
};

}  // namespace

TEST_CASE("Hooks are told apart from what is none") {
  static_assert(ike::comm_hook_for<ike::all_reduce_hook, float, ike::thread_group>);
  static_assert(ike::comm_hook_for<ike::bf16_compress, double, ike::single>);
  static_assert(ike::comm_hook_for<ike::noop_hook, float, ike::single>);
  static_assert(ike::comm_hook_for<sum_hook, float, ike::thread_group>);
  static_assert(!ike::comm_hook_for<int, float, ike::single>);
  CHECK(gradient_bucket<float>{{}, 2, 3}.is_last());
  CHECK(!gradient_bucket<float>{{}, 1, 3}.is_last());
}

TEST_CASE("all_reduce_hook averages") {
  for (const auto& g : run<ike::all_reduce_hook, float>(2, {{1, 2, -3}, {3, 4, 1}}))
    CHECK(g == std::vector<float>{2, 3, -1});
}

TEST_CASE("noop_hook leaves each rank its own") {
  const std::vector<std::vector<double>> own{{1, 2}, {3, 4}};
  CHECK(run<ike::noop_hook, double>(2, own) == own);
}

TEST_CASE("A hook of one's own may sum") {
  for (const auto& g : run<sum_hook, double>(3, {{1}, {2}, {3}})) CHECK(g[0] == 6);
}

TEST_CASE("bf16_compress rounds what each rank brings and what comes out") {
  // 1 + 2^-8 is a tie and goes to the even 1; 1 + 3 * 2^-8 goes to 1 + 2^-6.
  const float a = 1 + 0x1p-8f, b = 1 + 3 * 0x1p-8f;
  for (const auto& g : run<ike::bf16_compress, float>(2, {{a, a}, {a, b}})) {
    CHECK(g[0] == 1.0f);
    CHECK(g[1] == 1 + 0x1p-7f);
  }
  for (const auto& g : run<ike::bf16_compress, double>(2, {{a, 0.1}, {a, 0.1}})) {
    CHECK(g[0] == 1.0);
    CHECK(g[1] == 0.10009765625);
  }
}

TEST_CASE("bf16_compress keeps zeros, infinities and what is no number") {
  const float infinity = std::numeric_limits<float>::infinity();
  const float nan = std::numeric_limits<float>::quiet_NaN();
  const std::vector<float> g{-0.0f, -infinity, std::numeric_limits<float>::max(), nan, 0.5f};
  for (const auto& x : run<ike::bf16_compress, float>(2, {g, g})) {
    CHECK(x[0] == 0.0f);
    CHECK(std::signbit(x[0]));
    CHECK(x[1] == -infinity);
    CHECK(x[2] == infinity);
    CHECK(std::isnan(x[3]));
    CHECK(x[4] == 0.5f);
  }
}
