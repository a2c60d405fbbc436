// The matrix product. The driver walks blocks of all three dimensions whose packed part of B stays
// in the second-level cache, a panel of it in the first while tiles of A's rows pass by. Where
// operands come from and where tiles go are template parameters, so that a convolution is a matrix
// product whose packer reads the image.

/// The blocks of a product, from the caches.
template <class T>
struct block_sizes {
  dim_t rows, depth, columns;

  block_sizes(dim_t m, dim_t n, dim_t k) {
    constexpr dim_t w = vec<T>::size, width = gemm_tile<T>::columns;
    const detail::scratch_sizes room = detail::scratch_bytes();
    const dim_t fit_b = static_cast<dim_t>(room.b / sizeof(T)),
                fit_a = static_cast<dim_t>(room.a / sizeof(T));
    // Panels of B come from the second level: deep ones write the result less often.
    const dim_t fit = detail::caches().second / 12 / static_cast<dim_t>(sizeof(T)) / width,
                most = fit < 512 ? fit : 512;
    const dim_t depth_blocks = k <= most + most / 2 ? 1 : (k + most - 1) / most;
    depth = ((k + depth_blocks - 1) / depth_blocks + w - 1) / w * w;
    if (depth == 0) depth = w;
    const dim_t most_columns = fit_b / depth / width * width;
    const dim_t column_blocks = (n + most_columns - 1) / most_columns;
    columns = ((n + column_blocks - 1) / column_blocks + width - 1) / width * width;
    const dim_t most_rows = fit_a / (depth + 2 * w) / 16 * 16;
    const dim_t row_blocks = (m + most_rows - 1) / most_rows;
    rows = ((m + row_blocks - 1) / row_blocks + 7) / 8 * 8;
  }
};

/// Multiplies op(a) of m x k by op(b) of k x n, packed where they are not read where they stand.
template <class T>
void multiply(dim_t m, dim_t n, dim_t k, const matrix_operand<T>& a, const matrix_operand<T>& b,
              const matrix_result<T>& result) {
  using shape = gemm_tile<T>;
  constexpr dim_t w = vec<T>::size;
  const block_sizes<T> size(m, n, k);
  T* const packed_b = reinterpret_cast<T*>(detail::thread_scratch());
  T* const packed_a = packed_b + detail::scratch_bytes().b / sizeof(T);
  alignas(64) T spare[static_cast<std::size_t>(shape::columns) * shape::rows];

  tile_task<T> t;
  for (dim_t jc = 0; jc < n; jc += size.columns) {
    const dim_t nc = n - jc < size.columns ? n - jc : size.columns;
    const dim_t registers = (nc + w - 1) / w;
    const dim_t panels = (registers + shape::registers - 1) / shape::registers;
    for (dim_t p = 0; p == 0 || p < k; p += size.depth) {
      const bool first = p == 0, final = k - p <= size.depth;
      t.depth = final ? k - p : size.depth;
      for (dim_t ic = 0; ic < m; ic += size.rows) {
        const dim_t mc = m - ic < size.rows ? m - ic : size.rows;
        const left_block<T> left = take_left(a, packed_a, p, t.depth, ic, mc);
        t.a_row = left.row;
        t.a_step = left.step;
        dim_t j = 0;
        for (dim_t panel = 0; panel < panels; ++panel) {
          const dim_t held = registers / panels + (panel < registers % panels);
          const dim_t width = held * w, columns = nc - j < width ? nc - j : width;
          if (b.direct()) {
            t.b = b.source(p, jc + j);
            t.b_step = b.ld;
          } else {
            T* const packed = packed_b + j * t.depth;
            if (ic == 0) b.pack(packed, width, p, t.depth, jc + j, columns);
            t.b = packed;
            t.b_step = width;
          }
          t.last = held == 1 ? columns : columns - w;
          t.a = left.data;
          t.fetch_rows = 0;
          if (ic == 0) {
            // The next panel, while this one is multiplied.
            const bool same = panel + 1 < panels;
            t.fetch = same ? b.source(p, jc + j + width) : b.source(p + t.depth, jc);
            t.fetch_step = b.ld;
            if ((same || !final) && b.fetches())
              t.fetch_rows = t.depth / (mc / gemm_tile<T>::most_rows[held] + 1) + 1;
          }
          multiply_panel(t, held, spare, result, ic, jc + j, mc, columns, first, final);
          j += width;
        }
      }
    }
  }
}

/// A product that is one tile; false where it is not.
template <class T>
IKEBANA_CPU_INLINE bool multiply_at_once(dim_t m, dim_t n, dim_t k, const T* a, dim_t a_row,
                                         dim_t a_step, const T* b, dim_t ldb, T beta, T* c,
                                         dim_t ldc, const gemm_epilogue<T>& then) {
  constexpr dim_t w = vec<T>::size;
  const dim_t registers = (n + w - 1) / w;
  if (m > gemm_tile<T>::most_rows[registers] || beta != T(0) || then.residual != nullptr ||
      then.function > activation::relu || then.slope_of != nullptr ||
      (registers == 1 && (deal_rows<T>(m, registers).rows - m) >> 1 != 0))
    return false;
  tile_task<T> t;
  t.tiles = 1;
  t.depth = k;
  t.last_row = m - 1;
  t.a = a;
  t.a_row = a_row;
  t.a_step = a_step;
  t.b = b;
  t.b_step = ldb;
  t.init = then.bias;
  t.init_step = 0;
  t.c = c;
  t.c_step = ldc;
  t.last = registers == 1 ? n : n - w;
  t.fetch_rows = 0;
  t.relu = then.function == activation::relu;
  find_tile<T>(m, registers)(t);
  return true;
}

/// A product small enough to be read where it stands.
template <class T>
void multiply_in_place(dim_t m, dim_t n, dim_t k, left_block<T> a, const T* b, dim_t ldb,
                       const matrix_result<T>& result) {
  constexpr dim_t w = vec<T>::size;
  alignas(64) T spare[static_cast<std::size_t>(gemm_tile<T>::columns) * gemm_tile<T>::rows];
  tile_task<T> t;
  t.depth = k;
  t.a_row = a.row;
  t.a_step = a.step;
  t.b_step = ldb;
  t.fetch_rows = 0;
  constexpr dim_t most = gemm_tile<T>::registers;
  dim_t registers = (n + w - 1) / w, panels = (registers + most - 1) / most;
  for (dim_t j = 0; panels > 0; --panels) {
    const dim_t held = panels == 1
                           ? registers
                           : static_cast<dim_t>(static_cast<std::uint32_t>(registers + panels - 1) /
                                                static_cast<std::uint32_t>(panels));
    const dim_t width = held * w, columns = n - j < width ? n - j : width;
    t.a = a.data;
    t.b = b + j;
    t.last = held == 1 ? columns : columns - w;
    multiply_panel(t, held, spare, result, dim_t{0}, j, m, columns, true, true);
    registers -= held;
    j += width;
  }
}

template <class T>
void matrix_product(transpose ta, transpose tb, dim_t m, dim_t n, dim_t k, T alpha, const T* a,
                    dim_t lda, const T* b, dim_t ldb, T beta, T* c, dim_t ldc,
                    const gemm_epilogue<T>& then) {
  if (m == 0 || n == 0) return;
  if (alpha == T(0)) k = 0;
  constexpr dim_t w = vec<T>::size, bytes = sizeof(T);
  const bool a_across = ta == transpose::no, b_across = tb == transpose::yes;
  if (!b_across && alpha == T(1) && n <= gemm_tile<T>::columns && m > 1 &&
      multiply_at_once(m, n, k, a, a_across ? lda : dim_t{1}, a_across ? dim_t{1} : lda, b, ldb,
                       beta, c, ldc, then))
    return;
  const matrix_result<T> result{c, ldc, beta, then};
  // B is read where it stands if it is near, or if so few rows meet it that a copy does not pay.
  const dim_t near = detail::caches().second * 2 / 5;
  const bool b_near = !b_across && (k * ldb * bytes <= near ||
                                    (m <= 96 && k * gemm_tile<T>::columns * bytes <= near));
  const bool a_near = a_across || (lda * bytes <= 512 && k <= 256) || k * lda * bytes <= 32 * 1024;
  if (b_near && a_near && alpha == T(1) && m > 1 && n > w)
    return multiply_in_place(
        m, n, k, a_across ? left_block<T>{a, lda, 1} : left_block<T>{a, 1, lda}, b, ldb, result);
  if (n == 1 && a_across && (b_across || ldb == 1))
    return multiply_by_dots(n, m, k, alpha, b, b_across ? ldb : dim_t{1}, a, lda, result, true);
  if (b_across && m <= 8 && a_across && k >= w)
    return multiply_by_dots(m, n, k, alpha, a, lda, b, ldb, result, false);
  if (m == 1 && !b_across) {
    begin_row(n, c, beta, then.bias, then.residual);
    vector_times_matrix(n, k, alpha, a, a_across ? dim_t{1} : lda, b, ldb, c);
    if (then.function != activation::none || then.slope_of != nullptr)
      result.finish(dim_t{0}, dim_t{0}, dim_t{1}, n);
    return;
  }
  if (n == 1 && !a_across && m * bytes <= static_cast<dim_t>(detail::scratch_bytes().b)) {
    T* const y = ldc == 1 ? c : reinterpret_cast<T*>(detail::thread_scratch());
    for (dim_t i = 0; i < m; ++i) {
      T x = then.bias != nullptr ? then.bias[0] : T(0);
      if (then.residual != nullptr) x += then.residual[i * then.ld_residual];
      y[i] = beta == T(0) ? x : beta * c[i * ldc] + x;
    }
    vector_times_matrix(m, k, alpha, b, b_across ? dim_t{1} : ldb, a, lda, y);
    if (y != c)
      for (dim_t i = 0; i < m; ++i) c[i * ldc] = y[i];
    if (then.function != activation::none || then.slope_of != nullptr)
      result.finish(dim_t{0}, dim_t{0}, m, n);
    return;
  }
  if (n <= w && a_across && k >= 2 * w && (n <= 4 || k >= 512) && (b_across || m >= 2 * w)) {
    if (b_across) return multiply_by_dots(n, m, k, alpha, b, ldb, a, lda, result, true);
    const dim_t across = (k + w - 1) / w * w;
    if (n * across * bytes <= static_cast<dim_t>(detail::scratch_bytes().b)) {
      T* const rows = reinterpret_cast<T*>(detail::thread_scratch());
      pack_across(rows, across, b, ldb, n, k);
      return multiply_by_dots(n, m, k, alpha, static_cast<const T*>(rows), across, a, lda, result,
                              true);
    }
  }
  if (n <= w && m >= 2 * w && alpha == T(1))
    return multiply_turned(m, n, k, matrix_operand<T>{a, lda, a_across, true},
                           b_across ? left_block<T>{b, ldb, 1} : left_block<T>{b, 1, ldb}, result);
  if (b_near && a_near && alpha == T(1))
    return multiply_in_place(
        m, n, k, a_across ? left_block<T>{a, lda, 1} : left_block<T>{a, 1, lda}, b, ldb, result);
  const bool a_direct = a_near && (n <= 4 * gemm_tile<T>::columns || lda * bytes < 1024);
  multiply<T>(m, n, k, matrix_operand<T>{a, lda, a_across, a_direct, alpha},
              matrix_operand<T>{b, ldb, b_across, b_near}, result);
}

/// As many products of one size, from one to the next as far as the steps say.
template <class T>
void matrix_products(dim_t count, transpose ta, transpose tb, dim_t m, dim_t n, dim_t k, T alpha,
                     const T* a, dim_t lda, dim_t step_a, const T* b, dim_t ldb, dim_t step_b,
                     T beta, T* c, dim_t ldc, dim_t step_c) {
  const gemm_epilogue<T> then;
  for (; count > 0; --count, a += step_a, b += step_b, c += step_c)
    matrix_product(ta, tb, m, n, k, alpha, a, lda, b, ldb, beta, c, ldc, then);
}
