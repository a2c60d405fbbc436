// Matrix products. For sizes small enough to be compile-time constants, where the call dominates
// (gemm_peers.hpp lists them), Ikebana uses fixed_gemm, Eigen fixed-size matrices and libxsmm a
// generated kernel; a separate group has the same sizes as run-time values.
//
//     tools/bazel run //benchmarks:gemm -- [--filter 'float NN 64'] [--sizes 100,200,300]

#include "ikebana/cpu/gemm.hpp"

#include <cmath>
#include <cstdint>
#include <cstdio>
#include <random>
#include <string>
#include <type_traits>
#include <vector>

#include "benchmarks/contest.hpp"
#include "benchmarks/gemm_peers.hpp"
#include "ikebana/cpu/dispatch.hpp"
#include "ikebana/cpu/fixed_gemm.hpp"

namespace {

using bench::dim_t, bench::gemm_problem;
namespace cpu = ikebana::cpu;

struct sizes {
  dim_t m, k, n;
};

template <class T>
bench::timed ours(const gemm_problem<T>& p) {
  if (bench::timed fixed = bench::of_known_sizes(
          p, [&]<dim_t M, dim_t K, dim_t N>(bench::known_sizes<M, K, N>) -> bench::timed {
            if (p.ta)
              return bench::repeated(
                  [=] { cpu::fixed_gemm<M, N, K, cpu::transpose::yes>(p.a, p.b, p.result); });
            return bench::repeated([=] { cpu::fixed_gemm<M, N, K>(p.a, p.b, p.result); });
          }))
    return fixed;
  const auto ta = static_cast<cpu::transpose>(p.ta), tb = static_cast<cpu::transpose>(p.tb);
  if (!p.has_epilogue())
    return bench::repeated([=] {
      cpu::gemm<T>(ta, tb, p.m, p.n, p.k, T{1}, p.a, p.lda(), p.b, p.ldb(), T{0}, p.result, p.n);
    });
  cpu::gemm_epilogue<T> after;
  after.bias = p.bias;
  after.residual = p.residual;
  after.ld_residual = p.n;
  after.function = p.relu ? cpu::activation::relu : cpu::activation::none;
  return bench::repeated([=] {
    cpu::gemm<T>(ta, tb, p.m, p.n, p.k, T{1}, p.a, p.lda(), p.b, p.ldb(), T{0}, p.result, p.n,
                 after);
  });
}

enum class after { nothing, bias, bias_relu, bias_residual };

template <class T>
void run(bench::contest& contest, const std::vector<bench::gemm_peer>& peers,
         const std::string& group, const sizes& s, bool ta = false, bool tb = false,
         after then = after::nothing, bool at_run_time = false) {
  static constexpr const char* endings[] = {"", " + bias", " + bias, relu", " + bias + residual"};
  const std::string form = std::string{ta ? "T" : "N"} + (tb ? "T" : "N");
  const double area = static_cast<double>(s.m * s.n), bytes = sizeof(T);
  const double factors = static_cast<double>(s.m * s.k + s.k * s.n);
  bench::case_info info{
      .group = group,
      .name = std::string{std::is_same_v<T, float> ? "float " : "double "} + form + " " +
              std::to_string(s.m) + " x " + std::to_string(s.k) + " x " + std::to_string(s.n) +
              endings[static_cast<int>(then)] + (at_run_time ? ", sizes at run time" : ""),
      .amount = {.operations = 2 * area * static_cast<double>(s.k),
                 .operands = std::is_same_v<T, float> ? bench::number::f32 : bench::number::f64,
                 .read = factors * bytes,
                 .written = area * bytes},
      .is_rate = true};
  contest.measure(info, [&] {
    auto a = bench::random_array<T>(s.m * s.k, 1), b = bench::random_array<T>(s.k * s.n, 2),
         bias = bench::random_array<T>(s.n, 3), residual = bench::random_array<T>(s.m * s.n, 4);
    gemm_problem<T> p{ta, tb, s.m, s.n, s.k, a.data(), b.data()};
    if (then != after::nothing) p.bias = bias.data();
    if (then == after::bias_residual) p.residual = residual.data();
    p.relu = then == after::bias_relu;
    p.at_run_time = at_run_time;
    return bench::field{
        bench::contestants<T, gemm_problem<T>>(p, s.m * s.n, ours<T>, peers),
        bench::keep(std::move(a), std::move(b), std::move(bias), std::move(residual))};
  });
}

/// Sizes distributed uniformly on a logarithmic scale.
std::vector<sizes> random_sizes(std::uint64_t seed, int count) {
  std::mt19937_64 engine{seed};
  std::uniform_real_distribution<double> exponent{0, std::log(1500.0)};
  std::vector<sizes> all;
  while (static_cast<int>(all.size()) < count) {
    const auto next = [&] { return static_cast<dim_t>(std::exp(exponent(engine))); };
    const sizes s{next(), next(), next()};
    if (s.m * s.k * s.n >= 64 && s.m * s.k * s.n <= 500'000'000) all.push_back(s);
  }
  return all;
}

template <class T>
void run_all(bench::contest& c, const std::vector<bench::gemm_peer>& peers) {
  const std::string type = std::is_same_v<T, float> ? "float" : "double";
  for (const dim_t n : {4, 8, 16, 32, 64, 96, 128, 256, 512, 1024, 2048})
    if (n <= (std::is_same_v<T, float> ? 2048 : 1024))
      run<T>(c, peers, "squares, " + type, {n, n, n});
  for (const dim_t n : {8, 16, 32, 64, 128, 256, 512, 1024})
    for (const bool ta : {false, true})
      run<T>(c, peers, "transposed squares, " + type, {n, n, n}, ta, !ta);
  for (const dim_t n : {4, 8, 16})
    for (const bool ta : {false, true})
      run<T>(c, peers, "small squares, sizes at run time, " + type, {n, n, n}, ta, false,
             after::nothing, true);
  for (const sizes& s : {sizes{1, 784, 128},
                         {32, 784, 128},
                         {64, 128, 10},
                         {512, 64, 64},
                         {256, 1024, 1024},
                         {1, 4096, 4096}})
    for (const char* form : {"NN", "NT", "TN"})
      run<T>(c, peers, "layers, " + type, s, form[0] == 'T', form[1] == 'T');
  for (const sizes& s : {sizes{3, 5, 7},
                         {7, 7, 7},
                         {13, 17, 19},
                         {31, 31, 31},
                         {33, 65, 17},
                         {47, 53, 59},
                         {97, 101, 103},
                         {127, 131, 137},
                         {251, 257, 263},
                         {509, 511, 521},
                         {1021, 1019, 1013}})
    run<T>(c, peers, "odd and prime, " + type, s);
  for (const sizes& s : {sizes{1000, 1, 1000},
                         {1000, 3, 1000},
                         {4, 1000, 4},
                         {16, 4096, 16},
                         {2, 512, 512},
                         {5, 300, 1000},
                         {1000, 300, 5},
                         {1000, 256, 1},
                         {10000, 16, 16},
                         {8, 16, 10000},
                         {3, 10000, 3}})
    run<T>(c, peers, "thin, " + type, s);
  if (std::is_same_v<T, float>)
    for (const after then : {after::bias, after::bias_relu, after::bias_residual})
      for (const sizes& s : {sizes{1, 784, 128}, {32, 784, 128}, {512, 64, 256}, {256, 256, 256}})
        for (const bool tb : {false, true})
          run<T>(c, peers, "with an epilogue, " + type, s, false, tb, then);
  for (const sizes& s : random_sizes(c.seed(), c.is_quick() ? 8 : 24))
    run<T>(c, peers, "random, " + type, s, s.m % 2 == 1, s.n % 3 == 1);
}

}  // namespace

int main(int argc, char** argv) {
  bench::contest contest("gemm");
  std::vector<dim_t> asked;
  contest.options()
      .add_option("--sizes", asked, "m,k,n: measure this product alone")
      ->delimiter(',')
      ->expected(3);
  if (const auto code = contest.begin(argc, argv)) return *code;
  const bool narrow = cpu::active_instruction_set() == cpu::instruction_set::avx2;
  const auto peers =
      contest.admitted(bench::openblas_gemm(), bench::blis_gemm(),
                       narrow ? bench::eigen_avx2_gemm() : bench::eigen_native_gemm(),
                       bench::libxsmm_gemm(), bench::onednn_gemm());
  if (asked.size() == 3) {
    for (const char* form : {"NN", "NT", "TN", "TT"}) {
      const sizes s{asked[0], asked[1], asked[2]};
      run<float>(contest, peers, "asked for", s, form[0] == 'T', form[1] == 'T');
      run<double>(contest, peers, "asked for", s, form[0] == 'T', form[1] == 'T');
    }
    return contest.end();
  }
  std::printf("random sizes: --seed %llu\n", static_cast<unsigned long long>(contest.seed()));
  contest.note("seed", contest.seed());
  run_all<float>(contest, peers);
  run_all<double>(contest, peers);
  return contest.end();
}
