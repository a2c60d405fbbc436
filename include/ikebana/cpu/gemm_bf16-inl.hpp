/// Where tiles of sums of products of bfloat16 go.
struct float_word_result {
  float* c;
  dim_t ldc;
  float alpha, beta;
  const gemm_epilogue<float>& then;

  bool wants_sums() const { return false; }
  /// Where a whole tile goes, if it may be stored there without further ado; else null.
  float* place(dim_t i, dim_t j, bool first) const {
    if (alpha != 1.0f || (first && beta != 0.0f && (beta != 1.0f || then.bias != nullptr)))
      return nullptr;
    return c + i * ldc + j;
  }
  /// Whether it is added to what is there: here to the bias, if there is one.
  bool begin(float* tile, dim_t j, dim_t rows, dim_t columns) const {
    if (then.bias != nullptr)
      for (dim_t v = 0; v < columns; v += vec<float>::size) {
        const vec<float> bias = vec<float>::load(then.bias + j + v);
        for (dim_t r = 0; r < rows; ++r) bias.store(tile + r * ldc + v);
      }
    return then.bias != nullptr || beta == 1.0f;
  }
  void take(const float* tile, const std::int32_t* /*sums*/, dim_t i, dim_t j, dim_t rows,
            dim_t columns, bool first) const {
    constexpr dim_t w = vec<float>::size;
    const vec<float> a = vec<float>::broadcast(alpha),
                     b = vec<float>::broadcast(first ? beta : 1.0f);
    const bool reads = !first || beta != 0.0f;
    for (dim_t v = 0; v < columns; v += w) {
      const dim_t n = columns - v < w ? columns - v : w;
      const vec<float> offset = first && then.bias != nullptr
                                    ? vec<float>::load(then.bias + j + v, n)
                                    : vec<float>::zero();
      float* to = c + i * ldc + j + v;
      const float* from = tile + v;
      for (dim_t r = 0; r < rows; ++r, to += ldc, from += 2 * w) {
        const vec<float> x = fma(a, vec<float>::load(from), offset);
        (reads ? fma(b, vec<float>::load(to, n), x) : x).store(to, n);
      }
    }
  }
  void finish(dim_t i, dim_t j, dim_t rows, dim_t columns) const {
    float* const at = c + i * ldc + j;
    if (then.row_bias != nullptr)
      for (dim_t r = 0; r < rows; ++r) {
        const vec<float> bias = vec<float>::broadcast(then.row_bias[i + r]);
        map_block(
            1, columns, at + r * ldc,
            ldc, [=](vec<float> x) __attribute__((always_inline)) { return x + bias; });
      }
    if (then.residual != nullptr)
      map_block(
          rows, columns, at, ldc, then.residual + i * then.ld_residual + j, then.ld_residual,
          [](vec<float> x, vec<float> y) __attribute__((always_inline)) { return x + y; });
    then.function(rows, columns, at, ldc);
    if (then.slope_of != nullptr)
      slope_block(then.slope, rows, columns, at, ldc, then.slope_of + i * then.ld_slope + j,
                  then.ld_slope);
  }
};

/// F is std::uint16_t, bits of bfloat16, or float, rounded to it.
template <class F>
void bf16_product(transpose ta, transpose tb, dim_t m, dim_t n, dim_t k, float alpha, const F* a,
                  dim_t lda, const F* b, dim_t ldb, float beta, float* c, dim_t ldc,
                  const gemm_epilogue<float>& then, const detail::word_kernels<float>& extension) {
  const word_operand<F, 2> of_a{a, lda, ta == transpose::no, k, m},
      of_b{b, ldb, tb == transpose::yes, k, n};
  const float_word_result result{c, ldc, alpha, beta, then};
#if IKEBANA_CPU_WIDTH == 64
  if (extension.tiles != nullptr)
    return multiply_words<float, 2>(m, n, k, of_a, of_b, *extension.tiles, result);
#endif
  multiply_words<float, 2>(m, n, k, of_a, of_b, *extension.words, result);
}
