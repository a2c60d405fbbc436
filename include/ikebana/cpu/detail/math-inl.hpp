// exp, log and tanh on vec<T>. These and the functions of distributions-inl.hpp and
// activations-inl.hpp: at most 2 units in the last place over all of T where nothing else is said,
// on every set, down to denormal results.

/// x or, where that is larger, `most`.
template <class T>
IKEBANA_CPU_INLINE vec<T> at_most(vec<T> x, T most) {
  return min(vec<T>::broadcast(most), x);
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
  vec<T> r, n, shifted, lost = vec<T>::zero();  // lost: what rounding took from r, where asked for
  IKEBANA_CPU_INLINE explicit reduced(vec<T> x, const vec<T>* low = nullptr) {
    using c = coefficients<T>;
    using L = number<T>;
    constexpr T big = T((typename L::bits{3} << (L::mantissa - 1)) + 2 * L::bias);
    shifted = fma(x, vec<T>::broadcast(T(1.4426950408889634074)), vec<T>::broadcast(big));
    keep_rounding(shifted);
    n = shifted - big;
    keep_rounding(n);
    const vec<T> high = fma(n, vec<T>::broadcast(-c::log2_high), x);
    if (low == nullptr) {
      r = fma(n, vec<T>::broadcast(-c::log2_low), high);
    } else {
      const vec<T> rest = fma(n, vec<T>::broadcast(-c::log2_low), *low);
      r = high + rest;
      lost = rest - (r - high);
    }
  }
  /// exp(r) - 1.
  IKEBANA_CPU_INLINE vec<T> expm1() const {
    return fma(r * r, polynomial(coefficients<T>::exp_tail, r), r);
  }
  /// The same with `lost`.
  IKEBANA_CPU_INLINE vec<T> exact_expm1() const {
    return r + fma(r * r, polynomial(coefficients<T>::exp_tail, r), lost);
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
  IKEBANA_CPU_INLINE explicit scaled_exp(vec<T> x, const vec<T>* low = nullptr) : parts(x, low) {
    e = low == nullptr ? parts.expm1() : parts.exact_expm1();
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

#if IKEBANA_CPU_WIDTH >= 32
/// exp(x) = (1 + e) power 2^n of float by a table of powers of 2^(1 / 8), n with as many binary
/// places, |r| <= log(2) / 16.
struct exp_parts {
  vec<float> shifted, n, r;
  IKEBANA_CPU_INLINE explicit exp_parts(vec<float> x, bool is_rough = false) {
    constexpr float big = 0x1.8p20f + 2 * 127;
    shifted = fma(x, vec<float>::broadcast(1.4426950408889634f), vec<float>::broadcast(big));
    keep_rounding(shifted);
    n = shifted - big;
    keep_rounding(n);
    r = fma(n, vec<float>::broadcast(is_rough ? -0.6931471805599453f : -0x1.62ep-1f), x);
    if (!is_rough) r = fma(n, vec<float>::broadcast(-0x1.0bfbe8p-15f), r);
  }
  /// (1 + e) power.
  IKEBANA_CPU_INLINE vec<float> times(vec<float> power) const {
    // What rounding took from the powers, as a part of them, less what the polynomial has too much.
    alignas(32) static constexpr float lost[8] = {
        -0x1.3bcc34p-26f, -0x1.04e922p-25f, 0x1.d1a7ap-27f,   -0x1.a81b6ap-25f,
        -0x1.5c6d7p-30f,  -0x1.c3c782p-27f, -0x1.1c56dap-25f, -0x1.a51492p-26f};
    const vec<float> e = fma(
        r,
        fma(r, fma(r, vec<float>::broadcast(0.1666802555f), vec<float>::broadcast(0.500078277f)),
            vec<float>::broadcast(1)),
        pick(lost, as<std::int32_t>(shifted)));
    return fma(power, e, power);
  }
  IKEBANA_CPU_INLINE vec<float> scaled() const {
    alignas(32) static constexpr float powers[8] = {0x1.000000p+0f, 0x1.172b84p+0f, 0x1.306fe0p+0f,
                                                    0x1.4bfdaep+0f, 0x1.6a09e6p+0f, 0x1.8ace54p+0f,
                                                    0x1.ae89fap+0f, 0x1.d5818ep+0f};
    const vec<float> y = times(pick(powers, as<std::int32_t>(shifted)));
#if IKEBANA_CPU_WIDTH == 64
    return scale_by_power(y, n);
#else
    // By two powers of about half of n, which are normal numbers.
    const vec<std::uint32_t> both = as<std::uint32_t>(shifted) >> 3;
    const vec<std::uint32_t> first = both >> 1, second = both - first;
    return y * as<float>(first << 23) * as<float>(second << 23);
#endif
  }
  /// Where 2^n is a normal number: its bits are added to a table that lacks them.
  IKEBANA_CPU_INLINE vec<float> normal() const {
    alignas(32) static constexpr float powers_less_n[8] = {
        -0x1.000000p+2f, -0x1.f72b84p+1f, -0x1.f06fe0p+1f, -0x1.ebfdaep+1f,
        -0x1.ea09e6p+1f, -0x1.eace54p+1f, -0x1.ee89fap+1f, -0x1.f5818ep+1f};
    return times(as<float>(as<std::uint32_t>(pick(powers_less_n, as<std::int32_t>(shifted))) +
                           (as<std::uint32_t>(shifted) << 20)));
  }
};
#endif

template <class T>
IKEBANA_CPU_INLINE vec<T> exp(vec<T> x) {
  if constexpr (through_double<T>) return by_double<exp_function>(x);
  using c = coefficients<T>;
  x = min(vec<T>::broadcast(c::exp_most), max(vec<T>::broadcast(c::exp_least), x));
#if IKEBANA_CPU_WIDTH >= 32
  if constexpr (sizeof(T) == 4) return exp_parts(x).scaled();
#endif
  const scaled_exp<T> s(x);
  return s.scale(s.e + T(1));
}

/// exp(x) of x <= 0 which has been rounded, as a difference of two numbers is: to 2^-24 (1.4 -
/// x/30) of the result. Below the least normal number of float, 2^-126, with an error of up to
/// that, and 0 below -127 log(2). exp(0) is 1.
template <class T>
IKEBANA_CPU_INLINE vec<T> exp_of_difference(vec<T> x) {
#if IKEBANA_CPU_WIDTH >= 32
  // At least -127 log(2), where the exponent becomes that of 0.
  if constexpr (sizeof(T) == 4)
    return exp_parts(max(vec<float>::broadcast(-88.02969f), x), true).normal();
#endif
  return exp(x);
}

/// exp(x) - 1 for x <= 0.
template <class T>
IKEBANA_CPU_INLINE vec<T> expm1_of_negative(vec<T> x) {
  if constexpr (through_double<T>) return by_double<expm1_of_negative_function>(x);
  using c = coefficients<T>;
  const reduced<T> s(max(vec<T>::broadcast(T(-3) * c::tanh_one), x));
  const vec<T> power = s.power();
  return fma(power, s.expm1(), power - T(1));
}

template <class T>
IKEBANA_CPU_INLINE vec<T> tanh(vec<T> x) {
  if constexpr (through_double<T>) return by_double<tanh_function>(x);
  using c = coefficients<T>;
#if IKEBANA_CPU_WIDTH >= 32
  if constexpr (has_pieces<T>)
    return copysign(piecewise<tanh_pieces>(at_most(abs(x), tanh_pieces::most)), x);
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
  if constexpr (through_double<T>) return by_double<log_function>(x);
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
  if constexpr (through_double<T>) return by_double<log1p_of_fraction_function>(e);
  const vec<T> u = e + T(1);
  split_log<T> s = log_parts(u);
  s.rest = s.rest - (e - (u - T(1))) / u;
  return s.value();
}
