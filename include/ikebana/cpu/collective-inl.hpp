template <class T>
void average_ranks(dim_t n, T* const* ranks, int world, dim_t offset, T scale) {
  constexpr dim_t w = vec<T>::size;
  const vec<T> factor = vec<T>::broadcast(scale);
  for (dim_t i = offset; i < offset + n; i += w) {
    const dim_t lanes = offset + n - i < w ? offset + n - i : w;
    vec<T> s = load_lanes(static_cast<const T*>(ranks[0]) + i, lanes);
    for (int r = 1; r < world; ++r) s = s + load_lanes(static_cast<const T*>(ranks[r]) + i, lanes);
    s = s * factor;
    for (int r = 0; r < world; ++r) store_lanes(s, ranks[r] + i, lanes);
  }
}
