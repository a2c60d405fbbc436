// vec<T>: one vector register of T (one T in the scalar set). Lanes are reached by the compilers'
// vector arithmetic; what that cannot say (fused multiply-add, partial loads, scaling) is an
// intrinsic at the end of this file.

#if IKEBANA_CPU_WIDTH == 0
template <class T>
struct register_of {
  using type = T;
  using in_memory = T;
};
#else
template <class T>
struct register_of;
#define IKEBANA_CPU_REGISTER(T)                                                          \
  template <>                                                                            \
  struct register_of<T> {                                                                \
    typedef T type __attribute__((vector_size(IKEBANA_CPU_WIDTH)));                      \
    typedef T in_memory                                                                  \
        __attribute__((vector_size(IKEBANA_CPU_WIDTH), aligned(alignof(T)), may_alias)); \
  }
IKEBANA_CPU_REGISTER(float);
IKEBANA_CPU_REGISTER(double);
IKEBANA_CPU_REGISTER(std::int32_t);
IKEBANA_CPU_REGISTER(std::uint32_t);
IKEBANA_CPU_REGISTER(std::int64_t);
IKEBANA_CPU_REGISTER(std::uint64_t);
#undef IKEBANA_CPU_REGISTER
#endif

template <class T>
struct vec;

/// What a comparison of two vec<T> yields.
template <class T>
struct lane_mask {
  using raw = decltype(typename register_of<T>::type{} < typename register_of<T>::type{});
  raw m;
  IKEBANA_CPU_INLINE friend lane_mask operator&(lane_mask a, lane_mask b) {
    return {raw(a.m & b.m)};
  }
  IKEBANA_CPU_INLINE friend lane_mask operator|(lane_mask a, lane_mask b) {
    return {raw(a.m | b.m)};
  }
};

template <class T>
struct vec {
  using raw = typename register_of<T>::type;
  using in_memory = typename register_of<T>::in_memory;
  static constexpr dim_t size = static_cast<dim_t>(sizeof(raw) / sizeof(T));

  raw v;

  IKEBANA_CPU_INLINE static vec zero() { return {raw{}}; }
  IKEBANA_CPU_INLINE static vec broadcast(T x) { return {x - raw{}}; }
  IKEBANA_CPU_INLINE static vec load(const T* p) {
    return {*reinterpret_cast<const in_memory*>(p)};
  }
  IKEBANA_CPU_INLINE void store(T* p) const { *reinterpret_cast<in_memory*>(p) = v; }
  /// The first n lanes (0 <= n <= size); the others are zero, their memory is not touched.
  static vec load(const T* p, dim_t n);
  void store(T* p, dim_t n) const;

  IKEBANA_CPU_INLINE friend vec operator+(vec a, vec b) { return {a.v + b.v}; }
  IKEBANA_CPU_INLINE friend vec operator-(vec a, vec b) { return {a.v - b.v}; }
  IKEBANA_CPU_INLINE friend vec operator*(vec a, vec b) { return {a.v * b.v}; }
  IKEBANA_CPU_INLINE friend vec operator/(vec a, vec b) { return {a.v / b.v}; }
  IKEBANA_CPU_INLINE friend vec operator+(vec a, T b) { return a + broadcast(b); }
  IKEBANA_CPU_INLINE friend vec operator-(vec a, T b) { return a - broadcast(b); }
  IKEBANA_CPU_INLINE friend vec operator*(vec a, T b) { return a * broadcast(b); }
  IKEBANA_CPU_INLINE friend vec operator-(T a, vec b) { return broadcast(a) - b; }
  IKEBANA_CPU_INLINE friend vec operator/(T a, vec b) { return broadcast(a) / b; }
  IKEBANA_CPU_INLINE friend vec operator-(vec a) { return {-a.v}; }
  IKEBANA_CPU_INLINE friend vec operator&(vec a, vec b) { return {a.v & b.v}; }
  IKEBANA_CPU_INLINE friend vec operator|(vec a, vec b) { return {a.v | b.v}; }
  IKEBANA_CPU_INLINE friend vec operator^(vec a, vec b) { return {a.v ^ b.v}; }
  IKEBANA_CPU_INLINE friend vec operator<<(vec a, int s) { return {a.v << s}; }
  IKEBANA_CPU_INLINE friend vec operator>>(vec a, int s) { return {a.v >> s}; }
  IKEBANA_CPU_INLINE friend lane_mask<T> operator<(vec a, vec b) { return {a.v < b.v}; }
  IKEBANA_CPU_INLINE friend lane_mask<T> operator>(vec a, vec b) { return {a.v > b.v}; }
  IKEBANA_CPU_INLINE friend lane_mask<T> operator>=(vec a, vec b) { return {a.v >= b.v}; }
  IKEBANA_CPU_INLINE friend lane_mask<T> operator==(vec a, vec b) { return {a.v == b.v}; }
  IKEBANA_CPU_INLINE friend lane_mask<T> operator!=(vec a, vec b) { return {a.v != b.v}; }
};

template <class T>
IKEBANA_CPU_INLINE vec<T> select(lane_mask<T> m, vec<T> a, vec<T> b) {
  return {m.m ? a.v : b.v};
}

template <class U, class T>
IKEBANA_CPU_INLINE vec<U> as(vec<T> a) {
  return {__builtin_bit_cast(typename register_of<U>::type, a.v)};
}

/// The layout of an IEEE number.
template <class T>
struct number;
template <>
struct number<float> {
  using bits = std::int32_t;
  static constexpr int mantissa = 23, bias = 127;
  static constexpr bits sign = INT32_MIN, infinity = 0x7F800000;
};
template <>
struct number<double> {
  using bits = std::int64_t;
  static constexpr int mantissa = 52, bias = 1023;
  static constexpr bits sign = INT64_MIN, infinity = 0x7FF0000000000000;
};

template <class T>
using bits_of = vec<typename number<T>::bits>;

/// 0, 1, 2, ...
#if IKEBANA_CPU_WIDTH == 0
template <class T>
IKEBANA_CPU_INLINE bits_of<T> lane_numbers() {
  return {0};
}
#else
template <class T, std::size_t... L>
IKEBANA_CPU_INLINE bits_of<T> lane_numbers(std::index_sequence<L...>) {
  return {typename bits_of<T>::raw{static_cast<typename number<T>::bits>(L)...}};
}
template <class T>
IKEBANA_CPU_INLINE bits_of<T> lane_numbers() {
  return lane_numbers<T>(std::make_index_sequence<static_cast<std::size_t>(vec<T>::size)>{});
}
#endif

template <class T>
IKEBANA_CPU_INLINE vec<T> abs(vec<T> a) {
  return as<T>(as<typename number<T>::bits>(a) & bits_of<T>::broadcast(~number<T>::sign));
}

/// The magnitude of a with the sign of s.
template <class T>
IKEBANA_CPU_INLINE vec<T> copysign(vec<T> a, vec<T> s) {
  using B = typename number<T>::bits;
  return as<T>(as<B>(abs(a)) | (as<B>(s) & bits_of<T>::broadcast(number<T>::sign)));
}

/// x, of which the compiler knows nothing more: it stays in its register, where it would else be
/// loaded or computed anew at each use, or be taken apart.
template <class T>
IKEBANA_CPU_INLINE vec<T> opaque(vec<T> x) {
#if IKEBANA_CPU_X86 && IKEBANA_CPU_WIDTH == 64
  asm("" : "+v"(x.v));
#elif IKEBANA_CPU_X86
  asm("" : "+x"(x.v));
#elif IKEBANA_CPU_ARM64
  asm("" : "+w"(x.v));
#endif
  return x;
}

/// Where the user asked for fast arithmetic, hides that x came by a rounded sum, which the compiler
/// would else undo.
template <class T>
IKEBANA_CPU_INLINE void keep_rounding([[maybe_unused]] vec<T>& x) {
#ifdef __FAST_MATH__
  x = opaque(x);
#endif
}

/// The nearest whole number, ties to even. Requires |a| < 2^22 (float), 2^51 (double).
template <class T>
IKEBANA_CPU_INLINE vec<T> round(vec<T> a) {
  constexpr T big = T(typename number<T>::bits{3} << (number<T>::mantissa - 1));
  vec<T> t = a + big;
  keep_rounding(t);
  t = t - big;
  keep_rounding(t);
  return t;
}

/// 2^n for whole n within the exponents of normal numbers.
template <class T>
IKEBANA_CPU_INLINE vec<T> power_of_two(vec<T> n) {
  using L = number<T>;
  constexpr T big = T((typename L::bits{3} << (L::mantissa - 1)) + L::bias);
  return as<T>(as<typename L::bits>(n + big) << L::mantissa);
}

/// The sum of the lanes, by halves: the order depends on the width alone.
#if IKEBANA_CPU_WIDTH == 0
template <class T>
IKEBANA_CPU_INLINE T sum(vec<T> a) {
  return a.v;
}
template <class T>
IKEBANA_CPU_INLINE T maximum(vec<T> a) {
  return a.v;
}
#else
template <class R, std::size_t... I>
IKEBANA_CPU_INLINE auto lower_half(R a, std::index_sequence<I...>) {
  return __builtin_shufflevector(a, a, static_cast<int>(I)...);
}
template <class R, std::size_t... I>
IKEBANA_CPU_INLINE auto upper_half(R a, std::index_sequence<I...>) {
  return __builtin_shufflevector(a, a, static_cast<int>(I + sizeof...(I))...);
}
template <int N, class R, class F>
IKEBANA_CPU_INLINE auto fold_halves(R a, F f) {
  if constexpr (N == 2) {
    return f(a[0], a[1]);
  } else {
    using half = std::make_index_sequence<N / 2>;
    return fold_halves<N / 2>(f(lower_half(a, half{}), upper_half(a, half{})), f);
  }
}
template <class T>
IKEBANA_CPU_INLINE T sum(vec<T> a) {
  return fold_halves<static_cast<int>(vec<T>::size)>(
      a.v, [](auto u, auto v) __attribute__((always_inline)) { return u + v; });
}
template <class T>
IKEBANA_CPU_INLINE T maximum(vec<T> a) {
  return fold_halves<static_cast<int>(vec<T>::size)>(
      a.v, [](auto u, auto v) __attribute__((always_inline)) { return u > v ? u : v; });
}
#endif

// ---- what depends on the instruction set ----

// fma: a * b + c, rounded once where the instruction set can, which `fuses` says.
// max, min: the larger, the smaller; b where either is not a number.
inline constexpr bool fuses = IKEBANA_CPU_WIDTH > 16 ||
                              (IKEBANA_CPU_WIDTH == 16 && IKEBANA_CPU_ARM64);
#if IKEBANA_CPU_WIDTH == 0
template <class T>
IKEBANA_CPU_INLINE vec<T> max(vec<T> a, vec<T> b) {
  return {a.v > b.v ? a.v : b.v};
}
template <class T>
IKEBANA_CPU_INLINE vec<T> min(vec<T> a, vec<T> b) {
  return {a.v < b.v ? a.v : b.v};
}
template <class T>
IKEBANA_CPU_INLINE vec<T> fma(vec<T> a, vec<T> b, vec<T> c) {
  return {a.v * b.v + c.v};
}
template <class T>
IKEBANA_CPU_INLINE vec<T> sqrt(vec<T> a) {
  if constexpr (sizeof(T) == 4)
    return {__builtin_sqrtf(a.v)};
  else
    return {__builtin_sqrt(a.v)};
}
template <class T>
IKEBANA_CPU_INLINE vec<T> vec<T>::load(const T* p, dim_t n) {
  return {n > 0 ? *p : T{}};
}
template <class T>
IKEBANA_CPU_INLINE void vec<T>::store(T* p, dim_t n) const {
  if (n > 0) *p = v;
}

#elif IKEBANA_CPU_WIDTH == 16
#if IKEBANA_CPU_X86
// No fused multiply-add, and no partial loads.
template <class T>
IKEBANA_CPU_INLINE vec<T> fma(vec<T> a, vec<T> b, vec<T> c) {
  return {a.v * b.v + c.v};
}
IKEBANA_CPU_INLINE vec<float> max(vec<float> a, vec<float> b) { return {_mm_max_ps(a.v, b.v)}; }
IKEBANA_CPU_INLINE vec<double> max(vec<double> a, vec<double> b) { return {_mm_max_pd(a.v, b.v)}; }
IKEBANA_CPU_INLINE vec<float> min(vec<float> a, vec<float> b) { return {_mm_min_ps(a.v, b.v)}; }
IKEBANA_CPU_INLINE vec<double> min(vec<double> a, vec<double> b) { return {_mm_min_pd(a.v, b.v)}; }
IKEBANA_CPU_INLINE vec<float> sqrt(vec<float> a) { return {_mm_sqrt_ps(a.v)}; }
IKEBANA_CPU_INLINE vec<double> sqrt(vec<double> a) { return {_mm_sqrt_pd(a.v)}; }
#else
IKEBANA_CPU_INLINE vec<float> fma(vec<float> a, vec<float> b, vec<float> c) {
  return {__builtin_bit_cast(vec<float>::raw, vfmaq_f32(__builtin_bit_cast(float32x4_t, c.v),
                                                        __builtin_bit_cast(float32x4_t, a.v),
                                                        __builtin_bit_cast(float32x4_t, b.v)))};
}
IKEBANA_CPU_INLINE vec<double> fma(vec<double> a, vec<double> b, vec<double> c) {
  return {__builtin_bit_cast(vec<double>::raw, vfmaq_f64(__builtin_bit_cast(float64x2_t, c.v),
                                                         __builtin_bit_cast(float64x2_t, a.v),
                                                         __builtin_bit_cast(float64x2_t, b.v)))};
}
// The instructions of these names keep what is not a number.
template <class T>
IKEBANA_CPU_INLINE vec<T> max(vec<T> a, vec<T> b) {
  return select(a > b, a, b);
}
template <class T>
IKEBANA_CPU_INLINE vec<T> min(vec<T> a, vec<T> b) {
  return select(a < b, a, b);
}
IKEBANA_CPU_INLINE vec<float> sqrt(vec<float> a) {
  return {__builtin_bit_cast(vec<float>::raw, vsqrtq_f32(__builtin_bit_cast(float32x4_t, a.v)))};
}
IKEBANA_CPU_INLINE vec<double> sqrt(vec<double> a) {
  return {__builtin_bit_cast(vec<double>::raw, vsqrtq_f64(__builtin_bit_cast(float64x2_t, a.v)))};
}
#endif
template <class T>
IKEBANA_CPU_INLINE vec<T> vec<T>::load(const T* p, dim_t n) {
  if (n >= size) return load(p);
  if (n <= 0) return zero();
  if constexpr (size == 4) {
    if (n == 3) return {raw{p[0], p[1], p[2]}};
    if (n == 2) return {raw{p[0], p[1]}};
  }
  return {raw{p[0]}};
}
template <class T>
IKEBANA_CPU_INLINE void vec<T>::store(T* p, dim_t n) const {
  if (n >= size) return store(p);
  if (n <= 0) return;
  p[0] = v[0];
  if constexpr (size == 4) {
    if (n >= 2) p[1] = v[1];
    if (n >= 3) p[2] = v[2];
  }
}

#elif IKEBANA_CPU_WIDTH == 32
IKEBANA_CPU_INLINE vec<float> fma(vec<float> a, vec<float> b, vec<float> c) {
  return {_mm256_fmadd_ps(a.v, b.v, c.v)};
}
IKEBANA_CPU_INLINE vec<double> fma(vec<double> a, vec<double> b, vec<double> c) {
  return {_mm256_fmadd_pd(a.v, b.v, c.v)};
}
IKEBANA_CPU_INLINE vec<float> max(vec<float> a, vec<float> b) { return {_mm256_max_ps(a.v, b.v)}; }
IKEBANA_CPU_INLINE vec<double> max(vec<double> a, vec<double> b) {
  return {_mm256_max_pd(a.v, b.v)};
}
IKEBANA_CPU_INLINE vec<float> min(vec<float> a, vec<float> b) { return {_mm256_min_ps(a.v, b.v)}; }
IKEBANA_CPU_INLINE vec<double> min(vec<double> a, vec<double> b) {
  return {_mm256_min_pd(a.v, b.v)};
}
IKEBANA_CPU_INLINE vec<float> sqrt(vec<float> a) { return {_mm256_sqrt_ps(a.v)}; }
IKEBANA_CPU_INLINE vec<double> sqrt(vec<double> a) { return {_mm256_sqrt_pd(a.v)}; }

template <int Bytes>
IKEBANA_CPU_INLINE __m256i first_lanes(dim_t n) {
  if constexpr (Bytes == 4)
    return _mm256_cmpgt_epi32(_mm256_set1_epi32(static_cast<int>(n)),
                              _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7));
  else
    return _mm256_cmpgt_epi64(_mm256_set1_epi64x(n), _mm256_setr_epi64x(0, 1, 2, 3));
}
template <class T>
IKEBANA_CPU_INLINE vec<T> vec<T>::load(const T* p, dim_t n) {
  if constexpr (sizeof(T) == 4)
    return {__builtin_bit_cast(
        raw, _mm256_maskload_ps(reinterpret_cast<const float*>(p), first_lanes<4>(n)))};
  else
    return {__builtin_bit_cast(
        raw, _mm256_maskload_pd(reinterpret_cast<const double*>(p), first_lanes<8>(n)))};
}
template <class T>
IKEBANA_CPU_INLINE void vec<T>::store(T* p, dim_t n) const {
  if constexpr (sizeof(T) == 4)
    _mm256_maskstore_ps(reinterpret_cast<float*>(p), first_lanes<4>(n),
                        __builtin_bit_cast(__m256, v));
  else
    _mm256_maskstore_pd(reinterpret_cast<double*>(p), first_lanes<8>(n),
                        __builtin_bit_cast(__m256d, v));
}

#elif IKEBANA_CPU_WIDTH == 64
// The zero-masked forms with all lanes on: g++ 12 warns of the undefined operand inside the plain
// ones.
inline constexpr __mmask16 all16 = 0xFFFF;
inline constexpr __mmask8 all8 = 0xFF;
IKEBANA_CPU_INLINE vec<float> fma(vec<float> a, vec<float> b, vec<float> c) {
  return {_mm512_fmadd_ps(a.v, b.v, c.v)};
}
IKEBANA_CPU_INLINE vec<double> fma(vec<double> a, vec<double> b, vec<double> c) {
  return {_mm512_fmadd_pd(a.v, b.v, c.v)};
}
IKEBANA_CPU_INLINE vec<float> max(vec<float> a, vec<float> b) {
  return {_mm512_maskz_max_ps(all16, a.v, b.v)};
}
IKEBANA_CPU_INLINE vec<double> max(vec<double> a, vec<double> b) {
  return {_mm512_maskz_max_pd(all8, a.v, b.v)};
}
IKEBANA_CPU_INLINE vec<float> min(vec<float> a, vec<float> b) {
  return {_mm512_maskz_min_ps(all16, a.v, b.v)};
}
IKEBANA_CPU_INLINE vec<double> min(vec<double> a, vec<double> b) {
  return {_mm512_maskz_min_pd(all8, a.v, b.v)};
}
IKEBANA_CPU_INLINE vec<float> sqrt(vec<float> a) { return {_mm512_maskz_sqrt_ps(all16, a.v)}; }
IKEBANA_CPU_INLINE vec<double> sqrt(vec<double> a) { return {_mm512_maskz_sqrt_pd(all8, a.v)}; }
IKEBANA_CPU_INLINE unsigned first_lanes(dim_t n) { return (1u << n) - 1u; }
template <class T>
IKEBANA_CPU_INLINE vec<T> vec<T>::load(const T* p, dim_t n) {
  if constexpr (sizeof(T) == 4)
    return {
        __builtin_bit_cast(raw, _mm512_maskz_loadu_ps(static_cast<__mmask16>(first_lanes(n)), p))};
  else
    return {
        __builtin_bit_cast(raw, _mm512_maskz_loadu_pd(static_cast<__mmask8>(first_lanes(n)), p))};
}
template <class T>
IKEBANA_CPU_INLINE void vec<T>::store(T* p, dim_t n) const {
  if constexpr (sizeof(T) == 4)
    _mm512_mask_storeu_ps(p, static_cast<__mmask16>(first_lanes(n)), __builtin_bit_cast(__m512, v));
  else
    _mm512_mask_storeu_pd(p, static_cast<__mmask8>(first_lanes(n)), __builtin_bit_cast(__m512d, v));
}
/// Lanes n and up; the others are zero, their memory is not touched.
IKEBANA_CPU_INLINE vec<float> load_from(const float* p, dim_t n) {
  return {_mm512_maskz_loadu_ps(static_cast<__mmask16>(all16 << n), p)};
}
IKEBANA_CPU_INLINE vec<double> load_from(const double* p, dim_t n) {
  return {_mm512_maskz_loadu_pd(static_cast<__mmask8>(all8 << n), p)};
}
/// The lanes of `mask`, and those of `old`; the memory of these is not touched.
IKEBANA_CPU_INLINE vec<float> load_lanes(vec<float> old, unsigned mask, const float* p) {
  return {_mm512_mask_loadu_ps(old.v, static_cast<__mmask16>(mask), p)};
}
IKEBANA_CPU_INLINE vec<double> load_lanes(vec<double> old, unsigned mask, const double* p) {
  return {_mm512_mask_loadu_pd(old.v, static_cast<__mmask8>(mask), p)};
}
/// Lane i: lane lanes[i] of a, then of b.
IKEBANA_CPU_INLINE vec<float> pick_lanes(vec<float> a, vec<std::int32_t> lanes, vec<float> b) {
  return {_mm512_permutex2var_ps(a.v, __builtin_bit_cast(__m512i, lanes.v), b.v)};
}
IKEBANA_CPU_INLINE vec<double> pick_lanes(vec<double> a, vec<std::int64_t> lanes, vec<double> b) {
  return {_mm512_permutex2var_pd(a.v, __builtin_bit_cast(__m512i, lanes.v), b.v)};
}
/// Lane i: lane at[i] of x where `mask` has bit i, else zero.
IKEBANA_CPU_INLINE vec<float> pick_lanes(unsigned mask, vec<std::int32_t> at, vec<float> x) {
  return {_mm512_maskz_permutexvar_ps(static_cast<__mmask16>(mask),
                                      __builtin_bit_cast(__m512i, at.v), x.v)};
}
IKEBANA_CPU_INLINE vec<double> pick_lanes(unsigned mask, vec<std::int64_t> at, vec<double> x) {
  return {_mm512_maskz_permutexvar_pd(static_cast<__mmask8>(mask),
                                      __builtin_bit_cast(__m512i, at.v), x.v)};
}
#endif

/// a * 2^n for whole n, overflowing to infinity and into denormals as a product does.
/// Requires |n| < 2^8 (float), 2^11 (double).
#if IKEBANA_CPU_WIDTH == 64
IKEBANA_CPU_INLINE vec<float> scale_by_power(vec<float> a, vec<float> n) {
  return {_mm512_maskz_scalef_ps(all16, a.v, n.v)};
}
IKEBANA_CPU_INLINE vec<double> scale_by_power(vec<double> a, vec<double> n) {
  return {_mm512_maskz_scalef_pd(all8, a.v, n.v)};
}
#else
template <class T>
IKEBANA_CPU_INLINE vec<T> scale_by_power(vec<T> a, vec<T> n) {
  const vec<T> half = round(n * T(0.5));
  return a * power_of_two(half) * power_of_two(n - half);
}
#endif

#if IKEBANA_CPU_WIDTH != 0
/// Lane i: the product of the unsigned lanes 2 i, in full.
IKEBANA_CPU_INLINE vec<std::uint64_t> multiply_even(vec<std::uint32_t> a, vec<std::uint32_t> b) {
  using wide = vec<std::uint64_t>::raw;
#if IKEBANA_CPU_WIDTH == 64
  return {__builtin_bit_cast(wide, _mm512_maskz_mul_epu32(all8, __builtin_bit_cast(__m512i, a.v),
                                                          __builtin_bit_cast(__m512i, b.v)))};
#elif IKEBANA_CPU_WIDTH == 32
  return {__builtin_bit_cast(
      wide, _mm256_mul_epu32(__builtin_bit_cast(__m256i, a.v), __builtin_bit_cast(__m256i, b.v)))};
#elif IKEBANA_CPU_X86
  return {__builtin_bit_cast(
      wide, _mm_mul_epu32(__builtin_bit_cast(__m128i, a.v), __builtin_bit_cast(__m128i, b.v)))};
#else
  return {__builtin_bit_cast(wide, vmull_u32(vmovn_u64(__builtin_bit_cast(uint64x2_t, a.v)),
                                             vmovn_u64(__builtin_bit_cast(uint64x2_t, b.v))))};
#endif
}
#endif

/// How many elements lie between p and the begin of the register that p is in, where memory is
/// divided into registers: reading those, no load crosses two lines of the cache, which beyond L1
/// costs twice.
template <class T>
IKEBANA_CPU_INLINE dim_t lanes_before(const T* p) {
  return static_cast<dim_t>(reinterpret_cast<std::uintptr_t>(p) / sizeof(T)) & (vec<T>::size - 1);
}

/// How many elements of a long y come before the first whole register of it that no two lines of
/// the cache share.
template <class T>
IKEBANA_CPU_INLINE dim_t lanes_to_line([[maybe_unused]] dim_t n, [[maybe_unused]] const T* y) {
#if IKEBANA_CPU_WIDTH >= 32
  constexpr dim_t w = vec<T>::size;
  if (n >= 64 * w) return (w - lanes_before(y)) & (w - 1);
#endif
  return 0;
}

/// Transposes rows[0, size) in place as a matrix of size x size.
#if IKEBANA_CPU_WIDTH == 0
template <class T>
IKEBANA_CPU_INLINE void transpose_block(vec<T>*) {}
#else
template <int D, class R, std::size_t... L>
IKEBANA_CPU_INLINE void exchange(R& a, R& b, std::index_sequence<L...>) {
  constexpr int n = static_cast<int>(sizeof...(L));
  const R low = __builtin_shufflevector(
      a, b,
      ((static_cast<int>(L) & D) == 0 ? static_cast<int>(L) : static_cast<int>(L) - D + n)...);
  const R high = __builtin_shufflevector(
      a, b,
      ((static_cast<int>(L) & D) == 0 ? static_cast<int>(L) + D : static_cast<int>(L) + n)...);
  a = low;
  b = high;
}
template <int D, class T, std::size_t... I>
IKEBANA_CPU_INLINE void transpose_stage(vec<T>* rows, std::index_sequence<I...>) {
  // Row i and row i + D, for every i without bit D.
  (exchange<D>(rows[(I / D) * 2 * D + I % D].v, rows[(I / D) * 2 * D + I % D + D].v,
               std::make_index_sequence<static_cast<std::size_t>(vec<T>::size)>{}),
   ...);
}
template <class T>
IKEBANA_CPU_INLINE void transpose_block(vec<T>* rows) {
  using pairs = std::make_index_sequence<static_cast<std::size_t>(vec<T>::size / 2)>;
  transpose_stage<1>(rows, pairs{});
  if constexpr (vec<T>::size >= 4) transpose_stage<2>(rows, pairs{});
  if constexpr (vec<T>::size >= 8) transpose_stage<4>(rows, pairs{});
  if constexpr (vec<T>::size >= 16) transpose_stage<8>(rows, pairs{});
}
#endif
