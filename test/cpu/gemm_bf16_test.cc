#include "ikebana/cpu/gemm_bf16.hpp"

#include <cmath>
#include <limits>
#include <vector>

#include "extensions.hpp"
#include "ikebana/cpu/threads.hpp"

using namespace cpu_test;
using ikebana::bfloat16;
using ikebana::cpu::activation;
using ikebana::cpu::transpose;

namespace {

struct problem {
  transpose ta, tb;
  dim_t m, n, k, slack;
  float alpha, beta;
  bool with_bias, with_residual, whole;
};

/// A matrix whose memory ends with its last number; integers up to 8, or any numbers in [-1, 1).
matrix<bfloat16> numbers(dim_t rows, dim_t columns, dim_t ld, bool whole, generator& r) {
  matrix<bfloat16> x(
      rows == 0 || columns == 0 ? 0 : static_cast<std::size_t>((rows - 1) * ld + columns));
  for (bfloat16& e : x)
    e = bfloat16(whole ? static_cast<float>(r.below(17) - 8) : static_cast<float>(r.number()));
  return x;
}

void check(const problem& p, generator& r) {
  const bool na = p.ta == transpose::no, nb = p.tb == transpose::no;
  const dim_t lda = (na ? p.k : p.m) + p.slack, ldb = (nb ? p.n : p.k) + p.slack,
              ldc = p.n + p.slack;
  const auto a = numbers(na ? p.m : p.k, na ? p.k : p.m, lda, p.whole, r);
  const auto b = numbers(nb ? p.k : p.n, nb ? p.n : p.k, ldb, p.whole, r);
  guarded<float> bias(p.n, r), residual(p.m * ldc, r), row_bias(p.m, r);
  guarded<float> before(p.m * ldc);
  for (dim_t i = 0; i < p.m * ldc; ++i) before[i] = static_cast<float>(r.below(9) - 4);
  if (p.whole) {
    for (dim_t i = 0; i < p.n; ++i) bias[i] = static_cast<float>(i % 5);
    for (dim_t i = 0; i < p.m * ldc; ++i) residual[i] = static_cast<float>(i % 7);
    for (dim_t i = 0; i < p.m; ++i) row_bias[i] = static_cast<float>(i % 3);
  }
  const ikebana::cpu::gemm_epilogue<float> then{
      .bias = p.with_bias ? bias.data() : nullptr,
      .residual = p.with_residual ? residual.data() : nullptr,
      .ld_residual = ldc,
      .function = p.with_residual ? activation::relu : activation::none,
      .row_bias = p.with_residual ? row_bias.data() : nullptr};

  std::vector<double> expected(static_cast<std::size_t>(p.m * p.n)), bound(expected.size());
  for (dim_t i = 0; i < p.m; ++i)
    for (dim_t j = 0; j < p.n; ++j) {
      double sum = 0, size = 0;
      for (dim_t q = 0; q < p.k; ++q) {
        const float x = a[static_cast<std::size_t>(na ? i * lda + q : q * lda + i)];
        const float y = b[static_cast<std::size_t>(nb ? q * ldb + j : j * ldb + q)];
        sum += static_cast<double>(x) * static_cast<double>(y);
        size += std::fabs(static_cast<double>(x) * static_cast<double>(y));
      }
      const auto alpha = static_cast<double>(p.alpha), beta = static_cast<double>(p.beta);
      const double rest = (p.beta == 0 ? 0 : beta * static_cast<double>(before[i * ldc + j])),
                   offset = p.with_bias ? static_cast<double>(bias[j]) : 0,
                   added = p.with_residual ? static_cast<double>(residual[i * ldc + j]) +
                                                 static_cast<double>(row_bias[i])
                                           : 0;
      double e = alpha * sum + rest + offset + added;
      if (p.with_residual && e < 0) e = 0;
      const auto at = static_cast<std::size_t>(i * p.n + j);
      expected[at] = e;
      // Each of k products is added once, and so are the blocks, beta c, bias and residual.
      bound[at] = (static_cast<double>(p.k) + 8) * 0x1p-24 *
                  (std::fabs(alpha) * size + std::fabs(rest) + std::fabs(offset) +
                   std::fabs(added) + 1e-30);
    }
  // The same numbers, and some that round to them: adjacent floats.
  matrix<float> wide_a, wide_b;
  for (const bfloat16 x : a) wide_a.push_back(std::nextafter(float{x}, 0.0f));
  for (const bfloat16 x : b) wide_b.push_back(std::nextafter(float{x}, 9.0f));
  for_each_extension(p.m * p.n * p.k, [&] {
    INFO("m " << p.m << " n " << p.n << " k " << p.k << " transposed " << !na << !nb << " alpha "
              << p.alpha << " beta " << p.beta << " bias " << p.with_bias << " residual "
              << p.with_residual << " slack " << p.slack << " whole " << p.whole);
    guarded<float> c(p.m * ldc);
    std::vector<bfloat16> d(static_cast<std::size_t>(p.m * ldc));
    for (dim_t i = 0; i < p.m; ++i)
      for (dim_t j = 0; j < ldc; ++j) {
        c[i * ldc + j] =
            j < p.n && p.beta == 0 ? std::numeric_limits<float>::quiet_NaN() : before[i * ldc + j];
        d[static_cast<std::size_t>(i * ldc + j)] = bfloat16(c[i * ldc + j]);
      }
    ikebana::cpu::gemm_bf16(p.ta, p.tb, p.m, p.n, p.k, p.alpha, a.data(), lda, b.data(), ldb,
                            p.beta, c.data(), ldc, then);
    ikebana::cpu::gemm_bf16(p.ta, p.tb, p.m, p.n, p.k, p.alpha, a.data(), lda, b.data(), ldb,
                            p.beta, d.data(), ldc, then);
    guarded<float> f(p.m * ldc);
    for (dim_t i = 0; i < p.m * ldc; ++i) f[i] = before[i];
    ikebana::cpu::gemm_bf16(p.ta, p.tb, p.m, p.n, p.k, p.alpha, wide_a.data(), lda, wide_b.data(),
                            ldb, p.beta, f.data(), ldc, then);
    CHECK(f.intact());
    dim_t wrong = 0, wrong_rounded = 0, touched = 0, different = 0;
    for (dim_t i = 0; i < p.m; ++i)
      for (dim_t j = 0; j < ldc; ++j) {
        const auto got = static_cast<double>(c[i * ldc + j]);
        const auto rounded = static_cast<double>(float{d[static_cast<std::size_t>(i * ldc + j)]});
        if (j >= p.n) {
          different += f[i * ldc + j] != before[i * ldc + j];
          touched += got != static_cast<double>(before[i * ldc + j]) || rounded != got;
          continue;
        }
        different += f[i * ldc + j] != c[i * ldc + j];
        const auto at = static_cast<std::size_t>(i * p.n + j);
        const double e = expected[at], error = p.whole ? 0 : bound[at];
        wrong += !(std::fabs(got - e) <= error);
        if (p.whole)
          wrong_rounded += rounded != static_cast<double>(float{bfloat16(static_cast<float>(e))});
        else
          wrong_rounded += !(std::fabs(rounded - e) <= error + (std::fabs(e) + error) * 0x1p-8);
      }
    CHECK(wrong == 0);
    CHECK(wrong_rounded == 0);
    CHECK(touched == 0);
    CHECK(different == 0);
    CHECK(c.intact());
  });
}

transpose flag(int bit) { return bit != 0 ? transpose::yes : transpose::no; }

}  // namespace

TEST_CASE("products of bfloat16 of every small size and transposition") {
  generator r(1);
  for (dim_t m : {0, 1, 2, 19, 33})
    for (dim_t n : {0, 1, 17, 35})
      for (dim_t k : {0, 1, 3, 35})
        for (int t = 0; t < 4; ++t) {
          const auto v = r.below(32);
          check({flag(t & 1), flag(t & 2), m, n, k, (v & 1) * 3, v & 2 ? 1.0f : -0.5f,
                 v & 4 ? 0.0f : (v & 8 ? 1.0f : 0.5f), r.below(2) == 0, r.below(3) == 0,
                 (v & 16) != 0},
                r);
        }
}

TEST_CASE("products of bfloat16 that span several blocks") {
  generator r(2);
  struct sizes {
    dim_t m, n, k;
  };
  for (const sizes s :
       {sizes{1, 530, 517}, sizes{45, 97, 1063}, sizes{40, 530, 130}, sizes{300, 33, 300},
        sizes{34, 1090, 20}, sizes{20, 75, 1104}, sizes{70, 600, 1056}, sizes{2, 75, 1500}})
    for (int t = 0; t < 4; ++t)
      check({flag(t & 1), flag(t & 2), s.m, s.n, s.k, t == 1 ? dim_t{5} : dim_t{0},
             t == 2 ? 2.0f : 1.0f, t == 1 ? 1.0f : 0.0f, t == 3, t == 2, t < 2},
            r);
}

TEST_CASE("products of bfloat16 are the same for any number of threads") {
  generator r(4);
  struct sizes {
    dim_t m, n, k;
  };
  for (const sizes s : {sizes{70, 1031, 300}, sizes{1031, 70, 300}}) {
    const guarded<float> a(s.m * s.k, r), b(s.k * s.n, r), bias(s.n, r), residual(s.m * s.n, r);
    const ikebana::cpu::gemm_epilogue<float> then{.bias = bias.data(),
                                                  .residual = residual.data(),
                                                  .ld_residual = s.n,
                                                  .function = activation::relu};
    for_each_set([&] {
      guarded<float> alone(s.m * s.n), shared(s.m * s.n);
      const auto multiply = [&](float* c) {
        ikebana::cpu::gemm_bf16(transpose::no, transpose::yes, s.m, s.n, s.k, 1.0f, a.data(), s.k,
                                b.data(), s.k, 0.0f, c, s.n, then);
      };
      multiply(alone.data());
      {
        const ikebana::scoped_num_threads three(3);
        multiply(shared.data());
      }
      dim_t different = 0;
      for (dim_t i = 0; i < s.m * s.n; ++i) different += alone[i] != shared[i];
      CHECK(different == 0);
      CHECK(shared.intact());
    });
  }
}

TEST_CASE("products of bfloat16 let infinity and what is not a number through") {
  generator r(3);
  const dim_t m = 20, n = 35, k = 40;
  auto a = numbers(m, k, k, false, r), b = numbers(k, n, n, false, r);
  a[3 * k + 7] = bfloat16(std::numeric_limits<float>::quiet_NaN());
  a[18 * k + 39] = bfloat16(std::numeric_limits<float>::infinity());
  b[39 * n + 33] = bfloat16(0.0f);
  for_each_extension(m * n * k, [&] {
    guarded<float> c(m * n);
    ikebana::cpu::gemm_bf16(transpose::no, transpose::no, m, n, k, 1.0f, a.data(), k, b.data(), n,
                            0.0f, c.data(), n);
    bool as_expected = true;
    for (dim_t i = 0; i < m; ++i)
      for (dim_t j = 0; j < n; ++j) {
        const float x = c[i * n + j];
        as_expected = as_expected && (i == 3               ? std::isnan(x)
                                      : i == 18 && j == 33 ? std::isnan(x)
                                      : i == 18            ? std::isinf(x)
                                                           : std::isfinite(x));
      }
    CHECK(as_expected);
  });
}
