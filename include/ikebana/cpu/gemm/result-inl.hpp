// Where a product goes: what its result begins with, and what becomes of it.
// Needs: tile-inl.hpp, epilogue-inl.hpp.

template <class T>
struct matrix_result {
  T* c;
  dim_t ldc;
  T beta;
  const gemm_epilogue<T>& then;

  /// Whether the result begins with more than a tile can load: it is added up in c first.
  bool starts_mixed() const {
    const int parts = (then.bias != nullptr) + (then.row_bias != nullptr) +
                      (then.residual != nullptr) + (beta != T(0));
    return parts > 1 || (beta != T(0) && beta != T(1));
  }
  /// What the tile at (i, j) begins with; `continues` what stands in c already.
  [[gnu::noinline]] void begin(tile_task<T>& t, dim_t i, dim_t j, bool continues) const {
    t.c = c + i * ldc + j;
    t.start = tile_start::matrix;
    if (continues || beta != T(0)) {
      t.init = t.c;
      t.init_row = ldc;
    } else if (then.residual != nullptr) {
      t.init = then.residual + i * then.ld_residual + j;
      t.init_row = then.ld_residual;
    } else if (then.bias != nullptr) {
      t.init = then.bias + j;
      t.init_row = 0;
    } else if (then.row_bias != nullptr) {
      t.init = then.row_bias + i;
      t.start = tile_start::rows;
    } else {
      t.start = tile_start::zero;
    }
  }
  /// Leaves in c what a block begins with: beta * c + bias + residual.
  [[gnu::noinline]] void add_up(dim_t i, dim_t j, dim_t rows, dim_t columns) const {
    constexpr dim_t w = vec<T>::size;
    for (const dim_t end = i + rows; i < end; ++i) {
      T* const to = c + i * ldc + j;
      for (dim_t v = 0; v < columns; v += w) {
        const dim_t n = columns - v < w ? columns - v : w;
        vec<T> x = vec<T>::broadcast(then.row_bias != nullptr ? then.row_bias[i] : T(0));
        if (then.bias != nullptr) x = x + vec<T>::load(then.bias + j + v, n);
        if (then.residual != nullptr)
          x = x + vec<T>::load(then.residual + i * then.ld_residual + j + v, n);
        if (beta != T(0)) x = fma(vec<T>::broadcast(beta), vec<T>::load(to + v, n), x);
        x.store(to + v, n);
      }
    }
  }
  /// What tiles leave to be done.
  bool finishes() const { return then.function > activation::relu || then.slope_of != nullptr; }
  [[gnu::noinline]] void finish(dim_t i, dim_t j, dim_t rows, dim_t columns) const {
    T* const at = c + i * ldc + j;
    then.function(rows, columns, at, ldc);
    if (then.slope_of != nullptr)
      slope_block(then.slope, rows, columns, at, ldc, then.slope_of + i * then.ld_slope + j,
                  then.ld_slope);
  }
};
