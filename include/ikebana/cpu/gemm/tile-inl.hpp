// The micro-kernels of products: a tile of the result held in registers while the summed dimension
// runs. Every element is one chain of fused multiply-adds in the order of that dimension, begun
// with what the result begins with, so its bits depend neither on the tile that computes it nor on
// the blocks of any dimension.
// Needs: vec-inl.hpp.

/// The most rows of a tile of so many vectors of columns; 0 where there is no such tile. Tiles are
/// about square, since a load costs half of a multiply-add; of few rows they are wide, so that
/// enough sums hide the latency of an addition. No larger than that needs, since each is compiled.
template <class T>
struct gemm_tile {
#if IKEBANA_CPU_WIDTH == 64 || (IKEBANA_CPU_WIDTH == 16 && !IKEBANA_CPU_X86)
  static constexpr int most_rows[9] = {0, 8, 8, 0, 4, 0, 0, 0, 2};
#elif IKEBANA_CPU_WIDTH >= 16
  static constexpr int most_rows[9] = {0, 8, 6, 0, 3, 0, 0, 0, 1};
#else
  static constexpr int most_rows[9] = {0, 2, 2, 0, 2, 0, 0, 0, 1};
#endif
  /// The vectors of columns of a packed panel.
  static constexpr int vectors = 2;
  static constexpr dim_t columns = vectors * vec<T>::size;
  static_assert(2 * most_rows[1] >= most_rows[2]);  // See multiply_row.
};

/// The columns of a tile of so many vectors.
template <class T>
IKEBANA_CPU_INLINE void set_columns(tile_task<T>& t, int vectors, dim_t columns) {
  t.last = vectors == 1 ? columns : columns - vec<T>::size;
}

/// Hides how x is computed from the compiler, which would else compute it anew where it is used.
template <class X>
IKEBANA_CPU_INLINE void keep_in_register(X& x) {
  asm("" : "+r"(x));
}

/// Up to 9 rows at equal distances, by a pointer and the offsets that an address can add.
template <class T>
struct row_pointers {
  const T* first;
  dim_t one, three, five, seven;

  IKEBANA_CPU_INLINE row_pointers(const T* a, dim_t row)
      : first(a), one(row), three(3 * row), five(5 * row), seven(7 * row) {}
  /// Row r, which is a constant once loops are unrolled.
  IKEBANA_CPU_INLINE const T* row(int r) const {
    return r == 3   ? first + three
           : r == 5 ? first + five
           : r == 6 ? first + 2 * three
           : r == 7 ? first + seven
                    : first + r * one;
  }
};

// Unrolled by pragmas, since -O2 alone would keep the sums in memory.
template <class T, int Rows, int Vectors>
IKEBANA_CPU_INLINE void multiply_tile_inline(tile_task<T>& t) {
  constexpr dim_t w = vec<T>::size;
  const dim_t last = t.last, a_step = t.a_step, b_step = t.b_step, c_row = t.c_row;
  const auto load = [=](const T* p, int v) __attribute__((always_inline)) {
    if constexpr (Vectors == 1)
      return vec<T>::load(p, last);
    else
      return vec<T>::load(p + (v + 1 == Vectors ? last : v * w));
  };
  for (;;) {
    vec<T> sums[Rows][Vectors];
    if (t.start == tile_start::zero) [[likely]] {
#pragma GCC unroll 16
      for (int r = 0; r < Rows; ++r)
#pragma GCC unroll 8
        for (int v = 0; v < Vectors; ++v) sums[r][v] = vec<T>::zero();
    } else if (t.start == tile_start::matrix) {
      const T* from = t.init;
      const dim_t row = t.init_row;
#pragma GCC unroll 16
      for (int r = 0; r < Rows; ++r, from += row)
#pragma GCC unroll 8
        for (int v = 0; v < Vectors; ++v) sums[r][v] = load(from, v);
    } else {
#pragma GCC unroll 16
      for (int r = 0; r < Rows; ++r)
#pragma GCC unroll 8
        for (int v = 0; v < Vectors; ++v) sums[r][v] = vec<T>::broadcast(t.init[r]);
    }
    row_pointers<T> a(t.a, t.a_row);
    const T* b = t.b;
    for (dim_t p = t.depth; p > 0; --p) {
      vec<T> columns[Vectors];
#pragma GCC unroll 8
      for (int v = 0; v < Vectors; ++v) {
        columns[v] = load(b, v);
        // Loaded once.
        if constexpr (Rows > 1) columns[v] = opaque(columns[v]);
      }
#pragma GCC unroll 16
      for (int r = 0; r < Rows; ++r) {
        const vec<T> x = vec<T>::broadcast(*a.row(r));
#pragma GCC unroll 8
        for (int v = 0; v < Vectors; ++v) sums[r][v] = fma(x, columns[v], sums[r][v]);
      }
      a.first += a_step;
      b += b_step;
    }
    if (t.relu) {
#pragma GCC unroll 16
      for (int r = 0; r < Rows; ++r)
#pragma GCC unroll 8
        for (int v = 0; v < Vectors; ++v) sums[r][v] = max(vec<T>::zero(), sums[r][v]);
    }
    T* to = t.c;
#pragma GCC unroll 16
    for (int r = 0; r < Rows; ++r, to += c_row)
#pragma GCC unroll 8
      for (int v = 0; v < Vectors; ++v) {
        if constexpr (Vectors == 1)
          sums[r][v].store(to, last);
        else
          sums[r][v].store(to + (v + 1 == Vectors ? last : v * w));
      }
    // In memory, where tiles need all registers.
    if (--t.tiles <= 0) return;
    t.a += t.next.a;
    t.b += t.next.b;
    t.c += t.next.c;
    t.init += t.next.init;
  }
}

/// Not inlined: all products share one copy of each tile.
template <class T, int Rows, int Vectors>
[[gnu::noinline]] void multiply_tile(tile_task<T>& t) {
  multiply_tile_inline<T, Rows, Vectors>(t);
}

template <class T>
using tile_function = void (*)(tile_task<T>&);

template <class T, int Vectors, class>
struct tiles_by_rows;
template <class T, int Vectors, std::size_t... R>
struct tiles_by_rows<T, Vectors, std::index_sequence<R...>> {
  static constexpr tile_function<T> of[] = {&multiply_tile<T, static_cast<int>(R) + 1, Vectors>...};
};
template <class T, int Vectors>
inline constexpr const tile_function<T>* tiles_of =
    tiles_by_rows<T, Vectors, std::make_index_sequence<gemm_tile<T>::most_rows[Vectors]>>::of;

/// The tile of so many rows and vectors, of those that there are.
template <class T>
IKEBANA_CPU_INLINE tile_function<T> find_tile(dim_t rows, int vectors) {
  static constexpr const tile_function<T>* tiles[] = {nullptr, tiles_of<T, 1>, tiles_of<T, 2>,
                                                      nullptr, tiles_of<T, 4>, nullptr,
                                                      nullptr, nullptr,        tiles_of<T, 8>};
  return tiles[vectors][rows - 1];
}

/// A row of tiles, from t on to the right: the widest that such rows allow, then narrower ones, of
/// which the narrowest have fewer rows.
template <class T>
[[gnu::noinline]] void multiply_row(tile_task<T>& t, dim_t rows, dim_t columns) {
  constexpr dim_t w = vec<T>::size;
  constexpr const int* most = gemm_tile<T>::most_rows;
  const dim_t init = t.start == tile_start::matrix ? 1 : 0;
  int shift = rows <= most[8] ? 3 : rows <= most[4] ? 2 : 1;
  for (;;) {
    // All vectors but the last are whole.
    while (shift > 0 && columns <= ((dim_t{1} << shift) - 1) * w) --shift;
    const dim_t whole = w << shift, width = columns < whole ? columns : whole;
    t.tiles = columns < whole ? 1 : columns / w >> shift;
    t.next = {0, width, width, init * width};
    set_columns(t, 1 << shift, width);
    columns -= t.tiles * width;
    if (shift == 0 && rows > most[1]) {
      const dim_t upper = rows / 2;
      tile_task<T> below = t;
      below.a += upper * t.a_row;
      below.c += upper * t.c_row;
      below.init += upper * t.init_step();
      find_tile<T>(upper, 1)(t);
      return find_tile<T>(rows - upper, 1)(below);
    }
    find_tile<T>(rows, 1 << shift)(t);
    if (columns == 0) return;
    t.b += width;
    t.c += width;
    t.init += init * width;
  }
}

/// Deals rows out evenly to the fewest parts of at most `most`.
struct dealt_rows {
  std::uint32_t parts, each, longer;

  IKEBANA_CPU_INLINE dealt_rows(dim_t rows, int most)
      : parts(1), each(static_cast<std::uint32_t>(rows)), longer(0) {
    // Small products have no time for a division.
    if (rows <= most) [[likely]]
      return;
    const auto all = static_cast<std::uint32_t>(rows), at_most = static_cast<std::uint32_t>(most);
    parts = (all + at_most - 1) / at_most;
    each = all / parts;
    longer = all - each * parts;
  }
  IKEBANA_CPU_INLINE dim_t operator[](std::uint32_t i) const {
    return dim_t{each} + (i < longer ? 1 : 0);
  }
};

/// Strips of rows below each other, from t on down: of one panel, the tiles of equal strips by one
/// call.
template <class T>
[[gnu::noinline]] void multiply_column(tile_task<T>& t, const dealt_rows& strips, dim_t columns) {
  const int vectors = columns <= vec<T>::size ? 1 : 2;
  const dim_t init = t.init_step();
  set_columns(t, vectors, columns);
  const auto run = [&](std::uint32_t tiles, dim_t rows) __attribute__((always_inline)) {
    t.tiles = tiles;
    t.next = {rows * t.a_row, 0, rows * t.c_row, rows * init};
    find_tile<T>(rows, vectors)(t);
  };
  if (strips.longer > 0) {
    const dim_t rows = dim_t{strips.each} + 1;
    run(strips.longer, rows);
    t.a += t.next.a;
    t.c += t.next.c;
    t.init += t.next.init;
  }
  if (strips.longer < strips.parts) run(strips.parts - strips.longer, strips.each);
  t.tiles = 1;
}
