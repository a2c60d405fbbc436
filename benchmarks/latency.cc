// The latency of single samples under the load of 1, 2 and 4 threads: each with a lane of its own,
// and as clients of a dynamic_batcher. Prints a table of percentiles.
//
//     tools/bazel run //benchmarks:latency -- [--calls 20000]

#include <CLI/CLI.hpp>
#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdio>
#include <latch>
#include <string>
#include <thread>
#include <vector>

#include "benchmarks/lenet.hpp"
#include "ikebana/deploy.hpp"
#include "ikebana/ikebana.hpp"
#include "ikebana/serve.hpp"

namespace {

namespace ike = ikebana;
using namespace ike::literals;
using ike::shape;
using std::chrono::steady_clock;

constexpr auto mlp = ike::sequential("fc1"_m = ike::lazy_linear<128>{}, ike::relu{},
                                     "fc2"_m = ike::lazy_linear<64>{}, ike::relu{},
                                     "fc3"_m = ike::lazy_linear<10>{});
constexpr auto lstm = ike::sequential("lstm"_m = ike::lstm<1, 16, ike::stateful<1>>{},
                                      "dense"_m = ike::linear<16, 1>{});

/// Runs `client(t)`, which returns what thread t calls again and again, on several threads.
void measure(const std::string& name, std::size_t threads, std::size_t calls, auto client) {
  std::vector<double> all(threads * calls);
  std::vector<steady_clock::time_point> begins(threads), ends(threads);
  std::latch start(static_cast<std::ptrdiff_t>(threads));
  std::vector<std::thread> running;
  for (std::size_t t = 0; t < threads; ++t)
    running.emplace_back([&, t, latency = all.data() + t * calls] {
      ike::prepare_thread();
      auto call = client(t);
      for (std::size_t i = 0; i < calls / 10; ++i) call();
      start.arrive_and_wait();
      begins[t] = steady_clock::now();
      for (std::size_t i = 0; i < calls; ++i) {
        const auto begin = steady_clock::now();
        call();
        latency[i] = std::chrono::duration<double, std::micro>(steady_clock::now() - begin).count();
      }
      ends[t] = steady_clock::now();
    });
  for (std::thread& t : running) t.join();
  const std::chrono::duration<double> took =
      *std::max_element(ends.begin(), ends.end()) - *std::min_element(begins.begin(), begins.end());
  std::sort(all.begin(), all.end());
  const auto percentile = [&](double p) {
    return all[static_cast<std::size_t>(p / 100 * static_cast<double>(all.size() - 1))];
  };
  std::printf("| %s | %zu | %.2f | %.2f | %.2f | %.0f | %.0f |\n", name.c_str(), threads,
              percentile(50), percentile(99), percentile(99.9), all.back(),
              static_cast<double>(all.size()) / took.count());
  std::fflush(stdout);
}

template <shape Sample>
constexpr shape batched(ike::dim_t batch) {
  shape s{batch};
  for (ike::dim_t d : Sample) s.push_back(d);
  return s;
}

template <shape In>
void with_lanes(const std::string& name, const auto& module, std::size_t calls) {
  const auto net = ike::freeze(ike::initialize<float, In>(module, ike::seed{1}));
  const auto x = ike::uniform<float, In>(ike::seed{2});
  for (const std::size_t threads : {1, 2, 4})
    measure(name + ", lanes", threads, calls,
            [&](std::size_t) { return [&net, &x, lane = net.lane()]() mutable { net(lane, x); }; });
}

template <shape Sample>
void with_batcher(const std::string& name, const auto& module, std::size_t calls) {
  const auto net =
      ike::freeze(ike::initialize<float, batched<Sample>(ike::dynamic)>(module, ike::seed{1}));
  const auto x = ike::uniform<float, Sample>(ike::seed{2});
  ike::dynamic_batcher server{net, {.max_batch_size = 4, .workers = 1}};
  for (const std::size_t threads : {1, 2, 4})
    measure(name + ", dynamic_batcher", threads, calls, [&](std::size_t) {
      return [&, y = ike::tensor<float, shape{10}>{}]() mutable { server.answer(y, x); };
    });
}

}  // namespace

int main(int argc, char** argv) {
  CLI::App options{"latency"};
  std::size_t calls = 20'000;
  options.add_option("--calls", calls, "of each thread")->capture_default_str();
  CLI11_PARSE(options, argc, argv);
  std::printf("%u processors; us\n\n", std::thread::hardware_concurrency());
  std::printf(
      "| network | threads | p50 | p99 | p99.9 | max | calls/s |\n|---|---|---|---|---|---|---|\n");
  with_lanes<shape{1, 1, 1}>("LSTM 16 + dense", lstm, calls);
  with_lanes<shape{1, 784}>("MLP 784-128-64-10", mlp, calls);
  with_lanes<shape{1, 1, 28, 28}>("LeNet", bench::small_lenet, calls);
  with_batcher<shape{784}>("MLP 784-128-64-10", mlp, calls);
  with_batcher<shape{1, 28, 28}>("LeNet", bench::small_lenet, calls);
  return 0;
}
