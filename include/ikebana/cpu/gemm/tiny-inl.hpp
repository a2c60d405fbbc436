// Products of a tile or a few, where what is done once for each call takes as long as the
// arithmetic: one function hands over to the next by a jump. Sums are made in the same order as in
// larger tiles.

#if IKEBANA_CPU_WIDTH == 64
/// Half a register, which is twice as fast where the other half would be idle: loads of whole ones,
/// broadcasts too, are what these processors have least of.
template <class T>
struct half_vec {
  typedef T raw __attribute__((vector_size(32)));
  typedef T in_memory __attribute__((vector_size(32), aligned(alignof(T)), may_alias));
  static constexpr dim_t size = vec<T>::size / 2;
  raw v;

  IKEBANA_CPU_INLINE static half_vec zero() { return {raw{}}; }
  IKEBANA_CPU_INLINE static half_vec broadcast(T x) { return {x - raw{}}; }
  IKEBANA_CPU_INLINE static half_vec load(const T* p) {
    return {*reinterpret_cast<const in_memory*>(p)};
  }
  IKEBANA_CPU_INLINE void store(T* p) const { *reinterpret_cast<in_memory*>(p) = v; }
  IKEBANA_CPU_INLINE static half_vec load(const T* p, dim_t n) {
    if constexpr (sizeof(T) == 4)
      return {__builtin_bit_cast(raw, _mm256_maskload_ps(p, first(n)))};
    else
      return {__builtin_bit_cast(raw, _mm256_maskload_pd(p, first(n)))};
  }
  IKEBANA_CPU_INLINE void store(T* p, dim_t n) const {
    if constexpr (sizeof(T) == 4)
      _mm256_maskstore_ps(p, first(n), __builtin_bit_cast(__m256, v));
    else
      _mm256_maskstore_pd(p, first(n), __builtin_bit_cast(__m256d, v));
  }
  IKEBANA_CPU_INLINE static __m256i first(dim_t n) {
    if constexpr (sizeof(T) == 4)
      return _mm256_cmpgt_epi32(_mm256_set1_epi32(static_cast<int>(n)),
                                _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7));
    else
      return _mm256_cmpgt_epi64(_mm256_set1_epi64x(n), _mm256_setr_epi64x(0, 1, 2, 3));
  }
  IKEBANA_CPU_INLINE friend half_vec fma(half_vec a, half_vec b, half_vec c) {
    if constexpr (sizeof(T) == 4)
      return {__builtin_bit_cast(
          raw, _mm256_fmadd_ps(__builtin_bit_cast(__m256, a.v), __builtin_bit_cast(__m256, b.v),
                               __builtin_bit_cast(__m256, c.v)))};
    else
      return {__builtin_bit_cast(
          raw, _mm256_fmadd_pd(__builtin_bit_cast(__m256d, a.v), __builtin_bit_cast(__m256d, b.v),
                               __builtin_bit_cast(__m256d, c.v)))};
  }
  IKEBANA_CPU_INLINE friend half_vec max(half_vec a, half_vec b) {
    if constexpr (sizeof(T) == 4)
      return {__builtin_bit_cast(
          raw, _mm256_max_ps(__builtin_bit_cast(__m256, a.v), __builtin_bit_cast(__m256, b.v)))};
    else
      return {__builtin_bit_cast(
          raw, _mm256_max_pd(__builtin_bit_cast(__m256d, a.v), __builtin_bit_cast(__m256d, b.v)))};
  }
};
#endif

#if IKEBANA_CPU_WIDTH >= 32 || (IKEBANA_CPU_WIDTH == 16 && !IKEBANA_CPU_X86)
/// Two registers.
template <class T>
struct pair_vec {
  static constexpr dim_t size = 2 * vec<T>::size;
  vec<T> low, high;

  IKEBANA_CPU_INLINE static pair_vec zero() { return {vec<T>::zero(), vec<T>::zero()}; }
  IKEBANA_CPU_INLINE static pair_vec broadcast(T x) {
    const vec<T> v = vec<T>::broadcast(x);
    return {v, v};
  }
  IKEBANA_CPU_INLINE static pair_vec load(const T* p) {
    return {vec<T>::load(p), vec<T>::load(p + vec<T>::size)};
  }
  IKEBANA_CPU_INLINE void store(T* p) const {
    low.store(p);
    high.store(p + vec<T>::size);
  }
  IKEBANA_CPU_INLINE static pair_vec load(const T* p, dim_t n) {
    return {vec<T>::load(p), vec<T>::load(p + vec<T>::size, n - vec<T>::size)};
  }
  IKEBANA_CPU_INLINE void store(T* p, dim_t n) const {
    low.store(p);
    high.store(p + vec<T>::size, n - vec<T>::size);
  }
  IKEBANA_CPU_INLINE friend pair_vec fma(pair_vec a, pair_vec b, pair_vec c) {
    return {fma(a.low, b.low, c.low), fma(a.high, b.high, c.high)};
  }
  IKEBANA_CPU_INLINE friend pair_vec max(pair_vec a, pair_vec b) {
    return {max(a.low, b.low), max(a.high, b.high)};
  }
};

/// The most rows of a tile of up to a register of columns, and of two.
#if IKEBANA_CPU_WIDTH == 64
inline constexpr std::size_t tiny_rows = 16, tiny_pair_rows = 12;
#elif IKEBANA_CPU_WIDTH == 32
inline constexpr std::size_t tiny_rows = 8, tiny_pair_rows = 6;
#else
inline constexpr std::size_t tiny_rows = 8, tiny_pair_rows = 8;
#endif

template <class T>
using product_function = void (*)(const T*, const T*, T*, detail::tiny_sizes, detail::tiny_steps,
                                  const gemm_epilogue<T>*);
template <class T>
IKEBANA_CPU_INLINE product_function<T> find_wide_tiny(dim_t m);

/// An even number of rows stands for one less, too: the last row is the one before once more. Tiles
/// of two registers follow each other to the right, and downwards where they are of more than half
/// as many rows as can be: the last ones overlap those before, but for a few rows.
template <class T, class V, std::size_t... R>
IKEBANA_CPU_INLINE void tiny_product(const T* a, const T* b, T* c, detail::tiny_sizes s,
                                     detail::tiny_steps steps, const gemm_epilogue<T>* then,
                                     std::index_sequence<R...>) {
  constexpr std::size_t rows = sizeof...(R);
  constexpr dim_t most = rows, width = V::size;
  constexpr bool across = width > vec<T>::size, down = across && 2 * rows > tiny_pair_rows;
  dim_t below = s.m() - most;
  const dim_t row = s.ta() ? 1 : steps.a(), step = s.ta() ? steps.a() : 1, ldb = steps.b(),
              ldc = steps.c(), last_row = below < 0 ? s.m() - 1 : most - 1, beyond = s.n() - width,
              n = across && beyond > 0 ? width : s.n();
  // A pointer for each three rows: no instruction is needed but for what uses them.
  constexpr std::size_t pointers = rows > 3 ? (rows + 1) / 3 : 1;
  for (;;) {
    for (dim_t j = 0;;) {
      V sums[rows];
      sums[0] = V::zero();
      if (then->bias != nullptr) sums[0] = V::load(then->bias + j, n);
      ((sums[R] = sums[0]), ...);
      const T* from[] = {a + static_cast<dim_t>(R < pointers ? R * 3 : 0) * row...};
      const T *last = a + last_row * row, *next = b + j;
      for (dim_t k = s.k(); k > 0; --k, next += ldb) {
        const V columns = V::load(next, n);
        ((sums[R] = fma(
              V::broadcast(R > 0 && R + 1 == rows ? *last
                                                  : from[R / 3][static_cast<dim_t>(R % 3) * row]),
              columns, sums[R])),
         ...);
        ((R < pointers ? (from[R] += step, keep_in_register(from[R])) : void()), ...);
        last += step;
        keep_in_register(last);
      }
      if (then->function == activation::relu) ((sums[R] = max(V::zero(), sums[R])), ...);
      (sums[R].store(c + j + (R > 0 && R + 1 == rows ? last_row : static_cast<dim_t>(R)) * ldc, n),
       ...);
      if (!across || j >= beyond) break;
      j = j + width < beyond ? j + width : beyond;
    }
    if (!down || below <= 0) return;
    if (below + 1 < most)
      return find_wide_tiny<T>(below)(a + most * row, b, c + most * ldc,
                                      {below, s.n(), s.k(), s.ta()}, steps, then);
    const dim_t next = below < most ? below : most;
    below -= next;
    a += next * row;
    c += next * ldc;
  }
}
template <class T, class V, std::size_t Rows>
void tiny_product(const T* a, const T* b, T* c, detail::tiny_sizes s, detail::tiny_steps steps,
                  const gemm_epilogue<T>* then) {
  tiny_product<T, V>(a, b, c, s, steps, then, std::make_index_sequence<Rows>{});
}

template <class T, class V, std::size_t... Pairs>
IKEBANA_CPU_INLINE product_function<T> find_tiny(dim_t m, std::index_sequence<Pairs...>) {
  static constexpr product_function<T> all[] = {&tiny_product<T, V, 1>,
                                                &tiny_product<T, V, 2 * Pairs + 2>...};
  return all[(m + (m > 1)) / 2];
}
/// The tile of m rows and n columns, of up to a register.
template <class T>
IKEBANA_CPU_INLINE product_function<T> find_narrow_tiny(dim_t m, [[maybe_unused]] dim_t n) {
#if IKEBANA_CPU_WIDTH == 64
  if (n <= half_vec<T>::size && m <= 8)
    return find_tiny<T, half_vec<T>>(m, std::make_index_sequence<4>{});
#endif
  return find_tiny<T, vec<T>>(m, std::make_index_sequence<tiny_rows / 2>{});
}

/// Of more rows than a tile has.
template <class T>
[[gnu::noinline]] void long_tiny_product(const T* a, const T* b, T* c, detail::tiny_sizes s,
                                         detail::tiny_steps steps, const gemm_epilogue<T>* then) {
  constexpr dim_t most = tiny_rows;
  const dim_t row = s.ta() ? 1 : steps.a(), n = s.n();
  if (s.ta() && multiply_few_columns(s.m(), n, s.k(), a, steps.a(), b, steps.b(), dim_t{1}, c,
                                     steps.c(), *then))
    return;
  for (dim_t left = s.m(), rows; left > 0; left -= rows, a += rows * row, c += rows * steps.c()) {
    rows = left <= most ? left : left <= 2 * most ? (left + 1) / 2 : most;
    find_narrow_tiny<T>(rows, n)(a, b, c, {rows, n, s.k(), s.ta()}, steps, then);
  }
}

/// Of more than a register.
template <class T>
IKEBANA_CPU_INLINE product_function<T> find_wide_tiny(dim_t m) {
  constexpr auto most = static_cast<dim_t>(tiny_pair_rows);
  if (m > most) {
    // As many each where they are few. Narrow divisions take half the time.
    const auto rows = static_cast<std::uint32_t>(m - 1),
               tiles = rows / static_cast<std::uint32_t>(most) + 1;
    m = tiles < 6 ? rows / tiles + 1 : most;
  }
  return find_tiny<T, pair_vec<T>>(m, std::make_index_sequence<tiny_pair_rows / 2>{});
}

#if IKEBANA_CPU_WIDTH >= 32
/// Pairs of registers, and a single one, while the rows are near.
template <class T>
[[gnu::noinline]] void odd_tiny_product(const T* a, const T* b, T* c, detail::tiny_sizes s,
                                        detail::tiny_steps steps, const gemm_epilogue<T>* then) {
  constexpr dim_t strip = 4 * tiny_pair_rows;
  const dim_t row = s.ta() ? 1 : steps.a(), n = s.n(),
              pairs = (n - 1) / (2 * vec<T>::size) * 2 * vec<T>::size;
  const gemm_epilogue<T> rest{.bias = then->bias == nullptr ? nullptr : then->bias + pairs,
                              .function = then->function};
  for (dim_t left = s.m(), m; left > 0; left -= m, a += m * row, c += m * steps.c()) {
    m = left < strip ? left : strip;
    find_wide_tiny<T>(m)(a, b, c, {m, pairs, s.k(), s.ta()}, steps, then);
    long_tiny_product<T>(a, b + pairs, c + pairs, {m, n - pairs, s.k(), s.ta()}, steps, &rest);
  }
}
#endif

/// Sums of K terms, one or two, as is_outer says: row after row.
template <class T, std::size_t K>
[[gnu::noinline]] void outer_product(const T* a, const T* b, T* c, detail::tiny_sizes s,
                                     detail::tiny_steps steps, const gemm_epilogue<T>* then) {
  if (then->bias != nullptr || then->function != activation::none)
    return find_wide_tiny<T>(s.m())(a, b, c, s, steps, then);
  constexpr dim_t w = vec<T>::size;
  const dim_t row = s.ta() ? 1 : steps.a(), step = s.ta() ? steps.a() : 1, last = s.n() - w,
              ldc = steps.c();
  const T* const second = b + (K > 1 ? steps.b() : 0);
  for (dim_t m = s.m(); m > 0; --m, a += row, c += ldc) {
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
inline constexpr std::size_t most_outer = IKEBANA_CPU_WIDTH == 64 ? 2 : 1;
/// Whether a product of as few terms has a result beyond the first-level cache: time goes into
/// writing it.
template <class T>
IKEBANA_CPU_INLINE bool is_outer(dim_t m, dim_t n, dim_t k) {
  return k > 0 && k <= dim_t{most_outer} && n >= 4 * vec<T>::size &&
         m * n * dim_t{sizeof(T)} > detail::caches().first;
}

/// The tiles of m rows and n columns.
template <class T>
IKEBANA_CPU_INLINE product_function<T> find_tiny(dim_t m, dim_t n, [[maybe_unused]] dim_t k) {
  constexpr dim_t w = vec<T>::size;
  if (n <= w) return m <= dim_t{tiny_rows} ? find_narrow_tiny<T>(m, n) : &long_tiny_product<T>;
#if IKEBANA_CPU_WIDTH >= 32
  if (is_outer<T>(m, n, k)) [[unlikely]]
    return k == 1 ? &outer_product<T, 1> : &outer_product<T, most_outer>;
  // Where half a pair left over would be a large part.
  if (n > 2 * w && n <= 5 * w && (n <= 3 * w || n > 4 * w) && m > dim_t{tiny_pair_rows})
    return &odd_tiny_product<T>;
#endif
  return find_wide_tiny<T>(m);
}
#endif
