// The product by the recurrent weights, which every step needs: they are packed once, and one pass
// over the state gives the sums of all gates, four registers of them at a time.

inline constexpr int recurrent_panel = 4;

/// The first of the columns that stand in panels of one register.
template <class T>
IKEBANA_CPU_INLINE dim_t narrow_columns(dim_t n) {
  constexpr dim_t wide = recurrent_panel * vec<T>::size;
  return n / wide * wide;
}

/// w is (n, k); its rows become the columns of panels, each of them k times the panel's width.
template <class T>
void pack_panels(dim_t n, dim_t k, const T* w, T* packed) {
  constexpr dim_t size = vec<T>::size, wide = recurrent_panel * size;
  for (dim_t j = 0; j < n; j += size) {
    const bool narrow = j >= narrow_columns<T>(n);
    transpose_into<T>(k, w + j * k, k, n - j < size ? n - j : size, T(1),
                      packed + (narrow ? j : j / wide * wide) * k + (narrow ? 0 : j % wide),
                      narrow ? size : wide, false);
  }
}

/// How many rows go together, of those that are left.
IKEBANA_CPU_INLINE dim_t rows_at_once(dim_t left) {
#if IKEBANA_CPU_WIDTH == 64
  // Two passes of 4 are sooner over the weights than one of 6 and one of 2.
  return left == 8 || left == 9 ? 4 : left >= 6 ? 6 : left >= 4 ? 4 : left >= 2 ? 2 : 1;
#elif IKEBANA_CPU_WIDTH == 32
  return left >= 6 ? 6 : left == 3 || left == 5 ? 3 : left >= 2 ? 2 : 1;
#else
  return left >= 2 ? 2 : 1;
#endif
}

/// to = x w (+ to) + bias for Rows rows and Registers registers of columns, the last of `lanes`.
/// The sums of each half of k are added up apart, for a row alone would wait for its own sums; the
/// order is that of any number of rows.
template <class T, int Rows, int Registers, std::size_t... I, std::size_t... J>
IKEBANA_CPU_INLINE void panel_sums(dim_t k, const T* packed, rows_of<const T> x, const T* bias,
                                   rows_of<T> to, bool adds, dim_t lanes, std::index_sequence<I...>,
                                   std::index_sequence<J...>) {
  constexpr dim_t size = vec<T>::size;
  constexpr std::size_t n = Registers;
  const auto at = [](std::size_t i) { return static_cast<dim_t>(i % n) * size; };
  const auto load = [=](const T* p) __attribute__((always_inline)) {
    return n == 1 ? vec<T>::load(p, lanes) : vec<T>::load(p);
  };
  const T* const from[] = {x[static_cast<dim_t>(I / n)]...};
  const auto add = [&](vec<T> * sums, dim_t p) __attribute__((always_inline)) {
    const T* const row = packed + p * Registers * size;
    const vec<T> w[] = {vec<T>::load(row + at(J))...};
    ((sums[I] = fma(vec<T>::broadcast(from[I][p]), w[I % n], sums[I])), ...);
  };
  const auto result = [&](std::size_t i) __attribute__((always_inline)) {
    return to[static_cast<dim_t>(i / n)] + at(i);
  };
  const auto store = [&](const vec<T>* sums) __attribute__((always_inline)) {
    ((n == 1 ? sums[I].store(result(I), lanes) : sums[I].store(result(I))), ...);
  };
  const dim_t half = (k + 1) / 2;
  vec<T> t[] = {adds ? load(result(I)) : vec<T>::zero()...};
  if constexpr (Rows > 1) {
    for (dim_t p = half; p < k; ++p) add(t, p);
    store(t);
  }
  vec<T> s[] = {bias == nullptr ? vec<T>::zero() : load(bias + at(I))...};
  dim_t p = 0;
  if constexpr (Rows == 1)
    for (; half + p < k; ++p) {
      add(s, p);
      add(t, half + p);
    }
  for (; p < half; ++p) add(s, p);
  ((s[I] = s[I] + (Rows == 1 ? t[I] : load(result(I)))), ...);
  store(s);
}
template <class T, int Rows, int Registers>
[[gnu::noinline]] void panel_sums(dim_t k, const T* packed, rows_of<const T> x, const T* bias,
                                  rows_of<T> to, bool adds, dim_t lanes) {
  panel_sums<T, Rows, Registers>(k, packed, x, bias, to, adds, lanes,
                                 std::make_index_sequence<std::size_t{Rows} * Registers>{},
                                 std::make_index_sequence<std::size_t{Registers}>{});
}

template <class T>
void product_of_panels(dim_t m, dim_t n, dim_t k, const T* packed, const T* bias,
                       rows_of<const T> x, rows_of<T> to, bool adds) {
  constexpr dim_t size = vec<T>::size;
  for (dim_t j = 0; j < n;) {
    const bool narrow = j >= narrow_columns<T>(n);
    const dim_t lanes = n - j < size ? n - j : size;
    const T* const b = bias == nullptr ? nullptr : bias + j;
    dim_t r = 0;
    while (r < m) {
      const dim_t rows = rows_at_once(m - r);
      const auto run = [&](auto count) __attribute__((always_inline)) {
        constexpr int n_rows = decltype(count)::value;
        const rows_of<const T> from{x[r], x.step};
        const rows_of<T> into{to[r] + j, to.step};
        narrow ? panel_sums<T, n_rows, 1>(k, packed, from, b, into, adds, lanes)
               : panel_sums<T, n_rows, recurrent_panel>(k, packed, from, b, into, adds, lanes);
        r += n_rows;
      };
#if IKEBANA_CPU_WIDTH == 64
      if (rows == 6) run(std::integral_constant<int, 6>{});
      if (rows == 4) run(std::integral_constant<int, 4>{});
#elif IKEBANA_CPU_WIDTH == 32
      for (dim_t i = rows; i >= 3; i -= 3) run(std::integral_constant<int, 3>{});
#endif
      if (rows == 2) run(std::integral_constant<int, 2>{});
      if (rows == 1) run(std::integral_constant<int, 1>{});
    }
    const dim_t width = narrow ? size : recurrent_panel * size;
    packed += width * k;
    j += width;
  }
}

/// The same for one row.
template <class T>
void row_of_panels(dim_t n, dim_t k, const T* packed, const T* bias, const T* x, T* to, bool adds) {
  constexpr dim_t size = vec<T>::size;
  const auto sums = [=](auto registers, dim_t j) __attribute__((always_inline)) {
    constexpr int count = decltype(registers)::value;
    const std::make_index_sequence<std::size_t{count}> each{};
    panel_sums<T, 1, count>(k, packed + j * k, {x, 0}, bias == nullptr ? nullptr : bias + j,
                            {to + j, 0}, adds, n - j < size ? n - j : size, each, each);
  };
  const dim_t wide = narrow_columns<T>(n);
  for (dim_t j = 0; j < wide; j += recurrent_panel * size)
    sums(std::integral_constant<int, recurrent_panel>{}, j);
  for (dim_t j = wide; j < n; j += size) sums(std::integral_constant<int, 1>{}, j);
}
