// Where tiles of a product go, and what they begin with.

/// Where tiles of a product go: a matrix with leading dimension.
template <class T>
struct matrix_result {
  T* c;
  dim_t ldc;
  T beta;
  const gemm_epilogue<T>& then;

  /// How many matrices a tile begins with: where more than one, they are added up first.
  bool starts_mixed() const {
    return (beta != T(0) && beta != T(1)) ||
           (beta != T(0) && (then.bias != nullptr || then.residual != nullptr));
  }

  /// Where the tile at (i, j) begins and goes, and those below.
  IKEBANA_CPU_INLINE void begin(tile_task<T>& t, dim_t i, dim_t j, bool first, bool final) const {
    t.c = c + i * ldc + j;
    t.c_step = ldc;
    t.relu = final && then.function == activation::relu;
    t.init = nullptr;
    t.init_step = 0;
    t.bias = nullptr;
    if (!first || beta != T(0)) {
      t.init = t.c;
      t.init_step = ldc;
    } else if (then.residual == nullptr) {
      if (then.bias != nullptr) t.init = then.bias + j;
    } else {
      if (then.bias != nullptr) t.bias = then.bias + j;
      t.init = then.residual + i * then.ld_residual + (then.repeats ? 0 : j);
      t.init_step = then.ld_residual;
    }
  }
  /// Leaves in the result what a block begins with.
  [[gnu::noinline]] void add_up(dim_t i, dim_t j, dim_t rows, dim_t columns) const {
    constexpr dim_t w = vec<T>::size;
    const T* const bias = then.bias != nullptr ? then.bias + j : nullptr;
    for (const dim_t end = i + rows; i < end; ++i) {
      T* const to = c + i * ldc + j;
      const T* const more =
          then.residual != nullptr ? then.residual + i * then.ld_residual + j : nullptr;
      const auto sum = [&](dim_t v, auto... n) __attribute__((always_inline)) {
        vec<T> x = bias != nullptr ? vec<T>::load(bias + v, n...) : vec<T>::zero();
        if (more != nullptr) x = x + vec<T>::load(more + v, n...);
        if (beta != T(0)) x = fma(vec<T>::broadcast(beta), vec<T>::load(to + v, n...), x);
        x.store(to + v, n...);
      };
      dim_t v = 0;
      for (; v + w <= columns; v += w) sum(v);
      if (v < columns) sum(v, columns - v);
    }
  }
  bool finishes() const { return then.function > activation::relu || then.slope_of != nullptr; }
  [[gnu::noinline]] void finish(dim_t i, dim_t j, dim_t rows, dim_t columns) const {
    T* const at = c + i * ldc + j;
    then.function(rows, columns, at, ldc);
    if (then.slope_of != nullptr)
      slope_block(then.slope, rows, columns, at, ldc, then.slope_of + i * then.ld_slope + j,
                  then.ld_slope);
  }
};

/// Calls the tiles of a panel one below the other: t is at the first.
template <class T>
IKEBANA_CPU_INLINE void run_strip(tile_task<T>& t, dim_t m, dim_t registers) {
  dim_t i = 0;
  const dim_t most =
      rows_at_once<T>(gemm_tile<T>::most_rows[registers], 8, t.a_step == 1 ? t.a_row : 0, t.depth);
  if (t.pack != nullptr) {
    i = gemm_tile<T>::most_rows[registers];
    t.go_down(i);
    multiply_and_pack(t, registers);
  }
  while (i < m) {
    const dealt_rows dealt = deal_rows<T>(m - i, registers, most);
    const tile_function<T> tile = find_tile<T>(dealt.rows, registers);
    // The last tile may have a row less.
    dim_t whole = dealt.tiles;
    if (i + whole * dealt.rows > m) --whole;
    t.go_down(dealt.rows);
    if (whole > 0) {
      t.last_row = dealt.rows - 1;
      t.tiles = whole;
      tile(t);
      i += whole * dealt.rows;
    }
    if (whole < dealt.tiles) {
      t.last_row = m - i - 1;
      t.tiles = 1;
      tile(t);
      i = m;
    }
  }
}

// One copy for all but the smallest products, where a processor foresees tiles better that are
// called from a place of their own.
template <class T>
[[gnu::noinline]] void multiply_strip(tile_task<T>& t, dim_t m, dim_t registers) {
  run_strip(t, m, registers);
}

/// A strip has so many rows, a multiple of those of every large tile; the last one fewer than half
/// as many more.
inline constexpr dim_t strip_rows = 24, most_strip = strip_rows + strip_rows / 2;

/// A panel that begins with several matrices, or is finished by a function: strip by strip, while
/// they are near.
template <class T>
[[gnu::noinline]] void multiply_around(tile_task<T>& t, dim_t registers,
                                       const matrix_result<T>& result, dim_t i, dim_t j, dim_t m,
                                       dim_t columns, bool first, bool final) {
  const bool mixed = first && result.starts_mixed();
  const T* const a = t.a;
  for (dim_t r = 0, rows; r < m; r += rows) {
    rows = m - r < most_strip ? m - r : strip_rows;
    if (mixed) result.add_up(i + r, j, rows, columns);
    result.begin(t, i + r, j, first && !mixed, final);
    t.a = a + r * t.a_row;
    multiply_strip(t, rows, registers);
    if (final && result.finishes()) result.finish(i + r, j, rows, columns);
  }
}

/// The tiles of one panel of columns, from (i, j) down.
template <class T, bool Small = false>
IKEBANA_CPU_INLINE void multiply_panel(tile_task<T>& t, dim_t registers,
                                       const matrix_result<T>& result, dim_t i, dim_t j, dim_t m,
                                       dim_t columns, bool first, bool final) {
  if ((first && result.starts_mixed()) || (final && result.finishes()))
    return multiply_around(t, registers, result, i, j, m, columns, first, final);
  result.begin(t, i, j, first, final);
  if constexpr (Small)
    run_strip(t, m, registers);
  else
    multiply_strip(t, m, registers);
}
