// Depthwise convolutions with channels as lanes (conv_depthwise_lanes.hpp).

#if IKEBANA_CPU_WIDTH >= 32
/// Four sums at a time, that do not wait for each other.
template <class T>
void add_lanes(dim_t results, const detail::lane_term* terms, const std::int32_t* ends, const T* a,
               const T* b, T* to, bool adds) {
  constexpr dim_t w = vec<T>::size;
  const auto times = [=](detail::lane_term t, vec<T> sum) __attribute__((always_inline)) {
    return fma(vec<T>::load(a + t.a), vec<T>::load(b + t.b), sum);
  };
  const detail::lane_term* t = terms;
  for (dim_t i = 0; i < results; ++i, to += w) {
    const detail::lane_term* const end = terms + ends[i];
    vec<T> s0 = adds ? vec<T>::load(to) : vec<T>::zero(), s1 = vec<T>::zero(), s2 = s1, s3 = s1;
    for (; t + 4 <= end; t += 4) {
      s0 = times(t[0], s0);
      s1 = times(t[1], s1);
      s2 = times(t[2], s2);
      s3 = times(t[3], s3);
    }
    for (; t < end; ++t) s0 = times(*t, s0);
    ((s0 + s1) + (s2 + s3)).store(to);
  }
}
#endif
