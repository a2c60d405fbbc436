// Matrix products in bfloat16 (float accumulation) and int8 (exact sums), and a network of
// precision<bf16> compared with the same network in float.
//
//     tools/bazel run //benchmarks:low_precision -- [--filter 'int8']

#include <cstdint>
#include <memory>
#include <string>

#include "benchmarks/contest.hpp"
#include "benchmarks/low_precision_peers.hpp"
#include "ikebana/cpu/gemm_bf16.hpp"
#include "ikebana/cpu/gemm_int8.hpp"
#include "ikebana/ikebana.hpp"
#include "ikebana/model/precision.hpp"

namespace {

using bench::bf16_problem, bench::dim_t, bench::int8_problem;
namespace cpu = ikebana::cpu;
constexpr auto no = cpu::transpose::no;

bench::timed ours_bf16(const bf16_problem& p) {
  const auto *a = reinterpret_cast<const ikebana::bfloat16*>(p.a),
             *b = reinterpret_cast<const ikebana::bfloat16*>(p.b);
  return bench::repeated(
      [=] { cpu::gemm_bf16<float>(no, no, p.m, p.n, p.k, 1, a, p.k, b, p.n, 0, p.result, p.n); });
}

bench::timed ours_int8(const int8_problem& p) {
  return bench::repeated([=] {
    cpu::gemm_int8<std::uint8_t>(no, no, p.m, p.n, p.k, p.a, p.k, p.b, p.n, p.result, p.n);
  });
}

struct sizes {
  dim_t m, k, n;
};

constexpr sizes all_sizes[] = {{16, 16, 16},       {32, 32, 32},    {64, 64, 64},
                               {128, 128, 128},    {256, 256, 256}, {512, 512, 512},
                               {1024, 1024, 1024}, {1, 784, 128},   {32, 784, 128},
                               {256, 1024, 1024},  {127, 131, 137}, {509, 511, 521}};

bench::case_info info(const char* group, const sizes& s, bench::number operands, double bytes) {
  const double m = static_cast<double>(s.m), n = static_cast<double>(s.n),
               k = static_cast<double>(s.k);
  return {.group = group,
          .name = std::string{group} + " " + std::to_string(s.m) + " x " + std::to_string(s.k) +
                  " x " + std::to_string(s.n),
          .amount = {.operations = 2 * m * n * k,
                     .operands = operands,
                     .read = bytes * (m * k + k * n),
                     .written = 4 * m * n},
          .is_rate = true};
}

template <class T>
ikebana::aligned_buffer<T> random_integers(dim_t size, std::uint64_t seed, double low,
                                           double high) {
  const auto values = bench::random_array<double>(size, seed, low, high);
  ikebana::aligned_buffer<T> x(size);
  for (dim_t i = 0; i < size; ++i) x[i] = static_cast<T>(values[i]);
  return x;
}

ikebana::aligned_buffer<std::uint16_t> random_bf16(dim_t size, std::uint64_t seed) {
  const auto values = bench::random_array<float>(size, seed);
  ikebana::aligned_buffer<std::uint16_t> x(size);
  for (dim_t i = 0; i < size; ++i) x[i] = ikebana::bfloat16{values[i]}.bits;
  return x;
}

namespace ike = ikebana;
using namespace ike::literals;

constexpr auto mlp = ike::sequential("fc1"_m = ike::linear<1024, 1024>{}, ike::relu{},
                                     "fc2"_m = ike::linear<1024, 1024>{}, ike::relu{},
                                     "fc3"_m = ike::linear<1024, 10>{});

/// Training steps of the network with element type E.
template <class E>
bench::contestant training(std::string name) {
  constexpr dim_t batch = 256;
  const auto made = [] { return ike::initialize<E, ike::shape{batch, 1024}>(mlp, ike::seed{1}); };
  auto model = std::make_shared<decltype(made())>(made());
  using sgd = decltype(ike::sgd{*model, {.lr = 0.01}});
  auto optimizer = std::make_shared<sgd>(*model, ike::sgd_options{.lr = 0.01});
  auto x = std::make_shared<ike::tensor<float, ike::shape{batch, 1024}>>(
      ike::uniform<float, ike::shape{batch, 1024}>(ike::seed{2}));
  auto t = std::make_shared<ike::tensor<std::int64_t, ike::shape{batch}>>();
  for (dim_t i = 0; i < batch; ++i) (*t)[i] = i % 10;
  return {.name = std::move(name), .run = bench::repeated([=] {
                                     model->train_step(*x, *t, ike::cross_entropy{}, *optimizer);
                                   })};
}

}  // namespace

int main(int argc, char** argv) {
  bench::contest contest("low_precision");
  if (const auto code = contest.begin(argc, argv)) return *code;
  const auto peers = contest.admitted(bench::onednn_low_precision());
  // Without such products in the processor, the limit is that of float.
  const auto or_float = [&](bench::number n) {
    return contest.limits().of(n) > 0 ? n : bench::number::f32;
  };
  for (const sizes& s : all_sizes)
    contest.measure(info("bf16", s, or_float(bench::number::bf16), 2), [&] {
      auto a = random_bf16(s.m * s.k, 1), b = random_bf16(s.k * s.n, 2);
      const bf16_problem p{s.m, s.n, s.k, a.data(), b.data()};
      return bench::field{bench::contestants<float, bf16_problem>(p, s.m * s.n, ours_bf16, peers),
                          bench::keep(std::move(a), std::move(b))};
    });
  for (const sizes& s : all_sizes)
    contest.measure(info("int8", s, or_float(bench::number::int8), 1), [&] {
      auto a = random_integers<std::uint8_t>(s.m * s.k, 1, 0, 255);
      auto b = random_integers<std::int8_t>(s.k * s.n, 2, -127, 127);
      const int8_problem p{s.m, s.n, s.k, a.data(), b.data()};
      return bench::field{
          bench::contestants<std::int32_t, int8_problem>(p, s.m * s.n, ours_int8, peers),
          bench::keep(std::move(a), std::move(b))};
    });
  // Every weight is one multiply-add in forward, one for its own gradient and, except in the first
  // layer, one for the gradient of the input.
  constexpr double first = 1024 * 1024, others = first + 1024 * 10, floats = 4;
  contest.measure({.group = "training",
                   .name = "MLP 1024-1024-1024-10, batch 256",
                   .amount = {.operations = 2 * 256 * (2 * first + 3 * others),
                              .operands = or_float(bench::number::bf16),
                              .read = floats * (4 * (first + others) + 256 * 1024),
                              .written = floats * 2 * (first + others)}},
                  [] {
                    return bench::field{
                        {training<ike::precision<ike::bf16>>("Ikebana"), training<float>("float")},
                        nullptr};
                  });
  return contest.end();
}
