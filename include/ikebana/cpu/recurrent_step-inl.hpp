// The product by the recurrent weights, which every step needs: they are transposed once, so that
// tiles of products read them where they stand.
// Needs: gemm/tiles-inl.hpp.

/// Of a panel of columns, which tiles of one row take at once: rows of more would be a page apart.
template <class T>
inline constexpr dim_t recurrent_panel = 8 * vec<T>::size;

/// w is (n, k); its rows become columns of panels, with zeros up to packed_recurrent_row.
template <class T>
void pack_columns(dim_t n, dim_t k, const T* w, T* packed) {
  for (dim_t j = 0; j < n; j += recurrent_panel<T>)
    pack_across(packed + j * k, std::min(recurrent_panel<T>, packed_recurrent_row(n) - j),
                w + j * k, k, k, std::min(recurrent_panel<T>, n - j));
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
  t.c_row = to.step;
  t.init_row = adds ? to.step : 0;
  t.start = adds || bias != nullptr ? tile_start::matrix : tile_start::zero;
  t.depth = k;
  t.relu = false;
  for (dim_t j = 0; j < n; j += recurrent_panel<T>) {
    t.a = x.data;
    t.b = packed + j * k;
    t.b_step = std::min(recurrent_panel<T>, packed_recurrent_row(n) - j);
    t.c = to.data + j;
    t.init = adds ? t.c : bias == nullptr ? bias : bias + j;
    const dim_t columns = std::min(recurrent_panel<T>, n - j);
    if (m == 1)
      multiply_row(t, 1, columns);
    else
      multiply_strips(t, m, columns);
  }
}
