// The sums of the columns of a matrix.

/// to[j] = the sum of x[i * ldx + j] over m rows, for j < width, in two interleaved parts.
template <class T>
IKEBANA_CPU_INLINE void sum_few_rows(dim_t m, dim_t width, const T* x, dim_t ldx, T* to) {
  constexpr dim_t w = vec<T>::size;
  if (width == 4 * w) {
    vec<T> a0 = vec<T>::zero(), a1 = a0, a2 = a0, a3 = a0, b0 = a0, b1 = a0, b2 = a0, b3 = a0;
    dim_t i = 0;
    for (; i + 2 <= m; i += 2, x += 2 * ldx) {
      a0 = a0 + vec<T>::load(x);
      a1 = a1 + vec<T>::load(x + w);
      a2 = a2 + vec<T>::load(x + 2 * w);
      a3 = a3 + vec<T>::load(x + 3 * w);
      b0 = b0 + vec<T>::load(x + ldx);
      b1 = b1 + vec<T>::load(x + ldx + w);
      b2 = b2 + vec<T>::load(x + ldx + 2 * w);
      b3 = b3 + vec<T>::load(x + ldx + 3 * w);
    }
    if (i < m) {
      a0 = a0 + vec<T>::load(x);
      a1 = a1 + vec<T>::load(x + w);
      a2 = a2 + vec<T>::load(x + 2 * w);
      a3 = a3 + vec<T>::load(x + 3 * w);
    }
    (a0 + b0).store(to);
    (a1 + b1).store(to + w);
    (a2 + b2).store(to + 2 * w);
    (a3 + b3).store(to + 3 * w);
    return;
  }
  for (dim_t j = 0; j < width; j += w) {
    const dim_t lanes = width - j < w ? width - j : w;
    vec<T> s0 = vec<T>::zero(), s1 = s0;
    const T* row = x + j;
    dim_t i = 0;
    for (; i + 2 <= m; i += 2, row += 2 * ldx) {
      s0 = s0 + load_lanes(row, lanes);
      s1 = s1 + load_lanes(row + ldx, lanes);
    }
    if (i < m) s0 = s0 + load_lanes(row, lanes);
    (s0 + s1).store(to + j);
  }
}

/// Blocks of rows are joined in pairs, these in pairs, and so on.
template <class T>
void sum_blocks(dim_t m, dim_t n, const T* x, dim_t ldx, T* out, bool accumulate) {
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
      sum_few_rows(m - i < block ? m - i : block, width, x + i * ldx + j, ldx, sums);
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
/// Short rows one behind the other, as many of which as fill whole registers, `rows`, are one of a
/// wider matrix.
inline constexpr dim_t most_short_columns = 2048;
template <class T>
[[gnu::noinline]] void sum_short_columns(dim_t m, dim_t n, const T* x, dim_t rows, T* out,
                                         bool accumulate) {
  T sums[most_short_columns];
  const dim_t joined = m / rows * rows;
  sum_blocks(m / rows, rows * n, x, rows * n, sums, false);
  sum_blocks(rows, n, static_cast<const T*>(sums), n, out, accumulate);
  if (joined < m) sum_blocks(m - joined, n, x + joined * n, n, out, true);
}

template <class T>
void sum_columns(dim_t m, dim_t n, const T* x, dim_t ldx, T* out, bool accumulate) {
  constexpr dim_t together = 4 * vec<T>::size;
  if (0 < n && n < together && ldx == n) {
    const dim_t rows = together >> __builtin_ctzll(static_cast<unsigned long long>(n));
    if (m >= 8 * rows && rows * n <= most_short_columns)
      return sum_short_columns(m, n, x, rows, out, accumulate);
  }
  sum_blocks(m, n, x, ldx, out, accumulate);
}
