// Products of one tile, where what is done once for each call takes as long as the arithmetic: one
// function hands over to the next by a jump. Sums are made in the same order as in larger tiles.

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

/// An even number of rows stands for one less, too: the last row is the one before once more. Of
/// the widest, several may stand side by side.
template <class T, class V, std::size_t... R>
IKEBANA_CPU_INLINE void tiny_product(const T* a, const T* b, T* c, detail::tiny_sizes s,
                                     detail::tiny_steps steps, const gemm_epilogue<T>* then,
                                     std::index_sequence<R...>) {
  constexpr std::size_t rows = sizeof...(R);
  constexpr bool repeats = V::size > vec<T>::size;
  const dim_t last_row = s.m() - 1, row = s.ta() ? 1 : steps.a(), step = s.ta() ? steps.a() : 1,
              ldb = steps.b(), ldc = steps.c();
  // A pointer for each three rows: no instruction is needed but for what uses them.
  constexpr std::size_t pointers = rows > 3 ? (rows + 1) / 3 : 1;
  [[maybe_unused]] dim_t blocks = repeats ? s.blocks() : 0;
  const T* bias = then->bias;
  for (;;) {
    const dim_t n = repeats && blocks > 0 ? V::size : s.n();
    V sums[rows];
    sums[0] = V::zero();
    if (bias != nullptr) sums[0] = V::load(bias, n);
    ((sums[R] = sums[0]), ...);
    const T* from[] = {a + static_cast<dim_t>(R < pointers ? R * 3 : 0) * row...};
    const T *last = a + last_row * row, *next = b;
    for (dim_t k = s.k(); k > 0; --k, next += ldb) {
      const V columns = V::load(next, n);
      ((sums[R] =
            fma(V::broadcast(R > 0 && R + 1 == rows ? *last
                                                    : from[R / 3][static_cast<dim_t>(R % 3) * row]),
                columns, sums[R])),
       ...);
      ((R < pointers ? (from[R] += step, keep_in_register(from[R])) : void()), ...);
      last += step;
      keep_in_register(last);
    }
    if (then->function == activation::relu) ((sums[R] = max(V::zero(), sums[R])), ...);
    (sums[R].store(c + (R > 0 && R + 1 == rows ? last_row : static_cast<dim_t>(R)) * ldc, n), ...);
    if constexpr (!repeats) return;
    if (--blocks < 0) return;
    b += V::size;
    c += V::size;
    if (bias != nullptr) bias += V::size;
  }
}
template <class T, class V, std::size_t Rows>
void tiny_product(const T* a, const T* b, T* c, detail::tiny_sizes s, detail::tiny_steps steps,
                  const gemm_epilogue<T>* then) {
  tiny_product<T, V>(a, b, c, s, steps, then, std::make_index_sequence<Rows>{});
}

template <class T>
using product_function = void (*)(const T*, const T*, T*, detail::tiny_sizes, detail::tiny_steps,
                                  const gemm_epilogue<T>*);
template <class T, class V, std::size_t... Pairs>
IKEBANA_CPU_INLINE product_function<T> find_tiny(dim_t m, std::index_sequence<Pairs...>) {
  static constexpr product_function<T> all[] = {&tiny_product<T, V, 1>,
                                                &tiny_product<T, V, 2 * Pairs + 2>...};
  return all[(m + (m > 1)) / 2];
}
/// The tile of m rows and n columns.
template <class T>
IKEBANA_CPU_INLINE product_function<T> find_tiny(dim_t m, dim_t n) {
#if IKEBANA_CPU_WIDTH == 64
  if (n <= half_vec<T>::size && m <= 8)
    return find_tiny<T, half_vec<T>>(m, std::make_index_sequence<4>{});
#endif
  if (n <= vec<T>::size) return find_tiny<T, vec<T>>(m, std::make_index_sequence<tiny_rows / 2>{});
  return find_tiny<T, pair_vec<T>>(m, std::make_index_sequence<tiny_pair_rows / 2>{});
}
#endif
