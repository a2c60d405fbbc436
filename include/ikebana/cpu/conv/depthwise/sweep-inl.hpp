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
IKEBANA_CPU_INLINE std::uint16_t mask_of(vec<std::int32_t> lanes) {
  const __m512i v = __builtin_bit_cast(__m512i, lanes.v);
  return _mm512_test_epi32_mask(v, v);
}
IKEBANA_CPU_INLINE std::uint16_t mask_of(vec<std::int64_t> lanes) {
  const __m512i v = __builtin_bit_cast(__m512i, lanes.v);
  return _mm512_test_epi64_mask(v, v);
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
template <class B>
IKEBANA_CPU_INLINE __m256i mask_of(vec<B> lanes) {
  return __builtin_bit_cast(__m256i, lanes.v);
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
/// Results of one channel, or of two as halves of registers. All rows met are in the source, or
/// not (`Some`).
template <bool Some, bool Two, class T, std::size_t... R, std::size_t... K, std::size_t... I>
IKEBANA_CPU_INLINE void sweep_rows(const detail::depthwise_sweep<T>& job,
                                   std::index_sequence<R...> r, std::index_sequence<K...>,
                                   std::index_sequence<I...>) {
  constexpr dim_t w = vec<T>::size;
  const auto* mask = static_cast<const typename column_mask<T>::type*>(job.masks);
  const dim_t weight_step = job.weight_step, row_step = job.row_step, first_met = job.first_met,
              last_met = job.last_met;
  const T* const first = job.top + first_met * row_step;
  const auto both = [](const T* p, dim_t beside) __attribute__((always_inline)) {
#if IKEBANA_CPU_WIDTH == 64
    if constexpr (Two) return broadcast_two(*p, p[beside]);
#endif
    static_cast<void>(beside);
    return vec<T>::broadcast(*p);
  };
  for (dim_t j = 0; j < job.length; j += w) {
    vec<T> sums[] = {(static_cast<void>(R), both(job.start, 1))...};
    for (dim_t kx = 0; kx < job.kernel_columns; ++kx, ++mask) {
      const T* const weight = job.weights + job.column_weights[kx];
      const vec<T> weights[] = {
          opaque(both(weight + static_cast<dim_t>(K) * weight_step, job.next_weight))...};
      const T* from = first + j + job.columns[kx];
      const auto where = of_parts<Two, T>(*mask);
      const auto load = [&]() __attribute__((always_inline)) {
#if IKEBANA_CPU_WIDTH == 64
        if constexpr (Two) return opaque(load_two(from, from + job.next));
#endif
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
#if IKEBANA_CPU_WIDTH == 64
    if constexpr (Two) {
      const auto put = [&](std::size_t i) __attribute__((always_inline)) {
        T* const to = job.out + static_cast<dim_t>(i) * job.out_step;
        if (static_cast<dim_t>(i) < job.rows)
          store_two(job.relu ? max(vec<T>::zero(), sums[i]) : sums[i], to, to + job.next_out,
                    job.length);
      };
      (put(R), ...);
      return;
    }
#endif
    store_row_sums(sums, job.relu, job.out + j, job.out_step, job.rows, job.length - j, r);
  }
}
template <class T, int Kernel, bool Some, bool Two = false>
[[gnu::noinline]] void sweep_rows(const detail::depthwise_sweep<T>& job) {
  constexpr std::size_t most = detail::depthwise_sweep<T>::most_rows;
  constexpr auto rows = std::make_index_sequence<most>{};
  constexpr auto kernel = std::make_index_sequence<std::size_t{Kernel}>{};
  constexpr auto met = std::make_index_sequence<most + Kernel - 1>{};
  sweep_rows<Some, Two>(job, rows, kernel, met);
}
/// One row of the source, as the rows of dy that see it do, in `Columns`
/// columns of the kernel: every sum is met once, so that none waits for the one
/// before.
template <int Kernel, int I, class T, std::size_t R, std::size_t... S>
IKEBANA_CPU_INLINE void meet_row_gradients(vec<T>* sums, const vec<T> (&dy)[R], const vec<T>* x,
                                           const typename column_mask<T>::type* where,
                                           std::index_sequence<S...>) {
  const auto meet = [&](auto sum) __attribute__((always_inline)) {
    constexpr int k = static_cast<int>(decltype(sum)::value) % Kernel, r = I - k;
    constexpr std::size_t column = decltype(sum)::value / Kernel;
    if constexpr (r >= 0 && r < static_cast<int>(R))
      sums[decltype(sum)::value] =
          fma_where(dy[r], x[column], sums[decltype(sum)::value], where[column]);
  };
  (meet(std::integral_constant<std::size_t, S>{}), ...);
}
template <int Kernel, class T, std::size_t... R, std::size_t... C, std::size_t... I, class S>
IKEBANA_CPU_INLINE void sweep_block(const detail::depthwise_gradient<T>& job, vec<T>* sums,
                                    dim_t row, dim_t first_column, std::index_sequence<R...>,
                                    std::index_sequence<C...>, std::index_sequence<I...>, S every) {
  constexpr dim_t w = vec<T>::size;
  const auto* mask = static_cast<const typename column_mask<T>::type*>(job.masks) + first_column;
  const dim_t last = job.kernel_columns - first_column - 1, dy_step = job.dy_step;
  const T *const top = job.image + row * job.row_step, *met[sizeof...(I)];
  const dim_t first_row = job.padding - row, last_row = first_row + job.height;
  if (first_row <= 0 && last_row >= static_cast<dim_t>(sizeof...(I)))
    ((met[I] = top + static_cast<dim_t>(I) * job.row_step), ...);
  else
    ((met[I] = static_cast<dim_t>(I) >= first_row && static_cast<dim_t>(I) < last_row
                   ? top + static_cast<dim_t>(I) * job.row_step
                   : job.zeros),
     ...);
  const auto column_of = [=](dim_t c) { return c < last ? c : last; };
  const dim_t columns[] = {job.columns[first_column + column_of(static_cast<dim_t>(C))]...};
  for (dim_t j = 0; j < job.length; j += w, mask += job.kernel_columns) {
    const T* const given = job.dy + row * dy_step + j;
    const typename column_mask<T>::type where[] = {mask[column_of(static_cast<dim_t>(C))]...};
    vec<T> dy[sizeof...(R)];
    const auto step = [&](auto at) __attribute__((always_inline)) {
      constexpr std::size_t i = decltype(at)::value;
      if constexpr (i < sizeof...(R))
        dy[i] = opaque(load_some(given + static_cast<dim_t>(i) * dy_step, job.length - j));
      const vec<T> x[] = {
          opaque(load_beside<IKEBANA_CPU_WIDTH == 32>(met[i] + j + columns[C], where[C]))...};
      meet_row_gradients<Kernel, static_cast<int>(i)>(sums, dy, x, where, every);
    };
    (step(std::integral_constant<std::size_t, I>{}), ...);
  }
}
/// The sums of one plane, not copied.
template <class T, int Kernel, int Columns, std::size_t... S>
IKEBANA_CPU_INLINE void sweep_gradients(const detail::depthwise_gradient<T>& job,
                                        std::index_sequence<S...> every) {
  constexpr dim_t w = vec<T>::size, rows = 7;
  constexpr auto columns = std::make_index_sequence<std::size_t{Columns}>{};
  for (dim_t first = 0; first < job.kernel_columns; first += Columns) {
    vec<T> sums[] = {(static_cast<void>(S), vec<T>::zero())...};
    dim_t row = 0;
    for (; row + rows <= job.rows; row += rows)
      sweep_block<Kernel>(job, sums, row, first, std::make_index_sequence<7>{}, columns,
                          std::make_index_sequence<std::size_t{Kernel} + 6>{}, every);
    for (; row < job.rows; ++row)
      sweep_block<Kernel>(job, sums, row, first, std::make_index_sequence<1>{}, columns,
                          std::make_index_sequence<std::size_t{Kernel}>{}, every);
    const auto add = [&](std::size_t i, vec<T> found) __attribute__((always_inline)) {
      const dim_t kx = first + static_cast<dim_t>(i) / Kernel, ky = static_cast<dim_t>(i) % Kernel;
      if (kx >= job.kernel_columns) return;
      T* const to = job.sums + (ky * job.kernel_columns + kx) * w;
      (vec<T>::load(to) + found).store(to);
    };
    (add(S, sums[S]), ...);
  }
}
template <class T, int Kernel, int Columns>
[[gnu::noinline]] void sweep_gradients(const detail::depthwise_gradient<T>& job) {
  sweep_gradients<T, Kernel, Columns>(job,
                                      std::make_index_sequence<std::size_t{Kernel} * Columns>{});
}
#endif
