// A step of a causal convolution: few sums of many terms, each in several parts, which do not wait
// for each other.
// Needs: gated_step-inl.hpp.

/// The first half of x: what is stored by a mask waits to be read until it is in the cache.
template <class T>
IKEBANA_CPU_INLINE void store_lower_half(vec<T> x, T* to) {
  constexpr auto half = static_cast<std::size_t>(vec<T>::size / 2);
  if constexpr (half > 1) {
    const auto lower = lower_half(x.v, std::make_index_sequence<half>{});
    __builtin_memcpy(to, &lower, sizeof(lower));
  } else {
    x.store(to, static_cast<dim_t>(half));
  }
}

/// The outputs of registers that are computed together, from j on.
template <class T, std::size_t... I, std::size_t... U>
IKEBANA_CPU_INLINE void causal_outputs(const causal_step<T>& s, dim_t j,
                                       std::index_sequence<I...> all, std::index_sequence<U...>) {
  constexpr std::size_t together = sizeof...(U);
  constexpr dim_t w = vec<T>::size;
  const T* packed = s.packed + j / 16 * 16 * (1 + s.in * s.taps) + j % 16;
  vec<T> sums[] = {I < together ? load_sum<together>(packed, I) : vec<T>::zero()...};
  packed += 16;
  dim_t at = s.first;
  for (dim_t k = 0; k < s.taps; ++k) {
    packed = add_to_gates<1, together>(s.in, s.ring + at * s.in, packed, sums, all);
    at += s.dilation;
    if (at >= s.length) at -= s.length;
  }
  vec<T> y[] = {(sums[U] + sums[U + together]) +
                (sums[U + 2 * together] + sums[U + 3 * together])...};
  if (s.function == activation::tanh)
    ((y[U] = tanh(y[U])), ...);
  else if (s.function == activation::relu)
    ((y[U] = relu(y[U])), ...);
  const dim_t left = s.out - j;
  ((together > 1 || left >= w ? y[U].store(s.y + j + static_cast<dim_t>(U) * w)
    : left == w / 2           ? store_lower_half(y[U], s.y + j)
                              : y[U].store(s.y + j, left)),
   ...);
}

template <class T>
void one_causal_step(const causal_step<T>& s) {
  constexpr dim_t w = vec<T>::size;
  dim_t j = 0;
  if constexpr (w > 1 && w < 16)
    for (; j + 2 * w <= s.out; j += 2 * w)
      causal_outputs(s, j, std::make_index_sequence<8>{}, std::make_index_sequence<2>{});
  for (; j < s.out; j += w)
    causal_outputs(s, j, std::make_index_sequence<4>{}, std::make_index_sequence<1>{});
}
