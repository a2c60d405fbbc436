// Products of one or two rows with bfloat16 numbers, or floats rounded to it, that are widened
// where they are: b is read once, and nothing is packed.

#if IKEBANA_CPU_WIDTH != 0
/// Fewer numbers than a register has, with zeros behind.
template <class Narrow>
[[gnu::noinline]] word_vec widened_tail(const std::uint16_t* p, dim_t count,
                                        const std::uint16_t* end) {
  return widened(load_bytes<Narrow>(p, count * 2, end));
}
#endif

/// Numbers from p on, as floats: a register of them if Whole, else `lanes`, and zeros behind.
/// Nothing at or past `end` is read.
template <bool Whole, class F>
IKEBANA_CPU_INLINE vec<float> widened_bf16(const F* p, dim_t lanes, [[maybe_unused]] const F* end) {
  if constexpr (sizeof(F) == 4) {
    return rounded_to_bf16(Whole ? vec<float>::load(p) : vec<float>::load(p, lanes));
  } else {
#if IKEBANA_CPU_WIDTH == 0
    return as<float>(vec<std::uint32_t>{lanes > 0 ? std::uint32_t{*p} << 16 : 0u});
#else
    using narrow = typename narrow_register<std::uint16_t, sizeof(word_vec) / 2>::type;
    if constexpr (!Whole) {
      return as<float>(widened_tail<narrow>(p, lanes, end) << 16);
    } else {
      narrow x;
      __builtin_memcpy(&x, p, sizeof(narrow));
      return as<float>(widened(x) << 16);
    }
#endif
  }
}

/// c[r][j] += sum over as many rows p of b as there are P of a[r][p] b[p][j], in their order, for
/// the columns of a register.
template <bool Whole, int Rows, class F, std::size_t... P>
IKEBANA_CPU_INLINE void add_thin_register(dim_t lanes, dim_t k, const float* a, const F* b,
                                          dim_t ldb, const F* end, float* c, dim_t ldc,
                                          std::index_sequence<P...>) {
  const vec<float> row[] = {widened_bf16<Whole, F>(b + static_cast<dim_t>(P) * ldb, lanes, end)...};
  for (int r = 0; r < Rows; ++r, a += k, c += ldc) {
    vec<float> s = Whole ? vec<float>::load(c) : vec<float>::load(c, lanes);
    ((s = fma(vec<float>::broadcast(a[P]), row[P], s)), ...);
    Whole ? s.store(c) : s.store(c, lanes);
  }
}
template <int Rows, int P, class F>
void add_thin_rows(dim_t n, dim_t k, const float* a, const F* b, dim_t ldb, const F* end, float* c,
                   dim_t ldc) {
  constexpr dim_t w = vec<float>::size;
  dim_t j = 0;
  for (; j + w <= n; j += w)
    add_thin_register<true, Rows>(w, k, a, b + j, ldb, end, c + j, ldc,
                                  std::make_index_sequence<std::size_t{P}>{});
  if (j < n)
    add_thin_register<false, Rows>(n - j, k, a, b + j, ldb, end, c + j, ldc,
                                   std::make_index_sequence<std::size_t{P}>{});
}

/// sums[r][j] += products of row r of a and row j of b, for as many j as there are J.
template <bool Whole, int Rows, class F, std::size_t... J>
IKEBANA_CPU_INLINE void add_dot_registers(dim_t lanes, dim_t k, const float* a, const F* b,
                                          dim_t ldb, const F* end, vec<float> (*sums)[sizeof...(J)],
                                          std::index_sequence<J...>) {
  const vec<float> columns[] = {
      widened_bf16<Whole, F>(b + static_cast<dim_t>(J) * ldb, lanes, end)...};
  for (int r = 0; r < Rows; ++r, a += k) {
    const vec<float> x = Whole ? vec<float>::load(a) : vec<float>::load(a, lanes);
    ((sums[r][J] = fma(x, columns[J], sums[r][J])), ...);
  }
}
/// c[r][j] += the dot product of row r of a and row j of b.
template <int Rows, int J, class F>
void add_thin_dots(dim_t k, const float* a, const F* b, dim_t ldb, const F* end, float* c,
                   dim_t ldc) {
  constexpr dim_t w = vec<float>::size;
  constexpr auto columns = std::make_index_sequence<std::size_t{J}>{};
  vec<float> sums[Rows][J] = {};
  dim_t p = 0;
  for (; p + w <= k; p += w)
    add_dot_registers<true, Rows>(w, k, a + p, b + p, ldb, end, sums, columns);
  if (p < k) add_dot_registers<false, Rows>(k - p, k, a + p, b + p, ldb, end, sums, columns);
  for (int r = 0; r < Rows; ++r, c += ldc)
    for (int j = 0; j < J; ++j) c[j] += sum(sums[r][j]);
}

template <int Rows, class F>
void add_thin_product(transpose tb, dim_t n, dim_t k, const float* a, const F* b, dim_t ldb,
                      float* c, dim_t ldc) {
  if (tb == transpose::yes) {
    const F* const end = b + (n - 1) * ldb + k;
    dim_t j = 0;
    for (; j + 4 <= n; j += 4) add_thin_dots<Rows, 4>(k, a, b + j * ldb, ldb, end, c + j, ldc);
    for (; j < n; ++j) add_thin_dots<Rows, 1>(k, a, b + j * ldb, ldb, end, c + j, ldc);
    return;
  }
  const F* const end = b + (k - 1) * ldb + n;
  dim_t p = 0;
  for (; p + 8 <= k; p += 8) add_thin_rows<Rows, 8>(n, k, a + p, b + p * ldb, ldb, end, c, ldc);
  for (; p < k; ++p) add_thin_rows<Rows, 1>(n, k, a + p, b + p * ldb, ldb, end, c, ldc);
}

/// a: m x k floats, times alpha; m is 1 or 2.
template <class F>
void thin_bf16_product(transpose tb, dim_t m, dim_t n, dim_t k, const float* a, const F* b,
                       dim_t ldb, float beta, float* c, dim_t ldc,
                       const gemm_epilogue<float>& then) {
  matrix_result<float>{c, ldc, beta, then}.add_up(0, 0, m, n);
  // Without numbers there may be no b.
  if (k > 0)
    (m == 1 ? &add_thin_product<1, F> : &add_thin_product<2, F>)(tb, n, k, a, b, ldb, c, ldc);
  gemm_epilogue<float> rest = then;
  rest.residual = rest.bias = rest.row_bias = nullptr;
  float_word_result{c, ldc, 1.0f, 0.0f, rest}.finish(0, 0, m, n);
}
