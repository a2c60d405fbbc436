// Networks with weights of 8 and 16 bits beside the same network in float, by turns in one process:
// time of a call divided by that in float, the median of the rounds. Prints a table.
//
//     tools/bazel run //benchmarks:quantised -- [--rounds 200]

#include <CLI/CLI.hpp>
#include <algorithm>
#include <array>
#include <chrono>
#include <cstddef>
#include <cstdio>
#include <string>
#include <vector>

#include "benchmarks/lenet.hpp"
#include "ikebana/deploy.hpp"
#include "ikebana/deploy/quantize.hpp"
#include "ikebana/ikebana.hpp"

namespace {

namespace ike = ikebana;
using namespace ike::literals;
using ike::shape;
using std::chrono::steady_clock;

constexpr auto mlp = ike::sequential("fc1"_m = ike::lazy_linear<512>{}, ike::relu{},
                                     "fc2"_m = ike::lazy_linear<512>{}, ike::relu{},
                                     "fc3"_m = ike::lazy_linear<10>{});

double median(std::vector<double>& x) {
  const auto middle = x.begin() + static_cast<std::ptrdiff_t>(x.size() / 2);
  std::nth_element(x.begin(), middle, x.end());
  return *middle;
}

/// The microseconds of a call: the least of a few turns of about 200 us.
double time_of(auto&& call, std::size_t count) {
  double least = 1e30;
  for (int turn = 0; turn < 3; ++turn) {
    const auto begin = steady_clock::now();
    for (std::size_t i = 0; i < count; ++i) call();
    const std::chrono::duration<double, std::micro> took = steady_clock::now() - begin;
    least = std::min(least, took.count() / static_cast<double>(count));
  }
  return least;
}

template <shape In>
void measure(const char* name, const auto& module, std::size_t rounds) {
  const auto model = ike::initialize<float, In>(module, ike::seed{1});
  const auto x = ike::uniform<float, In>(ike::seed{2});
  const auto whole = ike::freeze(model);
  const auto bytes = ike::quantize<ike::int8>(model, std::array{x});
  const auto bf16 = ike::quantize<ike::bfloat16>(model);
  const auto fp16 = ike::quantize<ike::float16>(model);
  ike::prepare_thread(bytes);
  const auto caller = [&x](const auto& net) {
    return [&net, &x, lane = net.lane()]() mutable { net(lane, x); };
  };
  auto in_float = caller(whole);
  auto in_bytes = caller(bytes);
  auto in_bf16 = caller(bf16);
  auto in_fp16 = caller(fp16);
  in_float();
  const auto count =
      std::max<std::size_t>(static_cast<std::size_t>(200 / time_of(in_float, 20)), 1);
  std::vector<double> us;
  std::array<std::vector<double>, 3> ratios;
  for (std::size_t round = 0; round < rounds; ++round) {
    const double base = time_of(in_float, count);
    us.push_back(base);
    ratios[0].push_back(time_of(in_bytes, count) / base);
    ratios[1].push_back(time_of(in_bf16, count) / base);
    ratios[2].push_back(time_of(in_fp16, count) / base);
  }
  std::printf("| %s | %lld | %.1f | %.2f | %.2f | %.2f |\n", name, static_cast<long long>(In[0]),
              median(us), median(ratios[0]), median(ratios[1]), median(ratios[2]));
  std::fflush(stdout);
}

}  // namespace

int main(int argc, char** argv) {
  CLI::App options{"quantised"};
  std::size_t rounds = 200;
  options.add_option("--rounds", rounds, "of each network")->capture_default_str();
  CLI11_PARSE(options, argc, argv);
  std::printf(
      "| network | batch | float, us | int8 | bfloat16 | float16 |\n|---|---|---|---|---|---|\n");
  measure<shape{1, 784}>("MLP 784-512-512-10", mlp, rounds);
  measure<shape{32, 784}>("MLP 784-512-512-10", mlp, rounds);
  measure<shape{1, 1, 28, 28}>("LeNet", bench::small_lenet, rounds);
  measure<shape{32, 1, 28, 28}>("LeNet", bench::small_lenet, rounds);
  return 0;
}
