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
           (beta != T(0)) + (then.bias != nullptr) + (then.residual != nullptr) > 1;
  }

  /// Where the tile at (i, j) begins and goes, and those below.
  IKEBANA_CPU_INLINE void begin(tile_task<T>& t, dim_t i, dim_t j, bool first, bool final) const {
    t.c = c + i * ldc + j;
    t.c_step = ldc;
    t.relu = final && then.function == activation::relu;
    t.init = nullptr;
    t.init_step = 0;
    if (!first || beta != T(0)) {
      t.init = t.c;
      t.init_step = ldc;
    } else if (then.bias != nullptr) {
      t.init = then.bias + j;
    } else if (then.residual != nullptr) {
      t.init = then.residual + i * then.ld_residual + (then.repeats ? 0 : j);
      t.init_step = then.ld_residual;
    }
  }
  [[gnu::noinline]] void add_up(T* to, dim_t i, dim_t j, dim_t rows, dim_t columns) const {
    constexpr dim_t w = vec<T>::size;
    for (dim_t r = 0; r < rows; ++r, to += gemm_tile<T>::columns)
      for (dim_t v = 0; v < columns; v += w) {
        const dim_t n = lanes_left<T>(columns - v), at = j + v;
        vec<T> x = vec<T>::zero();
        if (then.bias != nullptr) x = vec<T>::load(then.bias + at, n);
        if (then.residual != nullptr)
          x = x + vec<T>::load(then.residual + (i + r) * then.ld_residual + at, n);
        if (beta != T(0))
          x = fma(vec<T>::broadcast(beta), vec<T>::load(c + (i + r) * ldc + at, n), x);
        x.store(to + v);
      }
  }
  bool finishes() const { return then.function > activation::relu || then.slope_of != nullptr; }
  [[gnu::noinline]] void finish(dim_t i, dim_t j, dim_t rows, dim_t columns) const {
    T* const at = c + i * ldc + j;
    if (then.function != activation::none) activate_block(then.function, rows, columns, at, ldc);
    if (then.slope_of != nullptr)
      slope_block(then.slope, rows, columns, at, ldc, then.slope_of + i * then.ld_slope + j,
                  then.ld_slope);
  }
};

/// What happens to each tile of a panel besides its product, where anything does: it begins with
/// several matrices, or is finished by a function.
template <class T>
struct tile_surroundings {
  const matrix_result<T>& result;
  T* spare;
  dim_t i, j, columns;
  bool mixed, finishes;
};

/// Calls the tiles of a panel one below the other: t is at the first.
template <class T, bool Around>
IKEBANA_CPU_INLINE void run_strip(tile_task<T>& t, dim_t m, dim_t registers,
                                  [[maybe_unused]] const tile_surroundings<T>* around) {
  dim_t i = 0;
  const auto run = [&](dim_t rows, auto tile) __attribute__((always_inline)) {
    if constexpr (Around) {
      if (around->mixed) {
        around->result.add_up(around->spare, around->i + i, around->j, rows, around->columns);
        t.init = around->spare;
        t.init_step = gemm_tile<T>::columns;
      }
    }
    tile();
    if constexpr (Around)
      if (around->finishes) around->result.finish(around->i + i, around->j, rows, around->columns);
    i += rows;
  };
  if (t.pack != nullptr) {
    const dim_t rows = gemm_tile<T>::most_rows[registers];
    t.go_down(rows);
    run(rows, [&] { multiply_and_pack(t, registers); });
  }
  while (i < m) {
    const dealt_rows dealt = deal_rows<T>(m - i, registers);
    const tile_function<T> tile = find_tile<T>(dealt.rows, registers);
    // The last tile may have a row less. Where nothing is around them, others go down by
    // themselves.
    dim_t whole = dealt.tiles;
    if (i + whole * dealt.rows > m) --whole;
    t.go_down(dealt.rows);
    t.last_row = dealt.rows - 1;
    if constexpr (Around) {
      for (dim_t q = 0; q < whole; ++q) {
        t.tiles = 1;
        run(dealt.rows, [&] { tile(t); });
      }
    } else if (whole > 0) {
      t.tiles = whole;
      run(whole * dealt.rows, [&] { tile(t); });
    }
    if (whole < dealt.tiles) {
      t.last_row = m - i - 1;
      t.tiles = 1;
      run(m - i, [&] { tile(t); });
    }
  }
}

// One copy for all but the smallest products, where a processor foresees tiles better that are
// called from a place of their own.
template <class T, bool Around = false>
[[gnu::noinline]] void multiply_strip(tile_task<T>& t, dim_t m, dim_t registers,
                                      const tile_surroundings<T>* around = nullptr) {
  run_strip<T, Around>(t, m, registers, around);
}

/// The tiles of one panel of columns, from (i, j) down.
template <class T, bool Small = false>
IKEBANA_CPU_INLINE void multiply_panel(tile_task<T>& t, dim_t registers, T* spare,
                                       const matrix_result<T>& result, dim_t i, dim_t j, dim_t m,
                                       dim_t columns, bool first, bool final) {
  result.begin(t, i, j, first, final);
  const bool mixed = first && result.starts_mixed(), finishes = final && result.finishes();
  const tile_surroundings<T> around{result, spare, i, j, columns, mixed, finishes};
  if (mixed || finishes)
    multiply_strip<T, true>(t, m, registers, &around);
  else if constexpr (Small)
    run_strip<T, false>(t, m, registers, nullptr);
  else
    multiply_strip(t, m, registers);
}
