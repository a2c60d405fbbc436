// Rows of depthwise convolutions whose kernel is a row (depthwise_rows.hpp).

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

/// sums of as many taps as K, of which the first `taps` are wanted.
template <class T, class M, std::size_t... K>
IKEBANA_CPU_INLINE void add_taps(const detail::depthwise_row<T>& job, const T* x, const M* mask,
                                 const M* last_mask, dim_t taps, T* to, std::index_sequence<K...>) {
  constexpr dim_t w = vec<T>::size;
  const auto at = [&](std::size_t k) {
    const auto tap = static_cast<dim_t>(k);
    return tap < taps ? tap : taps - 1;
  };
  const dim_t taps_met[] = {at(K)...};
  const T* const met[] = {x + taps_met[K] * job.step...};
  vec<T> sums[] = {vec<T>::load(to + taps_met[K] * w)...};
  for (dim_t j = 0; j < job.length; j += w) {
    if (j == job.first) {
      for (; j < job.last; j += w) {
        const vec<T> given = vec<T>::load(job.dy + j);
        ((sums[K] = fma(given, vec<T>::load(met[K] + j), sums[K])), ...);
      }
      if (j >= job.length) break;
      mask = last_mask;
    }
    const vec<T> given = load_some(job.dy + j, job.length - j);
    ((sums[K] =
          fma_where(given, load_where(met[K] + j, mask[taps_met[K]]), sums[K], mask[taps_met[K]])),
     ...);
    mask += job.taps;
  }
  const auto put = [&](std::size_t k) __attribute__((always_inline)) {
    if (static_cast<dim_t>(k) < taps) sums[k].store(to + static_cast<dim_t>(k) * w);
  };
  (put(K), ...);
}
template <class T>
[[gnu::noinline]] void row_gradients(const detail::depthwise_row<T>& job) {
  using mask_type = typename column_mask<T>::type;
  const auto *mask = static_cast<const mask_type*>(job.masks),
             *last_mask = static_cast<const mask_type*>(job.last_masks);
  const T* x = job.x - job.left;
  T* sums = job.sums;
  for (dim_t left = job.taps; left > 0;) {
    const dim_t taps = left <= 3 ? 3 : 5;
    if (taps == 3)
      add_taps(job, x, mask, last_mask, left, sums, std::make_index_sequence<3>{});
    else
      add_taps(job, x, mask, last_mask, left, sums, std::make_index_sequence<5>{});
    left -= taps;
    x += taps * job.step;
    mask += taps;
    last_mask += taps;
    sums += taps * vec<T>::size;
  }
}
#endif
