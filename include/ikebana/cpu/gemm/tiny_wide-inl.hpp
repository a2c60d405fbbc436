// Small products of more than two registers of columns, and the way to the tiles of all.

#if IKEBANA_CPU_WIDTH == 32
/// The most rows of a tile of four registers, whose loads are fewer than those of one of two.
/// (AVX-512 has the registers for as many sums in pairs.)
inline constexpr std::size_t tiny_quad_rows = 3;
template <class T>
IKEBANA_CPU_INLINE product_function<T> find_quad_tiny(dim_t m);

/// Four registers of columns, and more of them to the right, the last of which may overlap those
/// before. Tiles of more than half as many rows as
/// can be follow each other downwards, too.
template <class T, std::size_t... R>
IKEBANA_CPU_INLINE void quad_tiny_product(const T* a, const T* b, T* c, detail::tiny_sizes s,
                                          detail::tiny_steps steps, const gemm_epilogue<T>* then,
                                          std::index_sequence<R...>) {
  constexpr auto rows = static_cast<dim_t>(sizeof...(R));
  constexpr dim_t bytes = sizeof(T), w = vec<T>::size, width = 4 * w;
  constexpr bool down = 2 * sizeof...(R) > tiny_quad_rows;
  dim_t row = bytes, step = steps.a() * bytes, ldb = steps.b() * bytes, below = s.m() - rows;
  if (!s.ta()) std::swap(row, step);
  keep_in_register(row);
  keep_in_register(step);
  keep_in_register(ldb);
  const dim_t n = s.n(), ldc = steps.c();
  for (;;) {
    for (dim_t j = 0;;) {
      vec<T> sums[4][rows];
      const auto begin = [&](std::size_t i) __attribute__((always_inline)) {
        sums[i][0] = vec<T>::zero();
        if (then->bias != nullptr)
          sums[i][0] = vec<T>::load(then->bias + j + static_cast<dim_t>(i) * w);
        ((sums[i][R] = sums[i][0]), ...);
      };
      begin(0);
      begin(1);
      begin(2);
      begin(3);
      // A pointer for each three rows.
      constexpr auto pointers = static_cast<std::size_t>(rows + 2) / 3;
      const T* from[] = {(R < pointers ? at(a, static_cast<dim_t>(R * 3) * row) : nullptr)...};
      const T* with = b + j;
      for (dim_t k = s.k(); k > 0; --k) {
        const vec<T> x[] = {
            vec<T>::broadcast(*at(from[R / 3], static_cast<dim_t>(R % 3) * row))...};
        // Hidden, so that it is loaded once.
        const auto add = [&](std::size_t i) __attribute__((always_inline)) {
          const vec<T> y = opaque(vec<T>::load(with + static_cast<dim_t>(i) * w));
          ((sums[i][R] = fma(x[R], y, sums[i][R])), ...);
        };
        add(0);
        add(1);
        add(2);
        add(3);
        step_by(with, ldb);
        ((R < pointers ? step_by(from[R], step) : void()), ...);
      }
      if (then->function == activation::relu)
        ((sums[0][R] = max(vec<T>::zero(), sums[0][R]),
          sums[1][R] = max(vec<T>::zero(), sums[1][R]),
          sums[2][R] = max(vec<T>::zero(), sums[2][R]),
          sums[3][R] = max(vec<T>::zero(), sums[3][R])),
         ...);
      T* to = c + j;
      ((sums[0][R].store(to), sums[1][R].store(to + w), sums[2][R].store(to + 2 * w),
        sums[3][R].store(to + 3 * w), to += ldc),
       ...);
      const dim_t left = n - width - j;
      if (left <= 0) break;
      j += left < width ? left : width;
    }
    if (!down || below <= 0) return;
    step_by(a, rows * row);
    c += rows * ldc;
    if (below < rows || ends_evenly(below, rows))
      return find_quad_tiny<T>(below)(a, b, c, {below, n, s.k(), s.ta()}, steps, then);
    below -= rows;
  }
}
template <class T, std::size_t Rows>
void quad_tiny_product(const T* a, const T* b, T* c, detail::tiny_sizes s, detail::tiny_steps steps,
                       const gemm_epilogue<T>* then) {
  quad_tiny_product<T>(a, b, c, s, steps, then, std::make_index_sequence<Rows>{});
}
/// From two rows on, which is why tiles end evenly.
template <class T, std::size_t... M>
IKEBANA_CPU_INLINE product_function<T> find_quad_tiny(dim_t m, std::index_sequence<M...>) {
  static constexpr product_function<T> all[] = {&quad_tiny_product<T, M + 2>...};
  return all[m - 2];
}
template <class T>
IKEBANA_CPU_INLINE product_function<T> find_quad_tiny(dim_t m) {
  constexpr auto most = static_cast<dim_t>(tiny_quad_rows);
  if (m > most) m = m <= 2 * most ? (m + 1) / 2 : most;
  return find_quad_tiny<T>(m, std::make_index_sequence<tiny_quad_rows - 1>{});
}

/// At least four registers of columns, and two rows. Of B as much at a time as stays near for all
/// rows; what is left in the end goes to tiles of fewer registers.
template <class T>
[[gnu::noinline]] void quads_tiny_product(const T* a, const T* b, T* c, detail::tiny_sizes s,
                                          detail::tiny_steps steps, const gemm_epilogue<T>* then) {
  constexpr dim_t w = vec<T>::size, width = 4 * w;
  const product_function<T> f = find_quad_tiny<T>(s.m());
  const dim_t n = s.n(), whole = n / width * width;
  dim_t near = whole;
  if (s.m() > dim_t{tiny_quad_rows} && s.k() * n * dim_t{sizeof(T)} > detail::caches().first / 2) {
    const auto panels = static_cast<std::uint32_t>(detail::caches().first / 2) /
                        static_cast<std::uint32_t>(s.k() * width * dim_t{sizeof(T)});
    near = panels > 1 ? dim_t{panels} * width : width;
  }
  gemm_epilogue<T> part;
  if (then->bias != nullptr) {
    part = *then;
    then = &part;
  }
  const auto go_on = [&](dim_t columns) __attribute__((always_inline)) {
    b += columns;
    c += columns;
    if (then == &part) part.bias += columns;
  };
  for (dim_t left = whole; left > 0; left -= near) {
    if (near > left) near = left;
    f(a, b, c, {s.m(), near, s.k(), s.ta()}, steps, then);
    go_on(near);
  }
  const dim_t left = n - whole;
  if (left == 0) return;
  const product_function<T> last =
      left <= w ? find_narrow_tiny<T>(s.m(), left, s.ta()) : find_wide_tiny<T>(s.m(), left, s.k());
  last(a, b, c, {s.m(), left, s.k(), s.ta()}, steps, then);
}

/// Where tiles of four registers pay: few rows, and of more, sums that are not too short.
template <class T>
IKEBANA_CPU_INLINE product_function<T> find_quads_tiny(detail::tiny_sizes s) {
  constexpr dim_t w = vec<T>::size;
  if (s.n() < 4 * w || s.m() < 2 || by_four_rows(s.m())) return nullptr;
  if (s.m() > few_rows)
    return s.k() > 2 && (s.k() >= 16 || s.n() >= 8 * w) ? &quads_tiny_product<T> : nullptr;
  // To make some columns twice costs less than tiles of few sums, and than another call.
  return s.k() <= 12 || s.n() % (4 * w) > w ? find_quad_tiny<T>(s.m()) : &quads_tiny_product<T>;
}
#endif

#if IKEBANA_CPU_WIDTH >= 32 || (IKEBANA_CPU_WIDTH == 16 && !IKEBANA_CPU_X86)
template <class T>
IKEBANA_CPU_INLINE void wide_tiles(const T* a, const T* b, T* c, detail::tiny_sizes s,
                                   detail::tiny_steps steps, const gemm_epilogue<T>* then) {
#if IKEBANA_CPU_WIDTH == 32
  if (const product_function<T> quads = find_quads_tiny<T>(s); quads != nullptr)
    return quads(a, b, c, s, steps, then);
#endif
  find_wide_tiny<T>(s.m(), s.n(), s.k())(a, b, c, s, steps, then);
}
#endif

#if IKEBANA_CPU_WIDTH >= 32
/// Sums of K terms, one or two, of at least four registers of columns: row after row.
template <class T, std::size_t K>
[[gnu::noinline]] void outer_product(const T* a, const T* b, T* c, detail::tiny_sizes s,
                                     detail::tiny_steps steps, const gemm_epilogue<T>* then) {
  if (then->bias != nullptr || then->function != activation::none)
    return find_wide_tiny<T>(s.m(), s.n(), s.k())(a, b, c, s, steps, then);
  constexpr dim_t w = vec<T>::size;
  const dim_t row = s.ta() ? 1 : steps.a(), step = s.ta() ? steps.a() : 1, last = s.n() - w,
              ldc = steps.c();
  const T* const second = b + (K > 1 ? steps.b() : 0);
  for (dim_t m = s.m(); m > 0; --m, a += row, c += ldc) {
    const vec<T> x = vec<T>::broadcast(a[0]), y = vec<T>::broadcast(a[K > 1 ? step : 0]);
    const auto put = [&](dim_t j) __attribute__((always_inline)) {
      vec<T> sum = fma(x, vec<T>::load(b + j), vec<T>::zero());
      if (K > 1) sum = fma(y, vec<T>::load(second + j), sum);
      sum.store(c + j);
    };
    for (dim_t j = 0; j < last; j += w) put(j);
    put(last);
  }
}
inline constexpr dim_t most_outer = IKEBANA_CPU_WIDTH == 64 ? 2 : 1;
/// Sums of so few terms: where the result is beyond the first-level cache, time goes into writing
/// it.
template <class T>
[[gnu::noinline]] void shortest_tiny_product(const T* a, const T* b, T* c, detail::tiny_sizes s,
                                             detail::tiny_steps steps,
                                             const gemm_epilogue<T>* then) {
  if (s.k() > 0 && s.m() * s.n() * dim_t{sizeof(T)} > detail::caches().first)
    return (s.k() == 1 ? &outer_product<T, 1>
                       : &outer_product<T, std::size_t{most_outer}>)(a, b, c, s, steps, then);
  wide_tiles<T>(a, b, c, s, steps, then);
}
#endif

#if IKEBANA_CPU_WIDTH >= 32 || (IKEBANA_CPU_WIDTH == 16 && !IKEBANA_CPU_X86)
/// Of more columns than a register has: goes to the tiles by a jump.
template <class T>
[[gnu::noinline]] void wide_tiny_product(const T* a, const T* b, T* c, detail::tiny_sizes s,
                                         detail::tiny_steps steps, const gemm_epilogue<T>* then) {
#if IKEBANA_CPU_WIDTH >= 32
  if (s.k() <= most_outer && s.n() >= 4 * vec<T>::size) [[unlikely]]
    return shortest_tiny_product(a, b, c, s, steps, then);
#endif
  wide_tiles<T>(a, b, c, s, steps, then);
}

template <class T>
IKEBANA_CPU_INLINE void tiny_product(const T* a, const T* b, T* c, detail::tiny_sizes s,
                                     detail::tiny_steps steps, const gemm_epilogue<T>* then) {
  const dim_t m = s.m(), n = s.n();
  if (n > vec<T>::size) return wide_tiny_product(a, b, c, s, steps, then);
  if (m > dim_t{tiny_rows}) return long_tiny_product(a, b, c, s, steps, then);
  return find_narrow_tiny<T>(m, n, s.ta())(a, b, c, s, steps, then);
}
#endif
