// The product of the scalar set: one tile for every size, in little code.

#if IKEBANA_CPU_WIDTH == 0
/// A factor or a term as stored: element (i, j) at data[i * row + j * column].
template <class T>
struct strided_matrix {
  T* data;
  dim_t row, column;
};

/// Rows and columns of the result from (i, j) on; what is past the last is that once more.
template <class T, std::size_t Columns, std::size_t... R, std::size_t... C, std::size_t... I>
IKEBANA_CPU_INLINE void plain_tile(const gemm_call<T>& call, strided_matrix<const T> a,
                                   strided_matrix<const T> b, dim_t depth, dim_t i, dim_t j,
                                   std::index_sequence<R...>, std::index_sequence<C...>,
                                   std::index_sequence<I...>) {
  const dim_t rows = call.m - i, columns = call.n - j;
  const auto clamp = [](std::size_t at, dim_t n) {
    return static_cast<dim_t>(at) < n ? static_cast<dim_t>(at) : n - 1;
  };
  const T* from[] = {a.data + (i + clamp(R, rows)) * a.row...};
  const T* with[] = {b.data + (j + clamp(C, columns)) * b.column...};
  T sums[] = {(static_cast<void>(I), T(0))...};
  for (; depth > 0; --depth) {
    ((sums[I] += *from[I / Columns] * *with[I % Columns]), ...);
    ((from[R] += a.column), ...);
    ((with[C] += b.row), ...);
  }
  const gemm_epilogue<T>& then = *call.then;
  for (std::size_t q = 0; q < sizeof...(I); ++q) {
    const dim_t r = static_cast<dim_t>(q / Columns), c = static_cast<dim_t>(q % Columns);
    if (r >= rows || c >= columns) continue;
    T x = call.alpha * sums[q];
    T& to = call.c[(i + r) * call.ldc + j + c];
    if (call.beta != T(0)) x += call.beta * to;
    if (then.bias != nullptr) x += then.bias[j + c];
    if (then.residual != nullptr)
      x += then.residual[(i + r) * then.ld_residual + (then.repeats ? 0 : j + c)];
    to = x;
  }
}
template <class T, std::size_t Rows, std::size_t Columns>
[[gnu::noinline]] void plain_tiles(const gemm_call<T>& call, strided_matrix<const T> a,
                                   strided_matrix<const T> b, dim_t depth, dim_t i) {
  for (dim_t j = 0; j < call.n; j += static_cast<dim_t>(Columns))
    plain_tile<T, Columns>(call, a, b, depth, i, j, std::make_index_sequence<Rows>{},
                           std::make_index_sequence<Columns>{},
                           std::make_index_sequence<Rows * Columns>{});
}

template <class T>
void plain_product(const gemm_call<T>& call) {
  const bool turned_a = call.ta == transpose::yes, turned_b = call.tb == transpose::yes;
  const strided_matrix<const T> a{call.a, turned_a ? 1 : call.lda, turned_a ? call.lda : 1};
  const strided_matrix<const T> b{call.b, turned_b ? 1 : call.ldb, turned_b ? call.ldb : 1};
  const dim_t depth = call.alpha == T(0) ? 0 : call.k;
  dim_t i = 0;
  for (; i + 3 <= call.m; i += 4) plain_tiles<T, 4, 3>(call, a, b, depth, i);
  for (; i < call.m; ++i) plain_tiles<T, 1, 4>(call, a, b, depth, i);
  const gemm_epilogue<T>& then = *call.then;
  then.function(call.m, call.n, call.c, call.ldc);
  if (then.slope_of != nullptr)
    slope_block(then.slope, call.m, call.n, call.c, call.ldc, then.slope_of, then.ld_slope);
}
#endif
