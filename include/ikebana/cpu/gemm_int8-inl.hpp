/// Where the sums of a product of bytes go: to 32-bit integers, or, scaled, to floats, in whose
/// place they are kept until all are there.
struct byte_result {
  void* c;
  dim_t ldc;
  std::int32_t a_zero;                // as the words of A have it
  const detail::byte_scaling* scale;  // null: integers
  // The sums of the rows of A from `summed` on, where B has zero points.
  mutable dim_t summed = -1;
  mutable std::uint32_t row_sums[detail::most_word_rows] = {};

  bool begin(std::uint32_t*, dim_t, dim_t, dim_t) const { return false; }
  bool wants_sums() const { return a_zero != 0; }
  std::uint32_t* place(dim_t i, dim_t j, bool /*first*/) const {
    return wants_sums() ? nullptr : static_cast<std::uint32_t*>(c) + i * ldc + j;
  }
  void take(const std::uint32_t* tile, const std::int32_t* sums, dim_t i, dim_t j, dim_t rows,
            dim_t columns, bool first) const {
    constexpr dim_t w = word_vec::size;
    using bits = vec<std::uint32_t>;
    const bits zero = bits::broadcast(static_cast<std::uint32_t>(a_zero));
    for (dim_t v = 0; v < columns; v += w) {
      const dim_t n = columns - v < w ? columns - v : w;
      const bits offset =
          wants_sums() ? as<std::uint32_t>(word_vec::load(sums + v)) * zero : bits::zero();
      std::uint32_t* to = static_cast<std::uint32_t*>(c) + i * ldc + j + v;
      const std::uint32_t* from = tile + v;
      for (dim_t r = 0; r < rows; ++r, to += ldc, from += 2 * w) {
        bits x = bits::load(from) - offset;
        if (n == w) {
          if (!first) x = x + bits::load(to);
          x.store(to);
        } else {
          if (!first) x = x + bits::load(to, n);
          x.store(to, n);
        }
      }
    }
  }
  void finish(dim_t i, dim_t j, dim_t rows, dim_t columns) const {
    if (scale == nullptr) return;
    if (scale->b_zero != nullptr && summed != i) {
      for (dim_t r = 0; r < rows; ++r) row_sums[r] = scale->sum_of_row(i + r);
      summed = i;
    }
    constexpr dim_t w = word_vec::size;
    for (dim_t v = 0; v < columns; v += w) {
      const dim_t n = columns - v < w ? columns - v : w;
      const bool each = scale->per_column;
      const vec<float> factor = (each ? vec<float>::load(scale->b_scale + j + v, n)
                                      : vec<float>::broadcast(*scale->b_scale)) *
                                vec<float>::broadcast(scale->a_scale);
      const vec<float> bias =
          scale->bias != nullptr ? vec<float>::load(scale->bias + j + v, n) : vec<float>::zero();
      word_vec b_zero = word_vec::zero();
      if (scale->b_zero != nullptr)
        b_zero =
            each ? word_vec::load(scale->b_zero + j + v, n) : word_vec::broadcast(*scale->b_zero);
      float* to = static_cast<float*>(c) + i * ldc + j + v;
      for (dim_t r = 0; r < rows; ++r, to += ldc) {
        word_vec x = word_vec::load(reinterpret_cast<const std::int32_t*>(to), n);
        if (scale->b_zero != nullptr)
          x = as<std::int32_t>(as<std::uint32_t>(x) -
                               as<std::uint32_t>(b_zero) *
                                   vec<std::uint32_t>::broadcast(row_sums[r]));
        // Rounded twice, so that all instruction sets give the same.
        const vec<float> y = opaque(converted(x) * factor);
        (y + bias).store(to, n);
      }
    }
    activate_block<float, detail::every_activation>(scale->function, rows, columns,
                                                    static_cast<float*>(c) + i * ldc + j, ldc);
  }

  IKEBANA_CPU_INLINE static vec<float> converted(word_vec x) {
#if IKEBANA_CPU_WIDTH == 0
    return {static_cast<float>(x.v)};
#else
    return {__builtin_convertvector(x.v, vec<float>::raw)};
#endif
  }
};

/// `flip` makes bytes of A with a sign such without, 128 more.
template <int Per, class Kernel>
void multiply_bytes(transpose ta, transpose tb, dim_t m, dim_t n, dim_t k, const std::uint8_t* a,
                    dim_t lda, bool flip, const std::int8_t* b, dim_t ldb, const Kernel& kernel,
                    const byte_result& result) {
  constexpr std::int32_t bits = Per == 4 ? static_cast<std::int32_t>(0x80808080u) : 0x00800080;
  multiply_words<std::uint32_t, Per>(
      m, n, k, word_operand<std::uint8_t, Per>{a, lda, ta == transpose::no, k, m, flip ? bits : 0},
      word_operand<std::int8_t, Per>{b, ldb, tb == transpose::yes, k, n}, kernel, result);
}

#if IKEBANA_CPU_WIDTH == 64
/// One row, blocks of which are copied so that bytes have no sign, times a transposed B.
inline void multiply_byte_row(dim_t n, dim_t k, const std::uint8_t* a, dim_t step, bool flip,
                              const std::int8_t* b, dim_t ldb, detail::byte_row_function multiply,
                              const byte_result& result) {
  constexpr dim_t depth = 8192, width = 256;
  static_assert(depth + 64 <= static_cast<dim_t>(detail::word_scratch::a_bytes));
  auto* const row = reinterpret_cast<std::uint8_t*>(detail::thread_word_scratch().a);
  alignas(64) std::uint32_t out[width + 64], sums[width + 64];
  const std::int8_t* const end = b + (n - 1) * ldb + k;
  for (dim_t p = 0; p == 0 || p < k; p += depth) {
    const dim_t count = k - p < depth ? k - p : depth;
    for (dim_t i = 0; i < count; ++i)
      row[i] = static_cast<std::uint8_t>(a[(p + i) * step] ^ (flip ? 128 : 0));
    std::memset(row + count, 0, 64);
    for (dim_t j = 0; j < n; j += width) {
      const dim_t columns = n - j < width ? n - j : width;
      multiply(columns, count, row, b + j * ldb + p, ldb, end, out, sums);
      result.take(out, reinterpret_cast<const std::int32_t*>(sums), 0, j, 1, columns, p == 0);
      if (p + depth >= k) result.finish(0, j, 1, columns);
    }
  }
}
#endif

/// Without an extension by pairs. A type, so that what nobody uses is not built.
template <class A>
void byte_product(transpose ta, transpose tb, dim_t m, dim_t n, dim_t k, const A* a, dim_t lda,
                  const std::int8_t* b, dim_t ldb, void* c, dim_t ldc,
                  const detail::byte_scaling* scale,
                  const detail::word_kernels<std::uint32_t>& extension,
                  [[maybe_unused]] detail::byte_row_function (*row)(bool with_sums)) {
  if (m == 0 || n == 0) return;
  constexpr bool flip = A(-1) < A(0);
  std::int32_t zero = scale != nullptr ? scale->a_zero : 0;
  if constexpr (flip) zero = static_cast<std::int32_t>(static_cast<std::uint32_t>(zero) + 128u);
  const byte_result result{.c = c, .ldc = ldc, .a_zero = zero, .scale = scale};
  const auto* bytes = reinterpret_cast<const std::uint8_t*>(a);
#if IKEBANA_CPU_WIDTH == 64
  if (row != nullptr && k > 0)
    if (const detail::byte_row_function multiply = row(result.wants_sums()))
      return multiply_byte_row(n, k, bytes, ta == transpose::no ? 1 : lda, flip, b, ldb, multiply,
                               result);
  if (extension.tiles != nullptr)
    return multiply_bytes<4>(ta, tb, m, n, k, bytes, lda, flip, b, ldb, *extension.tiles, result);
  if (extension.words != nullptr)
    return multiply_bytes<4>(ta, tb, m, n, k, bytes, lda, flip, b, ldb, *extension.words, result);
#endif
  static_cast<void>(extension);
  constexpr detail::word_kernel<std::uint32_t> pairs{
      &word_panel_rows<add_pairs>, &multiply_word_panels<std::uint32_t, add_pairs>};
  multiply_bytes<2>(ta, tb, m, n, k, bytes, lda, flip, b, ldb, pairs, result);
}
