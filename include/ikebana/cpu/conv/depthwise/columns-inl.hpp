// What the columns of a 3x3 kernel, of stride 1 or 2, bring from one row of a plane
// (depthwise/planes.hpp).

#if IKEBANA_CPU_WIDTH == 32 || IKEBANA_CPU_WIDTH == 64
// Which lanes of a register are met.
#if IKEBANA_CPU_WIDTH == 64
template <class T>
struct column_mask {
  using type = std::uint16_t;
};
template <class T>
IKEBANA_CPU_INLINE std::uint16_t mask_between(dim_t first, dim_t last) {
  return static_cast<std::uint16_t>(first_lanes(last) & ~first_lanes(first));
}
IKEBANA_CPU_INLINE vec<float> load_where(const float* p, std::uint16_t mask) {
  return {_mm512_maskz_loadu_ps(mask, p)};
}
IKEBANA_CPU_INLINE vec<double> load_where(const double* p, std::uint16_t mask) {
  return {_mm512_maskz_loadu_pd(static_cast<__mmask8>(mask), p)};
}
/// c where the mask has nothing, whatever a and b are.
IKEBANA_CPU_INLINE vec<float> fma_where(vec<float> a, vec<float> b, vec<float> c,
                                        std::uint16_t mask) {
  return {_mm512_mask3_fmadd_ps(a.v, b.v, c.v, mask)};
}
IKEBANA_CPU_INLINE vec<double> fma_where(vec<double> a, vec<double> b, vec<double> c,
                                         std::uint16_t mask) {
  return {_mm512_mask3_fmadd_pd(a.v, b.v, c.v, static_cast<__mmask8>(mask))};
}
#else
template <class T>
struct column_mask {
  using type = __m256i;
};
template <class T>
IKEBANA_CPU_INLINE __m256i mask_between(dim_t first, dim_t last) {
  constexpr int bytes = static_cast<int>(sizeof(T));
  return _mm256_andnot_si256(first_lanes<bytes>(first), first_lanes<bytes>(last));
}
IKEBANA_CPU_INLINE vec<float> load_where(const float* p, __m256i mask) {
  return {_mm256_maskload_ps(p, mask)};
}
IKEBANA_CPU_INLINE vec<double> load_where(const double* p, __m256i mask) {
  return {_mm256_maskload_pd(p, mask)};
}
template <class T>
IKEBANA_CPU_INLINE vec<T> fma_where(vec<T> a, vec<T> b, vec<T> c, __m256i) {
  return fma(a, b, c);
}
#endif
#if IKEBANA_CPU_WIDTH == 32
/// Every second of the elements of a, then of b, from the first or the second on, as `ordered`
/// arranges them: what parts neighbours within halves of registers takes one operation, not two.
IKEBANA_CPU_INLINE vec<float> evens(vec<float> a, vec<float> b) {
  return {_mm256_shuffle_ps(a.v, b.v, 0x88)};
}
IKEBANA_CPU_INLINE vec<float> odds(vec<float> a, vec<float> b) {
  return {_mm256_shuffle_ps(a.v, b.v, 0xdd)};
}
IKEBANA_CPU_INLINE vec<double> evens(vec<double> a, vec<double> b) {
  return {_mm256_unpacklo_pd(a.v, b.v)};
}
IKEBANA_CPU_INLINE vec<double> odds(vec<double> a, vec<double> b) {
  return {_mm256_unpackhi_pd(a.v, b.v)};
}
/// The two quarters in the middle change places.
IKEBANA_CPU_INLINE vec<double> ordered(vec<double> x) { return {_mm256_permute4x64_pd(x.v, 0xd8)}; }
IKEBANA_CPU_INLINE vec<float> ordered(vec<float> x) {
  return {_mm256_castpd_ps(_mm256_permute4x64_pd(_mm256_castps_pd(x.v), 0xd8))};
}
#else
template <class T>
IKEBANA_CPU_INLINE vec<T> ordered(vec<T> x) {
  return x;
}
#endif

/// Results that a register takes: of stride 2, the third column is the first one's next lanes where
/// parting neighbours costs more than to load.
template <class T, int Stride>
inline constexpr dim_t strip_of_planes = vec<T>::size -
                                         (IKEBANA_CPU_WIDTH == 64 && Stride == 2 ? 1 : 0);
inline constexpr dim_t masks_of_strip = 6;

/// For each strip of results: which of them each kernel column brings the source, which there are,
/// and, of stride 2, which of the 2 size neighbours are in the source. Where masks are only of
/// loads, those of stride 2 are of what the results meet: the third column's neighbours, then the
/// first ones'.
template <class T, int Stride>
void find_plane_masks(dim_t out_width, dim_t width, dim_t left, dim_t dilation, void* to) {
  constexpr dim_t w = vec<T>::size, strip = strip_of_planes<T, Stride>;
  auto* mask = static_cast<typename column_mask<T>::type*>(to);
  const auto within = [](dim_t n, dim_t most) { return n < 0 ? 0 : n > most ? most : n; };
  for (dim_t j = 0; j < out_width; j += strip, mask += masks_of_strip) {
    const dim_t count = within(out_width - j, strip), from = Stride * j - left;
    const auto met = [&](dim_t at, dim_t most) {
      return mask_between<T>(within(-at, w), within(width - at < most ? width - at : most, w));
    };
    const bool of_loads = IKEBANA_CPU_WIDTH == 32 && Stride == 2;
    for (dim_t k = 0; k < 3; ++k) {
      const dim_t at = from + k * dilation;
      mask[k] = mask_between<T>(within((Stride - 1 - at) / Stride, count),
                                within((width - at + Stride - 1) / Stride, count));
    }
    mask[3] = mask_between<T>(0, count);
    mask[4] = met(from, of_loads ? 2 * count : w);
    mask[5] = met(from + w, of_loads ? 2 * count - w : w);
    if (!of_loads) continue;
    mask[0] = met(from + 2, 2 * count);
    mask[1] = met(from + 2 + w, 2 * count - w);
  }
}

#if IKEBANA_CPU_WIDTH == 64
template <class T, std::size_t... L>
IKEBANA_CPU_INLINE vec<T> next_lanes(vec<T> x, std::index_sequence<L...>) {
  return {__builtin_shufflevector(x.v, x.v, static_cast<int>(L + 1 < sizeof...(L) ? L + 1 : L)...)};
}
#endif
/// What is met, or, where a mask is not needed, what may be more.
template <bool Apart, class T, class M>
IKEBANA_CPU_INLINE vec<T> load_met(const T* p, M mask) {
  return opaque(Apart ? load_where(p, mask) : vec<T>::load(p));
}
/// f(k, what kernel column k brings from one row), which is met before the next is found: 16
/// registers hold no more beside the sums. Only columns of stride 1 are dilated.
template <bool Apart, int Stride, class T, class M, class F>
IKEBANA_CPU_INLINE void visit_columns(const T* p, const M* masks, [[maybe_unused]] dim_t dilation,
                                      F f) {
  constexpr std::integral_constant<std::size_t, 0> first;
  constexpr std::integral_constant<std::size_t, 1> second;
  constexpr std::integral_constant<std::size_t, 2> third;
  if constexpr (Stride == 1) {
    f(first, load_met<Apart>(p, masks[0]));
    f(second, load_met<Apart>(p + dilation, masks[1]));
    f(third, load_met<Apart>(p + 2 * dilation, masks[2]));
  } else {
    constexpr dim_t w = vec<T>::size;
    const vec<T> a = load_met<Apart>(p, masks[4]), b = load_met<Apart>(p + w, masks[5]);
#if IKEBANA_CPU_WIDTH == 32
    f(first, evens(a, b));
    f(second, odds(a, b));
    f(third, evens(load_met<Apart>(p + 2, masks[0]), load_met<Apart>(p + 2 + w, masks[1])));
#else
    const auto pairs = split_pairs(a, b, lane_sequence<T>{});
    f(first, pairs.even);
    f(second, pairs.odd);
    f(third, next_lanes(pairs.even, lane_sequence<T>{}));
#endif
  }
}
#endif
