// The matrix product: which of the ways to make it is taken.

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
  const matrix_result<T> result{c, ldc, beta, then};
  // B is read where it stands if so few rows meet it that a copy does not pay, or if it is near;
  // but loads that cross cache lines take twice the time.
  const dim_t near = detail::caches().second * 2 / 5;
  const bool b_aligned =
      w * bytes < 64 ||
      (static_cast<std::uintptr_t>(ldb * bytes) | reinterpret_cast<std::uintptr_t>(b)) % 64 == 0;
  const bool b_near = !b_across && (m <= 24 ? k * gemm_tile<T>::columns * bytes <= near
                                            : k * ldb * bytes <= near && (b_aligned || m <= 64));
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
  const bool a_direct = a_across || (a_near && n <= 4 * gemm_tile<T>::columns);
  multiply<T>(m, n, k, matrix_operand<T>{a, lda, a_across, a_direct, alpha},
              matrix_operand<T>{b, ldb, b_across, b_near}, result);
}
