// Polynomials on vec<T>.

/// c[0] + c[1] x + ... by Horner's rule.
template <class T, std::size_t N, std::size_t... I>
IKEBANA_CPU_INLINE vec<T> polynomial(const T (&c)[N], vec<T> x, std::index_sequence<I...>) {
  vec<T> y = vec<T>::broadcast(c[N - 1]);
  ((y = fma(y, x, vec<T>::broadcast(c[N - 2 - I]))), ...);
  return y;
}
template <class T, std::size_t N>
IKEBANA_CPU_INLINE vec<T> polynomial(const T (&c)[N], vec<T> x) {
  return polynomial(c, x, std::make_index_sequence<N - 1>{});
}

#if IKEBANA_CPU_WIDTH >= 32
/// Lane i: element at[i] of the 8 of a row, the upper bits of `at` without meaning.
IKEBANA_CPU_INLINE vec<float> pick(const float* row, vec<std::int32_t> at) {
#if IKEBANA_CPU_WIDTH == 64
  typedef float eight __attribute__((vector_size(32), may_alias));
  const eight half = *reinterpret_cast<const eight*>(row);
  const auto both =
      __builtin_shufflevector(half, half, 0, 1, 2, 3, 4, 5, 6, 7, 0, 1, 2, 3, 4, 5, 6, 7);
  return {_mm512_maskz_permutexvar_ps(all16, __builtin_bit_cast(__m512i, at.v),
                                      __builtin_bit_cast(__m512, both))};
#else
  return {_mm256_permutevar8x32_ps(vec<float>::load(row).v, __builtin_bit_cast(__m256i, at.v))};
#endif
}

/// Of two coefficients in one number, which itself is the lower one, that of the higher power.
IKEBANA_CPU_INLINE vec<float> upper_of_pair(vec<float> both) {
  return as<float>(as<std::int32_t>(both) << 16);
}
/// The polynomial of the interval of a, 0 <= a <= most. Intervals grow with the octaves of
/// scale a + 1/2, or are equally wide in (square a + step) a.
template <class Pieces>
IKEBANA_CPU_INLINE vec<float> piecewise(vec<float> a) {
  using P = Pieces;
  vec<std::int32_t> at;
  if constexpr (P::by_octaves) {
    at = as<std::int32_t>(fma(a, vec<float>::broadcast(P::scale), vec<float>::broadcast(0.5f))) >>
         22;
  } else {
    // The last bits of a sum with a number this big are the interval.
    vec<float> slope = vec<float>::broadcast(P::step);
    if constexpr (P::square != 0) slope = fma(a, vec<float>::broadcast(P::square), slope);
    at = as<std::int32_t>(fma(a, slope, vec<float>::broadcast(0x1.8p23f)));
  }
  constexpr int n = static_cast<int>(sizeof(P::rows) / sizeof(P::rows[0]));
  const vec<float> center = pick(P::rows[0], at), h = a - center;
  const auto row = [=](int i) __attribute__((always_inline)) { return pick(P::rows[i], at); };
  vec<float> y = row(n - 1);
  constexpr int plain = n - 1 - P::pairs;
  if constexpr (P::pairs > 0) y = fma(upper_of_pair(y), h, y);
  if constexpr (P::pairs > 1) {
    const vec<float> both = row(n - 2);
    y = fma(fma(y, h, upper_of_pair(both)), h, both);
  }
  constexpr int from = P::pairs > 0 ? plain : n - 2;
  // By the square of h: a chain half as long.
  const vec<float> square = h * h;
  constexpr int left = from - 1;  // row(from) .. row(2) are to be added
#pragma GCC unroll 16
  for (int i = from; i > 2; i -= 2) y = fma(y, square, fma(row(i), h, row(i - 1)));
  if constexpr (left % 2 != 0) y = fma(y, h, row(2));
  if constexpr (P::adds_argument)
    return fma(y, h, select(center == vec<float>::zero(), a, row(1)));
  else
    return fma(y, h, row(1));
}

IKEBANA_CPU_INLINE bool any_at_least(vec<float> a, vec<float> least) {
#if IKEBANA_CPU_WIDTH == 64
  return _mm512_cmp_ps_mask(a.v, least.v, _CMP_GE_OQ) != 0;
#else
  return _mm256_movemask_ps(_mm256_cmp_ps(a.v, least.v, _CMP_GE_OQ)) != 0;
#endif
}
/// |x|, or `most` where that is smaller or x is not a number: as whole numbers, which is sooner
/// done.
IKEBANA_CPU_INLINE vec<float> limited_magnitude(vec<float> x, float most) {
  const vec<float> a = abs(x), limit = vec<float>::broadcast(most);
#if IKEBANA_CPU_WIDTH == 64
  return {__builtin_bit_cast(vec<float>::raw,
                             _mm512_maskz_min_epi32(all16, __builtin_bit_cast(__m512i, a.v),
                                                    __builtin_bit_cast(__m512i, limit.v)))};
#else
  return {__builtin_bit_cast(
      vec<float>::raw,
      _mm256_min_epi32(__builtin_bit_cast(__m256i, a.v), __builtin_bit_cast(__m256i, limit.v)))};
#endif
}
/// tail where x < 0, else 1 - tail.
IKEBANA_CPU_INLINE vec<float> from_tail(vec<float> x, vec<float> tail) {
#if IKEBANA_CPU_WIDTH == 64
  return {_mm512_mask_sub_ps(tail.v, _mm512_cmp_ps_mask(x.v, vec<float>::zero().v, _CMP_NLT_UQ),
                             vec<float>::broadcast(1).v, tail.v)};
#else
  return {_mm256_blendv_ps((1.0f - tail).v, tail.v, x.v)};
#endif
}
#endif
