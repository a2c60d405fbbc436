// Depthwise convolutions of square kernels, of stride 1 or 2, whole planes at a time
// (depthwise/planes.hpp).

#if IKEBANA_CPU_WIDTH == 32 || IKEBANA_CPU_WIDTH == 64
/// Planes of more rows are taken in blocks of so many, strip by strip, and what the next block
/// meets and gives is fetched meanwhile, or, of few rows, the next plane: processors look for it
/// along rows.
inline constexpr dim_t most_rows_of_plane = 32, rows_of_block = 16;

/// A strip of a plane from row `first` up to `end`, or of two channels' (`Two`) whose rows are
/// short (takes_two_planes), as halves of registers: each row of the source is loaded once for all
/// rows of the result that meet it, whose sums move up. `Apart`: dilated, or what lies beside rows
/// may not be read.
template <bool Apart, int Kernel, int Stride, bool Two, class T, class Mask, std::size_t... K,
          std::size_t... M>
IKEBANA_CPU_INLINE void convolve_strip(const detail::depthwise_planes<T>& job, const T* x,
                                       const Mask* mask, const vec<T>* weights, vec<T> start,
                                       dim_t first, dim_t end, dim_t lanes, T* out,
                                       std::index_sequence<K...> columns,
                                       std::index_sequence<M...>) {
  constexpr int live = sizeof...(M), before = Kernel - Stride;
  const dim_t row_step = job.row_step, height = job.height, out_step = job.out_step;
  const dim_t dilation = Apart ? job.dilation : 1;
  const Mask masks[] = {of_parts<Two, T>(mask[K])..., mask[Kernel], mask[Kernel + 1],
                        mask[Kernel + 2]};
  vec<T> sums[] = {(static_cast<void>(M), start)...};
  dim_t i = Stride * first - job.top;
  const T* from = x + i * row_step;
  T* to = out + first * out_step;
  // The next row, which is kernel row k of the oldest sum.
  const auto meet = [&](auto row, auto turn) __attribute__((always_inline)) {
    constexpr int k = decltype(row)::value, oldest = decltype(turn)::value;
    const auto load = [&]() __attribute__((always_inline)) {
      if constexpr (Two)
        return load_two_columns<Stride>(from, from + job.plane, columns);
      else
        return load_columns<Apart, Stride>(from, masks, dilation, columns);
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
    from += row_step;
  };
  const auto put = [&](vec<T> & sum) __attribute__((always_inline)) {
    vec<T> found = sum;
    sum = start;
    if constexpr (Stride == 2) found = ordered(found);
    if (job.relu) found = max(vec<T>::zero(), found);
    if constexpr (Two)
      store_two(found, to, to + job.out_plane, lanes);
    else if (lanes == vec<T>::size)
      found.store(to);
    else
      found.store(to, lanes);
    to += out_step;
  };
  const auto begin = [&]<int... I>(std::integer_sequence<int, I...>)
      __attribute__((always_inline)) {
    (meet_if_inside(std::integral_constant<int, I>{}), ...);
  };
  begin(std::make_integer_sequence<int, before>{});
  for (dim_t t = first; t < end;) {
    if (t + live <= end && i >= 0 && i + Stride * live <= height) {
      const auto step = [&](auto turn) __attribute__((always_inline)) {
        meet(std::integral_constant<int, before>{}, turn);
        from += row_step;
        if constexpr (Stride == 2) {
          meet(std::integral_constant<int, Kernel - 1>{}, turn);
          from += row_step;
        }
        put(sums[turn]);
        __builtin_prefetch(from + rows_of_block * Stride * row_step);
        __builtin_prefetch(to + rows_of_block * out_step, 1);
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
  const bool in_blocks = out_height > most_rows_of_plane && job.dilation == 1;
  const dim_t block = in_blocks ? rows_of_block : most_rows_of_plane;
  for (dim_t first = 0; first < out_height; first += block) {
    const dim_t end = first + block < out_height ? first + block : out_height;
    const auto* mask = static_cast<const typename column_mask<T>::type*>(job.masks);
    for (dim_t j = 0; j < out_width; j += strip, mask += masks_of_strip<Kernel>) {
      const dim_t lanes = out_width - j < strip ? out_width - j : strip, at = Stride * j - job.left;
      const auto convolve = [&](auto apart) __attribute__((always_inline)) {
        convolve_strip<decltype(apart)::value, Kernel, Stride, Two>(
            job, x + at, mask, weights, start, first, end, lanes, out + j,
            std::make_index_sequence<std::size_t{Kernel}>{},
            std::make_index_sequence<std::size_t{(Kernel + Stride - 1) / Stride}>{});
      };
      // With masks, loads cost nothing more on AVX-512.
      if (IKEBANA_CPU_WIDTH == 64 || at < 0 || at + met > job.width || job.dilation != 1)
        convolve(std::true_type{});
      else
        convolve(std::bool_constant<IKEBANA_CPU_WIDTH == 64>{});
    }
  }
}
/// Planes from `c` up to `end`, one or two at a time.
template <bool Two, int Kernel, int Stride, class T, std::size_t... I>
[[gnu::noinline]] void convolve_some(const detail::depthwise_planes<T>& job, dim_t c, dim_t end,
                                     std::index_sequence<I...>) {
  constexpr auto taps = static_cast<dim_t>(sizeof...(I));
  const auto both = [](const T* p, dim_t next) __attribute__((always_inline)) {
#if IKEBANA_CPU_WIDTH == 64
    if constexpr (Two) return broadcast_two(*p, p[next]);
#endif
    static_cast<void>(next);
    return vec<T>::broadcast(*p);
  };
  for (; c < end; c += 1 + Two) {
    const T* const w = job.w + c * taps;
    const vec<T> weights[] = {opaque(both(w + (job.turned ? sizeof...(I) - 1 - I : I), taps))...};
    convolve_plane<Kernel, Stride, Two>(
        job, job.x + c * job.plane, weights,
        job.bias != nullptr ? both(job.bias + c, 1) : vec<T>::zero(), job.out + c * job.out_plane);
  }
}
template <class T, int Kernel, int Stride>
[[gnu::noinline]] void convolve_planes(const detail::depthwise_planes<T>& job) {
  constexpr auto taps = std::make_index_sequence<std::size_t{Kernel * Kernel}>{};
#if IKEBANA_CPU_WIDTH == 64
  if constexpr (sizeof(T) == 4)
    if (job.dilation == 1 &&
        takes_two_planes<T, Stride, Kernel>(job.out_width, job.width, job.left))
      return each_pair_of_planes(job.count, job.plane, [&](dim_t begin, dim_t end, auto two) {
        convolve_some<decltype(two)::value, Kernel, Stride>(job, begin, end, taps);
      });
#endif
  convolve_some<false, Kernel, Stride>(job, 0, job.count, taps);
}
#endif
