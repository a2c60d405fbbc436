// The matrix product: which of the ways to make it is taken.

/// Whether all rows begin where a cache line does.
template <class T>
IKEBANA_CPU_INLINE bool on_lines(const T* x, dim_t ld) {
  return (static_cast<std::uintptr_t>(ld) * sizeof(T) | reinterpret_cast<std::uintptr_t>(x)) % 64 ==
         0;
}

/// The same where all columns of a few rows come first: of B little is read, or once.
template <class T>
void multiply_across(dim_t m, dim_t n, dim_t k, left_block<T> a, const T* b, dim_t ldb,
                     const matrix_result<T>& result) {
  constexpr dim_t w = vec<T>::size, most = gemm_tile<T>::registers;
  const dim_t held =
                  most == 4 && m > gemm_tile<T>::most_rows[most] && (n - 1) / w % 4 < 3 ? 3 : most,
              width = held * w, whole = n / width, rest = n - whole * width;
  // A processor foresees rows that are read to their end: of what is far, few at a time.
  dim_t depth = k > 0 ? k : 1;
  if (k > 96 && k * ldb * dim_t{sizeof(T)} > detail::caches().first) {
    const auto blocks = static_cast<std::uint32_t>((k + 63) / 64);
    depth = static_cast<dim_t>((static_cast<std::uint32_t>(k) + blocks - 1) / blocks);
  }
  tile_task<T> t;
  t.a_row = a.row;
  t.a_step = a.step;
  t.b_step = ldb;
  for (dim_t p = 0; p == 0 || p < k; p += depth) {
    const bool final = k - p <= depth;
    t.depth = final ? k - p : depth;
    for (dim_t i = 0, rows; i < m; i += rows) {
      rows = deal_rows<T>(m - i, held, gemm_tile<T>::most_rows[held]).rows;
      if (rows > m - i) rows = m - i;
      result.begin(t, i, dim_t{0}, p == 0, final);
      t.a = a.data + i * a.row + p * a.step;
      t.b = b + p * ldb;
      t.last_row = rows - 1;
      t.set_columns(held, width);
      t.tiles = whole;
      t.next = {0, width, width, p == 0 && result.then.repeats ? 0 : width, width};
      find_tile<T>(rows, held)(t);
      if (rest > 0) {
        t.set_columns((rest + w - 1) / w, rest);
        multiply_strip(t, rows, (rest + w - 1) / w);
      }
      if (final && result.finishes()) result.finish(i, dim_t{0}, rows, n);
    }
  }
}

/// A product small enough to be read where it stands.
template <class T>
void multiply_in_place(dim_t m, dim_t n, dim_t k, left_block<T> a, const T* b, dim_t ldb,
                       const matrix_result<T>& result) {
  constexpr dim_t w = vec<T>::size;
  constexpr dim_t widest = gemm_tile<T>::columns,
                  rows = gemm_tile<T>::most_rows[gemm_tile<T>::registers];
  // Loads that cross cache lines take several times longer: the more rows meet them the better, and
  // the nearer they are. So with columns of A. What all but fills the caches is read in whole rows.
  const dim_t size_b = k * ldb * dim_t{sizeof(T)}, size_c = m * n * dim_t{sizeof(T)};
  const bool crosses = !on_lines(b, ldb), far = 4 * size_b > 3 * detail::caches().second;
  const bool near =
      size_b <= 24 * 1024 || (!crosses && k <= 96 && size_b <= detail::caches().second / 4);
  // Tiles of two of 32 registers hold all of so many rows and read B once. What is far and in lines
  // is read faster in whole rows.
  constexpr bool has_pairs = gemm_tile<T>::registers == 4;
  const bool by_pairs = has_pairs && m > 8 && m <= 14 && n > widest && k >= 64 && !far &&
                        (crosses || 2 * size_b <= detail::caches().second);
  if (n > widest && !result.starts_mixed() &&
      (m <= rows || (m <= 2 * rows && !by_pairs && size_b > detail::caches().first) ||
       (near && n >= 8 * widest &&
        (n * rows >= 2 * m * widest || size_c >= detail::caches().second / 4))))
    return multiply_across(m, n, k, a, b, ldb, result);
  tile_task<T> t;
  t.a_row = a.row;
  t.a_step = a.step;
  t.b_step = ldb;
  const dim_t most = by_pairs || (has_pairs && crosses && m > 6 && k >= 64 && n > 3 * w)
                         ? 2
                         : gemm_tile<T>::registers;
  dim_t depth = k > 0 ? k : 1;
  if (far || (m > 8 && (crosses || a.step != 1))) {
    const dim_t longest = far ? 64 : a.step == 1 ? 192 : 128;
    const auto blocks = static_cast<std::uint32_t>((k + longest - 1) / longest);
    if (blocks > 1)
      depth = static_cast<dim_t>((static_cast<std::uint32_t>(k) + blocks - 1) / blocks);
  }
  for (dim_t p = 0; p == 0 || p < k; p += depth) {
    t.depth = k - p < depth ? k - p : depth;
    dim_t registers = (n + w - 1) / w;
    for (dim_t j = 0; registers > 0;) {
      // None is left over alone.
      const dim_t held = registers == 3 || (most == 4 && (registers == 5 || registers == 6))
                             ? gemm_tile<T>::registers == 4 ? 3 : most
                         : registers < most ? registers
                                            : most;
      const dim_t width = held * w, columns = n - j < width ? n - j : width;
      t.a = a.data + p * a.step;
      t.b = b + p * ldb + j;
      t.set_columns(held, columns);
      multiply_panel<T, true>(t, held, result, dim_t{0}, j, m, columns, p == 0, k - p <= depth);
      registers -= held;
      j += width;
    }
  }
}

/// Whether dot products take less time than the copies that others begin with. Never where threads
/// share the rows.
template <class T>
IKEBANA_CPU_INLINE bool by_dots(dim_t m, dim_t n, dim_t k) {
  constexpr dim_t w = vec<T>::size;
  return n <= 2 * w && k >= 2 * w && m < 192 &&
         m * k * dim_t{sizeof(T)} <= 2 * detail::caches().first &&
         (m + dot_rows - 1) / dot_rows * ((n + 3) / 4) *
                 ((k + w - 1) / w * dot_rows * 2 + 16 + 8 * dot_rows) <
             m * ((n + w - 1) / w) * k * 3 / 4 + n * k / 2;
}

/// The distance of rows of k elements that turn_to_rows leaves.
template <class T>
IKEBANA_CPU_INLINE dim_t row_step(dim_t k) {
  constexpr dim_t w = vec<T>::size;
  return (k + w - 1) / w * w;
}
/// Columns of k elements as rows in the scratch memory, or null where they are too long.
template <class T>
[[gnu::noinline]] T* turn_to_rows(const T* from, dim_t ld, dim_t columns, dim_t k) {
  const dim_t step = row_step<T>(k);
  if ((columns + 3) * step * dim_t{sizeof(T)} > static_cast<dim_t>(detail::scratch_bytes().b))
    return nullptr;
  T* const rows = detail::thread_scratch<T>();
  if (columns < turned<T>)
    turn_few_columns(rows, step, from, ld, columns, k);
  else
    pack_across(rows, step, from, ld, columns, k);
  return rows;
}

template <class T>
void matrix_product(transpose ta, transpose tb, dim_t m, dim_t n, dim_t k, T alpha, const T* a,
                    dim_t lda, const T* b, dim_t ldb, T beta, T* c, dim_t ldc,
                    const gemm_epilogue<T>& then) {
  if (m == 0 || n == 0) return;
  if (alpha == T(0)) k = 0;
  constexpr dim_t w = vec<T>::size, bytes = sizeof(T);
  // What has one row or column is both.
  bool a_across = ta == transpose::no || (m == 1 && lda == 1);
  bool b_across = tb == transpose::yes || (n == 1 && ldb == 1);
  if (ta != transpose::no && a_across) lda = k;
  if (tb == transpose::no && b_across) ldb = k;
  const matrix_result<T> result{c, ldc, beta, then};
  // Few columns are turned to rows in no time: then these are dot products.
  if (b_across && !a_across && n > 1 && m <= 8 && k >= (m <= 4 ? 32 : 64)) {
    if (T* const rows = turn_to_rows(a, lda, m, k)) {
      a = rows;
      lda = row_step<T>(k);
      a_across = true;
    }
  }
  if (a_across && !b_across && m == 1 && n <= 4 && k >= row_of_dots<T>) {
    if (const T* const rows = turn_to_rows(b, ldb, n, k)) {
      b = rows;
      ldb = row_step<T>(k);
      b_across = true;
    }
  }
  // B is read where it stands if so few rows meet it that a copy does not pay, if it is near, or if
  // the cache holds both factors; but loads that cross cache lines take twice the time.
  const dim_t second = detail::caches().second, near = second * 2 / 5;
  const bool b_aligned = (w * bytes < 64 && k <= 192) || on_lines(b, ldb);
  const bool b_near =
      !b_across &&
      (m <= 8 || (m <= 24 ? k * gemm_tile<T>::columns * bytes <= near
                          : (k * ldb * bytes <= near && (b_aligned || m <= 64)) ||
                                (b_aligned && k * (ldb + m) * bytes <= second / 16 * 15)));
  // Columns of A are read where they stand if they are met by few panels while the cache holds
  // them.
  const dim_t size_a = k * lda * bytes;
  const bool a_near = a_across || (lda * bytes <= 512 && k <= 256) ||
                      (size_a <= second / 2 && size_a * n <= second * 32);
  const bool turned = alpha == T(1) && m >= 2 * w && (!a_across || n <= 4) &&
                      (n <= w || (!a_near && n <= gemm_tile<T>::columns && k >= 8 * n));
  if (b_near && a_near && alpha == T(1) && m > 1 && n > w && !turned)
    return multiply_in_place(
        m, n, k, a_across ? left_block<T>{a, lda, 1} : left_block<T>{a, 1, lda}, b, ldb, result);
  if (n == 1 && a_across && b_across)
    return multiply_by_dots(n, m, k, alpha, b, ldb, a, lda, result, true);
  // Four rows at a time meet those that are few.
  if (b_across && a_across && n <= 4 && n < m && k >= w)
    return multiply_by_dots(n, m, k, alpha, b, ldb, a, lda, result, true);
  if (b_across && a_across && (m == 1 || (k >= w && (m <= 8 || by_dots<T>(m, n, k)))))
    return multiply_by_dots(m, n, k, alpha, a, lda, b, ldb, result, false);
  if (m == 1 && !b_across) {
    begin_row(n, c, beta, then.bias, then.residual);
    vector_times_matrix(n, k, alpha, a, a_across ? dim_t{1} : lda, b, ldb, c);
    if (then.function != activation::none || then.slope_of != nullptr)
      result.finish(dim_t{0}, dim_t{0}, dim_t{1}, n);
    return;
  }
  if (n == 1 && !a_across && m * bytes <= static_cast<dim_t>(detail::scratch_bytes().b)) {
    T* const y = ldc == 1 ? c : detail::thread_scratch<T>();
    const T bias = then.bias != nullptr ? then.bias[0] : T(0);
    if (beta == T(0) && then.residual == nullptr) {
      const vec<T> x = vec<T>::broadcast(bias);
      dim_t i = 0;
      for (; i + w <= m; i += w) x.store(y + i);
      if (i < m) x.store(y + i, m - i);
    } else {
      for (dim_t i = 0; i < m; ++i) {
        const T x = then.residual != nullptr ? then.residual[i * then.ld_residual] + bias : bias;
        y[i] = beta == T(0) ? x : beta * c[i * ldc] + x;
      }
    }
    vector_times_matrix(m, k, alpha, b, b_across ? dim_t{1} : ldb, a, lda, y);
    if (y != c)
      for (dim_t i = 0; i < m; ++i) c[i * ldc] = y[i];
    if (then.function != activation::none || then.slope_of != nullptr)
      result.finish(dim_t{0}, dim_t{0}, m, n);
    return;
  }
  if (n <= w && a_across && k >= 2 * w && (n <= 4 || n <= w / 2 || k >= 512) &&
      (b_across || m >= (bytes == 4 && n <= 4 ? 2 : 4))) {
    if (b_across) return multiply_by_dots(n, m, k, alpha, b, ldb, a, lda, result, true);
    if (const T* const rows = turn_to_rows(b, ldb, n, k))
      return multiply_by_dots(n, m, k, alpha, rows, row_step<T>(k), a, lda, result, true);
  }
  if (turned)
    return multiply_turned(m, n, k, matrix_operand<T>{a, lda, a_across, true},
                           b_across ? left_block<T>{b, ldb, 1} : left_block<T>{b, 1, ldb}, result);
  if (b_near && a_near && alpha == T(1))
    return multiply_in_place(
        m, n, k, a_across ? left_block<T>{a, lda, 1} : left_block<T>{a, 1, lda}, b, ldb, result);
  const bool a_direct = a_across || (a_near && n <= 4 * gemm_tile<T>::columns);
  multiply<T>(m, n, k, matrix_operand<T>{a, lda, a_across, a_direct, alpha},
              matrix_operand<T>{b, ldb, b_across, b_near}, result);
}
