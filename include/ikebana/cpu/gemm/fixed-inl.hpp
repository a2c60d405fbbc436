// Products of sizes that the compiler knows: what is left is the arithmetic.

#if IKEBANA_CPU_WIDTH >= 32 || (IKEBANA_CPU_WIDTH == 16 && !IKEBANA_CPU_X86)
template <class T, dim_t N>
using one_or_two = std::conditional_t<N <= vec<T>::size, vec<T>, pair_vec<T>>;
/// The least that holds N columns.
template <class T, dim_t N>
#if IKEBANA_CPU_WIDTH == 64
using columns_of =
    std::conditional_t<N <= quarter_vec<T>::size, quarter_vec<T>,
                       std::conditional_t<N <= half_vec<T>::size, half_vec<T>, one_or_two<T, N>>>;
#elif IKEBANA_CPU_WIDTH == 32
using columns_of = std::conditional_t<N <= quarter_vec<T>::size, quarter_vec<T>, one_or_two<T, N>>;
#else
using columns_of = one_or_two<T, N>;
#endif

/// Columns and as many rows as there are R, of matrices whose rows are so far apart.
template <class T, dim_t Columns, dim_t N, dim_t K, dim_t Row, dim_t Step, std::size_t... R>
IKEBANA_CPU_INLINE void fixed_tile(const T* a, const T* b, T* c, std::index_sequence<R...>) {
  using V = columns_of<T, Columns>;
  V sums[] = {(static_cast<void>(R), V::zero())...};
  const auto add = [&](const T* x, const T* row) __attribute__((always_inline)) {
    V columns;
    if constexpr (Columns == V::size)
      columns = V::load(row);
    else
      columns = V::load(row, Columns);
    ((sums[R] = fma(V::broadcast(x[static_cast<dim_t>(R) * Row]), columns, sums[R])), ...);
  };
  const auto unrolled = [&]<std::size_t... P>(std::index_sequence<P...>)
      __attribute__((always_inline)) {
    (add(a + static_cast<dim_t>(P) * Step, b + static_cast<dim_t>(P) * N), ...);
  };
  if constexpr (K * dim_t{sizeof...(R)} <= 64) {
    unrolled(std::make_index_sequence<std::size_t{K}>{});
  } else {
    for (dim_t k = K; k > 0; --k, a += Step, b += N) add(a, b);
  }
  const auto store = [=](const V& x, T* to) __attribute__((always_inline)) {
    if constexpr (Columns == V::size)
      x.store(to);
    else
      x.store(to, Columns);
  };
  (store(sums[R], c + static_cast<dim_t>(R) * N), ...);
}

/// As many columns, in tiles of two registers, and one of what is left.
template <class T, dim_t Columns, dim_t M, dim_t N, dim_t K, dim_t Row, dim_t Step>
IKEBANA_CPU_INLINE void fixed_columns(const T* a, const T* b, T* c) {
  constexpr dim_t w = vec<T>::size, columns = Columns < 2 * w ? Columns : 2 * w,
                  most = (IKEBANA_CPU_WIDTH == 32 ? 12 : 24) / (columns <= w ? 1 : 2),
                  tiles = (M + most - 1) / most, rows = (M + tiles - 1) / tiles, rest = M % rows;
  dim_t i = 0;
  for (; i + rows <= M; i += rows)
    fixed_tile<T, columns, N, K, Row, Step>(a + i * Row, b, c + i * N,
                                            std::make_index_sequence<std::size_t{rows}>{});
  if constexpr (rest > 0)
    fixed_tile<T, columns, N, K, Row, Step>(a + i * Row, b, c + i * N,
                                            std::make_index_sequence<std::size_t{rest}>{});
  if constexpr (Columns > columns)
    fixed_columns<T, Columns - columns, M, N, K, Row, Step>(a, b + columns, c + columns);
}
#endif

/// Of dense matrices, the first transposed where `Turned`.
template <class T, dim_t M, dim_t N, dim_t K, bool Turned>
void fixed_product(const T* a, const T* b, T* c) {
#if IKEBANA_CPU_WIDTH >= 32 || (IKEBANA_CPU_WIDTH == 16 && !IKEBANA_CPU_X86)
  fixed_columns<T, N, M, N, K, Turned ? 1 : K, Turned ? M : 1>(a, b, c);
#else
  constexpr transpose ta = Turned ? transpose::yes : transpose::no;
  gemm_call<T> call{M,
                    N,
                    K,
                    a,
                    Turned ? M : K,
                    b,
                    N,
                    c,
                    N,
                    &detail::no_epilogue<T>,
                    T(1),
                    T(0),
                    ta,
                    transpose::no};
  product<T, detail::narrow_tile::all>(call);
#endif
}
