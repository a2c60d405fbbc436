// Trains a small network, freezes it, and calls it from four threads and from memory of the
// program's own.

#include <array>
#include <cstddef>
#include <cstdio>
#include <cstring>
#include <span>
#include <thread>
#include <vector>

#include "ikebana/deploy.hpp"
#include "ikebana/deploy/quantize.hpp"
#include "ikebana/ikebana.hpp"

namespace ike = ikebana;
using namespace ike::literals;
using ike::shape;

constexpr auto net =
    ike::sequential("fc1"_m = ike::lazy_linear<32>{}, "bn1"_m = ike::lazy_batch_norm1d<>{},
                    ike::relu{}, ike::dropout{.p = 0.1}, "fc2"_m = ike::lazy_linear<1>{});

int main() {
  // y = x0 * x1, learned from random points.
  auto model = ike::initialize<float, shape{ike::dynamic, 2}>(net, ike::seed{1});
  auto optimizer = ike::adam{model, {.lr = 1e-2}};
  for (unsigned step = 0; step < 500; ++step) {
    auto x = ike::uniform<float, shape{64, 2}>(ike::seed{step});
    ike::tensor<float, shape{64, 1}> y{};
    for (ike::dim_t i = 0; i < 64; ++i) y(i, 0) = x(i, 0) * x(i, 1);
    model.train_step(x, y, ike::mse_loss{}, optimizer);
  }

  const auto frozen = ike::freeze(model);  // Another type: no gradients, const, shared by threads.
  auto lane = frozen.lane(shape{1, 2});    // What one thread needs, for inputs of up to one row.
  const auto x = ike::uniform<float, shape{1, 2}>(ike::seed{1000});
  const auto y = frozen(lane, x);  // A view of the lane's memory, valid until its next call.
  std::printf("%.3f * %.3f is about %.3f\n", x(0, 0), x(0, 1), y(0, 0));
  std::printf("workspace: %lld bytes, in training %lld\n",
              static_cast<long long>(lane.workspace_bytes()),
              static_cast<long long>(model.workspace_bytes()));

  std::vector<std::thread> threads;
  std::vector<int> wrong(4, 0);
  for (int& count : wrong)
    threads.emplace_back([&] {
      ike::prepare_thread();
      auto own = frozen.lane(shape{1, 2});
      for (int call = 0; call < 1000; ++call) count += frozen(own, x)(0, 0) != y(0, 0);
    });
  for (std::thread& t : threads) t.join();

  // A lane in memory of the program's own: nothing is allocated.
  std::vector<std::byte> memory(frozen.lane_bytes(shape{1, 2}));
  auto placed = frozen.lane(std::span(memory), shape{1, 2});
  wrong.push_back(frozen(placed, x)(0, 0) != y(0, 0));

  // Weights of one byte each; what the layers read is rounded to bytes of the ranges seen here.
  const std::array batches{ike::uniform<float, shape{64, 2}>(ike::seed{2000})};
  const auto bytes = ike::quantize<ike::int8>(model, batches);
  auto lane_of_bytes = bytes.lane(shape{1, 2});
  std::printf("with weights of 8 bits %.3f\n", bytes(lane_of_bytes, x)(0, 0));

  int all = 0;
  for (int count : wrong) all += count;
  std::printf("%d of 4001 other results differ\n", all);
  return all == 0 ? 0 : 1;
}
