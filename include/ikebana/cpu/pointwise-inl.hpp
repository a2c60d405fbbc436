#define IKEBANA_CPU_LAMBDA(...) \
  [=](vec<T> x) __attribute__((always_inline)) { __VA_ARGS__ }
#define IKEBANA_CPU_CASE(f, ...) \
  case pointwise::f:             \
    return run(IKEBANA_CPU_LAMBDA(return __VA_ARGS__;));

/// x min(max(x + 3, 0), 6) / 6 without the first factor.
template <class T>
IKEBANA_CPU_INLINE vec<T> hard_gate(vec<T> x) {
  return min(vec<T>::broadcast(T(6)), max(vec<T>::zero(), x + T(3))) * (1 / T(6));
}
/// tanh(log(1 + w)) of w = exp(x).
template <class T>
IKEBANA_CPU_INLINE vec<T> mish_gate(vec<T> w) {
  const vec<T> n = w * (w + T(2));
  return n / (n + T(2));
}

template <class T>
void pointwise_map(dim_t first, dim_t last, pointwise f, T a, T b, T c, const T* from, T* to) {
  const vec<T> va = vec<T>::broadcast(a), vb = vec<T>::broadcast(b), vc = vec<T>::broadcast(c),
               zero = vec<T>::zero(), one = vec<T>::broadcast(T(1));
  const auto run = [=](auto g) __attribute__((always_inline)) {
    map_lanes(last - first, to + first, g, from + first);
  };
  switch (f) {
    IKEBANA_CPU_CASE(leaky_relu, select(x > zero, x, x * va))
    IKEBANA_CPU_CASE(elu, select(x > zero, x * vb, expm1_of_negative(min(zero, x * vc)) * va))
    case pointwise::softplus:
      return run(
          IKEBANA_CPU_LAMBDA(const vec<T> z = x * va;
                             const vec<T> y = (max(zero, z) + log1p_of_fraction(exp(-abs(z)))) * vc;
                             return select(z > vb, x, y);));
      IKEBANA_CPU_CASE(log_sigmoid, min(zero, x) - log1p_of_fraction(exp(-abs(x))))
      IKEBANA_CPU_CASE(hardtanh, min(vb, max(va, x)))
      IKEBANA_CPU_CASE(hard_sigmoid, hard_gate(x))
      IKEBANA_CPU_CASE(hardswish, x * hard_gate(x))
      // Above 20 the gate is 1, and further on w would overflow.
      IKEBANA_CPU_CASE(mish, x * mish_gate(exp(min(vec<T>::broadcast(T(20)), x))))
      IKEBANA_CPU_CASE(softsign, x / (abs(x) + one))
      IKEBANA_CPU_CASE(threshold, select(va >= x, vb, x))
      IKEBANA_CPU_CASE(hardshrink, select(va >= abs(x), zero, x))
      IKEBANA_CPU_CASE(softshrink, x - min(va, max(-va, x)))
      IKEBANA_CPU_CASE(tanhshrink, x - tanh(x))
  }
}

#undef IKEBANA_CPU_LAMBDA
#define IKEBANA_CPU_LAMBDA(...) \
  [=]([[maybe_unused]] vec<T> x, vec<T> d) __attribute__((always_inline)) { __VA_ARGS__ }

template <class T>
void pointwise_map_backward(dim_t first, dim_t last, pointwise f, T a, T b, T c, const T* from,
                            const T* dy, T* dx) {
  const vec<T> va = vec<T>::broadcast(a), vb = vec<T>::broadcast(b), vc = vec<T>::broadcast(c),
               zero = vec<T>::zero(), one = vec<T>::broadcast(T(1));
  const vec<T> three = vec<T>::broadcast(T(3)), third = vec<T>::broadcast(1 / T(3)),
               half = vec<T>::broadcast(T(0.5));
  const auto run = [=](auto g) __attribute__((always_inline)) {
    map_lanes(last - first, dx + first, g, from + first, dy + first);
  };
  switch (f) {
    IKEBANA_CPU_CASE(leaky_relu, select(x > zero, d, d * va))
    IKEBANA_CPU_CASE(elu, select(x > zero, d * vb, d * (va * vc * exp(min(zero, x * vc)))))
    case pointwise::softplus:
      return run(
          IKEBANA_CPU_LAMBDA(const vec<T> z = x * va; return select(z > vb, d, d * sigmoid(z));));
      IKEBANA_CPU_CASE(log_sigmoid, d * sigmoid(-x))
      IKEBANA_CPU_CASE(hardtanh, select((va >= x) | (x >= vb), zero, d))
      IKEBANA_CPU_CASE(hard_sigmoid, select((x > -three) & (three > x), d * (1 / T(6)), zero))
    case pointwise::hardswish:
      return run(IKEBANA_CPU_LAMBDA(const vec<T> inside = d * fma(x, third, half); return select(
                                        x >= three, d, select(-three > x, zero, inside));));
    case pointwise::mish:
      return run(IKEBANA_CPU_LAMBDA(const vec<T> w = exp(min(vec<T>::broadcast(T(20)), x));
                                    const vec<T> t = mish_gate(w);
                                    return d * fma(x * (w / (w + one)), one - t * t, t);));
    case pointwise::softsign:
      return run(IKEBANA_CPU_LAMBDA(const vec<T> u = abs(x) + one;
                                    // Not a number at infinities, as forward.
                                    return fma(x, zero, d) / (u * u);));
      IKEBANA_CPU_CASE(threshold, select(va >= x, zero, d))
    case pointwise::hardshrink:
      IKEBANA_CPU_CASE(softshrink, select(va >= abs(x), zero, d))
    case pointwise::tanhshrink:
      return run(IKEBANA_CPU_LAMBDA(const vec<T> t = tanh(x); return d * (t * t);));
  }
}
#undef IKEBANA_CPU_LAMBDA
#undef IKEBANA_CPU_CASE
