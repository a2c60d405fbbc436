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

#else

/// Row, column: how many tiles of sums. Tiles 0 to 3 hold sums (row by row), 4 and 5 A, 6 and 7 B.
template <class R, int Rows, int Columns>
void multiply_tiles(dim_t rows, dim_t depth, const std::int32_t* a, const std::int32_t* b, R* out,
                    dim_t out_step, bool adds) {
  // g++'s intrinsics of tiles do not say what memory they read.
  asm volatile("" ::: "memory");
  const auto step = static_cast<std::size_t>(out_step) * 4;
  R* const below = out + 16 * out_step;
  if (adds) {
    _tile_loadd(0, out, step);
    if constexpr (Columns > 1) _tile_loadd(1, out + 16, step);
    if constexpr (Rows > 1) _tile_loadd(2, below, step);
    if constexpr (Rows > 1 && Columns > 1) _tile_loadd(3, below + 16, step);
  } else {
    _tile_zero(0);
    if constexpr (Columns > 1) _tile_zero(1);
    if constexpr (Rows > 1) _tile_zero(2);
    if constexpr (Rows > 1 && Columns > 1) _tile_zero(3);
  }
#define IKEBANA_CPU_MULTIPLY_TILES(c, a, b) \
  if constexpr (R(1) / 2 != 0)              \
    _tile_dpbf16ps(c, a, b);                \
  else                                      \
    _tile_dpbusd(c, a, b)
  for (dim_t q = 0; q < depth; q += 16, a += rows * 16, b += 512) {
    _tile_loadd(6, b, 128);
    _tile_loadd(4, a, 64);
    IKEBANA_CPU_MULTIPLY_TILES(0, 4, 6);
    if constexpr (Columns > 1) {
      _tile_loadd(7, b + 16, 128);
      IKEBANA_CPU_MULTIPLY_TILES(1, 4, 7);
    }
    if constexpr (Rows > 1) {
      _tile_loadd(5, a + 256, 64);
      IKEBANA_CPU_MULTIPLY_TILES(2, 5, 6);
    }
    if constexpr (Rows > 1 && Columns > 1) {
      IKEBANA_CPU_MULTIPLY_TILES(3, 5, 7);
    }
  }
#undef IKEBANA_CPU_MULTIPLY_TILES
  _tile_stored(0, out, step);
  if constexpr (Columns > 1) _tile_stored(1, out + 16, step);
  if constexpr (Rows > 1) _tile_stored(2, below, step);
  if constexpr (Rows > 1 && Columns > 1) _tile_stored(3, below + 16, step);
}

template <class R>
void multiply_tile_panels(dim_t rows, dim_t columns, dim_t depth, const std::int32_t* a,
                          const std::int32_t* b, R* out, dim_t out_step, bool adds) {
  if (rows > 16)
    columns > 16 ? multiply_tiles<R, 2, 2>(rows, depth, a, b, out, out_step, adds)
                 : multiply_tiles<R, 2, 1>(rows, depth, a, b, out, out_step, adds);
  else
    columns > 16 ? multiply_tiles<R, 1, 2>(rows, depth, a, b, out, out_step, adds)
                 : multiply_tiles<R, 1, 1>(rows, depth, a, b, out, out_step, adds);
}

inline dim_t tile_panel_rows(dim_t left) { return left < 32 ? left : 32; }

/// As the processor wants it.
struct tile_configuration {
  std::uint8_t palette = 1, start_row = 0, reserved[14] = {};
  std::uint16_t row_bytes[16] = {};
  std::uint8_t rows[16] = {};
};

inline void configure_tiles(dim_t rows) {
  alignas(64) tile_configuration c;
  const dim_t upper = rows < 16 ? rows : 16, lower = rows - upper;
  const dim_t of_tile[8] = {upper, upper, lower, lower, upper, lower, 16, 16};
  for (int t = 0; t < 8; ++t) {
    c.rows[t] = static_cast<std::uint8_t>(of_tile[t]);
    c.row_bytes[t] = of_tile[t] == 0 ? 0 : 64;
  }
  asm volatile("" : : "r"(&c) : "memory");
  _tile_loadconfig(&c);
}
inline void save_tiles(void* where) { _tile_storeconfig(where); }
// All zeros, where nobody had configured them, releases them.
inline void restore_tiles(const void* where) { _tile_loadconfig(where); }

#endif
