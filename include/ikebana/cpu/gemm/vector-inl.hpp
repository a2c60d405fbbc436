// A row times a matrix, which is streamed once.
// Needs: tile-inl.hpp, result-inl.hpp.

/// y[j] += sum over R rows p of scale * x[p * x_step] * b[p * ldb + j], in the order of p.
template <class T, int R>
IKEBANA_CPU_INLINE void add_rows(dim_t n, T scale, const T* x, dim_t x_step, const T* b, dim_t ldb,
                                 T* y) {
  constexpr dim_t w = vec<T>::size;
  vec<T> factor[R];
#pragma GCC unroll 8
  for (int r = 0; r < R; ++r) factor[r] = vec<T>::broadcast(scale * x[r * x_step]);
  row_pointers<T> rows(b, ldb);
  for (dim_t j = 0; j < n; j += w) {
    // What is not a whole vector is a masked one.
    const dim_t left = n - j;
    vec<T> s = left >= w ? vec<T>::load(y + j) : vec<T>::load(y + j, left);
#pragma GCC unroll 8
    for (int r = 0; r < R; ++r)
      s = fma(factor[r], left >= w ? vec<T>::load(rows.row(r)) : vec<T>::load(rows.row(r), left),
              s);
    if (left >= w)
      s.store(y + j);
    else
      s.store(y + j, left);
    rows.first += w;
  }
}

/// y of 1 x n = what it begins with + scale * x * b: x of k elements `x_step` apart, b of k x n. A
/// matrix that the first-level cache holds by tiles, whose sums stay in registers; a larger one row
/// after row, as the processor prefetches it.
template <class T>
[[gnu::noinline]] void vector_times_matrix(dim_t n, dim_t k, T scale, const T* x, dim_t x_step,
                                           const T* b, dim_t ldb, const matrix_result<T>& y) {
  constexpr dim_t w = vec<T>::size;
  if (scale == T(1) && !y.starts_mixed() &&
      (n <= detail::gemm_costs::most_row_vectors * w ||
       k * ldb * static_cast<dim_t>(sizeof(T)) <= detail::caches().first)) {
    tile_task<T> t;
    t.a = x;
    t.a_row = t.c_row = 0;
    t.a_step = x_step;
    t.b_step = ldb;
    t.depth = k;
    t.relu = false;
    t.b = b;
    y.begin(t, 0, 0, false);
    multiply_row(t, 1, n);
    return;
  }
  y.add_up(0, 0, 1, n);
  dim_t p = 0;
  for (; p + 8 <= k; p += 8)
    add_rows<T, 8>(n, scale, x + p * x_step, x_step, b + p * ldb, ldb, y.c);
  for (; p < k; ++p) add_rows<T, 1>(n, scale, x + p * x_step, x_step, b + p * ldb, ldb, y.c);
}

template <class T>
[[gnu::noinline]] void multiply_vector(const gemm_problem&, gemm_algorithm,
                                       const gemm_call<T>& call) {
  const matrix_result<T> result{call.c, call.ldc, call.beta, *call.then};
  vector_times_matrix(call.n, call.alpha == T(0) ? 0 : call.k, call.alpha, call.a,
                      call.ta == transpose::no ? dim_t{1} : call.lda, call.b, call.ldb, result);
  if (call.then->function != activation::none || result.finishes()) result.finish(0, 0, 1, call.n);
}
