// Small products of more than two registers of columns, and the way to the tiles of all.

#if IKEBANA_CPU_WIDTH == 32
/// The most rows of a tile of four registers, whose loads are fewer than those of one of two.
/// (AVX-512 has the registers for as many sums in pairs.)
inline constexpr std::size_t tiny_quad_rows = 3;
template <class T>
IKEBANA_CPU_INLINE product_function<T> find_quad_tiny(dim_t m);

/// Four registers of columns, and more of them to the right, the last of which may overlap those
/// before; of more columns than three have, the fourth does. Tiles of more than half as many rows
/// as can be follow each other downwards, too.
template <class T, std::size_t... R>
IKEBANA_CPU_INLINE void quad_tiny_product(const T* a, const T* b, T* c, dim_t lda, dim_t ldb,
                                          const detail::tiny_shape<T>& s,
                                          std::index_sequence<R...>) {
  constexpr auto rows = static_cast<dim_t>(sizeof...(R));
  constexpr dim_t bytes = sizeof(T), w = vec<T>::size, width = 4 * w;
  constexpr bool down = 2 * sizeof...(R) > tiny_quad_rows;
  const dim_t n = s.n(), ldc = s.ldc, last = n < width ? n - w : 3 * w;
  const gemm_epilogue<T>* const then = s.then;
  dim_t row_bytes = lda < 0 ? bytes : lda * bytes, step_bytes = lda < 0 ? ~lda * bytes : bytes,
        ldb_bytes = ldb * bytes, below = s.m() - rows;
  keep_in_register(row_bytes);
  keep_in_register(step_bytes);
  keep_in_register(ldb_bytes);
  for (;;) {
    for (dim_t j = 0;;) {
      vec<T> sums[4][rows];
      const auto begin = [&](std::size_t i) __attribute__((always_inline)) {
        sums[i][0] = vec<T>::zero();
        if (then != nullptr && then->bias != nullptr)
          sums[i][0] = vec<T>::load(then->bias + j + (i < 3 ? static_cast<dim_t>(i) * w : last));
        ((sums[i][R] = sums[i][0]), ...);
      };
      begin(0);
      begin(1);
      begin(2);
      begin(3);
      // A pointer for each three rows.
      constexpr auto pointers = static_cast<std::size_t>(rows + 2) / 3;
      const T* from[] = {
          (R < pointers ? at(a, static_cast<dim_t>(R * 3) * row_bytes) : nullptr)...};
      const T* with = b + j;
      for (dim_t k = s.k; k > 0; --k) {
        const vec<T> x[] = {
            vec<T>::broadcast(*at(from[R / 3], static_cast<dim_t>(R % 3) * row_bytes))...};
        // Hidden, so that it is loaded once.
        const auto add = [&](std::size_t i) __attribute__((always_inline)) {
          const vec<T> y = opaque(vec<T>::load(with + (i < 3 ? static_cast<dim_t>(i) * w : last)));
          ((sums[i][R] = fma(x[R], y, sums[i][R])), ...);
        };
        add(0);
        add(1);
        add(2);
        add(3);
        step_by(with, ldb_bytes);
        ((R < pointers ? step_by(from[R], step_bytes) : void()), ...);
      }
      if (then != nullptr && then->function == activation::relu)
        ((sums[0][R] = max(vec<T>::zero(), sums[0][R]),
          sums[1][R] = max(vec<T>::zero(), sums[1][R]),
          sums[2][R] = max(vec<T>::zero(), sums[2][R]),
          sums[3][R] = max(vec<T>::zero(), sums[3][R])),
         ...);
      T* to = c + j;
      ((sums[0][R].store(to), sums[1][R].store(to + w), sums[2][R].store(to + 2 * w),
        sums[3][R].store(to + last), to += ldc),
       ...);
      const dim_t left = n - width - j;
      if (left <= 0) break;
      j += left < width ? left : width;
    }
    if (!down || below <= 0) return;
    step_by(a, rows * row_bytes);
    c += rows * ldc;
    if (below < rows || ends_evenly(below, rows)) {
      const detail::tiny_shape<T> part = s.with_rows(below);
      return find_quad_tiny<T>(below)(a, b, c, lda, ldb, part);
    }
    below -= rows;
  }
}
template <class T, std::size_t Rows>
void quad_tiny_product(const T* a, const T* b, T* c, dim_t lda, dim_t ldb,
                       const detail::tiny_shape<T>& s) {
  quad_tiny_product<T>(a, b, c, lda, ldb, s, std::make_index_sequence<Rows>{});
}
/// From two rows on, which is why tiles end evenly.
template <class T, std::size_t... M>
IKEBANA_CPU_INLINE product_function<T> find_quad_tiny(dim_t m, std::index_sequence<M...>) {
  static constexpr product_function<T> all[] = {&quad_tiny_product<T, M + 2>...};
  return all[m - 2];
}
template <class T>
IKEBANA_CPU_INLINE product_function<T> find_quad_tiny(dim_t m) {
  constexpr auto most = static_cast<dim_t>(tiny_quad_rows);
  if (m > most) m = m <= 2 * most ? (m + 1) / 2 : most;
  return find_quad_tiny<T>(m, std::make_index_sequence<tiny_quad_rows - 1>{});
}

/// At least four registers of columns, and two rows. Of B as much at a time as stays near for all
/// rows; what is left in the end goes to tiles of fewer registers.
template <class T>
[[gnu::noinline]] void quads_tiny_product(const T* a, const T* b, T* c, dim_t lda, dim_t ldb,
                                          const detail::tiny_shape<T>& s) {
  constexpr dim_t w = vec<T>::size, width = 4 * w;
  const dim_t m = s.m(), k = s.k, whole_columns = s.n() / width * width;
  const product_function<T> f = find_quad_tiny<T>(m);
  dim_t near = whole_columns;
  if (m > dim_t{tiny_quad_rows} && k * s.n() * dim_t{sizeof(T)} > detail::caches().first / 2) {
    const auto panels = static_cast<std::uint32_t>(detail::caches().first / 2) /
                        static_cast<std::uint32_t>(k * width * dim_t{sizeof(T)});
    near = panels > 1 ? dim_t{panels} * width : width;
  }
  gemm_epilogue<T> then;
  detail::tiny_shape<T> part = s.with_columns(whole_columns);
  const bool has_bias = s.then != nullptr && s.then->bias != nullptr;
  if (has_bias) {
    then = *s.then;
    part.then = &then;
  }
  for (dim_t left = whole_columns; left > 0; left -= near) {
    if (near > left) near = left;
    part.columns = static_cast<std::uint64_t>(near);
    f(a, b, c, lda, ldb, part);
    b += near;
    c += near;
    if (has_bias) then.bias += near;
  }
  if (const dim_t left = s.n() - whole_columns; left > 0) {
    part.columns = static_cast<std::uint64_t>(left);
    if (left > 2 * w) return wide_tiles_product(a, b, c, lda, ldb, part);
    narrow_tiles_product(a, b, c, lda, ldb, part, s.narrow);
  }
}

/// Where tiles of four registers pay: few rows, and of more, sums that are not too short.
template <class T>
IKEBANA_CPU_INLINE product_function<T> find_quads_tiny(dim_t m, dim_t n, dim_t k) {
  constexpr dim_t w = vec<T>::size;
  if (n <= 3 * w || m < 2 || (m > few_rows && n < 4 * w) || by_four_rows(m)) return nullptr;
  if (m > few_rows) return k > 2 && (k >= 16 || n >= 8 * w) ? &quads_tiny_product<T> : nullptr;
  // To make some columns twice costs less than tiles of few sums, and than another call.
  return k <= 12 || n < 4 * w || n % (4 * w) > w ? find_quad_tiny<T>(m) : &quads_tiny_product<T>;
}
#endif

#if IKEBANA_CPU_WIDTH >= 32
/// Sums of K terms, one or two, of at least a register of columns: row after row.
template <class T, std::size_t K>
IKEBANA_CPU_INLINE void outer_product(const T* a, const T* b, T* c, dim_t row, dim_t step,
                                      dim_t ldb, dim_t n, dim_t ldc, dim_t m) {
  constexpr dim_t w = vec<T>::size;
  const dim_t last = n - w;
  const T* const second = b + (K > 1 ? ldb : 0);
  for (; m > 0; --m, a += row, c += ldc) {
    const vec<T> x = vec<T>::broadcast(a[0]), y = vec<T>::broadcast(a[K > 1 ? step : 0]);
    const auto put = [&](dim_t j) __attribute__((always_inline)) {
      vec<T> sum = fma(x, vec<T>::load(b + j), vec<T>::zero());
      if (K > 1) sum = fma(y, vec<T>::load(second + j), sum);
      sum.store(c + j);
    };
    for (dim_t j = 0; j < last; j += w) put(j);
    put(last);
  }
}
inline constexpr dim_t most_outer = IKEBANA_CPU_WIDTH == 64 ? 2 : 1;
/// Sums of so few terms, without an epilogue: of one term, and where the result is beyond the
/// first-level cache, time goes into writing it.
template <class T>
[[gnu::noinline]] void outer_tiny_product(const T* a, const T* b, T* c, dim_t lda, dim_t ldb,
                                          const detail::tiny_shape<T>& s) {
  const dim_t row = lda < 0 ? 1 : lda, step = lda < 0 ? ~lda : 1;
  if (s.k == 1) return outer_product<T, 1>(a, b, c, row, step, ldb, s.n(), s.ldc, s.m());
  outer_product<T, std::size_t{most_outer}>(a, b, c, row, step, ldb, s.n(), s.ldc, s.m());
}
#endif

#if IKEBANA_CPU_WIDTH >= 32 || (IKEBANA_CPU_WIDTH == 16 && !IKEBANA_CPU_X86)
/// Of more columns than two registers have.
template <class T>
[[gnu::noinline]] void wide_tiny_product(const T* a, const T* b, T* c, dim_t lda, dim_t ldb,
                                         const detail::tiny_shape<T>& s) {
#if IKEBANA_CPU_WIDTH >= 32
  if (s.k <= most_outer && s.k > 0 && s.then == nullptr &&
      (s.k == 1 || (s.n() >= 4 * vec<T>::size &&
                    s.m() * s.n() * dim_t{sizeof(T)} > detail::caches().first))) [[unlikely]]
    return outer_tiny_product(a, b, c, lda, ldb, s);
#endif
#if IKEBANA_CPU_WIDTH == 64
  if (const product_function<T> held = find_held_product(s); held != nullptr)
    return held(a, b, c, lda, ldb, s);
#elif IKEBANA_CPU_WIDTH == 32
  if (const product_function<T> quads = find_quads_tiny<T>(s.m(), s.n(), s.k); quads != nullptr)
    return quads(a, b, c, lda, ldb, s);
#endif
  wide_tiles_product(a, b, c, lda, ldb, s);
}
#endif
