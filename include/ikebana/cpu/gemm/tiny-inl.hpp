// Products of a tile or a few, where what is done once for each call takes as long as the
// arithmetic: one function hands over to the next by a jump, all arguments being where they were.
// Sums are made in the same order as in larger tiles.

#if IKEBANA_CPU_WIDTH >= 32 || (IKEBANA_CPU_WIDTH == 16 && !IKEBANA_CPU_X86)
/// The most rows of a tile of up to a register of columns, and of two.
#if IKEBANA_CPU_WIDTH == 64
inline constexpr std::size_t tiny_rows = 16, tiny_pair_rows = 14;
#elif IKEBANA_CPU_WIDTH == 32
inline constexpr std::size_t tiny_rows = 8, tiny_pair_rows = 6;
#else
inline constexpr std::size_t tiny_rows = 8, tiny_pair_rows = 8;
#endif

template <class T>
using product_function = void (*)(const T* a, const T* b, T* c, dim_t lda, dim_t ldb,
                                  const detail::tiny_shape<T>& s);
/// The most rows of a tile of so many columns.
template <class T, class V>
inline constexpr std::size_t most_tiny_rows =
    V::size == 3 * vec<T>::size ? tiny_pair_rows * 2 / 3 : tiny_pair_rows;
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

/// Rows at equal distances, found by what an instruction can add up: a register of its own for
/// each would cost additions, which take the multiplications' places.
template <class T, std::size_t Rows>
struct row_pointers {
  const T *first, *ninth;
  dim_t one, three, five, seven;

  IKEBANA_CPU_INLINE row_pointers(const T* a, dim_t bytes)
      : first(a),
        ninth(Rows > 9 ? at(a, 8 * bytes) : nullptr),
        one(bytes),
        three(3 * bytes),
        five(5 * bytes),
        seven(7 * bytes) {
    keep_in_register(first);
    if (Rows > 9) keep_in_register(ninth);
    keep_in_register(one);
    if (Rows > 3) keep_in_register(three);
    if (Rows > 5) keep_in_register(five);
    if (Rows > 7) keep_in_register(seven);
  }
  IKEBANA_CPU_INLINE void move(dim_t bytes) {
    step_by(first, bytes);
    if (Rows > 9) step_by(ninth, bytes);
  }
  template <std::size_t R>
  IKEBANA_CPU_INLINE const T* row() const {
    if constexpr (R == 8 && Rows > 9) {
      return ninth;
    } else if constexpr (R > 8 && R % 2 == 1) {
      constexpr std::size_t r = R - 8;
      return at(ninth, r == 1 ? one : r == 3 ? three : r == 5 ? five : seven);
    } else {
      constexpr std::size_t odd = R % 2 == 1 ? R : R % 4 == 2 ? R / 2 : R % 8 == 4 ? R / 4 : R / 8;
      if constexpr (odd == 0) return first;
      return at(first, static_cast<dim_t>(R / (odd == 0 ? 1 : odd)) * (odd == 1   ? one
                                                                       : odd == 3 ? three
                                                                       : odd == 5 ? five
                                                                                  : seven));
    }
  }
};

/// What the sums of a tile begin with, and what becomes of them.
template <class V, class T, std::size_t... R>
IKEBANA_CPU_INLINE void begin_tiny(V* sums, const gemm_epilogue<T>* then, dim_t j, dim_t n,
                                   std::index_sequence<R...>) {
  if (then != nullptr && then->bias != nullptr) [[unlikely]] {
    const V bias = V::load(then->bias + j, n);
    ((sums[R] = bias), ...);
  } else {
    ((sums[R] = V::zero()), ...);
  }
}
template <class V, class T, std::size_t... R>
IKEBANA_CPU_INLINE void end_tiny(V* sums, const gemm_epilogue<T>* then, dim_t n, T* c, dim_t ldc,
                                 std::index_sequence<R...>) {
  if (then != nullptr && then->function == activation::relu) [[unlikely]]
    ((sums[R] = max(V::zero(), sums[R])), ...);
  ((sums[R].store(c, n), c += ldc), ...);
}

/// Up to a register of columns. Instructions that multiply by what they load must not have to add
/// up two registers for its address, which splits them: rows follow each other at distances that
/// the compiler knows (`Turned`), or a pointer goes from each to the next, for several terms at a
/// time. AVX2 has none that multiply by one element.
template <class T, class V, bool Turned, std::size_t... R>
IKEBANA_CPU_INLINE void narrow_tile(const T* a, const T* b, T* c, dim_t lda, dim_t ldb,
                                    const detail::tiny_shape<T>& s,
                                    std::index_sequence<R...> rows) {
  constexpr dim_t bytes = sizeof(T);
  const dim_t n = s.n();
  dim_t k = s.k;
  lda = (Turned ? ~lda : lda) * bytes;
  ldb *= bytes;
  keep_in_register(lda);
  keep_in_register(ldb);
  V sums[sizeof...(R)];
  begin_tiny(sums, s.then, 0, n, rows);
  if constexpr (Turned) {
    const auto add = [&]() __attribute__((always_inline)) {
      const V columns = V::load(b, n);
      ((sums[R] = fma(V::broadcast(a[R]), columns, sums[R])), ...);
      step_by(b, ldb);
      step_by(a, lda);
    };
    constexpr dim_t terms = sizeof...(R) <= 4 ? 4 : 2;
    for (; k >= terms; k -= terms) {
      add();
      add();
      if (terms > 2) add(), add();
    }
    for (; k > 0; --k) add();
  } else if constexpr (IKEBANA_CPU_WIDTH != 32) {
    const auto add = [&]<std::size_t... P>(std::index_sequence<P...>)
        __attribute__((always_inline)) {
      V columns[sizeof...(P)];
      ((columns[P] = V::load(b, n), step_by(b, ldb)), ...);
      const T* x = a;
      const auto add_row = [&](std::size_t r) __attribute__((always_inline)) {
        ((sums[r] = fma(V::broadcast(x[P]), columns[P], sums[r])), ...);
        if (r + 1 < sizeof...(R)) step_by(x, lda);
      };
      (add_row(R), ...);
      step_by(a, dim_t{sizeof...(P)} * bytes);
      k -= sizeof...(P);
      keep_in_register(k);
    };
    while (k >= 4) add(std::make_index_sequence<4>{});
    while (k > 0) add(std::index_sequence<0>{});
  } else {
    row_pointers<T, sizeof...(R)> from(a, lda);
    const auto add = [&](const T* y) __attribute__((always_inline)) {
      const V columns = V::load(y, n);
      ((sums[R] = fma(V::broadcast(*from.template row<R>()), columns, sums[R])), ...);
      from.move(bytes);
    };
    for (; k >= 2; k -= 2) {
      add(b);
      add(at(b, ldb));
      step_by(b, 2 * ldb);
    }
    if (k > 0) add(b);
  }
  end_tiny(sums, s.then, n, c, s.ldc, rows);
}
template <class T, class V, bool Turned, std::size_t Rows>
void narrow_tile(const T* a, const T* b, T* c, dim_t lda, dim_t ldb,
                 const detail::tiny_shape<T>& s) {
  narrow_tile<T, V, Turned>(a, b, c, lda, ldb, s, std::make_index_sequence<Rows>{});
}

/// Two or three registers of columns, and as many again to the right, the last of which may overlap
/// those before.
template <class T, class V, std::size_t... R>
IKEBANA_CPU_INLINE void wide_tile(const T* a, const T* b, T* c, dim_t lda, dim_t ldb,
                                  const detail::tiny_shape<T>& s, std::index_sequence<R...> rows) {
  constexpr dim_t bytes = sizeof(T), width = V::size;
  const dim_t n = s.n() < width ? s.n() : width, row = lda < 0 ? bytes : lda * bytes;
  dim_t step = lda < 0 ? ~lda * bytes : bytes;
  ldb *= bytes;
  keep_in_register(step);
  keep_in_register(ldb);
  for (dim_t j = 0;;) {
    V sums[sizeof...(R)];
    begin_tiny(sums, s.then, j, n, rows);
    row_pointers<T, sizeof...(R)> from(a, row);
    const T* with = b + j;
    for (dim_t k = s.k; k > 0; --k) {
      const V columns = V::load(with, n);
      step_by(with, ldb);
      ((sums[R] = fma(V::broadcast(*from.template row<R>()), columns, sums[R])), ...);
      from.move(step);
    }
    end_tiny(sums, s.then, n, c + j, s.ldc, rows);
    j += width;
    const dim_t left = s.n() - j;
    if (left <= 0) [[likely]]
      return;
    if (left < width) j = s.n() - width;
  }
}
template <class T, class V, std::size_t Rows>
void wide_tile(const T* a, const T* b, T* c, dim_t lda, dim_t ldb, const detail::tiny_shape<T>& s) {
  wide_tile<T, V>(a, b, c, lda, ldb, s, std::make_index_sequence<Rows>{});
}

/// Tiles of up to a register of columns: of A as it stands, and transposed, by their rows less one.
template <class T, std::size_t N>
struct narrow_tiles {
  product_function<T> of[N];
};
/// V for few rows, `Long` for more. What is part of a register takes less time, and so does what is
/// whole, for a masked load is another operation where multiplications go.
template <class T, class V, class Long, std::size_t... M>
constexpr narrow_tiles<T, 2 * sizeof...(M)> make_narrow_tiles(std::index_sequence<M...>) {
  return {{&narrow_tile<T, std::conditional_t<(M < 8), V, Long>, false, M + 1>...,
           &narrow_tile<T, std::conditional_t<(M < 8), V, Long>, true, M + 1>...}};
}
/// The tile of at most `tiny_rows` rows for so many columns.
template <class T, std::size_t... N>
IKEBANA_CPU_INLINE product_function<T> find_narrow_tile(dim_t m, dim_t n, bool turned,
                                                        std::index_sequence<N...>) {
  using V = vec<T>;
  using rows = std::make_index_sequence<tiny_rows>;
#if IKEBANA_CPU_WIDTH == 64
  using quarter = quarter_vec<T>;
  static constexpr narrow_tiles<T, 2 * tiny_rows> all[] = {
      make_narrow_tiles<T, V, V>(rows{}), make_narrow_tiles<T, half_vec<T>, V>(rows{}),
      make_narrow_tiles<T, whole<T, quarter>, V>(rows{}),
      make_narrow_tiles<T, whole<T, half_vec<T>>, V>(rows{}),
      make_narrow_tiles<T, whole<T, V>, whole<T, V>>(rows{})};
  static constexpr unsigned char kinds[] = {(N == V::size             ? 4
                                             : N > half_vec<T>::size  ? 0
                                             : N == half_vec<T>::size ? 3
                                             : N == quarter::size     ? 2
                                                                      : 1)...};
#elif IKEBANA_CPU_WIDTH == 32
  using quarter = whole<T, quarter_vec<T>>;
  static constexpr narrow_tiles<T, 2 * tiny_rows> all[] = {
      make_narrow_tiles<T, V, V>(rows{}), make_narrow_tiles<T, quarter, V>(rows{}),
      make_narrow_tiles<T, whole<T, V>, V>(rows{})};
  static constexpr unsigned char kinds[] = {(N == V::size ? 2 : N == quarter::size ? 1 : 0)...};
#else
  static constexpr narrow_tiles<T, 2 * tiny_rows> all[] = {make_narrow_tiles<T, V, V>(rows{})};
  static constexpr unsigned char kinds[] = {(N * 0)...};
#endif
  return all[kinds[n]].of[m - 1 + (turned ? dim_t{tiny_rows} : 0)];
}
template <class T>
IKEBANA_CPU_INLINE product_function<T> find_narrow_tile(dim_t m, dim_t n, bool turned) {
  return find_narrow_tile<T>(m, n, turned,
                             std::make_index_sequence<std::size_t{vec<T>::size} + 1>{});
}

/// A tile of two registers or three.
template <class T, class V, std::size_t... M>
IKEBANA_CPU_INLINE product_function<T> find_wide_tile(dim_t m, std::index_sequence<M...>) {
  static constexpr product_function<T> all[] = {&wide_tile<T, V, M + 1>...};
  return all[m - 1];
}
template <class T, class V>
IKEBANA_CPU_INLINE product_function<T> find_wide_tile(dim_t m) {
  return find_wide_tile<T, V>(m, std::make_index_sequence<most_tiny_rows<T, V>>{});
}
#endif
