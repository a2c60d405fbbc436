// How elements of windows are joined, and partial stores. Lanes that compare values carry places of
// the same width. Needs: strided-inl.hpp.

template <class T>
IKEBANA_CPU_INLINE void store_some(vec<T> s, T* to, dim_t left) {
  if (left >= vec<T>::size) [[likely]]
    s.store(to);
  else
    s.store(to, left);
}

/// How the elements of a window are joined, and with which element in the padding.
struct by_sum {
  template <class T>
  using joined = vec<T>;
  template <class T>
  IKEBANA_CPU_INLINE static vec<T> none() {
    return vec<T>::zero();
  }
  template <class T>
  IKEBANA_CPU_INLINE static vec<T> join(vec<T> some, vec<T> x) {
    return some + x;
  }
  template <class T>
  static T join(T some, T x) {
    return some + x;
  }
  template <class T>
  IKEBANA_CPU_INLINE static T of_lanes(vec<T> x) {
    return sum(x);
  }
  template <class T>
  IKEBANA_CPU_INLINE static vec<T> first_lanes(vec<T> x, dim_t) {
    return x;
  }
};
struct by_maximum {
  template <class T>
  using joined = vec<T>;
  template <class T>
  IKEBANA_CPU_INLINE static vec<T> none() {
    return as<T>(bits_of<T>::broadcast(number<T>::infinity | number<T>::sign));
  }
  /// What is not a number wins.
  template <class T>
  IKEBANA_CPU_INLINE static vec<T> join(vec<T> some, vec<T> x) {
    return select(x != x, x, max(x, some));
  }
  template <class T>
  static T join(T some, T x) {
    return x > some || x != x ? x : some;
  }
  template <class T>
  IKEBANA_CPU_INLINE static T of_lanes(vec<T> x) {
    T lanes[vec<T>::size];
    x.store(lanes);
    T all = lanes[0];
    for (dim_t i = 1; i < vec<T>::size; ++i) all = join(all, lanes[i]);
    return all;
  }
  template <class T>
  IKEBANA_CPU_INLINE static vec<T> first_lanes(vec<T> x, dim_t n) {
    using B = typename number<T>::bits;
    const auto kept = lane_numbers<T>() < bits_of<T>::broadcast(static_cast<B>(n));
    return select(lane_mask<T>{kept.m}, x, none<T>());
  }
};

/// The larger of what was met, and where it was: the first of equals, or the last that is not a
/// number.
template <class T>
struct running_maximum {
  using place = typename number<T>::bits;
  vec<T> best;
  bits_of<T> where;

  IKEBANA_CPU_INLINE void meet(vec<T> x, bits_of<T> at) {
    const lane_mask<T> wins = (x > best) | (x != x);
    best = select(wins, x, best);
    where = select(lane_mask<place>{wins.m}, at, where);
  }
};

/// Maxima and their places, of elements in any order: of equals the first in the plane stays, of
/// what is no number the last.
struct by_place {
  template <class T>
  using joined = running_maximum<T>;
  template <class T>
  static constexpr typename number<T>::bits nowhere = ~number<T>::sign;
  template <class T>
  IKEBANA_CPU_INLINE static running_maximum<T> none() {
    return {by_maximum::none<T>(), bits_of<T>::broadcast(nowhere<T>)};
  }
  template <class T>
  IKEBANA_CPU_INLINE static running_maximum<T> join(running_maximum<T> some, running_maximum<T> x) {
    const vec<T> a = some.best, b = x.best;
    const lane_mask<T> earlier{(x.where < some.where).m}, later{(x.where > some.where).m};
    const lane_mask<T> wins = (b > a) | ((b == a) & earlier) | ((b != b) & (later | (a == a)));
    return {select(wins, b, a),
            select(lane_mask<typename number<T>::bits>{wins.m}, x.where, some.where)};
  }
  /// The same of one element.
  template <class T, class Place>
  static void join(T& best, Place& where, T x, Place at) {
    if (!(x > best || (x == best && at < where) || (x != x && (at > where || best == best))))
      return;
    best = x;
    where = at;
  }
  template <class T>
  IKEBANA_CPU_INLINE static running_maximum<T> first_lanes(running_maximum<T> x, dim_t n) {
    using B = typename number<T>::bits;
    const auto kept = lane_numbers<T>() < bits_of<T>::broadcast(static_cast<B>(n));
    return {by_maximum::first_lanes(x.best, n),
            select(kept, x.where, bits_of<T>::broadcast(nowhere<T>))};
  }
};
template <class By>
inline constexpr bool has_places = std::is_same_v<By, by_place>;
/// What was met, joined with what comes after it in the plane.
template <class By, class Joined>
IKEBANA_CPU_INLINE Joined join_later(Joined earlier, Joined later) {
  if constexpr (has_places<By>) {
    earlier.meet(later.best, later.where);
    return earlier;
  } else {
    return By::join(earlier, later);
  }
}
/// How windows of such work are joined.
template <pool_work Work>
using joining_of =
    std::conditional_t<Work == pool_work::maximum, by_maximum,
                       std::conditional_t<Work == pool_work::maximum_with_place, by_place, by_sum>>;

#if IKEBANA_CPU_WIDTH == 0
template <class T>
IKEBANA_CPU_INLINE void store_indices(bits_of<T> i, std::int32_t* p, dim_t) {
  *p = static_cast<std::int32_t>(i.v);
}
template <class T>
IKEBANA_CPU_INLINE bits_of<T> load_indices(const std::int32_t* p, dim_t) {
  return {static_cast<typename number<T>::bits>(*p)};
}
#else
template <class T>
IKEBANA_CPU_INLINE void store_indices(bits_of<T> i, std::int32_t* p, dim_t n) {
  if constexpr (sizeof(T) == 4) {
    if (n == vec<T>::size)
      i.store(p);
    else
      i.store(p, n);
  } else {
    for (dim_t lane = 0; lane < n; ++lane) p[lane] = static_cast<std::int32_t>(i.v[lane]);
  }
}
template <class T>
IKEBANA_CPU_INLINE bits_of<T> load_indices(const std::int32_t* p, dim_t n) {
  if constexpr (sizeof(T) == 4) {
    return n == vec<T>::size ? bits_of<T>::load(p) : bits_of<T>::load(p, n);
  } else {
    bits_of<T> i = bits_of<T>::zero();
    for (dim_t lane = 0; lane < n; ++lane) i.v[lane] = p[lane];
    return i;
  }
}
#endif

// What elements come to, and its places beside it, from element `at` of a line on.
template <class T, class Place>
IKEBANA_CPU_INLINE void store_joined(vec<T> x, T* line, Place*, dim_t at) {
  x.store(line + at);
}
template <class T, class Place>
IKEBANA_CPU_INLINE void store_joined(running_maximum<T> x, T* line, Place* places, dim_t at) {
  x.best.store(line + at);
  x.where.store(places + at);
}
template <int Phases, class T, class Place>
IKEBANA_CPU_INLINE void load_joined(const T* line, const Place*, dim_t at, vec<T>* x) {
  load_phases<Phases>(line + at, x);
}
template <int Phases, class T, class Place>
IKEBANA_CPU_INLINE void load_joined(const T* line, const Place* places, dim_t at,
                                    running_maximum<T>* x) {
  vec<T> best[Phases];
  vec<Place> where[Phases];
  load_phases<Phases>(line + at, best);
  load_phases<Phases>(places + at, where);
#pragma GCC unroll 4
  for (int i = 0; i < Phases; ++i) x[i] = {best[i], where[i]};
}

/// A register of what windows come to from the one at `at` on, of which `left` are left: sums times
/// `factor`, or maxima.
template <class T>
IKEBANA_CPU_INLINE void put_some(vec<T> x, T factor, T* y, std::int32_t*, dim_t at, dim_t left) {
  store_some(x * factor, y + at, left);
}
template <class T>
IKEBANA_CPU_INLINE void put_some(running_maximum<T> x, T, T* y, std::int32_t* indices, dim_t at,
                                 dim_t left) {
  store_some(x.best, y + at, left);
  store_indices<T>(x.where, indices + at, left < vec<T>::size ? left : vec<T>::size);
}
