#include "ikebana/cpu/gemm_int8.hpp"

#include <cmath>

#include "extensions.hpp"

using namespace cpu_test;
using ikebana::cpu::transpose;

namespace {

struct problem {
  transpose ta, tb;
  dim_t m, n, k, slack;
};

/// A matrix of bytes whose memory ends with its last number, so that reading past it is detected.
template <class T>
matrix<T> bytes(dim_t rows, dim_t columns, dim_t ld, generator& r) {
  matrix<T> x(rows == 0 || columns == 0 ? 0 : static_cast<std::size_t>((rows - 1) * ld + columns));
  for (T& e : x) {
    const auto w = r.word();
    e = static_cast<T>(w % 16 == 0 ? 128 : w % 16 == 1 ? 127 : w % 16 == 2 ? 255 : w >> 24);
  }
  return x;
}

template <class A>
void check(const problem& p, generator& r) {
  const bool na = p.ta == transpose::no, nb = p.tb == transpose::no;
  const dim_t lda = (na ? p.k : p.m) + p.slack, ldb = (nb ? p.n : p.k) + p.slack,
              ldc = p.n + p.slack;
  const auto a = bytes<A>(na ? p.m : p.k, na ? p.k : p.m, lda, r);
  const auto b = bytes<std::int8_t>(nb ? p.k : p.n, nb ? p.n : p.k, ldb, r);
  const auto a_at = [&](dim_t i, dim_t q) {
    return int{a[static_cast<std::size_t>(na ? i * lda + q : q * lda + i)]};
  };
  const auto b_at = [&](dim_t q, dim_t j) {
    return int{b[static_cast<std::size_t>(nb ? q * ldb + j : j * ldb + q)]};
  };
  const bool per_column = r.below(2) == 0, zeros = r.below(2) == 0;
  const guarded<float> scales(p.n + 1, r), bias(p.n, r);
  guarded<std::int32_t> b_zeros(p.n + 1);
  for (dim_t j = 0; j < p.n + 1; ++j) b_zeros[j] = static_cast<std::int32_t>(r.below(50)) - 25;
  const ikebana::cpu::quantization q{.a_scale = 0.037f,
                                     .a_zero = static_cast<std::int32_t>(r.below(3)) * 60,
                                     .b_scale = scales.data(),
                                     .b_zero = zeros ? b_zeros.data() : nullptr,
                                     .per_column = per_column,
                                     .bias = r.below(2) == 0 ? bias.data() : nullptr,
                                     .function = r.below(2) == 0 ? ikebana::cpu::activation::relu
                                                                 : ikebana::cpu::activation::none};
  std::vector<std::int32_t> sums(static_cast<std::size_t>(p.m * p.n));
  std::vector<float> scaled(sums.size());
  for (dim_t i = 0; i < p.m; ++i)
    for (dim_t j = 0; j < p.n; ++j) {
      std::int32_t sum = 0, centered = 0;
      const std::int32_t zero = zeros ? b_zeros[per_column ? j : 0] : 0;
      for (dim_t s = 0; s < p.k; ++s) {
        sum += a_at(i, s) * b_at(s, j);
        centered += (a_at(i, s) - q.a_zero) * (b_at(s, j) - zero);
      }
      sums[static_cast<std::size_t>(i * p.n + j)] = sum;
      const volatile float product =
          static_cast<float>(centered) * (q.a_scale * scales[per_column ? j : 0]);
      float y = product + (q.bias != nullptr ? bias[j] : 0.0f);
      if (q.function == ikebana::cpu::activation::relu && y < 0) y = 0;
      scaled[static_cast<std::size_t>(i * p.n + j)] = y;
    }
  for_each_extension(p.m * p.n * p.k, [&] {
    INFO("m " << p.m << " n " << p.n << " k " << p.k << " transposed " << !na << !nb << " slack "
              << p.slack << " zero " << q.a_zero << " zeros of b " << zeros << " per column "
              << per_column);
    guarded<std::int32_t> c(p.m * ldc, 123456789);
    guarded<float> d(p.m * ldc, std::nanf(""));
    ikebana::cpu::gemm_int8<A>(p.ta, p.tb, p.m, p.n, p.k, a.data(), lda, b.data(), ldb, c.data(),
                               ldc);
    ikebana::cpu::gemm_int8<A>(p.ta, p.tb, p.m, p.n, p.k, a.data(), lda, b.data(), ldb, d.data(),
                               ldc, q);
    bool exact = true, same = true, untouched = true;
    for (dim_t i = 0; i < p.m; ++i)
      for (dim_t j = 0; j < ldc; ++j) {
        const auto at = static_cast<std::size_t>(i * p.n + j);
        if (j < p.n) {
          exact = exact && c[i * ldc + j] == sums[at];
          same = same && d[i * ldc + j] == scaled[at];
        } else {
          untouched = untouched && c[i * ldc + j] == 123456789 && std::isnan(d[i * ldc + j]);
        }
      }
    CHECK(exact);
    CHECK(same);
    CHECK(untouched);
    CHECK(c.intact());
    CHECK(d.intact());
  });
}

transpose flag(int bit) { return bit != 0 ? transpose::yes : transpose::no; }

}  // namespace

TEST_CASE_TEMPLATE("products of bytes are exact for every small size and transposition", A,
                   std::uint8_t, std::int8_t) {
  generator r(1);
  for (dim_t m : {0, 1, 2, 13, 16, 19, 33})
    for (dim_t n : {0, 1, 3, 16, 17, 35})
      for (dim_t k : {0, 1, 3, 4, 19, 67})
        for (int t = 0; t < 4; ++t)
          check<A>({flag(t & 1), flag(t & 2), m, n, k, r.below(2) * 3}, r);
}

TEST_CASE_TEMPLATE("products of bytes that span several blocks are exact", A, std::uint8_t,
                   std::int8_t) {
  generator r(2);
  struct sizes {
    dim_t m, n, k;
  };
  for (const sizes s : {sizes{1, 530, 1030}, sizes{1, 70, 9001}, sizes{45, 97, 2100},
                        sizes{71, 1037, 130}, sizes{20, 75, 2208}})
    for (int t = 0; t < 4; ++t)
      check<A>({flag(t & 1), flag(t & 2), s.m, s.n, s.k, t == 1 ? dim_t{5} : dim_t{0}}, r);
}
