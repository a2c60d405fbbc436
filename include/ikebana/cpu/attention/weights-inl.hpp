/// Adds `added` to n scores and makes those that are ignored -infinity.
template <class T>
void mask_scores(dim_t n, T* x, const T* added, const bool* ignored, const bool* ignored_keys) {
  const T never = -static_cast<T>(__builtin_inff());
  for (dim_t i = 0; i < n; ++i) {
    if (added != nullptr) x[i] += added[i];
    if ((ignored != nullptr && ignored[i]) || (ignored_keys != nullptr && ignored_keys[i]))
      x[i] = never;
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
    const T most = maximum(row_maximum(n, x));
    bool empty = bits(most) == never;
    for (dim_t i = 0; empty && i < n; ++i) empty = bits(x[i]) == never;
    const dim_t from = empty ? 0 : n;
    if (!empty) scale_row(n, x, T(1) / sum(exp_shifted(n, x, x, most)));
    for (dim_t i = from; i < columns; i += w)
      vec<T>::zero().store(x + i, columns - i < w ? columns - i : w);
  }
}
