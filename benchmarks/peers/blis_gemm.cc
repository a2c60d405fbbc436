#include "benchmarks/gemm_peers.hpp"

#ifdef IKEBANA_HAS_BLIS

// BLIS's own interface: its BLAS interface would resolve to OpenBLAS in this program.
#include <blis.h>

namespace bench {
namespace {

void multiply(const gemm_problem<float>& p, float* one, float* zero) {
  bli_sgemm(p.ta ? BLIS_TRANSPOSE : BLIS_NO_TRANSPOSE, p.tb ? BLIS_TRANSPOSE : BLIS_NO_TRANSPOSE,
            p.m, p.n, p.k, one, const_cast<float*>(p.a), p.lda(), 1, const_cast<float*>(p.b),
            p.ldb(), 1, zero, p.result, p.n, 1);
}
void multiply(const gemm_problem<double>& p, double* one, double* zero) {
  bli_dgemm(p.ta ? BLIS_TRANSPOSE : BLIS_NO_TRANSPOSE, p.tb ? BLIS_TRANSPOSE : BLIS_NO_TRANSPOSE,
            p.m, p.n, p.k, one, const_cast<double*>(p.a), p.lda(), 1, const_cast<double*>(p.b),
            p.ldb(), 1, zero, p.result, p.n, 1);
}
void multiply_vector(bool t, dim_t rows, dim_t columns, float* a, float* x, float* y, float* one,
                     float* zero) {
  bli_sgemv(t ? BLIS_TRANSPOSE : BLIS_NO_TRANSPOSE, BLIS_NO_CONJUGATE, rows, columns, one, a,
            columns, 1, x, 1, zero, y, 1);
}
void multiply_vector(bool t, dim_t rows, dim_t columns, double* a, double* x, double* y,
                     double* one, double* zero) {
  bli_dgemv(t ? BLIS_TRANSPOSE : BLIS_NO_TRANSPOSE, BLIS_NO_CONJUGATE, rows, columns, one, a,
            columns, 1, x, 1, zero, y, 1);
}

template <class T>
timed prepare(const gemm_problem<T>& p) {
  return repeated([p, one = T{1}, zero = T{0}]() mutable {
    if (p.m == 1 || p.n == 1) {
      const bool of_row = p.m == 1, transposed = of_row ? !p.tb : p.ta;
      const dim_t length = of_row ? p.n : p.m;
      multiply_vector(transposed, transposed ? p.k : length, transposed ? length : p.k,
                      const_cast<T*>(of_row ? p.b : p.a), const_cast<T*>(of_row ? p.a : p.b),
                      p.result, &one, &zero);
    } else {
      multiply(p, &one, &zero);
    }
    if (p.has_epilogue()) apply_epilogue(p);
  });
}

}  // namespace

gemm_peer blis_gemm() {
  bli_init();
  return {"BLIS",
          std::string{bli_info_get_version_str()} + ", " + bli_arch_string(bli_arch_query_id()),
          "libblis-dev",
          {prepare<float>, prepare<double>}};
}

}  // namespace bench

#else

bench::gemm_peer bench::blis_gemm() { return absent<gemm_peer>("BLIS", "libblis-dev"); }

#endif
