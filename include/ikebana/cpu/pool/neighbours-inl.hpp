// Windows of up to three rows of two or three columns, with strides of columns of 1 or 2:
// neighbours are joined in registers, which no memory comes between. Needs: joining-inl.hpp,
// maximum-inl.hpp, strided-inl.hpp.

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
/// first, and then neighbours. Whether all that is watched was finite.
template <class By, class T>
bool join_threes(const pool_geometry& g, const T* x, T factor, T* y) {
  constexpr dim_t w = vec<T>::size;
  const dim_t height = g.in[1], width = g.in[2], count = g.out[2], left = g.padding[2];
  const vec<T> by = vec<T>::broadcast(factor), none = By::template none<T>();
  vec<T> watched = vec<T>::zero();
  const auto seen = [&](vec<T> v) __attribute__((always_inline)) {
    watched = By::watch(watched, v);
    return v;
  };
  const auto of_three = [](vec<T> a, vec<T> b, vec<T> c) __attribute__((always_inline)) {
    return By::join(By::join(a, b), c);
  };
  const auto put = [=](vec<T> s, T * to, dim_t some) __attribute__((always_inline)) {
    store_some(s * by, to, some);
  };
  const dim_t slices = g.planes * g.in[0];
  if (g.stride[1] == 1 && g.stride[2] == 1 && width <= w) {
    // A row is a register, and is read once.
    for (dim_t slice = 0; slice < slices; ++slice, x += height * width) {
      const auto row = [&](dim_t at) __attribute__((always_inline)) {
        if (at < 0 || at >= height) return none;
        return By::first_lanes(seen(vec<T>::load(x + at * width, width)), width);
      };
      vec<T> upper = row(-g.padding[1]), middle = row(1 - g.padding[1]);
      for (dim_t r = 0; r < g.out[1]; ++r, y += count) {
        const vec<T> lower = row(r - g.padding[1] + 2), s = of_three(upper, middle, lower),
                     ahead = one_ahead(s, none);
        put(left > 0 ? of_three(one_behind(none, s), s, ahead)
                     : of_three(s, ahead, two_ahead(s, none, none)),
            y, count);
        upper = middle;
        middle = lower;
      }
    }
    return sum(watched) == T(0);
  }
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
          return of_three(seen(vec<T>::load(upper + j)), seen(vec<T>::load(middle + j)),
                          seen(vec<T>::load(lower + j)));
        if (n <= 0) return none;
        return By::first_lanes(
            of_three(seen(vec<T>::load(upper + j, n)), seen(vec<T>::load(middle + j, n)),
                     seen(vec<T>::load(lower + j, n))),
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
  return sum(watched) == T(0);
}

/// Every second of the elements of a, then of b, from the first or the second on, as in_order takes
/// them: on AVX2, what parts neighbours within halves of registers takes one operation, not two.
#if IKEBANA_CPU_WIDTH == 0
template <int Odd, class T>
IKEBANA_CPU_INLINE vec<T> part(vec<T> a, vec<T> b) {
  return Odd == 0 ? a : b;
}
template <class V>
IKEBANA_CPU_INLINE V in_order(V x) {
  return x;
}
#else
template <class T>
struct parted {
  static constexpr int size = static_cast<int>(vec<T>::size),
                       together = IKEBANA_CPU_WIDTH == 32 ? 16 / int{sizeof(T)} : size,
                       pairs = together / 2;
  /// The element of a, then b, that lane l has of those that begin with `odd`.
  static constexpr int source(int l, int odd) {
    return l % together / pairs * size + l / together * together + l % pairs * 2 + odd;
  }
  /// The lane that has pair i.
  static constexpr int lane(int i) {
    return i % (size / 2) / pairs * together + i / (size / 2) * pairs + i % pairs;
  }
};
template <int Odd, class T, std::size_t... L>
IKEBANA_CPU_INLINE vec<T> part(vec<T> a, vec<T> b, std::index_sequence<L...>) {
  return {__builtin_shufflevector(a.v, b.v, parted<T>::source(static_cast<int>(L), Odd)...)};
}
template <int Odd, class T>
IKEBANA_CPU_INLINE vec<T> part(vec<T> a, vec<T> b) {
  return part<Odd>(a, b, lane_sequence<T>{});
}
template <class T, std::size_t... L>
IKEBANA_CPU_INLINE vec<T> in_order(vec<T> x, std::index_sequence<L...>) {
  return {__builtin_shufflevector(x.v, x.v, parted<T>::lane(static_cast<int>(L))...)};
}
template <class T>
IKEBANA_CPU_INLINE vec<T> in_order(vec<T> x) {
  return in_order(x, lane_sequence<T>{});
}
#endif

/// The maxima of a slice and their places, which begin with `start`: down each register of columns,
/// a row is joined once for all windows that it meets. Whether all that is watched was finite.
template <int Stride, class T>
bool place_neighbours(const pool_geometry& g, const T* x, dim_t start, T* y,
                      std::int32_t* indices) {
  using B = typename number<T>::bits;
  using maximum = running_maximum<T>;
  constexpr dim_t w = vec<T>::size;
  const dim_t width = g.in[2], height = g.in[1], count = g.out[2], top = g.padding[1],
              rows = g.kernel[1], bottom = (g.out[1] - 1) * g.stride[1] + rows - top;
  const bool has_third = g.kernel[2] == 3;
  const vec<T> around = around_planes<T>(), zero = vec<T>::zero();
  const maximum none{around, bits_of<T>::zero()};
  // What a register's lanes stand at.
  const bits_of<T> each = lane_numbers<T>(), next = each + static_cast<B>(w),
                   lanes = Stride == 1 ? each : part<0>(each, next);
  vec<T> watched = zero;
  const auto watch = [&](vec<T> v) __attribute__((always_inline)) {
    watched = fma(v, zero, watched);
    return v;
  };
  for (dim_t j = 0; j < count; j += w) {
    const dim_t first = Stride * j - g.padding[2], results = count - j < w ? count - j : w;
    const auto down = [&](auto inner) __attribute__((always_inline)) {
      // A register of a row from column first + k on.
      const auto met = [&](const T* row, dim_t k) __attribute__((always_inline)) {
        const dim_t at = first + k;
        if constexpr (decltype(inner)::value) return vec<T>::load(row + at);
        const dim_t from = at < 0 ? 0 : at, left = width - from;
        if (left <= 0) return around;
        const vec<T> v = left >= w ? watch(vec<T>::load(row + from))
                                   : keep_first(watch(vec<T>::load(row + from, left)), left);
        return at < 0 ? one_behind(around, v) : v;
      };
      const auto seen = [&](vec<T> v) __attribute__((always_inline)) {
        return decltype(inner)::value ? watch(v) : v;
      };
      maximum upper = none, middle = none, lower = none;
      dim_t missing = rows, at = j;
      for (dim_t r = -top; r < bottom; ++r) {
        upper = middle;
        middle = lower;
        lower = none;
        if (r >= 0 && r < height) {
          const T* const row = x + r * width;
          const bits_of<T> place =
              lanes + bits_of<T>::broadcast(static_cast<B>(start + r * width + first));
          vec<T> a, b, c;
          if (Stride == 1 && width <= w) {
            const vec<T> v = keep_first(watch(vec<T>::load(row, width)), width);
            const vec<T> ahead = one_ahead(v, around);
            a = first < 0 ? one_behind(around, v) : v;
            b = first < 0 ? v : ahead;
            c = first < 0 ? ahead : two_ahead(v, around, around);
          } else if constexpr (Stride == 1) {
            a = seen(met(row, 0));
            b = met(row, 1);
            c = has_third ? met(row, 2) : around;
          } else {
            const vec<T> some = seen(met(row, 0)), more = seen(met(row, w));
            a = part<0>(some, more);
            b = part<1>(some, more);
            c = has_third ? part<0>(met(row, 2), met(row, 2 + w)) : around;
          }
          lower = {a, place};
          lower.meet(b, place + B{1});
          if (has_third) lower.meet(c, place + B{2});
        }
        if (--missing > 0) continue;
        missing = g.stride[1];
        maximum m = rows > 2 ? upper : rows > 1 ? middle : lower;
        if (rows > 2) m.meet(middle.best, middle.where);
        if (rows > 1) m.meet(lower.best, lower.where);
        if constexpr (Stride == 2) m = {in_order(m.best), in_order(m.where)};
        if (results == w)
          m.best.store(y + at);
        else
          m.best.store(y + at, results);
        store_indices<T>(m.where, indices + at, results);
        at += count;
      }
    };
    // The first and the last registers see all that inner ones do not.
    if (first >= 0 && j + w < count && first + Stride * w + 2 <= width)
      down(std::true_type{});
    else
      down(std::false_type{});
  }
  return sum(watched) == T(0);
}
template <class T>
bool place_neighbours(const pool_geometry& g, const T* x, T* y, std::int32_t* indices) {
  const dim_t slice = g.in[1] * g.in[2], results = g.out[1] * g.out[2];
  const auto place = g.stride[2] == 1 ? &place_neighbours<1, T> : &place_neighbours<2, T>;
  for (dim_t z = 0; z < g.in[0]; ++z)
    if (!place(g, x + z * slice, z * slice, y + z * results, indices + z * results)) return false;
  return true;
}

template <class T>
void sums_of_neighbours(const pool_geometry& g, const T* x, T factor, T* y) {
  join_threes<by_sum>(g, x, factor, y);
}
/// Maxima of the last `planes` planes. How many it has done: it stops at one with what is not
/// finite, whose maxima may be wrong.
template <class T>
dim_t maxima_of_neighbours(const pool_geometry& g, dim_t planes, const T* x, T* y) {
  if (planes == g.planes && join_threes<by_maximum>(g, x, T(1), y)) return planes;
  pool_geometry one = g;
  one.planes = 1;
  for (dim_t n = 0; n < planes; ++n, x += g.input_plane(), y += g.output_plane())
    if (!join_threes<by_maximum>(one, x, T(1), y)) return n;
  return planes;
}
/// The same, with places.
template <class T>
dim_t places_of_neighbours(const pool_geometry& g, dim_t planes, const T* x, T* y,
                           std::int32_t* indices) {
  const dim_t in = g.input_plane(), out = g.output_plane();
  for (dim_t n = 0; n < planes; ++n)
    if (!place_neighbours(g, x + n * in, y + n * out, indices + n * out)) return n;
  return planes;
}
