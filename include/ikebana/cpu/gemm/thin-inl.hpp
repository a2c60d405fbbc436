// Products of few rows or columns.

/// A product of few columns, seen the other way: registers run along the rows of the result, and
/// tiles are turned on their way out.
template <class T>
void multiply_turned(dim_t m, dim_t n, dim_t k, const matrix_operand<T>& a, left_block<T> b,
                     const matrix_result<T>& result) {
  constexpr dim_t w = vec<T>::size, columns = gemm_tile<T>::columns, most = gemm_tile<T>::columns;
  alignas(64) T sums[static_cast<std::size_t>(columns * most)];
  alignas(64) T rows[static_cast<std::size_t>(columns * most)];
  T* const packed = detail::thread_scratch<T>();
  const dim_t block = static_cast<dim_t>(detail::scratch_bytes().b / sizeof(T)) / columns;
  const gemm_epilogue<T>& then = result.then;
  tile_task<T> t;
  t.a_row = b.row;
  t.a_step = b.step;
  t.relu = false;
  for (dim_t i = 0; i < m; i += columns) {
    // What is not a whole register overlaps the one before.
    const dim_t count = m - i < columns ? m - i : columns;
    const dim_t begin = count < 2 * w ? m - 2 * w : i, used = count < 2 * w ? 2 * w : count;
    if (then.residual != nullptr || result.beta != T(0)) {
      for (dim_t j = 0; j < n; ++j)
        for (dim_t q = 0; q < used; ++q) {
          T x = then.bias != nullptr ? then.bias[j] : T(0);
          if (then.residual != nullptr) x += then.residual[(begin + q) * then.ld_residual + j];
          if (result.beta != T(0)) x += result.beta * result.c[(begin + q) * result.ldc + j];
          sums[j * columns + q] = x;
        }
    } else {
      for (dim_t j = 0; j < n; ++j) {
        const vec<T> x = vec<T>::broadcast(then.bias != nullptr ? then.bias[j] : T(0));
        for (dim_t q = 0; q < columns; q += w) x.store(sums + j * columns + q);
      }
    }
    for (dim_t p = 0; p < k; p += block) {
      t.depth = k - p < block ? k - p : block;
      t.set_columns((used + w - 1) / w, used);
      t.a = b.data + p * b.step;
      if (a.across) {
        a.pack(packed, columns, p, t.depth, begin, used);
        t.b = packed;
        t.b_step = columns;
      } else {
        t.b = a.source(p, begin);
        t.b_step = a.ld;
      }
      t.c = sums;
      t.init = sums;
      t.c_step = t.init_step = columns;
      multiply_strip(t, n, (used + w - 1) / w);
    }
    const dim_t width = n <= w ? w : columns;
    pack_across(rows, width, static_cast<const T*>(sums), columns, used, n);
    T* to = result.c + begin * result.ldc + (i - begin) * result.ldc;
    for (dim_t q = i - begin; q < used; ++q, to += result.ldc) {
      dim_t j = 0;
      for (; j + w <= n; j += w) vec<T>::load(rows + q * width + j).store(to + j);
      if (j < n) vec<T>::load(rows + q * width + j).store(to + j, n - j);
    }
  }
  if (then.function != activation::none || then.slope_of != nullptr)
    result.finish(dim_t{0}, dim_t{0}, m, n);
}

/// From sums of so many on, one row times two to four columns is dot products with the columns
/// turned.
template <class T>
inline constexpr dim_t row_of_dots = sizeof(T) == 4 ? 128 : 512;

/// A product as dot products: rows of a and of b are contiguous along the summed dimension. Where
/// `turned`, a holds columns of the result and b its rows.
template <class T>
void multiply_by_dots(dim_t m, dim_t n, dim_t k, T alpha, const T* a, dim_t lda, const T* b,
                      dim_t ldb, const matrix_result<T>& result, bool turned) {
  const gemm_epilogue<T>& then = result.then;
  const T beta = result.beta;
  T* const c = result.c;
  const dim_t ldc = result.ldc;
  const bool plain = alpha == T(1) && beta == T(0) && then.residual == nullptr;
  const bool relu = then.function == activation::relu;
  // A single column that is contiguous is as good as a row.
  const bool column =
      turned && m == 1 && ldc == 1 && (then.residual == nullptr || then.ld_residual == 1);
  if (turned && !column)
    multiply_dots(m, n, k, a, lda, b, ldb, [&](dim_t j, dim_t i, dim_t count, const T* dots) {
      T* to = c + i * ldc + j;
      if (plain && then.bias == nullptr && !relu) {
        for (dim_t q = 0; q < count; ++q, to += ldc) *to = dots[q];
        return;
      }
      for (dim_t q = 0; q < count; ++q, to += ldc) {
        T x = plain ? dots[q] : alpha * dots[q];
        if (then.bias != nullptr) x += then.bias[j];
        if (then.residual != nullptr) x += then.residual[(i + q) * then.ld_residual + j];
        if (beta != T(0)) x += beta * *to;
        *to = relu && x < T(0) ? T(0) : x;
      }
    });
  else
    multiply_dots(m, n, k, a, lda, b, ldb, [&](dim_t i, dim_t j, dim_t count, const T* dots) {
      constexpr dim_t w = vec<T>::size;
      T* const to = c + i * ldc + j;
      for (dim_t q = 0; q < count; q += w) {
        const dim_t lanes = count - q < w ? count - q : w;
        vec<T> x = vec<T>::load(dots + q);
        if (!plain) x = x * alpha;
        if (then.bias != nullptr)
          x = x +
              (column ? vec<T>::broadcast(then.bias[0]) : vec<T>::load(then.bias + j + q, lanes));
        if (then.residual != nullptr)
          x = x + vec<T>::load(then.residual + i * then.ld_residual + j + q, lanes);
        if (beta != T(0)) x = x + vec<T>::load(to + q, lanes) * beta;
        if (relu) x = max(vec<T>::zero(), x);
        x.store(to + q, lanes);
      }
    });
  if (then.function > activation::relu || then.slope_of != nullptr)
    result.finish(0, 0, turned ? n : m, turned ? m : n);
}
