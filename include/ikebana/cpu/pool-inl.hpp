/// The part of a window along one dimension that lies in the input.
struct pool_span {
  dim_t begin, end;  // within the input
  dim_t padded;      // its size with the padding that belongs to it
};
inline pool_span span_of(const pool_geometry& g, std::size_t d, dim_t o, dim_t dilation) {
  const dim_t start = o * g.stride[d] - g.padding[d];
  const dim_t reach = start + (g.kernel[d] - 1) * dilation + 1;
  const dim_t padded_end = reach < g.in[d] + g.padding[d] ? reach : g.in[d] + g.padding[d];
  dim_t begin = start;
  while (begin < 0) begin += dilation;
  return {begin, reach < g.in[d] ? reach : g.in[d], padded_end - start};
}

inline bool is_halving(const pool_geometry& g) {
  for (std::size_t d = 0; d < 3; ++d) {
    const dim_t size = d == 0 ? 1 : 2;
    if (g.kernel[d] != size || g.stride[d] != size || g.padding[d] != 0 ||
        g.out[d] * size > g.in[d])
      return false;
  }
  return g.dilation[1] == 1 && g.dilation[2] == 1;
}

/// Splits 2 * size neighbours into those at even and at odd places.
template <class T>
struct even_odd {
  vec<T> even, odd;
};
#if IKEBANA_CPU_WIDTH == 0
template <class T>
IKEBANA_CPU_INLINE even_odd<T> load_pairs(const T* p, dim_t) {
  return {{p[0]}, {p[1]}};
}
template <class T>
IKEBANA_CPU_INLINE bits_of<T> lane_numbers() {
  return {0};
}
template <class T>
IKEBANA_CPU_INLINE void store_indices(bits_of<T> i, std::int32_t* p, dim_t) {
  *p = static_cast<std::int32_t>(i.v);
}
#else
template <class T, std::size_t... L>
IKEBANA_CPU_INLINE even_odd<T> split_pairs(vec<T> a, vec<T> b, std::index_sequence<L...>) {
  return {{__builtin_shufflevector(a.v, b.v, static_cast<int>(2 * L)...)},
          {__builtin_shufflevector(a.v, b.v, static_cast<int>(2 * L + 1)...)}};
}
/// The first n pairs.
template <class T>
IKEBANA_CPU_INLINE even_odd<T> load_pairs(const T* p, dim_t n) {
  constexpr dim_t w = vec<T>::size;
  using lanes = std::make_index_sequence<static_cast<std::size_t>(w)>;
  if (n == w) return split_pairs(vec<T>::load(p), vec<T>::load(p + w), lanes{});
  const dim_t first = 2 * n < w ? 2 * n : w;
  return split_pairs(vec<T>::load(p, first), vec<T>::load(p + first, 2 * n - first), lanes{});
}
template <class T, std::size_t... L>
IKEBANA_CPU_INLINE bits_of<T> lane_numbers(std::index_sequence<L...>) {
  return {typename bits_of<T>::raw{static_cast<typename number<T>::bits>(L)...}};
}
template <class T>
IKEBANA_CPU_INLINE bits_of<T> lane_numbers() {
  return lane_numbers<T>(std::make_index_sequence<static_cast<std::size_t>(vec<T>::size)>{});
}
template <class T>
IKEBANA_CPU_INLINE void store_indices(bits_of<T> i, std::int32_t* p, dim_t n) {
  if constexpr (sizeof(T) == 4) {
    i.store(p, n);
  } else {
    for (dim_t lane = 0; lane < n; ++lane) p[lane] = static_cast<std::int32_t>(i.v[lane]);
  }
}
#endif

template <class T>
struct running_maximum {
  using place = typename number<T>::bits;
  vec<T> best;
  bits_of<T> where;

  IKEBANA_CPU_INLINE void meet(vec<T> x, bits_of<T> at) {
    const lane_mask<T> wins = (x > best) | (x != x);
    best = select(wins, x, best);
    where = select(lane_mask<place>{wins.m}, at, where);
  }
};

template <class T>
IKEBANA_CPU_INLINE void meet_one(T x, std::int32_t at, T& best, std::int32_t& where) {
  if (x > best || x != x) {
    best = x;
    where = at;
  }
}

template <class T>
void halve_by_maximum(const pool_geometry& g, const T* x, T* y, std::int32_t* indices) {
  using B = typename number<T>::bits;
  constexpr dim_t w = vec<T>::size;
  const dim_t width = g.in[2];
  const bits_of<T> twice = lane_numbers<T>() + lane_numbers<T>();
  for (dim_t plane = 0; plane < g.planes; ++plane, x += g.in[0] * g.in[1] * width)
    for (dim_t z = 0; z < g.out[0]; ++z)
      for (dim_t r = 0; r < g.out[1];
           ++r, y += g.out[2], indices += indices != nullptr ? g.out[2] : 0) {
        const dim_t start = (z * g.in[1] + 2 * r) * width;
        for (dim_t c = 0; c < g.out[2]; c += w) {
          const dim_t n = g.out[2] - c < w ? g.out[2] - c : w;
          const auto upper = load_pairs(x + start + 2 * c, n),
                     lower = load_pairs(x + start + width + 2 * c, n);
          const bits_of<T> at = twice + static_cast<B>(start + 2 * c);
          running_maximum<T> m{upper.even, at};
          m.meet(upper.odd, at + B{1});
          m.meet(lower.even, at + static_cast<B>(width));
          m.meet(lower.odd, at + static_cast<B>(width + 1));
          m.best.store(y + c, n);
          if (indices != nullptr) store_indices<T>(m.where, indices + c, n);
        }
      }
}

/// f(input plane's offset, spans, output's offset) for every window.
template <class F>
IKEBANA_CPU_INLINE void for_each_window(const pool_geometry& g,
                                        const std::array<dim_t, 3>& dilation, F f) {
  const dim_t plane_size = g.in[0] * g.in[1] * g.in[2];
  dim_t o = 0;
  for (dim_t plane = 0; plane < g.planes; ++plane)
    for (dim_t oz = 0; oz < g.out[0]; ++oz) {
      const pool_span z = span_of(g, 0, oz, dilation[0]);
      for (dim_t oy = 0; oy < g.out[1]; ++oy) {
        const pool_span r = span_of(g, 1, oy, dilation[1]);
        for (dim_t ox = 0; ox < g.out[2]; ++ox, ++o)
          f(plane * plane_size, z, r, span_of(g, 2, ox, dilation[2]), o);
      }
    }
}

template <class T>
void pool_maximum(const pool_geometry& g, const T* x, T* y, std::int32_t* indices) {
  if (is_halving(g)) return halve_by_maximum(g, x, y, indices);
  for_each_window(g, g.dilation, [&](dim_t plane, pool_span z, pool_span r, pool_span c, dim_t o) {
    const T* const from = x + plane;
    auto where = static_cast<std::int32_t>((z.begin * g.in[1] + r.begin) * g.in[2] + c.begin);
    T best = from[where];
    for (dim_t iz = z.begin; iz < z.end; iz += g.dilation[0])
      for (dim_t iy = r.begin; iy < r.end; iy += g.dilation[1])
        for (dim_t ix = c.begin; ix < c.end; ix += g.dilation[2]) {
          const dim_t at = (iz * g.in[1] + iy) * g.in[2] + ix;
          meet_one(from[at], static_cast<std::int32_t>(at), best, where);
        }
    y[o] = best;
    if (indices != nullptr) indices[o] = where;
  });
}

template <class T>
IKEBANA_CPU_INLINE void clear_input(const pool_geometry& g, T* dx) {
  std::memset(static_cast<void*>(dx), 0,
              static_cast<std::size_t>(g.planes * g.in[0] * g.in[1] * g.in[2]) * sizeof(T));
}

template <class T>
void pool_maximum_backward(const pool_geometry& g, const T* dy, const std::int32_t* indices,
                           T* dx) {
  if (g.planes == 0) return;
  clear_input(g, dx);
  const dim_t outputs = g.out[0] * g.out[1] * g.out[2], inputs = g.in[0] * g.in[1] * g.in[2];
  for (dim_t plane = 0; plane < g.planes; ++plane, dx += inputs, dy += outputs, indices += outputs)
    for (dim_t o = 0; o < outputs; ++o) dx[indices[o]] += dy[o];
}

template <class T>
IKEBANA_CPU_INLINE T window_weight(pool_span z, pool_span r, pool_span c, bool count_include_pad,
                                   dim_t divisor_override) {
  if (divisor_override != 0) return T(1) / static_cast<T>(divisor_override);
  const dim_t size = count_include_pad ? z.padded * r.padded * c.padded
                                       : (z.end - z.begin) * (r.end - r.begin) * (c.end - c.begin);
  return T(1) / static_cast<T>(size);
}

template <class T>
void pool_average(const pool_geometry& g, const T* x, T* y, bool count_include_pad,
                  dim_t divisor_override) {
  for_each_window(g, {1, 1, 1}, [&](dim_t plane, pool_span z, pool_span r, pool_span c, dim_t o) {
    T total = T(0);
    for (dim_t iz = z.begin; iz < z.end; ++iz)
      for (dim_t iy = r.begin; iy < r.end; ++iy)
        for (dim_t ix = c.begin; ix < c.end; ++ix)
          total += x[plane + (iz * g.in[1] + iy) * g.in[2] + ix];
    y[o] = total * window_weight<T>(z, r, c, count_include_pad, divisor_override);
  });
}

template <class T>
void pool_average_backward(const pool_geometry& g, const T* dy, T* dx, bool count_include_pad,
                           dim_t divisor_override) {
  if (g.planes == 0) return;
  clear_input(g, dx);
  for_each_window(g, {1, 1, 1}, [&](dim_t plane, pool_span z, pool_span r, pool_span c, dim_t o) {
    const T share = dy[o] * window_weight<T>(z, r, c, count_include_pad, divisor_override);
    for (dim_t iz = z.begin; iz < z.end; ++iz)
      for (dim_t iy = r.begin; iy < r.end; ++iy)
        for (dim_t ix = c.begin; ix < c.end; ++ix)
          dx[plane + (iz * g.in[1] + iy) * g.in[2] + ix] += share;
  });
}
