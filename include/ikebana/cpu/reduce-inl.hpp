/// The sum over i of f(loads...) in four interleaved partial sums. `f(i, lanes)` yields the terms i
/// to i + lanes; what lies past `lanes` must be zero.
template <class T, class F>
IKEBANA_CPU_INLINE T sum_terms(dim_t n, F f) {
  constexpr dim_t w = vec<T>::size;
  vec<T> s0 = vec<T>::zero(), s1 = s0, s2 = s0, s3 = s0;
  dim_t i = 0;
  for (; i + 4 * w <= n; i += 4 * w) {
    s0 = s0 + f(i, w);
    s1 = s1 + f(i + w, w);
    s2 = s2 + f(i + 2 * w, w);
    s3 = s3 + f(i + 3 * w, w);
  }
  for (; i + w <= n; i += w) s0 = s0 + f(i, w);
  if (i < n) s1 = s1 + f(i, n - i);
  return sum((s0 + s1) + (s2 + s3));
}

/// Loads `lanes` elements; the test folds away where `lanes` is the constant size.
template <class T>
IKEBANA_CPU_INLINE vec<T> load_lanes(const T* p, dim_t lanes) {
  return lanes == vec<T>::size ? vec<T>::load(p) : vec<T>::load(p, lanes);
}
template <class T>
IKEBANA_CPU_INLINE void store_lanes(vec<T> x, T* p, dim_t lanes) {
  if (lanes == vec<T>::size)
    x.store(p);
  else
    x.store(p, lanes);
}
/// x with the lanes past `lanes` zero.
template <class T>
IKEBANA_CPU_INLINE vec<T> first_of(vec<T> x, dim_t lanes) {
  T kept[vec<T>::size];
  x.store(kept);
  return vec<T>::load(kept, lanes);
}

#define IKEBANA_CPU_TERMS [=](dim_t i, dim_t lanes) __attribute__((always_inline))

template <class T>
T sum_array(dim_t n, const T* x) {
  return sum_terms<T>(
      n, IKEBANA_CPU_TERMS { return load_lanes(x + i, lanes); });
}
template <class T>
T dot_arrays(dim_t n, const T* x, const T* y) {
  return sum_terms<T>(
      n, IKEBANA_CPU_TERMS { return load_lanes(x + i, lanes) * load_lanes(y + i, lanes); });
}
template <class T>
T sum_squared_difference(dim_t n, const T* x, const T* t, T* dx, T grad_scale) {
  const vec<T> factor = vec<T>::broadcast(grad_scale);
  return sum_terms<T>(
      n, IKEBANA_CPU_TERMS {
        const vec<T> d = load_lanes(x + i, lanes) - load_lanes(t + i, lanes);
        if (dx != nullptr) store_lanes(d * factor, dx + i, lanes);
        return d * d;
      });
}

template <class T>
void sum_columns(dim_t m, dim_t n, const T* x, dim_t ldx, T* out, bool accumulate) {
  constexpr dim_t w = vec<T>::size;
  for (dim_t j = 0; j < n; j += w) {
    const dim_t lanes = n - j < w ? n - j : w;
    vec<T> s0 = accumulate ? load_lanes(out + j, lanes) : vec<T>::zero(), s1 = vec<T>::zero();
    const T* row = x + j;
    dim_t i = 0;
    for (; i + 2 <= m; i += 2, row += 2 * ldx) {
      s0 = s0 + load_lanes(row, lanes);
      s1 = s1 + load_lanes(row + ldx, lanes);
    }
    if (i < m) s0 = s0 + load_lanes(row, lanes);
    store_lanes(s0 + s1, out + j, lanes);
  }
}
#undef IKEBANA_CPU_TERMS
