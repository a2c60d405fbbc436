template <class T>
void adaptive_average(const adaptive_pool_geometry& g, const T* x, T* y) {
  average_by_rows(
      g, [&](std::size_t d, dim_t o) { return detail::span_of(g, d, o); },
      [](pool_span z, pool_span r, pool_span c) { return window_weight<T>(z, r, c, true, 0); }, x,
      y);
}

template <class T>
void adaptive_average_backward(const adaptive_pool_geometry& g, const T* dy, T* dx) {
  spread_over_windows(
      g, [&](std::size_t d, dim_t o) { return detail::span_of(g, d, o); },
      [](pool_span z, pool_span r, pool_span c) { return window_weight<T>(z, r, c, true, 0); }, dy,
      dx);
}
