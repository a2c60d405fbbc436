// What a direct convolution (conv_direct.hpp) does by vectors: tiles held in registers, and copies.

template <class T>
IKEBANA_CPU_INLINE void copy_few(T* to, const T* from, dim_t n) {
  constexpr dim_t w = vec<T>::size;
  if (n < w) return vec<T>::load(from, n).store(to, n);
  // The last register overlaps the one before: cheaper than a partial one.
  for (dim_t i = 0; i < n - w; i += w) vec<T>::load(from + i).store(to + i);
  vec<T>::load(from + n - w).store(to + n - w);
}
template <class T>
IKEBANA_CPU_INLINE void clear_few(T* to, dim_t n) {
  constexpr dim_t w = vec<T>::size;
  for (; n >= w; n -= w, to += w) vec<T>::zero().store(to);
  if (n > 0) vec<T>::zero().store(to, n);
}

template <class T>
void copy_rows(dim_t rows, dim_t length, const T* from, dim_t from_step, T* to, dim_t to_step) {
  if (length == from_step && length == to_step) return copy_few(to, from, rows * length);
  for (; rows > 0; --rows, from += from_step, to += to_step) copy_few(to, from, length);
}

/// Times zero, what is not finite is not a number, and everything else zero.
template <class T>
bool all_finite(dim_t n, const T* x) {
  constexpr dim_t w = vec<T>::size;
  const vec<T> zero = vec<T>::zero();
  vec<T> sums[4] = {zero, zero, zero, zero};
  for (; n >= 4 * w; n -= 4 * w, x += 4 * w)
    for (dim_t i = 0; i < 4; ++i) sums[i] = fma(vec<T>::load(x + i * w), zero, sums[i]);
  for (; n > 0; n -= w, x += w)
    sums[0] = fma(n < w ? vec<T>::load(x, n) : vec<T>::load(x), zero, sums[0]);
  return sum((sums[0] + sums[1]) + (sums[2] + sums[3])) == T(0);
}

/// out[i * out_step + j] = start[i] + sum over p of weights[p * Rows + i] * image[offsets[p] + j],
/// for i < Rows, j < Registers * size.
template <class T, int Rows, int Registers, std::size_t... J, std::size_t... I>
IKEBANA_CPU_INLINE void slide_tile(dim_t depth, const T* weights, const std::int32_t* offsets,
                                   const T* image, const T* start, T* out, dim_t out_step,
                                   std::index_sequence<J...>, std::index_sequence<I...>) {
  constexpr std::size_t n = Registers, width = static_cast<std::size_t>(vec<T>::size);
  vec<T> sums[] = {vec<T>::broadcast(start[I / n])...};
  for (dim_t p = 0; p < depth; ++p, weights += Rows) {
    const T* const from = image + offsets[p];
    const vec<T> columns[n] = {vec<T>::load(from + J * width)...};
    ((sums[I] = fma(vec<T>::broadcast(weights[I / n]), columns[I % n], sums[I])), ...);
  }
  (sums[I].store(out + static_cast<dim_t>(I / n) * out_step + (I % n) * width), ...);
}
template <class T, int Rows, int Registers>
[[gnu::noinline]] void slide_tile(dim_t depth, const T* weights, const std::int32_t* offsets,
                                  const T* image, const T* start, T* out, dim_t out_step) {
  slide_tile<T, Rows, Registers>(depth, weights, offsets, image, start, out, out_step,
                                 std::make_index_sequence<Registers>{},
                                 std::make_index_sequence<std::size_t{Rows} * Registers>{});
}

/// sums[r * Taps + s] = sum over images and positions of dy's row r times the image at offsets[s].
template <std::size_t Taps, std::size_t S, class T, std::size_t... R>
IKEBANA_CPU_INLINE void meet_tap(vec<T>* sums, const vec<T>* rows, vec<T> x,
                                 std::index_sequence<R...>) {
  ((sums[R * Taps + S] = fma(rows[R], x, sums[R * Taps + S])), ...);
}
template <class T, std::size_t... R, std::size_t... S, std::size_t... I>
IKEBANA_CPU_INLINE void dot_tile(dim_t images, dim_t steps, const T* dy, dim_t dy_row,
                                 dim_t dy_image, const T* x, dim_t x_image,
                                 const std::int32_t* offsets, T* out, std::index_sequence<R...>,
                                 std::index_sequence<S...>, std::index_sequence<I...>) {
  vec<T> sums[] = {(static_cast<void>(I), vec<T>::zero())...};
  for (; images > 0; --images, dy += dy_image, x += x_image) {
    const T* const taps[] = {x + offsets[S]...};
    for (dim_t at = 0; at < steps; at += vec<T>::size) {
      const vec<T> rows[] = {vec<T>::load(dy + static_cast<dim_t>(R) * dy_row + at)...};
      (meet_tap<sizeof...(S), S>(sums, rows, vec<T>::load(taps[S] + at),
                                 std::index_sequence<R...>{}),
       ...);
    }
  }
  ((out[I] = sum(sums[I])), ...);
}
template <class T, int Rows, int Taps>
[[gnu::noinline]] void dot_tile(dim_t images, dim_t steps, const T* dy, dim_t dy_row,
                                dim_t dy_image, const T* x, dim_t x_image,
                                const std::int32_t* offsets, T* out) {
  dot_tile(images, steps, dy, dy_row, dy_image, x, x_image, offsets, out,
           std::make_index_sequence<std::size_t{Rows}>{},
           std::make_index_sequence<std::size_t{Taps}>{},
           std::make_index_sequence<std::size_t{Rows} * Taps>{});
}

/// Where few channels are left, tiles of fewer rows are wider, so that sums do not wait for each
/// other.
template <class T>
const detail::direct_kernels<T>& kernels_for_direct() {
  static constexpr detail::direct_kernels<T> all {
    vec<T>::size, &copy_rows<T>, &pack_across<T>, &all_finite<T>,
#if IKEBANA_CPU_WIDTH == 64
        {{8, 3, &slide_tile<T, 8, 3>, &slide_tile<T, 8, 1>},
         {6, 4, &slide_tile<T, 6, 4>, &slide_tile<T, 6, 1>},
         {4, 6, &slide_tile<T, 4, 6>, &slide_tile<T, 4, 1>},
         {2, 8, &slide_tile<T, 2, 8>, nullptr},
         {1, 8, &slide_tile<T, 1, 8>, nullptr}},
        {{4, 6, &dot_tile<T, 4, 6>}, {2, 9, &dot_tile<T, 2, 9>}, {1, 9, &dot_tile<T, 1, 9>}}
#elif IKEBANA_CPU_WIDTH == 32
        {{4, 3, &slide_tile<T, 4, 3>, &slide_tile<T, 4, 1>},
         {2, 6, &slide_tile<T, 2, 6>, nullptr},
         {1, 8, &slide_tile<T, 1, 8>, nullptr}},
        {{4, 3, &dot_tile<T, 4, 3>}, {1, 9, &dot_tile<T, 1, 9>}}
#else
        {{4, 2, &slide_tile<T, 4, 2>, nullptr}, {1, 4, &slide_tile<T, 1, 4>, nullptr}}, {
      {2, 3, &dot_tile<T, 2, 3>}, { 1, 3, &dot_tile<T, 1, 3> }
    }
#endif
  };
  return all;
}
