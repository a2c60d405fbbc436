// Thin products: those with one row or few rows or columns, which read a matrix once and are as
// fast as it can be read.

#if IKEBANA_CPU_WIDTH == 64
/// An array that may begin within a line of the cache (64 bytes, as a register), read by whole
/// lines: a load that crosses two costs twice what one does, where it comes from beyond L1.
template <class T>
class line_reader {
 public:
  /// Whether it pays for `rows` rows of n elements, ld apart: they are long, begin within lines,
  /// and L1 does not hold them.
  static bool pays(const T* p, dim_t rows, dim_t n, dim_t ld) {
    return n >= 16 * vec<T>::size && (offset(p) | (ld & (vec<T>::size - 1))) != 0 &&
           rows * ld * dim_t{sizeof(T)} > detail::caches().first;
  }

  /// Touches no element before `p`.
  IKEBANA_CPU_INLINE explicit line_reader(const T* p) {
    const dim_t o = offset(p);
    line_ = p - o;
    held_ = load_from(line_, o);
    lanes_ = lane_numbers<T>() + bits_of<T>::broadcast(static_cast<typename number<T>::bits>(o));
  }

  /// The next vec<T>::size elements; reads up to as many more.
  IKEBANA_CPU_INLINE vec<T> next() {
    line_ += vec<T>::size;
    const vec<T> line = vec<T>::load(line_), x = pick_lanes(held_, lanes_, line);
    held_ = line;
    return x;
  }

 private:
  static dim_t offset(const T* p) {
    return static_cast<dim_t>(reinterpret_cast<std::uintptr_t>(p) / sizeof(T)) & (vec<T>::size - 1);
  }

  const T* line_;
  vec<T> held_;
  bits_of<T> lanes_;
};
#endif

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

#if IKEBANA_CPU_WIDTH != 0
/// Sums of lanes that are D apart: those of a where a lane's number has no bit D, else those of b.
template <int D, class R, std::size_t... L>
IKEBANA_CPU_INLINE R sum_apart(R a, R b, std::index_sequence<L...>) {
  constexpr int n = static_cast<int>(sizeof...(L)), d = D;
  return __builtin_shufflevector(
             a, b,
             ((static_cast<int>(L) & d) == 0 ? static_cast<int>(L) : static_cast<int>(L) + n)...) +
         __builtin_shufflevector(a, b,
                                 ((static_cast<int>(L) & d) == 0 ? static_cast<int>(L) + d
                                                                 : static_cast<int>(L) - d + n)...);
}
#endif

/// out[p * step + q]: the sums of the lanes of four registers for each p of P, in an order that
/// depends on the width alone.
template <class T, std::size_t... P>
IKEBANA_CPU_INLINE void sum_fours(const vec<T>* a, T* out, dim_t step, std::index_sequence<P...>) {
  constexpr std::size_t w = static_cast<std::size_t>(vec<T>::size), n = sizeof...(P);
  if constexpr (w < 4) {
    for (std::size_t i = 0; i < 4 * n; ++i)
      out[static_cast<dim_t>(i / 4) * step + static_cast<dim_t>(i % 4)] = sum(a[i]);
  } else {
#if IKEBANA_CPU_WIDTH != 0
    using lanes = std::make_index_sequence<w>;
    using four = four_of<T>;
    const auto store = [=](std::size_t p, four x) __attribute__((always_inline)) {
      *reinterpret_cast<four*>(out + static_cast<dim_t>(p) * step) = x;
    };
    const typename vec<T>::raw x[] = {
        sum_apart<2>(sum_apart<1>(a[P * 4].v, a[P * 4 + 1].v, lanes{}),
                     sum_apart<1>(a[P * 4 + 2].v, a[P * 4 + 3].v, lanes{}), lanes{})...};
    if constexpr (w == 16 && n == 4) {
      const auto y = sum_apart<4>(sum_apart<8>(x[0], x[2], lanes{}),
                                  sum_apart<8>(x[1], x[3], lanes{}), lanes{});
      (store(P, __builtin_shufflevector(y, y, P * 4, P * 4 + 1, P * 4 + 2, P * 4 + 3)), ...);
    } else {
      (store(P, sum_to_four<T, w>(x[P])), ...);
    }
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
      if constexpr (sizeof...(P) == 2)
        keep_in_register(b0), keep_in_register(b1), keep_in_register(b2), keep_in_register(b3);
      ((sums[P * 4] = fma(a[P], b0, sums[P * 4]), sums[P * 4 + 1] = fma(a[P], b1, sums[P * 4 + 1]),
        sums[P * 4 + 2] = fma(a[P], b2, sums[P * 4 + 2]),
        sums[P * 4 + 3] = fma(a[P], b3, sums[P * 4 + 3])),
       ...);
    };
    dim_t p = 0;
#if IKEBANA_CPU_WIDTH == 64
    if (line_reader<T>::pays(y, count, k, ldy)) {
      line_reader<T> r0{y}, r1{y1}, r2{y2}, r3{y3};
      for (; p + 2 * w <= k; p += w) {
        const vec<T> a[] = {vec<T>::load(xs[P] + p)...};
        step(r0.next(), r1.next(), r2.next(), r3.next(), a);
      }
    }
#endif
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
    sum_fours(sums, out + j, dot_strip, std::index_sequence<P...>{});
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
