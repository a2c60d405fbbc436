#pragma once

#include "benchmarks/contest.hpp"

namespace bench {

/// result = op(a) op(b), row-major and dense; then bias (one per column) and residual are added if
/// given, then ReLU if requested.
template <class T>
struct gemm_problem {
  bool ta = false, tb = false;
  dim_t m = 0, n = 0, k = 0;
  const T *a = nullptr, *b = nullptr, *bias = nullptr, *residual = nullptr;
  bool relu = false;
  bool at_run_time = false;  ///< As if sizes were not compile-time constants.
  T* result = nullptr;

  dim_t lda() const { return ta ? m : k; }
  dim_t ldb() const { return tb ? k : n; }
  bool has_epilogue() const { return bias != nullptr || residual != nullptr || relu; }
};

template <dim_t M, dim_t K, dim_t N>
struct known_sizes {};

/// Small products of sizes that can be compile-time constants: `make` returns a separate call for
/// each; nothing for others.
template <class T, class F>
timed of_known_sizes(const gemm_problem<T>& p, F make) {
  timed made;
  if (p.at_run_time || p.tb || p.has_epilogue()) return made;
  const auto offer = [&]<dim_t M, dim_t K, dim_t N>(known_sizes<M, K, N> s) {
    if (p.m == M && p.k == K && p.n == N) made = make(s);
  };
  offer(known_sizes<4, 4, 4>{});
  offer(known_sizes<8, 8, 8>{});
  offer(known_sizes<16, 16, 16>{});
  offer(known_sizes<3, 5, 7>{});
  offer(known_sizes<7, 7, 7>{});
  return made;
}

using gemm_peer = peer<gemm_problem<float>, gemm_problem<double>>;

gemm_peer openblas_gemm();
gemm_peer blis_gemm();
gemm_peer eigen_native_gemm();
gemm_peer eigen_avx2_gemm();
gemm_peer libxsmm_gemm();
gemm_peer onednn_gemm();

/// For a peer without epilogues: a separate pass over the product, compiled for this machine.
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
