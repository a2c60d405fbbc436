/// f(i, lanes), the terms i to i + lanes, for i < n joined by `join` in four interleaved parts, in
/// each lane of the result. f may be anything past the end that leaves its lane as it is.
template <class T, class Join, class F>
IKEBANA_CPU_INLINE vec<T> join_terms(dim_t n, vec<T> neutral, Join join, F f) {
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
/// Their sum: what lies past the lanes of a term must be zero.
template <class T, class F>
IKEBANA_CPU_INLINE T sum_terms(dim_t n, F f) {
  return sum(join_terms<T>(n, vec<T>::zero(), lane_sum{}, f));
}

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

// ---- sums of the columns of a matrix ----

/// to[j] = the sum of x[i * ldx + j] over m rows, for j < K registers, of the last `lanes`.
template <int K, class T>
IKEBANA_CPU_INLINE void sum_few_rows(dim_t m, dim_t lanes, const T* x, dim_t ldx, T* to) {
  constexpr dim_t w = vec<T>::size;
  vec<T> s[K];
#pragma GCC unroll 4
  for (int k = 0; k < K; ++k) s[k] = vec<T>::zero();
  for (dim_t i = 0; i < m; ++i, x += ldx)
#pragma GCC unroll 4
    for (int k = 0; k < K; ++k) s[k] = s[k] + load_lanes(x + k * w, k + 1 < K ? w : lanes);
#pragma GCC unroll 4
  for (int k = 0; k < K; ++k) s[k].store(to + k * w);
}
/// Blocks of rows are joined in pairs, these in pairs, and so on.
template <class T>
[[gnu::noinline]] void sum_column_blocks(dim_t m, dim_t n, const T* x, dim_t ldx, T* out,
                                         bool accumulate) {
  constexpr dim_t w = vec<T>::size, together = 4 * w, block = 64;
  T sums[together], joined[40][together];  // joined[k]: of 2^k blocks
  for (dim_t j = 0; j < n; j += together) {
    const dim_t width = n - j < together ? n - j : together;
    dim_t blocks = 0;
    const auto add = [&](const T* earlier) __attribute__((always_inline)) {
      for (dim_t l = 0; l < width; l += w)
        (vec<T>::load(earlier + l) + vec<T>::load(sums + l)).store(sums + l);
    };
    for (dim_t i = 0;; ++blocks) {
      const dim_t rows = m - i < block ? m - i : block;
      const T* const from = x + i * ldx + j;
      if (width == together)
        sum_few_rows<4>(rows, w, from, ldx, sums);
      else
        for (dim_t l = 0; l < width; l += w)
          sum_few_rows<1>(rows, width - l < w ? width - l : w, from + l, ldx, sums + l);
      i += block;
      if (i >= m) break;
      dim_t level = 0;
      for (; (blocks >> level & 1) != 0; ++level) add(joined[level]);
      for (dim_t l = 0; l < width; l += w) vec<T>::load(sums + l).store(joined[level] + l);
    }
    for (dim_t level = 0; blocks >> level != 0; ++level)
      if ((blocks >> level & 1) != 0) add(joined[level]);
    for (dim_t l = 0; l < width; l += w) {
      const dim_t lanes = width - l < w ? width - l : w;
      const vec<T> s = vec<T>::load(sums + l);
      store_lanes(accumulate ? load_lanes(out + j + l, lanes) + s : s, out + j + l, lanes);
    }
  }
}
/// Narrow rows that lie behind each other are summed as rows of w times the columns, and these sums
/// once more.
template <class T>
void sum_columns(dim_t m, dim_t n, const T* x, dim_t ldx, T* out, bool accumulate) {
  constexpr dim_t w = vec<T>::size, most = 4 * w;
  if (w == 1 || n % w == 0 || n >= most || ldx != n || m < most)
    return sum_column_blocks(m, n, x, ldx, out, accumulate);
  T wide[w * most];
  sum_column_blocks(m / w, n * w, x, n * w, wide, false);
  sum_column_blocks(w, n, static_cast<const T*>(wide), n, out, accumulate);
  sum_column_blocks(m % w, n, x + m / w * w * n, n, out, true);
}
