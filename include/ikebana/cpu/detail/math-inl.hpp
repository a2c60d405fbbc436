// exp, log, tanh, sigmoid, erf and the normal distribution on vec<T>. Polynomials are minimax fits
// (Remez) to the function named beside them; argument reductions are those of W. Cody and W. Waite,
// and of FreeBSD's msun for log.

template <class T>
struct coefficients;
template <>
struct coefficients<float> {
  // (exp(r) - 1 - r) / r^2 on |r| <= log(2) / 2.
  static constexpr float exp_tail[] = {0.5000000044f,   0.1666666637f,   0.04166636079f,
                                       0.008333389294f, 0.001394063745f, 0.0001984593748f};
  // (log(1 + f) - 2 s) / s in z = s^2, s = f / (2 + f).
  static constexpr float log_tail[] = {0x1.555554p-1f, 0x1.999c26p-2f, 0x1.23d3dcp-2f,
                                       0x1.f13c4cp-3f};
  // erf(x) / x in x^2 <= 1.
  static constexpr float erf_small[] = {1.128379166f,    -0.3761262583f, 0.1128358515f,
                                        -0.02685381185f, 0.00518832732f, -0.0008010189247f,
                                        7.853844046e-5f};
  // erfc(t) exp(t^2) (t + 2) in (t - 2) / (t + 2), 0.49 <= t <= 10.5.
  static constexpr float erfc_large[] = {
      1.021582707f,    -0.6871606461f,  0.2794718769f,     -0.0364436928f,    -0.02150587752f,
      0.006494252154f, 0.003053383984f, -0.0008962940217f, -0.0005429304022f, 0.0001214131945f};
  static constexpr float erfc_center = 2, erfc_limit = 10.5f;
  static constexpr float log2_high = 0x1.63p-1f, log2_low = -0x1.bd0106p-13f;
  static constexpr float exp_least = -104, exp_most = 89, tanh_one = 10;
  static constexpr float least_normal = 0x1p-126f, lift = 0x1p24f, lift_log2 = 24;
  static constexpr std::int32_t sqrt_half = 0x3F3504F3;
};
template <>
struct coefficients<double> {
  static constexpr double exp_tail[] = {
      0.50000000000000000085,     0.16666666666666676518,   0.041666666666666508707,
      0.0083333333333216817887,   0.0013888888888962411171, 0.00019841269885993848562,
      0.000024801587172476036038, 2.7557244343117587099e-6, 2.7557402672702436682e-7,
      2.5108990659311914228e-8,   2.0875329247342725384e-9};
  static constexpr double log_tail[] = {6.666666666666735130e-01, 3.999999999940941908e-01,
                                        2.857142874366239149e-01, 2.222219843214978396e-01,
                                        1.818357216161805012e-01, 1.531383769920937332e-01,
                                        1.479819860511658591e-01};
  static constexpr double erf_small[] = {
      1.1283791670955125657,     -0.37612638903183519542,     0.11283791670944184313,
      -0.026866170643111374111,  0.0052239776061176199902,    -0.00085483259292715757149,
      0.00012055293575585291957, -0.000014924712276399660302, 1.6447131253159389677e-6,
      -1.6206311317613115874e-7, 1.3710969859773255304e-8,    -7.7794489132478199253e-10};
  // As above, with 3 for 2 and 0.49 <= t <= 27.5.
  static constexpr double erfc_large[] = {
      1.0740069070883397012,       -0.8833944531698836499,    0.59022835710410217712,
      -0.31046726190056454744,     0.11952776128726900328,    -0.026827234624583202371,
      -0.0012124166266816598507,   0.0030340620027406410972,  -0.00054830969875300250664,
      -0.00027677785696452379697,  0.00010756154359347847522, 0.000030398191501161214196,
      -0.000017470865555444980145, -4.7491676562558001496e-6, 2.7664144603211010359e-6,
      9.9826581748680035134e-7,    -4.1020876957450029003e-7, -2.3160766218042327704e-7,
      4.9098754482298633347e-8,    4.7630548049225566617e-8,  -3.3702853098033124005e-9,
      -5.9864906015506282472e-9};
  static constexpr double erfc_center = 3, erfc_limit = 27.5;
  static constexpr double log2_high = 6.93147180369123816490e-01,
                          log2_low = 1.90821492927058770002e-10;
  static constexpr double exp_least = -746, exp_most = 710, tanh_one = 20;
  static constexpr double least_normal = 0x1p-1022, lift = 0x1p54, lift_log2 = 54;
  static constexpr std::int64_t sqrt_half = 0x3FE6A09E667F3BCD;
};

/// c[0] + c[1] x + ... by Horner's rule.
template <class T, std::size_t N, std::size_t... I>
IKEBANA_CPU_INLINE vec<T> polynomial(const T (&c)[N], vec<T> x, std::index_sequence<I...>) {
  vec<T> y = vec<T>::broadcast(c[N - 1]);
  ((y = fma(y, x, vec<T>::broadcast(c[N - 2 - I]))), ...);
  return y;
}
template <class T, std::size_t N>
IKEBANA_CPU_INLINE vec<T> polynomial(const T (&c)[N], vec<T> x) {
  return polynomial(c, x, std::make_index_sequence<N - 1>{});
}

/// Splits x = n log(2) + r and returns exp(r) - 1.
template <class T>
IKEBANA_CPU_INLINE vec<T> reduced_expm1(vec<T> x, vec<T>& n) {
  using c = coefficients<T>;
  n = round(x * T(1.4426950408889634074));
  vec<T> r = fma(n, vec<T>::broadcast(-c::log2_high), x);
  r = fma(n, vec<T>::broadcast(-c::log2_low), r);
  return fma(r * r, polynomial(c::exp_tail, r), r);
}

template <class T>
IKEBANA_CPU_INLINE vec<T> exp(vec<T> x) {
  using c = coefficients<T>;
  const vec<T> inside =
      min(vec<T>::broadcast(c::exp_most), max(vec<T>::broadcast(c::exp_least), x));
  vec<T> n;
  const vec<T> e = reduced_expm1(inside, n);
  return scale_by_power(e + T(1), n);
}

template <class T>
IKEBANA_CPU_INLINE vec<T> tanh(vec<T> x) {
  const vec<T> a = min(vec<T>::broadcast(coefficients<T>::tanh_one), abs(x));
  vec<T> n;
  const vec<T> e = reduced_expm1(a + a, n);
  const vec<T> scale = power_of_two(n);
  const vec<T> expm1 = fma(scale, e, scale - T(1));
  return copysign(expm1 / (expm1 + T(2)), x);
}

template <class T>
IKEBANA_CPU_INLINE vec<T> sigmoid(vec<T> x) {
  const vec<T> e = exp(-abs(x));
  const vec<T> s = T(1) / (e + T(1));
  return select(x < vec<T>::zero(), e * s, s);
}

template <class T>
IKEBANA_CPU_INLINE vec<T> log(vec<T> x) {
  using c = coefficients<T>;
  using L = number<T>;
  using B = typename L::bits;
  using U = std::make_unsigned_t<B>;
  constexpr B one = B{L::bias} << L::mantissa;
  constexpr B fraction = (B{1} << L::mantissa) - 1;
  constexpr T big = T(B{1} << L::mantissa);
  const lane_mask<T> tiny = x < vec<T>::broadcast(c::least_normal);
  const vec<T> lifted = select(tiny, x * c::lift, x);
  // m in [sqrt(1/2), sqrt(2)), x = 2^k m. Unsigned, since what is not a positive number may wrap.
  const vec<U> bits = as<U>(lifted) + U{one - c::sqrt_half};
  const vec<T> exponent = as<T>((bits >> L::mantissa) | as<U>(vec<T>::broadcast(big)));
  const vec<T> k =
      exponent - (big + T(L::bias)) - select(tiny, vec<T>::broadcast(c::lift_log2), vec<T>::zero());
  const vec<T> m = as<T>((bits & vec<U>::broadcast(U{fraction})) + U{c::sqrt_half});

  const vec<T> f = m - T(1);
  const vec<T> s = f / (f + T(2));
  const vec<T> z = s * s;
  const vec<T> r = z * polynomial(c::log_tail, z);
  const vec<T> half_square = f * f * T(0.5);
  const vec<T> low = fma(s, half_square + r, k * c::log2_low);
  const vec<T> y = fma(k, vec<T>::broadcast(c::log2_high), f - (half_square - low));

  const vec<T> infinity = as<T>(bits_of<T>::broadcast(L::infinity));
  const vec<T> not_finite =
      select(x == vec<T>::zero(), -infinity, select(x == infinity, x, infinity - infinity));
  return select((x > vec<T>::zero()) & (x < infinity), y, not_finite);
}

/// x * x as a rounded product and what the rounding lost.
template <class T>
struct exact_square {
  vec<T> high, low;
};
template <class T>
IKEBANA_CPU_INLINE exact_square<T> square_of(vec<T> x) {
  const vec<T> high = x * x;
#if IKEBANA_CPU_WIDTH == 0
  // T. J. Dekker's product: the upper half of x squares without rounding.
  using B = typename number<T>::bits;
  const vec<T> upper =
      as<T>(as<B>(x) & bits_of<T>::broadcast(-(B{1} << (number<T>::mantissa / 2 + 1))));
  const vec<T> lower = x - upper;
  return {high, ((upper * upper - high) + upper * lower * T(2)) + lower * lower};
#else
  return {high, fma(x, x, -high)};
#endif
}

/// For t >= 0, t^2 = square + rest: erf(t), good for t < 1, in `inner`; erfc(t), good for t > 0.49,
/// in `outer`.
template <class T>
IKEBANA_CPU_INLINE void erf_parts(vec<T> t, vec<T> square, vec<T> rest, vec<T>& inner,
                                  vec<T>& outer) {
  using c = coefficients<T>;
  inner = t * polynomial(c::erf_small, square);
  const vec<T> near = min(vec<T>::broadcast(c::erfc_limit), t);
  const vec<T> over = T(1) / (near + c::erfc_center);
  const vec<T> gauss = exp(-square);
  outer =
      (gauss - gauss * rest) * (over * polynomial(c::erfc_large, (near - c::erfc_center) * over));
}

template <class T>
IKEBANA_CPU_INLINE vec<T> erf(vec<T> x) {
  const vec<T> t = abs(x);
  vec<T> inner, outer;
  erf_parts(t, t * t, vec<T>::zero(), inner, outer);
  return select(x == x, copysign(select(t < vec<T>::broadcast(T(1)), inner, T(1) - outer), x), x);
}

/// The standard normal distribution function, with relative accuracy in both tails.
template <class T>
IKEBANA_CPU_INLINE vec<T> normal_cdf(vec<T> x) {
  const vec<T> limit = vec<T>::broadcast(T(1.5) * coefficients<T>::erfc_limit),
               half = vec<T>::broadcast(T(0.5));
  const vec<T> a = min(limit, abs(x));
  const exact_square<T> square = square_of(a);
  const vec<T> t = a * T(0.70710678118654752440);
  vec<T> inner, outer;
  erf_parts(t, square.high * T(0.5), square.low * T(0.5), inner, outer);
  const lane_mask<T> central = t < half;
  const vec<T> below = select(central, fma(inner, -half, half), outer * T(0.5));
  const vec<T> above = select(central, fma(inner, half, half), T(1) - outer * T(0.5));
  return select(x < vec<T>::zero(), below, above);
}
