// The factors of a product: how they are read where they stand, and copied where they are better
// read compactly.

/// The lanes of the next register where `left` elements are left.
template <class T>
IKEBANA_CPU_INLINE dim_t lanes_left(dim_t left) {
  return left < 0 ? 0 : left < vec<T>::size ? left : vec<T>::size;
}

template <class T, std::size_t... J>
IKEBANA_CPU_INLINE void pack_registers(T* to, const T* from, dim_t ld, dim_t depth,
                                       std::index_sequence<J...>) {
  constexpr std::size_t w = static_cast<std::size_t>(vec<T>::size), width = sizeof...(J) * w;
  // Rows are too far apart for the processor to foresee.
  constexpr dim_t ahead = 6;
  for (dim_t p = 0; p < depth; ++p, to += width, from += ld) {
    (__builtin_prefetch(from + ahead * ld + J * w), ...);
    (vec<T>::load(from + J * w).store(to + J * w), ...);
  }
}

/// to[p * width + i] = from[p * ld + i] for p < depth, i < count; zero for count <= i < width. May
/// write up to a register past the end of `to`.
template <class T>
[[gnu::noinline]] void pack_along(T* to, dim_t width, const T* from, dim_t ld, dim_t depth,
                                  dim_t count) {
  constexpr dim_t w = vec<T>::size;
  if (count == width) {
    if (width == 4 * w) return pack_registers(to, from, ld, depth, std::make_index_sequence<4>{});
    if (width == 3 * w) return pack_registers(to, from, ld, depth, std::make_index_sequence<3>{});
    if (width == 2 * w) return pack_registers(to, from, ld, depth, std::make_index_sequence<2>{});
  }
  // A full register spills into the next row, which is written later.
  for (dim_t p = 0; p < depth; ++p, to += width, from += ld)
    for (dim_t i = 0; i < width; i += w) {
      const dim_t n = lanes_left<T>(count - i);
      (n == w ? vec<T>::load(from + i) : vec<T>::load(from + (n > 0 ? i : 0), n)).store(to + i);
    }
}

/// to[p * width + i] = from[i * ld + p] for p < depth, i < count.
template <class T>
[[gnu::noinline]] void turn(T* to, dim_t width, const T* from, dim_t ld, dim_t depth, dim_t count) {
  transpose_into<T>(depth, from, ld, count, T(1), to, width, count, false);
}
/// The same; zero for count <= i < width.
template <class T>
[[gnu::noinline]] void pack_across(T* to, dim_t width, const T* from, dim_t ld, dim_t depth,
                                   dim_t count) {
  transpose_into<T>(depth, from, ld, count, T(1), to, width, width, false);
}

/// to[r * to_step + i] = scale * from[r * ld + i] for r < rows, i < count.
template <class T>
[[gnu::noinline]] void copy_scaled(T* to, dim_t to_step, const T* from, dim_t ld, dim_t rows,
                                   dim_t count, T scale) {
  constexpr dim_t w = vec<T>::size;
  for (; rows > 0; --rows, to += to_step, from += ld) {
    dim_t i = 0;
    for (; i + w <= count; i += w) (vec<T>::load(from + i) * scale).store(to + i);
    if (i < count) (vec<T>::load(from + i, count - i) * scale).store(to + i, count - i);
  }
}
