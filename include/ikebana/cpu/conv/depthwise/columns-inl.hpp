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
/// Whether rows are so short that planes are taken two at a time, each as half of the registers.
template <class T, int Stride, int Kernel = 3>
bool takes_two_planes(dim_t out_width, dim_t width, dim_t left) {
  constexpr dim_t w = vec<T>::size, strip = strip_of_planes<T, Stride, Kernel> - w / 2;
  return IKEBANA_CPU_WIDTH == 64 && sizeof(T) == 4 &&
         (out_width <= strip || (Stride == 2 && 2 * out_width <= w && width + left <= w));
}
template <int Kernel = 3>
inline constexpr dim_t masks_of_strip = Kernel + 3;

/// For each strip of results: which of them each kernel column brings the source, which there are,
/// and, of stride 2, which of the 2 size neighbours are in the source. Where masks are only of
/// loads, those of stride 2 are of what the results meet: the third and fourth columns' neighbours
/// and so on, then the first ones'.
template <class T, int Stride, int Kernel>
void find_plane_masks(dim_t out_width, dim_t width, dim_t left, dim_t dilation, void* to) {
  constexpr dim_t w = vec<T>::size;
  constexpr dim_t strip = strip_of_planes<T, Stride, Kernel>;
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
      mask[Kernel + 1] = met(from, w);
      mask[Kernel + 2] = met(from + w, w);
    }
    mask[Kernel] = mask_between<T>(0, count);
    mask += masks_of_strip<Kernel>;
  }
}

/// f(begin, end, how many at a time) for ranges of `count` planes: all in pairs but those near the
/// ends, beside which nothing may be read.
template <class F>
void each_pair_of_planes(dim_t count, dim_t plane, const F& f) {
  const dim_t ends = 1 + 16 / plane, pairs = (count - 2 * ends) / 2 * 2;
  if (pairs <= 0) return f(0, count, std::false_type{});
  f(0, ends, std::false_type{});
  f(ends, ends + pairs, std::true_type{});
  f(ends + pairs, count, std::false_type{});
}

template <class T, std::size_t Kernel>
struct columns_met {
  vec<T> at[Kernel];
};
#if IKEBANA_CPU_WIDTH == 64
/// The columns of stride 2 in each of `Parts` parts of the registers.
template <int Parts, class T, std::size_t... K, std::size_t... L>
IKEBANA_CPU_INLINE columns_met<T, sizeof...(K)> shift_pairs(const even_odd<T>& pairs,
                                                            std::index_sequence<K...>,
                                                            std::index_sequence<L...>) {
  constexpr auto lane = [](int shift, int i) {
    constexpr int size = static_cast<int>(sizeof...(L)) / Parts;
    return i % size + shift < size ? i + shift : i;
  };
  const auto column = [&](auto number) __attribute__((always_inline)) {
    constexpr int k = static_cast<int>(decltype(number)::value);
    const auto v = k % 2 == 0 ? pairs.even.v : pairs.odd.v;
    return vec<T>{__builtin_shufflevector(v, v, lane(k / 2, static_cast<int>(L))...)};
  };
  return {{column(std::integral_constant<int, static_cast<int>(K)>{})...}};
}
#endif
/// What is met, or, where a mask is not needed, what may be more.
template <bool Apart, class T, class M>
IKEBANA_CPU_INLINE vec<T> load_met(const T* p, M mask) {
  return opaque(Apart ? load_where(p, mask) : vec<T>::load(p));
}
/// What each kernel column brings from one row; only those of stride 1 are dilated.
template <bool Apart, int Stride, class T, class M, std::size_t... K>
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
    return shift_pairs<1, T>(split_pairs(a, b, lane_sequence<T>{}), columns, lane_sequence<T>{});
#endif
  }
}
#if IKEBANA_CPU_WIDTH == 64
/// load_columns of two rows, each for a half of the registers, and of what lies beside them.
template <int Stride, class T, std::size_t... K>
IKEBANA_CPU_INLINE columns_met<T, sizeof...(K)> load_two_columns(
    const T* p, const T* q, std::index_sequence<K...> columns) {
  if constexpr (Stride == 1)
    return {{opaque(load_two(p + K, q + K))...}};
  else
    return shift_pairs<2, T>(
        split_pairs(opaque(vec<T>::load(p)), opaque(vec<T>::load(q)), lane_sequence<T>{}), columns,
        lane_sequence<T>{});
}
#endif

/// f(k, what kernel column k brings from one row), which is met before the next is found where 16
/// registers hold no more beside the sums.
template <bool Apart, int Stride, class T, class M, class F>
IKEBANA_CPU_INLINE void visit_columns(const T* p, const M* masks, F f) {
  using zero = std::integral_constant<std::size_t, 0>;
  using one = std::integral_constant<std::size_t, 1>;
  using two = std::integral_constant<std::size_t, 2>;
  if constexpr (IKEBANA_CPU_WIDTH == 64 || Stride == 1) {
#if IKEBANA_CPU_WIDTH == 64
    const auto seen = load_columns<Apart, Stride>(p, masks, 1, std::make_index_sequence<3>{});
    f(zero{}, seen.at[0]);
    f(one{}, seen.at[1]);
    f(two{}, seen.at[2]);
#else
    f(zero{}, load_met<Apart>(p, masks[0]));
    f(one{}, load_met<Apart>(p + 1, masks[1]));
    f(two{}, load_met<Apart>(p + 2, masks[2]));
#endif
  } else {
#if IKEBANA_CPU_WIDTH == 32
    constexpr dim_t w = vec<T>::size;
    const vec<T> a = load_met<Apart>(p, masks[4]), b = load_met<Apart>(p + w, masks[5]);
    f(zero{}, evens(a, b));
    f(one{}, odds(a, b));
    f(two{}, evens(load_met<Apart>(p + 2, masks[0]), load_met<Apart>(p + 2 + w, masks[1])));
#endif
  }
}
#endif
