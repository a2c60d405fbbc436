#include "ikebana/cpu/gemm.hpp"

#include <cstring>
#include <limits>
#include <string>
#include <thread>
#include <type_traits>

#include "support.hpp"

using namespace cpu_test;
using ikebana::cpu::activation;
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
  // An emulator takes ten times as long for the wider type.
  using wide = std::conditional_t<std::is_same_v<T, float>, double, long double>;
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
      wide s = 0;
      for (dim_t q = 0; q < p.k; ++q)
        s += static_cast<wide>(a[na ? i * lda + q : q * lda + i]) *
             static_cast<wide>(b[nb ? q * ldb + j : j * ldb + q]);
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

double apply(activation f, double x) {
  switch (f) {
    case activation::none:
      return x;
    case activation::relu:
      return x > 0 || std::isnan(x) ? x : 0;
    case activation::tanh:
      return std::tanh(x);
    case activation::sigmoid:
      return 1 / (1 + std::exp(-x));
    case activation::silu:
      return x / (1 + std::exp(-x));
    case activation::gelu:
      return x * 0.5 * std::erfc(-x * 0.70710678118654752440);
    case activation::gelu_tanh:
      return x * 0.5 * (1 + std::tanh(0.79788456080286535588 * (x + 0.044715 * x * x * x)));
  }
  return x;
}
double slope_at(activation f, double y) {
  if (f == activation::relu) return y > 0 ? 1 : 0;
  return f == activation::tanh ? 1 - y * y : y * (1 - y);
}

struct sizes {
  dim_t m, n, k;
};

/// Every transposition, with and without gaps between rows, factors, and previous contents.
template <class T>
void check_forms(const sizes& s, generator& r) {
  for (int t = 0; t < 4; ++t)
    check<T>(
        {t & 1 ? transpose::yes : transpose::no, t & 2 ? transpose::yes : transpose::no, s.m, s.n,
         s.k, t & 1 ? dim_t{5} : dim_t{0}, t == 2 ? T(2) : T(1), t == 1 ? T(1) : T(0), t == 3},
        r);
}

/// Every part of an epilogue, alone and with others.
template <class T>
void check_epilogue(const sizes& s, bool ta, bool tb, T alpha, T beta, unsigned parts, activation f,
                    activation slope, generator& r) {
  const dim_t lda = ta ? s.m : s.k, ldb = tb ? s.k : s.n, ldc = s.n + 2, ldr = s.n + 1,
              lds = s.n + 3;
  const guarded<T> a(s.m * s.k, r), b(s.k * s.n, r), bias(s.n, r), residual(s.m * ldr, r),
      y(s.m * lds, r), before(s.m * ldc, r), row_bias(s.m, r);
  ikebana::cpu::gemm_epilogue<T> then;
  if (parts & 1) then.bias = bias.data();
  if (parts & 2) {
    then.residual = residual.data();
    then.ld_residual = ldr;
  }
  if (parts & 4) then.row_bias = row_bias.data();
  then.function = f;
  if (slope != activation::none) {
    then.slope_of = y.data();
    then.ld_slope = lds;
    then.slope = slope;
  }
  std::vector<double> expected(static_cast<std::size_t>(s.m * ldc));
  for (dim_t i = 0; i < s.m; ++i)
    for (dim_t j = 0; j < ldc; ++j) {
      double x = static_cast<double>(before[i * ldc + j]);
      if (j < s.n) {
        x *= static_cast<double>(beta);
        for (dim_t q = 0; q < s.k; ++q)
          x += static_cast<double>(alpha) * static_cast<double>(a[ta ? q * lda + i : i * lda + q]) *
               static_cast<double>(b[tb ? j * ldb + q : q * ldb + j]);
        if (parts & 1) x += static_cast<double>(bias[j]);
        if (parts & 2) x += static_cast<double>(residual[i * ldr + j]);
        if (parts & 4) x += static_cast<double>(row_bias[i]);
        x = apply(f, x);
        if (slope != activation::none) x *= slope_at(slope, static_cast<double>(y[i * lds + j]));
      }
      expected[static_cast<std::size_t>(i * ldc + j)] = x;
    }
  for_each_set([&] {
    INFO("m " << s.m << " n " << s.n << " k " << s.k << " transposed " << ta << tb << " alpha "
              << alpha << " beta " << beta << " parts " << parts << " function "
              << static_cast<int>(f) << " slope " << static_cast<int>(slope));
    guarded<T> c(s.m * ldc);
    for (dim_t i = 0; i < s.m * ldc; ++i) c[i] = before[i];
    ikebana::cpu::gemm<T>(ta ? transpose::yes : transpose::no, tb ? transpose::yes : transpose::no,
                          s.m, s.n, s.k, alpha, a.data(), lda, b.data(), ldb, beta, c.data(), ldc,
                          then);
    CHECK(all_close(c, expected, rounding<T> * (32 + 2 * static_cast<double>(s.k))));
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
  for (const sizes s :
       {sizes{1, 700, 530}, sizes{2, 67, 513}, sizes{3, 40, 300},  sizes{29, 530, 71},
        sizes{61, 97, 263}, sizes{101, 1, 67}, sizes{131, 1, 300}, sizes{75, 10, 29},
        sizes{40, 5, 600},  sizes{35, 3, 70},  sizes{9, 33, 65},   sizes{131, 1, 2},
        sizes{77, 1, 8},    sizes{1, 1, 300},  sizes{100, 3, 5},   sizes{130, 20, 640},
        sizes{40, 50, 500}, sizes{37, 470, 6}, sizes{5, 230, 40},  sizes{26, 128, 700},
        sizes{3, 3, 700},   sizes{2, 2, 1031}, sizes{1, 3, 700},   sizes{1, 4, 131},
        sizes{9, 4, 150},   sizes{33, 6, 40},  sizes{70, 10, 41}})
    check_forms<T>(s, r);
}

TEST_CASE_TEMPLATE("products of few rows, columns or terms", T, float, double) {
  generator r(23);
  for (const sizes s :
       {sizes{2, 150, 40},  sizes{3, 71, 130}, sizes{90, 2, 40},   sizes{67, 3, 9},
        sizes{70, 4, 33},   sizes{11, 2, 20},  sizes{2, 2, 132},   sizes{7, 3, 90},
        sizes{95, 1, 3},    sizes{1, 70, 2},   sizes{41, 1, 7},    sizes{150, 101, 1},
        sizes{110, 130, 2}, sizes{30, 45, 6},  sizes{95, 7, 170},  sizes{300, 6, 140},
        sizes{7, 33, 4},    sizes{3, 100, 31}, sizes{13, 700, 33}, sizes{40, 30, 3},
        sizes{57, 70, 5},   sizes{33, 200, 6}, sizes{20, 129, 2},  sizes{17, 91, 4}})
    check_forms<T>(s, r);
}

TEST_CASE_TEMPLATE("products that span many blocks", T, float, double) {
  generator r(19);
  for (const sizes s : {sizes{17, 1031, 521}, sizes{19, 170, 1030}, sizes{260, 130, 700},
                        sizes{9, 610, 700}, sizes{40, 50, 1024}, sizes{150, 70, 200}})
    check_forms<T>(s, r);
}

TEST_CASE_TEMPLATE("the bits do not depend on the alignment of pointers", T, float, double) {
  generator r(3);
  // The last two have rows that do not fit in L1.
  for (const sizes& s : {sizes{23, 41, 300}, sizes{2, 67, 513}, sizes{1, 517, 67}}) {
    const dim_t m = s.m, n = s.n, k = s.k;
    const transpose tb = m == 2 ? transpose::yes : transpose::no;
    const guarded<T> a(m * k, r), b(k * n, r);
    for_each_set([&] {
      guarded<T> first(m * n);
      for (dim_t shift = 0; shift < 5; ++shift) {
        guarded<T> a2(m * k, T(0), shift), b2(k * n, T(0), 4 - shift), c(m * n, T(0), shift + 2);
        for (dim_t i = 0; i < m * k; ++i) a2[i] = a[i];
        for (dim_t i = 0; i < k * n; ++i) b2[i] = b[i];
        ikebana::cpu::gemm<T>(transpose::no, tb, m, n, k, T(1), a2.data(), k, b2.data(),
                              tb == transpose::yes ? k : n, T(0), c.data(), n);
        bool same = true;
        for (dim_t i = 0; i < m * n; ++i) {
          if (shift == 0) first[i] = c[i];
          same = same && first[i] == c[i];
        }
        CHECK(same);
      }
    });
  }
}

TEST_CASE_TEMPLATE("what follows a product", T, float, double) {
  generator r(4);
  constexpr activation functions[] = {activation::none,     activation::relu, activation::tanh,
                                      activation::sigmoid,  activation::silu, activation::gelu,
                                      activation::gelu_tanh};
  constexpr activation slopes[] = {activation::none, activation::relu, activation::tanh,
                                   activation::sigmoid};
  unsigned variant = 0;
  for (const sizes s :
       {sizes{1, 37, 40}, sizes{3, 20, 33}, sizes{17, 35, 24}, sizes{37, 6, 40}, sizes{41, 3, 70},
        sizes{20, 1, 19}, sizes{7, 70, 0}, sizes{13, 90, 700}, sizes{5, 230, 4}, sizes{31, 250, 6},
        sizes{80, 23, 9}, sizes{70, 0, 3}, sizes{36, 40, 0}, sizes{70, 30, 50}})
    for (unsigned parts = 0; parts < 8; ++parts)
      for (int t = 0; t < 4; ++t, ++variant)
        check_epilogue<T>(s, t & 1, t & 2, variant % 3 == 0 ? T(0.5) : T(1),
                          variant % 5 == 0   ? T(-0.25)
                          : variant % 5 == 1 ? T(1)
                                             : T(0),
                          parts, functions[variant % 7], slopes[variant / 7 % 4], r);
}

TEST_CASE_TEMPLATE("products of a tile or a few", T, float, double) {
  generator r(7);
  constexpr activation functions[] = {activation::none, activation::relu, activation::none,
                                      activation::tanh};
  for (unsigned i = 0; i < 500; ++i) {
    const sizes s{1 + r.below(i % 3 == 0 ? 5 : 34), 1 + r.below(i % 5 == 0 ? 130 : 34),
                  r.below(i % 7 == 0 ? 70 : 19)};
    check_epilogue<T>(s, i & 1, i & 2, T(1), T(0), i / 4 % 2, functions[i / 8 % 4],
                      i % 11 == 0 ? activation::tanh : activation::none, r);
  }
}

TEST_CASE_TEMPLATE("thin products", T, float, double) {
  generator r(11);
  constexpr activation functions[] = {activation::none, activation::relu, activation::tanh};
  for (unsigned i = 0; i < 160; ++i) {
    const dim_t few = 1 + r.below(14), some = 1 + r.below(i % 4 == 0 ? 260 : 24),
                many = 1 + r.below(500);
    const sizes s = i % 3 == 0   ? sizes{few, many, some}
                    : i % 3 == 1 ? sizes{many, few, some}
                                 : sizes{few, some, many};
    check_epilogue<T>(s, i / 3 & 1, i / 6 & 1, T(1), i % 5 == 0 ? T(1) : T(0),
                      i % 7 == 0 ? i / 7 % 8 : 0, functions[i / 5 % 3], activation::none, r);
  }
  // A few rows or columns at a time of what does not fit in L1.
  for (const sizes& s :
       {sizes{3, 301, 131}, {8, 150, 200}, {11, 131, 260}, {13, 700, 33}, {32, 512, 50}})
    for (const bool ta : {false, true})
      check_epilogue<T>(s, ta, false, T(1), T(0), ta ? 1 : 2, activation::relu, activation::none,
                        r);
}

TEST_CASE_TEMPLATE("a row times a column", T, float, double) {
  generator r(17);
  constexpr activation functions[] = {activation::none, activation::relu, activation::gelu};
  unsigned i = 0;
  for (const dim_t k : {0, 1, 3, 7, 8, 9, 15, 16, 17, 31, 33, 63, 64, 65, 79, 127, 130, 257, 1000})
    for (unsigned t = 0; t < 4; ++t, ++i)
      check_epilogue<T>({1, 1, k}, t & 1, t & 2, i % 5 == 0 ? T(0) : T(0.5),
                        i % 3 == 0 ? T(-0.25) : T(0), i % 4, functions[i / 4 % 3],
                        i % 7 == 0 ? activation::tanh : activation::none, r);
}

TEST_CASE_TEMPLATE("a column without gaps", T, float, double) {
  generator r(13);
  for (unsigned i = 0; i < 48; ++i) {
    const dim_t m = 1 + r.below(90), k = 1 + r.below(i % 3 == 0 ? 150 : 20);
    const guarded<T> a(m * k, r), b(k, r), bias(1, r), residual(m, r), before(m, r);
    ikebana::cpu::gemm_epilogue<T> then;
    if (i & 1) then.bias = bias.data();
    if (i & 2) then.residual = residual.data(), then.ld_residual = 1;
    if (i & 4) then.function = activation::relu;
    const T alpha = i & 8 ? T(0.5) : T(1), beta = i & 16 ? T(2) : T(0);
    std::vector<double> expected(static_cast<std::size_t>(m));
    for (dim_t j = 0; j < m; ++j) {
      double x = static_cast<double>(beta * before[j]);
      for (dim_t q = 0; q < k; ++q) x += static_cast<double>(alpha * a[j * k + q]) * b[q];
      if (i & 1) x += static_cast<double>(bias[0]);
      if (i & 2) x += static_cast<double>(residual[j]);
      expected[static_cast<std::size_t>(j)] = i & 4 ? apply(activation::relu, x) : x;
    }
    for_each_set([&] {
      INFO("m " << m << " k " << k << " variant " << i);
      guarded<T> c(m);
      for (dim_t j = 0; j < m; ++j) c[j] = before[j];
      ikebana::cpu::gemm<T>(transpose::no, i % 5 ? transpose::no : transpose::yes, m, 1, k, alpha,
                            a.data(), k, b.data(), i % 5 ? 1 : k, beta, c.data(), 1, then);
      CHECK(all_close(c, expected, rounding<T> * (32 + 2 * static_cast<double>(k))));
      CHECK(c.intact());
    });
  }
}

TEST_CASE_TEMPLATE("an element's bits do not depend on the rows and columns beside it", T, float,
                   double) {
  generator r(5);
  const dim_t m = 61, n = 150, k = 77;
  const guarded<T> a(m * k, r), b(k * n, r), bias(n, r);
  for_each_set([&] {
    guarded<T> whole(m * n), part(m * n);
    ikebana::cpu::gemm<T>(transpose::no, transpose::no, m, n, k, T(1), a.data(), k, b.data(), n,
                          T(0), whole.data(), n, bias.data());
    for (const dim_t rows : {dim_t{1}, dim_t{2}, dim_t{13}, dim_t{40}})
      for (const dim_t columns : {dim_t{17}, dim_t{64}, dim_t{149}}) {
        ikebana::cpu::gemm<T>(transpose::no, transpose::no, rows, columns, k, T(1), a.data(), k,
                              b.data() + (n - columns), n, T(0), part.data(), n,
                              bias.data() + (n - columns));
        bool same = true;
        for (dim_t i = 0; i < rows; ++i)
          for (dim_t j = 0; j < columns; ++j)
            same = same && part[i * n + j] == whole[i * n + (n - columns) + j];
        INFO("rows " << rows << " columns " << columns);
        CHECK(same);
      }
  });
}

TEST_CASE_TEMPLATE("not-a-number and infinity go where they belong and nowhere else", T, float,
                   double) {
  constexpr T nan = std::numeric_limits<T>::quiet_NaN(), inf = std::numeric_limits<T>::infinity();
  for (const sizes s : {sizes{9, 21, 18}, sizes{40, 5, 40}, sizes{2, 33, 50}})
    for (int t = 0; t < 4; ++t) {
      const bool ta = t & 1, tb = t & 2;
      const dim_t lda = ta ? s.m : s.k, ldb = tb ? s.k : s.n;
      guarded<T> a(s.m * s.k, T(1)), b(s.k * s.n, T(1));
      a[ta ? 2 * lda + 1 : lda + 2] = nan;
      b[tb ? 3 * ldb + 4 : 4 * ldb + 3] = inf;
      for_each_set([&] {
        guarded<T> c(s.m * s.n, nan);
        ikebana::cpu::gemm<T>(ta ? transpose::yes : transpose::no,
                              tb ? transpose::yes : transpose::no, s.m, s.n, s.k, T(1), a.data(),
                              lda, b.data(), ldb, T(0), c.data(), s.n,
                              {.function = activation::relu});
        bool right = true;
        for (dim_t i = 0; i < s.m; ++i)
          for (dim_t j = 0; j < s.n; ++j) {
            const T x = c[i * s.n + j];
            right = right && (i == 1 ? std::isnan(x) : x == (j == 3 ? inf : static_cast<T>(s.k)));
          }
        CHECK(right);
      });
    }
}

TEST_CASE_TEMPLATE("factors of one step may be one number", T, float, double) {
  generator r(17);
  const dim_t m = 3, n = 5;
  const guarded<T> a(1, r), b(1, r);
  for_each_set([&] {
    for (const transpose ta : {transpose::no, transpose::yes})
      for (const transpose tb : {transpose::no, transpose::yes}) {
        guarded<T> c(m * n);
        ikebana::cpu::gemm<T>(ta, tb, ta == transpose::no ? m : 1, tb == transpose::yes ? n : 1, 1,
                              T(1), a.data(), 0, b.data(), 0, T(0), c.data(), n);
        for (dim_t i = 0; i < (ta == transpose::no ? m : 1); ++i)
          for (dim_t j = 0; j < (tb == transpose::yes ? n : 1); ++j)
            CHECK(c[i * n + j] == a[0] * b[0]);
        CHECK(c.intact());
      }
  });
}

TEST_CASE_TEMPLATE("a batch is as many products, each as by itself", T, float, double) {
  generator r(6);
  const dim_t m = 7, n = 21, k = 13, count = 5;
  const guarded<T> a(count * m * k, r), b(k * n, r);
  for_each_set([&] {
    guarded<T> all(count * m * n, T(2)), one(count * m * n, T(2));
    ikebana::cpu::gemm_batched<T>(count, transpose::no, transpose::no, m, n, k, T(1), a.data(), k,
                                  m * k, b.data(), n, 0, T(1), all.data(), n, m * n);
    for (dim_t i = 0; i < count; ++i)
      ikebana::cpu::gemm<T>(transpose::no, transpose::no, m, n, k, T(1), a.data() + i * m * k, k,
                            b.data(), n, T(1), one.data() + i * m * n, n);
    bool same = true;
    for (dim_t i = 0; i < count * m * n; ++i) same = same && all[i] == one[i];
    CHECK(same);
    CHECK(all.intact());
  });
}

TEST_CASE_TEMPLATE("the slope of relu passes on what belongs to not-a-number, as relu_backward", T,
                   float, double) {
  const T nan = std::numeric_limits<T>::quiet_NaN();
  for_each_set([&] {
    for (const dim_t m : {1, 2, 9, 40})
      for (const dim_t n : {1, 3, 17, 70})
        for (const dim_t k : {1, 5, 70}) {
          INFO("m " << m << " n " << n << " k " << k);
          const guarded<T> a(m * k, T(1)), b(k * n, T(1));
          guarded<T> y(m * n), c(m * n);
          for (dim_t i = 0; i < m * n; ++i) y[i] = i % 3 == 0 ? nan : i % 3 == 1 ? T(2) : T(0);
          ikebana::cpu::gemm_epilogue<T> then;
          then.slope_of = y.data();
          then.ld_slope = n;
          then.slope = activation::relu;
          ikebana::cpu::gemm<T>(transpose::no, transpose::no, m, n, k, T(1), a.data(), k, b.data(),
                                n, T(0), c.data(), n, then);
          dim_t wrong = 0;
          for (dim_t i = 0; i < m * n; ++i)
            wrong += c[i] != (i % 3 == 2 ? T(0) : static_cast<T>(k));
          CHECK(wrong == 0);
        }
  });
}

namespace {

using ikebana::cpu::gemm_algorithm;

/// Sizes of every class that the table of algorithms tells apart.
constexpr sizes classes[] = {{1, 1, 70},   {1, 40, 33},    {1, 300, 120}, {40, 1, 33}, {300, 1, 40},
                             {5, 50, 80},  {50, 3, 80},    {70, 6, 40},   {70, 12, 9}, {3, 200, 2},
                             {20, 90, 70}, {90, 100, 400}, {37, 130, 37}, {4, 4, 4},   {7, 3, 5},
                             {20, 100, 9}, {50, 6, 20},    {9, 40, 1},    {31, 33, 64}};

template <class T>
struct product_of {
  sizes s;
  bool ta, tb;
  T alpha;
  guarded<T> a, b, bias;

  product_of(const sizes& of, bool turned_a, bool turned_b, T scale, generator& r)
      : s(of),
        ta(turned_a),
        tb(turned_b),
        alpha(scale),
        a(s.m * s.k, r),
        b(s.k * s.n, r),
        bias(s.n, r) {}

  ikebana::cpu::gemm_call<T> call(
      T* c, const ikebana::cpu::gemm_epilogue<T>& then,
      ikebana::cpu::gemm_order order = ikebana::cpu::gemm_order::by_all_sizes) const {
    return {s.m,
            s.n,
            s.k,
            a.data(),
            ta ? s.m : s.k,
            b.data(),
            tb ? s.k : s.n,
            c,
            s.n,
            &then,
            alpha,
            T(0),
            ta ? transpose::yes : transpose::no,
            tb ? transpose::yes : transpose::no,
            order};
  }
};

template <class T>
bool same(const guarded<T>& a, const guarded<T>& b, dim_t n) {
  return std::memcmp(a.data(), b.data(), static_cast<std::size_t>(n) * sizeof(T)) == 0;
}

}  // namespace

TEST_CASE_TEMPLATE("every algorithm that applies makes the product, in its order with its bits", T,
                   float, double) {
  generator r(11);
  int made[std::size(ikebana::cpu::gemm_table)] = {};
  for (const sizes& s : classes)
    for (int t = 0; t < 16; ++t) {
      if ((t & 9) == 9) continue;  // An order by columns and terms is one of rows of a.
      const product_of<T> p(s, t & 1, t & 2, t & 4 ? T(1.5) : T(1), r);
      std::vector<double> expected(static_cast<std::size_t>(s.m * s.n));
      for (dim_t i = 0; i < s.m; ++i)
        for (dim_t j = 0; j < s.n; ++j) {
          double x = 0;
          for (dim_t q = 0; q < s.k; ++q)
            x += static_cast<double>(p.a[p.ta ? q * s.m + i : i * s.k + q]) *
                 static_cast<double>(p.b[p.tb ? j * s.k + q : q * s.n + j]);
          expected[static_cast<std::size_t>(i * s.n + j)] =
              x * static_cast<double>(p.alpha) + static_cast<double>(p.bias[j]);
        }
      const ikebana::cpu::gemm_epilogue<T> then{.bias = p.bias.data()};
      const auto order = t & 8 ? ikebana::cpu::gemm_order::by_columns_and_terms
                               : ikebana::cpu::gemm_order::by_all_sizes;
      for_each_set([&] {
        guarded<T> firsts[2] = {guarded<T>(s.m * s.n), guarded<T>(s.m * s.n)}, c(s.m * s.n);
        bool made_before[2] = {};
        for (const auto& entry : ikebana::cpu::gemm_table) {
          const gemm_algorithm a = entry.algorithm;
          INFO(std::string(name(a))
               << ", m " << s.m << " n " << s.n << " k " << s.k << " form " << t);
          const int kind = ikebana::cpu::sums_in_order(a);
          guarded<T>& to = made_before[kind] ? c : firsts[kind];
          if (!ikebana::cpu::detail::run_gemm_by(a, p.call(to.data(), then, order))) continue;
          ++made[static_cast<int>(a)];
          CHECK(all_close(to, expected, rounding<T> * (32 + 2 * static_cast<double>(s.k))));
          CHECK(to.intact());
          if (made_before[kind]) CHECK(same(firsts[kind], c, s.m * s.n));
          made_before[kind] = true;
        }
        const auto call = p.call(c.data(), then, order);
        ikebana::cpu::detail::make_product(call);
        const bool in_order =
            ikebana::cpu::sums_in_order(ikebana::cpu::detail::gemm_algorithm_of(call));
        INFO("as chosen, m " << s.m << " n " << s.n << " k " << s.k << " form " << t);
        CHECK(same(firsts[in_order], c, s.m * s.n));
        CHECK(c.intact());
      });
    }
  for (const auto& entry : ikebana::cpu::gemm_table) {
    const gemm_algorithm a = entry.algorithm;
    // Without vectors there are tiles alone.
    if (a < gemm_algorithm::tiles_in_place && !has_vectors()) continue;
    INFO(std::string(name(a)));
    CHECK(made[static_cast<int>(a)] > 0);
  }
}

TEST_CASE_TEMPLATE("a row has the same bits among any number of others, by columns and terms", T,
                   float, double) {
  generator r(18);
  constexpr dim_t most = 90;
  for (const sizes& s :
       {sizes{most, 1, 1}, sizes{most, 7, 1}, sizes{most, 1, 2}, sizes{most, 1, 9},
        sizes{most, 3, 70}, sizes{most, 8, 40}, sizes{most, 50, 60}, sizes{most, 50, 300},
        sizes{most, 20, 259}, sizes{most, 130, 270}, sizes{most, 7, 2000}})
    for (const bool tb : {false, true}) {
      const product_of<T> p(s, false, tb, T(1), r);
      const guarded<T> residual(most * s.n, r);
      for (unsigned parts = 0; parts < 4; ++parts) {
        ikebana::cpu::gemm_epilogue<T> then;
        then.function = parts == 2 ? activation::tanh : activation::relu;
        if (parts & 1) then.bias = p.bias.data();
        if (parts & 2) then.residual = residual.data(), then.ld_residual = s.n;
        for_each_set([&] {
          const auto run = [&](dim_t from, dim_t rows, T* c) {
            auto call = p.call(c, then, ikebana::cpu::gemm_order::by_columns_and_terms);
            ikebana::cpu::gemm_epilogue<T> part = then;
            if (parts & 2) part.residual += from * s.n;
            call.then = &part;
            call.m = rows;
            call.a += from * s.k;
            ikebana::cpu::detail::make_product(call);
          };
          guarded<T> all(most * s.n), some(most * s.n);
          run(0, most, all.data());
          for (const dim_t rows : {1, 2, 3, 4, 5, 6, 8, 9, 14, 20, 31, 63, 64, 65})
            for (const dim_t from : {dim_t{0}, most - rows}) {
              run(from, rows, some.data());
              INFO(rows << " rows, n " << s.n << " k " << s.k << " transposed " << tb << " parts "
                        << parts);
              CHECK(std::memcmp(some.data(), all.data() + from * s.n,
                                static_cast<std::size_t>(rows * s.n) * sizeof(T)) == 0);
            }
        });
      }
    }
}

TEST_CASE_TEMPLATE("bits do not depend on the caches that were found", T, float, double) {
  generator r(12);
  const dim_t kib = 1024;
  struct levels {
    dim_t first, second;
  };
  const ikebana::cpu::detail::cache_sizes found = ikebana::cpu::detail::caches();
  const auto pretend = [](dim_t first, dim_t second) {
    ikebana::cpu::detail::second_level_bytes = second;
    ikebana::cpu::detail::first_level_bytes = first;
  };
  for (const sizes& s : {sizes{100, 16, 200}, sizes{200, 300, 900}, sizes{3, 900, 700},
                         sizes{1, 700, 900}, sizes{900, 5, 90}, sizes{130, 140, 1200}})
    for (int t = 0; t < 4; ++t) {
      const product_of<T> p(s, t & 1, t & 2, T(1), r);
      const ikebana::cpu::gemm_epilogue<T> then{.bias = p.bias.data()};
      for_each_set([&] {
        using enum ikebana::cpu::gemm_order;
        const auto order = t & 1 ? by_all_sizes : by_columns_and_terms;
        guarded<T> expected(s.m * s.n), c(s.m * s.n);
        ikebana::cpu::detail::run_gemm(p.call(expected.data(), then, order));
        for (const levels& l : {levels{16 * kib, 64 * kib}, levels{32 * kib, 256 * kib},
                                levels{48 * kib, 2048 * kib}})
          // A thread of its own, whose packing buffers are as large as the caches ask for.
          std::thread([&] {
            pretend(l.first, l.second);
            ikebana::cpu::detail::run_gemm(p.call(c.data(), then, order));
            pretend(found.first, found.second);
            INFO("caches of " << l.first << " and " << l.second << ", m " << s.m << " n " << s.n
                              << " k " << s.k << " form " << t);
            CHECK(same(expected, c, s.m * s.n));
          }).join();
      });
    }
}
