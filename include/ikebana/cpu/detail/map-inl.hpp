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

#if IKEBANA_CPU_WIDTH >= 32
/// Arrays from which no cache holds much: what is written goes past them, so that its lines need
/// not be read first.
inline constexpr dim_t streamed_bytes = dim_t{32} * 1024 * 1024;
template <class T>
IKEBANA_CPU_INLINE void store_past_caches(vec<T> x, T* p) {
#if IKEBANA_CPU_WIDTH == 64
  _mm512_stream_si512(reinterpret_cast<__m512i*>(p), (__m512i)x.v);
#else
  _mm256_stream_si256(reinterpret_cast<__m256i*>(p), (__m256i)x.v);
#endif
}
#endif

/// y[i] = f(operands[i]...) for f of a few instructions, from i on.
template <class T, class F, class... Operand>
IKEBANA_CPU_INLINE void near_lanes(dim_t i, dim_t n, T* y, F f, const Operand*... operands) {
  constexpr dim_t w = vec<T>::size;
  const auto some = [&](dim_t lanes) __attribute__((always_inline)) {
    f(vec<T>::load(operands + i, lanes)...).store(y + i, lanes);
    i += lanes;
  };
  if (const dim_t first = lanes_to_line(n - i, y + i); first != 0) [[unlikely]]
    some(first);
#if IKEBANA_CPU_WIDTH >= 32
  // Stores stay in their order: the two of a cache line, if apart, cost a third more where the line
  // is not in the nearest cache.
  const auto in_order = []() __attribute__((always_inline)) { asm("" ::: "memory"); };
  for (; i + 4 * w <= n; i += 4 * w) {
    const vec<T> a = f(vec<T>::load(operands + i)...), b = f(vec<T>::load(operands + i + w)...);
    const vec<T> c = f(vec<T>::load(operands + i + 2 * w)...),
                 d = f(vec<T>::load(operands + i + 3 * w)...);
    a.store(y + i);
    in_order();
    b.store(y + i + w);
    in_order();
    c.store(y + i + 2 * w);
    in_order();
    d.store(y + i + 3 * w);
  }
#endif
  for (; i + w <= n; i += w) f(vec<T>::load(operands + i)...).store(y + i);
  if (i < n) some(n - i);
}
/// The same from the start, where y need not be an operand.
template <class T, class F, class... Operand>
IKEBANA_CPU_INLINE void stream_lanes(dim_t n, T* y, F f, const Operand*... operands) {
  dim_t i = 0;
#if IKEBANA_CPU_WIDTH >= 32
  constexpr dim_t w = vec<T>::size;
  if (n * static_cast<dim_t>(sizeof(T)) >= streamed_bytes && ((operands != y) && ...))
      [[unlikely]] {
    i = lanes_to_line(n, y);
    f(vec<T>::load(operands, i)...).store(y, i);
    for (; i + w <= n; i += w) store_past_caches(f(vec<T>::load(operands + i)...), y + i);
    _mm_sfence();
  }
#endif
  near_lanes(i, n, y, f, operands...);
}

/// y[r, i] = F{}(x[r, i]).
template <class T, class F>
[[gnu::noinline]] void map_rows(dim_t rows, dim_t n, const T* x, dim_t ldx, T* y, dim_t ldy) {
  for (; rows > 0; --rows, x += ldx, y += ldy) map_lanes(n, y, F{}, x);
}
/// y[i] = F{}(x[i]).
template <class T, class F>
void map_array(dim_t n, const T* x, T* y) {
#if IKEBANA_CPU_WIDTH == 64
  if (const dim_t first = lanes_to_line(n, y); first != 0) [[unlikely]] {
    map_rows<T, F>(1, first, x, n, y, n);
    x += first, y += first, n -= first;
  }
#endif
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
