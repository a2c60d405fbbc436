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
    gemm_epilogue<float> added = then;
    added.bias = nullptr;
    const matrix_result<float> rest{c, ldc, 1.0f, added};
    if (then.row_bias != nullptr || then.residual != nullptr) rest.add_up(i, j, rows, columns);
    rest.finish(i, j, rows, columns);
  }
};

template <class F>
void bf16_product(const detail::bf16_call<F>& call, const detail::word_kernels<float>& extension) {
  const dim_t m = call.m, n = call.n, k = call.k;
  const word_operand<F, 2> of_a{call.a, call.lda, call.ta == transpose::no, k, m},
      of_b{call.b, call.ldb, call.tb == transpose::yes, k, n};
  const float_word_result result{call.c, call.ldc, call.alpha, call.beta, call.then};
#if IKEBANA_CPU_WIDTH == 64
  if (extension.tiles != nullptr)
    return multiply_words<float, 2>(m, n, k, of_a, of_b, *extension.tiles, result);
#endif
  multiply_words<float, 2>(m, n, k, of_a, of_b, *extension.words, result);
}
