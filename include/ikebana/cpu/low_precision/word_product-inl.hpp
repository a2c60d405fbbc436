// Products of matrices of words (see detail/word_kernel.hpp): the loops over blocks.

/// sums[j] = the sum of all numbers of column j of a panel, for its registers of columns.
template <int Per, int Registers>
[[gnu::noinline]] void sum_words(dim_t depth_words, const std::int32_t* panel, std::int32_t* sums) {
  constexpr int bits = 32 / Per;
  word_vec s[Registers] = {};
  for (; depth_words > 0; --depth_words)
    for (auto& sum : s) {
      const word_vec w = word_vec::load(panel);
      sum = sum + (w >> (32 - bits)) + ((w << 16) >> (32 - bits));
      if constexpr (Per == 4) sum = sum + ((w << 8) >> 24) + ((w << 24) >> 24);
      panel += word_vec::size;
    }
  for (const auto& sum : s) {
    sum.store(sums);
    sums += word_vec::size;
  }
}

/// Multiplies a of m rows by b of n columns, depth numbers each, and hands the tiles to `result`.
template <class R, int Per, class A, class B, class Result>
void multiply_words(dim_t m, dim_t n, dim_t depth, const A& a, const B& b,
                    const detail::word_kernel<R>& kernel, const Result& result) {
  constexpr dim_t width = 2 * word_vec::size;
  const detail::word_scratch scratch = detail::thread_word_scratch();
  alignas(64) R tile[static_cast<std::size_t>(detail::most_word_rows * width)];
  alignas(64) std::int32_t sums[static_cast<std::size_t>(detail::word_columns)];

  const dim_t all = depth == 0 ? 1 : (depth + Per - 1) / Per;
  const dim_t blocks = (all + detail::word_depth - 1) / detail::word_depth;
  const dim_t step = ((all + blocks - 1) / blocks + 15) / 16 * 16;
  for (dim_t jc = 0; jc < n; jc += detail::word_columns) {
    const dim_t nc = n - jc < detail::word_columns ? n - jc : detail::word_columns;
    for (dim_t block = 0; block < blocks; ++block) {
      const dim_t p = block * step * Per;
      const dim_t count = all - block * step < step ? all - block * step : step;
      for (dim_t j = 0; j < nc; j += width) {
        b.pack(scratch.b + j * count, width, p, count, jc + j);
        if (result.wants_sums()) sum_words<Per, 2>(count, scratch.b + j * count, sums + j);
      }
      for (dim_t i = 0; i < m;) {
        const dim_t rows = kernel.panel_rows(m - i);
        const dim_t used = m - i < rows ? m - i : rows;
        a.pack_rows(scratch.a, rows, p, count, i);
        for (dim_t j = 0; j < nc; j += width) {
          const dim_t columns = nc - j < width ? nc - j : width;
          const std::int32_t* const panel = scratch.b + j * count;
          R* const whole =
              used == rows && columns == width ? result.place(i, jc + j, block == 0) : nullptr;
          if (whole != nullptr) {
            kernel.multiply(rows, columns, count, scratch.a, panel, whole, result.ldc,
                            block != 0 || result.begin(whole, jc + j, rows, columns));
          } else {
            kernel.multiply(rows, columns, count, scratch.a, panel, tile, width, false);
            result.take(tile, sums + j, i, jc + j, used, columns, block == 0);
          }
          if (block == blocks - 1) result.finish(i, jc + j, used, columns);
        }
        i += used;
      }
    }
  }
}
