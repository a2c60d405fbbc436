// vec<T> without registers: what is its own of this set (vec-inl.hpp).

template <class T>
IKEBANA_CPU_INLINE vec<T> max(vec<T> a, vec<T> b) {
  return {a.v > b.v ? a.v : b.v};
}
template <class T>
IKEBANA_CPU_INLINE vec<T> min(vec<T> a, vec<T> b) {
  return {a.v < b.v ? a.v : b.v};
}
template <class T>
IKEBANA_CPU_INLINE vec<T> fma(vec<T> a, vec<T> b, vec<T> c) {
  return {a.v * b.v + c.v};
}
template <class T>
IKEBANA_CPU_INLINE vec<T> sqrt(vec<T> a) {
  if constexpr (sizeof(T) == 4)
    return {__builtin_sqrtf(a.v)};
  else
    return {__builtin_sqrt(a.v)};
}
template <class T>
IKEBANA_CPU_INLINE vec<T> vec<T>::load(const T* p, dim_t n) {
  return {n > 0 ? *p : T{}};
}
template <class T>
IKEBANA_CPU_INLINE void vec<T>::store(T* p, dim_t n) const {
  if (n > 0) *p = v;
}
