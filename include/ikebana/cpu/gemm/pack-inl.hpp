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

#if IKEBANA_CPU_WIDTH >= 32
/// How many elements are turned together: those of 16 bytes.
template <class T>
inline constexpr dim_t quad = 16 / sizeof(T);

IKEBANA_CPU_INLINE __m128i lanes_of_quad(dim_t bytes) {
  return _mm_cmpgt_epi32(_mm_set1_epi32(static_cast<int>(bytes / 4)), _mm_setr_epi32(0, 1, 2, 3));
}
/// 16 bytes from each of as many places as `Parts`, side by side: half of the work is done by the
/// loads. Of each only the first `bytes` where `Some`.
template <int Parts, bool Some>
IKEBANA_CPU_INLINE auto load_parts(const float* x, dim_t step, dim_t bytes) {
  const auto part = [=](int i) __attribute__((always_inline)) {
    if constexpr (Some)
      return _mm_maskload_ps(x + i * step, lanes_of_quad(bytes));
    else
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
IKEBANA_CPU_INLINE void store_parts(float* to, __m128 x) { _mm_storeu_ps(to, x); }
IKEBANA_CPU_INLINE void store_parts(float* to, __m256 x) { _mm256_storeu_ps(to, x); }
#if IKEBANA_CPU_WIDTH == 64
IKEBANA_CPU_INLINE void store_parts(float* to, __m512 x) { _mm512_storeu_ps(to, x); }
#endif
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
/// `Some`: depth may be less than a quad. `Rows`: after every `length` p, `to` goes on `gap`
/// elements later.
template <int Parts, bool Some, bool Rows = false, class T>
IKEBANA_CPU_INLINE void turn_quads(T* to, dim_t width, const T* from, dim_t ld, dim_t depth,
                                   dim_t length = 0, dim_t gap = 0) {
  constexpr dim_t side = quad<T>, scale = sizeof(T) / 4;
  constexpr auto lanes = std::make_index_sequence<std::size_t{4 * Parts}>{};
  const dim_t step = side * scale * ld;
  T* next = to;
  dim_t left = length;
  for (dim_t p = 0; p < depth; p += side) {
    const dim_t column = Some || p + side <= depth ? p : depth - side,
                met = depth - p < side ? depth - p : side;
    if (Rows && column != p) {
      const dim_t row = column / length;
      next = to + column * width + row * gap;
      left = (row + 1) * length - column;
    }
    const auto load = [&](dim_t i) __attribute__((always_inline)) {
      return load_parts<Parts, Some>(reinterpret_cast<const float*>(from + i * ld + column), step,
                                     met * dim_t{sizeof(T)});
    };
    const auto put = [&](dim_t i, auto x) __attribute__((always_inline)) {
      if (Some && i >= met) return;
      auto* const at = reinterpret_cast<float*>(Rows ? next : to + (column + i) * width);
      if (Rows) {
        next += width;
        if (--left == 0) next += gap, left = length;
      }
      store_parts(at, x);
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
template <class T>
inline constexpr dim_t turned = 32 / sizeof(T);

/// By blocks of at least a quad: what is not a whole one overlaps the one before. `Rows` as above,
/// where count is at least turned<T>; so it is where depth is less than a quad.
template <bool Rows, class T>
IKEBANA_CPU_INLINE void turn_blocks(T* to, dim_t width, const T* from, dim_t ld, dim_t depth,
                                    dim_t count, dim_t length, dim_t gap) {
  constexpr dim_t q = quad<T>;
  // Rows of which a line each is in the same place of the cache are read a few at a time.
  const bool wide = IKEBANA_CPU_WIDTH == 64 && ld * dim_t{sizeof(T)} % 4096 != 0;
  const bool some = depth < q;
  // Few rows of the result at a time, so that they stay near while they are filled.
  for (dim_t begin = 0, rows; begin < depth; begin += rows) {
    rows = Rows || depth - begin < 64 + q ? depth - begin : 64;
    for (dim_t i = 0, side; i < count; i += side) {
      const dim_t left = count - i;
      side = wide && !some && left > 2 * q && count >= 4 * q ? 4 * q
             : Rows || some || (left > q && count >= 2 * q)  ? 2 * q
                                                             : q;
      const dim_t row = left >= side ? i : count - side;
      T* const at = to + begin * width + row;
      const T* const x = from + row * ld + begin;
#if IKEBANA_CPU_WIDTH == 64
      if (side == 4 * q) {
        turn_quads<4, false, Rows>(at, width, x, ld, rows, length, gap);
        continue;
      }
#endif
      if (!Rows && some)
        turn_quads<2, true>(at, width, x, ld, rows);
      else if (Rows || side == 2 * q)
        turn_quads<2, false, Rows>(at, width, x, ld, rows, length, gap);
      else
        turn_quads<1, false>(at, width, x, ld, rows);
    }
  }
}
#else
template <class T>
inline constexpr dim_t turned = vec<T>::size;

template <class T, std::size_t... R>
IKEBANA_CPU_INLINE void turn_block(T* to, dim_t width, const T* from, dim_t ld,
                                   std::index_sequence<R...>) {
  vec<T> rows[] = {vec<T>::load(from + static_cast<dim_t>(R) * ld)...};
  transpose_block(rows);
  (rows[R].store(to + static_cast<dim_t>(R) * width), ...);
}
template <bool, class T>
IKEBANA_CPU_INLINE void turn_blocks(T* to, dim_t width, const T* from, dim_t ld, dim_t depth,
                                    dim_t count, dim_t, dim_t) {
  constexpr dim_t side = vec<T>::size;
  for (dim_t i = 0; i < count; i += side) {
    const dim_t row = i + side <= count ? i : count - side;
    for (dim_t p = 0; p < depth; p += side) {
      const dim_t column = p + side <= depth ? p : depth - side;
      turn_block(to + column * width + row, width, from + row * ld + column, ld,
                 std::make_index_sequence<static_cast<std::size_t>(side)>{});
    }
  }
}
template <class T>
inline constexpr dim_t quad = vec<T>::size;
#endif
/// to[p * width + i] = from[i * ld + p] for p < depth, i < count.
template <class T>
[[gnu::noinline]] void turn(T* to, dim_t width, const T* from, dim_t ld, dim_t depth, dim_t count) {
  // Fewer floats than a quad may be loaded.
  const bool may_be_some =
      IKEBANA_CPU_WIDTH >= 32 && depth > 1 && sizeof(T) == 4 && count >= turned<T>;
  if (count >= quad<T> && (depth >= quad<T> || may_be_some))
    return turn_blocks<false>(to, width, from, ld, depth, count, dim_t{0}, dim_t{0});
  for (dim_t i = 0; i < count; ++i)
    for (dim_t p = 0; p < depth; ++p) to[p * width + i] = from[i * ld + p];
}

/// to[p * width + i] = from[i * ld + p] for p < depth, i < count; zero for count <= i < width.
template <class T>
[[gnu::noinline]] void pack_across(T* to, dim_t width, const T* from, dim_t ld, dim_t depth,
                                   dim_t count) {
  // Whole registers of zeros first: partial ones delay who reads them soon.
  constexpr dim_t w = vec<T>::size;
  if (const dim_t size = count < width ? depth * width : 0; size > 0) {
    dim_t i = 0;
    for (; i + w <= size; i += w) vec<T>::zero().store(to + i);
    if (i < size) vec<T>::zero().store(to + i, size - i);
  }
  turn(to, width, from, ld, depth, count);
}

/// to[j * width + p] = from[p * ld + j] for j < columns, p < count. Up to three rows more of `to`
/// are written.
template <class T>
[[gnu::noinline]] void pack_few_columns(T* to, dim_t width, const T* from, dim_t ld, dim_t columns,
                                        dim_t count) {
  dim_t p = 0;
#if IKEBANA_CPU_WIDTH >= 32
  constexpr dim_t most = turned<T> / 2;
  for (; p + turned<T> + most <= count; p += turned<T>)
    for (dim_t j = 0; j < columns; j += most)
      turn_quads<2, false>(to + j * width + p, width, from + p * ld + j, ld, most);
#endif
  for (; p < count; ++p)
    for (dim_t j = 0; j < columns; ++j) to[j * width + p] = from[p * ld + j];
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
