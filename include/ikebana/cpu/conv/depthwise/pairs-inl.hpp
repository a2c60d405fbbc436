// Depthwise convolutions of stride 2 straight from the source (depthwise/pairs.hpp):
// neighbours are loaded together and parted in registers. Without masked operations, channels as
// lanes are faster.

#if IKEBANA_CPU_WIDTH == 64
/// Four masks for each register of a row of results and each pair of kernel columns: which results
/// the even and which the odd column brings the source, and which of the 2 size neighbours are in
/// it and met by a result.
template <class T>
void find_pair_masks(dim_t length, dim_t width, dim_t padding, dim_t kernel_columns, void* to) {
  constexpr dim_t w = vec<T>::size;
  auto* mask = static_cast<typename column_mask<T>::type*>(to);
  const auto within = [](dim_t n) { return n < 0 ? 0 : n > w ? w : n; };
  for (dim_t j = 0; j < length; j += w)
    for (dim_t k = 0; k < kernel_columns; k += 2) {
      for (dim_t at = 2 * j + k - padding; at < 2 * j + k - padding + 2; ++at) {
        const dim_t left = (width - at + 1) / 2, right = length - j;
        *mask++ = mask_between<T>(within((1 - at) / 2), within(left < right ? left : right));
      }
      for (dim_t half = 0; half < 2 * w; half += w) {
        const dim_t at = 2 * j + k + half - padding, left = width - at,
                    right = 2 * (length - j) - half;
        *mask++ = mask_between<T>(within(-at), within(left < right ? left : right));
      }
    }
}

/// f(whether there are two) for each pair of kernel columns.
template <class F>
IKEBANA_CPU_INLINE void for_column_pairs(dim_t columns, const F& f) {
  dim_t kx = 0;
  for (; kx + 1 < columns; kx += 2) f(kx, std::true_type{});
  if (kx < columns) f(kx, std::false_type{});
}

/// sums[ky * kernel_columns + kx], a register each, += what a plane gives.
template <class T, std::size_t... K>
IKEBANA_CPU_INLINE void sweep_pair_gradients(const detail::depthwise_gradient<T>& job,
                                             std::index_sequence<K...>) {
  constexpr dim_t w = vec<T>::size;
  using mask_type = typename column_mask<T>::type;
  const dim_t columns = job.kernel_columns;
  for_column_pairs(
      columns, [&](dim_t kx, auto both) __attribute__((always_inline)) {
        constexpr bool is_pair = decltype(both)::value;
        vec<T> even[] = {(static_cast<void>(K), vec<T>::zero())...},
               odd[] = {(static_cast<void>(K), vec<T>::zero())...};
        for (dim_t r = 0; r < job.rows; ++r) {
          const auto* mask = static_cast<const mask_type*>(job.masks) + 2 * kx;
          const T* const given = job.dy + r * job.dy_step;
          const auto row_of = [&](dim_t i) {
            const dim_t at = 2 * r + i - job.padding;
            return (at >= 0 && at < job.height ? job.image + (2 * r + i) * job.row_step
                                               : job.zeros) +
                   kx - job.across;
          };
          const T* const met[] = {row_of(static_cast<dim_t>(K))...};
          for (dim_t j = 0; j < job.length; j += w, mask += (columns + 1) / 2 * 4) {
            const vec<T> dy = opaque(load_some(given + j, job.length - j));
            const auto meet = [&](std::size_t k) __attribute__((always_inline)) {
              const even_odd<T> seen =
                  split_pairs(opaque(vec<T>::load(met[k] + 2 * j)),
                              opaque(vec<T>::load(met[k] + 2 * j + w)), lane_sequence<T>{});
              even[k] = fma_where(dy, seen.even, even[k], mask[0]);
              if constexpr (is_pair) odd[k] = fma_where(dy, seen.odd, odd[k], mask[1]);
            };
            (meet(K), ...);
          }
        }
        const auto add = [&](std::size_t k) __attribute__((always_inline)) {
          T* const to = job.sums + (static_cast<dim_t>(k) * columns + kx) * w;
          (vec<T>::load(to) + even[k]).store(to);
          if constexpr (is_pair) (vec<T>::load(to + w) + odd[k]).store(to + w);
        };
        (add(K), ...);
      });
}
template <class T, int Kernel>
[[gnu::noinline]] void sweep_pair_gradients(const detail::depthwise_gradient<T>& job) {
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
