// Places of maxima, as the lanes that compare their values.

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
