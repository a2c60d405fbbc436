// Built once for this machine and once for AVX2, with different names for the namespace Eigen:
// functions of the same name would be merged.
#include "benchmarks/gemm_peers.hpp"

#ifdef IKEBANA_HAS_EIGEN

#include <Eigen/Core>

namespace bench {
namespace {

template <class T, int Rows = Eigen::Dynamic, int Columns = Eigen::Dynamic>
using matrix = Eigen::Matrix<T, Rows, Columns, Eigen::RowMajor>;
template <class T>
using row = Eigen::Matrix<T, 1, Eigen::Dynamic, Eigen::RowMajor>;

template <class T>
void finish(const gemm_problem<T>& p, auto& c) {
  if (!p.has_epilogue()) return;
  const Eigen::Map<const row<T>> bias(p.bias, p.bias == nullptr ? 0 : p.n);
  const Eigen::Map<const matrix<T>> residual(p.residual, p.residual == nullptr ? 0 : p.m, p.n);
  if (p.bias != nullptr && p.residual != nullptr && p.relu)
    c = ((c.rowwise() + bias) + residual).cwiseMax(T{0});
  else if (p.bias != nullptr && p.residual != nullptr)
    c = (c.rowwise() + bias) + residual;
  else if (p.bias != nullptr && p.relu)
    c = (c.rowwise() + bias).cwiseMax(T{0});
  else
    apply_epilogue(p);
}

template <class T, class A, class B>
timed prepare(const gemm_problem<T>& p, const A& a, const B& b) {
  return repeated([=] {
    Eigen::Map<matrix<T>> c(p.result, p.m, p.n);
    c.noalias() = a * b;
    finish(p, c);
  });
}

template <class T>
timed prepare_row(const gemm_problem<T>& p, const auto& b) {
  return repeated([=] {
    Eigen::Map<row<T>> c(p.result, p.n);
    c.noalias() = Eigen::Map<const row<T>>(p.a, p.k) * b;
    if (p.has_epilogue()) apply_epilogue(p);
  });
}

/// Eigen unrolls sizes known at compile time.
template <class Matrix>
using fixed_map = Eigen::Map<Matrix, Eigen::Aligned64>;
template <class T, int M, int K, int N>
timed prepare_fixed(const gemm_problem<T>& p) {
  if (p.ta)
    return repeated([=] {
      fixed_map<matrix<T, M, N>>(p.result).noalias() =
          fixed_map<const matrix<T, K, M>>(p.a).transpose().lazyProduct(
              fixed_map<const matrix<T, K, N>>(p.b));
    });
  return repeated([=] {
    fixed_map<matrix<T, M, N>>(p.result).noalias() =
        fixed_map<const matrix<T, M, K>>(p.a).lazyProduct(fixed_map<const matrix<T, K, N>>(p.b));
  });
}

template <class T>
timed prepare(const gemm_problem<T>& p) {
  if (timed fixed = of_known_sizes(p, [&]<dim_t M, dim_t K, dim_t N>(known_sizes<M, K, N>) {
        return prepare_fixed<T, M, K, N>(p);
      }))
    return fixed;
  const Eigen::Map<const matrix<T>> a(p.a, p.ta ? p.k : p.m, p.lda()),
      b(p.b, p.tb ? p.n : p.k, p.ldb());
  if (p.m == 1) return p.tb ? prepare_row(p, b.transpose()) : prepare_row(p, b);
  if (p.ta) return p.tb ? prepare(p, a.transpose(), b.transpose()) : prepare(p, a.transpose(), b);
  return p.tb ? prepare(p, a, b.transpose()) : prepare(p, a, b);
}

}  // namespace

gemm_peer IKEBANA_PEER_BUILD() {
  return {"Eigen",
          std::to_string(EIGEN_WORLD_VERSION) + "." + std::to_string(EIGEN_MAJOR_VERSION) + "." +
              std::to_string(EIGEN_MINOR_VERSION),
          "libeigen3-dev",
          {prepare<float>, prepare<double>}};
}

}  // namespace bench

#else

bench::gemm_peer bench::IKEBANA_PEER_BUILD() { return absent<gemm_peer>("Eigen", "libeigen3-dev"); }

#endif
