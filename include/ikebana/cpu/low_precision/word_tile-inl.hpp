// The innermost loops of products of words (see detail/word_kernel.hpp): over pairs of 16 bits,
// which every instruction set has, and those of the extensions.

#if defined(IKEBANA_CPU_EXTENSION)
template <class T>
using vec = avx512::vec<T>;
#endif
using word_vec = vec<std::int32_t>;

/// The sums of a tile: `Rows` rows by `Registers` registers, of which `Step` adds the product of a
/// word of A and a register of B.
template <class R, class Step, int Rows, int Registers, std::size_t... J, std::size_t... I>
IKEBANA_CPU_INLINE void multiply_word_tile(dim_t depth, const std::int32_t* a,
                                           const std::int32_t* b, R* out, dim_t out_step, bool adds,
                                           std::index_sequence<J...>, std::index_sequence<I...>) {
  constexpr std::size_t n = Registers, width = static_cast<std::size_t>(word_vec::size);
  // Indexed by constants only, so that no compiler keeps the sums in memory.
  vec<R> sums[sizeof...(I)] = {(static_cast<void>(I), vec<R>::zero())...};
  R* const rows[] = {out + static_cast<dim_t>(I / n) * out_step + (I % n) * width...};
  // What comes from the second-level cache is asked for in time.
  (__builtin_prefetch(rows[I], 1), ...);
  for (; depth > 0; depth -= word_vec::size, a += (Rows - 1) * word_vec::size) {
    dim_t left = depth < word_vec::size ? depth : word_vec::size;
#pragma GCC unroll 2
    for (; left > 0; --left) {
      (__builtin_prefetch(b + 8 * 2 * width + J * width), ...);
      const word_vec columns[n] = {word_vec::load(b + J * width)...};
      ((sums[I] = Step::add(sums[I], word_vec::broadcast(a[I / n * width]), columns[I % n])), ...);
      ++a;
      b += 2 * width;
    }
  }
  if (adds) ((sums[I] = sums[I] + vec<R>::load(rows[I])), ...);
  (sums[I].store(rows[I]), ...);
}

/// Panels have an even number of rows, up to Step::rows.
template <class R, class Step, int Rows = Step::rows>
void multiply_word_panels(dim_t rows, dim_t columns, dim_t depth, const std::int32_t* a,
                          const std::int32_t* b, R* out, dim_t out_step, bool adds) {
  if constexpr (Rows > 2) {
    if (rows < Rows)
      return multiply_word_panels<R, Step, Rows - 2>(rows, columns, depth, a, b, out, out_step,
                                                     adds);
  }
  if (columns <= word_vec::size)
    multiply_word_tile<R, Step, Rows, 1>(depth, a, b, out, out_step, adds,
                                         std::make_index_sequence<1>{},
                                         std::make_index_sequence<Rows>{});
  else
    multiply_word_tile<R, Step, Rows, 2>(depth, a, b, out, out_step, adds,
                                         std::make_index_sequence<2>{},
                                         std::make_index_sequence<std::size_t{Rows} * 2>{});
}

/// Panels of about the same size.
template <class Step>
dim_t word_panel_rows(dim_t left) {
  const dim_t panels = (left + Step::rows - 1) / Step::rows;
  const dim_t rows = (left + panels - 1) / panels;
  return rows + rows % 2;
}

#if !defined(IKEBANA_CPU_EXTENSION)

/// As many numbers as a register has words or, of bytes, as it has pairs.
template <class E, int Bytes>
struct narrow_register;
#if IKEBANA_CPU_WIDTH == 0
template <class E>
struct narrow_register<E, sizeof(E)> {
  using type = E;
};
#else
#define IKEBANA_CPU_NARROW(E, BYTES)                    \
  template <>                                           \
  struct narrow_register<E, BYTES> {                    \
    typedef E type __attribute__((vector_size(BYTES))); \
  }
IKEBANA_CPU_NARROW(std::uint8_t, IKEBANA_CPU_WIDTH / 4);
IKEBANA_CPU_NARROW(std::int8_t, IKEBANA_CPU_WIDTH / 4);
IKEBANA_CPU_NARROW(std::uint8_t, IKEBANA_CPU_WIDTH / 2);
IKEBANA_CPU_NARROW(std::int8_t, IKEBANA_CPU_WIDTH / 2);
IKEBANA_CPU_NARROW(std::uint8_t, IKEBANA_CPU_WIDTH);
IKEBANA_CPU_NARROW(std::uint16_t, IKEBANA_CPU_WIDTH / 2);
IKEBANA_CPU_NARROW(std::int16_t, IKEBANA_CPU_WIDTH);
#undef IKEBANA_CPU_NARROW
#endif

/// Sums of products of pairs of 16 bits, exact.
struct add_pairs {
  using sums = vec<std::uint32_t>;
#if IKEBANA_CPU_WIDTH == 64
  static constexpr int rows = 14;
#elif IKEBANA_CPU_WIDTH == 32
  static constexpr int rows = 6;
#else
  static constexpr int rows = 4;
#endif
  IKEBANA_CPU_INLINE static sums add(sums sum, word_vec a, word_vec b) {
#if IKEBANA_CPU_WIDTH == 64
#if defined(__clang__) || __GNUC__ != 12
    return sum +
           sums{__builtin_bit_cast(sums::raw, _mm512_madd_epi16(__builtin_bit_cast(__m512i, a.v),
                                                                __builtin_bit_cast(__m512i, b.v)))};
#else  // What that is, in a header that takes long to read.
    using pairs = narrow_register<std::int16_t, 64>::type;
    return sum + sums{__builtin_bit_cast(
                     sums::raw, __builtin_ia32_pmaddwd512_mask(__builtin_bit_cast(pairs, a.v),
                                                               __builtin_bit_cast(pairs, b.v),
                                                               word_vec::zero().v, all16))};
#endif
#elif IKEBANA_CPU_WIDTH == 32
    return sum +
           sums{__builtin_bit_cast(sums::raw, _mm256_madd_epi16(__builtin_bit_cast(__m256i, a.v),
                                                                __builtin_bit_cast(__m256i, b.v)))};
#elif IKEBANA_CPU_WIDTH == 16 && IKEBANA_CPU_X86
    return sum +
           sums{__builtin_bit_cast(sums::raw, _mm_madd_epi16(__builtin_bit_cast(__m128i, a.v),
                                                             __builtin_bit_cast(__m128i, b.v)))};
#elif IKEBANA_CPU_WIDTH == 16
    const auto x = __builtin_bit_cast(int16x8_t, a.v), y = __builtin_bit_cast(int16x8_t, b.v);
    return sum + sums{__builtin_bit_cast(sums::raw,
                                         vpaddq_s32(vmull_s16(vget_low_s16(x), vget_low_s16(y)),
                                                    vmull_high_s16(x, y)))};
#else
    const auto product = [](std::int32_t x, std::int32_t y) {
      return static_cast<std::uint32_t>(static_cast<std::int16_t>(x) *
                                        static_cast<std::int16_t>(y));
    };
    return sum + sums{product(a.v, b.v) + product(a.v >> 16, b.v >> 16)};
#endif
  }
};

#elif IKEBANA_CPU_EXTENSION == IKEBANA_CPU_VNNI

/// Sums of products of four bytes, those of A without a sign; exact.
struct add_bytes {
  using sums = vec<std::uint32_t>;
  static constexpr int rows = 14;
  IKEBANA_CPU_INLINE static sums add(sums sum, word_vec a, word_vec b) {
    return {__builtin_bit_cast(sums::raw, _mm512_dpbusd_epi32(__builtin_bit_cast(__m512i, sum.v),
                                                              __builtin_bit_cast(__m512i, a.v),
                                                              __builtin_bit_cast(__m512i, b.v)))};
  }
};

#elif IKEBANA_CPU_EXTENSION == IKEBANA_CPU_BF16

/// Sums of products of two bfloat16, the second first, each rounded once; subnormal numbers count
/// as zero.
struct add_bf16_pairs {
  static constexpr int rows = 14;
  IKEBANA_CPU_INLINE static vec<float> add(vec<float> sum, word_vec a, word_vec b) {
    // The intrinsic is in a header that takes long to read, with types that compilers disagree on.
    asm("{vdpbf16ps %2, %1, %0|vdpbf16ps %0, %1, %2}" : "+v"(sum.v) : "v"(a.v), "v"(b.v));
    return sum;
  }
};

#endif
