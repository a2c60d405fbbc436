// A block of as many registers as each has lanes, transposed.

/// Transposes rows[0, size) in place as a matrix of size x size.
#if IKEBANA_CPU_WIDTH == 0
template <class T>
IKEBANA_CPU_INLINE void transpose_block(vec<T>*) {}
#else
template <int D, class R, std::size_t... L>
IKEBANA_CPU_INLINE void exchange(R& a, R& b, std::index_sequence<L...>) {
  constexpr int n = static_cast<int>(sizeof...(L));
  const R low = __builtin_shufflevector(
      a, b,
      ((static_cast<int>(L) & D) == 0 ? static_cast<int>(L) : static_cast<int>(L) - D + n)...);
  const R high = __builtin_shufflevector(
      a, b,
      ((static_cast<int>(L) & D) == 0 ? static_cast<int>(L) + D : static_cast<int>(L) + n)...);
  a = low;
  b = high;
}
template <int D, class T, std::size_t... I>
IKEBANA_CPU_INLINE void transpose_stage(vec<T>* rows, std::index_sequence<I...>) {
  // Row i and row i + D, for every i without bit D.
  (exchange<D>(rows[(I / D) * 2 * D + I % D].v, rows[(I / D) * 2 * D + I % D + D].v,
               std::make_index_sequence<static_cast<std::size_t>(vec<T>::size)>{}),
   ...);
}
template <class T>
IKEBANA_CPU_INLINE void transpose_block(vec<T>* rows) {
  using pairs = std::make_index_sequence<static_cast<std::size_t>(vec<T>::size / 2)>;
  transpose_stage<1>(rows, pairs{});
  if constexpr (vec<T>::size >= 4) transpose_stage<2>(rows, pairs{});
  if constexpr (vec<T>::size >= 8) transpose_stage<4>(rows, pairs{});
  if constexpr (vec<T>::size >= 16) transpose_stage<8>(rows, pairs{});
}
#endif

template <class T, std::size_t... R>
IKEBANA_CPU_INLINE void transpose_into(dim_t depth, const T* from, dim_t step, dim_t count,
                                       T factor, T* to, dim_t to_step, dim_t width, bool adds,
                                       std::index_sequence<R...>) {
  constexpr dim_t w = vec<T>::size;
  const vec<T> scale = vec<T>::broadcast(factor);
  // Some rows of the result at a time, so that they stay near while they are filled.
  constexpr dim_t near = 64;
  for (dim_t begin = 0; begin < depth; begin += near)
    for (dim_t i = 0; i < width; i += w)
      for (dim_t p = begin; p < depth && p < begin + near; p += w) {
        const dim_t n = depth - p < w ? depth - p : w, lanes = count - i < w ? count - i : w,
                    written = width - i < w ? width - i : w;
        const T* const at = from + i * step + p;
        vec<T> rows[w];
        if (n == w && lanes == w)
          ((rows[R] = vec<T>::load(at + static_cast<dim_t>(R) * step)), ...);
        else
          ((rows[R] = static_cast<dim_t>(R) < lanes
                          ? vec<T>::load(at + static_cast<dim_t>(R) * step, n)
                          : vec<T>::zero()),
           ...);
        transpose_block(rows);
        T* row = to + p * to_step + i;
        for (dim_t r = 0; r < n; ++r, row += to_step) {
          if (adds)
            rows[r] = vec<T>::load(row, written) + rows[r];
          else
            rows[r] = rows[r] * scale;
          written == w ? rows[r].store(row) : rows[r].store(row, written);
        }
      }
}
/// to[p * to_step + i] = factor * from[i * step + p] for p < depth and i < count, 0 for count <= i
/// < width, or is added to it (then without the factor).
template <class T>
[[gnu::noinline]] void transpose_into(dim_t depth, const T* from, dim_t step, dim_t count, T factor,
                                      T* to, dim_t to_step, dim_t width, bool adds) {
  transpose_into(depth, from, step, count, factor, to, to_step, width, adds,
                 std::make_index_sequence<static_cast<std::size_t>(vec<T>::size)>{});
}
