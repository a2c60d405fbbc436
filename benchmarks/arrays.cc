// Element-wise functions, reductions, softmax, layer norm, optimizers: float.
//
//     tools/bazel run //benchmarks:arrays -- [--filter 'tanh']

#include <cmath>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "benchmarks/array_peers.hpp"
#include "benchmarks/contest.hpp"
#include "ikebana/cpu/dispatch.hpp"
#include "ikebana/cpu/elementwise.hpp"
#include "ikebana/cpu/layer_norm.hpp"
#include "ikebana/cpu/optim.hpp"
#include "ikebana/cpu/reduce.hpp"
#include "ikebana/cpu/softmax.hpp"

namespace {

using bench::array_problem, bench::dim_t, bench::op, bench::repeated;
namespace cpu = ikebana::cpu;

/// What contestants keep from step to step.
std::shared_ptr<ikebana::aligned_buffer<float>> moments(const array_problem& p) {
  return std::make_shared<ikebana::aligned_buffer<float>>(p.size());
}

bench::timed update(const array_problem& p) {
  std::copy_n(p.x, p.size(), p.result);
  if (p.what == op::sgd)
    return repeated([=] {
      cpu::sgd_step<float>(p.size(), p.result, p.dy, nullptr, 0.01F, 0, 0, 0, false, false, false);
    });
  if (p.what == op::momentum)
    return repeated([=, m = moments(p), first = true]() mutable {
      cpu::sgd_step<float>(p.size(), p.result, p.dy, m->data(), 0.01F, 0.9F, 0, 0, false, first,
                           false);
      first = false;
    });
  return repeated([=, m = moments(p), v = moments(p), step = std::int64_t{0}]() mutable {
    cpu::adam_step<float>(p.size(), p.result, p.dy, m->data(), v->data(), nullptr, 1e-5, 0.9, 0.999,
                          1e-8, 0, false, ++step, false);
  });
}

bench::timed rows(const array_problem& p) {
  switch (p.what) {
    case op::softmax:
      return repeated([=] { cpu::softmax_forward<float>(p.rows, p.n, 1, p.x, p.result); });
    case op::log_softmax:
      return repeated([=] { cpu::log_softmax_forward<float>(p.rows, p.n, 1, p.x, p.result); });
    case op::softmax_backward:
      return repeated([=] { cpu::softmax_backward<float>(p.rows, p.n, 1, p.y, p.dy, p.result); });
    case op::layer_norm:
      return repeated([=, m = moments(p), s = moments(p)] {
        cpu::layer_norm_forward<float>(p.rows, p.n, 1, p.x, p.gamma, p.beta, 1e-5F, p.result,
                                       m->data(), s->data());
      });
    default: {
      auto mean = moments(p), scale = moments(p), dgamma = moments(p), dbeta = moments(p);
      cpu::layer_norm_forward<float>(p.rows, p.n, 1, p.x, p.gamma, p.beta, 1e-5F, p.result,
                                     mean->data(), scale->data());
      return repeated([=] {
        cpu::layer_norm_backward<float>(p.rows, p.n, 1, p.x, p.dy, p.gamma, mean->data(),
                                        scale->data(), p.result, dgamma->data(), dbeta->data(),
                                        false);
      });
    }
  }
}

bench::timed ours(const array_problem& p) {
  const dim_t n = p.size();
  switch (p.what) {
    case op::relu:
      return repeated([=] { cpu::relu_forward<float>(n, p.x, p.result); });
    case op::tanh:
      return repeated([=] { cpu::tanh_forward<float>(n, p.x, p.result); });
    case op::sigmoid:
      return repeated([=] { cpu::sigmoid_forward<float>(n, p.x, p.result); });
    case op::exp:
      return repeated([=] { cpu::exp<float>(n, p.x, p.result); });
    case op::log:
      return repeated([=] { cpu::log<float>(n, p.x, p.result); });
    case op::erf:
      return repeated([=] { cpu::erf<float>(n, p.x, p.result); });
    case op::gelu:
      return repeated([=] { cpu::gelu_forward<float>(n, p.x, p.result); });
    case op::gelu_tanh:
      return repeated([=] { cpu::gelu_tanh_forward<float>(n, p.x, p.result); });
    case op::add:
      return repeated([=] { cpu::add<float>(n, p.x, p.dy, p.result); });
    case op::multiply:
      return repeated([=] { cpu::multiply<float>(n, p.x, p.dy, p.result); });
    case op::relu_backward:
      return repeated([=] { cpu::relu_backward<float>(n, p.y, p.dy, p.result); });
    case op::tanh_backward:
      return repeated([=] { cpu::tanh_backward<float>(n, p.y, p.dy, p.result); });
    case op::sigmoid_backward:
      return repeated([=] { cpu::sigmoid_backward<float>(n, p.y, p.dy, p.result); });
    case op::gelu_backward:
      return repeated([=] { cpu::gelu_backward<float>(n, p.x, p.dy, p.result); });
    case op::sum:
      return repeated([=] { *p.result = cpu::sum<float>(n, p.x); });
    case op::dot:
      return repeated([=] { *p.result = cpu::dot<float>(n, p.x, p.dy); });
    case op::column_sums:
      return repeated([=] { cpu::column_sums<float>(p.rows, p.n, p.x, p.n, p.result, false); });
    case op::sgd:
    case op::momentum:
    case op::adam:
      return update(p);
    default:
      return rows(p);
  }
}

struct kind {
  op what;
  const char* name;
  int reads, writes;  // Arrays.
};

constexpr kind elementwise[] = {{op::relu, "relu", 1, 1},
                                {op::tanh, "tanh", 1, 1},
                                {op::sigmoid, "sigmoid", 1, 1},
                                {op::exp, "exp", 1, 1},
                                {op::log, "log", 1, 1},
                                {op::erf, "erf", 1, 1},
                                {op::gelu, "gelu", 1, 1},
                                {op::gelu_tanh, "gelu (tanh)", 1, 1},
                                {op::add, "add", 2, 1},
                                {op::multiply, "multiply", 2, 1},
                                {op::relu_backward, "relu, backward", 2, 1},
                                {op::tanh_backward, "tanh, backward", 2, 1},
                                {op::sigmoid_backward, "sigmoid, backward", 2, 1},
                                {op::gelu_backward, "gelu, backward", 2, 1}};
constexpr kind reductions[] = {{op::sum, "sum", 1, 0}, {op::dot, "dot", 2, 0}};
constexpr kind by_rows[] = {{op::softmax, "softmax", 1, 1},
                            {op::log_softmax, "log softmax", 1, 1},
                            {op::softmax_backward, "softmax, backward", 2, 1},
                            {op::layer_norm, "layer norm", 1, 1},
                            {op::layer_norm_backward, "layer norm, backward", 2, 1}};
constexpr kind updates[] = {
    {op::sgd, "SGD", 2, 1}, {op::momentum, "SGD with momentum", 3, 2}, {op::adam, "Adam", 4, 3}};

void run(bench::contest& contest, const std::vector<bench::array_peer>& peers,
         const std::string& group, const kind& k, dim_t rows, dim_t n) {
  const double bytes = 4 * static_cast<double>(rows * n);
  contest.measure(
      {.group = group,
       .name = std::string{k.name} + ", " +
               (rows == 1 ? std::to_string(n) : std::to_string(rows) + " x " + std::to_string(n)),
       .amount = {.read = k.reads * bytes,
                  .written = k.writes * bytes,
                  // Updates are made in place.
                  .held = (k.what >= op::sgd ? k.reads : k.reads + k.writes) * bytes}},
      [&] {
        const float low = k.what == op::log ? 0.01F : -4.0F;
        auto x = bench::random_array<float>(rows * n, 1, low, 4),
             dy = bench::random_array<float>(rows * n, 2),
             y = bench::random_array<float>(
                 rows * n, 3, 0, k.what == op::softmax_backward ? 2 / static_cast<float>(n) : 1),
             gamma = bench::random_array<float>(n, 4), beta = bench::random_array<float>(n, 5);
        const array_problem p{k.what,    rows,         n,          x.data(), y.data(),
                              dy.data(), gamma.data(), beta.data()};
        const dim_t size = k.what == op::column_sums ? n : k.writes == 0 ? 1 : rows * n;
        auto all = bench::contestants<float, array_problem>(p, size, ours, peers);
        // Updates accumulate, so there is nothing to compare.
        if (k.what >= op::sgd)
          for (auto& c : all) c.floats = {};
        return bench::field{std::move(all), bench::keep(std::move(x), std::move(dy), std::move(y),
                                                        std::move(gamma), std::move(beta))};
      });
}

}  // namespace

int main(int argc, char** argv) {
  bench::contest contest("arrays");
  if (const auto code = contest.begin(argc, argv)) return *code;
  const bool narrow = cpu::active_instruction_set() == cpu::instruction_set::avx2;
  const auto peers =
      contest.admitted(narrow ? bench::eigen_avx2_arrays() : bench::eigen_native_arrays(),
                       bench::onednn_arrays(), bench::torch_arrays());
  for (const dim_t n : {1'000, 100'000, 10'000'000})
    for (const kind& k : elementwise) run(contest, peers, "elementwise", k, 1, n);
  for (const dim_t n : {1'000, 100'000, 10'000'000})
    for (const kind& k : reductions) run(contest, peers, "reductions", k, 1, n);
  for (const dim_t n : {10, 64, 100, 1000})
    run(contest, peers, "reductions", {op::column_sums, "column sums", 1, 0}, 100'000 / n, n);
  for (const kind& k : by_rows)
    for (const dim_t n : {10, 64, 100, 768, 1000})
      run(contest, peers, k.name[0] == 'l' && k.name[1] == 'a' ? "layer norm" : "softmax", k,
          100'000 / n, n);
  for (const dim_t n : {1'000, 100'000, 10'000'000})
    for (const kind& k : updates) run(contest, peers, "optimizers", k, 1, n);
  return contest.end();
}
