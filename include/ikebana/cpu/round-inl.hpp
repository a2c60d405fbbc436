/// x rounded to IEEE binary16, still as floats.
IKEBANA_CPU_INLINE vec<float> rounded_to_fp16(vec<float> x) {
  using words = vec<std::uint32_t>;
  const words bits = as<std::uint32_t>(x);
  const words sign = bits & words::broadcast(0x80000000u);
  const words magnitude = bits ^ sign;
  // Below 2^-14 what is left is a multiple of 2^-24, the last place of numbers from 1/2 to 1.
  vec<float> small = as<float>(magnitude) + 0.5f;
  keep_rounding(small);
  small = small - 0.5f;
  keep_rounding(small);
  const words kept =
      (magnitude + ((magnitude >> 13) & words::broadcast(1)) + words::broadcast(0xFFF)) &
      words::broadcast(0xFFFFE000u);
  vec<float> y = as<float>(kept);
  y = select(y >= vec<float>::broadcast(0x1p16f), as<float>(words::broadcast(0x7F800000u)), y);
  y = select(as<float>(magnitude) < vec<float>::broadcast(0x1p-14f), small, y);
  const words quiet = sign | words::broadcast(0x7FC00000u);
  return select(x == x, as<float>(as<std::uint32_t>(y) | sign), as<float>(quiet));
}

/// The next numbers as those of another type, `lanes` of as many as a register has floats; 0 past
/// them. And back to memory.
#if IKEBANA_CPU_WIDTH == 0
template <class To, class U>
IKEBANA_CPU_INLINE vec<To> load_as(const U* x, dim_t) {
  return {static_cast<To>(*x)};
}
template <class U, class From>
IKEBANA_CPU_INLINE void store_as(vec<From> v, U* y, dim_t) {
  *y = static_cast<U>(v.v);
}
#else
template <class U>
struct beside_floats {
  typedef U type __attribute__((vector_size(vec<float>::size * sizeof(U))));
};
template <class To, class U>
IKEBANA_CPU_INLINE vec<To> load_as(const U* x, dim_t lanes) {
  typename beside_floats<U>::type from{};
  __builtin_memcpy(&from, x, static_cast<std::size_t>(lanes) * sizeof(U));
  return {__builtin_convertvector(from, typename vec<To>::raw)};
}
template <class U, class From>
IKEBANA_CPU_INLINE void store_as(vec<From> v, U* y, dim_t lanes) {
  const auto to = __builtin_convertvector(v.v, typename beside_floats<U>::type);
  __builtin_memcpy(y, &to, static_cast<std::size_t>(lanes) * sizeof(U));
}
#endif

/// y = f(x) for f of registers of `Via`, which both are converted to and from. y may be x.
template <class Via, class X, class Y, class F>
IKEBANA_CPU_INLINE void map_as(dim_t n, const X* x, Y* y, F f) {
  constexpr dim_t w = vec<float>::size;
  dim_t i = 0;
  for (; i + w <= n; i += w) store_as(f(load_as<Via>(x + i, w)), y + i, w);
  if (i < n) store_as(f(load_as<Via>(x + i, n - i)), y + i, n - i);
}

template <class T>
void round_array(dim_t n, number_format p, const T* x, T* y) {
  if (p == number_format::bfloat16)
    map_as<float>(
        n, x, y, [](vec<float> a) __attribute__((always_inline)) { return rounded_to_bf16(a); });
  else if (p == number_format::float16)
    map_as<float>(
        n, x, y, [](vec<float> a) __attribute__((always_inline)) { return rounded_to_fp16(a); });
  else if (p == number_format::float32 && sizeof(T) > 4)
    map_as<float>(
        n, x, y, [](vec<float> a) __attribute__((always_inline)) { return a; });
  else if (x != y)
    light_lanes(
        n, y, [](vec<T> a) __attribute__((always_inline)) { return a; }, x);
}

template <class T>
void add_rounded_array(dim_t n, number_format p, const T* x, number_format r, bool add, T* y) {
  constexpr dim_t rounding_chunk = 512;  // stays in the first-level cache
  alignas(64) T buffer[rounding_chunk];
  for (dim_t i = 0; i < n; i += rounding_chunk) {
    const dim_t count = n - i < rounding_chunk ? n - i : rounding_chunk;
    const T* from = x + i;
    if (p != number_format::full) {
      round_array(count, p, from, static_cast<T*>(buffer));
      from = buffer;
    }
    if (add) {
      light_lanes(count, y + i, lane_sum{}, static_cast<const T*>(y + i), from);
      from = y + i;
    }
    round_array(count, r, from, y + i);
  }
}

/// Floats that are binary16 numbers, as their bits. No branches: numbers of all sizes come in any
/// order.
IKEBANA_CPU_INLINE vec<std::uint32_t> bits_of_fp16(vec<float> x) {
  using words = vec<std::uint32_t>;
  const words bits = as<std::uint32_t>(x);
  const words sign = (bits >> 16) & words::broadcast(0x8000u);
  const vec<float> a = abs(x);
  vec<float> shifted = a + 0.5f;
  keep_rounding(shifted);
  const words small = as<std::uint32_t>(shifted) - words::broadcast(0x3F000000u);
  const words normal = (as<std::uint32_t>(a) - words::broadcast(0x38000000u)) >> 13;
  vec<float> half =
      select(a < vec<float>::broadcast(0x1p-14f), as<float>(small), as<float>(normal));
  half = select(a >= vec<float>::broadcast(0x1p16f), as<float>(words::broadcast(0x7C00u)), half);
  half = select(x == x, half, as<float>(words::broadcast(0x7E00u)));
  return as<std::uint32_t>(half) | sign;
}
/// And back, not by a product of numbers that are subnormal as floats: those are slow.
IKEBANA_CPU_INLINE vec<float> fp16_of_bits(vec<std::uint32_t> b) {
  using words = vec<std::uint32_t>;
  const words magnitude = b & words::broadcast(0x7FFFu);
  vec<float> whole = as<float>(magnitude | words::broadcast(0x4B000000u));  // 2^23 + magnitude
  whole = whole - 0x1p23f;
  keep_rounding(whole);
  const words normal = (magnitude << 13) + words::broadcast(0x38000000u);
  const words beyond = (magnitude << 13) | words::broadcast(0x7F800000u);
  vec<float> y =
      select(whole < vec<float>::broadcast(0x1p10f), whole * 0x1p-24f, as<float>(normal));
  y = select(whole >= vec<float>::broadcast(31744.0f), as<float>(beyond), y);
  return as<float>(as<std::uint32_t>(y) | ((b & words::broadcast(0x8000u)) << 16));
}

template <class T>
void narrow_to_fp16(dim_t n, const T* x, std::uint16_t* y) {
  map_as<float>(
      n, x, y,
      [](vec<float> a) __attribute__((always_inline)) { return bits_of_fp16(rounded_to_fp16(a)); });
}
template <class T>
void widen_from_fp16(dim_t n, const std::uint16_t* x, T* y) {
  map_as<std::uint32_t>(
      n, x, y, [](vec<std::uint32_t> a) __attribute__((always_inline)) { return fp16_of_bits(a); });
}
template <class T>
void narrow_to_bf16(dim_t n, const T* x, std::uint16_t* y) {
  map_as<float>(
      n, x, y, [](vec<float> a) __attribute__((always_inline)) {
        return as<std::uint32_t>(rounded_to_bf16(a)) >> 16;
      });
}
template <class T>
void widen_from_bf16(dim_t n, const std::uint16_t* x, T* y) {
  map_as<std::uint32_t>(
      n, x, y,
      [](vec<std::uint32_t> a) __attribute__((always_inline)) { return as<float>(a << 16); });
}

/// By blocks of as many turns as the compiler knows, and so unrolls.
template <class From, class To>
void convert(dim_t n, const From* x, To* y) {
  constexpr dim_t block = 32;
  dim_t i = 0;
  for (; i + block <= n; i += block)
    for (dim_t j = 0; j < block; ++j) y[i + j] = static_cast<To>(x[i + j]);
  for (; i < n; ++i) y[i] = static_cast<To>(x[i]);
}

template <class T>
bool scale_and_check(dim_t n, T alpha, T* x) {
  using bits = bits_of<T>;
  using B = typename number<T>::bits;
  const vec<T> factor = vec<T>::broadcast(alpha);
  // Of the largest magnitude that was seen, as an integer: beyond all finite ones are infinity and
  // what is not a number.
  bits most = bits::broadcast(0);
  const auto scaled = [&](vec<T> v) __attribute__((always_inline)) {
    const bits magnitude = as<B>(abs(v));
    most = select(magnitude > most, magnitude, most);
    return v * factor;
  };
  light_lanes(n, x, scaled, static_cast<const T*>(x));
  return maximum(most) < number<T>::infinity;
}
