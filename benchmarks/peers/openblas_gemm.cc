#include "benchmarks/gemm_peers.hpp"

#ifdef IKEBANA_HAS_OPENBLAS

#include <cblas-openblas.h>
#include <dlfcn.h>

namespace bench {
namespace {

/// OpenBLAS's function: BLIS defines the same names, and the linker takes the first.
template <class F>
F* of_openblas(F*, const char* name) {
  static void* const library = [] {
    Dl_info here{};
    dladdr(reinterpret_cast<const void*>(&openblas_get_config), &here);
    return dlopen(here.dli_fname, RTLD_NOW);
  }();
  return reinterpret_cast<F*>(dlsym(library, name));
}
#define BENCH_OF_OPENBLAS(f) of_openblas(&f, #f)

void multiply(CBLAS_TRANSPOSE ta, CBLAS_TRANSPOSE tb, const gemm_problem<float>& p) {
  static const auto f = BENCH_OF_OPENBLAS(cblas_sgemm);
  f(CblasRowMajor, ta, tb, static_cast<blasint>(p.m), static_cast<blasint>(p.n),
    static_cast<blasint>(p.k), 1, p.a, static_cast<blasint>(p.lda()), p.b,
    static_cast<blasint>(p.ldb()), 0, p.result, static_cast<blasint>(p.n));
}
void multiply(CBLAS_TRANSPOSE ta, CBLAS_TRANSPOSE tb, const gemm_problem<double>& p) {
  static const auto f = BENCH_OF_OPENBLAS(cblas_dgemm);
  f(CblasRowMajor, ta, tb, static_cast<blasint>(p.m), static_cast<blasint>(p.n),
    static_cast<blasint>(p.k), 1, p.a, static_cast<blasint>(p.lda()), p.b,
    static_cast<blasint>(p.ldb()), 0, p.result, static_cast<blasint>(p.n));
}
void multiply_vector(CBLAS_TRANSPOSE t, blasint rows, blasint columns, const float* a,
                     const float* x, float* y) {
  static const auto f = BENCH_OF_OPENBLAS(cblas_sgemv);
  f(CblasRowMajor, t, rows, columns, 1, a, columns, x, 1, 0, y, 1);
}
void multiply_vector(CBLAS_TRANSPOSE t, blasint rows, blasint columns, const double* a,
                     const double* x, double* y) {
  static const auto f = BENCH_OF_OPENBLAS(cblas_dgemv);
  f(CblasRowMajor, t, rows, columns, 1, a, columns, x, 1, 0, y, 1);
}

template <class T>
timed prepare(const gemm_problem<T>& p) {
  const bool of_row = p.m == 1;
  if (of_row || p.n == 1) {
    // The matrix as stored, and whether it is transposed.
    const bool transposed = of_row ? !p.tb : p.ta;
    const T *matrix = of_row ? p.b : p.a, *vector = of_row ? p.a : p.b;
    const dim_t length = of_row ? p.n : p.m;
    return repeated([=] {
      multiply_vector(transposed ? CblasTrans : CblasNoTrans,
                      static_cast<blasint>(transposed ? p.k : length),
                      static_cast<blasint>(transposed ? length : p.k), matrix, vector, p.result);
      if (p.has_epilogue()) apply_epilogue(p);
    });
  }
  return repeated([=] {
    multiply(p.ta ? CblasTrans : CblasNoTrans, p.tb ? CblasTrans : CblasNoTrans, p);
    if (p.has_epilogue()) apply_epilogue(p);
  });
}

}  // namespace

gemm_peer openblas_gemm() {
  const std::string version = openblas_get_config();
  return {"OpenBLAS",
          version.substr(9, version.find(' ', 9) - 9) + ", " + openblas_get_corename(),
          "libopenblas-dev",
          {prepare<float>, prepare<double>}};
}

}  // namespace bench

#else

bench::gemm_peer bench::openblas_gemm() { return absent<gemm_peer>("OpenBLAS", "libopenblas-dev"); }

#endif
