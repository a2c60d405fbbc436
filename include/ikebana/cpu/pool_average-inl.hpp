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

/// The sums of n neighbouring windows, the first of which begins in column `column`.
template <class T>
IKEBANA_CPU_INLINE vec<T> sums_of_windows(const pool_geometry& g, const T* x, pool_span z,
                                          pool_span r, dim_t column, dim_t n) {
  vec<T> total = vec<T>::zero();
  for (dim_t iz = z.begin; iz < z.end; ++iz)
    for (dim_t iy = r.begin; iy < r.end; ++iy)
      for (dim_t k = 0; k < g.kernel[2]; ++k)
        total =
            total + load_strided(x + (iz * g.in[1] + iy) * g.in[2] + column + k, g.stride[2], n);
  return total;
}

template <class T>
void pool_average(const pool_geometry& g, const T* x, T* y, bool count_include_pad,
                  dim_t divisor_override) {
  constexpr dim_t w = vec<T>::size;
  const inner_columns inner = inner_columns_of(g, 1);
  const auto span = [&](std::size_t d, dim_t o) { return span_of(g, d, o, 1); };
  for_each_window_row(g, span, [&](dim_t plane, pool_span z, pool_span r, dim_t o) {
    const auto outer = [&](dim_t ox) {
      const pool_span c = span(2, ox);
      y[o + ox] = sum_of_window(g, x + plane, z, r, c) *
                  window_weight<T>(z, r, c, count_include_pad, divisor_override);
    };
    // A row of few windows that span much is summed along the windows.
    if (inner.end - inner.begin < w && g.kernel[2] >= w) {
      for (dim_t ox = 0; ox < g.out[2]; ++ox) outer(ox);
      return;
    }
    for (dim_t ox = 0; ox < inner.begin; ++ox) outer(ox);
    for (dim_t ox = inner.begin; ox < inner.end; ox += w) {
      const dim_t n = inner.end - ox < w ? inner.end - ox : w;
      const T weight = window_weight<T>(z, r, span(2, ox), count_include_pad, divisor_override);
      (sums_of_windows(g, x + plane, z, r, ox * g.stride[2] - g.padding[2], n) * weight)
          .store(y + o + ox, n);
    }
    for (dim_t ox = inner.end; ox < g.out[2]; ++ox) outer(ox);
  });
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
