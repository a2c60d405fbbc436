// Products of sizes that the compiler knows.
// Needs: tile-inl.hpp, product-inl.hpp.

/// Of dense matrices: one tile, compiled for these sizes, where the result fits into one.
template <class T, dim_t M, dim_t N, dim_t K, transpose A, transpose B>
void fixed_product(const T* a, const T* b, T* c) {
  constexpr int vectors = N <= vec<T>::size ? 1 : 2, most = gemm_tile<T>::most_rows[vectors];
  if constexpr (B == transpose::no && N <= gemm_tile<T>::columns && M <= most) {
    tile_task<T> t;
    t.a = a;
    t.a_row = A == transpose::no ? K : 1;
    t.a_step = A == transpose::no ? 1 : M;
    t.b = b;
    t.b_step = t.c_row = N;
    t.c = c;
    t.depth = K;
    t.start = tile_start::zero;
    t.relu = false;
    set_columns(t, vectors, N);
    multiply_tile_inline<T, static_cast<int>(M), vectors>(t);
  } else {
    product(gemm_call<T>{M, N, K, a, A == transpose::no ? K : M, b, B == transpose::no ? N : K, c,
                         N, &detail::no_epilogue<T>, T(1), T(0), A, B});
  }
}
