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
// The same of maxima and their places.
template <class T>
IKEBANA_CPU_INLINE running_maximum<T> one_behind(running_maximum<T> before, running_maximum<T> x) {
  return {one_behind(before.best, x.best), one_behind(before.where, x.where)};
}
template <class T>
IKEBANA_CPU_INLINE running_maximum<T> one_ahead(running_maximum<T> x, running_maximum<T> next) {
  return {one_ahead(x.best, next.best), one_ahead(x.where, next.where)};
}
template <class T>
IKEBANA_CPU_INLINE running_maximum<T> two_ahead(running_maximum<T> x, running_maximum<T> next,
                                                running_maximum<T> after) {
  return {two_ahead(x.best, next.best, after.best), two_ahead(x.where, next.where, after.where)};
}
template <class T>
IKEBANA_CPU_INLINE auto split_pairs(running_maximum<T> a, running_maximum<T> b) {
  const auto best = split_pairs(a.best, b.best);
  const auto where = split_pairs(a.where, b.where);
  struct maxima {
    running_maximum<T> even, odd;
  };
  return maxima{{best.even, where.even}, {best.odd, where.odd}};
}

/// Sums times `factor`, or maxima with or without places, of windows of three by three in all
/// slices: columns of rows first, and then neighbours.
template <pool_work Work, class T>
void join_threes(const pool_geometry& g, const T* x, T factor, T* y, std::int32_t* indices) {
  using By = joining_of<Work>;
  using joined = typename By::template joined<T>;
  using B = typename number<T>::bits;
  constexpr dim_t w = vec<T>::size;
  const dim_t height = g.in[1], width = g.in[2], count = g.out[2], left = g.padding[2];
  const joined none = By::template none<T>();
  const auto of_three = [](joined a, joined b, joined c) __attribute__((always_inline)) {
    return By::join(By::join(a, b), c);
  };
  const dim_t slices = g.planes * g.in[0];
  T* const nothing = detail::thread_scratch<T>();
  for (dim_t j = 0; j < width; j += w)
    if constexpr (has_places<By>)
      none.best.store(nothing + j);
    else
      none.store(nothing + j);
  for (dim_t slice = 0; slice < slices; ++slice, x += height * width)
    for (dim_t r = 0; r < g.out[1]; ++r, y += count) {
      const auto row = [=](dim_t at) { return at >= 0 && at < height ? x + at * width : nothing; };
      const dim_t top = r * g.stride[1] - g.padding[1];
      const T *const upper = row(top), *const middle = row(top + 1), *const lower = row(top + 2);
      const auto met = [&](dim_t j, auto load) __attribute__((always_inline)) {
        const vec<T> a = load(upper + j), b = load(middle + j), c = load(lower + j);
        if constexpr (has_places<By>) {
          const auto at = [&](dim_t i) __attribute__((always_inline)) {
            return lane_numbers<T>() +
                   static_cast<B>((slice % g.in[0] * height + top + i) * width + j);
          };
          joined all{a, at(top < 0 ? -top : 0)};
          all.meet(b, at(1));
          all.meet(c, at(2));
          return all;
        } else {
          return of_three(a, b, c);
        }
      };
      const auto columns = [&](dim_t j) __attribute__((always_inline)) {
        const dim_t n = width - j;
        if (n >= w) [[likely]]
          return met(
              j, [](const T* p) __attribute__((always_inline)) { return vec<T>::load(p); });
        if (n <= 0) return none;
        return By::first_lanes(
            met(
                j, [n](const T* p) __attribute__((always_inline)) { return vec<T>::load(p, n); }),
            n);
      };
      const auto put = [=](joined found, dim_t j) __attribute__((always_inline)) {
        put_some(found, factor, y, indices, j, count - j);
      };
      if (g.stride[2] == 1) {
        joined before = none, here = columns(0);
        for (dim_t j = 0; j < count; j += w) {
          const joined next = columns(j + w), ahead = one_ahead(here, next);
          if (left > 0)
            put(of_three(one_behind(before, here), here, ahead), j);
          else
            put(of_three(here, ahead, two_ahead(here, next, w == 1 ? columns(j + 2) : none)), j);
          before = here;
          here = next;
        }
      } else {
        // Without a column of nothing, a vector of results waits for the next columns.
        auto before = split_pairs(none, none);
        for (dim_t j = left > 0 ? 0 : -w; j < count; j += w) {
          const dim_t at = left > 0 ? 2 * j : 2 * (j + w);
          const auto pairs = split_pairs(columns(at), columns(at + w));
          if (left > 0)
            put(of_three(one_behind(before.odd, pairs.odd), pairs.even, pairs.odd), j);
          else if (j >= 0)
            put(of_three(before.even, before.odd, one_ahead(before.even, pairs.even)), j);
          before = pairs;
        }
      }
      if (has_places<By>) indices += count;
    }
}
