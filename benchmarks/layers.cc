// Pooling, batch norm, group norm: float, forward and backward.
//
//     tools/bazel run //benchmarks:layers -- [--filter 'pool']

#include <cstdint>
#include <memory>
#include <string>

#include "benchmarks/contest.hpp"
#include "benchmarks/layer_peers.hpp"
#include "ikebana/cpu/layer_norm.hpp"
#include "ikebana/cpu/norm.hpp"
#include "ikebana/cpu/pool.hpp"

namespace {

using bench::dim_t, bench::layer, bench::layer_problem, bench::repeated;
namespace cpu = ikebana::cpu;

template <class T = float>
std::shared_ptr<ikebana::aligned_buffer<T>> zeros(dim_t size) {
  return std::make_shared<ikebana::aligned_buffer<T>>(size);
}

bench::timed pool(const layer_problem& p) {
  const cpu::pool_geometry g{.planes = p.batch * p.channels,
                             .in = {1, p.size, p.size},
                             .out = {1, p.out(), p.out()},
                             .kernel = {1, p.kernel, p.kernel},
                             .stride = {1, p.stride, p.stride},
                             .padding = {0, p.padding, p.padding},
                             .dilation = {1, 1, 1}};
  const auto indices = zeros<std::int32_t>(p.y_size());
  switch (p.what) {
    case layer::max_pool:
      return repeated([=] { cpu::max_pool_forward<float>(g, p.x, p.result, indices->data()); });
    case layer::max_pool_backward:
      cpu::max_pool_forward<float>(g, p.x, zeros(p.y_size())->data(), indices->data());
      return repeated([=] { cpu::max_pool_backward<float>(g, p.dy, indices->data(), p.result); });
    case layer::average_pool:
      return repeated([=] { cpu::avg_pool_forward<float>(g, p.x, p.result, true, 0); });
    default:
      return repeated([=] { cpu::avg_pool_backward<float>(g, p.dy, p.result, true, 0); });
  }
}

bench::timed ours(const layer_problem& p) {
  if (p.what < layer::batch_norm) return pool(p);
  const dim_t inner = p.size * p.size, kept = p.batch * p.channels;
  const auto mean = zeros(kept), scale = zeros(kept), running_mean = zeros(p.channels),
             running_variance = zeros(p.channels), dgamma = zeros(p.channels),
             dbeta = zeros(p.channels);
  for (dim_t c = 0; c < p.channels; ++c) (*running_variance)[c] = 1;
  const auto forward = [=] {
    cpu::batch_norm_forward_train<float>(p.batch, p.channels, inner, p.x, p.gamma, p.beta, 1e-5F,
                                         p.result, mean->data(), scale->data(),
                                         running_mean->data(), running_variance->data(), 0.1F);
  };
  switch (p.what) {
    case layer::batch_norm:
      return repeated(forward);
    case layer::batch_norm_inference:
      return repeated([=] {
        cpu::batch_norm_forward_eval<float>(p.batch, p.channels, inner, p.x, p.gamma, p.beta, 1e-5F,
                                            running_mean->data(), running_variance->data(),
                                            p.result);
      });
    case layer::batch_norm_backward:
      forward();
      return repeated([=] {
        cpu::batch_norm_backward<float>(p.batch, p.channels, inner, p.x, p.dy, p.gamma,
                                        mean->data(), scale->data(), p.result, dgamma->data(),
                                        dbeta->data(), false);
      });
    default:
      return repeated([=] {
        cpu::group_norm_forward<float>(p.batch, p.channels, inner, p.groups, p.x, p.gamma, p.beta,
                                       1e-5F, p.result, mean->data(), scale->data());
      });
  }
}

constexpr const char* names[] = {"max pool",
                                 "max pool, backward",
                                 "average pool",
                                 "average pool, backward",
                                 "batch norm, training",
                                 "batch norm, inference",
                                 "batch norm, backward",
                                 "group norm"};

struct images {
  dim_t batch, channels, size, kernel, stride, padding;
};

void run(bench::contest& contest, const auto& peers, const layer_problem& problem) {
  const double x = 4 * static_cast<double>(problem.x_size()),
               y = 4 * static_cast<double>(problem.y_size());
  std::string name = std::string{names[static_cast<int>(problem.what)]} + ", N" +
                     std::to_string(problem.batch) + " " + std::to_string(problem.channels) + "x" +
                     std::to_string(problem.size) + "x" + std::to_string(problem.size);
  if (problem.what < layer::batch_norm)
    name += ", " + std::to_string(problem.kernel) + "x" + std::to_string(problem.kernel) +
            (problem.stride == 1 ? "" : ", stride " + std::to_string(problem.stride));
  bench::work amount{.read = x, .written = y};
  if (problem.is_backward())
    amount = problem.what == layer::batch_norm_backward ? bench::work{.read = x + y, .written = x}
                                                        : bench::work{.read = y, .written = x};
  contest.measure(
      {.group = problem.what < layer::batch_norm ? "pooling" : "normalization",
       .name = name,
       .amount = amount},
      [&] {
        auto values = bench::random_array<float>(problem.x_size(), 1),
             dy = bench::random_array<float>(problem.y_size(), 2),
             gamma = bench::random_array<float>(problem.channels, 3),
             beta = bench::random_array<float>(problem.channels, 4);
        layer_problem p = problem;
        p.x = values.data(), p.dy = dy.data(), p.gamma = gamma.data(), p.beta = beta.data();
        const dim_t size = p.is_backward() ? p.x_size() : p.y_size();
        return bench::field{
            bench::contestants<float, layer_problem>(p, size, ours, peers),
            bench::keep(std::move(values), std::move(dy), std::move(gamma), std::move(beta))};
      });
}

}  // namespace

int main(int argc, char** argv) {
  bench::contest contest("layers");
  if (const auto code = contest.begin(argc, argv)) return *code;
  const auto peers = contest.admitted(bench::onednn_layers(), bench::onednn_blocked_layers(),
                                      bench::torch_layers());
  for (const layer what : {layer::max_pool, layer::max_pool_backward, layer::average_pool,
                           layer::average_pool_backward})
    for (const images& i : {images{32, 6, 28, 2, 2, 0},
                            {32, 16, 10, 2, 2, 0},
                            {1, 64, 112, 3, 2, 1},
                            {8, 64, 56, 3, 1, 1},
                            {1, 512, 7, 7, 7, 0},
                            {3, 17, 31, 3, 2, 1}})
      run(contest, peers, {what, i.batch, i.channels, i.size, i.kernel, i.stride, i.padding});
  for (const layer what : {layer::batch_norm, layer::batch_norm_inference,
                           layer::batch_norm_backward, layer::group_norm})
    for (const images& i : {images{32, 16, 14, 1, 1, 0},
                            {1, 64, 56, 1, 1, 0},
                            {8, 64, 56, 1, 1, 0},
                            {8, 512, 7, 1, 1, 0},
                            {3, 17, 31, 1, 1, 0}})
      run(contest, peers,
          {.what = what,
           .batch = i.batch,
           .channels = i.channels,
           .size = i.size,
           .groups = i.channels % 8 == 0 ? 8 : 1});
  return contest.end();
}
