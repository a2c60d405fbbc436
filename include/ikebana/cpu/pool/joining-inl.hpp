// How elements of windows are joined, and partial stores.

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
