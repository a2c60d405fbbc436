// The innermost loops of products of one row with bytes that stand along the summed dimension:
// nothing is packed.

#if IKEBANA_CPU_EXTENSION == IKEBANA_CPU_VNNI
typedef std::uint8_t byte_register __attribute__((vector_size(64)));
using byte_sums = vec<std::uint32_t>;

IKEBANA_CPU_INLINE byte_sums add_words(byte_sums sum, byte_register a, byte_register b) {
  return add_bytes::add(sum, {__builtin_bit_cast(word_vec::raw, a)},
                        {__builtin_bit_cast(word_vec::raw, b)});
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

/// out[j] = the sum over p < k of a[p] b[j * ldb + p] for j < n, `sums` the same without a. Behind
/// a's k numbers are zeros up to a multiple of 64; nothing of b at or past `end` is read.
template <bool WithSums>
void multiply_byte_row(dim_t n, dim_t k, const std::uint8_t* a, const std::int8_t* b, dim_t ldb,
                       const std::int8_t* end, std::uint32_t* out, std::uint32_t* sums) {
  dim_t j = 0;
  for (; j + 4 <= n; j += 4)
    multiply_byte_rows<WithSums>(k, a, b + j * ldb, ldb, end, out + j, sums + j,
                                 std::make_index_sequence<4>{});
  for (; j < n; ++j)
    multiply_byte_rows<WithSums>(k, a, b + j * ldb, ldb, end, out + j, sums + j,
                                 std::make_index_sequence<1>{});
}
#endif
