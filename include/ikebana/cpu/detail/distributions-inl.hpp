// The logistic and the normal distribution on vec<T>. They have relative accuracy in both tails:
// what scales a tail comes last, so that a denormal result is rounded once.

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
