// The choice among products: first those so small that a call takes as long as the arithmetic.

template <class T, unsigned Narrow>
inline constexpr detail::narrow_table<T> narrow_table_for =
#if IKEBANA_CPU_WIDTH >= 32 || (IKEBANA_CPU_WIDTH == 16 && !IKEBANA_CPU_X86)
    narrow_tiles_for<T, Narrow>.of;
#else
    nullptr;
#endif

#if IKEBANA_CPU_WIDTH != 0
/// A row times a column, both without gaps: as many sums side by side as hide an addition's
/// latency.
template <class T>
[[gnu::noinline]] void one_dot(const gemm_call<T>& call) {
  constexpr dim_t w = vec<T>::size;
  const T *const x = call.a, *const y = call.b;
  const dim_t k = call.alpha == T(0) ? 0 : call.k;
  const auto term = [&](dim_t p, vec<T> sum) __attribute__((always_inline)) {
    return fma(vec<T>::load(x + p), vec<T>::load(y + p), sum);
  };
  vec<T> s0 = vec<T>::zero(), s1 = s0, s2 = s0, s3 = s0;
  dim_t p = 0;
  for (; p + 4 * w <= k; p += 4 * w) {
    s0 = term(p, s0);
    s1 = term(p + w, s1);
    s2 = term(p + 2 * w, s2);
    s3 = term(p + 3 * w, s3);
  }
  for (; p + w <= k; p += w) s0 = term(p, s0);
  if (p < k) s1 = fma(vec<T>::load(x + p, k - p), vec<T>::load(y + p, k - p), s1);
  T c = call.alpha * sum((s0 + s1) + (s2 + s3));
  const gemm_epilogue<T>& then = *call.then;
  if (call.beta != T(0)) c += call.beta * *call.c;
  if (then.bias != nullptr) c += *then.bias;
  if (then.residual != nullptr) c += *then.residual;
  *call.c = c;
  then.function(1, 1, call.c, call.ldc);
  if (then.slope_of != nullptr)
    slope_block(then.slope, 1, 1, call.c, call.ldc, then.slope_of, then.ld_slope);
}
#endif

#if IKEBANA_CPU_WIDTH != 0
/// Two rows or three, by rows of B.
template <class T>
[[gnu::noinline]] void few_tiny_product(const T* a, const T* b, T* c, dim_t lda, dim_t ldb,
                                        const detail::tiny_shape<T>& s) {
  multiply_few_rows(s.m(), s.n(), s.k, a, lda < 0 ? dim_t{1} : lda, lda < 0 ? ~lda : dim_t{1}, b,
                    ldb, c, s.ldc, epilogue(s.then));
}
#endif

template <class T>
void product(gemm_call<T>& call, [[maybe_unused]] detail::narrow_table<T> narrow) {
#if IKEBANA_CPU_WIDTH == 0
  plain_product(call);
#else
  if (call.m == 1 && call.n == 1 && (call.ta == transpose::no || call.lda == 1) &&
      (call.tb == transpose::yes || call.ldb == 1))
    return one_dot(call);
  // What has one step along the summed dimension has it in either order.
  if (call.k == 1) {
    if (call.ta == transpose::no && call.lda == 1) {
      call.ta = transpose::yes;
      call.lda = call.m;
    }
    if (call.tb == transpose::yes && call.ldb == 1) {
      call.tb = transpose::no;
      call.ldb = call.n;
    }
  }
  if (call.alpha == T(1) && call.beta == T(0) && call.then->residual == nullptr && call.k > 0) {
    const bool turned_a = call.ta == transpose::yes, turned_b = call.tb == transpose::yes;
    const bool down = turned_a && multiply_few_columns(call.m, call.n, call.k, call.a, call.lda,
                                                       call.b, turned_b ? dim_t{1} : call.ldb,
                                                       turned_b ? call.ldb : dim_t{1}, call.c,
                                                       call.ldc, *call.then);
    const bool across = !down && !turned_b && by_few_rows<T>(call.m, call.n, call.k);
    if (across)
      few_tiny_product(call.a, call.b, call.c, tiny_lda(call), call.ldb, shape_of(call, narrow));
    if (down || across) {
      if (finishes_tiny(*call.then)) finish_tiny(*call.then, call.m, call.n, call.c, call.ldc);
      return;
    }
  }
#if IKEBANA_CPU_WIDTH >= 32 || (IKEBANA_CPU_WIDTH == 16 && !IKEBANA_CPU_X86)
  using bits = typename number<T>::bits;
  using size = std::uint64_t;
  constexpr dim_t w = vec<T>::size, deep = 128;
  if (call.n > 2 * w && call.tb == transpose::no && call.k > 0 &&
      by_tiny_blocks<T>(call.m, call.n, call.k) && call.alpha == T(1) && call.beta == T(0) &&
      call.then->residual == nullptr)
    return tiny_product(call, narrow);
  // More rows where the others' preparations do not pay.
  const bool few = static_cast<size>(call.m) - 1 < 32 &&
                   !(call.n <= 4 && call.k >= deep && call.ta == transpose::no &&
                     (sizeof(T) == 4 || (call.m == 1 && call.k >= row_of_dots<T>) ||
                      (call.m >= 4 && call.m * call.k >= 2048))),
             simple = call.n > 1 &&
                      (call.k <= 24 || call.k < (call.n > 4 ? 3 : 2) * w ||
                       (IKEBANA_CPU_WIDTH == 64 && call.n > w && call.k <= 256) ||
                       (call.n <= w &&
                        (call.ta == transpose::no ? 2 * call.n > w
                                                  : by_columns_of_a<T>(call.m, call.n, call.k))));
  if ((few ? call.n > 1 || call.m * call.k <= 64 : simple && call.m > 0) && call.n > 0 &&
      __builtin_bit_cast(bits, call.alpha) == __builtin_bit_cast(bits, T(1)) &&
      __builtin_bit_cast(bits, call.beta) == 0 && call.then->residual == nullptr) {
    const bool rows_by_rows = call.ta == transpose::no && call.tb == transpose::yes;
    if (rows_by_rows && call.m <= 2 && call.k <= w && w >= 4) return tiny_dots(call);
    if (call.n <= 2 * w) {
      if (call.tb == transpose::no) return tiny_product(call, narrow);
      if (rows_by_rows && call.n <= 4 && call.n < call.m && call.k >= 32)
        return multiply_by_dots(call.n, call.m, call.k, T(1), call.b, call.ldb, call.a, call.lda,
                                matrix_result<T>{call.c, call.ldc, T(0), *call.then}, true);
      if (rows_by_rows && call.m <= 4 && call.k > (call.m <= 2 ? 1 : 2) * w)
        return multiply_by_dots(call.m, call.n, call.k, T(1), call.a, call.lda, call.b, call.ldb,
                                matrix_result<T>{call.c, call.ldc, T(0), *call.then}, false);
      if (call.k <= turned_depth && !(call.ta == transpose::yes && call.m <= 4 && call.k >= 32))
        return tiny_product_turned(call, narrow);
    }
  }
  // Short rows of B are turned one by one. Of the shortest, tiles lose where much is written.
  const dim_t width = (call.n + w - 1) / w * w,
              turned_bytes = (call.k + 4) * width * dim_t{sizeof(T)};
  const bool blocks =
      by_turned_blocks<T>(call.m, call.n, call.k, turned_bytes) && call.alpha == T(1) &&
      (call.k >= turned<T> || call.m * call.n * dim_t{sizeof(T)} <= detail::caches().first) &&
      call.beta == T(0) && call.then->residual == nullptr;
  if (call.tb == transpose::yes && (call.k < turned<T> || blocks) && call.n > w && call.m > 1) {
    if (turned_bytes <= detail::caches().second / 4) {
      T* const rows = detail::thread_scratch<T>();
      turn_few(rows, width, call.b, call.ldb, call.n, call.k,
               std::make_index_sequence<static_cast<std::size_t>(w < 4 ? 1 : w / 4)>{});
      call.b = rows;
      call.ldb = width;
      call.tb = transpose::no;
      if (blocks) return tiny_product(call, narrow);
    }
  }
#endif
  matrix_product(call.ta, call.tb, call.m, call.n, call.k, call.alpha, call.a, call.lda, call.b,
                 call.ldb, call.beta, call.c, call.ldc, *call.then);
#endif
}

template <class T>
[[gnu::noinline]] void product_of_tiny(const T* a, const T* b, T* c, dim_t lda, dim_t ldb,
                                       const detail::tiny_shape<T>& s) {
  gemm_call<T> call{s.m(),
                    s.n(),
                    s.k,
                    a,
                    lda < 0 ? ~lda : lda,
                    b,
                    ldb,
                    c,
                    s.ldc,
                    s.then != nullptr ? s.then : &detail::no_epilogue<T>,
                    T(1),
                    T(0),
                    lda < 0 ? transpose::yes : transpose::no,
                    transpose::no};
  product(call, s.narrow);
}

#if IKEBANA_CPU_WIDTH >= 32 || (IKEBANA_CPU_WIDTH == 16 && !IKEBANA_CPU_X86)
/// What has more columns than two registers.
template <class T>
[[gnu::noinline]] void tiny_blocks(const T* a, const T* b, T* c, dim_t lda, dim_t ldb,
                                   const detail::tiny_shape<T>& s) {
  if (by_few_rows<T>(s.m(), s.n(), s.k)) return few_tiny_product(a, b, c, lda, ldb, s);
  if (by_tiny_blocks<T>(s.m(), s.n(), s.k)) [[likely]]
    return wide_tiny_product(a, b, c, lda, ldb, s);
  product_of_tiny(a, b, c, lda, ldb, s);
}
#endif

/// What `gemm` calls.
template <class T, unsigned Narrow>
void product(gemm_call<T>& call) {
  product(call, narrow_table_for<T, Narrow>);
}
/// A product of few tiles goes to them by a jump.
template <class T, unsigned Narrow>
void tiny(const T* a, const T* b, T* c, dim_t lda, dim_t ldb, detail::tiny_shape<T>& s) {
  constexpr detail::narrow_table<T> narrow = narrow_table_for<T, Narrow>;
#if IKEBANA_CPU_WIDTH >= 32 || (IKEBANA_CPU_WIDTH == 16 && !IKEBANA_CPU_X86)
  if (s.n() <= 2 * vec<T>::size) return narrow_tiles_product(a, b, c, lda, ldb, s, narrow);
  s.narrow = narrow;
  tiny_blocks(a, b, c, lda, ldb, s);
#else
  s.narrow = narrow;
  product_of_tiny(a, b, c, lda, ldb, s);
#endif
}

/// As many products of one size, from one to the next as far as the steps say.
template <class T>
void product_batch(dim_t count, const gemm_call<T>& first, dim_t step_a, dim_t step_b,
                   dim_t step_c) {
  gemm_call<T> next = first;
  for (; count > 0; --count) {
    gemm_call<T> call = next;
    product<T, detail::narrow_tile::all>(call);
    next.a += step_a;
    next.b += step_b;
    next.c += step_c;
  }
}
