// Windows of three by three, with strides of columns of 1 or 2: neighbours are joined in registers,
// which no memory comes between. Needs: joining-inl.hpp, strided-inl.hpp.

/// before's last lane, then x's others; x's lanes but the first, then next's first; x's but two,
/// then next's, or, of one lane, the one after it.
#if IKEBANA_CPU_WIDTH == 0
template <class T>
IKEBANA_CPU_INLINE vec<T> one_behind(vec<T> before, vec<T>) {
  return before;
}
template <class T>
IKEBANA_CPU_INLINE vec<T> one_ahead(vec<T>, vec<T> next) {
  return next;
}
template <class T>
IKEBANA_CPU_INLINE vec<T> two_ahead(vec<T>, vec<T>, vec<T> after) {
  return after;
}
template <class T>
IKEBANA_CPU_INLINE even_odd<T> split_pairs(vec<T> a, vec<T> b) {
  return {a, b};
}
#else
template <int By, class T, std::size_t... L>
IKEBANA_CPU_INLINE vec<T> shift_lanes(vec<T> a, vec<T> b, std::index_sequence<L...>) {
  return {__builtin_shufflevector(a.v, b.v, (static_cast<int>(L) + By)...)};
}
template <class T>
IKEBANA_CPU_INLINE vec<T> one_behind(vec<T> before, vec<T> x) {
  return shift_lanes<static_cast<int>(vec<T>::size) - 1>(before, x, lane_sequence<T>{});
}
template <class T>
IKEBANA_CPU_INLINE vec<T> one_ahead(vec<T> x, vec<T> next) {
  return shift_lanes<1>(x, next, lane_sequence<T>{});
}
template <class T>
IKEBANA_CPU_INLINE vec<T> two_ahead(vec<T> x, vec<T> next, vec<T>) {
  return shift_lanes<2>(x, next, lane_sequence<T>{});
}
template <class T>
IKEBANA_CPU_INLINE even_odd<T> split_pairs(vec<T> a, vec<T> b) {
  return split_pairs(a, b, lane_sequence<T>{});
}
#endif

/// Sums times `factor`, or maxima, of windows of three by three in all slices: columns of rows
/// first, and then neighbours.
template <class By, class T>
void join_threes(const pool_geometry& g, const T* x, T factor, T* y) {
  constexpr dim_t w = vec<T>::size;
  const dim_t height = g.in[1], width = g.in[2], count = g.out[2], left = g.padding[2];
  const vec<T> by = vec<T>::broadcast(factor), none = By::template none<T>();
  const auto of_three = [](vec<T> a, vec<T> b, vec<T> c) __attribute__((always_inline)) {
    return By::join(By::join(a, b), c);
  };
  const auto put = [=](vec<T> s, T * to, dim_t some) __attribute__((always_inline)) {
    store_some(s * by, to, some);
  };
  const dim_t slices = g.planes * g.in[0];
  T* const nothing = detail::thread_scratch<T>();
  for (dim_t j = 0; j < width; j += w) none.store(nothing + j);
  for (dim_t slice = 0; slice < slices; ++slice, x += height * width)
    for (dim_t r = 0; r < g.out[1]; ++r, y += count) {
      const auto row = [=](dim_t at) { return at >= 0 && at < height ? x + at * width : nothing; };
      const dim_t top = r * g.stride[1] - g.padding[1];
      const T *const upper = row(top), *const middle = row(top + 1), *const lower = row(top + 2);
      const auto columns = [&](dim_t j) __attribute__((always_inline)) {
        const dim_t n = width - j;
        if (n >= w) [[likely]]
          return of_three(vec<T>::load(upper + j), vec<T>::load(middle + j),
                          vec<T>::load(lower + j));
        if (n <= 0) return none;
        return By::first_lanes(of_three(vec<T>::load(upper + j, n), vec<T>::load(middle + j, n),
                                        vec<T>::load(lower + j, n)),
                               n);
      };
      if (g.stride[2] == 1) {
        vec<T> before = none, here = columns(0);
        for (dim_t j = 0; j < count; j += w) {
          const vec<T> next = columns(j + w), ahead = one_ahead(here, next);
          if (left > 0)
            put(of_three(one_behind(before, here), here, ahead), y + j, count - j);
          else
            put(of_three(here, ahead, two_ahead(here, next, w == 1 ? columns(j + 2) : none)), y + j,
                count - j);
          before = here;
          here = next;
        }
        continue;
      }
      // Without a column of nothing, a vector of results waits for the next columns.
      auto before = split_pairs(none, none);
      for (dim_t j = left > 0 ? 0 : -w; j < count; j += w) {
        const dim_t at = left > 0 ? 2 * j : 2 * (j + w);
        const auto pairs = split_pairs(columns(at), columns(at + w));
        if (left > 0)
          put(of_three(one_behind(before.odd, pairs.odd), pairs.even, pairs.odd), y + j, count - j);
        else if (j >= 0)
          put(of_three(before.even, before.odd, one_ahead(before.even, pairs.even)), y + j,
              count - j);
        before = pairs;
      }
    }
}

template <class T>
void sums_of_neighbours(const pool_geometry& g, const T* x, T factor, T* y) {
  join_threes<by_sum>(g, x, factor, y);
}
template <class T>
void maxima_of_neighbours(const pool_geometry& g, const T* x, T* y) {
  join_threes<by_maximum>(g, x, T(1), y);
}
