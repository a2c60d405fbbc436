// Windows of any kind: averages of those of any sizes, and places of maxima. Of averages, for each
// row of windows, rows of the input are summed first, then columns of what came out; backward, the
// shares of a row of windows are added to all rows of the input that it meets.

/// f(input plane's offset, spans of depth and height, number of the first) for every row of
/// windows.
template <class F>
IKEBANA_CPU_INLINE void for_each_window_row(const detail::any_windows& g, F f) {
  dim_t o = 0;
  for (dim_t plane = 0; plane < g.planes; ++plane)
    for (dim_t oz = 0; oz < g.out[0]; ++oz) {
      const detail::pool_span z = g.span(0, oz);
      for (dim_t oy = 0; oy < g.out[1]; ++oy, o += g.out[2])
        f(plane * g.in[0] * g.in[1] * g.in[2], z, g.span(1, oy), o);
    }
}
template <class T>
IKEBANA_CPU_INLINE T window_weight(detail::pool_span z, detail::pool_span r, detail::pool_span c,
                                   bool count_include_pad, dim_t divisor_override) {
  if (divisor_override != 0) return T(1) / static_cast<T>(divisor_override);
  const dim_t size = count_include_pad ? z.padded * r.padded * c.padded
                                       : (z.end - z.begin) * (r.end - r.begin) * (c.end - c.begin);
  return T(1) / static_cast<T>(size);
}

/// `columns` are the windows along a row, and `row` has room for one of the input.
template <class T>
void average_windows(const detail::any_windows& g, const detail::pool_span* columns, T* row,
                     const T* x, T* y, bool count_include_pad, dim_t divisor_override) {
  constexpr dim_t w = vec<T>::size;
  const dim_t width = g.in[2];
  for_each_window_row(g, [&](dim_t plane, detail::pool_span z, detail::pool_span r, dim_t o) {
    for (dim_t j = 0; j < width; j += w) {
      const dim_t n = width - j < w ? width - j : w;
      vec<T> total = vec<T>::zero();
      for (dim_t iz = z.begin; iz < z.end; ++iz)
        for (dim_t iy = r.begin; iy < r.end; ++iy)
          total = total + vec<T>::load(x + plane + (iz * g.in[1] + iy) * width + j, n);
      total.store(row + j);
    }
    for (dim_t ox = 0; ox < g.out[2]; ++ox) {
      const detail::pool_span c = columns[ox];
      T total = T(0);
      dim_t i = c.begin;
      if (w > 1 && i + w <= c.end) {
        vec<T> some = vec<T>::load(row + i);
        for (i += w; i + w <= c.end; i += w) some = some + vec<T>::load(row + i);
        total = sum(some);
      }
      for (; i < c.end; ++i) total += row[i];
      y[o + ox] = total * window_weight<T>(z, r, c, count_include_pad, divisor_override);
    }
  });
}
template <class T>
void spread_windows(const detail::any_windows& g, const detail::pool_span* columns, T* row,
                    const T* dy, T* dx, bool count_include_pad, dim_t divisor_override) {
  constexpr dim_t w = vec<T>::size;
  const dim_t width = g.in[2], n = g.planes * g.in[0] * g.in[1] * width;
  std::memset(static_cast<void*>(dx), 0, static_cast<std::size_t>(n) * sizeof(T));
  for_each_window_row(g, [&](dim_t plane, detail::pool_span z, detail::pool_span r, dim_t o) {
    std::memset(static_cast<void*>(row), 0, static_cast<std::size_t>(width) * sizeof(T));
    for (dim_t ox = 0; ox < g.out[2]; ++ox) {
      const detail::pool_span c = columns[ox];
      const T share = dy[o + ox] * window_weight<T>(z, r, c, count_include_pad, divisor_override);
      dim_t i = c.begin;
      if (w > 1)
        for (; i + w <= c.end; i += w) (vec<T>::load(row + i) + share).store(row + i);
      for (; i < c.end; ++i) row[i] += share;
    }
    for (dim_t iz = z.begin; iz < z.end; ++iz)
      for (dim_t iy = r.begin; iy < r.end; ++iy) {
        T* const to = dx + plane + (iz * g.in[1] + iy) * width;
        for (dim_t j = 0; j < width; j += w) {
          const dim_t lanes = width - j < w ? width - j : w;
          (vec<T>::load(to + j, lanes) + vec<T>::load(row + j)).store(to + j, lanes);
        }
      }
  });
}

/// Maxima and their places in one plane: for each register of windows, what an element of the
/// kernel brings. Whether all that is watched was finite.
template <class T>
bool place_windows(const pool_geometry& g, const T* x, T* y, std::int32_t* indices) {
  using B = typename number<T>::bits;
  constexpr dim_t w = vec<T>::size;
  const dim_t width = g.in[2], stride = g.stride[2], dilation = g.dilation[2], results = g.out[2];
  bits_of<T> lanes = bits_of<T>::zero();
  for (dim_t i = 0; i < stride; ++i) lanes = lanes + lane_numbers<T>();
  vec<T> watched = vec<T>::zero();
  const auto watch = [&](vec<T> v) __attribute__((always_inline)) {
    watched = fma(v, vec<T>::zero(), watched);
    return v;
  };
  // A register from column `at` on, of which so many lanes are wanted.
  const auto met = [&](const T* row, dim_t at, dim_t wanted) __attribute__((always_inline)) {
    const dim_t end = at + stride * w;
    if (at >= 0 && end <= width) [[likely]] {
      if (stride == 1) return watch(vec<T>::load(row + at));
      if (w > 1 && stride == 2) return watch(load_pairs(row + at).even);
    }
    const dim_t before = at < 0 ? (stride - 1 - at) / stride : 0,
                inside = width > at ? (width - at + stride - 1) / stride : 0,
                last = inside < wanted ? inside : wanted;
    if (last <= before) return around_planes<T>();
    const vec<T> v = watch(load_strided(row + at + before * stride, stride, last - before));
    if (before == 0) return keep_first(v, last);
    T some[2 * w];
    around_planes<T>().store(some);
    keep_first(v, last - before).store(some + before);
    return vec<T>::load(some);
  };
  for (dim_t oz = 0; oz < g.out[0]; ++oz)
    for (dim_t oy = 0; oy < g.out[1]; ++oy, y += results, indices += results) {
      const detail::pool_span z = detail::span_of(g, 0, oz, g.dilation[0]),
                              r = detail::span_of(g, 1, oy, g.dilation[1]);
      for (dim_t j = 0; j < results; j += w) {
        const dim_t first = j * stride - g.padding[2], n = results - j < w ? results - j : w;
        running_maximum<T> m{around_planes<T>(), bits_of<T>::zero()};
        for (dim_t iz = z.begin; iz < z.end; iz += g.dilation[0])
          for (dim_t iy = r.begin; iy < r.end; iy += g.dilation[1]) {
            const dim_t row = (iz * g.in[1] + iy) * width;
            bits_of<T> place = lanes + bits_of<T>::broadcast(static_cast<B>(row + first));
            for (dim_t k = 0, at = first; k < g.kernel[2]; ++k, at += dilation) {
              m.meet(met(x + row, at, n), place);
              place = place + static_cast<B>(dilation);
            }
          }
        if (n == w)
          m.best.store(y + j);
        else
          m.best.store(y + j, n);
        store_indices<T>(m.where, indices + j, n);
      }
    }
  return sum(watched) == T(0);
}
/// As places_by_threes.
template <class T>
dim_t places_by_windows(const pool_geometry& g, dim_t planes, const T* x, T* y,
                        std::int32_t* indices) {
  for (dim_t n = 0; n < planes; ++n) {
    if (!place_windows(g, x, y, indices)) return n;
    x += g.input_plane();
    y += g.output_plane();
    indices += g.output_plane();
  }
  return planes;
}
