// Functions of registers applied to arrays. Each function has one loop over rows, which all callers
// share: what is element-wise, and the products and convolutions that end in it.

/// y[i] = f(operands[i]...). What is far from the limit of memory is written once, for whole
/// registers and for what is left of the last one; the processor overlaps the rounds by itself.
template <class T, class F, class... Operand>
IKEBANA_CPU_INLINE void map_lanes(dim_t n, T* y, F f, const Operand*... operands) {
  constexpr dim_t w = vec<T>::size;
  for (dim_t i = 0; i < n; i += w) {
    const dim_t lanes = n - i;
    const auto load = [=](const T* p) __attribute__((always_inline)) {
      return lanes >= w ? vec<T>::load(p + i) : vec<T>::load(p + i, lanes);
    };
    const vec<T> r = f(load(operands)...);
    lanes >= w ? r.store(y + i) : r.store(y + i, lanes);
  }
}

/// y[r, i] = F{}(x[r, i]).
template <class T, class F>
[[gnu::noinline]] void map_rows(dim_t rows, dim_t n, const T* x, dim_t ldx, T* y, dim_t ldy) {
  for (; rows > 0; --rows, x += ldx, y += ldy) map_lanes(n, y, F{}, x);
}
/// y[i] = F{}(x[i]).
template <class T, class F>
void map_array(dim_t n, const T* x, T* y) {
  map_rows<T, F>(1, n, x, n, y, n);
}
/// y[i] = f(i) for i < n; `f(i, lanes)` yields the elements i to i + lanes.
template <class T, class F>
IKEBANA_CPU_INLINE void map_terms(dim_t n, T* y, F f) {
  constexpr dim_t w = vec<T>::size;
  const dim_t rest = n % w, whole = n - rest;
  for (dim_t i = 0; i < whole; i += w) f(i, w).store(y + i);
  if (rest > 0) f(whole, rest).store(y + whole, rest);
}

/// y[i] = f(operands[i]...) for f of a few instructions: whole registers apart from the rest.
template <class T, class F, class... Operand>
IKEBANA_CPU_INLINE void light_lanes(dim_t n, T* y, F f, const Operand*... operands) {
  constexpr dim_t w = vec<T>::size;
  dim_t i = 0;
#pragma GCC unroll 4
  for (; i + w <= n; i += w) f(vec<T>::load(operands + i)...).store(y + i);
  if (i < n) f(vec<T>::load(operands + i, n - i)...).store(y + i, n - i);
}

/// c = f(c), for f among `Of`, bits of one_activation.
template <class T, unsigned Of>
void activate_block(activation f, dim_t rows, dim_t columns, T* c, dim_t ldc) {
  // Rows of a few elements would each take a register.
  if (columns == ldc) columns *= rows, rows = 1;
  const auto apply = [&]<activation Name, class F>(std::integral_constant<activation, Name>, F)
      __attribute__((always_inline)) {
    if constexpr ((Of & one_activation(Name)) != 0)
      if (f == Name) map_rows<T, F>(rows, columns, c, ldc, c, ldc);
  };
  apply(std::integral_constant<activation, activation::relu>{}, relu_function{});
  apply(std::integral_constant<activation, activation::tanh>{}, tanh_function{});
  apply(std::integral_constant<activation, activation::sigmoid>{}, sigmoid_function{});
  apply(std::integral_constant<activation, activation::silu>{}, silu_function{});
  apply(std::integral_constant<activation, activation::gelu>{}, gelu_function{});
  apply(std::integral_constant<activation, activation::gelu_tanh>{}, gelu_tanh_function{});
}
