// What a convolution of few channels a group (depthwise.hpp) does by
// vectors.

/// Stores the first `lanes` of the first `rows` sums.
template <class T, std::size_t... R>
IKEBANA_CPU_INLINE void store_row_sums(vec<T>* sums, bool relu, T* out, dim_t out_step, dim_t rows,
                                       dim_t lanes, std::index_sequence<R...>) {
  if (relu) ((sums[R] = max(vec<T>::zero(), sums[R])), ...);
  if (lanes >= vec<T>::size && rows >= static_cast<dim_t>(sizeof...(R))) {
    (sums[R].store(out + static_cast<dim_t>(R) * out_step), ...);
  } else {
    if (lanes > vec<T>::size) lanes = vec<T>::size;
    ((static_cast<dim_t>(R) < rows ? sums[R].store(out + static_cast<dim_t>(R) * out_step, lanes)
                                   : void()),
     ...);
  }
}

/// x and dy where both have `lanes` elements: what lies behind may not be
/// finite.
template <class T>
IKEBANA_CPU_INLINE vec<T> load_some(const T* p, dim_t lanes) {
  return lanes >= vec<T>::size ? vec<T>::load(p) : vec<T>::load(p, lanes);
}

/// dw[i] = (accumulate ? dw[i] : 0) + the sum of register i's lanes. There must
/// be room for whole groups of registers.
template <class T>
void add_sums(dim_t n, const T* registers, T* dw, bool accumulate) {
  constexpr dim_t w = vec<T>::size;
  for (dim_t i = 0; i < n; i += w, registers += w * w) {
    const dim_t lanes = n - i < w ? n - i : w;
    vec<T> s = sums_of(registers);
    if (accumulate) s = vec<T>::load(dw + i, lanes) + s;
    s.store(dw + i, lanes);
  }
}
