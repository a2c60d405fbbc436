// Measures, for constants by which algorithms are chosen, from which size on one algorithm is
// faster than the other, and prints it beside the constant: what a new instruction set or processor
// needs in the costs.hpp of its family. Constants on which the order of summation depends must suit
// all machines.
#include <time.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstdio>
#include <limits>
#include <vector>

#include "ikebana/cpu/conv.hpp"
#include "ikebana/cpu/conv/costs.hpp"
#include "ikebana/cpu/conv/run.hpp"
#include "ikebana/cpu/detail/caches.hpp"
#include "ikebana/cpu/dispatch.hpp"
#include "ikebana/cpu/gemm.hpp"
#include "ikebana/cpu/gemm/costs.hpp"
#include "ikebana/cpu/pool.hpp"
#include "ikebana/cpu/pool/costs.hpp"
#include "ikebana/cpu/pool/run.hpp"

namespace {

using ikebana::dim_t;
namespace cpu = ikebana::cpu;

double now() {
  timespec t;
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
  return static_cast<double>(t.tv_sec) + 1e-9 * static_cast<double>(t.tv_nsec);
}

/// The least time of a by that of b, by turns of some milliseconds each.
template <class A, class B>
double ratio(const A& a, const B& b) {
  const auto seconds = [](const auto& f, int times) {
    const double start = now();
    for (int i = 0; i < times; ++i) f();
    return (now() - start) / times;
  };
  const auto calls = [&](const auto& f) {
    f();
    return 1 + static_cast<int>(1e-3 / (seconds(f, 3) + 1e-9));
  };
  const int of_a = calls(a), of_b = calls(b);
  double least_a = std::numeric_limits<double>::infinity(), least_b = least_a;
  for (int turn = 0; turn < 9; ++turn) {
    least_a = std::min(least_a, seconds(a, of_a));
    least_b = std::min(least_b, seconds(b, of_b));
  }
  return least_a / least_b;
}

/// f(size) is the time of the algorithm for small sizes by that for large ones.
template <std::size_t N, class F>
void fit(const char* constant, dim_t value, const char* small, const char* large,
         const std::array<dim_t, N>& sizes, const F& f) {
  std::array<double, N> found{};
  std::size_t from = N;
  for (std::size_t i = 0; i < N; ++i) found[i] = f(sizes[i]);
  while (from > 0 && found[from - 1] > 1) --from;
  std::printf("%s = %lld (measured ", constant, static_cast<long long>(value));
  if (from == N)
    std::printf("more than %lld", static_cast<long long>(sizes[N - 1]));
  else
    std::printf("%lld", static_cast<long long>(sizes[from]));
  std::printf("), time of %s by %s:", small, large);
  for (std::size_t i = 0; i < N; ++i)
    std::printf(" %lld: %.2f", static_cast<long long>(sizes[i]), found[i]);
  std::printf("\n");
  std::fflush(stdout);
}

/// Numbers without end: operands of all that is measured here.
float* operand(int which) {
  static std::vector<float> all[3];
  if (all[which].empty()) all[which].assign(std::size_t{1} << 23, 0.5F);
  return all[which].data();
}

double products(cpu::gemm_algorithm a, cpu::gemm_algorithm b, dim_t m, dim_t n, dim_t k) {
  cpu::gemm_call<float> call{};
  call.m = m, call.n = n, call.k = k;
  call.a = operand(0), call.lda = k;
  call.b = operand(1), call.ldb = n;
  call.c = operand(2), call.ldc = n;
  call.then = &cpu::detail::no_epilogue<float>;
  call.alpha = 1;
  call.ta = call.tb = cpu::transpose::no;
  call.order = cpu::gemm_order::by_columns_and_terms;
  // Where one does not apply, there is nothing to choose.
  if (!cpu::detail::run_gemm_by(a, call) || !cpu::detail::run_gemm_by(b, call))
    return std::numeric_limits<double>::quiet_NaN();
  return ratio([&] { cpu::detail::run_gemm_by(a, call); },
               [&] { cpu::detail::run_gemm_by(b, call); });
}

double convolutions(cpu::conv_algorithm a, cpu::conv_algorithm b, cpu::conv_direction d,
                    dim_t batch, dim_t in, dim_t out, dim_t side, dim_t stride) {
  const dim_t result = (side - 1) / stride + 1;
  const cpu::conv_geometry g{batch,
                             in,
                             out,
                             1,
                             {1, side, side},
                             {1, result, result},
                             {1, 3, 3},
                             {1, stride, stride},
                             {0, 1, 1},
                             {1, 1, 1}};
  const auto run = [&](cpu::conv_algorithm algorithm) {
    auto table = cpu::conv_algorithms_of<float>(d);
    if (algorithm == cpu::conv_algorithm::passes) {
      table.remove(cpu::conv_algorithm::im2col);
      return cpu::conv_backward_data<float>(g, operand(0), operand(1), operand(2), nullptr, table);
    }
    // Whether it applies or not.
    cpu::detail::conv_step step{cpu::detail::forward_pass(g)};
    const cpu::detail::conv_operands<float> all{operand(0), operand(1), nullptr, operand(2)};
    if (table.entry(algorithm)(table, step, nullptr)) table.entry(algorithm)(table, step, &all);
  };
  return ratio([&] { run(a); }, [&] { run(b); });
}

double pools(cpu::pool_algorithm a, cpu::pool_algorithm b, cpu::pool_work work, dim_t planes,
             dim_t kernel, dim_t width) {
  const dim_t stride = kernel == 2 ? 2 : 1, padding = kernel == 2 ? 0 : 1;
  const cpu::pool_geometry g{planes,
                             {1, width * stride, width * stride},
                             {1, width, width},
                             {1, kernel, kernel},
                             {1, stride, stride},
                             {0, padding, padding},
                             {1, 1, 1}};
  static std::vector<std::int32_t> places(std::size_t{1} << 22);
  cpu::detail::pool_job<float> job{operand(0), operand(2)};
  job.indices = places.data();
  job.maxima = places.data();
  return ratio([&] { cpu::detail::pool_by<float>(a, work, g, job); },
               [&] { cpu::detail::pool_by<float>(b, work, g, job); });
}

}  // namespace

int main() {
  using cpu::conv_algorithm, cpu::conv_direction, cpu::gemm_algorithm, cpu::pool_algorithm;
  namespace gemm_costs = cpu::detail::gemm_costs;
  namespace conv_costs = cpu::detail::conv_costs;
  namespace pool_costs = cpu::detail::pool_costs;
  const auto caches = cpu::detail::caches();
  std::printf("%s, L1 %lld KiB, L2 %lld KiB, float\n", name(cpu::active_instruction_set()),
              static_cast<long long>(caches.first / 1024),
              static_cast<long long>(caches.second / 1024));
  constexpr auto forward = conv_direction::forward, data = conv_direction::data;
  fit("gemm near_quarters", gemm_costs::near_quarters, "tiles in place", "tiles of panels",
      std::array<dim_t, 6>{1, 2, 3, 4, 6, 8}, [&](dim_t quarters) {
        const dim_t n = quarters * caches.second / 4 / 4 / 512;
        return products(gemm_algorithm::tiles_in_place, gemm_algorithm::tiles_of_panels, 256, n,
                        512);
      });
  fit("conv least_winograd_channels", conv_costs::least_winograd_channels, "bands", "Winograd",
      std::array<dim_t, 6>{8, 12, 16, 24, 32, 64}, [&](dim_t channels) {
        return convolutions(conv_algorithm::bands, conv_algorithm::winograd, forward, 4, channels,
                            channels, 28, 1);
      });
  fit("conv least_winograd_positions", conv_costs::least_winograd_positions, "bands", "Winograd",
      std::array<dim_t, 6>{36, 64, 100, 144, 256, 400}, [&](dim_t positions) {
        dim_t side = 1;
        while ((side + 1) * (side + 1) <= positions) ++side;
        return convolutions(conv_algorithm::bands, conv_algorithm::winograd, forward, 4, 64, 64,
                            side, 1);
      });
  fit("conv few_positions", conv_costs::few_positions, "im2col", "bands",
      std::array<dim_t, 6>{4, 16, 36, 64, 100, 196}, [&](dim_t positions) {
        dim_t side = 1;
        while ((side + 1) * (side + 1) <= positions) ++side;
        return convolutions(conv_algorithm::im2col, conv_algorithm::bands, forward, 16, 32, 32,
                            side, 1);
      });
  fit("conv most_positions", conv_costs::most_positions, "im2col", "passes",
      std::array<dim_t, 6>{16, 36, 64, 100, 196, 400}, [&](dim_t positions) {
        dim_t side = 1;
        while ((side + 1) * (side + 1) <= positions) ++side;
        return convolutions(conv_algorithm::im2col, conv_algorithm::passes, data, 8, 64, 64,
                            2 * side, 2);
      });
  fit("pool least_halved_row", pool_costs::least_halved_row, "plain", "halves",
      std::array<dim_t, 6>{2, 4, 6, 8, 16, 32}, [&](dim_t width) {
        return pools(pool_algorithm::plain, pool_algorithm::halves,
                     cpu::pool_work::maximum_backward, 64, 2, width);
      });
}
