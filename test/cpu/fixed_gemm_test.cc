#include "ikebana/cpu/fixed_gemm.hpp"

#include <limits>

#include "support.hpp"

using namespace cpu_test;
using ikebana::cpu::transpose;

namespace {

template <class T, dim_t M, dim_t N, dim_t K, transpose A, transpose B>
void check_one(generator& r) {
  const guarded<T> a(M * K, r), b(K * N, r);
  std::vector<double> expected(static_cast<std::size_t>(M * N));
  for (dim_t i = 0; i < M; ++i)
    for (dim_t j = 0; j < N; ++j) {
      double& sum = expected[static_cast<std::size_t>(i * N + j)];
      for (dim_t q = 0; q < K; ++q)
        sum += static_cast<double>(a[A == transpose::no ? i * K + q : q * M + i]) *
               static_cast<double>(b[B == transpose::no ? q * N + j : j * K + q]);
    }
  for_each_set([&] {
    INFO("m " << M << " n " << N << " k " << K << " transposed " << (A == transpose::yes)
              << (B == transpose::yes));
    guarded<T> c(M * N, std::numeric_limits<T>::quiet_NaN());
    ikebana::cpu::fixed_gemm<M, N, K, A, B>(a.data(), b.data(), c.data());
    CHECK(all_close(c, expected, rounding<T> * (16 + 0.5 * static_cast<double>(K))));
    CHECK(c.intact());
  });
}

template <class T, dim_t M, dim_t N, dim_t K>
void check(generator& r) {
  check_one<T, M, N, K, transpose::no, transpose::no>(r);
  check_one<T, M, N, K, transpose::yes, transpose::no>(r);
}

}  // namespace

TEST_CASE_TEMPLATE("products of sizes that the compiler knows", T, float, double) {
  constexpr dim_t widest = 128 / dim_t{sizeof(T)};
  generator r(1);
  check<T, 1, 1, 1>(r);
  check<T, 3, 3, 5>(r);
  check<T, 4, 4, 4>(r);
  check<T, 7, 7, 7>(r);
  check<T, 8, 8, 8>(r);
  check<T, 13, 12, 9>(r);
  check_one<T, 16, 16, 32, transpose::no, transpose::no>(r);
  check<T, 11, widest - 1, 17>(r);
  check<T, 1, widest, 3>(r);
}

// From the headers alone, compiling all kernels that they may need would take half a minute.
#ifdef IKEBANA_EXTERN_KERNELS
TEST_CASE_TEMPLATE("those that have no code of their own", T, float, double) {
  generator r(2);
  check<T, 0, 3, 2>(r);
  check<T, 3, 0, 2>(r);
  check<T, 2, 3, 0>(r);
  check<T, 17, 5, 6>(r);
  check<T, 11, 19, 17>(r);
  check<T, 3, 40, 6>(r);
  check<T, 3, 5, 70>(r);
  check_one<T, 6, 5, 7, transpose::no, transpose::yes>(r);
  check_one<T, 6, 5, 7, transpose::yes, transpose::yes>(r);
}
#endif
