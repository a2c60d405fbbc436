// How rows of an image are taken apart by a stride, and put together again (tiles.hpp).

#if IKEBANA_CPU_WIDTH != 0
/// `old` where Stride does not divide the number of an element, else the next of a's lanes.
template <int Stride, int Part, class R, std::size_t... L>
IKEBANA_CPU_INLINE R spread_lanes_of(R old, R a, std::index_sequence<L...>) {
  constexpr int w = sizeof...(L);
  return __builtin_shufflevector(old, a,
                                 ((Part * w + static_cast<int>(L)) % Stride == 0
                                      ? w + (Part * w + static_cast<int>(L)) / Stride
                                      : static_cast<int>(L))...);
}
#endif
/// The registers that hold the first of so many elements: where they begin and how many are theirs.
template <int Stride, class T>
struct strided_parts {
  dim_t at[Stride], lanes[Stride];
  explicit strided_parts(dim_t count) {
    for (int i = 0; i < Stride; ++i) {
      const dim_t begin = i * vec<T>::size, left = count > begin ? count - begin : 0;
      at[i] = left > 0 ? begin : 0;
      lanes[i] = left < vec<T>::size ? left : vec<T>::size;
    }
  }
};
/// A register of every Stride-th element, of all it has room for or of those of `parts`.
template <int Stride, bool Whole, class T, std::size_t... Part>
IKEBANA_CPU_INLINE vec<T> load_strided(const T* from,
                                       [[maybe_unused]] const strided_parts<Stride, T>& parts,
                                       std::index_sequence<Part...>) {
#if IKEBANA_CPU_WIDTH == 0
  return vec<T>::load(from);
#else
  vec<T> taken;
  const auto take = [&](auto part) __attribute__((always_inline)) {
    constexpr std::size_t i = decltype(part)::value;
    const vec<T> met = Whole ? vec<T>::load(from + static_cast<dim_t>(i) * vec<T>::size)
                             : vec<T>::load(from + parts.at[i], parts.lanes[i]);
    if constexpr (i == 0)
      taken = met;
    else
      taken.v = take_lanes_of<Stride, static_cast<int>(i), 0>(
          taken.v, met.v, std::make_index_sequence<std::size_t(vec<T>::size)>{});
  };
  (take(std::integral_constant<std::size_t, Part>{}), ...);
  return taken;
#endif
}
/// Puts a's lanes in the place of every Stride-th element, as above.
template <int Stride, bool Whole, class T, std::size_t... Part>
IKEBANA_CPU_INLINE void store_strided(T* to, [[maybe_unused]] const strided_parts<Stride, T>& parts,
                                      vec<T> a, std::index_sequence<Part...>) {
#if IKEBANA_CPU_WIDTH == 0
  a.store(to);
#else
  const auto put = [&](auto part) __attribute__((always_inline)) {
    constexpr std::size_t i = decltype(part)::value;
    T* const at = to + (Whole ? static_cast<dim_t>(i) * vec<T>::size : parts.at[i]);
    if (!Whole && parts.lanes[i] == 0) return;
    const vec<T> old = Whole ? vec<T>::load(at) : vec<T>::load(at, parts.lanes[i]);
    vec<T> spread = old;
    spread.v = spread_lanes_of<Stride, static_cast<int>(i)>(
        spread.v, a.v, std::make_index_sequence<std::size_t(vec<T>::size)>{});
    if constexpr (Whole)
      spread.store(at);
    else
      spread.store(at, parts.lanes[i]);
  };
  (put(std::integral_constant<std::size_t, Part>{}), ...);
#endif
}

/// Clears at least n elements by whole registers, of which one is mostly enough: no call.
template <class T>
IKEBANA_CPU_INLINE void clear_over(T* to, dim_t n) {
  constexpr dim_t w = vec<T>::size;
  vec<T>::zero().store(to);
  if (n > w) [[unlikely]]
    for (dim_t i = w; i < n; i += w) vec<T>::zero().store(to + i);
}
/// Rows of a copy whose elements are Stride apart in the source.
template <int Stride, class T>
void copy_strided(dim_t rows, dim_t lead, dim_t length, const T* from, dim_t from_step, T* to,
                  dim_t pitch) {
  constexpr dim_t w = vec<T>::size;
  constexpr auto every = std::make_index_sequence<std::size_t{Stride}>{};
  const dim_t whole = (length - 1) / w * w;
  const strided_parts<Stride, T> parts{Stride * (length - whole - 1) + 1};
  for (; rows > 0; --rows, from += from_step, to += pitch) {
    if (lead > 0) clear_over(to, lead);
    T* const at = to + lead;
    for (dim_t i = 0; i < whole; i += w)
      load_strided<Stride, true>(from + Stride * i, parts, every).store(at + i);
    load_strided<Stride, false>(from + Stride * whole, parts, every).store(at + whole);
    if (lead + whole + w < pitch) clear_over(to + lead + whole + w, pitch - lead - whole - w);
  }
}
/// Puts rows in places Stride apart.
template <int Stride, class T>
void place_strided(dim_t rows, dim_t length, const T* from, dim_t from_step, T* to, dim_t to_step) {
  constexpr dim_t w = vec<T>::size;
  constexpr auto every = std::make_index_sequence<std::size_t{Stride}>{};
  const dim_t whole = (length - 1) / w * w;
  const strided_parts<Stride, T> parts{Stride * (length - whole - 1) + 1};
  for (; rows > 0; --rows, from += from_step, to += to_step) {
    for (dim_t i = 0; i < whole; i += w)
      store_strided<Stride, true>(to + Stride * i, parts, vec<T>::load(from + i), every);
    store_strided<Stride, false>(to + Stride * whole, parts,
                                 vec<T>::load(from + whole, length - whole), every);
  }
}
