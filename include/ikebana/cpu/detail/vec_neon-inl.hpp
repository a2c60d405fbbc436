// vec<T> by Neon (vec-inl.hpp).

IKEBANA_CPU_INLINE vec<float> fma(vec<float> a, vec<float> b, vec<float> c) {
  return {__builtin_bit_cast(vec<float>::raw, vfmaq_f32(__builtin_bit_cast(float32x4_t, c.v),
                                                        __builtin_bit_cast(float32x4_t, a.v),
                                                        __builtin_bit_cast(float32x4_t, b.v)))};
}
IKEBANA_CPU_INLINE vec<double> fma(vec<double> a, vec<double> b, vec<double> c) {
  return {__builtin_bit_cast(vec<double>::raw, vfmaq_f64(__builtin_bit_cast(float64x2_t, c.v),
                                                         __builtin_bit_cast(float64x2_t, a.v),
                                                         __builtin_bit_cast(float64x2_t, b.v)))};
}
// The instructions of these names keep what is not a number.
template <class T>
IKEBANA_CPU_INLINE vec<T> max(vec<T> a, vec<T> b) {
  return select(a > b, a, b);
}
template <class T>
IKEBANA_CPU_INLINE vec<T> min(vec<T> a, vec<T> b) {
  return select(a < b, a, b);
}
IKEBANA_CPU_INLINE vec<float> sqrt(vec<float> a) {
  return {__builtin_bit_cast(vec<float>::raw, vsqrtq_f32(__builtin_bit_cast(float32x4_t, a.v)))};
}
IKEBANA_CPU_INLINE vec<double> sqrt(vec<double> a) {
  return {__builtin_bit_cast(vec<double>::raw, vsqrtq_f64(__builtin_bit_cast(float64x2_t, a.v)))};
}

/// Lane i: the product of the unsigned lanes 2 i, in full.
IKEBANA_CPU_INLINE vec<std::uint64_t> multiply_even(vec<std::uint32_t> a, vec<std::uint32_t> b) {
  using wide = vec<std::uint64_t>::raw;
  return {__builtin_bit_cast(wide, vmull_u32(vmovn_u64(__builtin_bit_cast(uint64x2_t, a.v)),
                                             vmovn_u64(__builtin_bit_cast(uint64x2_t, b.v))))};
}
