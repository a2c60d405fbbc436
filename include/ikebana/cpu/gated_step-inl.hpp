// A step of a single sequence, which waits for the one before: what counts is how long it takes
// from h to h.

/// How many partial sums there are of each gate of so many registers of units that are computed
/// together: few sums would wait for themselves.
constexpr std::size_t gate_parts(std::size_t together) {
  return (IKEBANA_CPU_WIDTH == 64 ? 4 : 2) / together;
}

/// What a row of what is packed has for sum i; those of a gate's registers follow each other.
template <std::size_t Together, class T>
IKEBANA_CPU_INLINE vec<T> load_sum(const T* row, std::size_t i) {
  constexpr auto w = static_cast<std::size_t>(vec<T>::size);
  return vec<T>::load(row + i / Together * 16 + i % Together * w);
}

/// Adds x times k rows to the sums of the gates, as many rows at a time as there are parts.
template <std::size_t Gates, std::size_t Together, class T, std::size_t... I>
IKEBANA_CPU_INLINE const T* add_to_gates(dim_t k, const T* x, const T* packed, vec<T>* sums,
                                         std::index_sequence<I...>) {
  constexpr std::size_t all = Gates * Together;
  constexpr dim_t row = 16 * Gates, parts = sizeof...(I) / all;
  for (; k >= parts; k -= parts, x += parts, packed += parts * row)
    ((sums[I] = fma(vec<T>::broadcast(x[I / all]), load_sum<Together>(packed, I), sums[I])), ...);
  if constexpr (parts > 1)
    return add_to_gates<Gates, Together>(k, x, packed, sums, std::make_index_sequence<all>{});
  return packed;
}

/// The units of registers that are computed together, from j on; one alone may lie across the end.
template <std::size_t Gates, class T, std::size_t... I, std::size_t... U>
IKEBANA_CPU_INLINE void gated_units(const gated_step<T>& s, dim_t j, std::index_sequence<I...> all,
                                    std::index_sequence<U...>) {
  constexpr std::size_t together = sizeof...(U), sums_of_part = Gates * together;
  constexpr dim_t w = vec<T>::size, row = 16 * Gates;
  const dim_t n = s.hidden;
  const T* packed = s.packed + j / 16 * (2 + s.in + n) * row + j % 16;
  vec<T> sums[] = {I < sums_of_part ? load_sum<together>(packed, I % sums_of_part)
                                    : vec<T>::zero()...};
  const auto total = [&](std::size_t gate, std::size_t u) __attribute__((always_inline)) {
    const vec<T>* const part = sums + gate * together + u;
    vec<T> x = part[0];
    if constexpr (gate_parts(together) > 1) x = x + part[sums_of_part];
    if constexpr (gate_parts(together) == 4)
      x = x + (part[2 * sums_of_part] + part[3 * sums_of_part]);
    return x;
  };
  const dim_t left = n - j;
  const bool whole = left >= static_cast<dim_t>(together) * w;
  const auto load = [=](const T* from, std::size_t u) __attribute__((always_inline)) {
    from += j + static_cast<dim_t>(u) * w;
    return together > 1 || whole ? vec<T>::load(from) : vec<T>::load(from, left);
  };
  const auto store = [=](const vec<T>* x, T* to) __attribute__((always_inline)) {
    ((together > 1 || whole ? x[U].store(to + j + U * w) : x[U].store(to + j, left)), ...);
  };
  packed = add_to_gates<Gates, together>(s.in, s.x, packed + row, sums, all);
  const vec<T> from_x[] = {total(2, U)...};
  // A GRU's new h multiplies its sum over h by r: the two sums are apart.
  if constexpr (Gates == 3)
    ((I / together % 3 == 2
          ? void(sums[I] = I < sums_of_part ? load_sum<together>(packed, I) : vec<T>::zero())
          : void()),
     ...);
  add_to_gates<Gates, together>(n, static_cast<const T*>(s.h), packed + row, sums, all);
  const vec<T> before[] = {load(s.h, U)...}, first[] = {sigmoid_of_sum(total(0, U))...},
               second[] = {sigmoid_of_sum(total(1, U))...};
  vec<T> fresh[together], h[together], extra[together];
  if constexpr (Gates == 4) {
    const vec<T> cell[] = {load(s.c, U)...};
    ((fresh[U] = tanh(total(2, U))), ...);
    const vec<T> now[] = {fma(second[U], cell[U], first[U] * fresh[U])...};
    ((extra[U] = tanh(now[U])), ...);
    // Needed last.
    const vec<T> out[] = {sigmoid_of_sum(total(3, U))...};
    ((h[U] = out[U] * extra[U]), ...);
    store(now, s.c);
    store(now, s.c_after);
    if (s.gates != nullptr) {
      store(out, s.gates + 3 * n);
      store(cell, s.c_before);
    }
  } else {
    ((extra[U] = total(2, U)), ...);
    ((fresh[U] = tanh(fma(first[U], extra[U], from_x[U]))), ...);
    ((h[U] = fma(second[U], before[U] - fresh[U], fresh[U])), ...);
  }
  if (s.gates != nullptr) {
    store(first, s.gates);
    store(second, s.gates + n);
    store(fresh, s.gates + 2 * n);
    store(extra, s.extra);
    store(before, s.h_before);
  }
  store(h, s.h_after);
  store(h, s.y);
  // All units read the whole h that was.
  if (j + static_cast<dim_t>(together) * w < n) return;
  for (dim_t i = 0; i < j; i += w) vec<T>::load(s.h_after + i).store(s.h + i);
  store(h, s.h);
}

template <std::size_t Gates, std::size_t Together, class T>
[[gnu::noinline]] void gated_units(const gated_step<T>& s, dim_t j) {
  gated_units<Gates>(s, j, std::make_index_sequence<Gates * Together * gate_parts(Together)>{},
                     std::make_index_sequence<Together>{});
}

template <std::size_t Gates, class T>
void one_gated_step(const gated_step<T>& s) {
  constexpr dim_t w = vec<T>::size;
  dim_t j = 0;
  // One register after another would find the processor full of what waits for the first.
  if constexpr (w > 1 && w < 16)
    for (; j + 2 * w <= s.hidden; j += 2 * w) gated_units<Gates, 2>(s, j);
  for (; j < s.hidden; j += w) gated_units<Gates, 1>(s, j);
}
