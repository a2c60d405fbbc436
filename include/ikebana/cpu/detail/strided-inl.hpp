// Loads of every second and every fourth element, and stores that interleave.

template <class T>
struct even_odd {
  vec<T> even, odd;
};
#if IKEBANA_CPU_WIDTH == 0
template <class T>
IKEBANA_CPU_INLINE even_odd<T> load_pairs(const T* p) {
  return {{p[0]}, {p[1]}};
}
template <class T>
IKEBANA_CPU_INLINE even_odd<T> load_pairs(const T* p, dim_t) {
  return {{p[0]}, {p[1]}};
}
template <class T>
IKEBANA_CPU_INLINE void store_pairs(vec<T> even, vec<T> odd, T* p) {
  p[0] = even.v;
  p[1] = odd.v;
}
template <class T>
IKEBANA_CPU_INLINE void store_pairs(vec<T> even, vec<T> odd, T* p, dim_t) {
  store_pairs(even, odd, p);
}
#else
template <class T>
using lane_sequence = std::make_index_sequence<static_cast<std::size_t>(vec<T>::size)>;

template <class T, std::size_t... L>
IKEBANA_CPU_INLINE even_odd<T> split_pairs(vec<T> a, vec<T> b, std::index_sequence<L...>) {
  return {{__builtin_shufflevector(a.v, b.v, static_cast<int>(2 * L)...)},
          {__builtin_shufflevector(a.v, b.v, static_cast<int>(2 * L + 1)...)}};
}
/// Splits 2 * size neighbours into those at even and at odd places.
template <class T>
IKEBANA_CPU_INLINE even_odd<T> load_pairs(const T* p) {
  return split_pairs(vec<T>::load(p), vec<T>::load(p + vec<T>::size), lane_sequence<T>{});
}
/// The first n pairs.
template <class T>
IKEBANA_CPU_INLINE even_odd<T> load_pairs(const T* p, dim_t n) {
  constexpr dim_t w = vec<T>::size;
  if (n == w) return load_pairs(p);
  const dim_t first = 2 * n < w ? 2 * n : w;
  return split_pairs(vec<T>::load(p, first), vec<T>::load(p + first, 2 * n - first),
                     lane_sequence<T>{});
}
template <class T, std::size_t... L>
IKEBANA_CPU_INLINE even_odd<T> interleave_pairs(vec<T> a, vec<T> b, std::index_sequence<L...>) {
  constexpr int w = static_cast<int>(sizeof...(L)), half = w / 2;
  constexpr auto from = [](std::size_t lane) {
    const int i = static_cast<int>(lane);
    return i / 2 + (i % 2 == 0 ? 0 : w);
  };
  return {{__builtin_shufflevector(a.v, b.v, from(L)...)},
          {__builtin_shufflevector(a.v, b.v, (from(L) + half)...)}};
}
/// even[0], odd[0], even[1], ...
template <class T>
IKEBANA_CPU_INLINE void store_pairs(vec<T> even, vec<T> odd, T* p) {
  const auto halves = interleave_pairs(even, odd, lane_sequence<T>{});
  halves.even.store(p);
  halves.odd.store(p + vec<T>::size);
}
/// The first n pairs of them.
template <class T>
IKEBANA_CPU_INLINE void store_pairs(vec<T> even, vec<T> odd, T* p, dim_t n) {
  constexpr dim_t w = vec<T>::size;
  if (n == w) return store_pairs(even, odd, p);
  const auto halves = interleave_pairs(even, odd, lane_sequence<T>{});
  if (2 * n > w) {
    halves.even.store(p);
    halves.odd.store(p + w, 2 * n - w);
  } else {
    halves.even.store(p, 2 * n);
  }
}
#endif

/// f(integral_constant) of a number of phases: 1, 2 or 4.
template <class F>
IKEBANA_CPU_INLINE void with_phases(dim_t phases, F f) {
  if (phases == 1) return f(std::integral_constant<int, 1>{});
  if (phases == 2) return f(std::integral_constant<int, 2>{});
  f(std::integral_constant<int, 4>{});
}
/// The next elements by phases: lane l of number i is element l Phases + i.
template <int Phases, class T>
IKEBANA_CPU_INLINE void load_phases(const T* p, vec<T>* phases) {
#if IKEBANA_CPU_WIDTH == 0
  for (int i = 0; i < Phases; ++i) phases[i] = vec<T>::load(p + i);
#else
  if constexpr (Phases == 1) {
    phases[0] = vec<T>::load(p);
  } else if constexpr (Phases == 2) {
    const auto pairs = load_pairs(p);
    phases[0] = pairs.even;
    phases[1] = pairs.odd;
  } else {
    const auto low = load_pairs(p), high = load_pairs(p + 2 * vec<T>::size),
               even = split_pairs(low.even, high.even, lane_sequence<T>{}),
               odd = split_pairs(low.odd, high.odd, lane_sequence<T>{});
    phases[0] = even.even;
    phases[1] = odd.even;
    phases[2] = even.odd;
    phases[3] = odd.odd;
  }
#endif
}
/// Its reverse.
template <int Phases, class T>
IKEBANA_CPU_INLINE void store_phases(const vec<T>* phases, T* p) {
#if IKEBANA_CPU_WIDTH == 0
  for (int i = 0; i < Phases; ++i) phases[i].store(p + i);
#else
  if constexpr (Phases == 1) {
    phases[0].store(p);
  } else if constexpr (Phases == 2) {
    store_pairs(phases[0], phases[1], p);
  } else {
    const auto even = interleave_pairs(phases[0], phases[2], lane_sequence<T>{}),
               odd = interleave_pairs(phases[1], phases[3], lane_sequence<T>{});
    store_pairs(even.even, odd.even, p);
    store_pairs(even.odd, odd.odd, p + 2 * vec<T>::size);
  }
#endif
}

/// The lanes of w registers joined: lane i is of register i, all in the same order.
#if IKEBANA_CPU_WIDTH == 0
template <class Join, class T>
IKEBANA_CPU_INLINE vec<T> joined_lanes(const T* registers) {
  return {registers[0]};
}
#else
template <class Join, class T, std::size_t... L>
IKEBANA_CPU_INLINE vec<T> join_neighbours(vec<T> a, vec<T> b, std::index_sequence<L...>) {
  const even_odd<T> pairs = split_pairs(a, b, std::index_sequence<L...>{});
  return Join{}(pairs.even, pairs.odd);
}
template <class Join, int Count, class T>
IKEBANA_CPU_INLINE vec<T> joined_lanes(const T* registers) {
  if constexpr (Count == 1)
    return vec<T>::load(registers);
  else
    return join_neighbours<Join>(
        joined_lanes<Join, Count / 2>(registers),
        joined_lanes<Join, Count / 2>(registers + Count / 2 * static_cast<int>(vec<T>::size)),
        lane_sequence<T>{});
}
template <class Join, class T>
IKEBANA_CPU_INLINE vec<T> joined_lanes(const T* registers) {
  return joined_lanes<Join, static_cast<int>(vec<T>::size)>(registers);
}
#endif
/// As many rows together as a register has lanes, which their sums then are; long ones alone.
template <class T>
IKEBANA_CPU_INLINE dim_t rows_together(dim_t n) {
  constexpr dim_t w = vec<T>::size, near = dim_t{32} * 1024 / dim_t{sizeof(T)};
  return n * w <= near ? w : 1;
}
/// Their lanes joined: of one row in all lanes.
template <class Join, class T>
IKEBANA_CPU_INLINE vec<T> joined_rows(dim_t together, const T* registers) {
  if (together != 1) return joined_lanes<Join>(registers);
  const vec<T> row = vec<T>::load(registers);
  return vec<T>::broadcast(std::is_same_v<Join, lane_sum> ? sum(row) : maximum(row));
}
