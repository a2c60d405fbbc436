// Words (see detail/word_kernel.hpp) made of bytes, of halves and of floats.

/// The first `bytes` bytes at p (all of V if there are more), else zeros. Nothing at or past `end`
/// is read.
template <class V>
IKEBANA_CPU_INLINE V load_bytes(const void* p, dim_t bytes, const void* end) {
  constexpr auto size = static_cast<dim_t>(sizeof(V));
  V v;
  if (bytes >= size) {
    __builtin_memcpy(&v, p, sizeof(V));
    return v;
  }
  v = V{};
  if (bytes <= 0) return v;
  if (static_cast<const char*>(end) - static_cast<const char*>(p) < size) {
    __builtin_memcpy(&v, p, static_cast<std::size_t>(bytes));
    return v;
  }
  V mask;
  __builtin_memcpy(&v, p, sizeof(V));
  __builtin_memcpy(&mask, detail::tail_masks.bytes + (64 - bytes), sizeof(V));
  return static_cast<V>(v & mask);
}

/// Bytes, one for each word of a register, as words.
#if IKEBANA_CPU_WIDTH == 0
template <class N>
IKEBANA_CPU_INLINE word_vec widened(N x) {
  return {static_cast<std::int32_t>(x)};
}
#elif !IKEBANA_CPU_X86
template <class N>
IKEBANA_CPU_INLINE word_vec widened(N x) {
  return {__builtin_convertvector(x, word_vec::raw)};
}
#else
#if IKEBANA_CPU_WIDTH == 64
#define IKEBANA_CPU_WIDEN(KIND) \
  _mm512_maskz_cvtep##KIND##8_epi32(all16, __builtin_bit_cast(__m128i, x))
#elif IKEBANA_CPU_WIDTH == 32
#define IKEBANA_CPU_WIDEN(KIND) \
  _mm256_cvtep##KIND##8_epi32(_mm_cvtsi64_si128(__builtin_bit_cast(long long, x)))
#else
#define IKEBANA_CPU_WIDEN(KIND) \
  _mm_cvtep##KIND##8_epi32(_mm_cvtsi32_si128(__builtin_bit_cast(int, x)))
#endif
IKEBANA_CPU_INLINE word_vec widened(narrow_register<std::uint8_t, IKEBANA_CPU_WIDTH / 4>::type x) {
  return {__builtin_bit_cast(word_vec::raw, IKEBANA_CPU_WIDEN(u))};
}
IKEBANA_CPU_INLINE word_vec widened(narrow_register<std::int8_t, IKEBANA_CPU_WIDTH / 4>::type x) {
  return {__builtin_bit_cast(word_vec::raw, IKEBANA_CPU_WIDEN(i))};
}
#undef IKEBANA_CPU_WIDEN
/// 16 bits, likewise.
IKEBANA_CPU_INLINE word_vec widened(narrow_register<std::uint16_t, IKEBANA_CPU_WIDTH / 2>::type x) {
#if IKEBANA_CPU_WIDTH == 64
  const __m512i y = _mm512_maskz_cvtepu16_epi32(all16, __builtin_bit_cast(__m256i, x));
#elif IKEBANA_CPU_WIDTH == 32
  const __m256i y = _mm256_cvtepu16_epi32(__builtin_bit_cast(__m128i, x));
#else
  const __m128i y = _mm_cvtepu16_epi32(_mm_cvtsi64_si128(__builtin_bit_cast(long long, x)));
#endif
  return {__builtin_bit_cast(word_vec::raw, y)};
}
#endif

#if IKEBANA_CPU_WIDTH == 64
using byte_row = narrow_register<std::uint8_t, 16>::type;
using half_row = narrow_register<std::uint16_t, 32>::type;
using half_pair = narrow_register<std::int16_t, 64>::type;

template <class W, std::size_t... I>
IKEBANA_CPU_INLINE W shuffled_bytes(W x, std::index_sequence<I...>) {
  // Byte r of word q of each quarter is byte q of its word r.
  return __builtin_shufflevector(x, x, static_cast<int>(I / 16 * 16 + I % 4 * 4 + I % 16 / 4)...);
}
/// The words of 16 bytes of each of four rows.
IKEBANA_CPU_INLINE word_vec interleaved(byte_row a, byte_row b, byte_row c, byte_row d) {
  __m512i x = _mm512_zextsi128_si512(__builtin_bit_cast(__m128i, a));
  x = _mm512_maskz_inserti32x4(all16, x, __builtin_bit_cast(__m128i, b), 1);
  x = _mm512_maskz_inserti32x4(all16, x, __builtin_bit_cast(__m128i, c), 2);
  x = _mm512_maskz_inserti32x4(all16, x, __builtin_bit_cast(__m128i, d), 3);
  // First four bytes of every row to each quarter of the register.
  const auto rows = __builtin_bit_cast(word_vec::raw, x);
  const auto quarters =
      __builtin_shufflevector(rows, rows, 0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15);
  using bytes = narrow_register<std::uint8_t, 64>::type;
  return {__builtin_bit_cast(word_vec::raw, shuffled_bytes(__builtin_bit_cast(bytes, quarters),
                                                           std::make_index_sequence<64>{}))};
}
template <std::size_t... I>
IKEBANA_CPU_INLINE word_vec interleaved(half_row a, half_row b, std::index_sequence<I...>) {
  return {__builtin_bit_cast(
      word_vec::raw, __builtin_shufflevector(a, b, static_cast<int>(I / 2 + I % 2 * 16)...))};
}
/// The words of 16 numbers of each of two rows.
IKEBANA_CPU_INLINE word_vec interleaved(half_row a, half_row b) {
  return interleaved(a, b, std::make_index_sequence<32>{});
}
#endif

#if IKEBANA_CPU_WIDTH == 64
/// Floats as bfloat16, rounded to nearest, ties to even; subnormal ones become zero. Of the
/// extensions that multiply bfloat16; the intrinsic is in a header that takes long to read.
IKEBANA_CPU_INLINE half_pair rounded(word_vec::raw low, word_vec::raw high) {
  half_pair y;
  asm("{vcvtne2ps2bf16 %1, %2, %0|vcvtne2ps2bf16 %0, %2, %1}" : "=v"(y) : "v"(low), "v"(high));
  return y;
}
template <std::size_t... I>
IKEBANA_CPU_INLINE word_vec alternating(half_pair x, std::index_sequence<I...>) {
  return {__builtin_bit_cast(
      word_vec::raw, __builtin_shufflevector(x, x, static_cast<int>(I / 2 + I % 2 * 16)...))};
}
#endif
