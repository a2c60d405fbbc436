// Averages of windows of two by two, averages and maxima of three by three.

/// halve_by_average of planes of which nothing is left out, in `rows` rows of `width` windows, less
/// than a register: the sums of neighbours come first, in registers that pass over the ends of
/// rows.
template <class T>
IKEBANA_CPU_INLINE void halve_narrow_rows(dim_t rows, dim_t width, const T* x, vec<T> by, T* y) {
  constexpr dim_t w = vec<T>::size, near = dim_t{4} * 1024 / static_cast<dim_t>(sizeof(T));
  T* const sums = reinterpret_cast<T*>(detail::thread_scratch());
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

/// before's last lane, then x's others; x's lanes but the first, then next's first; x's but two,
/// then next's, or, of one lane, the one after it.
#if IKEBANA_CPU_WIDTH == 0
template <class T>
IKEBANA_CPU_INLINE vec<T> one_behind(vec<T> before, vec<T>) {
  return before;
}
template <class T>
IKEBANA_CPU_INLINE vec<T> one_ahead(vec<T>, vec<T> next) {
  return next;
}
template <class T>
IKEBANA_CPU_INLINE vec<T> two_ahead(vec<T>, vec<T>, vec<T> after) {
  return after;
}
template <class T>
IKEBANA_CPU_INLINE even_odd<T> split_pairs(vec<T> a, vec<T> b) {
  return {a, b};
}
#else
template <int By, class T, std::size_t... L>
IKEBANA_CPU_INLINE vec<T> shift_lanes(vec<T> a, vec<T> b, std::index_sequence<L...>) {
  return {__builtin_shufflevector(a.v, b.v, (static_cast<int>(L) + By)...)};
}
template <class T>
IKEBANA_CPU_INLINE vec<T> one_behind(vec<T> before, vec<T> x) {
  return shift_lanes<static_cast<int>(vec<T>::size) - 1>(before, x, lane_sequence<T>{});
}
template <class T>
IKEBANA_CPU_INLINE vec<T> one_ahead(vec<T> x, vec<T> next) {
  return shift_lanes<1>(x, next, lane_sequence<T>{});
}
template <class T>
IKEBANA_CPU_INLINE vec<T> two_ahead(vec<T> x, vec<T> next, vec<T>) {
  return shift_lanes<2>(x, next, lane_sequence<T>{});
}
template <class T>
IKEBANA_CPU_INLINE even_odd<T> split_pairs(vec<T> a, vec<T> b) {
  return split_pairs(a, b, lane_sequence<T>{});
}
#endif

/// The sums, times `factor`, of windows of three by three in planes with one more column of zeros
/// at each side, or none, or their maxima: of rows first, and then of neighbours, which no memory
/// comes between. Whether all that is watched was finite.
template <class By, bool HasMargins, class T>
bool join_by_threes(dim_t planes, dim_t in_height, dim_t width, dim_t out_height, dim_t out_width,
                    dim_t stride, dim_t padding, const T* x, T factor, T* y) {
  constexpr dim_t w = vec<T>::size;
  const vec<T> by = vec<T>::broadcast(factor), none = By::template none<T>();
  vec<T> watched = vec<T>::zero();
  const auto seen = [&](vec<T> v) __attribute__((always_inline)) {
    watched = By::watch(watched, v);
    return v;
  };
  const auto of_three = [](vec<T> a, vec<T> b, vec<T> c) __attribute__((always_inline)) {
    return By::join(By::join(a, b), c);
  };
  const auto put = [=](vec<T> s, T * to, dim_t left) __attribute__((always_inline)) {
    store_some(s * by, to, left);
  };
  if (stride == 1 && width <= w) {
    // A row is a register, and is read once.
    for (; planes > 0; --planes, x += in_height * width) {
      const auto row = [&](dim_t at) __attribute__((always_inline)) {
        if (at < 0 || at >= in_height) return none;
        return By::first_lanes(seen(vec<T>::load(x + at * width, width)), width);
      };
      vec<T> upper = row(-padding), middle = row(1 - padding);
      for (dim_t r = 0; r < out_height; ++r, y += out_width) {
        const vec<T> lower = row(r - padding + 2), s = of_three(upper, middle, lower);
        const vec<T> ahead = one_ahead(s, none);
        put(HasMargins ? of_three(one_behind(none, s), s, ahead)
                       : of_three(s, ahead, two_ahead(s, none, none)),
            y, out_width);
        upper = middle;
        middle = lower;
      }
    }
    return sum(watched) == T(0);
  }
  T* const nothing = reinterpret_cast<T*>(detail::thread_scratch());
  for (dim_t j = 0; j < width; j += w) none.store(nothing + j);
  for (; planes > 0; --planes, x += in_height * width)
    for (dim_t r = 0; r < out_height; ++r, y += out_width) {
      const auto row = [=](dim_t at) {
        return at >= 0 && at < in_height ? x + at * width : nothing;
      };
      const dim_t top = r * stride - padding;
      const T *const upper = row(top), *const middle = row(top + 1), *const lower = row(top + 2);
      const auto columns = [&](dim_t j) __attribute__((always_inline)) {
        const dim_t n = width - j;
        if (n >= w) [[likely]]
          return of_three(seen(vec<T>::load(upper + j)), seen(vec<T>::load(middle + j)),
                          seen(vec<T>::load(lower + j)));
        if (n <= 0) return none;
        return By::first_lanes(
            of_three(seen(vec<T>::load(upper + j, n)), seen(vec<T>::load(middle + j, n)),
                     seen(vec<T>::load(lower + j, n))),
            n);
      };
      vec<T> before = none;
      if (stride == 1) {
        vec<T> here = columns(0);
        for (dim_t j = 0; j < out_width; j += w) {
          const vec<T> next = columns(j + w), ahead = one_ahead(here, next);
          if constexpr (HasMargins)
            put(of_three(one_behind(before, here), here, ahead), y + j, out_width - j);
          else
            put(of_three(here, ahead, two_ahead(here, next, w == 1 ? columns(j + 2) : none)), y + j,
                out_width - j);
          before = here;
          here = next;
        }
      } else if constexpr (HasMargins) {
        for (dim_t j = 0; j < out_width; j += w) {
          const auto pairs = split_pairs(columns(2 * j), columns(2 * j + w));
          put(of_three(one_behind(before, pairs.odd), pairs.even, pairs.odd), y + j, out_width - j);
          before = pairs.odd;
        }
      } else {
        auto pairs = split_pairs(columns(0), columns(w));
        for (dim_t j = 0; j < out_width; j += w) {
          const auto next = split_pairs(columns(2 * j + 2 * w), columns(2 * j + 3 * w));
          put(of_three(pairs.even, pairs.odd, one_ahead(pairs.even, next.even)), y + j,
              out_width - j);
          pairs = next;
        }
      }
    }
  return sum(watched) == T(0);
}
template <class T>
void sums_by_threes(dim_t planes, dim_t in_height, dim_t width, dim_t out_height, dim_t out_width,
                    dim_t stride, dim_t padding, const T* x, T factor, T* y) {
  join_by_threes<by_sum, true>(planes, in_height, width, out_height, out_width, stride, padding, x,
                               factor, y);
}
template <class T>
bool maxima_by_threes(dim_t planes, dim_t in_height, dim_t width, dim_t out_height, dim_t out_width,
                      dim_t stride, dim_t padding, bool has_margins, const T* x, T* y) {
  return (has_margins ? &join_by_threes<by_maximum, true, T>
                      : &join_by_threes<by_maximum, false, T>)(planes, in_height, width, out_height,
                                                               out_width, stride, padding, x, T(1),
                                                               y);
}
