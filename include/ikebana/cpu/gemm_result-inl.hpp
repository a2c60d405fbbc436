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
      t.init = then.residual + i * then.ld_residual + j;
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

/// The tiles of one panel of columns, from (i, j) down.
template <class T>
IKEBANA_CPU_INLINE void multiply_panel(tile_task<T>& t, dim_t registers, T* spare,
                                       const matrix_result<T>& result, dim_t i0, dim_t j, dim_t m,
                                       dim_t columns, bool first, bool final) {
  result.begin(t, i0, j, first, final);
  const bool mixed = first && result.starts_mixed(), finishes = final && result.finishes();
  if (!mixed && !finishes) {
    multiply_strip<T, false>(t, m, registers, nullptr, nullptr);
    return;
  }
  multiply_strip<T, true>(
      t, m, registers,
      [&](dim_t i, dim_t rows) {
        if (!mixed) return;
        result.add_up(spare, i0 + i, j, rows, columns);
        t.init = spare;
        t.init_step = gemm_tile<T>::columns;
      },
      [&](dim_t i, dim_t rows) {
        if (finishes) result.finish(i0 + i, j, rows, columns);
      });
}
