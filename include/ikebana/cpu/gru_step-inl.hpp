// A step of a single sequence through a GRU; as lstm_step-inl.hpp.

/// The sum of the parts of register i.
template <std::size_t Gates, class T>
IKEBANA_CPU_INLINE vec<T> sum_of_parts(const vec<T>* sums, std::size_t i, std::size_t parts) {
  if (parts == 4) return (sums[i] + sums[i + Gates]) + (sums[i + 2 * Gates] + sums[i + 3 * Gates]);
  return parts == 2 ? sums[i] + sums[i + Gates] : sums[i];
}

/// As many units as some registers hold, from j on.
template <class T, class Lanes, std::size_t... I, std::size_t... R>
IKEBANA_CPU_INLINE void gru_units(const gru_step<T>& s, dim_t j, Lanes lanes,
                                  std::index_sequence<I...> all, std::index_sequence<R...>) {
  constexpr std::size_t together = sizeof...(R), gates = 3 * together, parts = lstm_parts<together>,
                        w = static_cast<std::size_t>(vec<T>::size);
  const dim_t n = s.hidden;
  const T* packed = s.packed + j / 16 * (2 + s.in + n) * 48 + j % 16;
  const auto bias = [&](std::size_t i) __attribute__((always_inline)) {
    return vec<T>::load(packed + i / together * 16 + i % together * w);
  };
  vec<T> sums[] = {I < gates ? bias(I % gates) : vec<T>::zero()...};
  packed = add_to_gates<3, together>(s.in, s.x, packed + 48, sums, all);
  // The new h multiplies its sum over h by r: the two sums are apart.
  const vec<T> from_x[] = {sum_of_parts<gates>(sums, 2 * together + R, parts)...};
  ((I % gates >= 2 * together ? void(sums[I] = I < gates ? bias(I) : vec<T>::zero()) : void()),
   ...);
  add_to_gates<3, together>(n, static_cast<const T*>(s.h), packed + 48, sums, all);
  const vec<T> from_h[] = {sum_of_parts<gates>(sums, 2 * together + R, parts)...},
               reset[] = {sigmoid(sum_of_parts<gates>(sums, R, parts))...},
               update[] = {sigmoid(sum_of_parts<gates>(sums, together + R, parts))...},
               fresh[] = {tanh(fma(reset[R], from_h[R], from_x[R]))...},
               before[] = {lanes.load(static_cast<const T*>(s.h) + j + R * w)...},
               h[] = {fma(update[R], before[R] - fresh[R], fresh[R])...};
  const auto store = [=](const vec<T>* x, T* to) __attribute__((always_inline)) {
    (lanes.store(x[R], to + j + R * w), ...);
  };
  store(h, s.h_after);
  store(h, s.y);
  store(before, s.h_before);
  store(from_h, s.new_from_h);
  store(reset, s.gates);
  store(update, s.gates + n);
  store(fresh, s.gates + 2 * n);
  // All units read the whole h that was.
  if (j + static_cast<dim_t>(together * w) < n) return;
  for (dim_t i = 0; i < j; i += vec<T>::size) vec<T>::load(s.h_after + i).store(s.h + i);
  store(h, s.h);
}

template <std::size_t Together, class T, class Lanes>
[[gnu::noinline]] void gru_units(const gru_step<T>& s, dim_t j, Lanes lanes) {
  gru_units(s, j, lanes, std::make_index_sequence<3 * Together * lstm_parts<Together>>{},
            std::make_index_sequence<Together>{});
}

template <class T>
void one_gru_step(const gru_step<T>& s) {
  constexpr dim_t w = vec<T>::size;
  constexpr std::size_t together = lstm_together<T>;
  dim_t j = 0;
  if constexpr (together > 1)
    for (; j + static_cast<dim_t>(together) * w <= s.hidden; j += static_cast<dim_t>(together) * w)
      gru_units<together>(s, j, all_lanes<T>{});
  for (; j < s.hidden; j += w) gru_units<1>(s, j, some_lanes<T>{s.hidden - j});
}
