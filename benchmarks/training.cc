// A training step and an inference of the networks that the documentation quotes, on one thread.

#include <benchmark/benchmark.h>

#include "ikebana/ikebana.hpp"

namespace ike = ikebana;
using namespace ike::literals;

namespace {

constexpr auto mlp = ike::sequential("fc1"_m = ike::lazy_linear<128>{}, ike::relu{},
                                     "fc2"_m = ike::lazy_linear<64>{}, ike::relu{},
                                     "fc3"_m = ike::lazy_linear<10>{});

constexpr auto lenet = ike::sequential(
    "conv1"_m = ike::lazy_conv2d<6, ike::kernel<5>, ike::padding<2>>{}, ike::relu{},
    ike::max_pool2d<ike::kernel<2>>{}, "conv2"_m = ike::lazy_conv2d<16, ike::kernel<5>>{},
    ike::relu{}, ike::max_pool2d<ike::kernel<2>>{}, ike::flatten{},
    "fc1"_m = ike::lazy_linear<120>{}, ike::relu{}, "fc2"_m = ike::lazy_linear<84>{}, ike::relu{},
    "fc3"_m = ike::lazy_linear<10>{});

constexpr ike::shape images(ike::dim_t batch) { return {batch, 1, 28, 28}; }
constexpr ike::shape rows(ike::dim_t batch) { return {batch, 784}; }

template <ike::shape In, class Net>
void train(benchmark::State& state, const Net& net, auto make_optimizer) {
  auto model = ike::initialize<float, In>(net, ike::seed{1});
  auto optimizer = make_optimizer(model);
  const auto x = ike::uniform<float, In>(ike::seed{2});
  auto t = ike::zeros<std::int64_t, ike::shape{In.front()}>();
  for (ike::dim_t i = 0; i < t.size(); ++i) t[i] = i % 10;
  for (auto _ : state)
    benchmark::DoNotOptimize(model.train_step(x, t, ike::cross_entropy{}, optimizer));
  state.SetItemsProcessed(state.iterations() * In.front());
}

template <ike::shape In, class Net>
void infer(benchmark::State& state, const Net& net) {
  auto model = ike::initialize<float, In>(net, ike::seed{1});
  model.eval();
  const auto x = ike::uniform<float, In>(ike::seed{2});
  for (auto _ : state) benchmark::DoNotOptimize(model(x).data());
  state.SetItemsProcessed(state.iterations() * In.front());
}

constexpr auto with_sgd = [](auto& model) { return ike::sgd{model, {.lr = 0.01}}; };
constexpr auto with_adam = [](auto& model) { return ike::adam{model, {.lr = 1e-3}}; };

void mlp_infer_1(benchmark::State& s) { infer<rows(1)>(s, mlp); }
void mlp_infer_32(benchmark::State& s) { infer<rows(32)>(s, mlp); }
void mlp_sgd_32(benchmark::State& s) { train<rows(32)>(s, mlp, with_sgd); }
void mlp_adam_32(benchmark::State& s) { train<rows(32)>(s, mlp, with_adam); }
void lenet_infer_1(benchmark::State& s) { infer<images(1)>(s, lenet); }
void lenet_infer_32(benchmark::State& s) { infer<images(32)>(s, lenet); }
void lenet_sgd_32(benchmark::State& s) { train<images(32)>(s, lenet, with_sgd); }

BENCHMARK(mlp_infer_1)->Unit(benchmark::kMicrosecond);
BENCHMARK(mlp_infer_32)->Unit(benchmark::kMicrosecond);
BENCHMARK(mlp_sgd_32)->Unit(benchmark::kMicrosecond);
BENCHMARK(mlp_adam_32)->Unit(benchmark::kMicrosecond);
BENCHMARK(lenet_infer_1)->Unit(benchmark::kMicrosecond);
BENCHMARK(lenet_infer_32)->Unit(benchmark::kMicrosecond);
BENCHMARK(lenet_sgd_32)->Unit(benchmark::kMicrosecond);

}  // namespace

BENCHMARK_MAIN();
