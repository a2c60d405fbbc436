inline pool_span span_of(const adaptive_pool_geometry& g, std::size_t d, dim_t o) {
  const dim_t begin = o * g.in[d] / g.out[d];
  const dim_t end = ((o + 1) * g.in[d] + g.out[d] - 1) / g.out[d];
  return {begin, end, end - begin};
}

template <class T>
void adaptive_maximum(const adaptive_pool_geometry& g, const T* x, T* y, std::int32_t* indices) {
  const auto span = [&](std::size_t d, dim_t o) { return span_of(g, d, o); };
  for_each_window(g, span, [&](dim_t plane, pool_span z, pool_span r, pool_span c, dim_t o) {
    maximum_of(g, {1, 1, 1}, x + plane, z, r, c, y + o, indices != nullptr ? indices + o : nullptr);
  });
}

template <class T>
void adaptive_average(const adaptive_pool_geometry& g, const T* x, T* y) {
  average_by_rows(
      g, [&](std::size_t d, dim_t o) { return span_of(g, d, o); },
      [](pool_span z, pool_span r, pool_span c) { return window_weight<T>(z, r, c, true, 0); }, x,
      y);
}

template <class T>
void adaptive_average_backward(const adaptive_pool_geometry& g, const T* dy, T* dx) {
  spread_over_windows(
      g, [&](std::size_t d, dim_t o) { return span_of(g, d, o); },
      [](pool_span z, pool_span r, pool_span c) { return window_weight<T>(z, r, c, true, 0); }, dy,
      dx);
}
