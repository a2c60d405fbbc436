// Parts of a register and several of them, as tiles of small products take them.

#if IKEBANA_CPU_WIDTH >= 32
/// 16 bytes: rows that are stored whole do not wait for each other.
template <class T>
struct quarter_vec {
  typedef T raw __attribute__((vector_size(16)));
  typedef T in_memory __attribute__((vector_size(16), aligned(alignof(T)), may_alias));
  static constexpr dim_t size = 16 / sizeof(T);
  raw v;

  IKEBANA_CPU_INLINE static quarter_vec zero() { return {raw{}}; }
  IKEBANA_CPU_INLINE static quarter_vec broadcast(T x) { return {x - raw{}}; }
  IKEBANA_CPU_INLINE static quarter_vec load(const T* p) {
    return {*reinterpret_cast<const in_memory*>(p)};
  }
  IKEBANA_CPU_INLINE void store(T* p) const { *reinterpret_cast<in_memory*>(p) = v; }
  IKEBANA_CPU_INLINE static quarter_vec load(const T* p, dim_t n) {
    raw x{p[0]};
    for (int i = 1; i < n; ++i) x[i] = p[i];
    return {x};
  }
  IKEBANA_CPU_INLINE void store(T* p, dim_t n) const {
    for (int i = 0; i < n; ++i) p[i] = v[i];
  }
  IKEBANA_CPU_INLINE friend quarter_vec max(quarter_vec a, quarter_vec b) {
    if constexpr (sizeof(T) == 4)
      return {__builtin_bit_cast(
          raw, _mm_max_ps(__builtin_bit_cast(__m128, a.v), __builtin_bit_cast(__m128, b.v)))};
    else
      return {__builtin_bit_cast(
          raw, _mm_max_pd(__builtin_bit_cast(__m128d, a.v), __builtin_bit_cast(__m128d, b.v)))};
  }
  IKEBANA_CPU_INLINE friend quarter_vec fma(quarter_vec a, quarter_vec b, quarter_vec c) {
    if constexpr (sizeof(T) == 4)
      return {__builtin_bit_cast(
          raw, _mm_fmadd_ps(__builtin_bit_cast(__m128, a.v), __builtin_bit_cast(__m128, b.v),
                            __builtin_bit_cast(__m128, c.v)))};
    else
      return {__builtin_bit_cast(
          raw, _mm_fmadd_pd(__builtin_bit_cast(__m128d, a.v), __builtin_bit_cast(__m128d, b.v),
                            __builtin_bit_cast(__m128d, c.v)))};
  }
};

/// All of a V, where the number of its elements is known to be that of the columns.
template <class T, class V>
struct whole {
  static constexpr dim_t size = V::size;
  V v;

  IKEBANA_CPU_INLINE static whole zero() { return {V::zero()}; }
  IKEBANA_CPU_INLINE static whole broadcast(T x) { return {V::broadcast(x)}; }
  IKEBANA_CPU_INLINE static whole load(const T* p, dim_t) { return {V::load(p)}; }
  IKEBANA_CPU_INLINE void store(T* p, dim_t) const { v.store(p); }
  IKEBANA_CPU_INLINE friend whole fma(whole a, whole b, whole c) { return {fma(a.v, b.v, c.v)}; }
  IKEBANA_CPU_INLINE friend whole max(whole a, whole b) { return {max(a.v, b.v)}; }
};
#endif

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
  // By the builtins of intrinsics whose header takes long to compile.
  IKEBANA_CPU_INLINE static half_vec load(const T* p, dim_t n) {
    if constexpr (sizeof(T) == 4)
      return {__builtin_ia32_loadups256_mask(at(p), raw{}, first(n))};
    else
      return {__builtin_ia32_loadupd256_mask(at(p), raw{}, first(n))};
  }
  IKEBANA_CPU_INLINE void store(T* p, dim_t n) const {
    if constexpr (sizeof(T) == 4)
      __builtin_ia32_storeups256_mask(at(p), v, first(n));
    else
      __builtin_ia32_storeupd256_mask(at(p), v, first(n));
  }
  IKEBANA_CPU_INLINE static __mmask8 first(dim_t n) {
    return static_cast<__mmask8>(first_lanes(n));
  }
  template <class P>
  IKEBANA_CPU_INLINE static auto at(P* p) {
#ifdef __clang__
    return reinterpret_cast<std::conditional_t<std::is_const_v<P>, const raw, raw>*>(p);
#else
    return p;
#endif
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
/// A register more than `Low` has.
template <class T, class Low>
struct wider_vec {
  static constexpr dim_t size = Low::size + vec<T>::size;
  Low low;
  vec<T> high;

  IKEBANA_CPU_INLINE static wider_vec zero() { return {Low::zero(), vec<T>::zero()}; }
  IKEBANA_CPU_INLINE static wider_vec broadcast(T x) {
    return {Low::broadcast(x), vec<T>::broadcast(x)};
  }
  IKEBANA_CPU_INLINE static wider_vec load(const T* p) {
    return {Low::load(p), vec<T>::load(p + Low::size)};
  }
  IKEBANA_CPU_INLINE void store(T* p) const {
    low.store(p);
    high.store(p + Low::size);
  }
  // Of n elements, more than `Low` has: the last register overlaps the one before, since what is
  // masked takes longer.
  IKEBANA_CPU_INLINE static wider_vec load(const T* p, dim_t n) {
    return {Low::load(p), vec<T>::load(p + n - vec<T>::size)};
  }
  IKEBANA_CPU_INLINE void store(T* p, dim_t n) const {
    low.store(p);
    high.store(p + n - vec<T>::size);
  }
  IKEBANA_CPU_INLINE friend wider_vec fma(wider_vec a, wider_vec b, wider_vec c) {
    return {fma(a.low, b.low, c.low), fma(a.high, b.high, c.high)};
  }
  IKEBANA_CPU_INLINE friend wider_vec max(wider_vec a, wider_vec b) {
    return {max(a.low, b.low), max(a.high, b.high)};
  }
};
template <class T>
using pair_vec = wider_vec<T, vec<T>>;
template <class T>
using triple_vec = wider_vec<T, pair_vec<T>>;
#endif
