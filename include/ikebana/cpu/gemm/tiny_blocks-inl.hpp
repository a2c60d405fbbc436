// Small products of several tiles, one below the other and from left to right.

#if IKEBANA_CPU_WIDTH != 0
template <class T>
IKEBANA_CPU_INLINE const gemm_epilogue<T>& epilogue(const gemm_epilogue<T>* then) {
  return then != nullptr ? *then : detail::no_epilogue<T>;
}

/// The arguments of a call as tiny products take them.
template <class T>
IKEBANA_CPU_INLINE detail::tiny_shape<T> shape_of(const gemm_call<T>& call,
                                                  detail::narrow_table<T> narrow) {
  return {call.k,
          static_cast<std::uint64_t>(call.n),
          call.ldc,
          static_cast<std::uint64_t>(call.m),
          detail::if_any(*call.then),
          narrow};
}
template <class T>
IKEBANA_CPU_INLINE dim_t tiny_lda(const gemm_call<T>& call) {
  return call.ta == transpose::yes ? ~call.lda : call.lda;
}
#endif

#if IKEBANA_CPU_WIDTH >= 32 || (IKEBANA_CPU_WIDTH == 16 && !IKEBANA_CPU_X86)
/// Whether two tiles of as many rows each are better than one of `rows` and one of what is left,
/// whose sums would be so few that they wait for each other.
IKEBANA_CPU_INLINE bool ends_evenly(dim_t below, dim_t rows) {
  return below > rows && 2 * below <= 3 * rows;
}
/// How many rows the next tile has of those that are left: as many each where tiles are few.
IKEBANA_CPU_INLINE dim_t next_rows(dim_t left, dim_t most, dim_t few) {
  if (left <= most) return left;
  if (left <= 2 * most) return (left + 1) / 2;
  if (left > few * most) return most;
  // Narrow divisions take half the time.
  const auto rows = static_cast<std::uint32_t>(left - 1);
  return rows / (rows / static_cast<std::uint32_t>(most) + 1) + 1;
}

/// Tiles one below the other.
template <class T, class Find>
IKEBANA_CPU_INLINE void tiles_down(const T* a, const T* b, T* c, dim_t lda, dim_t ldb,
                                   const detail::tiny_shape<T>& s, dim_t most, dim_t few,
                                   Find find) {
  dim_t left = s.m(), rows = next_rows(left, most, few);
  product_function<T> tile = find(rows);
  for (;;) {
    tile(a, b, c, lda, ldb, s);
    left -= rows;
    if (left <= 0) return;
    a += lda < 0 ? rows : rows * lda;
    c += rows * s.ldc;
    if (left < rows || (s.k >= 8 && ends_evenly(left, rows))) {
      rows = next_rows(left, most, few);
      tile = find(rows);
    }
  }
}

/// Up to a register of columns: few columns of what is turned, of more rows than a tile has, may be
/// made the other way.
template <class T>
[[gnu::noinline]] void long_tiny_product(const T* a, const T* b, T* c, dim_t lda, dim_t ldb,
                                         const detail::tiny_shape<T>& s) {
  if (lda < 0 && multiply_few_columns(s.m(), s.n(), s.k, a, ~lda, b, ldb, dim_t{1}, c, s.ldc,
                                      epilogue(s.then)))
    return;
  tiles_down(a, b, c, lda, ldb, s, rows_at_once<T>(tiny_rows, 10, lda, s.k), 2,
             [&](dim_t rows) { return find_narrow_tile<T>(s.narrow, rows, s.n(), lda < 0); });
}
/// At least as many columns as a register has. On AVX-512, the largest tiles gain only where they
/// are alone.
template <class T, class V>
[[gnu::noinline]] void long_wide_product(const T* a, const T* b, T* c, dim_t lda, dim_t ldb,
                                         const detail::tiny_shape<T>& s) {
  constexpr auto most = static_cast<dim_t>(most_tiny_rows<T, V>),
                 several = IKEBANA_CPU_WIDTH == 64 ? 24 / (V::size / vec<T>::size) : most;
  tiles_down(a, b, c, lda, ldb, s, s.m() > most ? several : most, 5,
             [](dim_t rows) { return find_wide_tile<T, V>(rows); });
}

/// More columns than a V has, of which the last may be fewer: of a register after pairs, and pairs
/// after threes, none of which is left over alone.
template <class T, class V>
[[gnu::noinline]] void wide_tiny_blocks(const T* a, const T* b, T* c, dim_t lda, dim_t ldb,
                                        const detail::tiny_shape<T>& s) {
  constexpr dim_t w = vec<T>::size, width = V::size;
  const dim_t n = s.n();
  dim_t rest = s.k >= 4 ? n % width : 0;
  if (width == 3 * w && rest > 0 && rest <= w) rest += width;
  if (rest > width - w && rest < width) rest = 0;
  const dim_t whole_columns = n - rest;
  const detail::tiny_shape<T> first = s.with_columns(whole_columns);
  if (whole_columns > 0) long_wide_product<T, V>(a, b, c, lda, ldb, first);
  if (rest == 0) return;
  detail::tiny_shape<T> last = s.with_columns(rest);
  gemm_epilogue<T> then;
  if (s.then != nullptr && s.then->bias != nullptr) {
    then = *s.then;
    then.bias += whole_columns;
    last.then = &then;
  }
  b += whole_columns;
  c += whole_columns;
  if (rest <= w) return long_tiny_product(a, b, c, lda, ldb, last);
  long_wide_product<T, pair_vec<T>>(a, b, c, lda, ldb, last);
}

/// Whether, on AVX2, rows fill tiles of four better than those of six or three.
IKEBANA_CPU_INLINE bool by_four_rows(dim_t m) { return m == 4 || m == 7 || m == 8; }

/// By tiles of one register or two.
template <class T>
IKEBANA_CPU_INLINE void narrow_tiles_product(const T* a, const T* b, T* c, dim_t lda, dim_t ldb,
                                             detail::tiny_shape<T>& s,
                                             detail::narrow_table<T> narrow) {
  const dim_t n = s.n(), m = s.m();
  if (n <= vec<T>::size) {
    if (m <= rows_at_once<T>(tiny_rows, 10, lda, s.k))
      return find_narrow_tile<T>(narrow, m, n, lda < 0)(a, b, c, lda, ldb, s);
    s.narrow = narrow;
    return long_tiny_product(a, b, c, lda, ldb, s);
  }
#if IKEBANA_CPU_WIDTH == 64
  s.narrow = narrow;
  if (const product_function<T> held = find_held_product(s); held != nullptr)
    return held(a, b, c, lda, ldb, s);
#endif
  if (m > dim_t{tiny_pair_rows}) return long_wide_product<T, pair_vec<T>>(a, b, c, lda, ldb, s);
  find_wide_tile<T, pair_vec<T>>(m)(a, b, c, lda, ldb, s);
}

/// More columns than two registers have, by tiles of two or three. Three where those of two would
/// leave one over: alone, or in the end where sums are long enough for as many calls and rows are
/// not those of one tile of pairs. AVX2 has registers for but four rows of them.
template <class T>
IKEBANA_CPU_INLINE void wide_tiles_product(const T* a, const T* b, T* c, dim_t lda, dim_t ldb,
                                           const detail::tiny_shape<T>& s) {
#if IKEBANA_CPU_WIDTH >= 32
  constexpr dim_t w = vec<T>::size;
  const dim_t n = s.n(), m = s.m();
  const bool again = IKEBANA_CPU_WIDTH == 64 ? (m <= 8 ? s.k >= 4 : s.k > 8 && m > 12)
                                             : s.k > 2 && by_four_rows(m);
  if (n <= 3 * w) {
    constexpr auto most = static_cast<dim_t>(most_tiny_rows<T, triple_vec<T>>);
    if (m > most) return long_wide_product<T, triple_vec<T>>(a, b, c, lda, ldb, s);
    return find_wide_tile<T, triple_vec<T>>(m)(a, b, c, lda, ldb, s);
  }
  if (n > 4 * w && again) return wide_tiny_blocks<T, triple_vec<T>>(a, b, c, lda, ldb, s);
#endif
  wide_tiny_blocks<T, pair_vec<T>>(a, b, c, lda, ldb, s);
}
#endif
