// Windows that are each a whole plane.

/// The maximum of each plane of n, and the place of the first of equals.
template <class T>
void maximum_of_planes(dim_t count, dim_t n, const T* x, T* y, std::int32_t* indices) {
  using B = typename number<T>::bits;
  constexpr dim_t w = vec<T>::size;
  const dim_t rest = n % w, whole = n - rest;
  const vec<T> zero = vec<T>::zero();
  for (dim_t p = 0; p < count; ++p, x += n) {
    running_maximum<T> m{by_maximum::none<T>(), bits_of<T>::zero()};
    bits_of<T> at = lane_numbers<T>();
    vec<T> doubtful = zero;
    for (dim_t i = 0; i < whole; i += w) {
      const vec<T> v = vec<T>::load(x + i);
      doubtful = fma(v, zero, doubtful);
      m.meet(v, at);
      at = at + static_cast<B>(w);
    }
    if (rest > 0) {
      const vec<T> v = vec<T>::load(x + whole, rest);
      doubtful = fma(v, zero, doubtful);
      m.meet(by_maximum::first_lanes(v, rest), at);
    }
    if (sum(doubtful) != T(0)) [[unlikely]] {
      const pool_geometry g{1, {1, 1, n}, {1, 1, 1}, {1, 1, n}, {1, 1, 1}, {0, 0, 0}, {1, 1, 1}};
      detail::maxima_by_windows(detail::windows_of(g), x, y + p,
                                indices == nullptr ? indices : indices + p);
      continue;
    }
    y[p] = maximum(m.best);
    if (indices == nullptr) continue;
    const auto is_largest = m.best == vec<T>::broadcast(y[p]);
    const auto places =
        select(lane_mask<B>{is_largest.m}, m.where, bits_of<T>::broadcast(static_cast<B>(n)));
    indices[p] = static_cast<std::int32_t>(-maximum(-places));
  }
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
    const vec<T> averages = joined_lanes<lane_sum>(static_cast<const T*>(partial)) * by;
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
