// Thin products: those with one row or few rows or columns, which read a matrix once and are as
// fast as it can be read.

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

/// y[j] += scale * x * b on as many registers of columns as there are J, held while p runs.
template <class T, std::size_t... J>
IKEBANA_CPU_INLINE void add_columns(dim_t k, T scale, const T* x, dim_t x_step, const T* b,
                                    dim_t ldb, T* y, std::index_sequence<J...>) {
  constexpr std::size_t w = static_cast<std::size_t>(vec<T>::size);
  vec<T> sums[] = {vec<T>::load(y + J * w)...};
  for (; k > 0; --k, x += x_step, b += ldb) {
    const vec<T> factor = vec<T>::broadcast(scale * *x);
    ((sums[J] = fma(factor, vec<T>::load(b + J * w), sums[J])), ...);
  }
  (sums[J].store(y + J * w), ...);
}

/// y += scale * x * b, x of 1 x k (its elements x_step apart), b of k x n.
template <class T>
[[gnu::noinline]] void vector_times_matrix(dim_t n, dim_t k, T scale, const T* x, dim_t x_step,
                                           const T* b, dim_t ldb, T* y) {
  constexpr dim_t held = 8 * vec<T>::size;
  // Small: sums stay in registers. Large: b is read row after row, as memory likes it.
  if (n <= 2 * held || k * ldb * static_cast<dim_t>(sizeof(T)) <= detail::caches().second / 2) {
    for (; n >= held; n -= held, b += held, y += held)
      add_columns(k, scale, x, x_step, b, ldb, y, std::make_index_sequence<8>{});
    if (n >= held / 4) {
      for (; n >= held / 4; n -= held / 4, b += held / 4, y += held / 4)
        add_columns(k, scale, x, x_step, b, ldb, y, std::make_index_sequence<2>{});
    }
    if (n == 0) return;
  }
  dim_t p = 0;
  for (; p + 8 <= k; p += 8)
    add_rows(n, scale, x + p * x_step, x_step, b + p * ldb, ldb, y, std::make_index_sequence<8>{});
  for (; p < k; ++p)
    add_rows(n, scale, x + p * x_step, x_step, b + p * ldb, ldb, y, std::make_index_sequence<1>{});
}

#if IKEBANA_CPU_WIDTH != 0
/// Four elements in memory.
template <class T>
struct in_fours {
  typedef T type __attribute__((vector_size(4 * sizeof(T)), aligned(alignof(T)), may_alias));
};
template <class T>
using four_of = typename in_fours<T>::type;

template <class T, std::size_t N, class R>
IKEBANA_CPU_INLINE auto sum_to_four(R a) {
  if constexpr (N == 4) {
    return a;
  } else {
    using half = std::make_index_sequence<N / 2>;
    return sum_to_four<T, N / 2>(lower_half(a, half{}) + upper_half(a, half{}));
  }
}
#endif

/// out[0, 4): the sums of the lanes of four registers, in an order that depends on the width alone.
template <class T>
IKEBANA_CPU_INLINE void sum_four(const vec<T>* a, T* out) {
  constexpr std::size_t w = static_cast<std::size_t>(vec<T>::size);
  if constexpr (w < 4) {
    for (int i = 0; i < 4; ++i) out[i] = sum(a[i]);
  } else {
#if IKEBANA_CPU_WIDTH != 0
    using lanes = std::make_index_sequence<w>;
    auto x0 = a[0].v, x1 = a[1].v, x2 = a[2].v, x3 = a[3].v;
    exchange<1>(x0, x1, lanes{});
    exchange<1>(x2, x3, lanes{});
    auto low = x0 + x1, high = x2 + x3;
    exchange<2>(low, high, lanes{});
    *reinterpret_cast<four_of<T>*>(out) = sum_to_four<T, w>(low + high);
#endif
  }
}

/// The most rows of x at once.
#if IKEBANA_CPU_WIDTH == 64 || (IKEBANA_CPU_WIDTH == 16 && !IKEBANA_CPU_X86)
inline constexpr dim_t dot_rows = 4;
#else
inline constexpr dim_t dot_rows = 2;
#endif
/// The most rows of y.
inline constexpr dim_t dot_strip = 64;

/// Rows of y, four at a time, times as many of x as there are P: out[i * dot_strip + j] =
/// x[i] . y[j] for j < count. Rows of x past `last_x` are that once more; up to three results more
/// are written.
template <class T, std::size_t... P>
IKEBANA_CPU_INLINE void dot_tiles(dim_t count, dim_t k, const T* x, dim_t ldx, dim_t last_x,
                                  const T* y, dim_t ldy, T* out, std::index_sequence<P...>) {
  constexpr dim_t w = vec<T>::size;
  const T* const xs[] = {x + (static_cast<dim_t>(P) < last_x ? static_cast<dim_t>(P) : last_x) *
                                 ldx...};
  for (dim_t j = 0; j < count; j += 4, y += 4 * ldy) {
    const dim_t last_y = count - 1 - j;
    const T *const y1 = last_y < 1 ? y : y + ldy, *const y2 = last_y < 2 ? y1 : y1 + ldy,
                   *const y3 = last_y < 3 ? y2 : y2 + ldy;
    vec<T> sums[sizeof...(P) * 4];
    ((sums[P * 4] = sums[P * 4 + 1] = sums[P * 4 + 2] = sums[P * 4 + 3] = vec<T>::zero()), ...);
    const auto step = [&](vec<T> b0, vec<T> b1, vec<T> b2, vec<T> b3, const vec<T>* a)
        __attribute__((always_inline)) {
      ((sums[P * 4] = fma(a[P], b0, sums[P * 4]), sums[P * 4 + 1] = fma(a[P], b1, sums[P * 4 + 1]),
        sums[P * 4 + 2] = fma(a[P], b2, sums[P * 4 + 2]),
        sums[P * 4 + 3] = fma(a[P], b3, sums[P * 4 + 3])),
       ...);
    };
    dim_t p = 0;
    for (; p + w <= k; p += w) {
      const vec<T> a[] = {vec<T>::load(xs[P] + p)...};
      step(vec<T>::load(y + p), vec<T>::load(y1 + p), vec<T>::load(y2 + p), vec<T>::load(y3 + p),
           a);
    }
    if (const dim_t left = k - p; left > 0) {
      const vec<T> a[] = {vec<T>::load(xs[P] + p, left)...};
      step(vec<T>::load(y + p, left), vec<T>::load(y1 + p, left), vec<T>::load(y2 + p, left),
           vec<T>::load(y3 + p, left), a);
    }
    (sum_four(sums + P * 4, out + static_cast<dim_t>(P) * dot_strip + j), ...);
  }
}

template <class T, std::size_t Rows>
[[gnu::noinline]] void dot_tiles(dim_t count, dim_t k, const T* x, dim_t ldx, dim_t last_x,
                                 const T* y, dim_t ldy, T* out) {
  dot_tiles(count, k, x, ldx, last_x, y, ldy, out, std::make_index_sequence<Rows>{});
}

/// `store` gets (row i of x) . (row j of y) for `count` rows of y from j on: rows of both are
/// contiguous along the summed dimension.
template <class T, class Store>
IKEBANA_CPU_INLINE void multiply_dots(dim_t m, dim_t n, dim_t k, const T* x, dim_t ldx, const T* y,
                                      dim_t ldy, Store store) {
  alignas(64) T out[static_cast<std::size_t>(dot_rows * dot_strip)];
  for (dim_t j = 0; j < n; j += dot_strip) {
    const dim_t count = n - j < dot_strip ? n - j : dot_strip;
    for (dim_t i = 0; i < m; i += dot_rows) {
      const dim_t rows = m - i < dot_rows ? m - i : dot_rows;
      const T *const from = x + i * ldx, *const with = y + j * ldy;
      if (rows == 1)
        dot_tiles<T, 1>(count, k, from, ldx, rows - 1, with, ldy, out);
      else if (rows == 2)
        dot_tiles<T, 2>(count, k, from, ldx, rows - 1, with, ldy, out);
      else
        dot_tiles<T, static_cast<std::size_t>(dot_rows)>(count, k, from, ldx, rows - 1, with, ldy,
                                                         out);
      for (dim_t r = 0; r < rows; ++r) store(i + r, j, count, out + r * dot_strip);
    }
  }
}
