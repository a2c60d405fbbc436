/// The sum over i of f(loads...) in four interleaved partial sums. `f(i, lanes)` yields the terms i
/// to i + lanes; what lies past `lanes` must be zero.
template <class T, class F>
IKEBANA_CPU_INLINE T sum_terms(dim_t n, F f) {
  constexpr dim_t w = vec<T>::size;
  vec<T> s0 = vec<T>::zero(), s1 = s0, s2 = s0, s3 = s0;
  dim_t i = 0;
  for (; i + 4 * w <= n; i += 4 * w) {
    s0 = s0 + f(i, w);
    s1 = s1 + f(i + w, w);
    s2 = s2 + f(i + 2 * w, w);
    s3 = s3 + f(i + 3 * w, w);
  }
  for (; i + w <= n; i += w) s0 = s0 + f(i, w);
  if (i < n) s1 = s1 + f(i, n - i);
  return sum((s0 + s1) + (s2 + s3));
}

/// Loads `lanes` elements; the test folds away where `lanes` is the constant size.
template <class T>
IKEBANA_CPU_INLINE vec<T> load_lanes(const T* p, dim_t lanes) {
  return lanes == vec<T>::size ? vec<T>::load(p) : vec<T>::load(p, lanes);
}
template <class T>
IKEBANA_CPU_INLINE void store_lanes(vec<T> x, T* p, dim_t lanes) {
  if (lanes == vec<T>::size)
    x.store(p);
  else
    x.store(p, lanes);
}
/// x with the lanes past `lanes` zero.
template <class T>
IKEBANA_CPU_INLINE vec<T> first_of(vec<T> x, dim_t lanes) {
  T kept[vec<T>::size];
  x.store(kept);
  return vec<T>::load(kept, lanes);
}

#define IKEBANA_CPU_TERMS [=](dim_t i, dim_t lanes) __attribute__((always_inline))

template <class T>
T sum_array(dim_t n, const T* x) {
  return sum_terms<T>(
      n, IKEBANA_CPU_TERMS { return load_lanes(x + i, lanes); });
}
template <class T>
T dot_arrays(dim_t n, const T* x, const T* y) {
  return sum_terms<T>(
      n, IKEBANA_CPU_TERMS { return load_lanes(x + i, lanes) * load_lanes(y + i, lanes); });
}
template <class T>
T sum_squared_difference(dim_t n, const T* x, const T* t, T* dx, T grad_scale) {
  const vec<T> factor = vec<T>::broadcast(grad_scale);
  return sum_terms<T>(
      n, IKEBANA_CPU_TERMS {
        const vec<T> d = load_lanes(x + i, lanes) - load_lanes(t + i, lanes);
        if (dx != nullptr) store_lanes(d * factor, dx + i, lanes);
        return d * d;
      });
}
#undef IKEBANA_CPU_TERMS

// ---- rows that are reduced together ----

/// Lane r: the lanes of row(r) joined by f, in an order that depends on the width alone.
template <class T, dim_t First = 0, dim_t Count = vec<T>::size, class Row, class F>
IKEBANA_CPU_INLINE vec<T> fold_each(Row row, F f) {
  if constexpr (Count == 1) {
    return row(First);
  } else {
    using lanes = std::make_index_sequence<static_cast<std::size_t>(vec<T>::size)>;
    constexpr dim_t half = Count / 2;
    vec<T> a = fold_each<T, First, half>(row, f), b = fold_each<T, First + half, half>(row, f);
    exchange<static_cast<int>(half)>(a.v, b.v, lanes{});
    return f(a, b);
  }
}
template <class T, class Row>
IKEBANA_CPU_INLINE vec<T> sum_lanes(Row row) {
  return fold_each<T>(
      row, [](vec<T> a, vec<T> b) __attribute__((always_inline)) { return a + b; });
}
template <class T, class Row>
IKEBANA_CPU_INLINE vec<T> largest_lanes(Row row) {
  return fold_each<T>(
      row, [](vec<T> a, vec<T> b) __attribute__((always_inline)) { return max(a, b); });
}

/// How many rows go together: where they are short, one for each lane, so that what comes between
/// two passes over a row is done once for all of them; else some, so that it overlaps. The result
/// of a row does not depend on it.
template <class T>
inline constexpr dim_t most_together = 16 * vec<T>::size;  ///< How long the short ones are.
template <class T>
IKEBANA_CPU_INLINE dim_t rows_together(dim_t n) {
  constexpr dim_t w = vec<T>::size;
  return n <= most_together<T> ? w : n > 4096 || w < 4 ? 1 : 4;
}
/// Zeros from row `count` on.
template <class T>
IKEBANA_CPU_INLINE void fill_rows(vec<T>* rows, dim_t count) {
  for (dim_t r = count; r < vec<T>::size; ++r) {
    rows[r] = vec<T>::zero();
    // As a memset it would take longer than all else.
    asm("" : "+r"(r));
  }
}
/// Lane r: the sum or the maximum of the lanes of rows[r], for r < count <= together.
template <class T>
IKEBANA_CPU_INLINE vec<T> sum_each(vec<T>* rows, dim_t together, dim_t count) {
  constexpr dim_t w = vec<T>::size;
  if (together == w) {
    if (count < w) [[unlikely]]
      fill_rows(rows, count);
    return sum_lanes<T>([=](dim_t r) __attribute__((always_inline)) { return rows[r]; });
  }
  T totals[w] = {};
  for (dim_t r = 0; r < count; ++r) totals[r] = sum(rows[r]);
  return vec<T>::load(totals);
}
template <class T>
IKEBANA_CPU_INLINE vec<T> maximum_each(vec<T>* rows, dim_t together, dim_t count) {
  constexpr dim_t w = vec<T>::size;
  if (together == w) {
    if (count < w) [[unlikely]]
      fill_rows(rows, count);
    return largest_lanes<T>([=](dim_t r) __attribute__((always_inline)) { return rows[r]; });
  }
  T most[w] = {};
  for (dim_t r = 0; r < count; ++r) most[r] = maximum(rows[r]);
  return vec<T>::load(most);
}

/// f(i) for i < n joined by `join` in four interleaved parts, in each lane of the result. f may be
/// anything past the end that leaves its lane as it is.
template <class T, class Join, class F>
IKEBANA_CPU_INLINE vec<T> fold_lanes(dim_t n, vec<T> neutral, Join join, F f) {
  constexpr dim_t w = vec<T>::size;
  vec<T> s0 = neutral, s1 = s0, s2 = s0, s3 = s0;
  dim_t i = 0;
  for (; i + 4 * w <= n; i += 4 * w) {
    s0 = join(s0, f(i, w));
    s1 = join(s1, f(i + w, w));
    s2 = join(s2, f(i + 2 * w, w));
    s3 = join(s3, f(i + 3 * w, w));
  }
  for (; i + w <= n; i += w) s0 = join(s0, f(i, w));
  if (i < n) s1 = join(s1, f(i, n - i));
  return join(join(s0, s1), join(s2, s3));
}
template <class T, class F>
IKEBANA_CPU_INLINE vec<T> sum_by_lanes(dim_t n, F f) {
  return fold_lanes<T>(
      n, vec<T>::zero(), [](vec<T> a, vec<T> b) __attribute__((always_inline)) { return a + b; },
      f);
}

/// All bits of the first n % size lanes.
template <class T>
IKEBANA_CPU_INLINE bits_of<T> last_lanes(dim_t n) {
  using B = typename number<T>::bits;
  B all[vec<T>::size];
  for (B& b : all) b = B{-1};
  return bits_of<T>::load(all, n % vec<T>::size);
}
template <class T>
IKEBANA_CPU_INLINE vec<T> keep_lanes(vec<T> x, bits_of<T> kept) {
  return as<T>(as<typename number<T>::bits>(x) & kept);
}
