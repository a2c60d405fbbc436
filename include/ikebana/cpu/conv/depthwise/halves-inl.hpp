// Rows of two channels as the halves of registers (depthwise/planes.hpp).

#if IKEBANA_CPU_WIDTH == 32 || IKEBANA_CPU_WIDTH == 64
#if IKEBANA_CPU_WIDTH == 64
IKEBANA_CPU_INLINE vec<float> load_two(const float* p, const float* q) {
  const auto quarters = [](const float* of) { return reinterpret_cast<const double*>(of); };
  return as<float>(vec<double>{
      _mm512_maskz_insertf64x4(0xff, _mm512_castpd256_pd512(_mm256_loadu_pd(quarters(p))),
                               _mm256_loadu_pd(quarters(q)), 1)});
}
IKEBANA_CPU_INLINE void store_two(vec<float> x, float* p, float* q, dim_t lanes) {
  const unsigned mask = first_lanes(lanes);
  _mm512_mask_storeu_ps(p, static_cast<__mmask16>(mask), x.v);
  _mm512_mask_storeu_ps(q - 8, static_cast<__mmask16>(mask << 8), x.v);
}
/// a in the first half, b in the second.
IKEBANA_CPU_INLINE vec<float> broadcast_two(float a, float b) {
  return {_mm512_mask_mov_ps(_mm512_set1_ps(a), 0xff00, _mm512_set1_ps(b))};
}
/// A mask of a half's lanes for both halves where they are planes of their own.
template <bool Two, class T>
IKEBANA_CPU_INLINE std::uint16_t of_parts(std::uint16_t mask) {
  return Two ? static_cast<std::uint16_t>(mask | mask << (vec<T>::size / 2)) : mask;
}
#else
template <bool, class T>
IKEBANA_CPU_INLINE __m256i of_parts(__m256i mask) {
  return mask;
}
#endif
#endif
