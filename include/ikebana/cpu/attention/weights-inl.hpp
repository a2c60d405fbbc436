/// Which of the n bools at p are true; those past n count as false.
template <class T>
IKEBANA_CPU_INLINE lane_mask<T> lanes_set(const bool* p, dim_t n) {
#if IKEBANA_CPU_WIDTH == 0
  return {n > 0 && *p};
#else
  using B = typename number<T>::bits;
  if constexpr (sizeof(T) == 4) {
    typedef std::uint8_t bytes __attribute__((vector_size(IKEBANA_CPU_WIDTH / 4)));
    bytes b{};
    std::memcpy(&b, p, n < vec<T>::size ? static_cast<std::size_t>(n) : sizeof b);
    return {vec<B>{__builtin_convertvector(b, typename vec<B>::raw)}.v != vec<B>::zero().v};
  } else {
    typedef std::uint8_t bytes __attribute__((vector_size(IKEBANA_CPU_WIDTH / 8)));
    bytes b{};
    std::memcpy(&b, p, n < vec<T>::size ? static_cast<std::size_t>(n) : sizeof b);
    return {vec<B>{__builtin_convertvector(b, typename vec<B>::raw)}.v != vec<B>::zero().v};
  }
#endif
}

/// Adds `added` to n scores and makes those that are ignored -infinity.
template <class T>
IKEBANA_CPU_INLINE void mask_scores(dim_t n, T* x, const T* added, const bool* ignored,
                                    const bool* ignored_keys) {
  constexpr dim_t w = vec<T>::size;
  const vec<T> never = vec<T>::broadcast(-__builtin_inff());
  for (dim_t i = 0; i < n; i += w) {
    const dim_t left = n - i < w ? n - i : w;
    vec<T> v = vec<T>::load(x + i, left);
    if (added != nullptr) v = v + vec<T>::load(added + i, left);
    if (ignored != nullptr) v = select(lanes_set<T>(ignored + i, left), never, v);
    if (ignored_keys != nullptr) v = select(lanes_set<T>(ignored_keys + i, left), never, v);
    v.store(x + i, left);
  }
}

template <class T>
void masked_softmax_rows(dim_t rows, dim_t columns, T* x, const T* added, const bool* ignored,
                         const bool* ignored_keys, bool causal) {
  using B = typename number<T>::bits;
  constexpr dim_t w = vec<T>::size;
  const auto bits = [](T v) __attribute__((always_inline)) { return __builtin_bit_cast(B, v); };
  constexpr B never = number<T>::infinity | number<T>::sign;
  const bool masked = added != nullptr || ignored != nullptr || ignored_keys != nullptr;
  for (dim_t r = 0; r < rows; ++r, x += columns) {
    const dim_t n = causal && r + 1 < columns ? r + 1 : columns;
    if (n == 0) continue;
    if (masked)
      mask_scores(n, x, added == nullptr ? nullptr : added + r * columns,
                  ignored == nullptr ? nullptr : ignored + r * columns, ignored_keys);
    const T most = row_maximum(n, x);
    bool empty = bits(most) == never;
    for (dim_t i = 0; empty && i < n; ++i) empty = bits(x[i]) == never;
    const dim_t from = empty ? 0 : n;
    if (!empty) scale_row(n, x, T(1) / exp_shifted(n, x, x, vec<T>::broadcast(most)));
    for (dim_t i = from; i < columns; i += w)
      vec<T>::zero().store(x + i, columns - i < w ? columns - i : w);
  }
}
