// Maxima of windows, a plane in each lane (pool/lanes.hpp).

#if IKEBANA_CPU_WIDTH == 0
template <class T>
detail::lane_kernel<T> kernel_for_lane_maxima() {
  return {1, nullptr};
}
#else

/// n elements of each of `count` planes, `plane` apart, as the lanes of n registers; up to a
/// register too many may be written.
template <class T>
[[gnu::noinline]] void planes_to_lanes(dim_t count, dim_t n, dim_t plane, const T* from, T* to) {
  constexpr dim_t w = vec<T>::size;
  T ends[w * w];
  const T* starts[w];
  // Lanes without a plane have the last one's. What a register would pass the end of is copied.
  for (dim_t r = 0; r < w; ++r) {
    const dim_t row = r < count ? r : count - 1, left = (count - 1 - row) * plane + n;
    starts[r] = from + row * plane;
    if (left >= w) continue;
    vec<T>::load(starts[r], left).store(ends + r * w);
    starts[r] = ends + r * w;
  }
  for (dim_t i = 0; i < n; i += w) {
    // The last register overlaps the one before.
    const dim_t at = i + w <= n || n < w ? i : n - w;
    vec<T> rows[w];
    for (dim_t r = 0; r < w; ++r) rows[r] = vec<T>::load(starts[r] + at);
    transpose_block(rows);
    for (dim_t r = 0; r < w; ++r) rows[r].store(to + (at + r) * w);
  }
}
/// Back again.
template <class T>
[[gnu::noinline]] void lanes_to_planes(dim_t count, dim_t n, dim_t plane, const T* from, T* to) {
  constexpr dim_t w = vec<T>::size;
  if (n == 1 && plane == 1) return vec<T>::load(from).store(to, count);
  T ends[w * w];
  T* starts[w];
  // What is behind a short plane the next one writes over.
  const auto is_direct = [=](dim_t r) {
    return n >= w ? r < count : plane == n && (count - r) * n >= w;
  };
  for (dim_t r = 0; r < w; ++r) starts[r] = is_direct(r) ? to + r * plane : ends + r * w;
  for (dim_t i = 0; i < n; i += w) {
    const dim_t at = i + w <= n || n < w ? i : n - w;
    vec<T> rows[w];
    for (dim_t r = 0; r < w; ++r) rows[r] = vec<T>::load(from + (at + r) * w);
    transpose_block(rows);
    for (dim_t r = 0; r < w; ++r) rows[r].store(starts[r] + (r < count ? at : 0));
  }
  for (dim_t r = 0; r < count; ++r)
    if (!is_direct(r)) vec<T>::load(ends + r * w).store(to + r * plane, n);
}

/// Maxima and their places, window by window.
template <class T>
IKEBANA_CPU_INLINE void place_maxima(const detail::lane_windows<T>& t) {
  using B = typename number<T>::bits;
  constexpr dim_t w = vec<T>::size;
  const dim_t slab_step = t.steps[0], row_step = t.steps[1], step = t.steps[2], first = t.first,
              count = t.out[2];
  const auto* const columns = t.spans[2];
  const auto across = bits_of<T>::broadcast(static_cast<B>(step));
  const T* const source = t.source;
  T* to = t.result;
  auto* places = reinterpret_cast<B*>(t.places);
  for (dim_t oz = 0; oz < t.out[0]; ++oz)
    for (dim_t oy = 0; oy < t.out[1]; ++oy) {
      const auto z = t.spans[0][oz], y = t.spans[1][oy];
      for (const auto *x = columns, *end = x + count; x != end; ++x, to += w, places += w) {
        running_maximum<T> m{around_planes<T>(),
                             bits_of<T>::broadcast(static_cast<B>(z.from + y.from + x->from))};
        dim_t slab = z.from + y.from + x->from;
        for (dim_t i = z.count; i > 0; --i, slab += slab_step) {
          dim_t row = slab;
          for (dim_t j = y.count; j > 0; --j, row += row_step) {
            auto at = bits_of<T>::broadcast(static_cast<B>(row));
            const T* from = source + (row - first) * w;
            for (dim_t k = x->count; k > 0; --k, from += step * w) {
              m.meet(vec<T>::load(from), at);
              at = at + across;
            }
          }
        }
        m.best.store(to);
        m.where.store(places);
      }
    }
}
template <class T>
void maxima_in_lanes(const detail::lane_windows<T>& t, dim_t count, const T* x, T* y,
                     std::int32_t* indices) {
  constexpr dim_t w = vec<T>::size;
  const dim_t windows = t.out[0] * t.out[1] * t.out[2];
  planes_to_lanes(count, t.extent, t.input_plane, x, t.source);
  place_maxima(t);
  lanes_to_planes(count, windows, t.output_plane, static_cast<const T*>(t.result), y);
  if (indices == nullptr) return;
  if constexpr (sizeof(T) == 4) {
    lanes_to_planes(count, windows, t.output_plane, static_cast<const T*>(t.places),
                    reinterpret_cast<T*>(indices));
  } else {
    const auto* const places = reinterpret_cast<const typename number<T>::bits*>(t.places);
    for (dim_t lane = 0; lane < count; ++lane)
      for (dim_t i = 0; i < windows; ++i)
        indices[lane * t.output_plane + i] = static_cast<std::int32_t>(places[i * w + lane]);
  }
}
template <class T>
detail::lane_kernel<T> kernel_for_lane_maxima() {
  return {vec<T>::size, &maxima_in_lanes<T>};
}
#endif
