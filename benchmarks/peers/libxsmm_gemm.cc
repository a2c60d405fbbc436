#include "benchmarks/gemm_peers.hpp"

#ifdef IKEBANA_HAS_LIBXSMM

#include <libxsmm.h>

namespace bench {
namespace {

// Column-major, so operands are swapped. Kernels support no transposed first operand.
template <class T>
timed prepare(const gemm_problem<T>& p) {
  if (p.m * p.n * p.k > dim_t{1024} * 1024 * 1024 || p.m == 1 || p.n == 1) return {};
  const auto m = static_cast<libxsmm_blasint>(p.n), n = static_cast<libxsmm_blasint>(p.m),
             k = static_cast<libxsmm_blasint>(p.k);
  const T one = 1, zero = 0;
  const auto make = [&](bool transposed) {
    const int flags = transposed ? LIBXSMM_GEMM_FLAG_TRANS_B : LIBXSMM_GEMM_FLAG_NONE;
    const libxsmm_blasint ldb = transposed ? n : k;
    if constexpr (std::is_same_v<T, float>)
      return libxsmm_smmdispatch(m, n, k, &m, &ldb, &m, &one, &zero, &flags, nullptr);
    else
      return libxsmm_dmmdispatch(m, n, k, &m, &ldb, &m, &one, &zero, &flags, nullptr);
  };
  auto kernel = make(p.ta);
  const bool copies_a = p.ta && kernel == nullptr;
  if (copies_a) kernel = make(false);
  if (kernel == nullptr) return {};
  auto a = std::make_shared<ikebana::aligned_buffer<T>>(copies_a ? p.m * p.k : 0);
  auto b = std::make_shared<ikebana::aligned_buffer<T>>(p.tb ? p.k * p.n : 0);
  return repeated([=] {
    const T *first = p.b, *second = p.a;
    if (p.tb) {
      libxsmm_otrans(b->data(), p.b, sizeof(T), k, m, k, m);
      first = b->data();
    }
    if (copies_a) {
      libxsmm_otrans(a->data(), p.a, sizeof(T), n, k, n, k);
      second = a->data();
    }
    kernel(first, second, p.result);
    if (p.has_epilogue()) apply_epilogue(p);
  });
}

}  // namespace

gemm_peer libxsmm_gemm() {
  return {"libxsmm",
          std::string{LIBXSMM_VERSION} + ", " + libxsmm_get_target_arch(),
          "libxsmm-dev",
          {prepare<float>, prepare<double>}};
}

}  // namespace bench

#else

bench::gemm_peer bench::libxsmm_gemm() { return absent<gemm_peer>("libxsmm", "libxsmm-dev"); }

#endif
