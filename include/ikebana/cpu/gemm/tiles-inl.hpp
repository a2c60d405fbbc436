// Products by register tiles: strips of rows of op(a) meet panels of columns of op(b).
// Needs: pack-inl.hpp, result-inl.hpp.

/// Packs a strip of op(a), which t has where it stands, into `to`.
template <class T>
[[gnu::noinline]] void pack_strip(tile_task<T>& t, const gemm_call<T>& call, T* to, dim_t rows) {
  constexpr dim_t w = vec<T>::size;
  if (call.ta == transpose::no) {
    // An odd number of vectors apart, so that rows do not contend for the same sets of the cache.
    const dim_t step = ((t.depth + w - 1) / w | 1) * w;
    copy_scaled(to, step, t.a, call.lda, rows, t.depth, call.alpha);
    t.a_row = step;
  } else {
    const dim_t width = (rows + w - 1) / w * w;
    pack_along(to, width, t.a, call.lda, t.depth, rows);
    if (call.alpha != T(1))
      copy_scaled(to, dim_t{0}, to, dim_t{0}, dim_t{1}, t.depth * width, call.alpha);
    t.a_row = 1;
    t.a_step = width;
  }
  t.a = to;
}

/// The most rows of a strip. Of few steps, time goes into writing the result, by long rows.
template <class T>
IKEBANA_CPU_INLINE int strip_rows(dim_t columns, dim_t depth) {
  return gemm_tile<
      T>::most_rows[columns <= vec<T>::size                                                   ? 1
                    : depth <= detail::gemm_costs::most_shallow && columns > 2 * vec<T>::size ? 4
                                                                                              : 2];
}

/// A result of m x n from t on, which has one at least, of factors where they stand.
template <class T>
[[gnu::noinline]] void multiply_strips(tile_task<T>& t, dim_t m, dim_t n) {
  const dealt_rows strips(m, strip_rows<T>(n, t.depth));
  if (n <= gemm_tile<T>::columns) return multiply_column(t, strips, n);
  const dim_t init_step = t.init_step();
  const T *a = t.a, *const b = t.b, *init = t.init;
  T* c = t.c;
  // By whole columns of tiles, where that takes fewer calls.
  if (strips.parts * gemm_tile<T>::columns >= n) {
    for (dim_t j = 0;; j += gemm_tile<T>::columns) {
      multiply_column(t, strips, n - j < gemm_tile<T>::columns ? n - j : gemm_tile<T>::columns);
      if (j + gemm_tile<T>::columns >= n) return;
      t.a = a;
      t.b += gemm_tile<T>::columns;
      t.c = c += gemm_tile<T>::columns;
      t.init = init += t.start == tile_start::matrix ? gemm_tile<T>::columns : 0;
    }
  }
  for (std::uint32_t s = 0;;) {
    const dim_t rows = strips[s];
    multiply_row(t, rows, n);
    if (++s == strips.parts) return;
    t.a = a += rows * t.a_row;
    t.b = b;
    t.c = c += rows * t.c_row;
    t.init = init += rows * init_step;
  }
}

/// A block of op(b) as panels of so many columns.
template <class T>
[[gnu::noinline]] void pack_block(T* to, dim_t panel, const gemm_call<T>& call, dim_t p,
                                  dim_t depth, dim_t begin, dim_t columns) {
  const bool by_rows = call.tb == transpose::yes;
  const T* const from = call.b + (by_rows ? begin * call.ldb + p : p * call.ldb + begin);
  for (dim_t j = 0; j < columns; j += panel, to += panel * depth) {
    const dim_t count = columns - j < panel ? columns - j : panel;
    if (by_rows)
      pack_across(to, panel, from + j * call.ldb, call.ldb, depth, count);
    else
      pack_along(to, panel, from + j, call.ldb, depth, count);
  }
}

/// By the plan's blocks; op(b) in place, or packed before the first strip meets it.
template <class T>
[[gnu::noinline]] void multiply_tiles(const gemm_plan& plan, const gemm_call<T>& call) {
  const matrix_result<T> result{call.c, call.ldc, call.beta, *call.then};
  const bool packs = plan.panel > 0;
  const dim_t m = call.m, k = call.alpha == T(0) ? 0 : call.k;
  T *packed_a = nullptr, *packed_b = nullptr;
  if (packs || plan.packs_a) {
    packed_b = detail::thread_scratch<T>();
    packed_a = packed_b + detail::scratch_bytes().b / sizeof(T);
  }
  const bool mixed = result.starts_mixed(), finishes = result.finishes();
  const bool by_rows = call.ta == transpose::no;
  const dim_t a_row = by_rows ? call.lda : 1, a_step = by_rows ? 1 : call.lda;
  tile_task<T> t;
  t.a_row = a_row;
  t.a_step = a_step;
  t.c_row = call.ldc;
  t.b_step = packs ? plan.panel : call.ldb;
  for (dim_t jc = 0; jc < call.n; jc += plan.columns) {
    const dim_t columns = call.n - jc < plan.columns ? call.n - jc : plan.columns;
    const dealt_rows strips(m, strip_rows<T>(columns, k));
    for (dim_t p = 0; p == 0 || p < k; p += plan.depth) {
      t.depth = k - p < plan.depth ? k - p : plan.depth;
      const bool final = p + t.depth == k;
      t.relu = final && call.then->function == activation::relu;
      if (packs) pack_block(packed_b, plan.panel, call, p, t.depth, jc, columns);
      if (columns <= gemm_tile<T>::columns && !mixed && !finishes && !plan.packs_a) {
        t.a = call.a + p * a_step;
        result.begin(t, 0, jc, p > 0);
        t.b = packs ? packed_b : call.b + p * call.ldb + jc;
        multiply_column(t, strips, columns);
        continue;
      }
      dim_t i = 0, rows;
      for (std::uint32_t s = 0; s < strips.parts; ++s, i += rows) {
        rows = strips[s];
        if (mixed && p == 0) result.add_up(i, jc, rows, columns);
        t.a = call.a + i * a_row + p * a_step;
        if (plan.packs_a) pack_strip(t, call, packed_a, rows);
        const dim_t panel = packs ? plan.panel : columns;
        for (dim_t j = 0; j < columns; j += panel) {
          result.begin(t, i, jc + j, p > 0 || mixed);
          t.b = packs ? packed_b + j * t.depth : call.b + p * call.ldb + jc;
          multiply_row(t, rows, columns - j < panel ? columns - j : panel);
        }
        if (final && finishes) result.finish(i, jc, rows, columns);
      }
    }
  }
}

/// A product of few columns whose op(a) stands by columns, as the rows of op(b)' op(a)': vectors
/// run along the columns of op(a), and blocks of the result are transposed on their way out.
template <class T>
[[gnu::noinline]] void multiply_transposed(const gemm_problem&, gemm_algorithm,
                                           const gemm_call<T>& call) {
  constexpr dim_t block = detail::gemm_costs::transposed_columns;
  const matrix_result<T> result{call.c, call.ldc, call.beta, *call.then};
  const bool mixed = result.starts_mixed(), by_rows = call.tb == transpose::yes;
  T* const rows = detail::thread_scratch<T>();
  tile_task<T> t;
  t.depth = call.k;
  t.a = call.b;
  t.a_row = by_rows ? call.ldb : 1;
  t.a_step = by_rows ? 1 : call.ldb;
  t.b_step = call.lda;
  t.init_row = t.c_row = block;
  t.relu = false;
  for (dim_t i = 0, count; i < call.m; i += count) {
    count = call.m - i < block ? call.m - i : block;
    if (mixed) result.add_up(i, 0, count, call.n);
    tile_task<T> start{};
    result.begin(start, i, 0, mixed);
    const bool starts = start.start != tile_start::zero;
    for (dim_t q = 0; starts && q < count; ++q)
      for (dim_t j = 0; j < call.n; ++j)
        rows[j * block + q] =
            start.start == tile_start::rows ? start.init[q] : start.init[q * start.init_row + j];
    t.start = starts ? tile_start::matrix : tile_start::zero;
    t.b = call.a + i;
    t.init = t.c = rows;
    multiply_row(t, call.n, count);
    T* const to = call.c + i * call.ldc;
    if (call.n == 1)
      for (dim_t q = 0; q < count; ++q) to[q * call.ldc] = rows[q];
    else
      turn(to, call.ldc, static_cast<const T*>(rows), block, count, call.n);
    if (call.then->function != activation::none || result.finishes())
      result.finish(i, 0, count, call.n);
  }
}
