// Depthwise convolutions of stride 2 straight from the source (depthwise_pairs.hpp):
// neighbours are loaded together and parted in registers.

#if IKEBANA_CPU_WIDTH == 32 || IKEBANA_CPU_WIDTH == 64
/// Two masks for each register of a row of results and each pair of kernel columns: which of the
/// 2 size neighbours are in the source, and met by a result.
template <class T>
void find_pair_masks(dim_t length, dim_t width, dim_t padding, dim_t kernel_columns, void* to) {
  constexpr dim_t w = vec<T>::size;
  auto* mask = static_cast<typename column_mask<T>::type*>(to);
  const auto within = [](dim_t n) { return n < 0 ? 0 : n > w ? w : n; };
  for (dim_t j = 0; j < length; j += w)
    for (dim_t k = 0; k < kernel_columns; k += 2)
      for (dim_t half = 0; half < 2 * w; half += w, ++mask) {
        const dim_t at = 2 * j + k + half - padding, left = width - at,
                    right = 2 * (length - j) - half;
        *mask = mask_between<T>(within(-at), within(left < right ? left : right));
      }
}

template <class T, class M>
IKEBANA_CPU_INLINE even_odd<T> load_pairs_where(const T* p, const M* masks) {
  return split_pairs(in_register(load_where(p, masks[0])),
                     in_register(load_where(p + vec<T>::size, masks[1])), lane_sequence<T>{});
}

/// One row of the source, as the rows of the result that see it do.
template <int Kernel, int I, int R, class T>
IKEBANA_CPU_INLINE void meet_pair(vec<T>* sums, const vec<T>* even, const vec<T>* odd,
                                  const even_odd<T>& x) {
  constexpr int k = I - 2 * R;
  if constexpr (k >= 0 && k < Kernel) sums[R] = fma(odd[k], x.odd, fma(even[k], x.even, sums[R]));
}
template <int Kernel, class T, std::size_t... R, std::size_t... K, std::size_t... I>
IKEBANA_CPU_INLINE void sweep_pairs(const detail::depthwise_pairs<T>& job,
                                    std::index_sequence<R...>, std::index_sequence<K...>,
                                    std::index_sequence<I...>) {
  constexpr dim_t w = vec<T>::size;
  const auto* mask = static_cast<const typename column_mask<T>::type*>(job.masks);
  const dim_t columns = job.kernel_columns, row_step = job.row_step, first_row = job.first_row,
              last_row = job.last_row;
  for (dim_t j = 0; j < job.length; j += w) {
    vec<T> sums[] = {(static_cast<void>(R), vec<T>::broadcast(job.start))...};
    for (dim_t kx = 0; kx < columns; kx += 2, mask += 2) {
      const T* const weights = job.weights + kx;
      const vec<T> even[] = {
          in_register(vec<T>::broadcast(weights[static_cast<dim_t>(K) * columns]))...};
      const bool both = kx + 1 < columns;
      const vec<T> odd[] = {
          in_register(both ? vec<T>::broadcast(weights[static_cast<dim_t>(K) * columns + 1])
                           : vec<T>::zero())...};
      const T* const x = job.image + 2 * j + kx;
      const auto row = [&](auto at) __attribute__((always_inline)) {
        constexpr int i = decltype(at)::value;
        if (i < first_row || i >= last_row) return;
        even_odd<T> seen = load_pairs_where(x + i * row_step, mask);
        // What meets no weight may not be finite.
        if (!both) seen.odd = vec<T>::zero();
        (meet_pair<Kernel, i, static_cast<int>(R)>(sums, even, odd, seen), ...);
      };
      (row(std::integral_constant<int, static_cast<int>(I)>{}), ...);
    }
    store_row_sums(sums, job.relu, job.out + j, job.out_step, job.rows, job.length - j,
                   std::index_sequence<R...>{});
  }
}
template <class T, int Kernel, int Rows>
[[gnu::noinline]] void sweep_pairs(const detail::depthwise_pairs<T>& job) {
  sweep_pairs<Kernel>(job, std::make_index_sequence<std::size_t{Rows}>{},
                      std::make_index_sequence<std::size_t{Kernel}>{},
                      std::make_index_sequence<std::size_t{2 * Rows - 2 + Kernel}>{});
}

/// sums[ky * kernel_columns + kx], a register each, += what a plane gives.
template <class T, std::size_t... K>
IKEBANA_CPU_INLINE void sweep_pair_gradients(const detail::depthwise_pairs<T>& job,
                                             std::index_sequence<K...>) {
  constexpr dim_t w = vec<T>::size;
  constexpr std::size_t kernel = sizeof...(K);
  const dim_t columns = job.kernel_columns, row_step = job.row_step;
  for (dim_t kx = 0; kx < columns; kx += 2) {
    vec<T> sums[] = {(static_cast<void>(K), vec<T>::zero())...,
                     (static_cast<void>(K), vec<T>::zero())...};
    for (dim_t r = 0; r < job.rows; ++r) {
      const auto* mask = static_cast<const typename column_mask<T>::type*>(job.masks) + kx;
      const T* const given = job.dy + r * job.out_step;
      const dim_t first = job.first_row - 2 * r, last = job.last_row - 2 * r;
      for (dim_t j = 0; j < job.length; j += w, mask += (columns + 1) / 2 * 2) {
        const vec<T> dy = in_register(load_some(given + j, job.length - j));
        const T* const x = job.image + 2 * (r * row_step + j) + kx;
        const auto meet = [&](std::size_t k) __attribute__((always_inline)) {
          const auto i = static_cast<dim_t>(k);
          if (i < first || i >= last) return;
          const even_odd<T> seen = load_pairs_where(x + i * row_step, mask);
          sums[k] = fma(dy, seen.even, sums[k]);
          sums[kernel + k] = fma(dy, seen.odd, sums[kernel + k]);
        };
        (meet(K), ...);
      }
    }
    const auto add = [&](std::size_t k) __attribute__((always_inline)) {
      T* const to = job.sums + (static_cast<dim_t>(k) * columns + kx) * w;
      (vec<T>::load(to) + sums[k]).store(to);
      if (kx + 1 < columns) (vec<T>::load(to + w) + sums[kernel + k]).store(to + w);
    };
    (add(K), ...);
  }
}
template <class T, int Kernel>
[[gnu::noinline]] void sweep_pair_gradients(const detail::depthwise_pairs<T>& job) {
  sweep_pair_gradients(job, std::make_index_sequence<std::size_t{Kernel}>{});
}

/// Some rows of the same remainder of the source's gradient, whose columns of either remainder are
/// found apart and interleaved.
template <class T, std::size_t... R>
IKEBANA_CPU_INLINE void spread_pairs(const detail::depthwise_spread<T>& job,
                                     std::index_sequence<R...>) {
  constexpr dim_t w = vec<T>::size;
  using mask_type = typename column_mask<T>::type;
  for (dim_t j = 0; 2 * j < job.length; j += w) {
    const auto part = [&](const detail::spread_columns<T>& c, vec<T>* sums)
        __attribute__((always_inline)) {
      const auto* mask = static_cast<const mask_type*>(c.masks) + j / w * c.count;
      for (dim_t i = 0; i < c.count; ++i) {
        const mask_type where = mask[i];
        const dim_t at = j + c.columns[i];
        for (dim_t m = 0; m < job.row_taps; ++m) {
          const vec<T> weight = vec<T>::broadcast(c.weights[m * job.weight_step + 2 * i]);
          const T* const* const rows = job.rows + (job.row_taps - 1 - m);
          ((sums[R] = fma(weight, load_where(rows[R] + at, where), sums[R])), ...);
        }
      }
    };
    vec<T> even[] = {(static_cast<void>(R), vec<T>::broadcast(job.start))...};
    vec<T> odd[] = {(static_cast<void>(R), vec<T>::broadcast(job.start))...};
    part(job.columns[0], even);
    part(job.columns[1], odd);
    const dim_t left = job.length - 2 * j;
    const auto put = [&](std::size_t r) __attribute__((always_inline)) {
      if (static_cast<dim_t>(r) >= job.count) return;
      T* const to = job.out + static_cast<dim_t>(r) * job.out_step + 2 * j;
      const auto both = interleave_pairs(even[r], odd[r], lane_sequence<T>{});
      both.even.store(to, left < w ? left : w);
      if (left > w) both.odd.store(to + w, left < 2 * w ? left - w : w);
    };
    (put(R), ...);
  }
}
template <class T>
[[gnu::noinline]] void spread_pairs(const detail::depthwise_spread<T>& job) {
  spread_pairs(job,
               std::make_index_sequence<std::size_t{detail::depthwise_spread<T>::most_rows}>{});
}
#endif
