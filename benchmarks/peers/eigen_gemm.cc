// Built once for this machine and once for AVX2, with another name for the namespace Eigen each
// time: functions of the same name would become one.
#include "benchmarks/gemm_peers.hpp"

#ifdef IKEBANA_HAS_EIGEN

#include <Eigen/Core>

namespace bench {
namespace {

template <class T, int N = Eigen::Dynamic>
using matrix = Eigen::Matrix<T, N, N, Eigen::RowMajor>;
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

/// Small squares, where it unrolls what it knows at compile time.
template <class T, int N>
timed prepare_fixed(const gemm_problem<T>& p) {
  return repeated([=] {
    const Eigen::Map<const matrix<T, N>, Eigen::Aligned64> a(p.a), b(p.b);
    Eigen::Map<matrix<T, N>, Eigen::Aligned64> c(p.result);
    c.noalias() = a.lazyProduct(b);
  });
}

template <class T>
timed prepare(const gemm_problem<T>& p) {
  if (!p.ta && !p.tb && !p.has_epilogue() && p.m == p.n && p.n == p.k) {
    if (p.n == 4) return prepare_fixed<T, 4>(p);
    if (p.n == 8) return prepare_fixed<T, 8>(p);
    if (p.n == 16) return prepare_fixed<T, 16>(p);
  }
  const Eigen::Map<const matrix<T>> a(p.a, p.ta ? p.k : p.m, p.lda()),
      b(p.b, p.tb ? p.n : p.k, p.ldb());
  if (p.m == 1) return p.tb ? prepare_row(p, b.transpose()) : prepare_row(p, b);
  if (p.ta) return p.tb ? prepare(p, a.transpose(), b.transpose()) : prepare(p, a.transpose(), b);
  return p.tb ? prepare(p, a, b.transpose()) : prepare(p, a, b);
}

}  // namespace

gemm_peer IKEBANA_EIGEN_BUILD() {
  return {"Eigen",
          std::to_string(EIGEN_WORLD_VERSION) + "." + std::to_string(EIGEN_MAJOR_VERSION) + "." +
              std::to_string(EIGEN_MINOR_VERSION),
          "libeigen3-dev",
          {prepare<float>, prepare<double>}};
}

}  // namespace bench

#else

bench::gemm_peer bench::IKEBANA_EIGEN_BUILD() {
  return absent<gemm_peer>("Eigen", "libeigen3-dev");
}

#endif
