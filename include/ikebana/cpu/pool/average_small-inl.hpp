// Averages of windows of two by two.

/// halve_by_average of planes of which nothing is left out, in `rows` rows of `width` windows, less
/// than a register: the sums of neighbours come first, in registers that pass over the ends of
/// rows.
template <class T>
IKEBANA_CPU_INLINE void halve_narrow_rows(dim_t rows, dim_t width, const T* x, vec<T> by, T* y) {
  constexpr dim_t w = vec<T>::size, near = dim_t{4} * 1024 / static_cast<dim_t>(sizeof(T));
  T* const sums = detail::thread_scratch<T>();
  T* const end = y + rows * width;
  const dim_t step = near / (2 * width);
  for (dim_t first = 0; first < rows; first += step) {
    const dim_t now = rows - first < step ? rows - first : step, pairs = 2 * now * width;
    dim_t i = 0;
    for (; i + w <= pairs; i += w) {
      const auto pair = load_pairs(x + 2 * i);
      (pair.even + pair.odd).store(sums + i);
    }
    if (i < pairs) {
      const auto pair = load_pairs(x + 2 * i, pairs - i);
      (pair.even + pair.odd).store(sums + i);
    }
    x += 2 * pairs;
    const T* upper = sums;
    for (dim_t r = 0; r < now; ++r, upper += 2 * width, y += width) {
      const vec<T> s = (vec<T>::load(upper) + vec<T>::load(upper + width)) * by;
      // What is too much the next row writes over.
      if (end - y >= w) [[likely]]
        s.store(y);
      else
        s.store(y, end - y);
    }
  }
}
#if IKEBANA_CPU_WIDTH == 64
/// The same of at most half a register: as many rows at a time as the sums in two registers are of.
template <class T>
IKEBANA_CPU_INLINE void halve_rows_together(dim_t rows, dim_t width, const T* x, vec<T> by, T* y) {
  using B = typename number<T>::bits;
  constexpr dim_t w = vec<T>::size;
  const dim_t together = w / width;
  B places[w];
  for (dim_t i = 0, skipped = 0; i < w; ++i) {
    if (i == skipped + width) skipped = i;
    places[i] = static_cast<B>(skipped + i);
  }
  const bits_of<T> upper = bits_of<T>::load(places),
                   lower = upper + bits_of<T>::broadcast(static_cast<B>(width));
  const auto put = [=](even_odd<T> a, even_odd<T> b, T * to, dim_t n)
      __attribute__((always_inline)) {
    const vec<T> s = a.even + a.odd, t = b.even + b.odd;
    ((pick_lanes(s, upper, t) + pick_lanes(s, lower, t)) * by).store(to, n);
  };
  const dim_t step = together * width;
  dim_t left = rows * width;
  for (; left >= w; left -= step, x += 4 * step, y += step)
    put(load_pairs(x), load_pairs(x + 2 * w), y, step);
  for (; left > 0; left -= step, x += 4 * step, y += step) {
    const dim_t n = left < step ? left : step, pairs = 2 * n, first = pairs < w ? pairs : w;
    put(load_pairs(x, first), load_pairs(x + 2 * first, pairs - first), y, n);
  }
}
#endif

template <class T>
void halve_by_average(const pool_geometry& g, const T* x, T factor, T* y) {
  constexpr dim_t w = vec<T>::size;
  const dim_t width = g.in[2];
  const vec<T> by = vec<T>::broadcast(factor);
  if (g.out[2] > 0 && g.out[2] < w && width == 2 * g.out[2] && g.in[1] == 2 * g.out[1] &&
      g.in[0] == g.out[0]) {
    const dim_t rows = g.planes * g.out[0] * g.out[1];
#if IKEBANA_CPU_WIDTH == 64
    if (width <= w) return halve_rows_together(rows, g.out[2], x, by, y);
#endif
    return halve_narrow_rows(rows, g.out[2], x, by, y);
  }
  for (dim_t plane = 0; plane < g.planes; ++plane, x += g.in[0] * g.in[1] * width)
    for (dim_t z = 0; z < g.out[0]; ++z)
      for (dim_t r = 0; r < g.out[1]; ++r, y += g.out[2]) {
        const T* const from = x + (z * g.in[1] + 2 * r) * width;
        for (dim_t c = 0; c < g.out[2]; c += w) {
          const dim_t n = g.out[2] - c < w ? g.out[2] - c : w;
          const auto upper = load_pairs(from + 2 * c, n),
                     lower = load_pairs(from + width + 2 * c, n);
          const vec<T> s = ((upper.even + upper.odd) + (lower.even + lower.odd)) * by;
          if (n == w)
            s.store(y + c);
          else
            s.store(y + c, n);
        }
      }
}
template <class T>
void halve_by_average_backward(const pool_geometry& g, const T* dy, T factor, T* dx) {
  constexpr dim_t w = vec<T>::size;
  const dim_t width = g.in[2], height = g.in[1], out = g.out[2];
  const vec<T> by = vec<T>::broadcast(factor);
  const auto clear = [](T* p, dim_t n) {
    if (n > 0) std::memset(static_cast<void*>(p), 0, static_cast<std::size_t>(n) * sizeof(T));
  };
  for (dim_t plane = 0; plane < g.planes; ++plane) {
    for (dim_t z = 0; z < g.out[0]; ++z, dx += height * width) {
      for (dim_t r = 0; r < g.out[1]; ++r, dy += out) {
        T* const upper = dx + 2 * r * width;
        T* const lower = upper + width;
        for (dim_t c = 0; c < out; c += w) {
          const dim_t n = out - c < w ? out - c : w;
          const vec<T> share = (n == w ? vec<T>::load(dy + c) : vec<T>::load(dy + c, n)) * by;
          store_pairs(share, share, upper + 2 * c, n);
          store_pairs(share, share, lower + 2 * c, n);
        }
        clear(upper + 2 * out, width - 2 * out);
        clear(lower + 2 * out, width - 2 * out);
      }
      clear(dx + 2 * g.out[1] * width, (height - 2 * g.out[1]) * width);
    }
    clear(dx, (g.in[0] - g.out[0]) * height * width);
    dx += (g.in[0] - g.out[0]) * height * width;
  }
}
