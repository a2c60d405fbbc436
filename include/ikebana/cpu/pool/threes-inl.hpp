// Averages and maxima of windows of three by three.

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

/// The sums, times `factor`, of windows of three by three in planes with one more column of zeros
/// at each side, or none, or their maxima: of rows first, and then of neighbours, which no memory
/// comes between. Whether all that is watched was finite.
template <class By, bool HasMargins, class T>
bool join_by_threes(dim_t planes, dim_t in_height, dim_t width, dim_t out_height, dim_t out_width,
                    dim_t stride, dim_t padding, const T* x, T factor, T* y) {
  constexpr dim_t w = vec<T>::size;
  const vec<T> by = vec<T>::broadcast(factor), none = By::template none<T>();
  vec<T> watched = vec<T>::zero();
  const auto seen = [&](vec<T> v) __attribute__((always_inline)) {
    watched = By::watch(watched, v);
    return v;
  };
  const auto of_three = [](vec<T> a, vec<T> b, vec<T> c) __attribute__((always_inline)) {
    return By::join(By::join(a, b), c);
  };
  const auto put = [=](vec<T> s, T * to, dim_t left) __attribute__((always_inline)) {
    store_some(s * by, to, left);
  };
  if (stride == 1 && width <= w) {
    // A row is a register, and is read once.
    for (; planes > 0; --planes, x += in_height * width) {
      const auto row = [&](dim_t at) __attribute__((always_inline)) {
        if (at < 0 || at >= in_height) return none;
        return By::first_lanes(seen(vec<T>::load(x + at * width, width)), width);
      };
      vec<T> upper = row(-padding), middle = row(1 - padding);
      for (dim_t r = 0; r < out_height; ++r, y += out_width) {
        const vec<T> lower = row(r - padding + 2), s = of_three(upper, middle, lower);
        const vec<T> ahead = one_ahead(s, none);
        put(HasMargins ? of_three(one_behind(none, s), s, ahead)
                       : of_three(s, ahead, two_ahead(s, none, none)),
            y, out_width);
        upper = middle;
        middle = lower;
      }
    }
    return sum(watched) == T(0);
  }
  T* const nothing = detail::thread_scratch<T>();
  for (dim_t j = 0; j < width; j += w) none.store(nothing + j);
  for (; planes > 0; --planes, x += in_height * width)
    for (dim_t r = 0; r < out_height; ++r, y += out_width) {
      const auto row = [=](dim_t at) {
        return at >= 0 && at < in_height ? x + at * width : nothing;
      };
      const dim_t top = r * stride - padding;
      const T *const upper = row(top), *const middle = row(top + 1), *const lower = row(top + 2);
      const auto columns = [&](dim_t j) __attribute__((always_inline)) {
        const dim_t n = width - j;
        if (n >= w) [[likely]]
          return of_three(seen(vec<T>::load(upper + j)), seen(vec<T>::load(middle + j)),
                          seen(vec<T>::load(lower + j)));
        if (n <= 0) return none;
        return By::first_lanes(
            of_three(seen(vec<T>::load(upper + j, n)), seen(vec<T>::load(middle + j, n)),
                     seen(vec<T>::load(lower + j, n))),
            n);
      };
      vec<T> before = none;
      if (stride == 1) {
        vec<T> here = columns(0);
        for (dim_t j = 0; j < out_width; j += w) {
          const vec<T> next = columns(j + w), ahead = one_ahead(here, next);
          if constexpr (HasMargins)
            put(of_three(one_behind(before, here), here, ahead), y + j, out_width - j);
          else
            put(of_three(here, ahead, two_ahead(here, next, w == 1 ? columns(j + 2) : none)), y + j,
                out_width - j);
          before = here;
          here = next;
        }
      } else if constexpr (HasMargins) {
        for (dim_t j = 0; j < out_width; j += w) {
          const auto pairs = split_pairs(columns(2 * j), columns(2 * j + w));
          put(of_three(one_behind(before, pairs.odd), pairs.even, pairs.odd), y + j, out_width - j);
          before = pairs.odd;
        }
      } else {
        auto pairs = split_pairs(columns(0), columns(w));
        for (dim_t j = 0; j < out_width; j += w) {
          const auto next = split_pairs(columns(2 * j + 2 * w), columns(2 * j + 3 * w));
          put(of_three(pairs.even, pairs.odd, one_ahead(pairs.even, next.even)), y + j,
              out_width - j);
          pairs = next;
        }
      }
    }
  return sum(watched) == T(0);
}
template <class T>
void sums_by_threes(dim_t planes, dim_t in_height, dim_t width, dim_t out_height, dim_t out_width,
                    dim_t stride, dim_t padding, const T* x, T factor, T* y) {
  join_by_threes<by_sum, true>(planes, in_height, width, out_height, out_width, stride, padding, x,
                               factor, y);
}
template <class T>
bool maxima_by_threes(dim_t planes, dim_t in_height, dim_t width, dim_t out_height, dim_t out_width,
                      dim_t stride, dim_t padding, const T* x, T* y) {
  return join_by_threes<by_maximum, true>(planes, in_height, width, out_height, out_width, stride,
                                          padding, x, T(1), y);
}
template <class T>
bool maxima_by_inner_threes(dim_t planes, dim_t in_height, dim_t width, dim_t out_height,
                            dim_t out_width, dim_t stride, dim_t padding, const T* x, T* y) {
  return join_by_threes<by_maximum, false>(planes, in_height, width, out_height, out_width, stride,
                                           padding, x, T(1), y);
}
