#pragma once

#include "benchmarks/contest.hpp"

namespace bench {

/// result = op(a) op(b), row-major and dense; then with bias (one for each column) and residual
/// added where given, then rectified if asked for.
template <class T>
struct gemm_problem {
  bool ta = false, tb = false;
  dim_t m = 0, n = 0, k = 0;
  const T *a = nullptr, *b = nullptr, *bias = nullptr, *residual = nullptr;
  bool relu = false;
  T* result = nullptr;

  dim_t lda() const { return ta ? m : k; }
  dim_t ldb() const { return tb ? k : n; }
  bool has_epilogue() const { return bias != nullptr || residual != nullptr || relu; }
};

using gemm_peer = peer<gemm_problem<float>, gemm_problem<double>>;

gemm_peer openblas_gemm();
gemm_peer blis_gemm();
gemm_peer eigen_native_gemm();
gemm_peer eigen_avx2_gemm();
gemm_peer libxsmm_gemm();
gemm_peer onednn_gemm();

/// What a peer without epilogues needs: a pass over the product, here made by the compiler for this
/// very machine.
template <class T>
void apply_epilogue(const gemm_problem<T>& p) {
  for (dim_t i = 0; i < p.m; ++i) {
    T* row = p.result + i * p.n;
    if (p.bias != nullptr)
      for (dim_t j = 0; j < p.n; ++j) row[j] += p.bias[j];
    if (p.residual != nullptr)
      for (dim_t j = 0; j < p.n; ++j) row[j] += p.residual[i * p.n + j];
    if (p.relu)
      for (dim_t j = 0; j < p.n; ++j) row[j] = row[j] > 0 ? row[j] : T{0};
  }
}

}  // namespace bench
