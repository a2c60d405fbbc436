using detail::lane_windows;

#if IKEBANA_CPU_WIDTH == 0
template <class T>
detail::lane_kernel<T> kernel_for_lane_maxima() {
  return {1, nullptr};
}
template <class T>
detail::lane_kernel<T> kernel_for_lane_averages() {
  return {1, nullptr};
}
template <class T>
detail::lane_kernel<T> kernel_for_lane_spreads() {
  return {1, nullptr};
}
#else

/// n elements of each of `count` rows of n, as the lanes of n registers; up to a register too many
/// may be written. Lanes with what is not finite are not zero in what is returned, nor are some
/// others beside it.
template <class T>
[[gnu::noinline]] vec<T> rows_to_lanes(dim_t count, dim_t n, const T* from, T* to) {
  constexpr dim_t w = vec<T>::size;
  T ends[w * w];
  const T* starts[w];
  // Lanes without a row have the last one's. What a register would pass the end of is copied.
  for (dim_t r = 0; r < w; ++r) {
    const dim_t row = r < count ? r : count - 1, left = (count - row) * n;
    starts[r] = from + row * n;
    if (left >= w) continue;
    vec<T>::load(starts[r], left).store(ends + r * w);
    starts[r] = ends + r * w;
  }
  vec<T> doubtful[4] = {};
  for (dim_t i = 0; i < n; i += w) {
    // The last register overlaps the one before.
    const dim_t at = i + w <= n || n < w ? i : n - w;
    vec<T> rows[w];
    for (dim_t r = 0; r < w; ++r) rows[r] = vec<T>::load(starts[r] + at);
    transpose_block(rows);
    for (dim_t r = 0; r < w; ++r) {
      doubtful[r % 4] = fma(rows[r], vec<T>::zero(), doubtful[r % 4]);
      rows[r].store(to + (at + r) * w);
    }
  }
  return (doubtful[0] + doubtful[1]) + (doubtful[2] + doubtful[3]);
}
/// Back again.
template <class T>
[[gnu::noinline]] void lanes_to_rows(dim_t count, dim_t n, const T* from, T* to) {
  constexpr dim_t w = vec<T>::size;
  if (n == 1) return vec<T>::load(from).store(to, count);
  T ends[w * w];
  T* starts[w];
  for (dim_t r = 0; r < w; ++r) starts[r] = (count - r) * n >= w ? to + r * n : ends + r * w;
  for (dim_t i = 0; i < n; i += w) {
    const dim_t at = i + w <= n || n < w ? i : n - w;
    vec<T> rows[w];
    for (dim_t r = 0; r < w; ++r) rows[r] = vec<T>::load(from + (at + r) * w);
    transpose_block(rows);
    // What is behind a short row the next one writes over.
    for (dim_t r = 0; r < w; ++r) rows[r].store(starts[r] + (r < count ? at : 0));
  }
  for (dim_t r = 0; r < count; ++r)
    if (const dim_t left = (count - r) * n; left < w)
      vec<T>::load(ends + r * w).store(to + r * n, left);
}

template <class T>
IKEBANA_CPU_INLINE unsigned which_lanes(vec<T> doubtful, dim_t count) {
  if (sum(doubtful) == T(0)) [[likely]]
    return 0;
  T lanes[vec<T>::size];
  doubtful.store(lanes);
  unsigned bits = 0;
  for (dim_t i = 0; i < count; ++i) bits |= static_cast<unsigned>(lanes[i] != T(0)) << i;
  return bits;
}

/// Maxima and their places, window by window.
template <class T>
IKEBANA_CPU_INLINE void place_maxima(const lane_windows<T>& t) {
  using B = typename number<T>::bits;
  constexpr dim_t w = vec<T>::size;
  const dim_t* const step = t.steps;
  const auto across = bits_of<T>::broadcast(static_cast<B>(step[2]));
  T* to = t.result;
  auto* places = reinterpret_cast<B*>(t.places);
  for (dim_t oz = 0; oz < t.out[0]; ++oz)
    for (dim_t oy = 0; oy < t.out[1]; ++oy)
      for (dim_t ox = 0; ox < t.out[2]; ++ox, to += w, places += w) {
        const auto z = t.spans[0][oz], y = t.spans[1][oy], x = t.spans[2][ox];
        running_maximum<T> m{around_planes<T>(), bits_of<T>::zero()};
        dim_t slab = z.from + y.from + x.from;
        for (dim_t i = z.count; i > 0; --i, slab += step[0]) {
          dim_t row = slab;
          for (dim_t j = y.count; j > 0; --j, row += step[1]) {
            auto at = bits_of<T>::broadcast(static_cast<B>(row));
            const T* from = t.source + row * w;
            for (dim_t k = x.count; k > 0; --k, from += step[2] * w) {
              m.meet(vec<T>::load(from), at);
              at = at + across;
            }
          }
        }
        m.best.store(to);
        m.where.store(places);
      }
}
/// Rows of windows are joined first, then columns of what came out.
template <class By, class T>
IKEBANA_CPU_INLINE void join_in_lanes(const lane_windows<T>& t) {
  constexpr dim_t w = vec<T>::size;
  const dim_t* const step = t.steps;
  T* to = t.result;
  for (dim_t oz = 0; oz < t.out[0]; ++oz)
    for (dim_t oy = 0; oy < t.out[1]; ++oy) {
      const auto z = t.spans[0][oz], y = t.spans[1][oy];
      const T* first = t.source + (z.from + y.from) * w;
      for (dim_t c = 0; c < t.width * w; c += w) {
        vec<T> total = By::template none<T>();
        const T* slab = first + c;
        for (dim_t i = z.count; i > 0; --i, slab += step[0] * w) {
          const T* from = slab;
          for (dim_t j = y.count; j > 0; --j, from += step[1] * w)
            total = By::join(total, vec<T>::load(from));
        }
        total.store(t.line + c);
      }
      const T factor = z.factor * y.factor;
      for (dim_t ox = 0; ox < t.out[2]; ++ox, to += w) {
        const auto x = t.spans[2][ox];
        const T* from = t.line + x.from * w;
        vec<T> total = By::template none<T>();
        for (dim_t k = x.count; k > 0; --k, from += step[2] * w)
          total = By::join(total, vec<T>::load(from));
        (total * (factor * x.factor)).store(to);
      }
    }
}

template <class T>
unsigned maxima_in_lanes(const lane_windows<T>& t, dim_t count, const T* x, T* y,
                         std::int32_t* indices) {
  constexpr dim_t w = vec<T>::size;
  const dim_t windows = t.out[0] * t.out[1] * t.out[2];
  const unsigned refused = which_lanes(rows_to_lanes(count, t.extent, x, t.source), count);
  if (indices == nullptr) {
    join_in_lanes<by_maximum>(t);
  } else {
    place_maxima(t);
    if constexpr (sizeof(T) == 4) {
      lanes_to_rows(count, windows, static_cast<const T*>(t.places), reinterpret_cast<T*>(indices));
    } else {
      const auto* const places = reinterpret_cast<const typename number<T>::bits*>(t.places);
      for (dim_t lane = 0; lane < count; ++lane)
        for (dim_t i = 0; i < windows; ++i)
          *indices++ = static_cast<std::int32_t>(places[i * w + lane]);
    }
  }
  lanes_to_rows(count, windows, static_cast<const T*>(t.result), y);
  return refused;
}
template <class T>
unsigned averages_in_lanes(const lane_windows<T>& t, dim_t count, const T* x, T* y, std::int32_t*) {
  rows_to_lanes(count, t.extent, x, t.source);
  join_in_lanes<by_sum>(t);
  lanes_to_rows(count, t.out[0] * t.out[1] * t.out[2], static_cast<const T*>(t.result), y);
  return 0;
}
/// Each row of windows gives its columns their sums, and these to all rows that it meets.
template <class T>
unsigned spread_in_lanes(const lane_windows<T>& t, dim_t count, const T* dy, T* dx, std::int32_t*) {
  constexpr dim_t w = vec<T>::size;
  const dim_t* const step = t.steps;
  rows_to_lanes(count, t.out[0] * t.out[1] * t.out[2], dy, t.result);
  const auto clear = [](T* p, dim_t registers) {
    std::memset(static_cast<void*>(p), 0, static_cast<std::size_t>(registers * w) * sizeof(T));
  };
  clear(t.source, t.extent);
  const T* given = t.result;
  for (dim_t oz = 0; oz < t.out[0]; ++oz)
    for (dim_t oy = 0; oy < t.out[1]; ++oy) {
      const auto z = t.spans[0][oz], y = t.spans[1][oy];
      const T factor = z.factor * y.factor;
      clear(t.line, t.width);
      for (dim_t ox = 0; ox < t.out[2]; ++ox, given += w) {
        const auto x = t.spans[2][ox];
        const vec<T> share = vec<T>::load(given) * (factor * x.factor);
        T* at = t.line + x.from * w;
        for (dim_t k = x.count; k > 0; --k, at += w) (vec<T>::load(at) + share).store(at);
      }
      T* slab = t.source + (z.from + y.from) * w;
      for (dim_t i = z.count; i > 0; --i, slab += step[0] * w) {
        T* row = slab;
        for (dim_t j = y.count; j > 0; --j, row += step[1] * w)
          for (dim_t c = 0; c < t.width * w; c += w)
            (vec<T>::load(row + c) + vec<T>::load(t.line + c)).store(row + c);
      }
    }
  lanes_to_rows(count, t.extent, static_cast<const T*>(t.source), dx);
  return 0;
}

template <class T>
detail::lane_kernel<T> kernel_for_lane_maxima() {
  return {vec<T>::size, &maxima_in_lanes<T>};
}
template <class T>
detail::lane_kernel<T> kernel_for_lane_averages() {
  return {vec<T>::size, &averages_in_lanes<T>};
}
template <class T>
detail::lane_kernel<T> kernel_for_lane_spreads() {
  return {vec<T>::size, &spread_in_lanes<T>};
}
#endif
