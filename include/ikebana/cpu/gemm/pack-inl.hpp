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

/// Turns a block: to[p * width + i] = from[i * ld + p] for p, i < turned<T>, or (`wide`) a
/// register.
#if IKEBANA_CPU_WIDTH >= 32
// Half of the work is done by the loads that fill the upper half of a register.
template <class T>
inline constexpr dim_t turned = 32 / sizeof(T);

IKEBANA_CPU_INLINE __m256 load_halves(const float* low, const float* high) {
  return _mm256_insertf128_ps(_mm256_castps128_ps256(_mm_loadu_ps(low)), _mm_loadu_ps(high), 1);
}
IKEBANA_CPU_INLINE __m256d load_halves(const double* low, const double* high) {
  return _mm256_insertf128_pd(_mm256_castpd128_pd256(_mm_loadu_pd(low)), _mm_loadu_pd(high), 1);
}
/// Half of a block's columns.
IKEBANA_CPU_INLINE void turn_columns(float* to, dim_t width, const float* x, dim_t ld) {
  const __m256 r0 = load_halves(x, x + 4 * ld), r1 = load_halves(x + ld, x + 5 * ld),
               r2 = load_halves(x + 2 * ld, x + 6 * ld), r3 = load_halves(x + 3 * ld, x + 7 * ld);
  const __m256d a = _mm256_castps_pd(_mm256_unpacklo_ps(r0, r1)),
                b = _mm256_castps_pd(_mm256_unpackhi_ps(r0, r1)),
                c = _mm256_castps_pd(_mm256_unpacklo_ps(r2, r3)),
                d = _mm256_castps_pd(_mm256_unpackhi_ps(r2, r3));
  _mm256_storeu_ps(to, _mm256_castpd_ps(_mm256_unpacklo_pd(a, c)));
  _mm256_storeu_ps(to + width, _mm256_castpd_ps(_mm256_unpackhi_pd(a, c)));
  _mm256_storeu_ps(to + 2 * width, _mm256_castpd_ps(_mm256_unpacklo_pd(b, d)));
  _mm256_storeu_ps(to + 3 * width, _mm256_castpd_ps(_mm256_unpackhi_pd(b, d)));
}
IKEBANA_CPU_INLINE void turn_columns(double* to, dim_t width, const double* x, dim_t ld) {
  const __m256d a = load_halves(x, x + 2 * ld), b = load_halves(x + ld, x + 3 * ld);
  _mm256_storeu_pd(to, _mm256_unpacklo_pd(a, b));
  _mm256_storeu_pd(to + width, _mm256_unpackhi_pd(a, b));
}
template <class T>
IKEBANA_CPU_INLINE void turn_block(T* to, dim_t width, const T* from, dim_t ld) {
  constexpr dim_t half = turned<T> / 2;
  turn_columns(to, width, from, ld);
  turn_columns(to + half * width, width, from + half, ld);
}
#if IKEBANA_CPU_WIDTH == 64
template <class T>
IKEBANA_CPU_INLINE __m512 load_quarters(const T* x, dim_t step) {
  const auto at = [=](int i) __attribute__((always_inline)) {
    return _mm_loadu_ps(reinterpret_cast<const float*>(x + i * step));
  };
  __m512 r = _mm512_castps128_ps512(at(0));
  r = _mm512_maskz_insertf32x4(all16, r, at(1), 1);
  r = _mm512_maskz_insertf32x4(all16, r, at(2), 2);
  return _mm512_maskz_insertf32x4(all16, r, at(3), 3);
}
IKEBANA_CPU_INLINE void turn_wide_block(float* to, dim_t width, const float* from, dim_t ld) {
  const auto quarter = [=](float* at, const float* x) __attribute__((always_inline)) {
    const __m512 r0 = load_quarters(x, 4 * ld), r1 = load_quarters(x + ld, 4 * ld),
                 r2 = load_quarters(x + 2 * ld, 4 * ld), r3 = load_quarters(x + 3 * ld, 4 * ld);
    const __m512d a = _mm512_castps_pd(_mm512_maskz_unpacklo_ps(all16, r0, r1)),
                  b = _mm512_castps_pd(_mm512_maskz_unpackhi_ps(all16, r0, r1)),
                  c = _mm512_castps_pd(_mm512_maskz_unpacklo_ps(all16, r2, r3)),
                  d = _mm512_castps_pd(_mm512_maskz_unpackhi_ps(all16, r2, r3));
    _mm512_storeu_ps(at, _mm512_castpd_ps(_mm512_maskz_unpacklo_pd(all8, a, c)));
    _mm512_storeu_ps(at + width, _mm512_castpd_ps(_mm512_maskz_unpackhi_pd(all8, a, c)));
    _mm512_storeu_ps(at + 2 * width, _mm512_castpd_ps(_mm512_maskz_unpacklo_pd(all8, b, d)));
    _mm512_storeu_ps(at + 3 * width, _mm512_castpd_ps(_mm512_maskz_unpackhi_pd(all8, b, d)));
  };
  quarter(to, from);
  quarter(to + 4 * width, from + 4);
  quarter(to + 8 * width, from + 8);
  quarter(to + 12 * width, from + 12);
}
IKEBANA_CPU_INLINE void turn_wide_block(double* to, dim_t width, const double* from, dim_t ld) {
  const auto quarter = [=](double* at, const double* x) __attribute__((always_inline)) {
    const __m512d a = _mm512_castps_pd(load_quarters(x, 2 * ld)),
                  b = _mm512_castps_pd(load_quarters(x + ld, 2 * ld));
    _mm512_storeu_pd(at, _mm512_maskz_unpacklo_pd(all8, a, b));
    _mm512_storeu_pd(at + width, _mm512_maskz_unpackhi_pd(all8, a, b));
  };
  quarter(to, from);
  quarter(to + 2 * width, from + 2);
  quarter(to + 4 * width, from + 4);
  quarter(to + 6 * width, from + 6);
}
#endif
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
template <class T>
IKEBANA_CPU_INLINE void turn_block(T* to, dim_t width, const T* from, dim_t ld) {
  turn_block(to, width, from, ld,
             std::make_index_sequence<static_cast<std::size_t>(vec<T>::size)>{});
}
#endif

/// to[p * width + i] = from[i * ld + p] for p < depth, i < count, by blocks: what is not a whole
/// one overlaps the one before.
template <class T, bool Wide>
IKEBANA_CPU_INLINE void turn_blocks(T* to, dim_t width, const T* from, dim_t ld, dim_t depth,
                                    dim_t count) {
  constexpr dim_t side = Wide ? vec<T>::size : turned<T>;
  // Few rows of the result at a time, so that they stay near while they are filled.
  for (dim_t begin = 0; begin < depth; begin += 64) {
    const dim_t end = begin + 64 < depth ? begin + 64 : depth;
    for (dim_t i = 0; i < count; i += side) {
      const dim_t row = i + side <= count ? i : count - side;
      for (dim_t p = begin; p < end; p += side) {
        const dim_t column = p + side <= depth ? p : depth - side;
#if IKEBANA_CPU_WIDTH == 64
        if constexpr (Wide) {
          turn_wide_block(to + column * width + row, width, from + row * ld + column, ld);
          continue;
        }
#endif
        turn_block(to + column * width + row, width, from + row * ld + column, ld);
      }
    }
  }
}

/// to[p * width + i] = from[i * ld + p] for p < depth, i < count; zero for count <= i < width.
template <class T>
[[gnu::noinline]] void pack_across(T* to, dim_t width, const T* from, dim_t ld, dim_t depth,
                                   dim_t count) {
  constexpr dim_t wide = vec<T>::size;
  // Rows of which a line each is in the same place of the cache are read a few at a time.
  const bool crowded = ld * dim_t{sizeof(T)} % 4096 == 0;
  if (wide > turned<T> && !crowded && depth >= wide && count >= wide) {
    turn_blocks<T, (wide > turned<T>)>(to, width, from, ld, depth, count);
  } else if (depth >= turned<T> && count >= turned<T>) {
    turn_blocks<T, false>(to, width, from, ld, depth, count);
  } else {
    for (dim_t i = 0; i < count; ++i)
      for (dim_t p = 0; p < depth; ++p) to[p * width + i] = from[i * ld + p];
  }
  if (count < width)
    for (dim_t p = 0; p < depth; ++p)
      for (dim_t i = count; i < width; ++i) to[p * width + i] = T(0);
}

/// to[j * width + p] = from[p * ld + j] for j < columns, p < count. Up to three rows more of `to`
/// are written.
template <class T>
[[gnu::noinline]] void turn_few_columns(T* to, dim_t width, const T* from, dim_t ld, dim_t columns,
                                        dim_t count) {
  dim_t p = 0;
#if IKEBANA_CPU_WIDTH >= 32
  constexpr dim_t most = turned<T> / 2;
  for (; p + turned<T> + most <= count; p += turned<T>)
    for (dim_t j = 0; j < columns; j += most)
      turn_columns(to + j * width + p, width, from + p * ld + j, ld);
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

/// One factor of a product as stored: element (p, i), p along the summed dimension, at p * ld + i
/// or (across) i * ld + p.
template <class T>
struct matrix_operand {
  const T* data;
  dim_t ld;
  bool across;
  bool may_be_direct;
  T scale = T(1);

  /// Panels can be read where they stand, with `ld` between their rows.
  bool direct() const { return may_be_direct && !across; }
  const T* source(dim_t p, dim_t i) const { return data + p * ld + i; }
  void pack(T* to, dim_t width, dim_t p, dim_t depth, dim_t i, dim_t count) const {
    if (across)
      pack_across(to, width, data + i * ld + p, ld, depth, count);
    else
      pack_along(to, width, data + p * ld + i, ld, depth, count);
  }
};

/// Rows of the left factor: element (i, p) at data[i * row + p * step].
template <class T>
struct left_block {
  const T* data;
  dim_t row, step;
};

/// Rows where they stand, or packed by rows, times the scale.
template <class T>
IKEBANA_CPU_INLINE left_block<T> take_left(const matrix_operand<T>& a, T* to, dim_t p, dim_t depth,
                                           dim_t i, dim_t rows) {
  const T* const from = a.data + (a.across ? i * a.ld + p : p * a.ld + i);
  if (a.may_be_direct && a.scale == T(1))
    return a.across ? left_block<T>{from, a.ld, 1} : left_block<T>{from, 1, a.ld};
  // An odd number of registers apart, so that rows do not contend for the same place in the cache.
  const dim_t step = ((depth + vec<T>::size - 1) / vec<T>::size | 1) * vec<T>::size;
  if (a.across) {
    copy_scaled(to, step, from, a.ld, rows, depth, a.scale);
  } else {
    pack_across(to, step, from, a.ld, rows, depth);
    if (a.scale != T(1))
      copy_scaled(to, step, static_cast<const T*>(to), step, rows, depth, a.scale);
  }
  return {to, step, 1};
}
