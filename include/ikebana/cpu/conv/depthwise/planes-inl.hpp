// Depthwise convolutions of 3x3, of stride 1 or 2, whole planes at a time
// (depthwise/planes.hpp).

#if IKEBANA_CPU_WIDTH == 32 || IKEBANA_CPU_WIDTH == 64
/// Planes of more rows are taken in blocks of so many, strip by strip, and what the next block
/// meets and gives is fetched meanwhile, or, of few rows, the next plane: processors look for it
/// along rows.
inline constexpr dim_t most_rows_of_plane = 32, rows_of_block = 16;

/// A strip of a plane from row `first` up to `end`: each row of the source is loaded once for all
/// rows of the result that meet it, whose sums move up. `Apart`: dilated, or what lies beside rows
/// may not be read.
template <bool Apart, int Stride, class T, class Mask, std::size_t... M>
IKEBANA_CPU_INLINE void convolve_strip(const detail::depthwise_planes<T>& job, const T* x,
                                       const Mask* mask, const vec<T>* weights, vec<T> start,
                                       dim_t first, dim_t end, dim_t lanes, T* out,
                                       std::index_sequence<M...>) {
  constexpr int live = sizeof...(M), before = 3 - Stride;
  const dim_t row_step = job.row_step, height = job.height, out_step = job.out_step;
  const dim_t dilation = Apart ? job.dilation : 1;
  const Mask masks[] = {mask[0], mask[1], mask[2], mask[3], mask[4], mask[5]};
  vec<T> sums[] = {(static_cast<void>(M), start)...};
  dim_t i = Stride * first - job.top;
  const T* from = x + i * row_step;
  T* to = out + first * out_step;
  // The next row, which is kernel row k of the oldest sum.
  const auto meet = [&](auto row, auto turn) __attribute__((always_inline)) {
    constexpr int k = decltype(row)::value, oldest = decltype(turn)::value;
    visit_columns<Apart, Stride>(
        from, masks, dilation, [&](auto column, vec<T> seen) __attribute__((always_inline)) {
          constexpr int c = static_cast<int>(decltype(column)::value);
          const auto add = [&](auto sum) __attribute__((always_inline)) {
            constexpr int m = static_cast<int>(decltype(sum)::value), at = k - Stride * m;
            if constexpr (at >= 0 && at < 3) {
              vec<T>& s = sums[(m + oldest) % live];
              s = fma_where(weights[3 * at + c], seen, s, masks[c]);
            }
          };
          (add(std::integral_constant<std::size_t, M>{}), ...);
        });
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
    if (lanes == vec<T>::size)
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
          meet(std::integral_constant<int, 2>{}, turn);
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
      if constexpr (Stride == 2) meet_if_inside(std::integral_constant<int, 2>{});
      put(sums[0]);
      const vec<T> done = sums[0];
      ((sums[M] = M + 1 < sizeof...(M) ? sums[M + 1 < sizeof...(M) ? M + 1 : 0] : done), ...);
      ++t;
    }
  }
}
template <int Stride, class T>
IKEBANA_CPU_INLINE void convolve_plane(const detail::depthwise_planes<T>& job, const T* x,
                                       const vec<T>* weights, vec<T> start, T* out) {
  constexpr dim_t strip = strip_of_planes<T, Stride>, met = Stride * vec<T>::size + 2;
  const dim_t out_width = job.out_width, out_height = job.out_height;
  const bool in_blocks = out_height > most_rows_of_plane && job.dilation == 1;
  const dim_t block = in_blocks ? rows_of_block : most_rows_of_plane;
  for (dim_t first = 0; first < out_height; first += block) {
    const dim_t end = first + block < out_height ? first + block : out_height;
    const auto* mask = static_cast<const typename column_mask<T>::type*>(job.masks);
    for (dim_t j = 0; j < out_width; j += strip, mask += masks_of_strip) {
      const dim_t lanes = out_width - j < strip ? out_width - j : strip, at = Stride * j - job.left;
      const auto convolve = [&](auto apart) __attribute__((always_inline)) {
        convolve_strip<decltype(apart)::value, Stride>(
            job, x + at, mask, weights, start, first, end, lanes, out + j,
            std::make_index_sequence<std::size_t{(2 + Stride) / Stride}>{});
      };
      // With masks, loads cost nothing more on AVX-512.
      if (IKEBANA_CPU_WIDTH == 64 || at < 0 || at + met > job.width || job.dilation != 1)
        convolve(std::true_type{});
      else
        convolve(std::bool_constant<IKEBANA_CPU_WIDTH == 64>{});
    }
  }
}
template <class T, int Stride>
[[gnu::noinline]] void convolve_planes(const detail::depthwise_planes<T>& job) {
  const auto convolve = [&]<std::size_t... I>(dim_t c, std::index_sequence<I...>)
      __attribute__((always_inline)) {
    const T* const w = job.w + c * 9;
    const vec<T> weights[] = {opaque(vec<T>::broadcast(w[job.turned ? 8 - I : I]))...};
    convolve_plane<Stride>(job, job.x + c * job.plane, weights,
                           vec<T>::broadcast(job.bias != nullptr ? job.bias[c] : T(0)),
                           job.out + c * job.out_plane);
  };
  for (dim_t c = 0; c < job.count; ++c) convolve(c, std::make_index_sequence<9>{});
}
#endif
