// A step of a single sequence, which waits for the one before: what counts is how long it takes
// from h to h.

/// How many registers of units go together: a second one after the first would find the processor
/// full of what waits for the first.
template <class T>
inline constexpr std::size_t lstm_together = vec<T>::size > 1 && vec<T>::size < 16 ? 2 : 1;
/// How many partial sums there are of each: few sums would wait for themselves.
template <std::size_t Together>
inline constexpr std::size_t lstm_parts = (IKEBANA_CPU_WIDTH == 64 ? 4 : 2) / Together;

/// Adds x times k rows to the sums of the gates, as many rows at a time as there are parts.
template <std::size_t Gates, std::size_t Together, class T, std::size_t... I>
IKEBANA_CPU_INLINE const T* add_to_gates(dim_t k, const T* x, const T* packed, vec<T>* sums,
                                         std::index_sequence<I...>) {
  constexpr std::size_t gates = Gates * Together, w = static_cast<std::size_t>(vec<T>::size);
  constexpr auto parts = static_cast<dim_t>(lstm_parts<Together>);
  constexpr dim_t row = 16 * Gates;
  for (; k >= parts; k -= parts, x += parts, packed += parts * row)
    ((sums[I] = fma(vec<T>::broadcast(x[I / gates]),
                    vec<T>::load(packed + I / Together * 16 + I % Together * w), sums[I])),
     ...);
  for (; k > 0; --k, ++x, packed += row)
    ((I < gates
          ? void(sums[I] = fma(vec<T>::broadcast(*x),
                               vec<T>::load(packed + I % gates / Together * 16 + I % Together * w),
                               sums[I]))
          : void()),
     ...);
  return packed;
}

/// As many units as some registers hold, from j on.
template <class T, class Lanes, std::size_t... I, std::size_t... G, std::size_t... R>
IKEBANA_CPU_INLINE void lstm_units(const lstm_step<T>& s, dim_t j, Lanes lanes,
                                   std::index_sequence<I...> all, std::index_sequence<G...>,
                                   std::index_sequence<R...>) {
  constexpr std::size_t together = sizeof...(R), gates = sizeof...(G),
                        w = static_cast<std::size_t>(vec<T>::size);
  const dim_t n = s.hidden;
  const T* packed = s.packed + j / 16 * (1 + s.in + n) * 64 + j % 16;
  vec<T> sums[] = {I < gates ? vec<T>::load(packed + I % gates / together * 16 + I % together * w)
                             : vec<T>::zero()...};
  packed = add_to_gates<4, together>(s.in, s.x, packed + 64, sums, all);
  add_to_gates<4, together>(n, static_cast<const T*>(s.h), packed, sums, all);
  if constexpr (lstm_parts<together> == 4)
    ((sums[G] = (sums[G] + sums[G + gates]) + (sums[G + 2 * gates] + sums[G + 3 * gates])), ...);
  else if constexpr (lstm_parts<together> == 2)
    ((sums[G] = sums[G] + sums[G + gates]), ...);
  const vec<T> in[] = {sigmoid(sums[R])...}, forget[] = {sigmoid(sums[together + R])...},
               fresh[] = {tanh(sums[2 * together + R])...},
               out[] = {sigmoid(sums[3 * together + R])...},
               before[] = {lanes.load(s.c + j + R * w)...};
  const vec<T> now[] = {fma(forget[R], before[R], in[R] * fresh[R])...},
               squashed[] = {tanh(now[R])...}, h[] = {out[R] * squashed[R]...};
  const auto store = [=](const vec<T>* x, T* to) __attribute__((always_inline)) {
    (lanes.store(x[R], to + j + R * w), ...);
  };
  store(h, s.h_after);
  store(h, s.y);
  store(now, s.c);
  store(now, s.c_after);
  const vec<T> h_before[] = {lanes.load(static_cast<const T*>(s.h) + j + R * w)...};
  store(h_before, s.h_before);
  store(before, s.c_before);
  store(squashed, s.tanh_c);
  store(in, s.gates);
  store(forget, s.gates + n);
  store(fresh, s.gates + 2 * n);
  store(out, s.gates + 3 * n);
  // All units read the whole h that was.
  if (j + static_cast<dim_t>(together * w) < n) return;
  for (dim_t i = 0; i < j; i += vec<T>::size) vec<T>::load(s.h_after + i).store(s.h + i);
  store(h, s.h);
}

template <std::size_t Together, class T, class Lanes>
[[gnu::noinline]] void lstm_units(const lstm_step<T>& s, dim_t j, Lanes lanes) {
  lstm_units(s, j, lanes, std::make_index_sequence<4 * Together * lstm_parts<Together>>{},
             std::make_index_sequence<4 * Together>{}, std::make_index_sequence<Together>{});
}

template <class T>
void one_lstm_step(const lstm_step<T>& s) {
  constexpr dim_t w = vec<T>::size;
  constexpr std::size_t together = lstm_together<T>;
  dim_t j = 0;
  if constexpr (together > 1)
    for (; j + static_cast<dim_t>(together) * w <= s.hidden; j += static_cast<dim_t>(together) * w)
      lstm_units<together>(s, j, all_lanes<T>{});
  for (; j < s.hidden; j += w) lstm_units<1>(s, j, some_lanes<T>{s.hidden - j});
}
