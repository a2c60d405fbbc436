// vec<T>: one vector register of T (one T in the scalar set). Lanes are reached by the compilers'
// vector arithmetic; what that cannot say (fused multiply-add, partial loads, scaling) are
// intrinsics, in a file for each set.

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

// fma: a * b + c, rounded once where the instruction set can, which `fuses` says.
// max, min: the larger, the smaller; b where either is not a number.
inline constexpr bool fuses = IKEBANA_CPU_WIDTH > 16 ||
                              (IKEBANA_CPU_WIDTH == 16 && IKEBANA_CPU_ARM64);
#if IKEBANA_CPU_WIDTH == 64
#include "ikebana/cpu/detail/vec_avx512-inl.hpp"
#elif IKEBANA_CPU_WIDTH == 32
#include "ikebana/cpu/detail/vec_avx2-inl.hpp"
#elif IKEBANA_CPU_WIDTH == 16 && IKEBANA_CPU_X86
#include "ikebana/cpu/detail/vec_sse42-inl.hpp"
#elif IKEBANA_CPU_WIDTH == 16
#include "ikebana/cpu/detail/vec_neon-inl.hpp"
#else
#include "ikebana/cpu/detail/vec_scalar-inl.hpp"
#endif

#if IKEBANA_CPU_WIDTH == 16
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
#endif

/// a * 2^n for whole n, overflowing to infinity and into denormals as a product does.
/// Requires |n| < 2^8 (float), 2^11 (double).
#if IKEBANA_CPU_WIDTH != 64
template <class T>
IKEBANA_CPU_INLINE vec<T> scale_by_power(vec<T> a, vec<T> n) {
  const vec<T> half = round(n * T(0.5));
  return a * power_of_two(half) * power_of_two(n - half);
}
#endif

/// Loads `lanes` elements; the test folds away where `lanes` is the constant size.
template <class T>
IKEBANA_CPU_INLINE vec<T> load_lanes(const T* p, dim_t lanes) {
  return lanes == vec<T>::size ? vec<T>::load(p) : vec<T>::load(p, lanes);
}
/// With `other` in the lanes past them.
template <class T>
IKEBANA_CPU_INLINE vec<T> load_lanes(const T* p, dim_t lanes, vec<T> other) {
  if (lanes == vec<T>::size) return vec<T>::load(p);
  using B = typename number<T>::bits;
  const auto is_there = lane_numbers<T>() < bits_of<T>::broadcast(static_cast<B>(lanes));
  return select(lane_mask<T>{is_there.m}, vec<T>::load(p, lanes), other);
}
template <class T>
IKEBANA_CPU_INLINE void store_lanes(vec<T> x, T* p, dim_t lanes) {
  if (lanes == vec<T>::size)
    x.store(p);
  else
    x.store(p, lanes);
}

// How lanes are joined.
struct lane_sum {
  template <class T>
  IKEBANA_CPU_INLINE vec<T> operator()(vec<T> a, vec<T> b) const {
    return a + b;
  }
};
struct lane_maximum {
  template <class T>
  IKEBANA_CPU_INLINE vec<T> operator()(vec<T> a, vec<T> b) const {
    return max(a, b);
  }
};
