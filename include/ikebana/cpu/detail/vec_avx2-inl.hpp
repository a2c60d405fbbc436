// vec<T> by AVX2 and FMA (vec-inl.hpp).

#define IKEBANA_CPU_OF(T, end)                                                               \
  IKEBANA_CPU_INLINE vec<T> fma(vec<T> a, vec<T> b, vec<T> c) {                              \
    return {_mm256_fmadd_##end(a.v, b.v, c.v)};                                              \
  }                                                                                          \
  IKEBANA_CPU_INLINE vec<T> max(vec<T> a, vec<T> b) { return {_mm256_max_##end(a.v, b.v)}; } \
  IKEBANA_CPU_INLINE vec<T> min(vec<T> a, vec<T> b) { return {_mm256_min_##end(a.v, b.v)}; } \
  IKEBANA_CPU_INLINE vec<T> sqrt(vec<T> a) { return {_mm256_sqrt_##end(a.v)}; }
IKEBANA_CPU_OF(float, ps)
IKEBANA_CPU_OF(double, pd)
#undef IKEBANA_CPU_OF

template <int Bytes>
IKEBANA_CPU_INLINE __m256i first_lanes(dim_t n) {
  if constexpr (Bytes == 4)
    return _mm256_cmpgt_epi32(_mm256_set1_epi32(static_cast<int>(n)),
                              _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7));
  else
    return _mm256_cmpgt_epi64(_mm256_set1_epi64x(n), _mm256_setr_epi64x(0, 1, 2, 3));
}
template <class T>
IKEBANA_CPU_INLINE vec<T> vec<T>::load(const T* p, dim_t n) {
  if constexpr (sizeof(T) == 4)
    return {__builtin_bit_cast(
        raw, _mm256_maskload_ps(reinterpret_cast<const float*>(p), first_lanes<4>(n)))};
  else
    return {__builtin_bit_cast(
        raw, _mm256_maskload_pd(reinterpret_cast<const double*>(p), first_lanes<8>(n)))};
}
template <class T>
IKEBANA_CPU_INLINE void vec<T>::store(T* p, dim_t n) const {
  if constexpr (sizeof(T) == 4)
    _mm256_maskstore_ps(reinterpret_cast<float*>(p), first_lanes<4>(n),
                        __builtin_bit_cast(__m256, v));
  else
    _mm256_maskstore_pd(reinterpret_cast<double*>(p), first_lanes<8>(n),
                        __builtin_bit_cast(__m256d, v));
}

/// Lane i: the product of the unsigned lanes 2 i, in full.
IKEBANA_CPU_INLINE vec<std::uint64_t> multiply_even(vec<std::uint32_t> a, vec<std::uint32_t> b) {
  using wide = vec<std::uint64_t>::raw;
  return {__builtin_bit_cast(
      wide, _mm256_mul_epu32(__builtin_bit_cast(__m256i, a.v), __builtin_bit_cast(__m256i, b.v)))};
}
