// Activations made of the distributions, with relative accuracy in both tails, too: x P(x) is
// x - |x| P(-|x|) above 0.

template <class T>
IKEBANA_CPU_INLINE vec<T> relu(vec<T> x) {
  return max(vec<T>::zero(), x);
}

#if IKEBANA_CPU_WIDTH >= 32
/// max(x, 0) less a tail of |x|, whose pieces reach to `most`, or F{}(x) by way of double where
/// `beyond`, |x| or -x, is at the limit.
template <class F, class Tail>
IKEBANA_CPU_INLINE vec<float> beside_tail(vec<float> x, vec<float> beyond, float limit, float most,
                                          Tail tail) {
  vec<float> y = tail(limited_magnitude(x, most), max(vec<float>::zero(), x));
  const vec<float> end = vec<float>::broadcast(limit);
  if (any_at_least(beyond, end)) y = select(beyond >= end, by_double<F>(x), y);
  return y;
}
#endif

/// x sigmoid(x).
template <class T>
IKEBANA_CPU_INLINE vec<T> silu(vec<T> x) {
  if constexpr (narrow_through_double<T>) {
    return by_double<silu_function>(x);
  }
#if IKEBANA_CPU_WIDTH >= 32
  else if constexpr (has_pieces<T>)
    return beside_tail<silu_function>(
        x, abs(x), silu_tail_pieces::most, silu_tail_pieces::most,
        [](vec<T> a, vec<T> y)
            __attribute__((always_inline)) { return y - piecewise<silu_tail_pieces>(a); });
#endif
  else {
    const vec<T> a = at_most(abs(x), -coefficients<T>::exp_least);
    return logistic_parts<T>(a).times(x, a);
  }
}

/// The derivative of silu, to a unit in the last place of 1 (or two).
template <class T>
IKEBANA_CPU_INLINE vec<T> silu_slope(vec<T> x) {
  const vec<T> a = abs(x), s = sigmoid(-a);
  const vec<T> tail = fma(-(a * s), T(1) - s, s);
  return select(x < vec<T>::zero(), tail, T(1) - tail);
}

/// x P(X <= x) of a standard normal X.
template <class T>
IKEBANA_CPU_INLINE vec<T> gelu(vec<T> x) {
  if constexpr (narrow_through_double<T>) {
    return by_double<gelu_function>(x);
  }
#if IKEBANA_CPU_WIDTH >= 32
  else if constexpr (has_pieces<T>)
    return beside_tail<gelu_function>(
        x, -x, gelu_tail_pieces::coarse, gelu_tail_pieces::most,
        [](vec<T> a, vec<T> y)
            __attribute__((always_inline)) { return y - piecewise<gelu_tail_pieces>(a); });
#endif
  else {
    const vec<T> a = abs(x),
                 tail = normal_at(at_most(a, coefficients<T>::normal_limit)).scaled_tail;
    const vec<T> y = select(x < vec<T>::zero(), fma(x, vec<T>::zero(), -tail), x - tail);
    // By the first terms of its series, where the tail is near half of x.
    const vec<T> square = x * x, series = polynomial(coefficients<T>::normal_series, square);
    return select(a < vec<T>::broadcast(T(0x1p-4)), fma(square, series, x * T(0.5)), y);
  }
}
/// The derivative of gelu, to a unit in the last place of 1; not a number at infinities, as in
/// PyTorch.
template <class T>
IKEBANA_CPU_INLINE vec<T> gelu_slope(vec<T> x) {
  if constexpr (narrow_through_double<T>) {
    return by_double<gelu_slope_function>(x);
  }
#if IKEBANA_CPU_WIDTH >= 32
  else if constexpr (has_pieces<T>)
    return from_tail(x,
                     fma(x, vec<T>::zero(),
                         piecewise<gelu_slope_pieces>(at_most(abs(x), gelu_slope_pieces::most))));
#endif
  else {
    const vec<T> a = at_most(abs(x), coefficients<T>::normal_limit);
    const normal_parts<T> p = normal_at(a);
    const vec<T> tail = fma(x, vec<T>::zero(), fma(-a, p.density, p.tail));
    return select(x < vec<T>::zero(), tail, T(1) - tail);
  }
}

/// tanh's form of gelu, x / 2 (1 + tanh(u)) = x sigmoid(2 u): 2 u = v + low at a = |x|, as the
/// tail takes every bit of it, and its derivative.
template <class T>
struct gelu_tanh_parts {
  vec<T> v, low, slope;
  static constexpr double linear = 1.5957691216057308, cubic = 0.07135481627260025;
  static constexpr double linear_low = -9.9693088e-17, cubic_low = -6.1751499e-19;
  IKEBANA_CPU_INLINE explicit gelu_tanh_parts(vec<T> a) {
    constexpr T c1 = static_cast<T>(linear), c3 = static_cast<T>(cubic);
    constexpr T c1_low = static_cast<T>((linear - static_cast<double>(c1)) + linear_low);
    constexpr T c3_low = static_cast<T>((cubic - static_cast<double>(c3)) + cubic_low);
    const vec<T> first = vec<T>::broadcast(c1), third = vec<T>::broadcast(c3);
    const exact_product<T> square = multiply_exactly(a, a);
    const exact_product<T> term = multiply_exactly(third, square.high);
    const vec<T> sum = first + term.high;
    const vec<T> larger = max(first, term.high), smaller = min(first, term.high);
    // What rounding took from the constants, the square, the term and the sum.
    const vec<T> constants = fma(square.high, vec<T>::broadcast(c3_low), vec<T>::broadcast(c1_low));
    const vec<T> lost = (smaller - (sum - larger)) + (term.low + fma(third, square.low, constants));
    const exact_product<T> product = multiply_exactly(a, sum);
    v = product.high;
    low = fma(a, lost, product.low);
    slope = fma(square.high, vec<T>::broadcast(3 * c3), first);
  }
  /// Where the tail is 0 in T.
  static constexpr T most = sizeof(T) == 4 ? 12 : 24;
};
template <class T>
IKEBANA_CPU_INLINE vec<T> gelu_tanh(vec<T> x) {
  if constexpr (narrow_through_double<T>) {
    return by_double<gelu_tanh_function>(x);
  }
#if IKEBANA_CPU_WIDTH >= 32
  else if constexpr (has_pieces<T>)
    return beside_tail<gelu_tanh_function>(
        x, -x, gelu_tanh_tail_pieces::most, gelu_tanh_tail_pieces::most,
        [](vec<T> a, vec<T> y)
            __attribute__((always_inline)) { return y - piecewise<gelu_tanh_tail_pieces>(a); });
#endif
  else {
    const vec<T> a = at_most(abs(x), gelu_tanh_parts<T>::most);
    const gelu_tanh_parts<T> u(a);
    const vec<T> minus_low = -u.low;
    return logistic_parts<T>(u.v, &minus_low).times(x, a);
  }
}
/// The derivative of gelu_tanh, to a unit in the last place of 1; not a number at infinities.
template <class T>
IKEBANA_CPU_INLINE vec<T> gelu_tanh_slope(vec<T> x) {
  if constexpr (narrow_through_double<T>) {
    return by_double<gelu_tanh_slope_function>(x);
  }
#if IKEBANA_CPU_WIDTH >= 32
  else if constexpr (has_pieces<T>)
    return from_tail(
        x, fma(x, vec<T>::zero(),
               piecewise<gelu_tanh_slope_pieces>(at_most(abs(x), gelu_tanh_slope_pieces::most))));
#endif
  else {
    const vec<T> a = at_most(abs(x), gelu_tanh_parts<T>::most);
    const gelu_tanh_parts<T> u(a);
    const vec<T> s = sigmoid(-u.v);
    const vec<T> tail = fma(x, vec<T>::zero(), fma(-(a * u.slope), s * (T(1) - s), s));
    return select(x < vec<T>::zero(), tail, T(1) - tail);
  }
}
