#pragma once

#include <cstdint>
#include <type_traits>
#include <utility>

#include "ikebana/core/bfloat16.hpp"
#include "ikebana/core/number_format.hpp"
#include "ikebana/core/shape.hpp"
#include "ikebana/cpu/detail/word_product.hpp"
#include "ikebana/cpu/gemm.hpp"
#include "ikebana/cpu/low_precision.hpp"
#include "ikebana/cpu/parallel.hpp"
#include "ikebana/cpu/round.hpp"

namespace ikebana::cpu::detail {

/// A product of bfloat16 numbers: F is std::uint16_t, their bits, or float, to be rounded.
template <class F>
struct bf16_call {
  transpose ta, tb;
  dim_t m, n, k;
  float alpha;
  const F* a;
  dim_t lda;
  const F* b;
  dim_t ldb;
  float beta;
  float* c;
  dim_t ldc;
  gemm_epilogue<float> then;

  /// The part of the result of `rows` x `columns` from (i, j) on.
  bf16_call part(dim_t i, dim_t j, dim_t rows, dim_t columns) const {
    bf16_call to = *this;
    to.m = rows;
    to.n = columns;
    to.a += ta == transpose::no ? i * lda : i;
    to.b += tb == transpose::no ? j : j * ldb;
    if (c != nullptr) to.c += i * ldc + j;
    if (then.bias != nullptr) to.then.bias += j;
    if (then.residual != nullptr) to.then.residual += i * then.ld_residual + j;
    if (then.slope_of != nullptr) to.then.slope_of += i * then.ld_slope + j;
    if (then.row_bias != nullptr) to.then.row_bias += i;
    return to;
  }
};

}  // namespace ikebana::cpu::detail

#define IKEBANA_CPU_BODY "ikebana/cpu/gemm_bf16-inl.hpp"
#include "ikebana/cpu/detail/foreach_target.hpp"
#define IKEBANA_CPU_BODY "ikebana/cpu/low_precision/thin_bf16-inl.hpp"
#include "ikebana/cpu/detail/foreach_target.hpp"

namespace ikebana::cpu {

namespace detail {

#if IKEBANA_CPU_HERE && IKEBANA_CPU_X86 && (!IKEBANA_CPU_ONE || IKEBANA_CPU_FLOOR == 4)
/// None: products are those of floats.
inline word_kernels<float> bf16_kernels() {
  static constexpr word_kernel<float> pairs{
      &avx512_bf16::word_panel_rows<avx512_bf16::add_bf16_pairs>,
      &avx512_bf16::multiply_word_panels<float, avx512_bf16::add_bf16_pairs>};
  const dot_extension e = active_dot_extension();
  return {e == dot_extension::bf16 ? &pairs : nullptr,
          e == dot_extension::amx ? &amx::tiles<float> : nullptr};
}
#endif

/// A block of a matrix as floats that are bfloat16 numbers, its rows one after the other.
inline void widen_block(dim_t rows, dim_t columns, const std::uint16_t* from, dim_t ld, float* to) {
  if (ld == columns) return from_bf16<float>(rows * columns, from, to);
  for (dim_t i = 0; i < rows; ++i) from_bf16<float>(columns, from + i * ld, to + i * columns);
}
inline void widen_block(dim_t rows, dim_t columns, const float* from, dim_t ld, float* to) {
  if (ld == columns) return round_to<float>(rows * columns, number_format::bfloat16, from, to);
  for (dim_t i = 0; i < rows; ++i)
    round_to<float>(columns, number_format::bfloat16, from + i * ld, to + i * columns);
}

/// Rows and columns of a result that are made at a time, and numbers of each sum; rows that are few
/// enough for numbers of b to be worth no packing.
inline constexpr dim_t bf16_rows = 128, bf16_columns = 256, bf16_depth = 256, thin_bf16_rows = 2;

/// By blocks of floats that stay in the second-level cache.
template <class F>
void multiply_widened(const bf16_call<F>& call) {
  constexpr dim_t rows = bf16_rows, columns = bf16_columns, depth = bf16_depth;
  static_assert((rows + columns) * depth * 4 <= static_cast<dim_t>(word_scratch::b_bytes));
  float* const wide_b = reinterpret_cast<float*>(thread_word_scratch().b);
  float* const wide_a = wide_b + columns * depth;
  const bool na = call.ta == transpose::no, nb = call.tb == transpose::no;
  const dim_t m = call.m, n = call.n, k = call.k;
  for (dim_t j = 0; j < n; j += columns) {
    const dim_t nj = n - j < columns ? n - j : columns;
    for (dim_t p = 0; p == 0 || p < k; p += depth) {
      const dim_t kp = k - p < depth ? k - p : depth;
      for (dim_t i = 0; i < m; i += rows) {
        const dim_t mi = m - i < rows ? m - i : rows;
        bf16_call<F> part = call.part(i, j, mi, nj);
        if (i == 0)
          nb ? widen_block(kp, nj, part.b + p * call.ldb, call.ldb, wide_b)
             : widen_block(nj, kp, part.b + p, call.ldb, wide_b);
        na ? widen_block(mi, kp, part.a + p, call.lda, wide_a)
           : widen_block(kp, mi, part.a + p * call.lda, call.lda, wide_a);
        gemm_epilogue<float>& then = part.then;
        if (p != 0) then.bias = then.row_bias = then.residual = nullptr;
        if (p + depth < k) {
          then.function = activation::none;
          then.slope_of = nullptr;
        }
        gemm<float>(call.ta, call.tb, mi, nj, kp, call.alpha, wide_a, na ? kp : mi, wide_b,
                    nb ? nj : kp, p == 0 ? call.beta : 1.0f, part.c, call.ldc, then);
      }
    }
  }
}

/// A product of one or two rows, which all threads share.
template <class F>
void multiply_thin(const bf16_call<F>& call) {
  const dim_t m = call.m, n = call.n, k = call.k;
  float* const wide = reinterpret_cast<float*>(thread_word_scratch().b);
  if (call.ta == transpose::no) {
    widen_block(m, k, call.a, call.lda, wide);
  } else {
    float* const rows = wide + m * k;
    widen_block(k, m, call.a, call.lda, rows);
    for (dim_t i = 0; i < m; ++i)
      for (dim_t p = 0; p < k; ++p) wide[i * k + p] = rows[p * m + i];
  }
  if (call.alpha != 1.0f)
    for (dim_t p = 0; p < m * k; ++p) wide[p] *= call.alpha;
  parallel_for(0, n, products_for_thread / (m * (k + 1)) + 1, [&](dim_t from, dim_t to) {
    IKEBANA_CPU_DISPATCH(thin_bf16_product<F>)(call.part(0, from, m, to - from), wide);
  });
}

template <class F>
void run_gemm_bf16(const bf16_call<F>& call) {
  const dim_t m = call.m, n = call.n, k = call.k;
  if (m == 0 || n == 0) return;
  if (m <= thin_bf16_rows && 2 * m * k * dim_t{sizeof(float)} <= dim_t{word_scratch::b_bytes})
    return multiply_thin(call);
  // Threads share out the longer side of the result, in whole blocks.
  const bool by_rows = m > n;
  const dim_t length = by_rows ? m : n, block = by_rows ? bf16_rows : bf16_columns;
  const dim_t worth = gemm_costs::bf16_products_for_thread / ((by_rows ? n : m) * (k + 1));
  parallel_for(0, length, (worth / block + 1) * block, [&](dim_t from, dim_t to) {
    const bf16_call<F> part =
        by_rows ? call.part(from, 0, to - from, n) : call.part(0, from, m, to - from);
#if IKEBANA_CPU_HERE && IKEBANA_CPU_X86 && (!IKEBANA_CPU_ONE || IKEBANA_CPU_FLOOR == 4)
    if (const word_kernels<float> kernels = bf16_kernels(); kernels.words || kernels.tiles)
      return avx512::bf16_product<F>(part, kernels);
#endif
    multiply_widened(part);
  });
}
IKEBANA_CPU_LOW_PRECISION_KERNEL(run_gemm_bf16, std::uint16_t)
IKEBANA_CPU_LOW_PRECISION_KERNEL(run_gemm_bf16, float)

}  // namespace detail

/// As `gemm`, of bfloat16 numbers; c is float or bfloat16. Products are exact, sums are taken in
/// float and in an order that depends on the sizes and the instructions in use: a result differs
/// from the exact one by at most (k + 2) 2^-24 of the sum of the magnitudes of its terms, to first
/// order, before `then`. A bfloat16 result is rounded once, at the end, to nearest, ties to even;
/// what beta multiplies is read as bfloat16. With the extensions `bf16` and `amx` subnormal numbers
/// count as zero where there are more than two rows, as factors and as sums, whatever the
/// processor's mode; otherwise they are kept.
template <class C>
void gemm_bf16(transpose ta, transpose tb, dim_t m, dim_t n, dim_t k, float alpha,
               const bfloat16* a, dim_t lda, const bfloat16* b, dim_t ldb, float beta, C* c,
               dim_t ldc, const gemm_epilogue<float>& then = {}) {
  using bits = std::uint16_t;
  const auto* const x = reinterpret_cast<const bits*>(a);
  const auto* const y = reinterpret_cast<const bits*>(b);
  detail::bf16_call<bits> call{ta, tb, m, n, k, alpha, x, lda, y, ldb, beta, nullptr, ldc, then};
  if constexpr (std::is_same_v<C, float>) {
    call.c = c;
    detail::run_gemm_bf16(call);
  } else {
    static_assert(std::is_same_v<C, bfloat16>);
    // Block by block, so that sums stay float until they are complete.
    auto* const to = reinterpret_cast<bits*>(c);
    float* const block = detail::thread_word_scratch().converted;
    const dim_t columns = n < detail::bf16_columns ? n : detail::bf16_columns;
    for (dim_t i = 0, rows; i < m && n > 0; i += rows) {
      rows = detail::converted_block / columns;
      if (rows > m - i) rows = m - i;
      for (dim_t j = 0; j < n; j += columns) {
        detail::bf16_call<bits> part = call.part(i, j, rows, n - j < columns ? n - j : columns);
        part.c = block;
        part.ldc = part.n;
        if (beta != 0.0f) detail::widen_block(rows, part.n, to + i * ldc + j, ldc, block);
        detail::run_gemm_bf16(part);
        for (dim_t r = 0; r < rows; ++r)
          to_bf16<float>(part.n, block + r * part.n, to + (i + r) * ldc + j);
      }
    }
  }
}

/// The same of floats, which are rounded to bfloat16, to nearest, ties to even, on their way into
/// the packing buffer: what a model multiplies that keeps its numbers as floats.
inline void gemm_bf16(transpose ta, transpose tb, dim_t m, dim_t n, dim_t k, float alpha,
                      const float* a, dim_t lda, const float* b, dim_t ldb, float beta, float* c,
                      dim_t ldc, const gemm_epilogue<float>& then = {}) {
  detail::run_gemm_bf16<float>({ta, tb, m, n, k, alpha, a, lda, b, ldb, beta, c, ldc, then});
}

}  // namespace ikebana::cpu
