// exp, log, tanh, the logistic function, erf, the normal distribution and what activations make of
// them, on vec<T>. At most 2 units in the last place over all of T where nothing else is said, on
// every set, down to denormal results. Polynomials are minimax fits (Remez) to the function named
// beside them; argument reductions are those of W. Cody and W. Waite, and of FreeBSD's msun for log
// of double.

template <class T>
struct coefficients;
template <>
struct coefficients<float> {
  // (exp(r) - 1 - r) / r^2 on |r| <= log(2) / 2.
  static constexpr float exp_tail[] = {0.5f,
                                       0.166666667569f,
                                       0.0416662390042f,
                                       0.00833328583656f,
                                       0.00139487004863f,
                                       0.00019907704449f};
  // (log(1 + f) - f + f^2 / 2) / f^3 on sqrt(1/2) <= 1 + f <= sqrt(2).
  static constexpr float log_tail[] = {0.333333317411f,  -0.250008210398f, 0.200012234672f,
                                       -0.166233526581f, 0.142018298848f,  -0.131603090155f,
                                       0.127611601113f,  -0.0763365658066f};
  // erf(x) / x - 1 in x^2 <= 1.
  static constexpr float erf_small[] = {0.128379165727f,   -0.376126258283f, 0.112835851901f,
                                        -0.0268538134229f, 0.0051883301391f, -0.000801021255396f,
                                        7.85391660521e-5f};
  // (a + 3) P(X > a) exp(a^2 / 2) of a standard normal X in s = (a - 3) / (a + 3), 0 <= a <= 14.5
  // (apart from the constant),
  // and roughly its derivative by w = a / (a + 3) after multiplication with w.
  static constexpr float normal_constant = 0.729083690371f;
  static constexpr float normal[] = {-0.509331991405f,   0.230017699828f,     -0.0472626877137f,
                                     -0.0104625185386f,  0.00696930450563f,   0.00102477668371f,
                                     -0.00103253631603f, -0.000244748628343f, 0.000131272801038f,
                                     5.44635570868e-5f};
  static constexpr float normal_slope[] = {0.22f, -0.66f, 0.6f};
  static constexpr float normal_center = 3, normal_limit = 14.5f;
  static constexpr float log2_high = 0x1.63p-1f, log2_low = -0x1.bd0106p-13f;
  static constexpr float exp_least = -120, exp_most = 89, tanh_one = 10;
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
  // (log(1 + f) - 2 s) / s in z = s^2, s = f / (2 + f).
  static constexpr double log_tail[] = {6.666666666666735130e-01, 3.999999999940941908e-01,
                                        2.857142874366239149e-01, 2.222219843214978396e-01,
                                        1.818357216161805012e-01, 1.531383769920937332e-01,
                                        1.479819860511658591e-01};
  static constexpr double erf_small[] = {
      0.12837916709551256567,    -0.37612638903183519723,     0.11283791670944189153,
      -0.026866170643111916707,  0.0052239776061210871083,    -0.00085483259294127026465,
      0.00012055293579390651505, -0.000014924712344879740149, 1.6447132063609869913e-6,
      -1.6206317357913451466e-7, 1.371099551352749126e-8,     -7.7794961905489158183e-10};
  // As above, with 5 for 3 and a <= 38.8.
  static constexpr double normal_constant = 0.76919304975006295597;
  static constexpr double normal[] = {
      -0.66538250289005678074,     0.49530561596997728296,      -0.3135331566712962377,
      0.16502036617033827229,      -0.069118638706568630463,    0.020795066800819907971,
      -0.002993376766728659332,    -0.00079786940782261547783,  0.00054489903361854087569,
      -0.000059375675913802608824, -0.000049762656309879481561, 0.000016681045242223746403,
      3.9803901311365292825e-6,    -2.7689610702923334868e-6,   -3.3555045350195279964e-7,
      4.3289418528450214387e-7,    4.0900202970532093838e-8,    -6.6015936578398662377e-8,
      -8.3110754006986329778e-9,   7.9399527339079105361e-9,    1.437678390435003142e-9,
      -3.006934390662522335e-10};
  static constexpr double normal_slope[] = {0.1, -0.75, 1.2};
  static constexpr double normal_center = 5, normal_limit = 38.8;
  static constexpr double log2_high = 6.93147180369123816490e-01,
                          log2_low = 1.90821492927058770002e-10;
  static constexpr double exp_least = -760, exp_most = 710, tanh_one = 20;
  static constexpr double least_normal = 0x1p-1022, lift = 0x1p54, lift_log2 = 54;
  static constexpr std::int64_t sqrt_half = 0x3FE6A09E667F3BCD;
};

/// Whether float is computed in double: where a register holds one number, that costs little.
template <class T>
inline constexpr bool through_double = IKEBANA_CPU_WIDTH == 0 && sizeof(T) == 4;
template <class F>
IKEBANA_CPU_INLINE vec<float> in_double(F f, vec<float> x) {
  return vec<float>::broadcast(
      static_cast<float>(sum(f(vec<double>::broadcast(static_cast<double>(sum(x)))))));
}

/// A rounded product and what the rounding lost.
template <class T>
struct exact_product {
  vec<T> high, low;
};
template <class T>
IKEBANA_CPU_INLINE exact_product<T> multiply_exactly(vec<T> a, vec<T> b) {
  const vec<T> high = a * b;
  if constexpr (fuses) return {high, fma(a, b, -high)};
  // T. J. Dekker's product: the upper halves multiply without rounding.
  using B = typename number<T>::bits;
  const auto half = bits_of<T>::broadcast(-(B{1} << (number<T>::mantissa / 2 + 1)));
  const vec<T> a1 = as<T>(as<B>(a) & half), b1 = as<T>(as<B>(b) & half);
  const vec<T> a2 = a - a1, b2 = b - b1;
  return {high, ((a1 * b1 - high) + a1 * b2 + a2 * b1) + a2 * b2};
}

/// x = n log(2) + r with |r| <= log(2) / 2. `shifted` is n + 2 bias in its last bits.
template <class T>
struct reduced {
  vec<T> r, n, shifted;
  IKEBANA_CPU_INLINE explicit reduced(vec<T> x) {
    using c = coefficients<T>;
    using L = number<T>;
    constexpr T big = T((typename L::bits{3} << (L::mantissa - 1)) + 2 * L::bias);
    shifted = fma(x, vec<T>::broadcast(T(1.4426950408889634074)), vec<T>::broadcast(big));
    keep_rounding(shifted);
    n = shifted - big;
    keep_rounding(n);
    r = fma(n, vec<T>::broadcast(-c::log2_high), x);
    r = fma(n, vec<T>::broadcast(-c::log2_low), r);
  }
  /// exp(r) - 1.
  IKEBANA_CPU_INLINE vec<T> expm1() const {
    return fma(r * r, polynomial(coefficients<T>::exp_tail, r), r);
  }
  /// 2^n where that is a normal number.
  IKEBANA_CPU_INLINE vec<T> power() const {
    using B = typename number<T>::bits;
    return as<T>((as<B>(shifted) - number<T>::bias) << number<T>::mantissa);
  }
};

/// exp(x + low) = (1 + e) 2^n, low much smaller than 1: an exponential whose scaling comes last. x
/// may be as low as exp_least, where x times it is 0, too.
template <class T>
struct scaled_exp {
  reduced<T> parts;
  vec<T> e;
  IKEBANA_CPU_INLINE explicit scaled_exp(vec<T> x, const vec<T>* low = nullptr) : parts(x) {
    if (low != nullptr) parts.r = parts.r + *low;
    e = parts.expm1();
  }
  /// y 2^n.
  IKEBANA_CPU_INLINE vec<T> scale(vec<T> y) const {
#if IKEBANA_CPU_WIDTH == 64
    return scale_by_power(y, parts.n);
#else
    // By two powers of about half of n, which are normal numbers.
    using L = number<T>;
    using U = std::make_unsigned_t<typename L::bits>;
    const vec<U> both = as<U>(parts.shifted);
    const vec<U> first = both >> 1, second = both - first;
    return y * as<T>(first << L::mantissa) * as<T>(second << L::mantissa);
#endif
  }
};

template <class T>
IKEBANA_CPU_INLINE vec<T> exp(vec<T> x) {
  if constexpr (through_double<T>) return in_double([](vec<double> d) { return exp(d); }, x);
#if IKEBANA_CPU_WIDTH == 64
  if constexpr (sizeof(T) == 4) return exp_by_table(x);
#endif
  using c = coefficients<T>;
  const scaled_exp<T> s(
      min(vec<T>::broadcast(c::exp_most), max(vec<T>::broadcast(c::exp_least), x)));
  return s.scale(s.e + T(1));
}

/// exp(x) - 1 for x <= 0.
template <class T>
IKEBANA_CPU_INLINE vec<T> expm1_of_negative(vec<T> x) {
  if constexpr (through_double<T>)
    return in_double([](vec<double> d) { return expm1_of_negative(d); }, x);
  using c = coefficients<T>;
  const reduced<T> s(max(vec<T>::broadcast(T(-3) * c::tanh_one), x));
  const vec<T> power = s.power();
  return fma(power, s.expm1(), power - T(1));
}

template <class T>
IKEBANA_CPU_INLINE vec<T> tanh(vec<T> x) {
  if constexpr (through_double<T>) return in_double([](vec<double> d) { return tanh(d); }, x);
  using c = coefficients<T>;
#if IKEBANA_CPU_WIDTH == 64
  if constexpr (sizeof(T) == 4) {
    const vec<T> a = min(vec<T>::broadcast(31.45f * tables::tanh_width), abs(x));
    const vec<T> y = piecewise(tables::tanh, tables::tanh_width, a);
    using B = typename number<T>::bits;
    return as<T>(as<B>(y) | (as<B>(x) & bits_of<T>::broadcast(number<T>::sign)));
  }
#endif
  const vec<T> a = min(vec<T>::broadcast(c::tanh_one), abs(x));
  const reduced<T> s(a * T(-2));
  const vec<T> power = s.power();
  const vec<T> e = s.expm1(), under_one = power - T(1);
  const vec<T> expm1 = fma(power, e, under_one);
  const vec<T> over = expm1 + T(2), y = expm1 / over;
  // What expm1 and `over` lost to rounding; 1 / over is (1 - y) / 2.
  const vec<T> lost = fma(y, (over - T(2)) - expm1, fma(power, e, under_one - expm1));
  return copysign(fma(lost, fma(y, vec<T>::broadcast(T(-0.5)), vec<T>::broadcast(T(0.5))), y), x);
}

/// The parts of log(x) of a positive finite x = 2^k (1 + f): log(1 + f) = f - rest.
template <class T>
struct split_log {
  vec<T> k, f, rest;
  IKEBANA_CPU_INLINE vec<T> value() const {
    using c = coefficients<T>;
    const vec<T> low = fma(k, vec<T>::broadcast(c::log2_low), -rest);
    return fma(k, vec<T>::broadcast(c::log2_high), f + low);
  }
};
template <class T>
IKEBANA_CPU_INLINE split_log<T> split_log_of(vec<T> k, vec<T> f) {
  using c = coefficients<T>;
  const vec<T> square = f * f, half_square = square * T(0.5);
  if constexpr (sizeof(T) == 4) {
    return {k, f, fma(-f * square, polynomial(c::log_tail, f), half_square)};
  } else {
    const vec<T> s = f / (f + T(2));
    const vec<T> z = s * s;
    return {k, f, half_square - s * (half_square + z * polynomial(c::log_tail, z))};
  }
}
/// Of a normal positive number; `more` is added to k.
template <class T>
IKEBANA_CPU_INLINE split_log<T> log_parts(vec<T> x, vec<T> more = vec<T>::zero()) {
  using c = coefficients<T>;
  using L = number<T>;
  using B = typename L::bits;
  using U = std::make_unsigned_t<B>;
  constexpr B one = B{L::bias} << L::mantissa;
  constexpr B fraction = (B{1} << L::mantissa) - 1;
  constexpr T big = T(B{1} << L::mantissa);
  // 1 + f in [sqrt(1/2), sqrt(2)). Unsigned, since what is not a positive number may wrap.
  const vec<U> bits = as<U>(x) + U{one - c::sqrt_half};
  const vec<T> exponent = as<T>((bits >> L::mantissa) | as<U>(vec<T>::broadcast(big)));
  const vec<T> m = as<T>((bits & vec<U>::broadcast(U{fraction})) + U{c::sqrt_half});
  return split_log_of(exponent - (big + T(L::bias)) + more, m - T(1));
}

template <class T>
IKEBANA_CPU_INLINE vec<T> log(vec<T> x) {
  if constexpr (through_double<T>) return in_double([](vec<double> d) { return log(d); }, x);
  using c = coefficients<T>;
  const lane_mask<T> tiny = x < vec<T>::broadcast(c::least_normal);
  const vec<T> y = log_parts(select(tiny, x * c::lift, x),
                             select(tiny, vec<T>::broadcast(-c::lift_log2), vec<T>::zero()))
                       .value();
  const vec<T> infinity = as<T>(bits_of<T>::broadcast(number<T>::infinity));
  const vec<T> not_finite =
      select(x == vec<T>::zero(), -infinity, select(x == infinity, x, infinity - infinity));
  return select((x > vec<T>::zero()) & (x < infinity), y, not_finite);
}

/// log(1 + e) for 0 <= e <= 1.
template <class T>
IKEBANA_CPU_INLINE vec<T> log1p_of_fraction(vec<T> e) {
  if constexpr (through_double<T>)
    return in_double([](vec<double> d) { return log1p_of_fraction(d); }, e);
  const vec<T> u = e + T(1);
  split_log<T> s = log_parts(u);
  s.rest = s.rest - (e - (u - T(1))) / u;
  return s.value();
}
