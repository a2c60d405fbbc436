// What follows a product, on blocks of its result that are still in the first-level cache.

/// c[i, j] = f(c[i, j]).
template <class T, class F>
IKEBANA_CPU_INLINE void map_block(dim_t rows, dim_t columns, T* c, dim_t ldc, F f) {
  constexpr dim_t w = vec<T>::size;
  for (; rows > 0; --rows, c += ldc) {
    dim_t j = 0;
    for (; j + w <= columns; j += w) f(vec<T>::load(c + j)).store(c + j);
    if (j < columns) f(vec<T>::load(c + j, columns - j)).store(c + j, columns - j);
  }
}
/// c[i, j] = f(c[i, j], x[i, j]).
template <class T, class F>
IKEBANA_CPU_INLINE void map_block(dim_t rows, dim_t columns, T* c, dim_t ldc, const T* x, dim_t ldx,
                                  F f) {
  constexpr dim_t w = vec<T>::size;
  for (; rows > 0; --rows, c += ldc, x += ldx) {
    dim_t j = 0;
    for (; j + w <= columns; j += w) f(vec<T>::load(c + j), vec<T>::load(x + j)).store(c + j);
    if (const dim_t n = columns - j; n > 0)
      f(vec<T>::load(c + j, n), vec<T>::load(x + j, n)).store(c + j, n);
  }
}

#define IKEBANA_CPU_LAMBDA(...) [=](__VA_ARGS__) __attribute__((always_inline))

/// c = c f'(x) where y = f(x) is given.
template <class T>
[[gnu::noinline]] void slope_block(activation f, dim_t rows, dim_t columns, T* c, dim_t ldc,
                                   const T* y, dim_t ldy) {
  using V = vec<T>;
  if (columns == ldc && columns == ldy) columns *= rows, rows = 1;
  switch (f) {
    case activation::relu:
      return map_block(
          rows, columns, c, ldc, y, ldy,
          IKEBANA_CPU_LAMBDA(V d, V a) { return select(V::zero() >= a, V::zero(), d); });
    case activation::tanh:
      return map_block(
          rows, columns, c, ldc, y, ldy,
          IKEBANA_CPU_LAMBDA(V d, V a) { return d * fma(-a, a, V::broadcast(T(1))); });
    case activation::sigmoid:
      return map_block(
          rows, columns, c, ldc, y, ldy,
          IKEBANA_CPU_LAMBDA(V d, V a) { return d * a * (T(1) - a); });
    default:
      return;
  }
}
#undef IKEBANA_CPU_LAMBDA
