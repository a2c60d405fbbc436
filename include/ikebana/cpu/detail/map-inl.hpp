// Functions of registers applied to arrays. Each function has one loop over rows, which all callers
// share: what is element-wise, and the products and convolutions that end in it.

/// y[i] = f(operands[i]...). What is far from the limit of memory is written once, for whole
/// registers and for what is left of the last one; the processor overlaps the rounds by itself.
template <class T, class F, class... Operand>
IKEBANA_CPU_INLINE void map_lanes(dim_t n, T* y, F f, const Operand*... operands) {
  constexpr dim_t w = vec<T>::size;
  for (dim_t i = 0; i < n; i += w) {
    const dim_t lanes = n - i;
    if (lanes >= w) [[likely]]
      f(vec<T>::load(operands + i)...).store(y + i);
    else
      f(vec<T>::load(operands + i, lanes)...).store(y + i, lanes);
  }
}

/// y[r, i] = F{}(x[r, i]).
template <class T, class F>
[[gnu::noinline]] void map_rows(dim_t rows, dim_t n, const T* x, dim_t ldx, T* y, dim_t ldy) {
  for (; rows > 0; --rows, x += ldx, y += ldy) map_lanes(n, y, F{}, x);
}
/// y[i] = F{}(x[i]).
template <class T, class F>
IKEBANA_CPU_INLINE void map_array(dim_t n, const T* x, T* y) {
  map_rows<T, F>(1, n, x, n, y, n);
}

/// y[i] = f(i) for i < n; `f(i, lanes)` yields the elements i to i + lanes.
template <class T, class F>
IKEBANA_CPU_INLINE void map_terms(dim_t n, T* y, F f) {
  constexpr dim_t w = vec<T>::size;
  dim_t i = 0;
  for (; i + w <= n; i += w) f(i, w).store(y + i);
  if (i < n) f(i, n - i).store(y + i, n - i);
}

/// c = f(c).
template <class T>
void activate_block(activation f, dim_t rows, dim_t columns, T* c, dim_t ldc) {
  switch (f) {
    case activation::none:
      return;
    case activation::relu:
      return map_rows<T, relu_function>(rows, columns, c, ldc, c, ldc);
    case activation::tanh:
      return map_rows<T, tanh_function>(rows, columns, c, ldc, c, ldc);
    case activation::sigmoid:
      return map_rows<T, sigmoid_function>(rows, columns, c, ldc, c, ldc);
    case activation::silu:
      return map_rows<T, silu_function>(rows, columns, c, ldc, c, ldc);
    case activation::gelu:
      return map_rows<T, gelu_function>(rows, columns, c, ldc, c, ldc);
    case activation::gelu_tanh:
      return map_rows<T, gelu_tanh_function>(rows, columns, c, ldc, c, ldc);
  }
}
