using detail::any_windows, detail::pool_span;

/// f(input plane's offset, spans of depth and height, output's offset) for every row of windows.
template <class F>
IKEBANA_CPU_INLINE void for_each_window_row(const any_windows& g, F f) {
  const dim_t plane_size = g.in[0] * g.in[1] * g.in[2];
  dim_t o = 0;
  for (dim_t plane = 0; plane < g.planes; ++plane)
    for (dim_t oz = 0; oz < g.out[0]; ++oz) {
      const pool_span z = g.span(0, oz);
      for (dim_t oy = 0; oy < g.out[1]; ++oy, o += g.out[2])
        f(plane * plane_size, z, g.span(1, oy), o);
    }
}

/// Columns of windows, found once for all rows of them where the lists have room.
class window_columns {
 public:
  explicit window_columns(const any_windows& g) : windows_{g} {
    if (static_cast<std::size_t>(g.out[2]) * sizeof(pool_span) > detail::list_bytes) return;
    known_ = reinterpret_cast<pool_span*>(detail::thread_lists());
    for (dim_t o = 0; o < g.out[2]; ++o) known_[o] = g.span(2, o);
  }
  IKEBANA_CPU_INLINE pool_span operator[](dim_t o) const {
    return known_ != nullptr ? known_[o] : windows_.span(2, o);
  }

 private:
  const any_windows& windows_;
  pool_span* known_ = nullptr;
};
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
template <class F>
IKEBANA_CPU_INLINE void for_each_run(const any_windows& g, pool_span z, pool_span r, pool_span c,
                                     F f) {
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

template <class T>
IKEBANA_CPU_INLINE T sum_of_window(const any_windows& g, const T* x, pool_span z, pool_span r,
                                   pool_span c) {
  T total = T(0);
  for_each_run(g, z, r, c, [&](dim_t at, dim_t n) { total += sum_run(x + at, n); });
  return total;
}

/// The sums of `count` planes of n, each times `factor`; some are found side by side.
template <class T>
void average_planes(dim_t count, dim_t n, const T* x, T factor, T* y) {
  constexpr dim_t w = vec<T>::size;
  const dim_t rest = n % w, whole = n - rest;
  const vec<T> by = vec<T>::broadcast(factor);
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

/// Windows of any kind: rows of the input are summed first, then columns of what came out.
template <class T>
void pool_average(const any_windows& g, const T* x, T* y, bool count_include_pad,
                  dim_t divisor_override) {
  constexpr dim_t w = vec<T>::size;
  const window_columns columns(g);
  T* const row_sums = detail::thread_scratch<T>();
  const dim_t width = g.in[2];
  const bool apart = static_cast<std::size_t>(width) * sizeof(T) > detail::packed_b_bytes;
  for_each_window_row(g, [&](dim_t plane, pool_span z, pool_span r, dim_t o) {
    if (!apart)
      for (dim_t j = 0; j < width; j += w) {
        const dim_t n = width - j < w ? width - j : w;
        vec<T> total = vec<T>::zero();
        for (dim_t iz = z.begin; iz < z.end; ++iz)
          for (dim_t iy = r.begin; iy < r.end; ++iy) {
            const T* const from = x + plane + (iz * g.in[1] + iy) * width + j;
            total = total + (n == w ? vec<T>::load(from) : vec<T>::load(from, n));
          }
        total.store(row_sums + j);
      }
    for (dim_t ox = 0; ox < g.out[2]; ++ox) {
      const pool_span c = columns[ox];
      const T total = apart ? sum_of_window(g, x + plane, z, r, c)
                            : sum_run(row_sums + c.begin, c.end - c.begin);
      y[o + ox] = total * window_weight<T>(z, r, c, count_include_pad, divisor_override);
    }
  });
}
/// Adds to each window's elements its share of dy.
template <class T>
void pool_average_backward(const any_windows& g, const T* dy, T* dx, bool count_include_pad,
                           dim_t divisor_override) {
  constexpr dim_t w = vec<T>::size;
  const dim_t n = g.planes * g.in[0] * g.in[1] * g.in[2], width = g.in[2];
  if (n == 0) return;
  const window_columns columns(g);
  const auto weight = [=](pool_span z, pool_span r, pool_span c) {
    return window_weight<T>(z, r, c, count_include_pad, divisor_override);
  };
  std::memset(static_cast<void*>(dx), 0, static_cast<std::size_t>(n) * sizeof(T));
  if (g.out[2] == 1 || g.in[0] * g.in[1] == 1 ||
      static_cast<std::size_t>(width) * sizeof(T) > detail::packed_b_bytes) {
    for_each_window_row(g, [&](dim_t plane, pool_span z, pool_span r, dim_t o) {
      for (dim_t ox = 0; ox < g.out[2]; ++ox) {
        const pool_span c = columns[ox];
        const T share = dy[o + ox] * weight(z, r, c);
        for_each_run(g, z, r, c,
                     [&](dim_t at, dim_t length) { add_to_run(share, dx + plane + at, length); });
      }
    });
    return;
  }
  // The shares of a row of windows are the same in all rows of the input that they span.
  T* const shares = detail::thread_scratch<T>();
  for_each_window_row(g, [&](dim_t plane, pool_span z, pool_span r, dim_t o) {
    std::memset(static_cast<void*>(shares), 0, static_cast<std::size_t>(width) * sizeof(T));
    for (dim_t ox = 0; ox < g.out[2]; ++ox) {
      const pool_span c = columns[ox];
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

/// dy of windows of different sizes, each divided by its own: row_factors of all rows of a plane's
/// windows, column_factors of those of a row.
template <class T>
void divide_windows(dim_t planes, dim_t rows, dim_t width, const T* row_factors,
                    const T* column_factors, const T* dy, T* to) {
  constexpr dim_t w = vec<T>::size;
  for (; planes > 0; --planes)
    for (dim_t r = 0; r < rows; ++r, dy += width, to += width)
      for (dim_t c = 0; c < width; c += w) {
        const dim_t n = width - c < w ? width - c : w;
        const vec<T> v =
            vec<T>::load(dy + c, n) * vec<T>::load(column_factors + c, n) * row_factors[r];
        v.store(to + c, n);
      }
}
