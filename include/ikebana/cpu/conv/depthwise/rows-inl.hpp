// Rows of depthwise convolutions whose kernel is a row (depthwise/rows.hpp).

#if IKEBANA_CPU_WIDTH == 32 || IKEBANA_CPU_WIDTH == 64
/// As many registers of results as R from `out` on; a single one may meet an end of the row
/// (`Ends`), or be of fewer `lanes`.
template <bool Ends, class T, class M, std::size_t... R>
IKEBANA_CPU_INLINE void convolve_registers(const detail::depthwise_row<T>& job, const T* x, T* out,
                                           const M* mask, dim_t lanes, std::index_sequence<R...>) {
  constexpr dim_t w = vec<T>::size;
  const dim_t step = job.step, next = job.turned ? -1 : 1;
  const T* weight = job.w + (job.turned ? job.taps - 1 : 0);
  vec<T> sums[] = {(static_cast<void>(R), vec<T>::broadcast(job.start))...};
  for (dim_t k = job.taps; k > 0; --k, weight += next, x += step) {
    const vec<T> factor = vec<T>::broadcast(*weight);
    if constexpr (Ends)
      sums[0] = fma_where(factor, load_where(x, *mask), sums[0], *mask), ++mask;
    else
      ((sums[R] = fma(factor, vec<T>::load(x + static_cast<dim_t>(R) * w), sums[R])), ...);
  }
  if (job.relu) ((sums[R] = max(vec<T>::zero(), sums[R])), ...);
  if constexpr (Ends)
    sums[0].store(out, lanes < w ? lanes : w);
  else
    (sums[R].store(out + static_cast<dim_t>(R) * w), ...);
}
template <class T>
[[gnu::noinline]] void convolve_row(const detail::depthwise_row<T>& job) {
  constexpr dim_t w = vec<T>::size, many = 8, few = 2;
  constexpr auto one = std::make_index_sequence<1>{};
  using mask_type = typename column_mask<T>::type;
  const auto* mask = static_cast<const mask_type*>(job.masks);
  const T* const x = job.x - job.left;
  for (dim_t j = 0; j < job.length; j += w) {
    if (j == job.first) {
      // The last ones may be found twice.
      for (; job.last - j > few * w && job.last - job.first >= many * w; j += many * w) {
        if (j + many * w > job.last) j = job.last - many * w;
        convolve_registers<false>(job, x + j, job.out + j, mask, w,
                                  std::make_index_sequence<std::size_t{many}>{});
      }
      for (; j < job.last; j += w) convolve_registers<false>(job, x + j, job.out + j, mask, w, one);
      if (j >= job.length) break;
      mask = static_cast<const mask_type*>(job.last_masks);
    }
    convolve_registers<true>(job, x + j, job.out + j, mask, job.length - j, one);
    mask += job.taps;
  }
}

/// Adds what one row gives, whose taps meet x + the places `met`.
template <class T, std::size_t... K>
IKEBANA_CPU_INLINE void add_row(const detail::depthwise_row<T>& job, const T* x, const T* dy,
                                const dim_t* taps, const dim_t* met, vec<T>* sums, vec<T>* more,
                                std::index_sequence<K...>) {
  constexpr dim_t w = vec<T>::size;
  const auto* mask = static_cast<const typename column_mask<T>::type*>(job.masks);
  for (dim_t j = 0; j < job.length; j += w) {
    if (j == job.first) {
      for (; j + w < job.last; j += 2 * w) {
        const vec<T> given = vec<T>::load(dy + j), next = vec<T>::load(dy + j + w);
        ((sums[K] = fma(given, vec<T>::load(x + met[K] + j), sums[K])), ...);
        ((more[K] = fma(next, vec<T>::load(x + met[K] + j + w), more[K])), ...);
      }
      if (j < job.last) {
        const vec<T> given = vec<T>::load(dy + j);
        ((sums[K] = fma(given, vec<T>::load(x + met[K] + j), sums[K])), ...);
        j += w;
      }
      if (j >= job.length) break;
      mask = static_cast<const typename column_mask<T>::type*>(job.last_masks);
    }
    const vec<T> given = load_some(dy + j, job.length - j);
    ((sums[K] =
          fma_where(given, load_where(x + met[K] + j, mask[taps[K]]), sums[K], mask[taps[K]])),
     ...);
    mask += job.taps;
  }
}
/// The sums of as many taps as K from `tap` on, of which the last one may be met more than once, of
/// one channel.
template <class T, std::size_t... K>
IKEBANA_CPU_INLINE void add_taps(const detail::depthwise_row<T>& job, dim_t channel, dim_t tap,
                                 std::index_sequence<K...> each) {
  constexpr dim_t w = vec<T>::size;
  const auto at = [&](std::size_t k) {
    const dim_t last = job.taps - 1, wanted = tap + static_cast<dim_t>(k);
    return wanted < last ? wanted : last;
  };
  const dim_t tap_of[] = {at(K)...}, met[] = {tap_of[K] * job.step - job.left...};
  vec<T> sums[] = {(static_cast<void>(K), vec<T>::zero())...},
         more[] = {(static_cast<void>(K), vec<T>::zero())...};
  for (dim_t image = 0; image < job.batch; ++image) {
    const dim_t plane = (image * job.channels + channel) * job.rows;
    const T *x = job.x + plane * job.width, *dy = job.dy + plane * job.length;
    for (dim_t i = 0; i < job.rows; ++i, x += job.width, dy += job.length)
      add_row(job, x, dy, tap_of, met, sums, more, each);
  }
  // The same again, where there are fewer.
  T* const to = job.sums + channel * job.taps * w;
  ((sums[K] + more[K]).store(to + tap_of[K] * w), ...);
}
template <class T>
[[gnu::noinline]] void row_gradients(const detail::depthwise_row<T>& job) {
  for (dim_t c = 0; c < job.count; ++c)
    for (dim_t tap = 0; tap < job.taps;) {
      const dim_t left = job.taps - tap;
      if (left <= 3 || left == 6) {
        add_taps(job, c, tap, std::make_index_sequence<3>{});
        tap += 3;
      } else {
        add_taps(job, c, tap, std::make_index_sequence<5>{});
        tap += 5;
      }
    }
}
#endif
