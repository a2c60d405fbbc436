// The logistic and the normal distribution on vec<T>, and the activations made of them. They have
// relative accuracy in both tails: x P(x) is x - |x| P(-|x|) above 0, and what scales a tail comes
// last, so that a denormal result is rounded once.

/// x or, where that is larger, `most`.
template <class T>
IKEBANA_CPU_INLINE vec<T> at_most(vec<T> x, T most) {
  return min(vec<T>::broadcast(most), x);
}

/// exp(-v - low) and u = 1 / (1 + exp(v + low)) for v >= 0, low much smaller than 1.
template <class T>
struct logistic_parts {
  scaled_exp<T> s;
  vec<T> e, over, u;
  IKEBANA_CPU_INLINE explicit logistic_parts(vec<T> v, const vec<T>* low = nullptr)
      : s(max(vec<T>::broadcast(coefficients<T>::exp_least), -v), low) {
    e = s.scale(s.e + T(1));
    over = e + T(1);
    u = e / over;
  }
  /// x / (1 + exp(-+(v + low))), minus for x >= 0; a is the smaller of |x| and of where the tail is
  /// 0.
  IKEBANA_CPU_INLINE vec<T> times(vec<T> x, vec<T> a) const {
    const lane_mask<T> negative = x < vec<T>::zero();
    // What rounding took from u and from 1 + e becomes a part of the exponential that the tail has.
    const exact_product<T> back = multiply_exactly(u, over);
    const vec<T> lost = fma(u, (over - T(1)) - e, (e - back.high) - back.low);
    const vec<T> r = fma(-lost, s.e + T(1), s.e);
    // At -infinity not a number, as in PyTorch.
    const vec<T> tail = fma(x, vec<T>::zero(), s.scale(fma(-a, r, -a)));
    // Not over 1 + e, which is rounded.
    return fma(-select(negative, tail, a), u, select(negative, tail, x));
  }
};

template <class T>
struct normal_parts {
  vec<T> scaled_tail, tail, density;
};
/// a P(X > a) of a standard normal X to the last place, and P(X > a) and the density at a to some
/// more, for 0 <= a <= normal_limit.
template <class T>
IKEBANA_CPU_INLINE normal_parts<T> normal_at(vec<T> a) {
  using c = coefficients<T>;
  const vec<T> over = a + c::normal_center;
  const vec<T> w = a / over;
  // What rounding took from `over` and w.
  const vec<T> lost = a - (over - c::normal_center);
  const exact_product<T> back = multiply_exactly(w, over);
  const vec<T> one_over =
      fma(w, vec<T>::broadcast(-1 / c::normal_center), vec<T>::broadcast(1 / c::normal_center));
  const vec<T> w_low = fma(-w, lost, (a - back.high) - back.low) * one_over;
  const vec<T> s = fma(w, vec<T>::broadcast(T(2)), vec<T>::broadcast(T(-1)));
  const exact_product<T> first = multiply_exactly(s, vec<T>::broadcast(c::normal_linear));
  const vec<T> line = first.high + c::normal_constant, rest = s * s * polynomial(c::normal, s);
  const vec<T> h = line + rest;
  const vec<T> constants =
      fma(s, vec<T>::broadcast(c::normal_linear_low), vec<T>::broadcast(c::normal_constant_low));
  const vec<T> h_low =
      (((c::normal_constant - line) + first.high) + (first.low + constants)) + ((line - h) + rest);
  const exact_product<T> product = multiply_exactly(w, h);
  const vec<T> low = fma(w_low, polynomial(c::normal_slope, s), fma(w, h_low, product.low));
  const exact_product<T> square = multiply_exactly(a, a);
  const vec<T> exponent_low = square.low * T(-0.5);
  const scaled_exp<T> e(square.high * T(-0.5), &exponent_low);
  const vec<T> g = h * one_over, d = vec<T>::broadcast(T(0.39894228040143267794));
  const exact_product<T> grown = multiply_exactly(product.high, e.e);
  const vec<T> sum = product.high + grown.high;
  const vec<T> lost_of_sum = (product.high - sum) + grown.high;
  return {e.scale(sum + (lost_of_sum + (grown.low + low))), e.scale(fma(g, e.e, g)),
          e.scale(fma(d, e.e, d))};
}

#if IKEBANA_CPU_WIDTH >= 32
/// From here on exp(-x) is all there is of 1 / (1 + exp(x)).
#if IKEBANA_CPU_WIDTH == 64
inline constexpr float far_logistic = logistic_pieces::most;
#else
inline constexpr float far_logistic = 64;
#endif
/// 1 / (1 + exp(-x)) of x far from 0.
[[gnu::noinline]] inline void far_sigmoid(float* x) {
  const vec<float> v = vec<float>::load(x), e = exp(-abs(v));
  const vec<float> tail = fma(-e, fma(-e, e, e), e);
  select(v < vec<float>::zero(), tail, 1.0f - tail).store(x);
}
IKEBANA_CPU_INLINE vec<float> sigmoid_by_parts(vec<float> x) {
  // From memory: a number that compilers know they build anew for each register, as none lasts over
  // the call below.
  const vec<float> sign = opaque(vec<float>::broadcast(-0.0f));
  const vec<float> below = as<float>(as<std::int32_t>(x) | as<std::int32_t>(sign));  // -|x|
  const vec<float> limit = vec<float>::broadcast(-far_logistic);
#if IKEBANA_CPU_WIDTH == 64
  vec<float> y =
      from_tail(x, piecewise<logistic_pieces>(min(vec<float>::broadcast(far_logistic), abs(x))));
#else
  const vec<float> e = exp_parts(below).normal();
  // Less a product, for a sum of e and 1 is rounded.
  const vec<float> u = e / (e + 1.0f),
                   from = {_mm256_blendv_ps(vec<float>::broadcast(1).v, e.v, x.v)};
  vec<float> y = fma(-from, u, from);
#endif
  if (any_at_least(limit, below)) {
    float lanes[vec<float>::size];
    x.store(lanes);
    far_sigmoid(lanes);
    y = select(limit >= below, vec<float>::load(lanes), y);
  }
  return y;
}
#endif

template <class T>
IKEBANA_CPU_INLINE vec<T> relu(vec<T> x) {
  return max(vec<T>::zero(), x);
}

template <class T>
IKEBANA_CPU_INLINE vec<T> sigmoid(vec<T> x) {
  if constexpr (through_double<T>) {
    return by_double<sigmoid_function>(x);
  }
#if IKEBANA_CPU_WIDTH >= 32
  else if constexpr (has_pieces<T>)
    return sigmoid_by_parts(x);
#endif
  else {
    const logistic_parts<T> p(abs(x));
    return select(x < vec<T>::zero(), fma(-p.e, p.u, p.e), T(1) - p.u);
  }
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
/// The derivative of gelu, to a unit in the last place of 1.
template <class T>
IKEBANA_CPU_INLINE vec<T> gelu_slope(vec<T> x) {
  if constexpr (narrow_through_double<T>) {
    return by_double<gelu_slope_function>(x);
  }
#if IKEBANA_CPU_WIDTH >= 32
  else if constexpr (has_pieces<T>)
    return from_tail(
        x, piecewise<gelu_slope_pieces>(min(vec<T>::broadcast(gelu_slope_pieces::most), abs(x))));
#endif
  else {
    const vec<T> a = at_most(abs(x), coefficients<T>::normal_limit);
    const normal_parts<T> p = normal_at(a);
    const vec<T> tail = fma(-a, p.density, p.tail);
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
/// The derivative of gelu_tanh, to a unit in the last place of 1.
template <class T>
IKEBANA_CPU_INLINE vec<T> gelu_tanh_slope(vec<T> x) {
  if constexpr (narrow_through_double<T>) {
    return by_double<gelu_tanh_slope_function>(x);
  }
#if IKEBANA_CPU_WIDTH >= 32
  else if constexpr (has_pieces<T>)
    return from_tail(x, piecewise<gelu_tanh_slope_pieces>(
                            min(vec<T>::broadcast(gelu_tanh_slope_pieces::most), abs(x))));
#endif
  else {
    const vec<T> a = at_most(abs(x), gelu_tanh_parts<T>::most);
    const gelu_tanh_parts<T> u(a);
    const vec<T> s = sigmoid(-u.v);
    const vec<T> tail = fma(-(a * u.slope), s * (T(1) - s), s);
    return select(x < vec<T>::zero(), tail, T(1) - tail);
  }
}

template <class T>
IKEBANA_CPU_INLINE vec<T> erf(vec<T> x) {
  if constexpr (narrow_through_double<T>) {
    return by_double<erf_function>(x);
  }
#if IKEBANA_CPU_WIDTH >= 32
  else if constexpr (has_pieces<T>) {
    using B = typename number<T>::bits;
    const vec<T> y = piecewise<erf_pieces>(min(vec<T>::broadcast(erf_pieces::most), abs(x)));
    return as<T>(as<B>(y) | (as<B>(x) & bits_of<T>::broadcast(number<T>::sign)));
  }
#endif
  else {
    const vec<T> t = abs(x);
    const vec<T> inner = fma(t, polynomial(coefficients<T>::erf_small, t * t), t);
    // Above 1 an error of a counts for little.
    const vec<T> a = t * T(1.41421356237309504880);
    const vec<T> tail = normal_at(at_most(a, coefficients<T>::normal_limit)).tail;
    const vec<T> outer = fma(tail, vec<T>::broadcast(T(-2)), vec<T>::broadcast(T(1)));
    return copysign(select(t < vec<T>::broadcast(T(1)), inner, outer), x);
  }
}
