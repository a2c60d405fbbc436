#include "ikebana/replicate/comm_hook.hpp"

#include <doctest/doctest.h>

#include <bit>
#include <chrono>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include "hook_run.hpp"
#include "ikebana/core/random.hpp"
#include "ikebana/replicate/compress.hpp"
#include "ikebana/replicate/launch.hpp"
#include "ikebana/replicate/model_averager.hpp"
#include "ikebana/replicate/post_local_sgd.hpp"
#include "ikebana/replicate/powersgd.hpp"
#include "ikebana/replicate/quantization.hpp"

namespace ike = ikebana;
using ike::gradient_bucket;

namespace {

constexpr float to_fp16(float x) { return ike::float16(x); }

/// The gradients of rank r after a hook.
template <class Hook, class T>
std::vector<std::vector<T>> run(int ranks, const std::vector<std::vector<T>>& gradients) {
  return ike::launch(ike::threads{ranks}, [&](ike::process_group auto& group) {
    std::vector<T> g = gradients[static_cast<std::size_t>(group.rank())];
    Hook hook;
    const gradient_bucket<T> bucket{std::span<T>(g)};
    ike::prepare_hook(hook, std::span<const gradient_bucket<T>>{&bucket, 1}, group);
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
  static_assert(ike::comm_hook_for<ike::powersgd, double, ike::thread_group>);
  static_assert(ike::comm_hook_for<ike::quantize_8bit, float, ike::thread_group>);
  static_assert(ike::comm_hook_for<ike::post_local_sgd<>, float, ike::single>);
  static_assert(
      ike::comm_hook_for<ike::post_local_sgd<ike::thread_group>, float, ike::thread_group>);
  static_assert(ike::comm_hook_for<ike::fp16_compress_wrapper<ike::powersgd>, float, ike::single>);
  static_assert(ike::hook_stages<ike::all_reduce_hook> == 1);
  static_assert(ike::hook_stages<ike::powersgd> == 2);
  static_assert(ike::hook_stages<ike::bf16_compress_wrapper<ike::powersgd>> == 2);
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

TEST_CASE("A bucket gives the gradients of its parameters, by index and by path") {
  std::vector<double> flat{1, 2, 3, 4, 5, 6, 0, 7};
  const std::vector<ike::bucket_parameter> parameters{{ike::path_text("fc2.weight"), {2, 3}, 10},
                                                      {ike::path_text("fc2.bias"), {1}, 17}};
  const gradient_bucket<double> b{std::span{flat}, 1, 2, parameters, 10};
  CHECK(b.gradient(0).size() == 6);
  CHECK(b.gradient(1)[0] == 7);
  CHECK(b.gradient("fc2.bias").data() == flat.data() + 7);
  CHECK(b.gradient("fc1.bias").empty());
  b.gradient("fc2.weight")[5] = 9;
  CHECK(flat[5] == 9);
}

TEST_CASE("A float rounds to half precision as IEEE 754 says") {
  const auto same = [](float x) { CHECK(to_fp16(x) == x); };
  for (float x : {0.0f, 1.0f, -2.5f, 65504.0f, 0x1p-14f, 0x1p-24f, -0x1.8p-23f, 0x1.ff8p-15f})
    same(x);
  CHECK(to_fp16(1 + 0x1p-11f) == 1);                // a tie, to even
  CHECK(to_fp16(1 + 0x3p-11f) == 1 + 0x1p-9f);      // a tie, to even
  CHECK(to_fp16(1 + 0x1.01p-11f) == 1 + 0x1p-10f);  // above
  CHECK(to_fp16(0x1p-25f) == 0);                    // a tie, to even
  CHECK(to_fp16(0x1.8p-25f) == 0x1p-24f);           // subnormal
  CHECK(to_fp16(0x1.ffep-15f) == 0x1p-14f);         // up to the normal ones
  CHECK(std::signbit(to_fp16(-0x1p-30f)));
  CHECK(to_fp16(65519.996f) == 65504);
  CHECK(to_fp16(65520.0f) == std::numeric_limits<float>::infinity());
  CHECK(to_fp16(-1e30f) == -std::numeric_limits<float>::infinity());
  CHECK(to_fp16(-std::numeric_limits<float>::infinity()) ==
        -std::numeric_limits<float>::infinity());
  CHECK(std::isnan(to_fp16(std::numeric_limits<float>::quiet_NaN())));
  static_assert(to_fp16(1.0002f) == 1.0f);
}

#if defined(__FLT16_MANT_DIG__) && !defined(__clang__)
TEST_CASE("As the compiler's own half precision, for a sample of all floats") {
  for (std::uint64_t bits = 0; bits < 0x7F800000u; bits += 9973) {
    const float x = std::bit_cast<float>(static_cast<std::uint32_t>(bits));
    if (to_fp16(x) != static_cast<float>(static_cast<_Float16>(x))) FAIL(x);
  }
}
#endif

TEST_CASE("fp16_compress rounds what each rank brings and what comes out") {
  const float a = 1 + 0x1p-11f, b = 1 + 0x3p-11f;
  for (const auto& g : run<ike::fp16_compress, float>(2, {{a, a, 1e6f}, {a, b, 1}})) {
    CHECK(g[0] == 1.0f);
    CHECK(g[1] == 1 + 0x1p-10f);
    CHECK(std::isinf(g[2]));
  }
  for (const auto& g : run<ike::fp16_compress, double>(2, {{0.1}, {0.1}}))
    CHECK(g[0] == 0.0999755859375);
}

namespace {

/// One bucket of two numbers on each of `ranks`, through some steps of the hook that `make(group)`
/// returns; the result of rank r after each.
template <class Make>
auto steps(int ranks, int count, Make make) {
  return ike::launch(ike::threads{ranks}, [&](ike::process_group auto& group) {
    std::vector<std::vector<double>> out;
    make(group, [&](auto hook) {
      hook_run::one_bucket<double, decltype(hook), std::remove_reference_t<decltype(group)>> one(
          hook_run::parameters({{"w", ike::shape{2}}}), std::move(hook), group);
      for (int s = 0; s < count; ++s) {
        one.gradients = {static_cast<double>(group.rank()), static_cast<double>(s)};
        one.step();
        out.push_back(one.gradients);
      }
    });
    return out;
  });
}

}  // namespace

TEST_CASE("post_local_sgd averages over all, then over nobody") {
  const auto all = steps(3, 4, [](auto&, auto with) { with(ike::post_local_sgd{2}); });
  for (std::size_t r = 0; r < 3; ++r)
    for (std::size_t s = 0; s < 4; ++s)
      CHECK(all[r][s] ==
            std::vector<double>{s < 2 ? 1.0 : static_cast<double>(r), static_cast<double>(s)});
}

TEST_CASE("post_local_sgd averages over all, then over the sub-group") {
  ike::thread_world first(2, std::chrono::seconds(60)), second(2, std::chrono::seconds(60));
  const auto all = steps(4, 4, [&](ike::thread_group& group, auto with) {
    ike::thread_group pair(group.rank() < 2 ? first : second, group.rank() % 2);
    with(ike::post_local_sgd{2, pair});
    pair.leave();
  });
  for (std::size_t r = 0; r < 4; ++r)
    for (std::size_t s = 0; s < 4; ++s) CHECK(all[r][s][0] == (s < 2 ? 1.5 : r < 2 ? 0.5 : 2.5));
  CHECK_THROWS_AS(ike::post_local_sgd{-1}, ike::error);
}

TEST_CASE("model_averager averages now and then") {
  ike::launch(ike::threads{4}, [](ike::process_group auto& group) {
    struct {
      std::vector<double> values;
      std::span<double> parameters() { return values; }
    } model;
    ike::model_averager averager{group, {.period = 3, .warmup_steps = 2}};
    for (int s = 0; s < 9; ++s) {
      model.values = {static_cast<double>(group.rank()), 1};
      const bool due = s == 2 || s == 5 || s == 8;
      CHECK(averager.average(model) == due);
      CHECK(model.values == std::vector<double>{due ? 1.5 : group.rank(), 1});
    }
    CHECK(averager.step() == 9);
    using averager_type = decltype(averager);
    CHECK_THROWS_AS((averager_type{group, {.period = 0}}), ike::error);
    CHECK_THROWS_AS((averager_type{group, {.warmup_steps = -1}}), ike::error);
  });
}

namespace {

/// Numbers that neither half-precision type represents exactly.
std::vector<float> inexact(int rank, int step, std::size_t n) {
  std::vector<float> out(n);
  const auto key = static_cast<std::uint64_t>(10 * step + rank);
  ike::fill_uniform(ike::random_stream{ike::seed{key}, 1}, 1.0f, out.data(),
                    static_cast<ike::dim_t>(n));
  return out;
}

template <class Half>
void round_all(std::vector<float>& x) {
  for (float& v : x) v = static_cast<float>(Half(v));
}

/// The gradients of each of 3 ranks after some steps of a hook on one bucket, with `change` applied
/// before and after each step.
template <class Hook, class Change>
auto through(const std::vector<std::pair<std::string_view, ike::shape>>& of, Change change) {
  return ike::launch(ike::threads{3}, [&](ike::process_group auto& group) {
    hook_run::one_bucket<float, Hook, std::remove_reference_t<decltype(group)>> one(
        hook_run::parameters(of), Hook{}, group);
    std::vector<std::vector<float>> out;
    for (int s = 0; s < 3; ++s) {
      one.gradients = inexact(group.rank(), s, one.gradients.size());
      change(one.gradients);
      one.step();
      change(one.gradients);
      out.push_back(one.gradients);
    }
    return out;
  });
}

template <class Half>
void check_wrappers() {
  using ike::compress_wrapper;
  const std::vector<std::pair<std::string_view, ike::shape>> of{{"w", ike::shape{12, 9}},
                                                                {"b", ike::shape{9}}};
  const auto keep = [](std::vector<float>&) {};
  const auto rounded = [](std::vector<float>& x) { round_all<Half>(x); };
  const auto same = [&]<class Hook>(std::type_identity<Hook>) {
    const auto wrapped = through<compress_wrapper<Half, Hook>>(of, keep);
    CHECK(wrapped == through<Hook>(of, rounded));
    CHECK(wrapped != through<Hook>(of, keep));
  };
  same(std::type_identity<sum_hook>{});
  same(std::type_identity<ike::all_reduce_hook>{});
  same(std::type_identity<ike::powersgd>{});
  // The second stage of powersgd replaces the matrix by one of rank 1, and does not change the
  // vector.
  const auto low = through<compress_wrapper<Half, ike::powersgd>>(of, keep);
  const auto full = through<ike::all_reduce_hook>(of, rounded);
  CHECK(low[0][0][0] != full[0][0][0]);
  for (std::size_t i = 12 * 9; i < 12 * 9 + 9; ++i) CHECK(low[0][0][i] == full[0][0][i]);
}

}  // namespace

TEST_CASE("A wrapper rounds before and after its hook, and hands all stages to it") {
  check_wrappers<ike::bfloat16>();
  check_wrappers<ike::float16>();
  static_assert(std::is_same_v<ike::bf16_compress_wrapper<sum_hook>,
                               ike::compress_wrapper<ike::bfloat16, sum_hook>>);
  static_assert(std::is_same_v<ike::fp16_compress_wrapper<sum_hook>,
                               ike::compress_wrapper<ike::float16, sum_hook>>);
}
