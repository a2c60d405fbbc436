// vec<T> by AVX-512 (vec-inl.hpp).

// The zero-masked forms with all lanes on: g++ 12 warns of the undefined operand inside the plain
// ones.
inline constexpr __mmask16 all16 = 0xFFFF;
inline constexpr __mmask8 all8 = 0xFF;
IKEBANA_CPU_INLINE vec<float> fma(vec<float> a, vec<float> b, vec<float> c) {
  return {_mm512_fmadd_ps(a.v, b.v, c.v)};
}
IKEBANA_CPU_INLINE vec<double> fma(vec<double> a, vec<double> b, vec<double> c) {
  return {_mm512_fmadd_pd(a.v, b.v, c.v)};
}
IKEBANA_CPU_INLINE vec<float> max(vec<float> a, vec<float> b) {
  return {_mm512_maskz_max_ps(all16, a.v, b.v)};
}
IKEBANA_CPU_INLINE vec<double> max(vec<double> a, vec<double> b) {
  return {_mm512_maskz_max_pd(all8, a.v, b.v)};
}
IKEBANA_CPU_INLINE vec<float> min(vec<float> a, vec<float> b) {
  return {_mm512_maskz_min_ps(all16, a.v, b.v)};
}
IKEBANA_CPU_INLINE vec<double> min(vec<double> a, vec<double> b) {
  return {_mm512_maskz_min_pd(all8, a.v, b.v)};
}
IKEBANA_CPU_INLINE vec<float> sqrt(vec<float> a) { return {_mm512_maskz_sqrt_ps(all16, a.v)}; }
IKEBANA_CPU_INLINE vec<double> sqrt(vec<double> a) { return {_mm512_maskz_sqrt_pd(all8, a.v)}; }
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
/// The lanes of `mask`, and those of `old`; the memory of these is not touched.
IKEBANA_CPU_INLINE vec<float> load_lanes(vec<float> old, unsigned mask, const float* p) {
  return {_mm512_mask_loadu_ps(old.v, static_cast<__mmask16>(mask), p)};
}
IKEBANA_CPU_INLINE vec<double> load_lanes(vec<double> old, unsigned mask, const double* p) {
  return {_mm512_mask_loadu_pd(old.v, static_cast<__mmask8>(mask), p)};
}
IKEBANA_CPU_INLINE vec<float> scale_by_power(vec<float> a, vec<float> n) {
  return {_mm512_maskz_scalef_ps(all16, a.v, n.v)};
}
IKEBANA_CPU_INLINE vec<double> scale_by_power(vec<double> a, vec<double> n) {
  return {_mm512_maskz_scalef_pd(all8, a.v, n.v)};
}

/// Lane i: the product of the unsigned lanes 2 i, in full.
IKEBANA_CPU_INLINE vec<std::uint64_t> multiply_even(vec<std::uint32_t> a, vec<std::uint32_t> b) {
  using wide = vec<std::uint64_t>::raw;
  return {__builtin_bit_cast(wide, _mm512_maskz_mul_epu32(all8, __builtin_bit_cast(__m512i, a.v),
                                                          __builtin_bit_cast(__m512i, b.v)))};
}
