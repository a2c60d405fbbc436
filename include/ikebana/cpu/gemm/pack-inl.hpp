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
  for (dim_t p = 0; p < depth; ++p, to += width, from += ld) {
    (__builtin_prefetch(from + detail::gemm_costs::prefetched_rows * ld + J * w), ...);
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

#if IKEBANA_CPU_WIDTH >= 32
/// How many elements are turned together: those of 16 bytes.
template <class T>
inline constexpr dim_t quad = 16 / sizeof(T);

/// 16 bytes from each of as many places as `Parts`, side by side: half of the work is done by the
/// loads.
template <int Parts>
IKEBANA_CPU_INLINE auto load_parts(const float* x, dim_t step) {
  const auto part = [=](int i) __attribute__((always_inline)) {
    return _mm_loadu_ps(x + i * step);
  };
  if constexpr (Parts == 1) {
    return part(0);
  } else if constexpr (Parts == 2) {
    return _mm256_insertf128_ps(_mm256_castps128_ps256(part(0)), part(1), 1);
  } else {
#if IKEBANA_CPU_WIDTH == 64
    __m512 r = _mm512_castps128_ps512(part(0));
    r = _mm512_maskz_insertf32x4(all16, r, part(1), 1);
    r = _mm512_maskz_insertf32x4(all16, r, part(2), 2);
    return _mm512_maskz_insertf32x4(all16, r, part(3), 3);
#endif
  }
}
/// Within each 16 bytes, as many floats as `Unit` of a, then of b, from the lower half of both, or
/// from the higher.
template <int Unit, bool High, class R, std::size_t... L>
IKEBANA_CPU_INLINE R unpack(R a, R b, std::index_sequence<L...>) {
  constexpr auto lane = [](int l) {
    const int chunk = l % 4 / Unit;
    return l / 4 * 4 + (High ? 2 : 0) + chunk / 2 * Unit + l % Unit +
           (chunk % 2) * static_cast<int>(sizeof...(L));
  };
  return __builtin_shufflevector(a, b, lane(static_cast<int>(L))...);
}
/// to[p * width + i] = from[i * ld + p] for p < depth and the i of as many quads as `Parts`.
template <int Parts, class T>
IKEBANA_CPU_INLINE void turn_quads(T* to, dim_t width, const T* from, dim_t ld, dim_t depth) {
  constexpr dim_t side = quad<T>, scale = sizeof(T) / 4;
  constexpr auto lanes = std::make_index_sequence<std::size_t{4 * Parts}>{};
  for (dim_t p = 0; p < depth; p += side) {
    const dim_t column = p + side <= depth ? p : depth - side;
    const auto load = [&](dim_t i) __attribute__((always_inline)) {
      return load_parts<Parts>(reinterpret_cast<const float*>(from + i * ld + column),
                               side * scale * ld);
    };
    const auto put = [&](dim_t i, auto x) __attribute__((always_inline)) {
      std::memcpy(to + (column + i) * width, &x, sizeof x);
    };
    if constexpr (side == 4) {
      const auto r0 = load(0), r1 = load(1), r2 = load(2), r3 = load(3),
                 a = unpack<1, false>(r0, r1, lanes), b = unpack<1, true>(r0, r1, lanes),
                 c = unpack<1, false>(r2, r3, lanes), d = unpack<1, true>(r2, r3, lanes);
      put(0, unpack<2, false>(a, c, lanes));
      put(1, unpack<2, true>(a, c, lanes));
      put(2, unpack<2, false>(b, d, lanes));
      put(3, unpack<2, true>(b, d, lanes));
    } else {
      const auto r0 = load(0), r1 = load(1);
      put(0, unpack<2, false>(r0, r1, lanes));
      put(1, unpack<2, true>(r0, r1, lanes));
    }
  }
}
#endif

/// to[p * width + i] = from[i * ld + p] for p < depth, i < count; zero for count <= i < filled.
template <class T>
[[gnu::noinline]] void turn_and_fill(T* to, dim_t width, const T* from, dim_t ld, dim_t depth,
                                     dim_t count, dim_t filled) {
#if IKEBANA_CPU_WIDTH >= 32
  constexpr dim_t q = quad<T>, w = vec<T>::size;
  if (count < filled) {
    dim_t i = 0;
    for (; i + w <= depth * width; i += w) vec<T>::zero().store(to + i);
    if (i < depth * width) vec<T>::zero().store(to + i, depth * width - i);
  }
  // Faster than by whole registers; what is not a whole block overlaps the one before.
  if (count >= q && depth >= q) {
    // Few rows of the result at a time, so that they stay near while they are filled.
    constexpr dim_t near = detail::gemm_costs::turned_rows;
    for (dim_t begin = 0, rows; begin < depth; begin += rows) {
      rows = depth - begin < near + q ? depth - begin : near;
      for (dim_t i = 0, side; i < count; i += side) {
        side = count < 2 * q ? q : count - i > 2 * q && count >= w ? w : 2 * q;
        const dim_t row = i + side <= count ? i : count - side;
        T* const at = to + begin * width + row;
        const T* const x = from + row * ld + begin;
        if (side == q)
          turn_quads<1>(at, width, x, ld, rows);
        else if (w == 2 * q || side == w)
          turn_quads<w / q>(at, width, x, ld, rows);
        else
          turn_quads<2>(at, width, x, ld, rows);
      }
    }
    return;
  }
#else
  if (count != filled || (count > detail::gemm_costs::most_turned_singly &&
                          depth >= detail::gemm_costs::most_turned_singly))
    return transpose_into<T>(depth, from, ld, count, T(1), to, width, filled, false);
#endif
  for (dim_t i = 0; i < count; ++i, from += ld)
    for (dim_t p = 0; p < depth; ++p) to[p * width + i] = from[p];
}
/// to[p * width + i] = from[i * ld + p] for p < depth, i < count.
template <class T>
void turn(T* to, dim_t width, const T* from, dim_t ld, dim_t depth, dim_t count) {
  turn_and_fill(to, width, from, ld, depth, count, count);
}
/// The same; zero for count <= i < width.
template <class T>
void pack_across(T* to, dim_t width, const T* from, dim_t ld, dim_t depth, dim_t count) {
  turn_and_fill(to, width, from, ld, depth, count, width);
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
