// The product by the recurrent weights, which every step needs: they are transposed once, so that
// tiles of products read them where they stand.
// Needs: gemm/tiles-inl.hpp.

/// w is (n, k); its rows become columns, with zeros up to packed_recurrent_row.
template <class T>
void pack_columns(dim_t n, dim_t k, const T* w, T* packed) {
  pack_across(packed, packed_recurrent_row(n), w, k, k, n);
}

/// to = x w^T (+ to) + bias, row by row in the order of k.
template <class T>
void product_of_columns(dim_t m, dim_t n, dim_t k, const T* packed, const T* bias,
                        rows_of<const T> x, rows_of<T> to, bool adds) {
  constexpr dim_t w = vec<T>::size;
  if (m == 0 || n == 0) return;
  if (adds && bias != nullptr)
    for (dim_t b = 0; b < m; ++b)
      for (dim_t i = 0; i < n; i += w) {
        const dim_t lanes = lanes_left<T>(n - i);
        (vec<T>::load(to[b] + i, lanes) + vec<T>::load(bias + i, lanes)).store(to[b] + i, lanes);
      }
  tile_task<T> t;
  t.a_row = x.step;
  t.a_step = 1;
  t.b_step = packed_recurrent_row(n);
  t.c_row = to.step;
  t.init_row = adds ? to.step : 0;
  t.start = adds || bias != nullptr ? tile_start::matrix : tile_start::zero;
  t.depth = k;
  t.relu = false;
  t.a = x.data;
  t.b = packed;
  t.c = to.data;
  t.init = adds ? to.data : bias;
  multiply_strips(t, m, n);
}
