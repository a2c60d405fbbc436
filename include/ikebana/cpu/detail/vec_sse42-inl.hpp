// vec<T> by SSE4.2, which has no fused multiply-add and no partial loads (vec-inl.hpp).

template <class T>
IKEBANA_CPU_INLINE vec<T> fma(vec<T> a, vec<T> b, vec<T> c) {
  return {a.v * b.v + c.v};
}
IKEBANA_CPU_INLINE vec<float> max(vec<float> a, vec<float> b) { return {_mm_max_ps(a.v, b.v)}; }
IKEBANA_CPU_INLINE vec<double> max(vec<double> a, vec<double> b) { return {_mm_max_pd(a.v, b.v)}; }
IKEBANA_CPU_INLINE vec<float> min(vec<float> a, vec<float> b) { return {_mm_min_ps(a.v, b.v)}; }
IKEBANA_CPU_INLINE vec<double> min(vec<double> a, vec<double> b) { return {_mm_min_pd(a.v, b.v)}; }
IKEBANA_CPU_INLINE vec<float> sqrt(vec<float> a) { return {_mm_sqrt_ps(a.v)}; }
IKEBANA_CPU_INLINE vec<double> sqrt(vec<double> a) { return {_mm_sqrt_pd(a.v)}; }

/// Lane i: the product of the unsigned lanes 2 i, in full.
IKEBANA_CPU_INLINE vec<std::uint64_t> multiply_even(vec<std::uint32_t> a, vec<std::uint32_t> b) {
  using wide = vec<std::uint64_t>::raw;
  return {__builtin_bit_cast(
      wide, _mm_mul_epu32(__builtin_bit_cast(__m128i, a.v), __builtin_bit_cast(__m128i, b.v)))};
}
