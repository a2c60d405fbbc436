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
using product_function = detail::tiny_function<T>;
/// Where, behind a set's tiles of up to a register, those of short sums stand by their terms.
inline constexpr dim_t first_held = 2 * tiny_rows * detail::narrow_tile::kinds(IKEBANA_CPU_WIDTH);
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
template <class T, int Rows>
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
  /// Row r, which is a constant once loops are unrolled.
  IKEBANA_CPU_INLINE const T* row(int r) const {
    const bool high = Rows > 9 && r >= 8;
    const T* const from = high ? ninth : first;
    const int i = high ? r - 8 : r;
    return i == 0   ? from
           : i == 1 ? at(from, one)
           : i == 2 ? at(from, 2 * one)
           : i == 3 ? at(from, three)
           : i == 4 ? at(from, 4 * one)
           : i == 5 ? at(from, five)
           : i == 6 ? at(from, 2 * three)
           : i == 7 ? at(from, seven)
                    : at(from, 8 * one);
  }
};

/// What the sums of a tile begin with, and what becomes of them.
template <int Rows, class V, class T>
IKEBANA_CPU_INLINE void begin_tiny(V* sums, const gemm_epilogue<T>* then, dim_t j, dim_t n) {
  V start = V::zero();
  if (then != nullptr && then->bias != nullptr) [[unlikely]]
    start = V::load(then->bias + j, n);
#pragma GCC unroll 16
  for (int r = 0; r < Rows; ++r) sums[r] = start;
}
template <int Rows, class V, class T>
IKEBANA_CPU_INLINE void end_tiny(V* sums, const gemm_epilogue<T>* then, dim_t n, T* c, dim_t ldc) {
  if (then != nullptr && then->function == activation::relu) [[unlikely]] {
#pragma GCC unroll 16
    for (int r = 0; r < Rows; ++r) sums[r] = max(V::zero(), sums[r]);
  }
#pragma GCC unroll 16
  for (int r = 0; r < Rows; ++r, c += ldc) sums[r].store(c, n);
}

/// Up to a register of columns. Instructions that multiply by what they load must not have to add
/// up two registers for its address, which splits them: rows follow each other at distances that
/// the compiler knows (`Turned`), or a pointer goes from each to the next, for several terms at a
/// time. AVX2 has none that multiply by one element.
template <class T, class V, bool Turned, int Rows>
void narrow_tile(const T* a, const T* b, T* c, dim_t lda, dim_t ldb,
                 const detail::tiny_shape<T>& s) {
  constexpr dim_t bytes = sizeof(T);
  const dim_t n = s.n();
  dim_t k = s.k;
  lda = (Turned ? ~lda : lda) * bytes;
  ldb *= bytes;
  keep_in_register(lda);
  keep_in_register(ldb);
  V sums[Rows];
  begin_tiny<Rows>(sums, s.then, 0, n);
  if constexpr (Turned) {
    constexpr int terms = Rows <= 4 ? 4 : 2;
    for (; k >= terms; k -= terms) {
#pragma GCC unroll 4
      for (int p = 0; p < terms; ++p) {
        const V columns = V::load(b, n);
#pragma GCC unroll 16
        for (int r = 0; r < Rows; ++r) sums[r] = fma(V::broadcast(a[r]), columns, sums[r]);
        step_by(b, ldb);
        step_by(a, lda);
      }
    }
    for (; k > 0; --k) {
      const V columns = V::load(b, n);
#pragma GCC unroll 16
      for (int r = 0; r < Rows; ++r) sums[r] = fma(V::broadcast(a[r]), columns, sums[r]);
      step_by(b, ldb);
      step_by(a, lda);
    }
  } else if constexpr (IKEBANA_CPU_WIDTH != 32) {
    for (; k >= 4; k -= 4) {
      const V first = V::load(b, n);
      step_by(b, ldb);
      const V second = V::load(b, n);
      step_by(b, ldb);
      const V third = V::load(b, n);
      step_by(b, ldb);
      const V fourth = V::load(b, n);
      step_by(b, ldb);
      const T* x = a;
#pragma GCC unroll 16
      for (int r = 0; r < Rows; ++r) {
        sums[r] = fma(V::broadcast(x[0]), first, sums[r]);
        sums[r] = fma(V::broadcast(x[1]), second, sums[r]);
        sums[r] = fma(V::broadcast(x[2]), third, sums[r]);
        sums[r] = fma(V::broadcast(x[3]), fourth, sums[r]);
        if (r + 1 < Rows) step_by(x, lda);
      }
      step_by(a, 4 * bytes);
      keep_in_register(k);
    }
    for (; k > 0; --k) {
      const V columns = V::load(b, n);
      step_by(b, ldb);
      const T* x = a;
#pragma GCC unroll 16
      for (int r = 0; r < Rows; ++r) {
        sums[r] = fma(V::broadcast(*x), columns, sums[r]);
        if (r + 1 < Rows) step_by(x, lda);
      }
      step_by(a, bytes);
    }
  } else {
    row_pointers<T, Rows> from(a, lda);
    const auto add = [&](const T* y) __attribute__((always_inline)) {
      const V columns = V::load(y, n);
#pragma GCC unroll 16
      for (int r = 0; r < Rows; ++r) sums[r] = fma(V::broadcast(*from.row(r)), columns, sums[r]);
      from.move(bytes);
    };
    for (; k >= 2; k -= 2) {
      add(b);
      add(at(b, ldb));
      step_by(b, 2 * ldb);
    }
    if (k > 0) add(b);
  }
  end_tiny<Rows>(sums, s.then, n, c, s.ldc);
}

/// Two or three registers of columns, and as many again to the right, the last of which may overlap
/// those before.
template <class T, class V, std::size_t... R>
IKEBANA_CPU_INLINE void wide_tile(const T* a, const T* b, T* c, dim_t lda, dim_t ldb,
                                  const detail::tiny_shape<T>& s, std::index_sequence<R...>) {
  constexpr int Rows = sizeof...(R);
  constexpr dim_t bytes = sizeof(T), width = V::size;
  const dim_t n = s.n() < width ? s.n() : width, row = lda < 0 ? bytes : lda * bytes;
  dim_t step = lda < 0 ? ~lda * bytes : bytes;
  ldb *= bytes;
  keep_in_register(step);
  keep_in_register(ldb);
  for (dim_t j = 0;;) {
    V sums[Rows];
    begin_tiny<Rows>(sums, s.then, j, n);
    row_pointers<T, Rows> from(a, row);
    const T* with = b + j;
    for (dim_t k = s.k; k > 0; --k) {
      const V columns = V::load(with, n);
      step_by(with, ldb);
      ((sums[R] = fma(V::broadcast(*from.row(static_cast<int>(R))), columns, sums[R])), ...);
      from.move(step);
    }
    end_tiny<Rows>(sums, s.then, n, c + j, s.ldc);
    j += width;
    const dim_t left = s.n() - j;
    if (left <= 0) [[likely]]
      return;
    if (left < width) j = s.n() - width;
  }
}
template <class T, class V, int Rows>
void wide_tile(const T* a, const T* b, T* c, dim_t lda, dim_t ldb, const detail::tiny_shape<T>& s) {
  wide_tile<T, V>(a, b, c, lda, ldb, s, std::make_index_sequence<Rows>{});
}

/// Tiles of up to a register of columns, by their rows less one: V for few rows, `Long` for more.
/// What is part of a register takes less time, and so does what is whole, for a masked load is
/// another operation where multiplications go.
template <class T, class V, class Long, bool Turned, class>
struct narrow_rows;
template <class T, class V, class Long, bool Turned, std::size_t... M>
struct narrow_rows<T, V, Long, Turned, std::index_sequence<M...>> {
  static constexpr product_function<T> of[sizeof...(M)] = {
      &narrow_tile<T, std::conditional_t<(M < 8), V, Long>, Turned, static_cast<int>(M) + 1>...};
};
#if IKEBANA_CPU_WIDTH == 64
template <class T, int Terms>
void held_product(const T* a, const T* b, T* c, dim_t lda, dim_t ldb,
                  const detail::tiny_shape<T>& s);
#endif
/// Those of the kinds of `Narrow` (narrow_tiles.hpp): of each kind of A as it stands, and
/// transposed; behind them those of short sums.
template <class T, unsigned Narrow>
struct narrow_tiles {
  product_function<T> of[first_held + detail::narrow_tile::most_terms - 1] = {};

  template <unsigned Kind, bool Turned, class V, class Long>
  constexpr void add() {
    using rows = std::make_index_sequence<tiny_rows>;
    if constexpr ((Narrow & detail::narrow_tile::bit(IKEBANA_CPU_WIDTH, Kind, Turned)) != 0)
      for (std::size_t m = 0; m < tiny_rows; ++m)
        of[(2 * Kind + Turned) * tiny_rows + m] = narrow_rows<T, V, Long, Turned, rows>::of[m];
  }
  template <unsigned Kind, class V, class Long>
  constexpr void add() {
    add<Kind, false, V, Long>();
    add<Kind, true, V, Long>();
  }
#if IKEBANA_CPU_WIDTH == 64
  template <int... P>
  constexpr void add_held(std::integer_sequence<int, P...>) {
    ((of[first_held + P] = &held_product<T, P + 2>), ...);
  }
#endif
  constexpr narrow_tiles() {
    using V = vec<T>;
    add<0, V, V>();
#if IKEBANA_CPU_WIDTH == 64
    add<1, half_vec<T>, V>();
    add<2, whole<T, quarter_vec<T>>, V>();
    add<3, whole<T, half_vec<T>>, V>();
    add<4, whole<T, V>, whole<T, V>>();
    if constexpr ((Narrow & detail::narrow_tile::short_sums) != 0)
      add_held(
          std::make_integer_sequence<int, static_cast<int>(detail::narrow_tile::most_terms) - 1>{});
#elif IKEBANA_CPU_WIDTH == 32
    add<1, whole<T, quarter_vec<T>>, V>();
    add<2, whole<T, V>, V>();
#endif
  }
};
template <class T, unsigned Narrow>
inline constexpr narrow_tiles<T, Narrow> narrow_tiles_for{};

/// The tile of at most `tiny_rows` rows for so many columns.
template <class T, std::size_t... N>
IKEBANA_CPU_INLINE product_function<T> find_narrow_tile(detail::narrow_table<T> tiles, dim_t m,
                                                        dim_t n, bool turned,
                                                        std::index_sequence<N...>) {
  static constexpr unsigned char kinds[] = {static_cast<unsigned char>(
      detail::narrow_tile::kind(IKEBANA_CPU_WIDTH, static_cast<dim_t>(N * sizeof(T))))...};
  return tiles[kinds[n] * dim_t{2 * tiny_rows} + m - 1 + (turned ? dim_t{tiny_rows} : 0)];
}
template <class T>
IKEBANA_CPU_INLINE product_function<T> find_narrow_tile(detail::narrow_table<T> tiles, dim_t m,
                                                        dim_t n, bool turned) {
  return find_narrow_tile<T>(tiles, m, n, turned,
                             std::make_index_sequence<std::size_t{vec<T>::size} + 1>{});
}

/// A tile of two registers or three.
template <class T, class V, std::size_t... M>
IKEBANA_CPU_INLINE product_function<T> find_wide_tile(dim_t m, std::index_sequence<M...>) {
  static constexpr product_function<T> all[] = {&wide_tile<T, V, static_cast<int>(M) + 1>...};
  return all[m - 1];
}
template <class T, class V>
IKEBANA_CPU_INLINE product_function<T> find_wide_tile(dim_t m) {
  return find_wide_tile<T, V>(m, std::make_index_sequence<most_tiny_rows<T, V>>{});
}
#endif
