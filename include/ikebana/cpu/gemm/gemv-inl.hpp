// A row times a matrix, which is read once and is as fast as it can be read.

/// Begins y of n elements: beta * y + bias + residual.
template <class T>
void begin_row(dim_t n, T* y, T beta, const T* bias, const T* residual) {
  constexpr dim_t w = vec<T>::size;
  dim_t j = 0;
  if (residual == nullptr && beta == T(0))
    // Stores of whole registers, which later loads get without a wait.
    for (; j + w <= n; j += w)
      (bias != nullptr ? vec<T>::load(bias + j) : vec<T>::zero()).store(y + j);
  for (; j < n; j += w) {
    const dim_t lanes = n - j < w ? n - j : w;
    vec<T> x = vec<T>::zero();
    if (bias != nullptr) x = vec<T>::load(bias + j, lanes);
    if (residual != nullptr) x = x + vec<T>::load(residual + j, lanes);
    if (beta != T(0)) x = fma(vec<T>::broadcast(beta), vec<T>::load(y + j, lanes), x);
    x.store(y + j, lanes);
  }
}

/// y[j] += sum over R rows p of scale * x[p * x_step] * b[p * ldb + j], in the order of p.
template <class T, std::size_t... R>
IKEBANA_CPU_INLINE void add_rows(dim_t n, T scale, const T* x, dim_t x_step, const T* b, dim_t ldb,
                                 T* y, std::index_sequence<R...>) {
  constexpr dim_t w = vec<T>::size;
  const vec<T> factor[] = {vec<T>::broadcast(scale * x[static_cast<dim_t>(R) * x_step])...};
  dim_t j = 0;
#if IKEBANA_CPU_WIDTH == 64
  if constexpr (sizeof...(R) > 1)
    if (line_reader<T>::pays(b, n, n, ldb)) {
      line_reader<T> rows[] = {line_reader<T>{b + static_cast<dim_t>(R) * ldb}...};
      for (; j + 2 * w <= n; j += w) {
        vec<T> s = vec<T>::load(y + j);
        ((s = fma(factor[R], rows[R].next(), s)), ...);
        s.store(y + j);
      }
    }
#endif
  for (; j + 2 * w <= n; j += 2 * w) {
    vec<T> s = vec<T>::load(y + j), t = vec<T>::load(y + j + w);
    ((s = fma(factor[R], vec<T>::load(b + static_cast<dim_t>(R) * ldb + j), s),
      t = fma(factor[R], vec<T>::load(b + static_cast<dim_t>(R) * ldb + j + w), t)),
     ...);
    s.store(y + j);
    t.store(y + j + w);
  }
  for (; j < n; j += w) {
    const dim_t lanes = n - j < w ? n - j : w;
    vec<T> s = vec<T>::load(y + j, lanes);
    ((s = fma(factor[R], vec<T>::load(b + static_cast<dim_t>(R) * ldb + j, lanes), s)), ...);
    s.store(y + j, lanes);
  }
}

/// y += scale * x * b for n columns, held in as many registers as there are J while p runs. What is
/// not two whole registers at the end overlaps those before, but in one alone.
template <class T, std::size_t... J>
IKEBANA_CPU_INLINE void hold_columns(dim_t n, dim_t k, T scale, const T* x, dim_t x_step,
                                     const T* b, dim_t ldb, T* y, std::index_sequence<J...>) {
  constexpr dim_t w = vec<T>::size, held = sizeof...(J);
  constexpr bool alone = held == 1;
  const dim_t last = alone ? 0 : n - w, but_last = last < (held - 2) * w ? last : (held - 2) * w;
  const auto at = [=](std::size_t j) __attribute__((always_inline)) {
    const auto i = static_cast<dim_t>(j);
    return alone || i + 2 < held ? i * w : i + 2 == held ? but_last : last;
  };
  const auto load = [=](const T* from) __attribute__((always_inline)) {
    return alone ? vec<T>::load(from, n) : vec<T>::load(from);
  };
  vec<T> sums[] = {load(y + at(J))...};
  for (; k > 0; --k, x += x_step, b += ldb) {
    const vec<T> factor = vec<T>::broadcast(scale * *x);
    ((sums[J] = fma(factor, load(b + at(J)), sums[J])), ...);
  }
  ((alone ? sums[J].store(y, n) : sums[J].store(y + at(J))), ...);
}
template <class T, int Registers>
void add_columns(dim_t n, dim_t k, T scale, const T* x, dim_t x_step, const T* b, dim_t ldb, T* y) {
  hold_columns(n, k, scale, x, x_step, b, ldb, y,
               std::make_index_sequence<static_cast<std::size_t>(Registers)>{});
}

/// y += scale * x * b, x of 1 x k (its elements x_step apart), b of k x n.
template <class T>
[[gnu::noinline]] void vector_times_matrix(dim_t n, dim_t k, T scale, const T* x, dim_t x_step,
                                           const T* b, dim_t ldb, T* y) {
  constexpr dim_t w = vec<T>::size, held = 8 * w;
  // Small: sums stay in registers. Large: b is read row after row, as memory likes it.
  if (n <= held || k * ldb * static_cast<dim_t>(sizeof(T)) <= detail::caches().first) {
    for (dim_t columns; n > 0; n -= columns, b += columns, y += columns) {
      columns = n <= held ? n : n < 2 * held ? n / 2 : held;
      const auto add = columns <= w       ? &add_columns<T, 1>
                       : columns <= 2 * w ? &add_columns<T, 2>
                       : columns <= 4 * w ? &add_columns<T, 4>
                       : columns <= 6 * w ? &add_columns<T, 6>
                                          : &add_columns<T, 8>;
      add(columns, k, scale, x, x_step, b, ldb, y);
    }
    return;
  }
  dim_t p = 0;
  for (; p + 8 <= k; p += 8)
    add_rows(n, scale, x + p * x_step, x_step, b + p * ldb, ldb, y, std::make_index_sequence<8>{});
  for (; p < k; ++p)
    add_rows(n, scale, x + p * x_step, x_step, b + p * ldb, ldb, y, std::make_index_sequence<1>{});
}
