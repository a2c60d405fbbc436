#include "ikebana/cpu/gemm/narrow_tiles.hpp"

#include <cstddef>
#include <cstring>
#include <vector>

#include "ikebana/cpu/gemm.hpp"
#include "support.hpp"

using namespace cpu_test;
namespace cpu = ikebana::cpu;
using cpu::transpose;
using cpu::detail::narrow_tiles_of;

namespace {

constexpr transpose no = transpose::no, yes = transpose::yes;

/// The tiles of N columns and K terms give the bits that all of them give, for any rows.
template <class T, transpose A, transpose B, dim_t N, dim_t K>
void check() {
  constexpr unsigned narrow = narrow_tiles_of<T>(A, B, N, K);
  generator random{1};
  for (const dim_t m : {1, 2, 3, 4, 7, 9, 11, 13, 17, 40}) {
    INFO("m " << m << " n " << N << " k " << K << " transposed " << (A == yes) << (B == yes));
    const guarded<T> a(m * K, random), b(N * K, random);
    guarded<T> some(m * N), all(m * N);
    const dim_t lda = A == yes ? m : K, ldb = B == yes ? K : N;
    cpu::gemm<T, narrow>(A, B, m, N, K, 1, a.data(), lda, b.data(), ldb, 0, some.data(), N);
    cpu::gemm<T>(A, B, m, N, K, 1, a.data(), lda, b.data(), ldb, 0, all.data(), N);
    CHECK(std::memcmp(some.data(), all.data(), static_cast<std::size_t>(m * N) * sizeof(T)) == 0);
  }
}
template <class T, dim_t N, dim_t K>
void check_all() {
  check<T, no, no, N, K>();
  check<T, yes, no, N, K>();
  check<T, no, yes, N, K>();
}
template <class T>
void check_sizes() {
  check_all<T, 1, 1>();
  check_all<T, 3, 20>();
  check_all<T, 8, 1>();
  check_all<T, 16, 40>();
  check_all<T, 36, 5>();
  check_all<T, 40, 24>();
  check_all<T, 68, 3>();
  check_all<T, 80, 8>();
  check_all<T, 104, 60>();
}

}  // namespace

TEST_CASE("tiles that a product's sizes rule out are none that it would take") {
  for_each_set([] {
    check_sizes<float>();
    check_sizes<double>();
  });
}

TEST_CASE("what is not known of sizes has tiles for any") {
  CHECK(narrow_tiles_of<float>(no, no, -1, 300) == cpu::detail::narrow_tile::all);
  for (const dim_t n : {1, 4, 16, 20, 72, 400})
    for (const dim_t k : {1, 9, 50, 64})
      for (const transpose a : {no, yes})
        for (const transpose b : {no, yes}) {
          const unsigned known = narrow_tiles_of<double>(a, b, n, k);
          CHECK((known & ~narrow_tiles_of<double>(a, b, n, -1)) == 0);
        }
}
