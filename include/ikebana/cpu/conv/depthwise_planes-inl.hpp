// Depthwise convolutions of square kernels, of stride 1 or 2, whole planes at a time
// (depthwise_planes.hpp).

#if IKEBANA_CPU_WIDTH == 32 || IKEBANA_CPU_WIDTH == 64
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
template <int Kernel = 3>
inline constexpr dim_t masks_of_strip = Kernel + 3;

/// For each strip of results: which of them each kernel column brings the source, which there are,
/// and, of stride 2, which of the 2 size neighbours are in the source. Where masks are only of
/// loads, those of stride 2 are of what the results meet: the third and fourth columns' neighbours
/// and so on, then the first ones'.
template <class T, int Stride, int Kernel>
void find_plane_masks(dim_t out_width, dim_t width, dim_t left, void* to) {
  constexpr dim_t w = vec<T>::size, strip = strip_of_planes<T, Stride, Kernel>;
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
      for (dim_t k = 0; k < Kernel; ++k)
        mask[k] = mask_between<T>(within((Stride - 1 - from - k) / Stride, count),
                                  within((width - from - k + Stride - 1) / Stride, count));
      mask[Kernel + 1] = met(from, w);
      mask[Kernel + 2] = met(from + w, w);
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
/// The columns of stride 2, in each of `Parts` parts of the registers.
template <int Parts, class T, std::size_t... K, std::size_t... L>
IKEBANA_CPU_INLINE columns_met<T, sizeof...(K)> shift_pairs(const even_odd<T>& pairs,
                                                            std::index_sequence<K...>,
                                                            std::index_sequence<L...>) {
  constexpr auto lane = [](int shift, int i) {
    constexpr int size = static_cast<int>(sizeof...(L)) / Parts;
    return i % size + shift < size ? i + shift : i;
  };
  const auto column = [&](auto k) __attribute__((always_inline)) {
    const auto v = k % 2 == 0 ? pairs.even.v : pairs.odd.v;
    return vec<T>{__builtin_shufflevector(v, v, lane(k / 2, static_cast<int>(L))...)};
  };
  return {{column(std::integral_constant<int, static_cast<int>(K)>{})...}};
}
#endif
/// What is met, or, where a mask is not needed or may be left to fma_where, what may be more.
template <bool Apart, class T, class M>
IKEBANA_CPU_INLINE vec<T> load_met(const T* p, M mask) {
  return opaque(Apart ? load_where(p, mask) : vec<T>::load(p));
}
/// What each kernel column brings from one row.
template <bool Apart, int Stride, class T, class M, std::size_t... K>
IKEBANA_CPU_INLINE columns_met<T, sizeof...(K)> load_columns(const T* p, const M* masks,
                                                             std::index_sequence<K...> columns) {
  constexpr dim_t kernel = sizeof...(K);
  if constexpr (Stride == 1) {
    return {{load_met<Apart>(p + K, masks[K])...}};
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
IKEBANA_CPU_INLINE vec<double> load_two(const double* p, const double* q) {
  return {_mm512_maskz_insertf64x4(0xff, _mm512_castpd256_pd512(_mm256_loadu_pd(p)),
                                   _mm256_loadu_pd(q), 1)};
}
IKEBANA_CPU_INLINE vec<float> load_two(const float* p, const float* q) {
  return as<float>(
      load_two(reinterpret_cast<const double*>(p), reinterpret_cast<const double*>(q)));
}
/// load_columns of two rows, each for a half of the registers.
template <int Stride, class T, std::size_t... K>
IKEBANA_CPU_INLINE columns_met<T, sizeof...(K)> load_two_columns(
    const T* p, const T* q, std::index_sequence<K...> columns) {
  if constexpr (Stride == 1)
    return {{opaque(load_two(p + K, q + K))...}};
  else
    return shift_pairs<2, T>(split_pairs(vec<T>::load(p), vec<T>::load(q), lane_sequence<T>{}),
                             columns, lane_sequence<T>{});
}
/// The rows of results whose planes are taken two at a time, each as half of the registers.
template <class T, int Stride, int Kernel = 3>
inline constexpr dim_t half_strip = strip_of_planes<T, Stride, Kernel> - vec<T>::size / 2;

IKEBANA_CPU_INLINE void store_two(vec<float> x, float* p, float* q, dim_t lanes) {
  const unsigned mask = first_lanes(lanes);
  _mm512_mask_storeu_ps(p, static_cast<__mmask16>(mask), x.v);
  _mm512_mask_storeu_ps(q - 8, static_cast<__mmask16>(mask << 8), x.v);
}
template <class T, std::size_t... L>
IKEBANA_CPU_INLINE vec<T> broadcast_two(T a, T b, std::index_sequence<L...>) {
  constexpr int w = static_cast<int>(sizeof...(L));
  return {__builtin_shufflevector(
      vec<T>::broadcast(a).v, vec<T>::broadcast(b).v,
      (2 * static_cast<int>(L) < w ? static_cast<int>(L) : w + static_cast<int>(L))...)};
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

/// Planes of more rows are taken in blocks of so many, strip by strip, and what the next block
/// meets and gives is fetched meanwhile: processors look for it along rows.
inline constexpr dim_t most_rows_of_plane = 32, rows_of_block = 16;

/// A strip of a plane from row `first` up to `end`, or of two channels' (`Two`) whose rows are no
/// longer than half_strip, as halves of registers: each row of the source is loaded once for all
/// rows of the result that meet it, whose sums move up.
template <bool Apart, bool InBlocks, int Kernel, int Stride, bool Two, class T, class Mask,
          std::size_t... K, std::size_t... M>
IKEBANA_CPU_INLINE void convolve_strip(const detail::depthwise_planes<T>& job, const T* x,
                                       const Mask* mask, const vec<T>* weights, vec<T> start,
                                       dim_t first, dim_t end, dim_t lanes, T* out,
                                       std::index_sequence<K...> columns,
                                       std::index_sequence<M...>) {
  constexpr int live = sizeof...(M), before = Kernel - Stride;
  constexpr bool unrolls = IKEBANA_CPU_WIDTH == 32 || !Apart;
  const dim_t width = job.width, height = job.height, out_width = job.out_width;
  const Mask masks[] = {of_parts<Two, T>(mask[K])..., mask[Kernel], mask[Kernel + 1],
                        mask[Kernel + 2]};
  vec<T> sums[] = {(static_cast<void>(M), start)...};
  dim_t i = Stride * first - job.top;
  const T* from = x + i * width;
  T* to = out + first * out_width;
  // The next row, which is kernel row k of the oldest sum.
  const auto meet = [&](auto row, auto turn) __attribute__((always_inline)) {
    constexpr int k = decltype(row)::value, oldest = decltype(turn)::value;
    const auto load = [&]() __attribute__((always_inline)) {
      if constexpr (Two)
        return load_two_columns<Stride>(from, from + height * width, columns);
      else
        return load_columns<Apart, Stride>(from, masks, columns);
    };
    const auto seen = load();
    const auto add = [&](auto sum) __attribute__((always_inline)) {
      constexpr int m = static_cast<int>(decltype(sum)::value), at = k - Stride * m;
      if constexpr (at >= 0 && at < Kernel) {
        vec<T>& s = sums[(m + oldest) % live];
        ((s = fma_where(weights[Kernel * at + static_cast<int>(K)], seen.at[K], s, masks[K])), ...);
      }
    };
    (add(std::integral_constant<std::size_t, M>{}), ...);
  };
  const auto meet_if_inside = [&](auto row) __attribute__((always_inline)) {
    if (i >= 0 && i < height) meet(row, std::integral_constant<int, 0>{});
    ++i;
    from += width;
  };
  const auto put = [&](vec<T> & sum) __attribute__((always_inline)) {
    vec<T> found = sum;
    sum = start;
    if constexpr (Stride == 2) found = ordered(found);
    if (job.relu) found = max(vec<T>::zero(), found);
    if constexpr (Two)
      store_two(found, to, to + job.out_height * out_width, lanes);
    else if (lanes == vec<T>::size)
      found.store(to);
    else
      found.store(to, lanes);
    to += out_width;
  };
  const auto begin = [&]<int... I>(std::integer_sequence<int, I...>)
      __attribute__((always_inline)) {
    (meet_if_inside(std::integral_constant<int, I>{}), ...);
  };
  begin(std::make_integer_sequence<int, before>{});
  for (dim_t t = first; t < end;) {
    if (unrolls && t + live <= end && i >= 0 && i + Stride * live <= height) {
      const auto step = [&](auto turn) __attribute__((always_inline)) {
        meet(std::integral_constant<int, before>{}, turn);
        from += width;
        if constexpr (Stride == 2) {
          meet(std::integral_constant<int, Kernel - 1>{}, turn);
          from += width;
        }
        put(sums[turn]);
        if constexpr (InBlocks) {
          __builtin_prefetch(from + rows_of_block * Stride * width);
          __builtin_prefetch(to + rows_of_block * out_width, 1);
        }
      };
      (step(std::integral_constant<int, static_cast<int>(M)>{}), ...);
      i += Stride * live;
      t += live;
    } else {
      meet_if_inside(std::integral_constant<int, before>{});
      if constexpr (Stride == 2) meet_if_inside(std::integral_constant<int, Kernel - 1>{});
      put(sums[0]);
      const vec<T> done = sums[0];
      ((sums[M] = M + 1 < sizeof...(M) ? sums[M + 1 < sizeof...(M) ? M + 1 : 0] : done), ...);
      ++t;
    }
  }
}
/// One plane, or two channels'.
template <int Kernel, int Stride, bool Two, class T>
IKEBANA_CPU_INLINE void convolve_plane(const detail::depthwise_planes<T>& job, const T* x,
                                       const vec<T>* weights, vec<T> start, T* out) {
  constexpr dim_t strip = Two ? vec<T>::size / 2 : strip_of_planes<T, Stride, Kernel>,
                  met = Stride * vec<T>::size + Kernel - 1;
  const dim_t out_width = job.out_width, out_height = job.out_height;
  const bool in_blocks = out_height > most_rows_of_plane;
  const dim_t block = in_blocks ? rows_of_block : most_rows_of_plane;
  for (dim_t first = 0; first < out_height; first += block) {
    const dim_t end = first + block < out_height ? first + block : out_height;
    const auto* mask = static_cast<const typename column_mask<T>::type*>(job.masks);
    for (dim_t j = 0; j < out_width; j += strip, mask += masks_of_strip<Kernel>) {
      const dim_t lanes = out_width - j < strip ? out_width - j : strip, at = Stride * j - job.left;
      const auto convolve = [&](auto apart, auto blocks) __attribute__((always_inline)) {
        convolve_strip<decltype(apart)::value, decltype(blocks)::value, Kernel, Stride, Two>(
            job, x + at, mask, weights, start, first, end, lanes, out + j,
            std::make_index_sequence<std::size_t{Kernel}>{},
            std::make_index_sequence<std::size_t{(Kernel + Stride - 1) / Stride}>{});
      };
      using std::false_type;
      if constexpr (Two)
        convolve(false_type{}, false_type{});
      else if (IKEBANA_CPU_WIDTH == 32 ? at < 0 || at + met > job.width : job.apart)
        convolve(std::true_type{}, false_type{});
      else if (in_blocks)
        convolve(false_type{}, std::true_type{});
      else
        convolve(false_type{}, false_type{});
    }
  }
}
template <class T, int Kernel, int Stride>
[[gnu::noinline]] void convolve_planes(const detail::depthwise_planes<T>& job) {
  const dim_t plane = job.height * job.width, out_plane = job.out_height * job.out_width;
  const auto visit = [&]<bool Two, std::size_t... I>(dim_t c, std::index_sequence<I...>)
      __attribute__((always_inline)) {
    constexpr std::size_t taps = sizeof...(I);
    const T* const w = job.w + c * static_cast<dim_t>(taps);
    const auto both = [&](const T* p, dim_t next) __attribute__((always_inline)) {
#if IKEBANA_CPU_WIDTH == 64
      if constexpr (Two) return broadcast_two(*p, p[next], lane_sequence<T>{});
#endif
      static_cast<void>(next);
      return vec<T>::broadcast(*p);
    };
    const vec<T> weights[] = {
        opaque(both(w + (job.turned ? taps - 1 - I : I), static_cast<dim_t>(taps)))...};
    convolve_plane<Kernel, Stride, Two>(
        job, job.x + c * plane, weights,
        job.bias != nullptr ? both(job.bias + c, 1) : vec<T>::zero(), job.out + c * out_plane);
  };
  constexpr auto taps = std::make_index_sequence<std::size_t{Kernel * Kernel}>{};
  dim_t c = 0;
#if IKEBANA_CPU_WIDTH == 64
  if constexpr (sizeof(T) == 4)
    if (!job.apart && job.out_width <= half_strip<T, Stride, Kernel>)
      for (; c + 2 <= job.count; c += 2) visit.template operator()<true>(c, taps);
#endif
  for (; c < job.count; ++c) visit.template operator()<false>(c, taps);
}

/// The gradient by the source of planes of stride 2 with one row and column of zeros before them:
/// row t of dy and the one below it give rows 2 t and 2 t + 1.
template <class T>
[[gnu::noinline]] void spread_planes(const detail::depthwise_planes<T>& job) {
  constexpr dim_t w = vec<T>::size, block = 8;
  const dim_t width = job.width, height = job.height, out_width = job.out_width;
  const T *x = job.x, *factors = job.w;
  T* out = job.out;
  for (dim_t plane = 0; plane < job.count; ++plane, factors += 9) {
    const auto weight = [&](int i) __attribute__((always_inline)) {
      return opaque(vec<T>::broadcast(factors[i]));
    };
    const vec<T> weights[] = {weight(0), weight(1), weight(2), weight(3), weight(4),
                              weight(5), weight(6), weight(7), weight(8)};
    const vec<T> start = vec<T>::broadcast(job.bias != nullptr ? job.bias[plane] : T(0));
    for (dim_t first = 0; first < height; first += block) {
      const dim_t end = first + block < height ? first + block : height;
      for (dim_t j = 0; j < width; j += w) {
        const dim_t left = width - j, wanted = out_width - 2 * j;
        const auto here = mask_between<T>(0, left < w ? left : w),
                   beside = mask_between<T>(0, left - 1 < w ? left - 1 : w);
        const auto put = [&](vec<T> even, vec<T> odd, T * to) __attribute__((always_inline)) {
          const auto both = interleave_pairs(even, odd, lane_sequence<T>{});
          if (wanted >= 2 * w) {
            both.even.store(to);
            both.odd.store(to + w);
          } else {
            both.even.store(to, wanted < w ? wanted : w);
            if (wanted > w) both.odd.store(to + w, wanted - w);
          }
        };
        const T* from = x + first * width + j;
        T* to = out + 2 * first * out_width + 2 * j;
        vec<T> a = load_where(from, here), b = load_where(from + 1, beside);
        for (dim_t t = first; t < end; ++t, to += 2 * out_width) {
          from += width;
          put(fma(weights[4], a, start), fma(weights[3], b, fma(weights[5], a, start)), to);
          vec<T> even = fma(weights[7], a, start),
                 odd = fma(weights[6], b, fma(weights[8], a, start));
          if (t + 1 < height) {
            a = opaque(load_where(from, here));
            b = opaque(load_where(from + 1, beside));
            even = fma(weights[1], a, even);
            odd = fma(weights[0], b, fma(weights[2], a, odd));
          }
          if (2 * t + 1 < job.out_height) put(even, odd, to + out_width);
        }
      }
    }
    x += height * width;
    out += job.out_height * out_width;
  }
}
#endif
