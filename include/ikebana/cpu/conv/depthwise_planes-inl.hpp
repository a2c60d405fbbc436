// Depthwise convolutions of 3x3, of stride 1 or 2, whole planes at a time (depthwise_planes.hpp).

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

/// Results that a register takes: of stride 2, the third column is the first one's next lane where
/// parting neighbours costs more than to load.
template <class T, int Stride>
inline constexpr dim_t strip_of_planes = IKEBANA_CPU_WIDTH == 32 ? vec<T>::size
                                                                 : vec<T>::size - (Stride - 1);
inline constexpr dim_t masks_of_strip = 6;

/// For each strip of results: which of them each kernel column brings the source, which there are,
/// and, of stride 2, which of the 2 size neighbours are in the source. Where masks are only of
/// loads, those of stride 2 are of what the results meet: the third column's neighbours, then the
/// first one's.
template <class T, int Stride>
void find_plane_masks(dim_t out_width, dim_t width, dim_t left, void* to) {
  constexpr dim_t w = vec<T>::size, strip = strip_of_planes<T, Stride>;
  auto* mask = static_cast<typename column_mask<T>::type*>(to);
  const auto within = [](dim_t n, dim_t most) { return n < 0 ? 0 : n > most ? most : n; };
  for (dim_t j = 0; j < out_width; j += strip) {
    const dim_t count = within(out_width - j, strip), from = Stride * j - left;
    const auto met = [&](dim_t at, dim_t most) {
      return mask_between<T>(within(-at, w), within(width - at < most ? width - at : most, w));
    };
    if (IKEBANA_CPU_WIDTH == 32 && Stride == 2) {
      mask[0] = met(from + 2, 2 * count);
      mask[1] = met(from + 2 + w, 2 * count - w);
      mask[4] = met(from, 2 * count);
      mask[5] = met(from + w, 2 * count - w);
    } else {
      for (dim_t k = 0; k < 3; ++k)
        mask[k] = mask_between<T>(within((Stride - 1 - from - k) / Stride, count),
                                  within((width - from - k + Stride - 1) / Stride, count));
      mask[4] = met(from, w);
      mask[5] = met(from + w, w);
    }
    mask[3] = mask_between<T>(0, count);
    mask += masks_of_strip;
  }
}

template <class T>
struct three_columns {
  vec<T> at[3];
};
/// What the three kernel columns bring from one row.
template <bool Apart, int Stride, class T, class M, std::size_t... L>
IKEBANA_CPU_INLINE three_columns<T> load_columns(const T* p, const M* masks,
                                                 [[maybe_unused]] std::index_sequence<L...> lanes) {
  if constexpr (Stride == 1) {
    return {{in_register(load_beside<Apart>(p, masks[0])),
             in_register(load_beside<Apart>(p + 1, masks[1])),
             in_register(load_beside<Apart>(p + 2, masks[2]))}};
  } else {
#if IKEBANA_CPU_WIDTH == 32
    constexpr auto w = static_cast<dim_t>(sizeof...(L));
    const vec<T> a = in_register(load_where(p, masks[4])),
                 b = in_register(load_where(p + w, masks[5])),
                 c = in_register(load_where(p + 2, masks[0])),
                 d = in_register(load_where(p + 2 + w, masks[1]));
    return {{evens(a, b), odds(a, b), evens(c, d)}};
#else
    constexpr int last = static_cast<int>(sizeof...(L)) - 1;
    const auto pairs = split_pairs(in_register(load_beside<Apart>(p, masks[4])),
                                   in_register(load_beside<Apart>(p + last + 1, masks[5])), lanes);
    const vec<T> next{
        __builtin_shufflevector(pairs.even.v, pairs.even.v,
                                (static_cast<int>(L) < last ? static_cast<int>(L) + 1 : last)...)};
    return {{pairs.even, pairs.odd, next}};
#endif
  }
}

/// Row I of those that some rows of the result meet.
template <int Stride, int I, class T, class M, std::size_t... R>
IKEBANA_CPU_INLINE void meet_columns(vec<T>* sums, const vec<T>* weights, const three_columns<T>& x,
                                     const M* masks, std::index_sequence<R...>) {
  const auto meet = [&](auto row) __attribute__((always_inline)) {
    constexpr int r = static_cast<int>(decltype(row)::value), k = I - Stride * r;
    if constexpr (k >= 0 && k < 3)
      sums[r] =
          fma_where(weights[3 * k + 2], x.at[2],
                    fma_where(weights[3 * k + 1], x.at[1],
                              fma_where(weights[3 * k], x.at[0], sums[r], masks[0]), masks[1]),
                    masks[2]);
  };
  (meet(std::integral_constant<std::size_t, R>{}), ...);
}

template <bool Apart, int Stride, class T, std::size_t... R, std::size_t... I>
IKEBANA_CPU_INLINE void convolve_planes(const detail::depthwise_planes<T>& job,
                                        std::index_sequence<R...> r, std::index_sequence<I...>) {
  using mask_type = typename column_mask<T>::type;
  constexpr dim_t rows = sizeof...(R), last = sizeof...(I) - 1, strip = strip_of_planes<T, Stride>;
  const dim_t width = job.width, out_width = job.out_width;
  const T *x = job.x, *w = job.w;
  T* out = job.out;
  for (dim_t plane = 0; plane < job.count; ++plane, w += 9) {
    const auto weight = [&](int i) {
      return in_register(vec<T>::broadcast(w[job.turned ? 8 - i : i]));
    };
    const vec<T> weights[] = {weight(0), weight(1), weight(2), weight(3), weight(4),
                              weight(5), weight(6), weight(7), weight(8)};
    const T start = job.bias != nullptr ? job.bias[plane] : T(0);
    for (dim_t next = 0; next < job.out_height; next += rows) {
      // The last rows overlap those above.
      const dim_t y = next + rows <= job.out_height ? next : job.out_height - rows,
                  top = Stride * y - job.top;
      const T *from = x + top * width - job.left, *const none = job.zeros - job.left,
              *above = top < 0 ? none : from,
              *below = top + last < job.height ? from + last * width : none;
      const auto* mask = static_cast<const mask_type*>(job.masks);
      for (dim_t j = 0; j < out_width; j += strip, mask += masks_of_strip) {
        const mask_type masks[] = {mask[0], mask[1], mask[2], mask[3], mask[4], mask[5]};
        vec<T> sums[] = {(static_cast<void>(R), vec<T>::broadcast(start))...};
        const auto meet = [&](auto row) __attribute__((always_inline)) {
          constexpr dim_t i = decltype(row)::value;
          const T* const p = i == 0 ? above : i == last ? below : from + i * width;
          meet_columns<Stride, static_cast<int>(i)>(
              sums, weights, load_columns<Apart, Stride>(p, masks, lane_sequence<T>{}), masks, r);
        };
        (meet(std::integral_constant<std::size_t, I>{}), ...);
        if constexpr (Stride == 2) ((sums[R] = ordered(sums[R])), ...);
        store_row_sums(sums, job.relu, out + y * out_width + j, out_width, rows,
                       out_width - j < strip ? out_width - j : strip, r);
        from += Stride * strip;
        above += Stride * strip;
        below += Stride * strip;
      }
    }
    x += job.height * width;
    out += job.out_height * out_width;
  }
}
template <class T, int Stride>
[[gnu::noinline]] void convolve_planes(const detail::depthwise_planes<T>& job) {
  constexpr std::size_t rows = detail::depthwise_plane_rows(IKEBANA_CPU_WIDTH);
  constexpr auto r = std::make_index_sequence<rows>{};
  constexpr auto met = std::make_index_sequence<Stride*(rows - 1) + 3>{};
  if (IKEBANA_CPU_WIDTH == 32 || job.apart)
    convolve_planes<true, Stride>(job, r, met);
  else
    convolve_planes<false, Stride>(job, r, met);
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
      return in_register(vec<T>::broadcast(factors[i]));
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
            a = in_register(load_where(from, here));
            b = in_register(load_where(from + 1, beside));
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
