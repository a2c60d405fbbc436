// How elements of windows are joined, and partial stores.

template <class T>
IKEBANA_CPU_INLINE void store_some(vec<T> s, T* to, dim_t left) {
  if (left >= vec<T>::size) [[likely]]
    s.store(to);
  else
    s.store(to, left);
}

/// How the elements of a window are joined: by which operation, with which element in the padding,
/// and how values that are not finite are noticed.
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
  template <class T>
  IKEBANA_CPU_INLINE static vec<T> watch(vec<T> watched, vec<T>) {
    return watched;
  }
};
struct by_maximum {
  /// The least that is finite: what is not is refused.
  template <class T>
  IKEBANA_CPU_INLINE static vec<T> none() {
    return as<T>(bits_of<T>::broadcast((number<T>::infinity - 1) | number<T>::sign));
  }
  template <class T>
  IKEBANA_CPU_INLINE static vec<T> join(vec<T> some, vec<T> x) {
    return max(x, some);
  }
  template <class T>
  static T join(T some, T x) {
    return x > some ? x : some;
  }
  template <class T>
  IKEBANA_CPU_INLINE static T of_lanes(vec<T> x) {
    return maximum(x);
  }
  template <class T>
  IKEBANA_CPU_INLINE static vec<T> first_lanes(vec<T> x, dim_t n) {
    using B = typename number<T>::bits;
    const auto kept = lane_numbers<T>() < bits_of<T>::broadcast(static_cast<B>(n));
    return select(lane_mask<T>{kept.m}, x, none<T>());
  }
  /// Times zero, what is not finite is not a number, and everything else zero.
  template <class T>
  IKEBANA_CPU_INLINE static vec<T> watch(vec<T> watched, vec<T> x) {
    return fma(x, vec<T>::zero(), watched);
  }
};
