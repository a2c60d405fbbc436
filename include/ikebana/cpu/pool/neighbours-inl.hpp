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
template <class T>
IKEBANA_CPU_INLINE even_odd<T> interleave_pairs(vec<T> a, vec<T> b) {
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
template <class T>
IKEBANA_CPU_INLINE even_odd<T> interleave_pairs(vec<T> a, vec<T> b) {
  return interleave_pairs(a, b, lane_sequence<T>{});
}
#endif

/// Sums times `factor`, or maxima, in all slices: columns of rows first, and then neighbours.
template <class By, class T>
IKEBANA_CPU_INLINE void join_along_rows(const pool_geometry& g, const T* x, T factor, T* y) {
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

/// The same, or maxima with places, down each register of columns: neighbours of a row are joined
/// once for all windows that it meets.
template <class By, class T>
IKEBANA_CPU_INLINE void join_down_columns(const pool_geometry& g, const T* x, T factor, T* y,
                                          std::int32_t* indices) {
  using values = std::conditional_t<has_places<By>, by_maximum, By>;
  using joined = typename By::template joined<T>;
  using B = typename number<T>::bits;
  constexpr dim_t w = vec<T>::size;
  const dim_t height = g.in[1], width = g.in[2], count = g.out[2], top = g.padding[1],
              bottom = (g.out[1] - 1) * g.stride[1] + 3 - top, slices = g.planes * g.in[0];
  const bool is_direct = g.stride[2] == 1;
  const vec<T> none = values::template none<T>();
  for (dim_t slice = 0; slice < slices; ++slice, x += height * width, y += g.out[1] * count) {
    const dim_t start = slice % g.in[0] * height * width;
    for (dim_t j = 0; j < count; j += w) {
      const dim_t first = j * g.stride[2] - g.padding[2];
      // A register of a row from column `at` on.
      const auto met = [=](const T* row, dim_t at) __attribute__((always_inline)) {
        const dim_t from = at < 0 ? 0 : at, left = width - from;
        if (left <= 0) return none;
        const vec<T> v = left >= w ? vec<T>::load(row + from)
                                   : values::first_lanes(vec<T>::load(row + from, left), left);
        return at < 0 ? one_behind(none, v) : v;
      };
      const bits_of<T> lanes = lane_numbers<T>(), zero = bits_of<T>::zero(),
                       columns = (is_direct ? lanes : lanes + lanes) + static_cast<B>(first),
                       inside = select(columns < zero, zero, columns);
      const auto join_row = [&](const T* row, dim_t place) __attribute__((always_inline)) {
        vec<T> a, b, c;
        if (is_direct && width <= w) {
          const vec<T> v = met(row, 0), ahead = one_ahead(v, none);
          a = first < 0 ? one_behind(none, v) : v;
          b = first < 0 ? v : ahead;
          c = first < 0 ? ahead : two_ahead(v, none, none);
        } else if (is_direct) {
          a = met(row, first);
          b = met(row, first + 1);
          c = met(row, first + 2);
        } else {
          const auto pairs = split_pairs(met(row, first), met(row, first + w));
          a = pairs.even;
          b = pairs.odd;
          c = split_pairs(met(row, first + 2), met(row, first + 2 + w)).even;
        }
        if constexpr (has_places<By>) {
          joined all{a, inside + static_cast<B>(place)};
          all.meet(b, columns + static_cast<B>(place + 1));
          all.meet(c, columns + static_cast<B>(place + 2));
          return all;
        } else {
          return By::join(By::join(a, b), c);
        }
      };
      // What is above a plane of which all is -infinity has the place of its first row.
      joined around;
      if constexpr (has_places<By>)
        around = {none, inside + static_cast<B>(start)};
      else
        around = none;
      joined upper = around, middle = around, lower = around;
      dim_t missing = 3, at = j;
      for (dim_t r = -top; r < bottom; ++r) {
        upper = middle;
        middle = lower;
        lower = r >= 0 && r < height ? join_row(x + r * width, start + r * width) : around;
        if (--missing > 0) continue;
        missing = g.stride[1];
        put_some(join_later<By>(join_later<By>(upper, middle), lower), factor, y, indices, at,
                 count - j);
        at += count;
      }
    }
    if (has_places<By>) indices += g.out[1] * count;
  }
}

/// Sums times `factor`, or maxima with or without places, of windows of three by three.
template <pool_work Work, class T>
void join_threes(const pool_geometry& g, const T* x, T factor, T* y, std::int32_t* indices) {
  using By = joining_of<Work>;
  if constexpr (!has_places<By>) {
    const bool narrow = vec<T>::size > 1 && g.stride[2] == 1 && g.in[2] <= vec<T>::size;
    if (!narrow) return join_along_rows<By>(g, x, factor, y);
  }
  join_down_columns<By>(g, x, factor, y, indices);
}

/// dx of sums of windows of three by three with strides of 2, times `factor`, down each register of
/// columns. Of neighbours in dx, along rows as along columns, one is in a single window, the other
/// in this and the next, or the one before.
template <class T>
void spread_threes(const pool_geometry& g, const T* dy, T factor, T* dx) {
  constexpr dim_t w = vec<T>::size;
  const dim_t height = g.in[1], width = g.in[2], count = g.out[2], top = g.padding[1];
  const bool pads = g.padding[2] > 0;
  const vec<T> by = vec<T>::broadcast(factor), zero = vec<T>::zero();
  for (dim_t slice = 0; slice < g.planes * g.in[0]; ++slice, dx += height * width)
    for (dim_t j = 0; 2 * j < width; j += w) {
      const dim_t n = width - 2 * j;
      const auto put = [=](dim_t r, vec<T> even, vec<T> odd) __attribute__((always_inline)) {
        if (r < 0 || r >= height) return;
        T* const to = dx + r * width + 2 * j;
        store_some(even, to, n);
        if (n > w) store_some(odd, to + w, n - w);
      };
      auto before = interleave_pairs(zero, zero);
      const T* row = dy + slice * g.out[1] * count;
      for (dim_t o = 0; 2 * o - top < height; ++o, row += count) {
        const auto met = [=](dim_t at) __attribute__((always_inline)) {
          const dim_t left = o < g.out[1] && at >= 0 ? count - at : 0;
          if (left >= w) return vec<T>::load(row + at);
          return left > 0 ? vec<T>::load(row + at, left) : zero;
        };
        const vec<T> one = met(j) * by, two = one + (pads ? one_ahead(one, met(j + w) * by)
                                                          : one_behind(met(j - w) * by, one));
        const auto pairs = interleave_pairs(pads ? one : two, pads ? two : one);
        put(2 * o - top, before.even + pairs.even, before.odd + pairs.odd);
        put(2 * o - top + 1, pairs.even, pairs.odd);
        before = pairs;
      }
    }
}
