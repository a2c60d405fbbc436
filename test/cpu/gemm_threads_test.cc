#include <utility>
#include <vector>

#include "ikebana/cpu/gemm.hpp"
#include "ikebana/cpu/threads.hpp"
#include "support.hpp"

using namespace cpu_test;
using ikebana::scoped_num_threads;
using ikebana::cpu::activation;
using ikebana::cpu::transpose;

namespace {

struct sizes {
  dim_t m, n, k;
};

constexpr transpose as(bool t) { return t ? transpose::yes : transpose::no; }

template <class T>
bool same(const guarded<T>& x, const guarded<T>& y, dim_t n) {
  for (dim_t i = 0; i < n; ++i)
    if (x[i] != y[i]) return false;
  return true;
}

/// A product on 1, 2 and 3 threads.
template <class T>
void check(const sizes& s, bool ta, bool tb, T alpha, T beta, bool with_epilogue, generator& r) {
  const dim_t lda = (ta ? s.m : s.k) + 1, ldb = (tb ? s.k : s.n) + 2, ldc = s.n + 3;
  const guarded<T> a((ta ? s.k : s.m) * lda, r), b((tb ? s.n : s.k) * ldb, r), bias(s.n, r),
      residual(s.m * ldc, r), slope_of(s.m * ldc, r), before(s.m * ldc, r);
  ikebana::cpu::gemm_epilogue<T> then;
  if (with_epilogue)
    then = {bias.data(), residual.data(),    ldc, activation::tanh, slope_of.data(),
            ldc,         activation::sigmoid};
  for_each_set([&] {
    INFO("m " << s.m << " n " << s.n << " k " << s.k << " transposed " << ta << tb << " alpha "
              << alpha << " beta " << beta << " epilogue " << with_epilogue);
    guarded<T> alone(s.m * ldc);
    for (const int threads : {1, 2, 3}) {
      const scoped_num_threads scope(threads);
      guarded<T> c(s.m * ldc);
      for (dim_t i = 0; i < s.m * ldc; ++i) c[i] = before[i];
      ikebana::cpu::gemm<T>(as(ta), as(tb), s.m, s.n, s.k, alpha, a.data(), lda, b.data(), ldb,
                            beta, c.data(), ldc, then);
      CHECK(c.intact());
      if (threads == 1)
        for (dim_t i = 0; i < s.m * ldc; ++i) alone[i] = c[i];
      else
        CHECK(same(c, alone, s.m * ldc));
    }
  });
}

}  // namespace

TEST_CASE_TEMPLATE("the bits of a product do not depend on the number of threads", T, float,
                   double) {
  generator r(1);
  int variant = 0;
  for (const sizes s :
       {sizes{131, 137, 139}, sizes{97, 193, 127}, sizes{9, 1000, 257}, sizes{8, 700, 400},
        sizes{1, 1500, 1500}, sizes{1500, 1, 1500}, sizes{2, 1100, 1000}, sizes{1000, 3, 800},
        sizes{5000, 10, 64}, sizes{1203, 17, 110}, sizes{700, 47, 70}, sizes{400, 49, 113},
        sizes{600, 96, 40}, sizes{1024, 128, 64}, sizes{520, 65, 64}, sizes{33, 2000, 37},
        sizes{50, 60, 800}, sizes{23, 95, 1000}})
    for (int t = s.m & 1; t < 4; t += 2, ++variant)
      check<T>(s, t & 1, t & 2, variant % 3 == 0 ? T(-0.5) : T(1), variant % 5 < 2 ? T(0.5) : T(0),
               variant % 4 == 1, r);
}

TEST_CASE("products that are worth two threads are not small") {
  const ikebana::cpu::gemm_epilogue<float> then;
  const auto small = [&](dim_t m, dim_t n, dim_t k) {
    return ikebana::cpu::detail::is_small(ikebana::cpu::gemm_call<float>{
        m, n, k, nullptr, k, nullptr, n, nullptr, n, &then, 1.0f, 0.0f, as(false), as(false)});
  };
  CHECK(small(256, 128, 64));
  CHECK(!small(257, 128, 64));
  CHECK(small(1024, 32, 64));
  CHECK(!small(1024, 33, 64));
}

TEST_CASE_TEMPLATE("nor do those of one column of one step", T, float, double) {
  generator r(3);
  const dim_t m = 2 * (1 << 20) + 1000;
  const guarded<T> a(m, r), b(1, r), bias(1, r), residual(m, r);
  const ikebana::cpu::gemm_epilogue<T> then{
      .bias = bias.data(), .residual = residual.data(), .ld_residual = 1};
  for_each_set([&] {
    guarded<T> alone(m);
    for (const int threads : {1, 2}) {
      const scoped_num_threads scope(threads);
      guarded<T> c(m);
      ikebana::cpu::gemm<T>(transpose::no, transpose::no, m, 1, 1, T(1), a.data(), 1, b.data(), 1,
                            T(0), c.data(), 1, then);
      if (threads == 1)
        std::swap(alone, c);
      else
        CHECK(same(c, alone, m));
    }
  });
}

TEST_CASE_TEMPLATE("nor do those of many products", T, float, double) {
  generator r(2);
  for (const sizes s : {sizes{5, 7, 11}, sizes{40, 33, 29}, sizes{1, 64, 32}}) {
    const dim_t count = 2 * (1 << 20) / (s.m * s.n * s.k) + 17;
    const guarded<T> a(count * s.m * s.k, r), b(s.k * s.n, r);
    for_each_set([&] {
      guarded<T> alone(count * s.m * s.n);
      for (const int threads : {1, 2, 3}) {
        const scoped_num_threads scope(threads);
        guarded<T> c(count * s.m * s.n);
        ikebana::cpu::gemm_batched<T>(count, transpose::no, transpose::no, s.m, s.n, s.k, T(1),
                                      a.data(), s.k, s.m * s.k, b.data(), s.n, 0, T(0), c.data(),
                                      s.n, s.m * s.n);
        CHECK(c.intact());
        if (threads == 1)
          for (dim_t i = 0; i < count * s.m * s.n; ++i) alone[i] = c[i];
        else
          CHECK(same(c, alone, count * s.m * s.n));
      }
    });
  }
}
