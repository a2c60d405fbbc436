// The logistic and the normal distribution on vec<T>. They have relative accuracy in both tails:
// what scales a tail comes last, so that a denormal result is rounded once.

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

/// 1 / (1 + exp(-x)), e being exp(-abs(x)).
template <class T>
IKEBANA_CPU_INLINE vec<T> sigmoid_by(vec<T> x, vec<T> e) {
  const vec<T> u = e / (e + T(1));
  // Less a product, for a sum of e and 1 is rounded.
  const vec<T> from = select(x < vec<T>::zero(), e, vec<T>::broadcast(T(1)));
  return fma(-from, u, from);
}

template <class T>
IKEBANA_CPU_INLINE vec<T> sigmoid(vec<T> x) {
  if constexpr (through_double<T>) return by_double<sigmoid_function>(x);
  return sigmoid_by(x, exp(-abs(x)));
}
/// The same of a sum, which has been rounded: see exp_of_difference.
template <class T>
IKEBANA_CPU_INLINE vec<T> sigmoid_of_sum(vec<T> x) {
  if constexpr (through_double<T>) return by_double<sigmoid_function>(x);
  return sigmoid_by(x, exp_of_difference(-abs(x)));
}

template <class T>
IKEBANA_CPU_INLINE vec<T> erf(vec<T> x) {
  if constexpr (narrow_through_double<T>) {
    return by_double<erf_function>(x);
  }
#if IKEBANA_CPU_WIDTH >= 32
  else if constexpr (has_pieces<T>)
    return copysign(piecewise<erf_pieces>(at_most(abs(x), erf_pieces::most)), x);
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
