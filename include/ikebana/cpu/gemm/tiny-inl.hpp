// Products of a tile or a few, where what is done once for each call takes as long as the
// arithmetic: one function hands over to the next by a jump. Sums are made in the same order as in
// larger tiles.

#if IKEBANA_CPU_WIDTH >= 32 || (IKEBANA_CPU_WIDTH == 16 && !IKEBANA_CPU_X86)
/// The most rows of a tile of up to a register of columns, and of two.
#if IKEBANA_CPU_WIDTH == 64
inline constexpr std::size_t tiny_rows = 16, tiny_pair_rows = 12;
#elif IKEBANA_CPU_WIDTH == 32
inline constexpr std::size_t tiny_rows = 8, tiny_pair_rows = 6;
#else
inline constexpr std::size_t tiny_rows = 8, tiny_pair_rows = 8;
#endif

template <class T>
using product_function = void (*)(const T*, const T*, T*, detail::tiny_sizes, detail::tiny_steps,
                                  const gemm_epilogue<T>*);
template <class T>
IKEBANA_CPU_INLINE product_function<T> find_narrow_tiny(dim_t m, dim_t n, bool turned);
template <class T>
IKEBANA_CPU_INLINE product_function<T> find_wide_tiny(dim_t m, dim_t n, dim_t k);
template <class T, class V>
IKEBANA_CPU_INLINE product_function<T> find_tile_tiny(dim_t m);
/// The most rows of a tile of so many columns.
template <class T, class V>
inline constexpr std::size_t most_tiny_rows =
    V::size == 3 * vec<T>::size ? tiny_pair_rows * 2 / 3 : tiny_pair_rows;
/// Whether two tiles of as many rows each are better than one of `rows` and one of what is left,
/// whose sums would be so few that they wait for each other.
IKEBANA_CPU_INLINE bool ends_evenly(dim_t below, dim_t rows) {
  return below > rows && 2 * below <= 3 * rows;
}
/// So many bytes on.
template <class T>
IKEBANA_CPU_INLINE const T* at(const T* p, dim_t bytes) {
  return reinterpret_cast<const T*>(reinterpret_cast<const char*>(p) + bytes);
}
/// Moves a pointer by an addition alone.
template <class T>
IKEBANA_CPU_INLINE void step_by(const T*& p, dim_t bytes) {
  p = at(p, bytes);
  keep_in_register(p);
}

/// Up to a register of columns. Instructions that multiply by what they load must not have to add
/// up two registers for its address, which splits them: rows follow each other at distances that
/// the compiler knows (`Turned`), or a pointer goes from each to the next, for several terms at a
/// time.
template <class T, class V, bool Turned, std::size_t... R>
IKEBANA_CPU_INLINE void narrow_tiny_product(const T* a, const T* b, T* c, detail::tiny_sizes s,
                                            detail::tiny_steps steps, const gemm_epilogue<T>* then,
                                            std::index_sequence<R...>) {
  constexpr std::size_t rows = sizeof...(R);
  constexpr bool down = 2 * rows > tiny_rows;
  constexpr dim_t bytes = sizeof(T);
  const dim_t n = s.n(), ldc = steps.c();
  dim_t lda = steps.a() * bytes, ldb = steps.b() * bytes;
  keep_in_register(lda);
  keep_in_register(ldb);
  for (dim_t below = s.m() - dim_t{rows};;) {
    V sums[rows];
    sums[0] = V::zero();
    if (then->bias != nullptr) sums[0] = V::load(then->bias, n);
    ((sums[R] = sums[0]), ...);
    const T *from = a, *with = b;
    dim_t k = s.k();
    if constexpr (Turned) {
      for (; k > 0; --k) {
        const V columns = V::load(with, n);
        ((sums[R] = fma(V::broadcast(from[R]), columns, sums[R])), ...);
        step_by(with, ldb);
        step_by(from, lda);
      }
    } else {
      const auto add = [&]<std::size_t... P>(std::index_sequence<P...>)
          __attribute__((always_inline)) {
        V columns[sizeof...(P)];
        ((columns[P] = V::load(with, n), step_by(with, ldb)), ...);
        const T* x = from;
        const auto add_row = [&](V & sum) __attribute__((always_inline)) {
          ((sum = fma(V::broadcast(x[P]), columns[P], sum)), ...);
          step_by(x, lda);
        };
        (add_row(sums[R]), ...);
        step_by(from, dim_t{sizeof...(P)} * bytes);
        k -= sizeof...(P);
        keep_in_register(k);
      };
      while (k >= 4) add(std::make_index_sequence<4>{});
      while (k > 0) add(std::index_sequence<0>{});
    }
    if (then->function == activation::relu) ((sums[R] = max(V::zero(), sums[R])), ...);
    T* to = c;
    ((sums[R].store(to, n), to += ldc), ...);
    if (!down || below <= 0) return;
    step_by(a, dim_t{rows} * (Turned ? bytes : lda));
    c = to;
    if (below < dim_t{rows} || (s.k() >= 8 && ends_evenly(below, dim_t{rows})))
      return find_narrow_tiny<T>(below, n, Turned)(a, b, c, {below, n, s.k(), Turned}, steps, then);
    below -= dim_t{rows};
  }
}
template <class T, class V, bool Turned, std::size_t Rows>
void narrow_tiny_product(const T* a, const T* b, T* c, detail::tiny_sizes s,
                         detail::tiny_steps steps, const gemm_epilogue<T>* then) {
  narrow_tiny_product<T, V, Turned>(a, b, c, s, steps, then, std::make_index_sequence<Rows>{});
}

/// Whether what is left to the right of a tile goes to others: to those of a register after pairs,
/// and to pairs after threes, none of which is left over alone.
template <class T, class V>
IKEBANA_CPU_INLINE bool begins_rest(dim_t left) {
  constexpr dim_t w = vec<T>::size;
  return left <= V::size - w || (V::size == 3 * w && left > 3 * w && left <= 4 * w);
}
template <class T, class V>
IKEBANA_CPU_INLINE product_function<T> find_rest_tiny(dim_t rows, dim_t left, bool turned) {
  if constexpr (V::size == 3 * vec<T>::size)
    return find_tile_tiny<T, pair_vec<T>>(rows);
  else
    return find_narrow_tiny<T>(rows, left, turned);
}

/// Two or three registers of columns, and more of them to the right: the last ones are fewer, or
/// overlap those before. Tiles of more than half as many rows as can be follow each other
/// downwards, too.
template <class T, class V, std::size_t... R>
IKEBANA_CPU_INLINE void wide_tiny_product(const T* a, const T* b, T* c, detail::tiny_sizes s,
                                          detail::tiny_steps steps, const gemm_epilogue<T>* then,
                                          std::index_sequence<R...>) {
  constexpr auto rows = static_cast<dim_t>(sizeof...(R));
  constexpr dim_t bytes = sizeof(T), width = V::size;
  constexpr bool down = 2 * sizeof...(R) > most_tiny_rows<T, V>;
  dim_t row = bytes, step = steps.a() * bytes, ldb = steps.b() * bytes, below = s.m() - rows;
  if (!s.ta()) std::swap(row, step);
  keep_in_register(row);
  keep_in_register(step);
  keep_in_register(ldb);
  const dim_t beyond = s.n() - width, n = beyond > 0 ? width : s.n(), ldc = steps.c();
  for (;;) {
    for (dim_t j = 0;;) {
      V sums[sizeof...(R)];
      sums[0] = V::zero();
      if (then->bias != nullptr) sums[0] = V::load(then->bias + j, n);
      ((sums[R] = sums[0]), ...);
      // A pointer for each three rows.
      constexpr auto pointers = static_cast<std::size_t>(rows + 2) / 3;
      const T* from[] = {(R < pointers ? at(a, static_cast<dim_t>(R * 3) * row) : nullptr)...};
      const T* with = b + j;
      for (dim_t k = s.k(); k > 0; --k) {
        const V columns = V::load(with, n);
        step_by(with, ldb);
        ((sums[R] = fma(V::broadcast(*at(from[R / 3], static_cast<dim_t>(R % 3) * row)), columns,
                        sums[R])),
         ...);
        ((R < pointers ? step_by(from[R], step) : void()), ...);
      }
      if (then->function == activation::relu) ((sums[R] = max(V::zero(), sums[R])), ...);
      T* to = c + j;
      ((sums[R].store(to, n), to += ldc), ...);
      const dim_t left = beyond - j;
      if (left <= 0) break;
      if (begins_rest<T, V>(left) && s.k() >= 4 && then->bias == nullptr) {
        find_rest_tiny<T, V>(rows, left, s.ta())(a, b + j + width, c + j + width,
                                                 {rows, left, s.k(), s.ta()}, steps, then);
        break;
      }
      j += left < width ? left : width;
    }
    if (!down || below <= 0) return;
    step_by(a, rows * row);
    c += rows * ldc;
    if (below < rows || (s.k() >= 8 && ends_evenly(below, rows)))
      return find_tile_tiny<T, V>(below)(a, b, c, {below, s.n(), s.k(), s.ta()}, steps, then);
    below -= rows;
  }
}
template <class T, class V, std::size_t Rows>
void wide_tiny_product(const T* a, const T* b, T* c, detail::tiny_sizes s, detail::tiny_steps steps,
                       const gemm_epilogue<T>* then) {
  wide_tiny_product<T, V>(a, b, c, s, steps, then, std::make_index_sequence<Rows>{});
}

template <class T, class V, std::size_t... M>
IKEBANA_CPU_INLINE product_function<T> find_narrow_tiny(dim_t m, bool turned,
                                                        std::index_sequence<M...>) {
  static constexpr product_function<T> all[][sizeof...(M)] = {
      {&narrow_tiny_product<T, V, false, M + 1>...}, {&narrow_tiny_product<T, V, true, M + 1>...}};
  return all[turned][m - 1];
}
template <class T>
IKEBANA_CPU_INLINE product_function<T> find_narrow_tiny(dim_t m, [[maybe_unused]] dim_t n,
                                                        bool turned) {
  constexpr auto most = static_cast<dim_t>(tiny_rows);
#if IKEBANA_CPU_WIDTH == 64
  if (n <= half_vec<T>::size && m <= 8)
    return find_narrow_tiny<T, half_vec<T>>(m, turned, std::make_index_sequence<8>{});
#endif
  if (m > most) m = m <= 2 * most ? (m + 1) / 2 : most;
  return find_narrow_tiny<T, vec<T>>(m, turned, std::make_index_sequence<tiny_rows>{});
}

/// Of more rows than a tile has: few columns of what is turned may be made the other way.
template <class T>
[[gnu::noinline]] void long_tiny_product(const T* a, const T* b, T* c, detail::tiny_sizes s,
                                         detail::tiny_steps steps, const gemm_epilogue<T>* then) {
  if (s.ta() && multiply_few_columns(s.m(), s.n(), s.k(), a, steps.a(), b, steps.b(), dim_t{1}, c,
                                     steps.c(), *then))
    return;
  find_narrow_tiny<T>(s.m(), s.n(), s.ta())(a, b, c, s, steps, then);
}

template <class T, class V, std::size_t... M>
IKEBANA_CPU_INLINE product_function<T> find_tile_tiny(dim_t m, std::index_sequence<M...>) {
  static constexpr product_function<T> all[] = {&wide_tiny_product<T, V, M + 1>...};
  return all[m - 1];
}
template <class T, class V>
IKEBANA_CPU_INLINE product_function<T> find_tile_tiny(dim_t m) {
  constexpr std::size_t most = most_tiny_rows<T, V>;
  if (m > dim_t{most}) {
    // As many each where they are few. Narrow divisions take half the time.
    const auto rows = static_cast<std::uint32_t>(m - 1),
               tiles = rows / static_cast<std::uint32_t>(most) + 1;
    m = tiles < 6 ? rows / tiles + 1 : dim_t{most};
  }
  return find_tile_tiny<T, V>(m, std::make_index_sequence<most>{});
}

/// Whether, on AVX2, rows fill tiles of four better than those of six or three.
IKEBANA_CPU_INLINE bool by_four_rows(dim_t m) { return m == 4 || m == 7 || m == 8; }

/// Tiles of three registers where those of two would leave one over: alone, or in the end where
/// sums are long enough for as many calls and rows are not those of one tile of pairs. AVX2 has
/// registers for but four rows of them.
template <class T>
IKEBANA_CPU_INLINE product_function<T> find_wide_tiny(dim_t m, [[maybe_unused]] dim_t n,
                                                      [[maybe_unused]] dim_t k) {
#if IKEBANA_CPU_WIDTH >= 32
  constexpr dim_t w = vec<T>::size;
  const bool again = IKEBANA_CPU_WIDTH == 64
                         ? (m <= 8 ? k >= 4 : k > 8 && m > dim_t{tiny_pair_rows})
                         : k > 2 && by_four_rows(m);
  if (n > 2 * w && (n <= 3 * w || (n > 4 * w && again))) return find_tile_tiny<T, triple_vec<T>>(m);
#endif
  return find_tile_tiny<T, pair_vec<T>>(m);
}
#endif
