// A server in one process: four threads, one for each connection, send requests of single images;
// workers answer them in batches. Prints the throughput and the percentiles of the latency.

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <thread>
#include <vector>

#include "ikebana/deploy.hpp"
#include "ikebana/ikebana.hpp"
#include "ikebana/serve.hpp"

namespace ike = ikebana;
using namespace ike::literals;
using ike::shape;
using std::chrono::steady_clock;

constexpr auto classifier = ike::sequential("fc1"_m = ike::lazy_linear<256>{}, ike::relu{},
                                            "fc2"_m = ike::lazy_linear<256>{}, ike::relu{},
                                            "fc3"_m = ike::lazy_linear<10>{});
constexpr shape image{784}, scores{10};
constexpr std::size_t connections = 4;

int main(int argc, char** argv) {
  const int requests = argc > 1 ? std::atoi(argv[1]) : 500;  // Of each connection.
  const auto model = ike::initialize<float, shape{ike::dynamic, 784}>(classifier, ike::seed{1});
  const auto net = ike::freeze(model);

  // What is read from the connections, and the right answers.
  const auto images = ike::uniform<float, shape{connections, 784}>(ike::seed{2});
  auto lane = net.lane(shape{1, 784});
  std::vector<ike::tensor<float, scores>> expected(connections);
  for (std::size_t c = 0; c < connections; ++c) {
    const auto y = net(lane, ike::tensor_view<const float, shape{1, 784}>(images.data() + 784 * c));
    std::copy(y.begin(), y.end(), expected[c].begin());
  }

  ike::dynamic_batcher server{net, {.max_batch_size = 4, .workers = 2}};

  std::vector<double> latencies(connections * static_cast<std::size_t>(requests));
  std::atomic<int> wrong = 0;
  const auto begin = steady_clock::now();
  std::vector<std::thread> threads;
  for (std::size_t c = 0; c < connections; ++c)
    threads.emplace_back([&, c,
                          latency = latencies.begin() + static_cast<long>(c) * requests]() mutable {
      const ike::tensor_view<const float, image> x(images.data() + 784 * c);
      ike::tensor<float, scores> y;
      for (int r = 0; r < requests; ++r) {
        const auto sent = steady_clock::now();
        server.answer(y, x);  // Blocks; allocates nothing.
        *latency++ = std::chrono::duration<double, std::micro>(steady_clock::now() - sent).count();
        wrong += !std::equal(y.begin(), y.end(), expected[c].begin());
      }
    });
  for (std::thread& t : threads) t.join();
  const std::chrono::duration<double> took = steady_clock::now() - begin;

  // Any thread may also ask for the answer later.
  const ike::tensor_view<const float, image> x(images.data());
  auto later = server.submit(x);
  const ike::tensor<float, scores> y = later.get();
  wrong += !std::equal(y.begin(), y.end(), expected[0].begin());

  std::sort(latencies.begin(), latencies.end());
  const auto percentile = [&](double p) {
    return latencies[static_cast<std::size_t>(p / 100 * static_cast<double>(latencies.size() - 1))];
  };
  const auto counts = server.counts();
  std::printf("%.0f requests/s in batches of %.1f on average\n",
              static_cast<double>(latencies.size()) / took.count(),
              static_cast<double>(counts.requests) / static_cast<double>(counts.batches));
  std::printf("latency in us: p50 %.0f, p99 %.0f, p99.9 %.0f, max %.0f\n", percentile(50),
              percentile(99), percentile(99.9), latencies.back());
  std::printf("%d answers differ from those of the network alone\n", wrong.load());
  return wrong == 0 ? 0 : 1;
}
