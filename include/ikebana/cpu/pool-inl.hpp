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

/// The columns of the output whose windows lie within the width of the input.
struct inner_columns {
  dim_t begin, end;
};
inline inner_columns inner_columns_of(const pool_geometry& g, dim_t dilation) {
  const dim_t first = (g.padding[2] + g.stride[2] - 1) / g.stride[2];
  const dim_t room = g.in[2] - 1 - (g.kernel[2] - 1) * dilation + g.padding[2];
  const dim_t behind = room < 0 ? 0 : room / g.stride[2] + 1;
  const dim_t end = behind < g.out[2] ? behind : g.out[2];
  return {first < end ? first : end, end};
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
IKEBANA_CPU_INLINE vec<T> load_strided(const T* p, dim_t, dim_t) {
  return {p[0]};
}
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
/// n elements, each `stride` behind the one before; nothing else is read.
template <class T>
IKEBANA_CPU_INLINE vec<T> load_strided(const T* p, dim_t stride, dim_t n) {
  constexpr dim_t w = vec<T>::size;
  if (stride == 1) return n == w ? vec<T>::load(p) : vec<T>::load(p, n);
  if (stride == 2) {
    using lanes = std::make_index_sequence<static_cast<std::size_t>(w)>;
    const dim_t last = 2 * n - 1;
    if (last <= w) return split_pairs(vec<T>::load(p, last), vec<T>::zero(), lanes{}).even;
    return split_pairs(vec<T>::load(p), vec<T>::load(p + w, last - w), lanes{}).even;
  }
  T gathered[w]{};
  for (dim_t lane = 0; lane < n; ++lane) gathered[lane] = p[lane * stride];
  return vec<T>::load(gathered);
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

/// f(input plane's offset, spans of depth and height, output's offset) for every row of windows.
template <class G, class S, class F>
IKEBANA_CPU_INLINE void for_each_window_row(const G& g, S span, F f) {
  const dim_t plane_size = g.in[0] * g.in[1] * g.in[2];
  dim_t o = 0;
  for (dim_t plane = 0; plane < g.planes; ++plane)
    for (dim_t oz = 0; oz < g.out[0]; ++oz) {
      const pool_span z = span(0, oz);
      for (dim_t oy = 0; oy < g.out[1]; ++oy, o += g.out[2])
        f(plane * plane_size, z, span(1, oy), o);
    }
}

/// f(input plane's offset, spans, output's offset) for every window.
template <class G, class S, class F>
IKEBANA_CPU_INLINE void for_each_window(const G& g, S span, F f) {
  for_each_window_row(g, span, [&](dim_t plane, pool_span z, pool_span r, dim_t o) {
    for (dim_t ox = 0; ox < g.out[2]; ++ox) f(plane, z, r, span(2, ox), o + ox);
  });
}

/// The maximum of one window of the plane x, and its place.
template <class G, class T>
IKEBANA_CPU_INLINE void maximum_of(const G& g, const std::array<dim_t, 3>& dilation, const T* x,
                                   pool_span z, pool_span r, pool_span c, T* y,
                                   std::int32_t* index) {
  auto where = static_cast<std::int32_t>((z.begin * g.in[1] + r.begin) * g.in[2] + c.begin);
  T best = x[where];
  for (dim_t iz = z.begin; iz < z.end; iz += dilation[0])
    for (dim_t iy = r.begin; iy < r.end; iy += dilation[1])
      for (dim_t ix = c.begin; ix < c.end; ix += dilation[2]) {
        const dim_t at = (iz * g.in[1] + iy) * g.in[2] + ix;
        meet_one(x[at], static_cast<std::int32_t>(at), best, where);
      }
  *y = best;
  if (index != nullptr) *index = where;
}

/// The maxima of n neighbouring windows, the first of which begins in column `column`.
template <class T>
IKEBANA_CPU_INLINE void maxima_of(const pool_geometry& g, const T* x, pool_span z, pool_span r,
                                  dim_t column, dim_t n, T* y, std::int32_t* indices) {
  using B = typename number<T>::bits;
  bits_of<T> steps = bits_of<T>::zero();
  const bits_of<T> each = lane_numbers<T>();
  for (dim_t s = 0; s < g.stride[2]; ++s) steps = steps + each;
  const dim_t first = (z.begin * g.in[1] + r.begin) * g.in[2] + column;
  running_maximum<T> m{load_strided(x + first, g.stride[2], n), steps + static_cast<B>(first)};
  for (dim_t iz = z.begin; iz < z.end; iz += g.dilation[0])
    for (dim_t iy = r.begin; iy < r.end; iy += g.dilation[1])
      for (dim_t k = 0; k < g.kernel[2]; ++k) {
        const dim_t at = (iz * g.in[1] + iy) * g.in[2] + column + k * g.dilation[2];
        m.meet(load_strided(x + at, g.stride[2], n), steps + static_cast<B>(at));
      }
  m.best.store(y, n);
  if (indices != nullptr) store_indices<T>(m.where, indices, n);
}

template <class T>
void pool_maximum(const pool_geometry& g, const T* x, T* y, std::int32_t* indices) {
  if (is_halving(g)) return halve_by_maximum(g, x, y, indices);
  constexpr dim_t w = vec<T>::size;
  const inner_columns inner = inner_columns_of(g, g.dilation[2]);
  const auto span = [&](std::size_t d, dim_t o) { return span_of(g, d, o, g.dilation[d]); };
  for_each_window_row(g, span, [&](dim_t plane, pool_span z, pool_span r, dim_t o) {
    const auto outer = [&](dim_t ox) {
      maximum_of(g, g.dilation, x + plane, z, r, span(2, ox), y + o + ox,
                 indices != nullptr ? indices + o + ox : nullptr);
    };
    for (dim_t ox = 0; ox < inner.begin; ++ox) outer(ox);
    for (dim_t ox = inner.begin; ox < inner.end; ox += w)
      maxima_of(g, x + plane, z, r, ox * g.stride[2] - g.padding[2],
                inner.end - ox < w ? inner.end - ox : w, y + o + ox,
                indices != nullptr ? indices + o + ox : nullptr);
    for (dim_t ox = inner.end; ox < g.out[2]; ++ox) outer(ox);
  });
}

template <class T>
void scatter_by_index(dim_t planes, dim_t inputs, dim_t outputs, const T* dy,
                      const std::int32_t* indices, T* dx) {
  const dim_t n = planes * inputs;
  if (n == 0) return;
  std::memset(static_cast<void*>(dx), 0, static_cast<std::size_t>(n) * sizeof(T));
  for (dim_t plane = 0; plane < planes; ++plane, dx += inputs, dy += outputs, indices += outputs)
    for (dim_t o = 0; o < outputs; ++o) dx[indices[o]] += dy[o];
}
