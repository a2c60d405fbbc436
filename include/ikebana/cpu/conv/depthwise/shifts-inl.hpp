// Rows of depthwise convolutions whose kernel is a row that reaches less than a register to either
// side (depthwise/rows.hpp): what taps meet is shifted in registers, for loads across lines of the
// cache take twice the time, and masked ones at the ends of short rows more.

#if IKEBANA_CPU_WIDTH == 64
/// f(tap, shift, which) for every tap: lane i meets lane `shift` + i of registers `which` and the
/// one after.
template <class T, class F>
IKEBANA_CPU_INLINE void each_shift(const detail::depthwise_row<T>& job, const F& f) {
  constexpr dim_t w = vec<T>::size;
  using bits = typename number<T>::bits;
  const auto step = bits_of<T>::broadcast(static_cast<bits>(job.step));
  auto shift = lane_numbers<T>() + bits_of<T>::broadcast(static_cast<bits>(w - job.left));
  const dim_t beside = (job.left + job.step - 1) / job.step,
              before = beside < job.taps ? beside : job.taps;
  dim_t k = 0;
  for (; k < before; ++k, shift = shift + step) f(k, shift, std::integral_constant<int, 0>{});
  // The lanes of both are counted by as many bits as there are.
  shift = shift + bits_of<T>::broadcast(static_cast<bits>(w));
  for (; k < job.taps; ++k, shift = shift + step) f(k, shift, std::integral_constant<int, 1>{});
}
/// Where registers of a row of `width` begin, from the one before j on, and which lanes it has.
template <class T, std::size_t N>
struct registers_met {
  dim_t at[N];
  typename column_mask<T>::type where[N];
  IKEBANA_CPU_INLINE registers_met(dim_t j, dim_t width) {
    constexpr dim_t w = vec<T>::size;
    j -= w;
    for (std::size_t i = 0; i < N; ++i, j += w) {
      const dim_t left = j < 0 || j > width ? 0 : width - j;
      at[i] = left > 0 ? j : 0;
      where[i] = mask_between<T>(0, left < w ? left : w);
    }
  }
};
template <class T, std::size_t N>
struct row_registers {
  vec<T> at[N];
};

/// As many rows as C, the last one more than once where there are fewer, as many registers as R of
/// each from j on.
template <class T, std::size_t N, std::size_t... C, std::size_t... R>
IKEBANA_CPU_INLINE void convolve_shifted(const detail::depthwise_row<T>& job, dim_t row, dim_t j,
                                         const registers_met<T, N>& met, std::index_sequence<C...>,
                                         std::index_sequence<R...>) {
  constexpr dim_t w = vec<T>::size;
  using row_type = row_registers<T, N>;
  const auto load = [&]<std::size_t... I>(const T* from, std::index_sequence<I...>)
      __attribute__((always_inline)) {
    return row_type{{opaque(load_where(from + met.at[I], met.where[I]))...}};
  };
  struct row_sums {
    vec<T> at[sizeof...(R)];
  };
  const auto number = [&](std::size_t c) {
    const dim_t n = row + static_cast<dim_t>(c);
    return n < job.count ? n : job.count - 1;
  };
  const dim_t rows[] = {number(C)...};
  const row_type x[] = {load(job.x + rows[C] * job.width, std::make_index_sequence<N>{})...};
  const auto start = [&](dim_t n) __attribute__((always_inline)) {
    const T first = job.bias == nullptr ? T(0) : job.bias[n * job.bias_step];
    return row_sums{{(static_cast<void>(R), vec<T>::broadcast(first))...}};
  };
  row_sums sums[] = {start(rows[C])...};
  const T* const weights[] = {job.w + rows[C] * job.w_step + (job.turned ? job.taps - 1 : 0)...};
  const dim_t next = job.turned ? -1 : 1;
  each_shift(
      job, [&](dim_t k, auto shift, auto which) __attribute__((always_inline)) {
        constexpr std::size_t from = decltype(which)::value;
        const auto meet = [&](row_sums & to, const row_type& from_row, const T* weight)
            __attribute__((always_inline)) {
          const vec<T> factor = vec<T>::broadcast(weight[next * k]);
          ((to.at[R] =
                fma(factor, pick_lanes(from_row.at[R + from], shift, from_row.at[R + from + 1]),
                    to.at[R])),
           ...);
        };
        (meet(sums[C], x[C], weights[C]), ...);
      });
  constexpr std::size_t last = sizeof...(R) - 1;
  const dim_t left = job.length - j - static_cast<dim_t>(last) * w, lanes = left < w ? left : w;
  const auto put = [&](row_sums & of, T * out) __attribute__((always_inline)) {
    if (job.relu) ((of.at[R] = max(vec<T>::zero(), of.at[R])), ...);
    ((R < last ? of.at[R].store(out + static_cast<dim_t>(R) * w) : static_cast<void>(0)), ...);
    of.at[last].store(out + static_cast<dim_t>(last) * w, lanes);
  };
  (put(sums[C], job.out + rows[C] * job.length + j), ...);
}
/// Registers from j on, of some rows at a time.
template <std::size_t Rows, std::size_t Registers, class T>
IKEBANA_CPU_INLINE void convolve_column(const detail::depthwise_row<T>& job, dim_t j) {
  const registers_met<T, Registers + 2> met(j, job.width);
  for (dim_t row = 0; row < job.count; row += static_cast<dim_t>(Rows))
    convolve_shifted(job, row, j, met, std::make_index_sequence<Rows>{},
                     std::make_index_sequence<Registers>{});
}
template <class T>
[[gnu::noinline]] void convolve_rows_shifted(const detail::depthwise_row<T>& job) {
  constexpr dim_t w = vec<T>::size;
  dim_t j = 0, left = (job.length + w - 1) / w;
  for (; left >= 7; left -= 7, j += 7 * w) convolve_column<1, 7>(job, j);
  if (left >= 4) convolve_column<2, 4>(job, j), j += 4 * w, left -= 4;
  if (left >= 2) convolve_column<4, 2>(job, j), j += 2 * w, left -= 2;
  if (left > 0) convolve_column<4, 1>(job, j);
}
#endif
