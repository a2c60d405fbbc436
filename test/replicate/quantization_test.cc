#include "ikebana/replicate/quantization.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <string>
#include <vector>

#include "hook_run.hpp"
#include "ikebana/core/random.hpp"
#include "ikebana/replicate/launch.hpp"
#include "test/support/count_allocations.hpp"
#include "test/support/load_recorded.hpp"

namespace ike = ikebana;
using hook_run::one_bucket;
using ike::affine_quantizer;
using ike::shape;

namespace {

template <class T>
affine_quantizer covering(const std::vector<T>& x) {
  return affine_quantizer::covering(std::span<const T>{x});
}

/// The result of the hook, the same on all ranks.
template <class Hook, class T>
std::vector<T> run(const std::vector<std::vector<T>>& gradients) {
  const auto n = static_cast<ike::dim_t>(gradients[0].size());
  const auto all = ike::launch(
      ike::threads{static_cast<int>(gradients.size())}, [&](ike::process_group auto& group) {
        one_bucket<T, Hook, std::remove_reference_t<decltype(group)>> one(
            hook_run::parameters({{"w", shape{n}}}), Hook{}, group);
        std::vector<T> out;
        for (int step = 0; step < 2; ++step) {
          one.gradients = gradients[static_cast<std::size_t>(group.rank())];
          one.step();
        }
        return one.gradients;
      });
  for (const auto& other : all)
    CHECK(std::equal(other.begin(), other.end(), all[0].begin(),
                     [](T a, T b) { return a == b || (a != a && b != b); }));
  return all[0];
}

}  // namespace

TEST_CASE("The map covers 0 and all elements") {
  const auto q = covering<float>({-1, 0.5f, 4.1f});
  CHECK(q.scale == doctest::Approx(5.1 / 255));
  CHECK(q.zero_point == 50);
  CHECK(q.quantize(0.0f) == 50);
  CHECK(q.dequantize<float>(50) == 0);
  CHECK(q.quantize(-1.0f) == 0);
  CHECK(q.quantize(4.1f) == 255);
  CHECK(covering<double>({2, 3}).zero_point == 0);
  CHECK(covering<double>({-2, -3}).zero_point == 255);
  CHECK(covering<float>({0, 0}).scale == 1);
  CHECK(covering<float>({}).quantize(0.0f) == 0);
}

TEST_CASE("An element is off by at most half a step") {
  std::vector<float> x(1000);
  ike::fill_uniform(ike::random_stream{ike::seed{3}, 0}, 2.5f, x.data(), 1000);
  const auto q = covering(x);
  for (const float v : x)
    CHECK(std::fabs(q.dequantize<float>(q.quantize(v)) - v) <= 0.5001f * q.scale);
}

TEST_CASE("Small gradients keep their digits") {
  const std::vector<float> x{1e-9f, -2e-9f, 3e-9f};
  const auto q = covering(x);
  for (const float v : x)
    CHECK(q.dequantize<float>(q.quantize(v)) == doctest::Approx(v).epsilon(0.02));
}

TEST_CASE("PyTorch's quantisation on two ranks gives the same") {
  const ike::state_dict all = load_recorded("comm_hooks");
  std::vector<std::vector<float>> gradients;
  for (const char* rank : {"0", "1"}) {
    const auto g = all.at("quantized/" + std::string(rank)).view<float, shape{300}>();
    gradients.emplace_back(g.data(), g.data() + 300);
  }
  const auto check = [&](const std::vector<float>& got, const char* name) {
    const auto wanted = all.at(name).view<float, shape{300}>();
    for (ike::dim_t i = 0; i < 300; ++i) CHECK(got[static_cast<std::size_t>(i)] == wanted[i]);
  };
  check(run<ike::quantize_8bit>(gradients), "quantized/per_tensor");
  check(run<ike::quantize_8bit_per_channel<64>>(gradients), "quantized/per_channel");
}

TEST_CASE("Values that 8 bits hold come through exactly, on any number of ranks") {
  for (std::size_t ranks : {1u, 2u, 3u, 4u}) {
    std::vector<std::vector<double>> gradients;
    for (std::size_t r = 0; r < ranks; ++r) gradients.push_back({-5, 250, 0, 17});
    CHECK(run<ike::quantize_8bit>(gradients) == gradients[0]);
    CHECK(run<ike::quantize_8bit_per_channel<>>(gradients) == gradients[0]);
    CHECK(run<ike::quantize_8bit_per_channel<3>>(gradients)[3] == doctest::Approx(17));
  }
}

TEST_CASE("A channel of its own keeps small gradients beside large ones") {
  const std::vector<std::vector<float>> gradients{{100, -100, 0.01f, -0.02f}};
  CHECK(run<ike::quantize_8bit>(gradients)[3] == 0);
  CHECK(run<ike::quantize_8bit_per_channel<2>>(gradients)[3] ==
        doctest::Approx(-0.02).epsilon(0.01));
}

TEST_CASE("What is not finite is not-a-number on every rank, in its channel alone") {
  const float infinity = std::numeric_limits<float>::infinity();
  const float nan = std::numeric_limits<float>::quiet_NaN();
  for (const float bad : {infinity, -infinity, nan}) {
    const auto g = run<ike::quantize_8bit_per_channel<2>, float>({{1, 2, 3, 4}, {1, bad, 3, 4}});
    CHECK(std::isnan(g[0]));
    CHECK(std::isnan(g[1]));
    CHECK(g[2] == doctest::Approx(3).epsilon(0.01));
    CHECK(g[3] == doctest::Approx(4));
  }
}

TEST_CASE("Steps allocate nothing") {
  ike::launch(ike::threads{3}, [](ike::process_group auto& group) {
    one_bucket<float, ike::quantize_8bit, std::remove_reference_t<decltype(group)>> one(
        hook_run::parameters({{"w", shape{1000}}}), {}, group);
    const long before = allocation_count_here;
    for (int s = 0; s < 3; ++s) one.step();
    CHECK(allocation_count_here == before);
  });
}
