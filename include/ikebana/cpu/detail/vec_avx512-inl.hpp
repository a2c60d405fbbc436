// vec<T> by AVX-512 (vec-inl.hpp).

// The zero-masked forms with all lanes on: g++ 12 warns of the undefined operand inside the plain
// ones.
inline constexpr __mmask16 all16 = 0xFFFF;
inline constexpr __mmask8 all8 = 0xFF;
#define IKEBANA_CPU_OF(T, end, all)                                                        \
  IKEBANA_CPU_INLINE vec<T> fma(vec<T> a, vec<T> b, vec<T> c) {                            \
    return {_mm512_fmadd_##end(a.v, b.v, c.v)};                                            \
  }                                                                                        \
  IKEBANA_CPU_INLINE vec<T> max(vec<T> a, vec<T> b) {                                      \
    return {_mm512_maskz_max_##end(all, a.v, b.v)};                                        \
  }                                                                                        \
  IKEBANA_CPU_INLINE vec<T> min(vec<T> a, vec<T> b) {                                      \
    return {_mm512_maskz_min_##end(all, a.v, b.v)};                                        \
  }                                                                                        \
  IKEBANA_CPU_INLINE vec<T> sqrt(vec<T> a) { return {_mm512_maskz_sqrt_##end(all, a.v)}; } \
  IKEBANA_CPU_INLINE vec<T> scale_by_power(vec<T> a, vec<T> n) {                           \
    return {_mm512_maskz_scalef_##end(all, a.v, n.v)};                                     \
  }                                                                                        \
  /* The lanes of `mask`, and those of `old`; the memory of these is not touched. */       \
  IKEBANA_CPU_INLINE vec<T> load_lanes(vec<T> old, unsigned mask, const T* p) {            \
    return {_mm512_mask_loadu_##end(old.v, static_cast<decltype(all)>(mask), p)};          \
  }
IKEBANA_CPU_OF(float, ps, __mmask16(0xFFFF))
IKEBANA_CPU_OF(double, pd, __mmask8(0xFF))
#undef IKEBANA_CPU_OF
IKEBANA_CPU_INLINE unsigned first_lanes(dim_t n) { return (1u << n) - 1u; }
template <class T>
IKEBANA_CPU_INLINE vec<T> vec<T>::load(const T* p, dim_t n) {
  if constexpr (sizeof(T) == 4)
    return {
        __builtin_bit_cast(raw, _mm512_maskz_loadu_ps(static_cast<__mmask16>(first_lanes(n)), p))};
  else
    return {
        __builtin_bit_cast(raw, _mm512_maskz_loadu_pd(static_cast<__mmask8>(first_lanes(n)), p))};
}
template <class T>
IKEBANA_CPU_INLINE void vec<T>::store(T* p, dim_t n) const {
  if constexpr (sizeof(T) == 4)
    _mm512_mask_storeu_ps(p, static_cast<__mmask16>(first_lanes(n)), __builtin_bit_cast(__m512, v));
  else
    _mm512_mask_storeu_pd(p, static_cast<__mmask8>(first_lanes(n)), __builtin_bit_cast(__m512d, v));
}

/// Lane i: the product of the unsigned lanes 2 i, in full.
IKEBANA_CPU_INLINE vec<std::uint64_t> multiply_even(vec<std::uint32_t> a, vec<std::uint32_t> b) {
  using wide = vec<std::uint64_t>::raw;
  return {__builtin_bit_cast(wide, _mm512_maskz_mul_epu32(all8, __builtin_bit_cast(__m512i, a.v),
                                                          __builtin_bit_cast(__m512i, b.v)))};
}
