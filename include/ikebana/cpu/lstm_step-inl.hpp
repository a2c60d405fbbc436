// A step of a single sequence, which waits for the one before: what counts is how long it takes
// from h to h.

/// How many partial sums there are of each: one alone would wait for itself.
#if IKEBANA_CPU_WIDTH == 64
inline constexpr std::size_t lstm_parts = 4;
#else
inline constexpr std::size_t lstm_parts = 2;
#endif

/// Adds x times k rows to the sums of four gates, as many rows at a time as there are parts.
template <class T, std::size_t... I>
IKEBANA_CPU_INLINE const T* add_to_gates(dim_t k, const T* x, const T* packed, vec<T>* sums,
                                         std::index_sequence<I...>) {
  constexpr auto parts = static_cast<dim_t>(lstm_parts);
  for (; k >= parts; k -= parts, x += parts, packed += parts * 64)
    ((sums[I] = fma(vec<T>::broadcast(x[I / 4]), vec<T>::load(packed + I * 16), sums[I])), ...);
  for (; k > 0; --k, ++x, packed += 64)
    ((I < 4 ? void(sums[I] = fma(vec<T>::broadcast(*x), vec<T>::load(packed + I % 4 * 16), sums[I]))
            : void()),
     ...);
  return packed;
}

/// As many units as a register holds, from j on.
template <class T, class Lanes, std::size_t... I, std::size_t... G>
IKEBANA_CPU_INLINE void lstm_units(const lstm_step<T>& s, dim_t j, Lanes lanes,
                                   std::index_sequence<I...> all, std::index_sequence<G...>) {
  const dim_t n = s.hidden;
  const T* packed = s.packed + j / 16 * (1 + s.in + n) * 64 + j % 16;
  vec<T> sums[] = {I < 4 ? vec<T>::load(packed + I % 4 * 16) : vec<T>::zero()...};
  packed = add_to_gates(s.in, s.x, packed + 64, sums, all);
  add_to_gates(n, static_cast<const T*>(s.h), packed, sums, all);
  if constexpr (lstm_parts == 4)
    ((sums[G] = (sums[G] + sums[G + 4]) + (sums[G + 8] + sums[G + 12])), ...);
  else
    ((sums[G] = sums[G] + sums[G + 4]), ...);
  const vec<T> in = sigmoid(sums[0]), forget = sigmoid(sums[1]), fresh = tanh(sums[2]),
               out = sigmoid(sums[3]), before = lanes.load(s.c + j);
  const vec<T> now = fma(forget, before, in * fresh), squashed = tanh(now), h = out * squashed;
  lanes.store(h, s.h_after + j);
  lanes.store(h, s.y + j);
  lanes.store(now, s.c + j);
  lanes.store(now, s.c_after + j);
  lanes.store(lanes.load(static_cast<const T*>(s.h) + j), s.h_before + j);
  lanes.store(before, s.c_before + j);
  lanes.store(squashed, s.tanh_c + j);
  lanes.store(in, s.gates + j);
  lanes.store(forget, s.gates + n + j);
  lanes.store(fresh, s.gates + 2 * n + j);
  lanes.store(out, s.gates + 3 * n + j);
  // All units read the whole h that was.
  if (j + vec<T>::size < n) return;
  for (dim_t i = 0; i < j; i += vec<T>::size) vec<T>::load(s.h_after + i).store(s.h + i);
  lanes.store(h, s.h + j);
}

template <class T, class Lanes>
[[gnu::noinline]] void lstm_units(const lstm_step<T>& s, dim_t j, Lanes lanes) {
  lstm_units(s, j, lanes, std::make_index_sequence<4 * lstm_parts>{},
             std::make_index_sequence<4>{});
}

template <class T>
void one_lstm_step(const lstm_step<T>& s) {
  constexpr dim_t w = vec<T>::size;
  dim_t j = 0;
  for (; j + w < s.hidden; j += w) lstm_units(s, j, all_lanes<T>{});
  if (j + w == s.hidden) return lstm_units(s, j, all_lanes<T>{});
  lstm_units(s, j, some_lanes<T>{s.hidden - j});
}
