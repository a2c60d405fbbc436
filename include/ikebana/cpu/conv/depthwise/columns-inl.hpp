// What the columns of a square kernel, of stride 1 or 2, bring from one row of a plane
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
/// As load_where, where what lies beside may be read: one operation, not two.
IKEBANA_CPU_INLINE vec<float> load_and_mask(const float* p, __m256i mask) {
  return {_mm256_and_ps(_mm256_castsi256_ps(mask), _mm256_loadu_ps(p))};
}
IKEBANA_CPU_INLINE vec<double> load_and_mask(const double* p, __m256i mask) {
  return {_mm256_and_pd(_mm256_castsi256_pd(mask), _mm256_loadu_pd(p))};
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

/// Results that a register takes: of stride 2, columns after the second are the first ones' next
/// lanes where parting neighbours costs more than to load.
template <class T, int Stride, int Kernel = 3>
inline constexpr dim_t strip_of_planes = IKEBANA_CPU_WIDTH == 32 || Stride == 1
                                             ? vec<T>::size
                                             : vec<T>::size - (Kernel - 1) / 2;
/// The rows of results whose planes are taken two at a time, each as half of the registers.
template <class T, int Stride, int Kernel = 3>
inline constexpr dim_t half_strip = strip_of_planes<T, Stride, Kernel> - vec<T>::size / 2;
template <int Kernel = 3>
inline constexpr dim_t masks_of_strip = Kernel + 3;

/// Whether rows of stride 2 are one strip that is loaded from the source's first column on: what is
/// before it is not met. As half of the registers, if `Two`.
template <bool Two, class T, int Stride, int Kernel = 3>
IKEBANA_CPU_INLINE bool is_centered(dim_t out_width, dim_t width, dim_t left) {
  constexpr dim_t lanes = vec<T>::size / (Two ? 2 : 1);
  return IKEBANA_CPU_WIDTH == 64 && Stride == 2 && left == Kernel / 2 && out_width <= lanes &&
         width <= 2 * lanes;
}

/// For each strip of results: which of them each kernel column brings the source, which there are,
/// and, of stride 2, which of the 2 size neighbours are in the source. Where masks are only of
/// loads, those of stride 2 are of what the results meet: the third and fourth columns' neighbours
/// and so on, then the first ones'.
template <class T, int Stride, int Kernel>
void find_plane_masks(dim_t out_width, dim_t width, dim_t left, dim_t dilation, void* to) {
  constexpr dim_t w = vec<T>::size;
  const bool centered = is_centered<false, T, Stride, Kernel>(out_width, width, left);
  const dim_t strip = centered ? w : strip_of_planes<T, Stride, Kernel>;
  auto* mask = static_cast<typename column_mask<T>::type*>(to);
  const auto within = [](dim_t n, dim_t most) { return n < 0 ? 0 : n > most ? most : n; };
  for (dim_t j = 0; j < out_width; j += strip) {
    const dim_t count = within(out_width - j, strip), from = Stride * j - left;
    const auto met = [&](dim_t at, dim_t most) {
      return mask_between<T>(within(-at, w), within(width - at < most ? width - at : most, w));
    };
    if (IKEBANA_CPU_WIDTH == 32 && Stride == 2) {
      for (dim_t k = 2; k < Kernel; k += 2) {
        mask[k - 2] = met(from + k, 2 * count);
        mask[k - 1] = met(from + k + w, 2 * count - w);
      }
      mask[Kernel + 1] = met(from, 2 * count);
      mask[Kernel + 2] = met(from + w, 2 * count - w);
    } else {
      for (dim_t k = 0; k < Kernel; ++k) {
        const dim_t at = from + k * dilation;
        mask[k] = mask_between<T>(within((Stride - 1 - at) / Stride, count),
                                  within((width - at + Stride - 1) / Stride, count));
      }
      const dim_t begin = centered ? 0 : from;
      mask[Kernel + 1] = met(begin, w);
      mask[Kernel + 2] = met(begin + w, w);
    }
    mask[Kernel] = mask_between<T>(0, count);
    mask += masks_of_strip<Kernel>;
  }
}

template <class T, std::size_t Kernel>
struct columns_met {
  vec<T> at[Kernel];
};
#if IKEBANA_CPU_WIDTH == 64
/// The columns of stride 2 in each of `Parts` parts of the registers, of which number `Center` is
/// the first of the pairs.
template <int Parts, int Center, class T, std::size_t... K, std::size_t... L>
IKEBANA_CPU_INLINE columns_met<T, sizeof...(K)> shift_pairs(const even_odd<T>& pairs,
                                                            std::index_sequence<K...>,
                                                            std::index_sequence<L...>) {
  constexpr auto lane = [](int shift, int i) {
    constexpr int size = static_cast<int>(sizeof...(L)) / Parts;
    return i % size + shift >= 0 && i % size + shift < size ? i + shift : i;
  };
  const auto column = [&](auto number) __attribute__((always_inline)) {
    constexpr int k = static_cast<int>(decltype(number)::value) - Center, odd = (k % 2 + 2) % 2;
    const auto v = odd == 0 ? pairs.even.v : pairs.odd.v;
    return vec<T>{__builtin_shufflevector(v, v, lane((k - odd) / 2, static_cast<int>(L))...)};
  };
  return {{column(std::integral_constant<int, static_cast<int>(K)>{})...}};
}
#endif
/// What is met, or, where a mask is not needed or may be left to fma_where, what may be more.
template <bool Apart, class T, class M>
IKEBANA_CPU_INLINE vec<T> load_met(const T* p, M mask) {
  return opaque(Apart ? load_where(p, mask) : vec<T>::load(p));
}
/// What each kernel column brings from one row; only those of stride 1 are dilated.
template <bool Apart, int Stride, int Center = 0, class T, class M, std::size_t... K>
IKEBANA_CPU_INLINE columns_met<T, sizeof...(K)> load_columns(const T* p, const M* masks,
                                                             dim_t dilation,
                                                             std::index_sequence<K...> columns) {
  constexpr dim_t kernel = sizeof...(K);
  if constexpr (Stride == 1) {
    return {{load_met<Apart>(p + static_cast<dim_t>(K) * dilation, masks[K])...}};
  } else {
    constexpr dim_t w = vec<T>::size;
#if IKEBANA_CPU_WIDTH == 32
    static_cast<void>(columns);
    const auto pair = [&](dim_t k) __attribute__((always_inline)) {
      const M* const mask = masks + (k == 0 ? kernel + 1 : k - 2);
      const vec<T> a = load_met<Apart>(p + k, mask[0]), b = load_met<Apart>(p + k + w, mask[1]);
      return even_odd<T>{evens(a, b), odds(a, b)};
    };
    even_odd<T> pairs[(kernel + 1) / 2];
    ((K % 2 == 0 ? void(pairs[K / 2] = pair(K)) : void()), ...);
    return {{(K % 2 == 0 ? pairs[K / 2].even : pairs[K / 2].odd)...}};
#else
    const vec<T> a = load_met<Apart>(p, masks[kernel + 1]),
                 b = load_met<Apart>(p + w, masks[kernel + 2]);
    return shift_pairs<1, Center, T>(split_pairs(a, b, lane_sequence<T>{}), columns,
                                     lane_sequence<T>{});
#endif
  }
}
#if IKEBANA_CPU_WIDTH == 64
/// load_columns of two rows, each for a half of the registers.
template <int Stride, int Center = 0, class T, std::size_t... K>
IKEBANA_CPU_INLINE columns_met<T, sizeof...(K)> load_two_columns(
    const T* p, const T* q, std::index_sequence<K...> columns) {
  if constexpr (Stride == 1)
    return {{opaque(load_two(p + K, q + K))...}};
  else
    return shift_pairs<2, Center, T>(
        split_pairs(opaque(vec<T>::load(p)), opaque(vec<T>::load(q)), lane_sequence<T>{}), columns,
        lane_sequence<T>{});
}
#endif

/// How a strip reads its rows: what lies beside them may not be read, is read and masked, or is not
/// met at all.
enum class row_ends : unsigned char { apart, masked, inside };

/// What fma_where is to meet with this mask.
template <row_ends Ends, class T, class M>
IKEBANA_CPU_INLINE vec<T> load_within(const T* p, M mask) {
  if constexpr (Ends == row_ends::apart)
    return opaque(load_where(p, mask));
  else if constexpr (Ends == row_ends::masked && IKEBANA_CPU_WIDTH == 32)
    return opaque(load_and_mask(p, mask));
  else
    return opaque(vec<T>::load(p));
}
/// f(k, what kernel column k brings from one row), which is met before the next is found where 16
/// registers hold no more beside the sums.
template <row_ends Ends, int Stride, int Center = 0, class T, class M, class F>
IKEBANA_CPU_INLINE void visit_columns(const T* p, const M* masks, F f) {
  using zero = std::integral_constant<std::size_t, 0>;
  using one = std::integral_constant<std::size_t, 1>;
  using two = std::integral_constant<std::size_t, 2>;
#if IKEBANA_CPU_WIDTH == 64
  const auto seen = load_columns<Ends == row_ends::apart, Stride, Center>(
      p, masks, 1, std::make_index_sequence<3>{});
  f(zero{}, seen.at[0]);
  f(one{}, seen.at[1]);
  f(two{}, seen.at[2]);
#else
  const auto load = [=](dim_t at, int mask) __attribute__((always_inline)) {
    return load_within<Ends>(p + at, masks[mask]);
  };
  if constexpr (Stride == 1) {
    f(zero{}, load(0, 0));
    f(one{}, load(1, 1));
    f(two{}, load(2, 2));
  } else {
    constexpr dim_t w = vec<T>::size;
    const vec<T> a = load(0, 4), b = load(w, 5);
    f(zero{}, evens(a, b));
    f(one{}, odds(a, b));
    f(two{}, evens(load(2, 0), load(2 + w, 1)));
  }
#endif
}
#endif
