// The innermost part of a product: a tile of the result held in registers while the summed
// dimension runs. Every element is one chain of fused multiply-adds in the order of that dimension,
// begun with what stands in the result already, so that its bits depend neither on the tile that it
// falls into nor on the blocks of any dimension.

/// The largest tiles: so many registers of B's columns at most, and for each number of registers so
/// many rows of A at most. A load into a register costs nearly as much as two products, so that
/// tiles should be square.
template <class T>
struct gemm_tile {
#if IKEBANA_CPU_WIDTH == 64 || (IKEBANA_CPU_WIDTH == 16 && !IKEBANA_CPU_X86)
  static constexpr int most_rows[] = {0, 14, 14, 8, 6};
#elif IKEBANA_CPU_WIDTH == 32
  static constexpr int most_rows[] = {0, 12, 6};
#elif IKEBANA_CPU_WIDTH == 16
  static constexpr int most_rows[] = {0, 8, 4};
#else
  static constexpr int most_rows[] = {0, 4, 4};
#endif
  static constexpr int registers = static_cast<int>(sizeof(most_rows) / sizeof(int)) - 1;
  static constexpr int rows = most_rows[1] > most_rows[2] ? most_rows[1] : most_rows[2];
  static constexpr dim_t columns = registers * vec<T>::size;
};

/// One tile: c[i, j] = init[i, j] + the sum over p of a[i * a_row + p * a_step] * b[p * b_step +
/// j]. Tiles have an even number of rows; where one less is wanted, the last row is the one before
/// once more. Registers of columns follow each other but for the last, which begins at column
/// `last`: what is not a full register overlaps the one before. In a tile of one register, `last`
/// is the number of its columns instead. As many tiles follow each other as `tiles` says: from one
/// to the next, and after the last, pointers move as far as `next` says. Each tile also has
/// `fetch_rows` rows of memory that is needed later brought to the second-level cache, from `fetch`
/// on.
template <class T>
struct tile_task {
  dim_t tiles, depth, last_row;
  const T* a;
  dim_t a_row, a_step;
  const T* b;
  dim_t b_step;
  const T* init;  // null: zero
  dim_t init_step;
  const T* bias = nullptr;  // not null: added to what is at init, the same for all rows
  T* c;
  dim_t c_step, last;
  struct {
    dim_t a, b, c, init, bias;
  } next;
  const T* fetch = nullptr;
  dim_t fetch_step = 0, fetch_rows = 0;
  T* pack = nullptr;  // not null: the first tile leaves a compact copy of b here
  bool relu;

  /// Says of how many columns the tile is.
  IKEBANA_CPU_INLINE void set_columns(dim_t registers, dim_t columns) {
    constexpr dim_t w = vec<T>::size;
    last = registers == 1 ? columns : columns - w;
  }

  /// The next tile is so many rows below.
  IKEBANA_CPU_INLINE void go_down(dim_t rows) {
    next = {rows * a_row, 0, rows * c_step, rows * init_step, 0};
  }
};

/// Hides how x is computed from the compiler, which would else compute it anew where it is used.
template <class X>
IKEBANA_CPU_INLINE void keep_in_register(X& x) {
  asm("" : "+r"(x));
}

template <class T, int Registers, std::size_t J>
IKEBANA_CPU_INLINE vec<T> load_columns(const T* from, const T* last, dim_t lanes) {
  if constexpr (Registers == 1)
    return vec<T>::load(from, lanes);
  else if constexpr (J + 1 == Registers)
    return vec<T>::load(last);
  else
    return vec<T>::load(from + static_cast<dim_t>(J) * vec<T>::size);
}
template <class T, int Registers, std::size_t J>
IKEBANA_CPU_INLINE void store_columns(vec<T> x, T* to, dim_t last) {
  if constexpr (Registers == 1)
    x.store(to, last);
  else
    x.store(to + (J + 1 == Registers ? last : static_cast<dim_t>(J) * vec<T>::size));
}

/// Four steps of a tile at a time: add_products(i) is the step i later, go_on(n) moves on by n.
/// Returns how many steps are left.
template <class Add, class GoOn>
IKEBANA_CPU_INLINE dim_t add_by_fours(dim_t depth, const Add& add_products, const GoOn& go_on) {
  for (dim_t fours = depth / 4; fours > 0; --fours) {
    add_products(0);
    go_on(0);
    add_products(1);
    go_on(0);
    add_products(2);
    go_on(0);
    add_products(3);
    go_on(4);
  }
  return depth % 4;
}

/// How a tile reads B. Compactly: rows of A along the summed dimension, and registers of B side by
/// side without a gap, so that all of their places but two are constants.
enum class tile_reads { anywhere, and_packs, compactly };

template <class T, int Rows, int Registers, tile_reads Way, std::size_t... R, std::size_t... J,
          std::size_t... I>
IKEBANA_CPU_INLINE void tile_product(tile_task<T>& t, std::index_sequence<R...>,
                                     std::index_sequence<J...>, std::index_sequence<I...>) {
  constexpr std::size_t n = Registers;
  constexpr dim_t w = vec<T>::size, width = Registers * w;
  constexpr bool compact = Way == tile_reads::compactly;
  constexpr auto row = [](std::size_t r, dim_t last, dim_t step) __attribute__((always_inline)) {
    return (r + 1 == Rows ? last : static_cast<dim_t>(r)) * step;
  };
  // Indexed by constants only, so that no compiler keeps the sums in memory.
  vec<T> sums[sizeof...(I)];
  const dim_t last = compact ? width - w : t.last, last_row = t.last_row;
  if (t.init != nullptr)
    ((sums[I] = load_columns<T, Registers, I % n>(t.init + row(I / n, last_row, t.init_step),
                                                  t.init + row(I / n, last_row, t.init_step) + last,
                                                  last)),
     ...);
  else
    ((sums[I] = vec<T>::zero()), ...);
  if (t.bias != nullptr) {
    const vec<T> more[] = {load_columns<T, Registers, J>(t.bias, t.bias + last, last)...};
    ((sums[I] = more[I % n] + sums[I]), ...);
  }
  for (dim_t r = t.fetch_rows; r > 0; --r, t.fetch += t.fetch_step)
    (__builtin_prefetch(t.fetch + static_cast<dim_t>(J) * w, 0, 2), ...);

  // There are registers for the addresses of few rows.
  constexpr std::size_t near = Rows <= 8 ? Rows : 5;
  const T* rows[] = {t.a + row(R, last_row, t.a_row)...};
  (keep_in_register(rows[R < near ? R : 0]), ...);
  const dim_t a_step = compact ? 1 : t.a_step, b_step = compact ? width : t.b_step,
              far = static_cast<dim_t>(near) * t.a_row;
  const T* b = t.b;
  dim_t p = 0;
  [[maybe_unused]] T* to = t.pack;
  const auto add_products = [&](dim_t later) __attribute__((always_inline)) {
    const T* const from = b + later * b_step;
    vec<T> columns[] = {load_columns<T, Registers, J>(from, from + last, last)...};
    if constexpr (Rows == 2) ((columns[J] = opaque(columns[J])), ...);
    if constexpr (Way == tile_reads::and_packs) {
      // Rows are too far apart for the processor to foresee.
      constexpr dim_t ahead = 8;
      (__builtin_prefetch(from + ahead * b_step + static_cast<dim_t>(J) * w), ...);
      (store_columns<T, Registers, J>(columns[J], to, last), ...);
      to += width;
    }
    const dim_t q = p + later * a_step;
    vec<T> x;
    (((I % n == 0 ? static_cast<void>(
                        x = vec<T>::broadcast(
                            I / n < near || I / n + 1 == Rows
                                ? rows[I / n][q]
                                : rows[I / n % near][q + static_cast<dim_t>(I / n / near) * far]))
                  : void()),
      sums[I] = fma(x, columns[I % n], sums[I])),
     ...);
  };
  // Hidden, so that no compiler reads what comes later sooner than it has registers for.
  const auto go_on = [&](dim_t steps) __attribute__((always_inline)) {
    p += steps * a_step;
    keep_in_register(p);
    b += steps * b_step;
    keep_in_register(b);
  };
  // Counting and addresses were 4 of the 39 operations of a step of 24 products, which cost time
  // wherever another thread runs on the same core.
  dim_t depth = t.depth;
  if constexpr (compact) {
    depth = add_by_fours(depth, add_products, go_on);
  } else if constexpr (Way == tile_reads::anywhere && sizeof...(I) >= 12) {
    for (dim_t pairs = depth / 2; pairs > 0; --pairs) {
      add_products(0);
      go_on(1);
      add_products(0);
      go_on(1);
    }
    depth %= 2;
  }
  for (; depth > 0; --depth) {
    add_products(0);
    go_on(1);
  }
  if (t.relu) ((sums[I] = max(vec<T>::zero(), sums[I])), ...);
  T* const c = t.c;
  const dim_t c_step = t.c_step;
  (store_columns<T, Registers, I % n>(sums[I], c + row(I / n, last_row, c_step), last), ...);
  t.c = c + t.next.c;
  t.a += t.next.a;
  t.b += t.next.b;
  if (t.init != nullptr) t.init += t.next.init;
  if (t.bias != nullptr) t.bias += t.next.bias;
}

template <class T, int Rows, int Registers, tile_reads Way>
IKEBANA_CPU_INLINE void tile_product(tile_task<T>& t) {
  tile_product<T, Rows, Registers, Way>(t, std::make_index_sequence<Rows>{},
                                        std::make_index_sequence<Registers>{},
                                        std::make_index_sequence<std::size_t{Rows} * Registers>{});
}

/// Apart from the other way, lest compilers run out of registers; AVX-512 gains nothing by it.
template <class T, int Rows, int Registers>
[[gnu::noinline]] void multiply_compact_tile(tile_task<T>& t) {
  do tile_product<T, Rows, Registers, tile_reads::compactly>(t);
  while (--t.tiles > 0);
}

// Not inlined, so that all products share one copy of the tiles.
template <class T, int Rows, int Registers>
[[gnu::noinline]] void multiply_tile(tile_task<T>& t) {
  if constexpr (IKEBANA_CPU_WIDTH != 64 && Registers > 1 &&
                Rows == gemm_tile<T>::most_rows[Registers]) {
    constexpr dim_t w = vec<T>::size, width = Registers * w;
    if (t.a_step == 1 && t.b_step == width && t.last == width - w)
      return multiply_compact_tile<T, Rows, Registers>(t);
  }
  do tile_product<T, Rows, Registers, tile_reads::anywhere>(t);
  while (--t.tiles > 0);
}

/// The largest tile of so many registers, whose columns of B are packed on the way.
template <class T, int Registers>
[[gnu::noinline]] void multiply_and_pack(tile_task<T>& t) {
  tile_product<T, gemm_tile<T>::most_rows[Registers], Registers, tile_reads::and_packs>(t);
  t.b = t.pack;
  t.b_step = Registers * vec<T>::size;
  t.pack = nullptr;
}
template <class T>
IKEBANA_CPU_INLINE void multiply_and_pack(tile_task<T>& t, dim_t registers) {
  constexpr int most = gemm_tile<T>::registers;
  t.last_row = gemm_tile<T>::most_rows[registers] - 1;
  if constexpr (most == 4)
    if (registers < most) return multiply_and_pack<T, most - 1>(t);
  multiply_and_pack<T, most>(t);
}

template <class T>
using tile_function = void (*)(tile_task<T>&);

/// The tiles of so many registers and 2, 4, 6 ... rows.
template <class T, int Registers, std::size_t... Pairs>
IKEBANA_CPU_INLINE tile_function<T> find_tile(dim_t rows, std::index_sequence<Pairs...>) {
  static constexpr tile_function<T> tiles[] = {
      &multiply_tile<T, static_cast<int>(Pairs + 1) * 2, Registers>...};
  return tiles[(rows - 1) / 2];
}
template <class T, int Registers>
using tile_pairs = std::make_index_sequence<gemm_tile<T>::most_rows[Registers] / 2>;

/// The tile of `rows`, odd or even, and `registers`. There are few kinds, for each costs compile
/// time.
template <class T>
IKEBANA_CPU_INLINE tile_function<T> find_tile(dim_t rows, dim_t registers) {
  if constexpr (gemm_tile<T>::registers == 4) {
    if (registers == 4) return find_tile<T, 4>(rows, tile_pairs<T, 4>{});
    if (registers == 3) return find_tile<T, 3>(rows, tile_pairs<T, 3>{});
  }
  if (registers == 2) return find_tile<T, 2>(rows, tile_pairs<T, 2>{});
  constexpr int most = gemm_tile<T>::most_rows[1];
  if constexpr (most > 8)
    if (rows > 8) return &multiply_tile<T, most, 1>;
  if constexpr (most > 4)
    if (rows > 4) return &multiply_tile<T, 8, 1>;
  return rows > 2 ? &multiply_tile<T, 4, 1> : &multiply_tile<T, 2, 1>;
}

/// The most rows of a tile: of long rows of A that are whole pages apart, but `few`, for lines that
/// begin so have not many more places in the first-level cache.
template <class T>
IKEBANA_CPU_INLINE dim_t rows_at_once(dim_t most, dim_t few, dim_t lda, dim_t k) {
  constexpr dim_t page = 4096 / static_cast<dim_t>(sizeof(T)), long_row = 64;
  return k > long_row && lda > 0 && lda % page == 0 && most > few ? few : most;
}

/// How `rows` are dealt out to tiles: first `tiles` of so many rows, if any, then what follows for
/// fewer rows. Even numbers all, but for the last.
struct dealt_rows {
  dim_t tiles, rows;
};
template <class T>
IKEBANA_CPU_INLINE dealt_rows deal_rows(dim_t rows, dim_t registers, dim_t most) {
  if (registers == 1) {
    // Kinds are fewer here.
    if (rows > 16 || (rows > 12 && rows <= most)) return {rows > most ? rows / most : 1, most};
    return {1, rows >= 7 && most >= 8 ? 8 : rows >= 3 ? 4 : 2};
  }
  if (rows <= most) return {1, rows};
  const dim_t pairs = (rows + 1) / 2;
  if (rows <= 2 * most) return {1, (pairs + 1) / 2 * 2};
  // Narrow divisions take half the time.
  const auto all = static_cast<std::uint32_t>(pairs), half = static_cast<std::uint32_t>(most / 2);
  const std::uint32_t tiles = (all + half - 1) / half, each = all / tiles,
                      longer = all - tiles * each;
  if (longer > 0) return {longer, 2 * (each + 1)};
  return {tiles, 2 * each};
}
