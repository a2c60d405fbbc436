// The innermost loops of products of one row with bytes, which are made into words in registers or
// are such as they stand: nothing is packed.

#if IKEBANA_CPU_EXTENSION == IKEBANA_CPU_VNNI
typedef std::uint8_t byte_register __attribute__((vector_size(64)));
using byte_sums = vec<std::uint32_t>;

IKEBANA_CPU_INLINE byte_sums add_words(byte_sums sum, byte_register a, byte_register b) {
  return add_bytes::add(sum, {__builtin_bit_cast(word_vec::raw, a)},
                        {__builtin_bit_cast(word_vec::raw, b)});
}

/// Units of so many bytes of a and b in turn, of the lower or upper half of each 16 bytes.
template <std::size_t Unit, bool Upper, std::size_t... I>
IKEBANA_CPU_INLINE byte_register alternating(byte_register a, byte_register b,
                                             std::index_sequence<I...>) {
  constexpr auto from = [](std::size_t i) {
    const std::size_t unit = i % 16 / Unit, place = unit / 2 * Unit + (Upper ? 8 : 0);
    return static_cast<int>(i / 16 * 16 + place + i % Unit + (unit % 2 == 0 ? 0 : 64));
  };
  return __builtin_shufflevector(a, b, from(I)...);
}
template <std::size_t Unit, bool Upper>
IKEBANA_CPU_INLINE byte_register alternating(byte_register a, byte_register b) {
  return alternating<Unit, Upper>(a, b, std::make_index_sequence<64>{});
}

/// Four rows of 64 columns: their words, four of each 16 columns in each of four registers.
struct byte_columns {
  byte_register of[4];
  IKEBANA_CPU_INLINE byte_columns(byte_register a, byte_register b, byte_register c,
                                  byte_register d) {
    const byte_register ab = alternating<1, false>(a, b), cd = alternating<1, false>(c, d),
                        ab_upper = alternating<1, true>(a, b),
                        cd_upper = alternating<1, true>(c, d);
    of[0] = alternating<2, false>(ab, cd);
    of[1] = alternating<2, true>(ab, cd);
    of[2] = alternating<2, false>(ab_upper, cd_upper);
    of[3] = alternating<2, true>(ab_upper, cd_upper);
  }
};
IKEBANA_CPU_INLINE void store_columns(const byte_sums* sums, std::uint32_t* out) {
  alignas(64) std::uint32_t words[64];
  for (int q = 0; q < 4; ++q) sums[q].store(words + 16 * q);
  for (int i = 0; i < 16; ++i)
    __builtin_memcpy(out + i * 4, words + i % 4 * 16 + i / 4 * 4, 4 * sizeof(std::uint32_t));
}

/// As many times 64 columns as there are Q; of the only ones, where not `Whole`, what there is.
template <bool Whole, bool WithSums, std::size_t... Q>
IKEBANA_CPU_INLINE void multiply_byte_columns(dim_t columns, dim_t k, const std::uint8_t* a,
                                              const std::int8_t* b, dim_t ldb,
                                              const std::int8_t* end, std::uint32_t* out,
                                              std::uint32_t* sums, std::index_sequence<Q...>) {
  constexpr dim_t near = 16;
  byte_sums products[sizeof...(Q)][4] = {}, ones[sizeof...(Q)][4] = {};
  const byte_register one = byte_register{} + 1;
  for (dim_t p = 0; p < k; p += 4) {
    const auto load = [&](dim_t row, std::size_t q) __attribute__((always_inline)) {
      byte_register x = {};
      if (row >= k) return x;
      const std::int8_t* const from = b + row * ldb + static_cast<dim_t>(q) * 64;
      if constexpr (!Whole) return avx512::load_bytes<byte_register>(from, columns, end);
      __builtin_prefetch(from + near * ldb);
      __builtin_memcpy(&x, from, sizeof(x));
      return x;
    };
    std::int32_t word;
    __builtin_memcpy(&word, a + p, sizeof(word));
    const auto x = __builtin_bit_cast(byte_register, word_vec::broadcast(word));
    const auto add = [&](std::size_t q) __attribute__((always_inline)) {
      const byte_columns words(load(p, q), load(p + 1, q), load(p + 2, q), load(p + 3, q));
#pragma GCC unroll 4
      for (int i = 0; i < 4; ++i) {
        products[q][i] = add_words(products[q][i], x, words.of[i]);
        if (WithSums) ones[q][i] = add_words(ones[q][i], one, words.of[i]);
      }
    };
    (add(Q), ...);
  }
  (store_columns(products[Q], out + Q * 64), ...);
  if (WithSums) (store_columns(ones[Q], sums + Q * 64), ...);
}
template <bool Whole, bool WithSums, std::size_t Registers>
[[gnu::noinline]] void multiply_byte_columns(dim_t columns, dim_t k, const std::uint8_t* a,
                                             const std::int8_t* b, dim_t ldb,
                                             const std::int8_t* end, std::uint32_t* out,
                                             std::uint32_t* sums) {
  multiply_byte_columns<Whole, WithSums>(columns, k, a, b, ldb, end, out, sums,
                                         std::make_index_sequence<Registers>{});
}

IKEBANA_CPU_INLINE std::uint32_t sum_of(byte_sums x) {
  auto v = x.v;
  v += __builtin_shufflevector(v, v, 8, 9, 10, 11, 12, 13, 14, 15, 0, 1, 2, 3, 4, 5, 6, 7);
  v += __builtin_shufflevector(v, v, 4, 5, 6, 7, 0, 1, 2, 3, 12, 13, 14, 15, 8, 9, 10, 11);
  v += __builtin_shufflevector(v, v, 2, 3, 0, 1, 6, 7, 4, 5, 10, 11, 8, 9, 14, 15, 12, 13);
  return v[0] + v[1];
}
/// As many columns of B, that are stored as rows, as there are J.
template <bool WithSums, std::size_t... J>
IKEBANA_CPU_INLINE void multiply_byte_rows(dim_t k, const std::uint8_t* a, const std::int8_t* b,
                                           dim_t ldb, const std::int8_t* end, std::uint32_t* out,
                                           std::uint32_t* sums, std::index_sequence<J...>) {
  byte_sums products[sizeof...(J)] = {}, ones[sizeof...(J)] = {};
  const byte_register one = byte_register{} + 1;
  for (dim_t p = 0; p < k; p += 64) {
    byte_register x;
    __builtin_memcpy(&x, a + p, sizeof(x));
    const auto add = [&](byte_sums & product, byte_sums & sum, const std::int8_t* row)
        __attribute__((always_inline)) {
      const auto y = avx512::load_bytes<byte_register>(row + p, k - p, end);
      product = add_words(product, x, y);
      if (WithSums) sum = add_words(sum, one, y);
    };
    (add(products[J], ones[J], b + static_cast<dim_t>(J) * ldb), ...);
  }
  ((out[J] = sum_of(products[J])), ...);
  if (WithSums) ((sums[J] = sum_of(ones[J])), ...);
}

/// out[j] = the sum over p < k of a[p] b(p, j) for j < n, `sums` (which may be null) the same
/// without a; up to 63 more may be written. Behind a's k numbers are zeros up to a multiple of 64;
/// nothing of b at or past `end` is read.
template <bool WithSums>
void multiply_byte_row(bool turned, dim_t n, dim_t k, const std::uint8_t* a, const std::int8_t* b,
                       dim_t ldb, const std::int8_t* end, std::uint32_t* out, std::uint32_t* sums) {
  dim_t j = 0;
  if (turned) {
    for (; j + 4 <= n; j += 4)
      multiply_byte_rows<WithSums>(k, a, b + j * ldb, ldb, end, out + j, sums + j,
                                   std::make_index_sequence<4>{});
    for (; j < n; ++j)
      multiply_byte_rows<WithSums>(k, a, b + j * ldb, ldb, end, out + j, sums + j,
                                   std::make_index_sequence<1>{});
    return;
  }
  for (; j + 128 <= n; j += 128)
    multiply_byte_columns<true, WithSums, 2>(128, k, a, b + j, ldb, end, out + j, sums + j);
  for (; j + 64 <= n; j += 64)
    multiply_byte_columns<true, WithSums, 1>(64, k, a, b + j, ldb, end, out + j, sums + j);
  if (j < n)
    multiply_byte_columns<false, WithSums, 1>(n - j, k, a, b + j, ldb, end, out + j, sums + j);
}
inline void byte_row(bool turned, dim_t n, dim_t k, const std::uint8_t* a, const std::int8_t* b,
                     dim_t ldb, const std::int8_t* end, std::uint32_t* out, std::uint32_t* sums,
                     bool with_sums) {
  (with_sums ? &multiply_byte_row<true> : &multiply_byte_row<false>)(turned, n, k, a, b, ldb, end,
                                                                     out, sums);
}
#endif
