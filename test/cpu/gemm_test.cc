#include "ikebana/cpu/gemm.hpp"

#include <limits>

#include "support.hpp"

using namespace cpu_test;
using ikebana::cpu::transpose;

namespace {

template <class T>
struct problem {
  transpose ta, tb;
  dim_t m, n, k, slack;
  T alpha, beta;
  bool with_bias;
};

template <class T>
void check(const problem<T>& p, generator& r) {
  const bool na = p.ta == transpose::no, nb = p.tb == transpose::no;
  const dim_t lda = (na ? p.k : p.m) + p.slack, ldb = (nb ? p.n : p.k) + p.slack,
              ldc = p.n + p.slack;
  const guarded<T> a((na ? p.m : p.k) * lda, r), b((nb ? p.k : p.n) * ldb, r), bias(p.n, r);
  const guarded<T> before(p.m * ldc, r);
  std::vector<double> expected(static_cast<std::size_t>(p.m * ldc));
  for (dim_t i = 0; i < p.m; ++i)
    for (dim_t j = 0; j < ldc; ++j) {
      double& e = expected[static_cast<std::size_t>(i * ldc + j)];
      if (j >= p.n) {
        e = static_cast<double>(before[i * ldc + j]);
        continue;
      }
      long double s = 0;
      for (dim_t q = 0; q < p.k; ++q)
        s += static_cast<long double>(a[na ? i * lda + q : q * lda + i]) *
             static_cast<long double>(b[nb ? q * ldb + j : j * ldb + q]);
      e = static_cast<double>(p.alpha) * static_cast<double>(s) +
          (p.with_bias ? static_cast<double>(bias[j]) : 0);
      if (p.beta != T(0))
        e += static_cast<double>(p.beta) * static_cast<double>(before[i * ldc + j]);
    }
  for_each_set([&] {
    INFO("m " << p.m << " n " << p.n << " k " << p.k << " transposed " << !na << !nb << " alpha "
              << p.alpha << " beta " << p.beta << " bias " << p.with_bias << " slack " << p.slack);
    guarded<T> c(p.m * ldc);
    for (dim_t i = 0; i < p.m; ++i)
      for (dim_t j = 0; j < ldc; ++j)
        c[i * ldc + j] =
            j < p.n && p.beta == T(0) ? std::numeric_limits<T>::quiet_NaN() : before[i * ldc + j];
    ikebana::cpu::gemm<T>(p.ta, p.tb, p.m, p.n, p.k, p.alpha, a.data(), lda, b.data(), ldb, p.beta,
                          c.data(), ldc, p.with_bias ? bias.data() : nullptr);
    CHECK(all_close(c, expected, rounding<T> * (16 + 0.5 * static_cast<double>(p.k))));
    CHECK(c.intact());
  });
}

}  // namespace

TEST_CASE_TEMPLATE("products of every small size and transposition", T, float, double) {
  generator r(1);
  for (dim_t m : {0, 1, 2, 3, 5, 9, 13, 16})
    for (dim_t n : {0, 1, 2, 7, 16, 17, 33})
      for (dim_t k : {0, 1, 3, 16, 19})
        for (int t = 0; t < 4; ++t) {
          const int variant = static_cast<int>(r.below(8));
          check<T>({t & 1 ? transpose::yes : transpose::no, t & 2 ? transpose::yes : transpose::no,
                    m, n, k, variant & 1 ? dim_t{3} : dim_t{0}, variant & 2 ? T(1) : T(-0.75),
                    variant & 4 ? T(0) : T(0.5), r.below(2) == 0},
                   r);
        }
}

TEST_CASE_TEMPLATE("products that span several blocks", T, float, double) {
  generator r(2);
  struct sizes {
    dim_t m, n, k;
  };
  for (const sizes s :
       {sizes{1, 700, 530}, sizes{2, 67, 513}, sizes{3, 40, 300}, sizes{29, 530, 71},
        sizes{61, 97, 263}, sizes{17, 1031, 521}, sizes{101, 1, 67}, sizes{131, 1, 300}})
    for (int t = 0; t < 4; ++t)
      check<T>(
          {t & 1 ? transpose::yes : transpose::no, t & 2 ? transpose::yes : transpose::no, s.m, s.n,
           s.k, t & 1 ? dim_t{5} : dim_t{0}, t == 2 ? T(2) : T(1), t == 1 ? T(1) : T(0), t == 3},
          r);
}

TEST_CASE_TEMPLATE("the bits do not depend on the alignment of pointers", T, float, double) {
  generator r(3);
  const dim_t m = 23, n = 41, k = 300;
  const guarded<T> a(m * k, r), b(k * n, r);
  for_each_set([&] {
    guarded<T> first(m * n);
    for (dim_t shift = 0; shift < 5; ++shift) {
      guarded<T> a2(m * k, T(0), shift), b2(k * n, T(0), 4 - shift), c(m * n, T(0), shift + 2);
      for (dim_t i = 0; i < m * k; ++i) a2[i] = a[i];
      for (dim_t i = 0; i < k * n; ++i) b2[i] = b[i];
      ikebana::cpu::gemm<T>(transpose::no, transpose::no, m, n, k, T(1), a2.data(), k, b2.data(), n,
                            T(0), c.data(), n);
      bool same = true;
      for (dim_t i = 0; i < m * n; ++i) {
        if (shift == 0) first[i] = c[i];
        same = same && first[i] == c[i];
      }
      CHECK(same);
    }
  });
}
