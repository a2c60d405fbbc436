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
