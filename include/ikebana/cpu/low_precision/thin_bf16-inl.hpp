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

/// c[r][j] += sum over as many rows p of b as there are P of a[r][p] b[p][j], in their order.
template <int Rows, class F, std::size_t... P>
void add_thin_rows(dim_t n, dim_t k, const float* a, const F* b, dim_t ldb, const F* end, float* c,
                   dim_t ldc, std::index_sequence<P...>) {
  constexpr dim_t w = vec<float>::size;
  const auto add = [=](auto whole, dim_t lanes, dim_t j) __attribute__((always_inline)) {
    constexpr bool all = decltype(whole)::value;
    const vec<float> row[] = {
        widened_bf16<all, F>(b + j + static_cast<dim_t>(P) * ldb, lanes, end)...};
    for (int r = 0; r < Rows; ++r) {
      float* const to = c + r * ldc + j;
      vec<float> s = all ? vec<float>::load(to) : vec<float>::load(to, lanes);
      ((s = fma(vec<float>::broadcast(a[r * k + static_cast<dim_t>(P)]), row[P], s)), ...);
      all ? s.store(to) : s.store(to, lanes);
    }
  };
  dim_t j = 0;
  for (; j + w <= n; j += w) add(std::true_type{}, w, j);
  if (j < n) add(std::false_type{}, n - j, j);
}

/// c[r][j] += the dot product of row r of a and row j of b, for as many j as there are J.
template <int Rows, class F, std::size_t... J>
void add_thin_dots(dim_t k, const float* a, const F* b, dim_t ldb, const F* end, float* c,
                   dim_t ldc, std::index_sequence<J...>) {
  constexpr dim_t w = vec<float>::size;
  vec<float> sums[Rows][sizeof...(J)] = {};
  const auto add = [&](auto whole, dim_t lanes, dim_t p) __attribute__((always_inline)) {
    constexpr bool all = decltype(whole)::value;
    const vec<float> columns[] = {
        widened_bf16<all, F>(b + p + static_cast<dim_t>(J) * ldb, lanes, end)...};
    for (int r = 0; r < Rows; ++r) {
      const float* const from = a + r * k + p;
      const vec<float> x = all ? vec<float>::load(from) : vec<float>::load(from, lanes);
      ((sums[r][J] = fma(x, columns[J], sums[r][J])), ...);
    }
  };
  dim_t p = 0;
  for (; p + w <= k; p += w) add(std::true_type{}, w, p);
  if (p < k) add(std::false_type{}, k - p, p);
  for (int r = 0; r < Rows; ++r, c += ldc) ((c[J] += sum(sums[r][J])), ...);
}

template <int Rows, class F>
void add_thin_product(const detail::bf16_call<F>& call, const float* a) {
  const dim_t n = call.n, k = call.k, ldb = call.ldb;
  const F* const b = call.b;
  if (call.tb == transpose::yes) {
    const F* const end = b + (n - 1) * ldb + k;
    const auto add = [&](dim_t j, auto each) {
      add_thin_dots<Rows>(k, a, b + j * ldb, ldb, end, call.c + j, call.ldc, each);
    };
    dim_t j = 0;
    for (; j + 4 <= n; j += 4) add(j, std::make_index_sequence<4>{});
    for (; j < n; ++j) add(j, std::make_index_sequence<1>{});
    return;
  }
  const F* const end = b + (k - 1) * ldb + n;
  const auto add = [&](dim_t p, auto each) {
    add_thin_rows<Rows>(n, k, a + p, b + p * ldb, ldb, end, call.c, call.ldc, each);
  };
  dim_t p = 0;
  for (; p + 8 <= k; p += 8) add(p, std::make_index_sequence<8>{});
  for (; p < k; ++p) add(p, std::make_index_sequence<1>{});
}

/// a: one or two rows of floats, times alpha.
template <class F>
void thin_bf16_product(const detail::bf16_call<F>& call, const float* a) {
  const matrix_result<float> result{call.c, call.ldc, call.beta, call.then};
  result.add_up(0, 0, call.m, call.n);
  // Without numbers there may be no b.
  if (call.k > 0) (call.m == 1 ? &add_thin_product<1, F> : &add_thin_product<2, F>)(call, a);
  result.finish(0, 0, call.m, call.n);
}
