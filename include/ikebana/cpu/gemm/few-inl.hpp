// Products of two or three rows, or of two to four columns whose left factor is stored by columns:
// registers run along the other direction of the result. Rows of a result of few columns are made
// of registers side by side on their way out.

#if IKEBANA_CPU_WIDTH != 0
inline constexpr dim_t few_rows = 3;
/// As many as leave room for four registers of sums each.
#if IKEBANA_CPU_WIDTH == 64 || !IKEBANA_CPU_X86
inline constexpr dim_t few_columns = 4;
#else
inline constexpr dim_t few_columns = 3;
#endif

/// Of N registers side by side, an element of each in turn: the register `Part` of what that makes.
template <std::size_t N, std::size_t Part, class R, std::size_t... L>
IKEBANA_CPU_INLINE R side_by_side(const R* x, std::index_sequence<L...>) {
  constexpr std::size_t w = sizeof...(L);
  const auto row = [](std::size_t lane) { return (Part * w + lane) % N; };
  const auto from = [](std::size_t lane) { return (Part * w + lane) / N; };
  R y = __builtin_shufflevector(x[0], x[1], static_cast<int>(from(L) + (row(L) == 1 ? w : 0))...);
  if constexpr (N > 2)
    y = __builtin_shufflevector(y, x[2], static_cast<int>(row(L) == 2 ? w + from(L) : L)...);
  if constexpr (N > 3)
    y = __builtin_shufflevector(y, x[3], static_cast<int>(row(L) == 3 ? w + from(L) : L)...);
  return y;
}

/// The long factor's element (p, i) is at a[p * lda + i], the short one's (p, j) at
/// b[p * b_step + j * b_next].
template <class T>
struct few_task {
  dim_t length, depth;
  const T* a;
  dim_t lda;
  const T* b;
  dim_t b_step, b_next;
  T* c;
  dim_t ldc;
  const T* bias;
  bool continues, relu;  // what is in c already is added to; sums are complete
};

/// As many elements of the long direction from i on as registers J hold, of which the last ones may
/// overlap; one alone may hold less. N rows of the result, or (`Turned`) columns, which are all.
template <class T, bool Turned, std::size_t... N, std::size_t... J>
IKEBANA_CPU_INLINE void few_tile(const few_task<T>& t, dim_t i, dim_t count,
                                 std::index_sequence<N...>, std::index_sequence<J...>) {
  constexpr dim_t w = vec<T>::size;
  constexpr std::size_t n = sizeof...(N);
  constexpr bool alone = sizeof...(J) == 1;
  const auto at = [=](std::size_t j) __attribute__((always_inline)) {
    const dim_t begin = static_cast<dim_t>(j) * w;
    return i + (alone || begin < count - w ? begin : count - w);
  };
  const auto load = [=](const T* from) __attribute__((always_inline)) {
    return alone ? vec<T>::load(from, count) : vec<T>::load(from);
  };
  vec<T> sums[sizeof...(J)][n];
  const auto start = [&](vec<T> * s, dim_t begin) __attribute__((always_inline)) {
    if (!Turned && t.continues) {
      ((s[N] = load(t.c + static_cast<dim_t>(N) * t.ldc + begin)), ...);
    } else if (t.bias == nullptr) {
      ((s[N] = vec<T>::zero()), ...);
    } else {
      ((s[N] = Turned ? vec<T>::broadcast(t.bias[N]) : load(t.bias + begin)), ...);
    }
  };
  (start(sums[J], at(J)), ...);
  T* const c = t.c;
  const bool relu = t.relu;
  // One pointer moves along each factor: for each element one would cost as much as the products.
  const T *longs = t.a, *shorts = t.b;
  const dim_t places[] = {at(J)...}, apart[] = {static_cast<dim_t>(N) * t.b_next...};
  const dim_t lda = t.lda, step = t.b_step, ldc = t.ldc;
  for (dim_t k = t.depth; k > 0; --k) {
    const vec<T> x[] = {vec<T>::broadcast(shorts[apart[N]])...};
    const auto add = [&](vec<T> * s, const T* from) __attribute__((always_inline)) {
      const vec<T> y = opaque(load(from));
      ((s[N] = fma(x[N], y, s[N])), ...);
    };
    (add(sums[J], longs + places[J]), ...);
    longs += lda;
    keep_in_register(longs);
    shorts += step;
    keep_in_register(shorts);
  }
  const auto finish = [&](vec<T> * s, dim_t begin) __attribute__((always_inline)) {
    if (relu) ((s[N] = max(vec<T>::zero(), s[N])), ...);
    if constexpr (Turned) {
      using lanes = std::make_index_sequence<static_cast<std::size_t>(w)>;
      T* const to = c + begin * static_cast<dim_t>(n);
      const typename vec<T>::raw from[] = {s[N].v...};
      const auto store = [&](vec<T> y, dim_t first) __attribute__((always_inline)) {
        if (!alone) return y.store(to + first);
        const dim_t left = count * static_cast<dim_t>(n) - first;
        if (left > 0) y.store(to + first, left < w ? left : w);
      };
      (store({side_by_side<n, N>(from, lanes{})}, static_cast<dim_t>(N) * w), ...);
    } else {
      const auto store = [&](vec<T> y, T * to) __attribute__((always_inline)) {
        alone ? y.store(to, count) : y.store(to);
      };
      (store(s[N], c + static_cast<dim_t>(N) * ldc + begin), ...);
    }
  };
  (finish(sums[J], at(J)), ...);
}

template <class T, bool Turned, std::size_t N>
[[gnu::noinline]] void few_product(const few_task<T>& t) {
  constexpr dim_t w = vec<T>::size, most = 4 * w;
  using all = std::make_index_sequence<N>;
  dim_t i = 0;
  for (dim_t left; (left = t.length - i) >= w; i += most)
    few_tile<T, Turned>(t, i, left < most ? left : most, all{}, std::make_index_sequence<4>{});
  if (i < t.length) few_tile<T, Turned>(t, i, t.length - i, all{}, std::index_sequence<0>{});
}

template <class T, bool Turned>
IKEBANA_CPU_INLINE void few_product(const few_task<T>& t, dim_t n) {
  if (n == 2) return few_product<T, Turned, 2>(t);
  constexpr dim_t most = Turned ? few_columns : few_rows;
  if (n == 3 || most == 3) return few_product<T, Turned, 3>(t);
  few_product<T, Turned, static_cast<std::size_t>(most)>(t);
}

/// Makes the product where it has as few columns, and more rows than make up for it.
template <class T>
IKEBANA_CPU_INLINE bool multiply_few_columns(dim_t m, dim_t n, dim_t k, const T* a, dim_t lda,
                                             const T* b, dim_t b_step, dim_t b_next, T* c,
                                             dim_t ldc, const gemm_epilogue<T>& then) {
  if (n < 2 || n > few_columns || ldc != n || m <= 8) return false;
  few_product<T, true>({m, k, a, lda, b, b_step, b_next, c, ldc, then.bias, false,
                        then.function == activation::relu},
                       n);
  return true;
}

/// The same of two rows or three, of at least one term: the long factor is B, of which few rows at
/// a time are read where they are far.
template <class T>
IKEBANA_CPU_INLINE void multiply_few_rows(dim_t m, dim_t n, dim_t k, const T* a, dim_t a_row,
                                          dim_t a_step, const T* b, dim_t ldb, T* c, dim_t ldc,
                                          const gemm_epilogue<T>& then) {
  const dim_t depth = k > 96 && k * ldb * dim_t{sizeof(T)} > detail::caches().first ? dim_t{64} : k;
  for (dim_t p = 0; p < k; p += depth) {
    const dim_t left = k - p;
    few_product<T, false>(
        {n, left < depth ? left : depth, b + p * ldb, ldb, a + p * a_step, a_step, a_row, c, ldc,
         then.bias, p > 0, left <= depth && then.function == activation::relu},
        m);
  }
}
#endif
