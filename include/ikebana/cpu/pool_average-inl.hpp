template <class T>
IKEBANA_CPU_INLINE T window_weight(pool_span z, pool_span r, pool_span c, bool count_include_pad,
                                   dim_t divisor_override) {
  if (divisor_override != 0) return T(1) / static_cast<T>(divisor_override);
  const dim_t size = count_include_pad ? z.padded * r.padded * c.padded
                                       : (z.end - z.begin) * (r.end - r.begin) * (c.end - c.begin);
  return T(1) / static_cast<T>(size);
}

/// f(place, length) for each run of neighbours in an undilated window; what spans the whole width
/// or the whole plane is one run.
template <class G, class F>
IKEBANA_CPU_INLINE void for_each_run(const G& g, pool_span z, pool_span r, pool_span c, F f) {
  const dim_t height = r.end - r.begin, width = c.end - c.begin;
  if (width < g.in[2]) {
    for (dim_t iz = z.begin; iz < z.end; ++iz)
      for (dim_t iy = r.begin; iy < r.end; ++iy) f((iz * g.in[1] + iy) * g.in[2] + c.begin, width);
  } else if (height < g.in[1]) {
    for (dim_t iz = z.begin; iz < z.end; ++iz)
      f((iz * g.in[1] + r.begin) * g.in[2], height * width);
  } else {
    f(z.begin * height * width, (z.end - z.begin) * height * width);
  }
}

template <class T>
IKEBANA_CPU_INLINE T sum_run(const T* x, dim_t n) {
  constexpr dim_t w = vec<T>::size;
  T total = T(0);
  dim_t i = 0;
  if (w > 1 && n >= w) {
    vec<T> s0 = vec<T>::load(x), s1 = vec<T>::zero();
    for (i = w; i + 2 * w <= n; i += 2 * w) {
      s0 = s0 + vec<T>::load(x + i);
      s1 = s1 + vec<T>::load(x + i + w);
    }
    for (; i + w <= n; i += w) s0 = s0 + vec<T>::load(x + i);
    total = sum(s0 + s1);
  }
  for (; i < n; ++i) total += x[i];
  return total;
}
template <class T>
IKEBANA_CPU_INLINE void add_to_run(T share, T* x, dim_t n) {
  constexpr dim_t w = vec<T>::size;
  dim_t i = 0;
  if (w > 1)
    for (; i + w <= n; i += w) (vec<T>::load(x + i) + share).store(x + i);
  for (; i < n; ++i) x[i] += share;
}

template <class G, class T>
IKEBANA_CPU_INLINE T sum_of_window(const G& g, const T* x, pool_span z, pool_span r, pool_span c) {
  T total = T(0);
  for_each_run(g, z, r, c, [&](dim_t at, dim_t n) { total += sum_run(x + at, n); });
  return total;
}

/// The sums of `count` planes of n, each divided by `divisor`; some are found side by side.
template <class T>
void average_planes(dim_t count, dim_t n, const T* x, T divisor, T* y) {
  constexpr dim_t w = vec<T>::size;
  const dim_t rest = n % w, whole = n - rest;
  const vec<T> by = vec<T>::broadcast(T(1) / divisor);
  alignas(64) T partial[w * w];
  for (dim_t p = 0; p < count; p += w, y += w) {
    const dim_t now = count - p < w ? count - p : w;
    for (dim_t i = 0; i < now; ++i, x += n) {
      vec<T> s0 = vec<T>::zero(), s1 = rest > 0 ? vec<T>::load(x + whole, rest) : s0;
      dim_t j = 0;
      for (; j + 2 * w <= whole; j += 2 * w) {
        s0 = s0 + vec<T>::load(x + j);
        s1 = s1 + vec<T>::load(x + j + w);
      }
      if (j < whole) s0 = s0 + vec<T>::load(x + j);
      (s0 + s1).store(partial + i * w);
    }
    for (dim_t i = now; i < w; ++i) vec<T>::zero().store(partial + i * w);
    const vec<T> averages = sums_of(static_cast<const T*>(partial)) * by;
    if (now == w)
      averages.store(y);
    else
      averages.store(y, now);
  }
}
/// Each of `count` planes of n is filled with its gradient times `factor`.
template <class T>
void average_planes_backward(dim_t count, dim_t n, const T* dy, T factor, T* dx) {
  constexpr dim_t w = vec<T>::size;
  const dim_t rest = n % w, whole = n - rest;
  for (dim_t p = 0; p < count; ++p, dx += n) {
    const vec<T> share = vec<T>::broadcast(dy[p] * factor);
    for (dim_t j = 0; j < whole; j += w) share.store(dx + j);
    if (rest > 0) share.store(dx + whole, rest);
  }
}

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
template <class T>
void halve_by_average(const pool_geometry& g, const T* x, T factor, T* y) {
  constexpr dim_t w = vec<T>::size;
  const dim_t width = g.in[2];
  const vec<T> by = vec<T>::broadcast(factor);
  if (g.out[2] > 0 && g.out[2] < w && width == 2 * g.out[2] && g.in[1] == 2 * g.out[1] &&
      g.in[0] == g.out[0])
    return halve_narrow_rows(g.planes * g.out[0] * g.out[1], g.out[2], x, by, y);
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

/// before's last lane, then x's others; and x's lanes but the first, then next's first.
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
IKEBANA_CPU_INLINE even_odd<T> split_pairs(vec<T> a, vec<T> b) {
  return split_pairs(a, b, lane_sequence<T>{});
}
#endif

/// The sums, times `factor`, of windows of three by three in planes with one more column of zeros
/// at each side: of rows first, and then of neighbours, which no memory comes between.
template <class T>
void sums_by_threes(dim_t planes, dim_t in_height, dim_t width, dim_t out_height, dim_t out_width,
                    dim_t stride, dim_t padding, const T* x, T factor, T* y) {
  constexpr dim_t w = vec<T>::size;
  const vec<T> by = vec<T>::broadcast(factor), zero = vec<T>::zero();
  const auto put = [=](vec<T> s, T * to, dim_t left) __attribute__((always_inline)) {
    if (left >= w) [[likely]]
      (s * by).store(to);
    else
      (s * by).store(to, left);
  };
  if (stride == 1 && width <= w) {
    // A row is a register, and is read once.
    for (; planes > 0; --planes, x += in_height * width) {
      const auto row = [=](dim_t at) __attribute__((always_inline)) {
        return at >= 0 && at < in_height ? vec<T>::load(x + at * width, width) : zero;
      };
      vec<T> upper = row(-padding), middle = row(1 - padding);
      for (dim_t r = 0; r < out_height; ++r, y += out_width) {
        const vec<T> lower = row(r - padding + 2), s = upper + middle + lower;
        put(one_behind(zero, s) + s + one_ahead(s, zero), y, out_width);
        upper = middle;
        middle = lower;
      }
    }
    return;
  }
  T* const zeros = reinterpret_cast<T*>(detail::thread_scratch());
  std::memset(static_cast<void*>(zeros), 0, static_cast<std::size_t>(width) * sizeof(T));
  for (; planes > 0; --planes, x += in_height * width)
    for (dim_t r = 0; r < out_height; ++r, y += out_width) {
      const auto row = [=](dim_t at) { return at >= 0 && at < in_height ? x + at * width : zeros; };
      const dim_t top = r * stride - padding;
      const T *const upper = row(top), *const middle = row(top + 1), *const lower = row(top + 2);
      const auto columns = [=](dim_t j) __attribute__((always_inline)) {
        const dim_t n = width - j;
        if (n >= w) [[likely]]
          return vec<T>::load(upper + j) + vec<T>::load(middle + j) + vec<T>::load(lower + j);
        if (n <= 0) return zero;
        return vec<T>::load(upper + j, n) + vec<T>::load(middle + j, n) +
               vec<T>::load(lower + j, n);
      };
      vec<T> before = zero;
      if (stride == 1) {
        vec<T> here = columns(0);
        for (dim_t j = 0; j < out_width; j += w) {
          const vec<T> next = columns(j + w);
          put(one_behind(before, here) + here + one_ahead(here, next), y + j, out_width - j);
          before = here;
          here = next;
        }
      } else {
        for (dim_t j = 0; j < out_width; j += w) {
          const auto pairs = split_pairs(columns(2 * j), columns(2 * j + w));
          put(one_behind(before, pairs.odd) + pairs.even + pairs.odd, y + j, out_width - j);
          before = pairs.odd;
        }
      }
    }
}

/// Windows of any kind: rows of the input are summed first, then columns of what came out.
template <class T, class G, class S, class W>
IKEBANA_CPU_INLINE void average_by_rows(const G& g, S span, W weight, const T* x, T* y) {
  constexpr dim_t w = vec<T>::size;
  T* const row_sums = reinterpret_cast<T*>(detail::thread_scratch());
  const dim_t width = g.in[2];
  const bool apart = static_cast<std::size_t>(width) * sizeof(T) > detail::packed_b_bytes;
  for_each_window_row(g, span, [&](dim_t plane, pool_span z, pool_span r, dim_t o) {
    if (!apart)
      for (dim_t j = 0; j < width; j += w) {
        const dim_t n = width - j < w ? width - j : w;
        vec<T> total = vec<T>::zero();
        for (dim_t iz = z.begin; iz < z.end; ++iz)
          for (dim_t iy = r.begin; iy < r.end; ++iy) {
            const T* const from = x + plane + (iz * g.in[1] + iy) * width + j;
            total = total + (n == w ? vec<T>::load(from) : vec<T>::load(from, n));
          }
        total.store(row_sums + j, n);
      }
    for (dim_t ox = 0; ox < g.out[2]; ++ox) {
      const pool_span c = span(2, ox);
      const T total = apart ? sum_of_window(g, x + plane, z, r, c)
                            : sum_run(row_sums + c.begin, c.end - c.begin);
      y[o + ox] = total * weight(z, r, c);
    }
  });
}
template <class T>
void pool_average(const pool_geometry& g, const T* x, T* y, bool count_include_pad,
                  dim_t divisor_override) {
  average_by_rows(
      g, [&](std::size_t d, dim_t o) { return span_of(g, d, o, 1); },
      [&](pool_span z, pool_span r, pool_span c) {
        return window_weight<T>(z, r, c, count_include_pad, divisor_override);
      },
      x, y);
}

/// Adds to each window's elements its share of dy, `weight(spans) dy`.
template <class T, class G, class S, class W>
IKEBANA_CPU_INLINE void spread_over_windows(const G& g, S span, W weight, const T* dy, T* dx) {
  constexpr dim_t w = vec<T>::size;
  const dim_t n = g.planes * g.in[0] * g.in[1] * g.in[2], width = g.in[2];
  if (n == 0) return;
  std::memset(static_cast<void*>(dx), 0, static_cast<std::size_t>(n) * sizeof(T));
  if (g.out[2] == 1 || g.in[0] * g.in[1] == 1 ||
      static_cast<std::size_t>(width) * sizeof(T) > detail::packed_b_bytes) {
    for_each_window(g, span, [&](dim_t plane, pool_span z, pool_span r, pool_span c, dim_t o) {
      const T share = dy[o] * weight(z, r, c);
      for_each_run(g, z, r, c,
                   [&](dim_t at, dim_t length) { add_to_run(share, dx + plane + at, length); });
    });
    return;
  }
  // The shares of a row of windows are the same in all rows of the input that they span.
  T* const shares = reinterpret_cast<T*>(detail::thread_scratch());
  for_each_window_row(g, span, [&](dim_t plane, pool_span z, pool_span r, dim_t o) {
    std::memset(static_cast<void*>(shares), 0, static_cast<std::size_t>(width) * sizeof(T));
    for (dim_t ox = 0; ox < g.out[2]; ++ox) {
      const pool_span c = span(2, ox);
      const T share = dy[o + ox] * weight(z, r, c);
      for (dim_t ix = c.begin; ix < c.end; ++ix) shares[ix] += share;
    }
    for (dim_t iz = z.begin; iz < z.end; ++iz)
      for (dim_t iy = r.begin; iy < r.end; ++iy) {
        T* const row = dx + plane + (iz * g.in[1] + iy) * width;
        dim_t ix = 0;
        for (; ix + w <= width; ix += w)
          (vec<T>::load(row + ix) + vec<T>::load(shares + ix)).store(row + ix);
        for (; ix < width; ++ix) row[ix] += shares[ix];
      }
  });
}

template <class T>
void pool_average_backward(const pool_geometry& g, const T* dy, T* dx, bool count_include_pad,
                           dim_t divisor_override) {
  spread_over_windows(
      g, [&](std::size_t d, dim_t o) { return span_of(g, d, o, 1); },
      [&](pool_span z, pool_span r, pool_span c) {
        return window_weight<T>(z, r, c, count_include_pad, divisor_override);
      },
      dy, dx);
}
