// Products whose sums are short: rows of B stay in registers while those of A pass by, so that an
// element of the result costs its products and its store.

#if IKEBANA_CPU_WIDTH == 64
/// Registers of columns, of which the last begins at column `last` and may overlap those before.
/// The sums begin with `start`, element by element of a row.
template <class T, int Terms, int Registers>
void held_strip(const T* a, const T* b, T* c, dim_t row, dim_t step, dim_t ldb, dim_t ldc, dim_t m,
                dim_t last, const T* start) {
  constexpr dim_t w = vec<T>::size;
  const auto at = [&](int r) __attribute__((always_inline)) {
    return r + 1 < Registers ? r * w : last;
  };
  vec<T> held[Terms][Registers];
#pragma GCC unroll 8
  for (int p = 0; p < Terms; ++p) {
#pragma GCC unroll 8
    for (int r = 0; r < Registers; ++r) held[p][r] = vec<T>::load(b + p * ldb + at(r));
  }
  for (; m > 0; --m, a += row, c += ldc) {
    vec<T> sums[Registers];
#pragma GCC unroll 8
    for (int r = 0; r < Registers; ++r) sums[r] = vec<T>::load(start + at(r));
#pragma GCC unroll 8
    for (int p = 0; p < Terms; ++p) {
      const vec<T> x = vec<T>::broadcast(a[p * step]);
#pragma GCC unroll 8
      for (int r = 0; r < Registers; ++r) sums[r] = fma(x, held[p][r], sums[r]);
    }
#pragma GCC unroll 8
    for (int r = 0; r < Registers; ++r) sums[r].store(c + at(r));
  }
}

/// All columns, of which there are more than a register has: four registers of them at a time, the
/// last two, or all where there are fewer than four, by pairs.
template <class T, int Terms>
[[gnu::noinline]] void held_product(const T* a, const T* b, T* c, dim_t lda, dim_t ldb,
                                    const detail::tiny_shape<T>& s) {
  constexpr dim_t w = vec<T>::size, most = 4 * w;
  alignas(64) static constexpr T zeros[most] = {};
  const dim_t n = s.n(), row = lda < 0 ? 1 : lda, step = lda < 0 ? ~lda : 1;
  const T* const bias = s.then != nullptr ? s.then->bias : nullptr;
  for (dim_t j = 0; j < n;) {
    const dim_t left = n - j;
    const bool fours = left > 2 * w && n >= most;
    // What is less overlaps what stands before it.
    const dim_t width = fours ? most : 2 * w, begin = std::min(j, std::max<dim_t>(n - width, 0));
    const T* const start = bias != nullptr ? bias + begin : zeros;
    if (fours)
      held_strip<T, Terms, 4>(a, b + begin, c + begin, row, step, ldb, s.ldc, s.m(), most - w,
                              start);
    else
      held_strip<T, Terms, 2>(a, b + begin, c + begin, row, step, ldb, s.ldc, s.m(),
                              std::min(n - begin, width) - w, start);
    j = begin + width;
  }
}

/// Null where tiles are better, or these are not built: few rows; three registers of columns, which
/// would be made as four; two terms of what is far; rows that are so near to a page apart that what
/// is written falls on a few lines of the cache.
template <class T>
IKEBANA_CPU_INLINE product_function<T> find_held_product(const detail::tiny_shape<T>& s) {
  constexpr dim_t w = vec<T>::size, page = 4096, near = 32;
  const dim_t n = s.n();
  if (s.k > detail::narrow_tile::most_terms || s.k <= 1 || s.m() < 16 ||
      (n > 2 * w && n <= 3 * w) ||
      (s.k == 2 && s.m() * n * dim_t{sizeof(T)} > detail::caches().first) ||
      (s.ldc * dim_t{sizeof(T)} + near) % page < 2 * near ||
      (s.then != nullptr && s.then->function == activation::relu))
    return nullptr;
  return s.narrow[first_held + s.k - 2];
}
#endif
