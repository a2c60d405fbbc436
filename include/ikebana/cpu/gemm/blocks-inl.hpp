// Products of large matrices: a block of B that stays in the second-level cache meets strips of A,
// a few rows each, panel by panel.

/// The blocks of a product, from the caches.
template <class T>
struct block_sizes {
  dim_t depth, columns;

  /// `across` says of A's rows that the summed dimension runs along them. Else each of its steps is
  /// on a page of its own, and few of these are known to the processor at a time.
  block_sizes(dim_t n, dim_t k, bool across) {
    constexpr dim_t w = vec<T>::size;
    constexpr dim_t width = (gemm_tile<T>::registers + 2) / 2 * w;
    const dim_t fit_b = static_cast<dim_t>(detail::scratch_bytes().b / sizeof(T)),
                fit_a = static_cast<dim_t>(detail::scratch_bytes().a / sizeof(T)) / most_strip,
                fit = panel_bytes() / static_cast<dim_t>(sizeof(T)) / width,
                near = (fit < fit_a ? fit : fit_a) - 3 * w, deepest = across ? 1024 : 192,
                most = near < deepest ? near : deepest;
    const dim_t depth_blocks = k == 0 ? 1 : (k + most - 1) / most;
    depth = ((k + depth_blocks - 1) / depth_blocks + w - 1) / w * w;
    if (depth == 0) depth = w;
    const dim_t most_columns = fit_b / depth / width * width;
    const dim_t column_blocks = (n + most_columns - 1) / most_columns;
    columns = ((n + column_blocks - 1) / column_blocks + width - 1) / width * width;
  }

  /// Deep panels write the result less often: wide registers are fast enough where panels come from
  /// the second level.
  static dim_t panel_bytes() {
#if IKEBANA_CPU_WIDTH == 64
    return detail::caches().second / 8;
#else
    return detail::caches().first / 2;
#endif
  }
};

/// How many registers the next panel holds where so many are left: three, or four if that leaves no
/// one or two of them over in the end; else as many as there can be.
template <class T>
IKEBANA_CPU_INLINE dim_t panel_registers(dim_t left) {
  constexpr dim_t most = gemm_tile<T>::registers;
  if constexpr (most == 4)
    if (left > 8 || left == 6 || left == 5) return 3;
  return left < most ? left : most;
}

/// Multiplies op(a) of m x k by op(b) of k x n, packed where they are not read where they stand.
template <class T>
void multiply(dim_t m, dim_t n, dim_t k, const matrix_operand<T>& a, const matrix_operand<T>& b,
              const matrix_result<T>& result) {
  using shape = gemm_tile<T>;
  constexpr dim_t w = vec<T>::size, most = shape::registers;
  const block_sizes<T> size(n, k, a.across);
  T* const packed_b = detail::thread_scratch<T>();
  T* const packed_a = packed_b + detail::scratch_bytes().b / sizeof(T);

  tile_task<T> t;
  for (dim_t jc = 0; jc < n; jc += size.columns) {
    const dim_t nc = n - jc < size.columns ? n - jc : size.columns;
    for (dim_t p = 0; p == 0 || p < k; p += size.depth) {
      const bool first = p == 0, final = k - p <= size.depth;
      t.depth = final ? k - p : size.depth;
      // One panel meets all rows of A at once where they stay in place.
      const bool whole = nc <= shape::columns && a.may_be_direct && a.scale == T(1);
      for (dim_t i = 0, rows; i < m; i += rows) {
        rows = whole || m - i < most_strip ? m - i : strip_rows;
        const left_block<T> left = take_left(a, packed_a, p, t.depth, i, rows);
        t.a_row = left.row;
        t.a_step = left.step;
        dim_t registers = (nc + w - 1) / w;
        for (dim_t j = 0, width; j < nc; j += width) {
          const dim_t held = panel_registers<T>(registers);
          registers -= held;
          width = held * w;
          const dim_t columns = nc - j < width ? nc - j : width;
          T* const packed = packed_b + j * t.depth;
          t.b = b.source(p, jc + j);
          t.b_step = b.ld;
          if (!b.direct()) {
            // Where the first tile can pack them, it costs next to nothing.
            if (i == 0 && !b.across && held >= (most == 4 ? 3 : most) &&
                rows >= shape::most_rows[held]) {
              t.pack = packed;
            } else {
              if (i == 0) b.pack(packed, width, p, t.depth, jc + j, columns);
              t.b = packed;
              t.b_step = width;
            }
          }
          t.set_columns(held, columns);
          t.a = left.data;
          multiply_panel(t, held, result, i, jc + j, rows, columns, first, final);
        }
      }
    }
  }
}
