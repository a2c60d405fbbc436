// Depthwise convolutions straight from the source (depthwise/sweep.hpp).

#if IKEBANA_CPU_WIDTH == 32 || IKEBANA_CPU_WIDTH == 64
// Straight from the source, where partial loads are cheap: `masks` say which
// columns are in it.
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
/// What fma_where is to meet: a mask costs nothing there, but one operation here.
template <bool Apart, class T>
IKEBANA_CPU_INLINE vec<T> load_beside(const T* p, std::uint16_t mask) {
  return Apart ? load_where(p, mask) : vec<T>::load(p);
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
template <bool, class T>
IKEBANA_CPU_INLINE vec<T> load_beside(const T* p, __m256i mask) {
  return load_where(p, mask);
}
#endif

/// For each register of a row and each kernel column, which lanes are in the
/// source and, forward, in the result.
template <class T>
void find_masks(dim_t length, dim_t width, dim_t kernel_columns, const dim_t* columns, void* to) {
  constexpr dim_t w = vec<T>::size;
  auto* mask = static_cast<typename column_mask<T>::type*>(to);
  const auto within = [](dim_t n) { return n < 0 ? 0 : n > w ? w : n; };
  for (dim_t j = 0; j < length; j += w)
    for (dim_t k = 0; k < kernel_columns; ++k, ++mask) {
      const dim_t at = j + columns[k], left = width - at, right = length - j;
      *mask = mask_between<T>(within(-at), within(left < right ? left : right));
    }
}

/// Row I of those met, as all rows of the result that see it do: row R does as kernel row I - R.
template <int I, class T, class M, std::size_t... R, std::size_t K>
IKEBANA_CPU_INLINE void meet_row(vec<T>* sums, const vec<T> (&weights)[K], vec<T> x, M where,
                                 std::index_sequence<R...>) {
  const auto meet = [&](auto row) __attribute__((always_inline)) {
    constexpr std::size_t r = decltype(row)::value;
    if constexpr (constexpr int k = I - static_cast<int>(r); k >= 0 && k < static_cast<int>(K))
      sums[r] = fma_where(weights[k], x, sums[r], where);
  };
  (meet(std::integral_constant<std::size_t, R>{}), ...);
}
/// Results of one channel. All rows met are in the source, or not (`Some`).
template <bool Some, class T, std::size_t... R, std::size_t... K, std::size_t... I>
IKEBANA_CPU_INLINE void sweep_rows(const detail::depthwise_sweep<T>& job,
                                   std::index_sequence<R...> r, std::index_sequence<K...>,
                                   std::index_sequence<I...>) {
  constexpr dim_t w = vec<T>::size;
  const auto* mask = static_cast<const typename column_mask<T>::type*>(job.masks);
  const dim_t weight_step = job.weight_step, row_step = job.row_step, first_met = job.first_met,
              last_met = job.last_met;
  const T* const first = job.top + first_met * row_step;
  for (dim_t j = 0; j < job.length; j += w) {
    vec<T> sums[] = {(static_cast<void>(R), vec<T>::broadcast(job.start))...};
    for (dim_t kx = 0; kx < job.kernel_columns; ++kx, ++mask) {
      const T* const weight = job.weights + job.column_weights[kx];
      const vec<T> weights[] = {
          opaque(vec<T>::broadcast(weight[static_cast<dim_t>(K) * weight_step]))...};
      const T* from = first + j + job.columns[kx];
      const auto where = *mask;
      const auto load = [&]() __attribute__((always_inline)) {
        return opaque(load_beside<IKEBANA_CPU_WIDTH == 32>(from, where));
      };
      const auto meet = [&](auto row) __attribute__((always_inline)) {
        constexpr int i = static_cast<int>(decltype(row)::value);
        if constexpr (Some && i + 1 < static_cast<int>(sizeof...(K)))
          if (i < first_met) return true;
        if constexpr (Some)
          if (i >= last_met) return false;
        meet_row<i>(sums, weights, load(), where, r);
        from += row_step;
        return true;
      };
      static_cast<void>((meet(std::integral_constant<std::size_t, I>{}) && ...));
    }
    store_row_sums(sums, job.relu, job.out + j, job.out_step, job.rows, job.length - j, r);
  }
}
template <class T, int Kernel, bool Some>
[[gnu::noinline]] void sweep_rows(const detail::depthwise_sweep<T>& job) {
  constexpr std::size_t most = detail::depthwise_sweep<T>::most_rows;
  constexpr auto rows = std::make_index_sequence<most>{};
  constexpr auto kernel = std::make_index_sequence<std::size_t{Kernel}>{};
  constexpr auto met = std::make_index_sequence<most + Kernel - 1>{};
  sweep_rows<Some>(job, rows, kernel, met);
}
#endif
