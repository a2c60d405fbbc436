// Which small products go by tiles, and how one that is told by a gemm_call goes to them.

#if IKEBANA_CPU_WIDTH >= 32 || (IKEBANA_CPU_WIDTH == 16 && !IKEBANA_CPU_X86)
/// Whether tiles of few registers do where there are more columns than they have: of short sums,
/// larger ones would spend more time on their way. On AVX-512 they read B too fast for it to come
/// from the second-level cache again and again.
template <class T>
IKEBANA_CPU_INLINE bool by_tiny_blocks([[maybe_unused]] dim_t m, [[maybe_unused]] dim_t n,
                                       [[maybe_unused]] dim_t k) {
#if IKEBANA_CPU_WIDTH >= 32
  // The few sums of one row wait for themselves, but are made before another way is found.
  constexpr dim_t w = vec<T>::size;
  if (m == 1 && n > 3 * w)
    return n <= 8 * w && k <= (IKEBANA_CPU_WIDTH == 64 || n <= 4 * w ? 31 : 12);
#endif
#if IKEBANA_CPU_WIDTH == 64
  if (m <= 16) return m > 0 && k <= (m > 4 || n <= 3 * vec<T>::size ? 64 : 32);
  return k <= 16 || (k <= 24 && k * n * dim_t{sizeof(T)} <= 32 * 1024);
#elif IKEBANA_CPU_WIDTH == 32
  return m > 0 && k <= 48;
#else
  return false;
#endif
}

/// Whether up to a register of columns are made of A's columns where they stand, rather than as the
/// columns of a product that has the result's rows in registers: the fewer lanes are idle and the
/// nearer A is, the longer sums may be.
template <class T>
IKEBANA_CPU_INLINE bool by_columns_of_a(dim_t m, dim_t n, dim_t k) {
  constexpr dim_t w = vec<T>::size;
  if (k <= 48 || 2 * n <= w) return 4 * n > w && k <= 48;
  return k <= 64 ||
         (4 * n > 3 * w && k <= 256 && m * k * dim_t{sizeof(T)} <= detail::caches().second / 8);
}

/// As by_tiny_blocks, where B must be turned first, which leaves so many bytes: of a few rows more
/// than dot products are for, longer sums, too.
template <class T>
IKEBANA_CPU_INLINE bool by_turned_blocks(dim_t m, dim_t n, dim_t k, dim_t bytes) {
  constexpr dim_t most_dots = IKEBANA_CPU_WIDTH == 64 || sizeof(T) == 4 ? 32 : 24;
  const bool near = bytes <= detail::caches().first / 2;
  if (m > 4 && m <= 64 && k > 16) return near && k <= (m > 8 ? 64 : most_dots);
  return by_tiny_blocks<T>(m, n, k) &&
         (k <= 8 || (k <= 16 && m > few_rows && m <= 12) || (k <= 24 && m > 4 && near));
}
#endif

#if IKEBANA_CPU_WIDTH != 0
/// Whether two rows or three go by rows of B: four registers' sums are more than tiles have. What
/// is not four registers wide reads some twice, which long sums feel on AVX-512.
template <class T>
IKEBANA_CPU_INLINE bool by_few_rows(dim_t m, dim_t n, dim_t k) {
  constexpr dim_t w = vec<T>::size;
  if (m < 2 || m > few_rows || n <= (IKEBANA_CPU_WIDTH == 64 && k > 64 ? 3 : 2) * w) return false;
#if IKEBANA_CPU_WIDTH >= 32
  if (n > 3 * w && (IKEBANA_CPU_WIDTH == 64 || n < 4 * w))
    return k > (IKEBANA_CPU_WIDTH == 64 ? 24 : 16);
  if (by_tiny_blocks<T>(m, n, k)) return false;
#endif
  return k > 8;
}

template <class T>
IKEBANA_CPU_INLINE bool finishes_tiny(const gemm_epilogue<T>& then) {
  return then.function > activation::relu || then.slope_of != nullptr;
}
template <class T>
IKEBANA_CPU_INLINE void finish_tiny(const gemm_epilogue<T>& then, dim_t m, dim_t n, T* c,
                                    dim_t ldc) {
  if (then.function > activation::relu) then.function(m, n, c, ldc);
  if (then.slope_of != nullptr) slope_block(then.slope, m, n, c, ldc, then.slope_of, then.ld_slope);
}
#endif

#if IKEBANA_CPU_WIDTH >= 32 || (IKEBANA_CPU_WIDTH == 16 && !IKEBANA_CPU_X86)
/// By tiles of few registers.
template <class T>
[[gnu::noinline]] void tiny_product(const gemm_call<T>& call, detail::narrow_table<T> narrow) {
  detail::tiny_shape<T> s = shape_of(call, narrow);
  if (s.n() > 2 * vec<T>::size)
    wide_tiny_product(call.a, call.b, call.c, tiny_lda(call), call.ldb, s);
  else
    narrow_tiles_product(call.a, call.b, call.c, tiny_lda(call), call.ldb, s, narrow);
  if (finishes_tiny(*call.then)) finish_tiny(*call.then, call.m, call.n, call.c, call.ldc);
}
#endif
