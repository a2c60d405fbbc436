#pragma once

#include <cstdint>
#include <cstring>
#include <utility>

#include "ikebana/core/shape.hpp"
#include "ikebana/cpu/activation.hpp"
#include "ikebana/cpu/detail/word_product.hpp"
#include "ikebana/cpu/gemm.hpp"
#include "ikebana/cpu/low_precision.hpp"

namespace ikebana::cpu {

/// What the numbers of two quantised matrices stand for, and what to make of their product:
/// a = a_scale (number - a_zero), b likewise, of all columns or of each; c = function(a b + bias).
/// As PyTorch and oneDNN have it; zero points may be any integers.
struct quantization {
  float a_scale = 1;
  std::int32_t a_zero = 0;
  const float* b_scale = nullptr;        // one, or one for each column
  const std::int32_t* b_zero = nullptr;  // none, or as many
  bool per_column = false;
  const float* bias = nullptr;  // one for each column
  activation function = activation::none;
};

namespace detail {

/// `quantization` with what zero points of B need.
struct byte_scaling : quantization {
  const void* a = nullptr;
  dim_t depth = 0, row_step = 0, depth_step = 0;
  bool with_sign = false;

  /// The sum of row i of A, less its zero point each. Modulo 2^32.
  std::uint32_t sum_of_row(dim_t i) const {
    std::uint32_t sum = 0;
    for (dim_t p = 0; p < depth; ++p) {
      const dim_t at = i * row_step + p * depth_step;
      sum += static_cast<std::uint32_t>(with_sign ? int{static_cast<const std::int8_t*>(a)[at]}
                                                  : int{static_cast<const std::uint8_t*>(a)[at]});
    }
    return sum - static_cast<std::uint32_t>(a_zero) * static_cast<std::uint32_t>(depth);
  }
};

}  // namespace detail
}  // namespace ikebana::cpu

namespace ikebana::cpu::detail {

/// A product of one row with a transposed B, of which nothing is packed, where an extension has it,
/// without and with the sums of B's columns: row_bytes-inl.hpp.
using byte_row_function = void (*)(dim_t n, dim_t k, const std::uint8_t* a, const std::int8_t* b,
                                   dim_t ldb, const std::int8_t* end, std::uint32_t* out,
                                   std::uint32_t* sums);

}  // namespace ikebana::cpu::detail

#define IKEBANA_CPU_BODY "ikebana/cpu/gemm_int8-inl.hpp"
#include "ikebana/cpu/detail/foreach_target.hpp"

namespace ikebana::cpu {

namespace detail {

#if IKEBANA_CPU_HERE && IKEBANA_CPU_X86 && (!IKEBANA_CPU_ONE || IKEBANA_CPU_FLOOR == 4)
/// None: by pairs of 16 bits.
inline word_kernels<std::uint32_t> byte_kernels() {
  static constexpr word_kernel<std::uint32_t> bytes{
      &avx512_vnni::word_panel_rows<avx512_vnni::add_bytes>,
      &avx512_vnni::multiply_word_panels<std::uint32_t, avx512_vnni::add_bytes>};
  const dot_extension e = active_dot_extension();
  if (e == dot_extension::amx) return {nullptr, &amx::tiles<std::uint32_t>};
  static const bool has_bytes = machine_has_extension(dot_extension::vnni);
  return {e != dot_extension::none && has_bytes ? &bytes : nullptr, nullptr};
}
inline byte_row_function byte_row(bool with_sums) {
  static const bool has_bytes = machine_has_extension(dot_extension::vnni);
  if (!has_bytes || active_dot_extension() == dot_extension::none) return nullptr;
  return with_sums ? &avx512_vnni::multiply_byte_row<true> : &avx512_vnni::multiply_byte_row<false>;
}
#else
inline word_kernels<std::uint32_t> byte_kernels() { return {}; }
inline byte_row_function byte_row(bool) { return nullptr; }
#endif

template <class A>
void run_gemm_int8(transpose ta, transpose tb, dim_t m, dim_t n, dim_t k, const A* a, dim_t lda,
                   const std::int8_t* b, dim_t ldb, void* c, dim_t ldc, const byte_scaling* scale) {
  IKEBANA_CPU_DISPATCH(byte_product<A>)
  (ta, tb, m, n, k, a, lda, b, ldb, c, ldc, scale, byte_kernels(),
   m == 1 && tb == transpose::yes ? &byte_row : nullptr);
}
IKEBANA_CPU_LOW_PRECISION_KERNEL(run_gemm_int8, std::uint8_t)
IKEBANA_CPU_LOW_PRECISION_KERNEL(run_gemm_int8, std::int8_t)

}  // namespace detail

/// c = op(a) op(b): row-major, op(a) of m x k, op(b) of k x n, c of m x n; leading dimensions as
/// `gemm`. Exact, and so the same on every machine, while sums fit 32 bits: for any numbers up to k
/// of 65,793; beyond, modulo 2^32. A is std::uint8_t or std::int8_t. Any size may be 0. O(m n k);
/// allocates only the thread's packing buffer, at its first use.
template <class A>
void gemm_int8(transpose ta, transpose tb, dim_t m, dim_t n, dim_t k, const A* a, dim_t lda,
               const std::int8_t* b, dim_t ldb, std::int32_t* c, dim_t ldc) {
  detail::run_gemm_int8<A>(ta, tb, m, n, k, a, lda, b, ldb, c, ldc, nullptr);
}

/// The product of the numbers that quantised ones stand for: sums are exact, modulo 2^32, zero
/// points included; then float(sum) * (a_scale * b_scale), rounded, + bias, rounded: the same bits
/// on every machine, but for what `function` makes of them. Zero points of B take a pass over A for
/// every 512 columns.
template <class A>
void gemm_int8(transpose ta, transpose tb, dim_t m, dim_t n, dim_t k, const A* a, dim_t lda,
               const std::int8_t* b, dim_t ldb, float* c, dim_t ldc, const quantization& q) {
  const bool along = ta == transpose::no;
  detail::byte_scaling scale{q, a, k, along ? lda : 1, along ? 1 : lda, A(-1) < A(0)};
  detail::run_gemm_int8<A>(ta, tb, m, n, k, a, lda, b, ldb, c, ldc, &scale);
}

/// Allocates what such products need of the calling thread, if it has not, and touches it.
inline void prepare_gemm_int8() {
  const detail::word_scratch s = detail::thread_word_scratch();
  std::memset(s.b, 0, detail::word_scratch::b_bytes + detail::word_scratch::a_bytes);
}

}  // namespace ikebana::cpu
