// Maxima and their places: lanes that compare values carry places of the same width.

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

template <class T>
IKEBANA_CPU_INLINE vec<T> around_planes() {
  return as<T>(bits_of<T>::broadcast(number<T>::infinity | number<T>::sign));
}
/// The first n lanes, and then what stands around a plane.
template <class T>
IKEBANA_CPU_INLINE vec<T> keep_first(vec<T> x, dim_t n) {
  using B = typename number<T>::bits;
  const auto kept = lane_numbers<T>() < bits_of<T>::broadcast(static_cast<B>(n));
  return select(lane_mask<T>{kept.m}, x, around_planes<T>());
}

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
