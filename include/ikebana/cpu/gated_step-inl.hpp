// A step of a single sequence, which waits for the one before: what counts is how long it takes
// from h to h.

/// How many partial sums there are of each gate: few sums would wait for themselves.
inline constexpr std::size_t gate_parts = IKEBANA_CPU_WIDTH == 64 ? 4 : 2;

/// Adds x times k rows to the sums of the gates, as many rows at a time as there are parts.
template <std::size_t Gates, class T, std::size_t... I>
IKEBANA_CPU_INLINE const T* add_to_gates(dim_t k, const T* x, const T* packed, vec<T>* sums,
                                         std::index_sequence<I...>) {
  constexpr dim_t row = 16 * Gates, parts = gate_parts;
  for (; k >= parts; k -= parts, x += parts, packed += parts * row)
    ((sums[I] = fma(vec<T>::broadcast(x[I / Gates]), vec<T>::load(packed + I * 16), sums[I])), ...);
  for (; k > 0; --k, ++x, packed += row)
    ((I < Gates ? void(sums[I] = fma(vec<T>::broadcast(*x), vec<T>::load(packed + I % Gates * 16),
                                     sums[I]))
                : void()),
     ...);
  return packed;
}

/// The units of a register, from j on.
template <std::size_t Gates, class T, std::size_t... I>
[[gnu::noinline]] void gated_units(const gated_step<T>& s, dim_t j, std::index_sequence<I...> all) {
  constexpr dim_t w = vec<T>::size, row = 16 * Gates;
  const dim_t n = s.hidden, lanes = n - j < w ? n - j : w;
  const T* packed = s.packed + j / 16 * (2 + s.in + n) * row + j % 16;
  vec<T> sums[] = {I < Gates ? vec<T>::load(packed + I % Gates * 16) : vec<T>::zero()...};
  const auto total = [&](std::size_t g) __attribute__((always_inline)) {
    const vec<T> x = sums[g] + sums[g + Gates];
    if constexpr (gate_parts == 4) return x + (sums[g + 2 * Gates] + sums[g + 3 * Gates]);
    return x;
  };
  const auto load = [=](const T* from) __attribute__((always_inline)) {
    return lanes == w ? vec<T>::load(from + j) : vec<T>::load(from + j, lanes);
  };
  const auto store = [=](vec<T> x, T * to) __attribute__((always_inline)) {
    lanes == w ? x.store(to + j) : x.store(to + j, lanes);
  };
  packed = add_to_gates<Gates>(s.in, s.x, packed + row, sums, all);
  const vec<T> from_x = total(2);
  // A GRU's new h multiplies its sum over h by r: the two sums are apart.
  if constexpr (Gates == 3)
    ((I % 3 == 2 ? void(sums[I] = I == 2 ? vec<T>::load(packed + 32) : vec<T>::zero()) : void()),
     ...);
  add_to_gates<Gates>(n, static_cast<const T*>(s.h), packed + row, sums, all);
  const vec<T> before = load(s.h), first = sigmoid(total(0)), second = sigmoid(total(1));
  vec<T> fresh, h, extra;
  if constexpr (Gates == 4) {
    const vec<T> out = sigmoid(total(3)), cell = load(s.c);
    fresh = tanh(total(2));
    const vec<T> now = fma(second, cell, first * fresh);
    extra = tanh(now);
    h = out * extra;
    store(out, s.gates + 3 * n);
    store(cell, s.c_before);
    store(now, s.c);
    store(now, s.c_after);
  } else {
    extra = total(2);
    fresh = tanh(fma(first, extra, from_x));
    h = fma(second, before - fresh, fresh);
  }
  store(first, s.gates);
  store(second, s.gates + n);
  store(fresh, s.gates + 2 * n);
  store(extra, s.extra);
  store(before, s.h_before);
  store(h, s.h_after);
  store(h, s.y);
  // All units read the whole h that was.
  if (j + w < n) return;
  for (dim_t i = 0; i < j; i += w) vec<T>::load(s.h_after + i).store(s.h + i);
  store(h, s.h);
}

template <std::size_t Gates, class T>
void one_gated_step(const gated_step<T>& s) {
  for (dim_t j = 0; j < s.hidden; j += vec<T>::size)
    gated_units<Gates>(s, j, std::make_index_sequence<Gates * gate_parts>{});
}
