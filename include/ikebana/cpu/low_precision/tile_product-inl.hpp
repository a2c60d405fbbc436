// Products of matrices of words by tiles (see detail/tile_kernel.hpp): the loops over blocks.

#if IKEBANA_CPU_WIDTH == 64

/// Multiplies a of m rows by b of n columns, depth numbers each, and hands the tiles to `result`.
/// Which sums are taken at a time depends on `depth` alone.
template <class R, int Per, class A, class B, class Result>
void multiply_words(dim_t m, dim_t n, dim_t depth, const A& a, const B& b,
                    const detail::tile_kernel<R>& kernel, const Result& result) {
  using detail::tile_pair, detail::tile_side;
  constexpr dim_t per_step = tile_side * Per, tile_size = tile_side * tile_side;
  const detail::word_scratch scratch = detail::thread_word_scratch();
  alignas(64) R tile[static_cast<std::size_t>(tile_pair * tile_pair)];
  alignas(64) std::int32_t sums[static_cast<std::size_t>(detail::tile_columns)];
  alignas(64) std::byte before[64];
  kernel.save(before);

  const dim_t all = depth == 0 ? 1 : (depth + per_step - 1) / per_step;
  const dim_t blocks = (all * tile_side + detail::tile_depth - 1) / detail::tile_depth;
  const dim_t steps = (all + blocks - 1) / blocks;
  dim_t most = detail::tile_words / (steps * tile_side) / tile_pair * tile_pair;
  if (most > detail::tile_columns) most = detail::tile_columns;
  // A single strip meets every panel once: packed over and over in the same place, it never leaves
  // the first-level cache.
  const bool keeps = m > tile_pair || result.wants_sums();
  if (!keeps) most = tile_pair;
  const dim_t column_blocks = (n + most - 1) / most;

  dim_t configured = 0;
  for (dim_t turn = 0; turn < blocks * column_blocks; ++turn) {
    const dim_t block = keeps ? turn % blocks : turn / column_blocks;
    const dim_t jc = (keeps ? turn / blocks : turn % column_blocks) * most;
    const dim_t nc = n - jc < most ? n - jc : most;
    const dim_t p = block * steps * per_step;
    const dim_t here = all - block * steps < steps ? all - block * steps : steps,
                b_step = keeps ? here * tile_size : tile_size;
    for (dim_t i = 0; i < m; i += tile_pair) {
      const dim_t rows = m - i < tile_pair ? m - i : tile_pair;
      if (configured != rows) {
        kernel.configure(rows);
        configured = rows;
      }
      const detail::tile_strip strip =
          a.strip(scratch.a, rows, p, here * tile_side, i, !keeps && jc != 0);
      for (dim_t j = 0; j < nc; j += tile_pair) {
        const dim_t columns = nc - j < tile_pair ? nc - j : tile_pair;
        std::int32_t* const panel = scratch.b + j / tile_side * b_step;
        R* whole = columns == tile_pair || columns == tile_side
                       ? result.place(i, jc + j, block == 0)
                       : nullptr;
        const bool adds =
            whole != nullptr && (block != 0 || result.begin(whole, jc + j, rows, columns));
        kernel.begin(rows, columns, adds ? whole : nullptr, result.ldc);
        if (i != 0) {
          kernel.add(rows, columns, strip, 0, here, panel, b_step);
        } else {
          // Tile by tile, so that a processor that runs ahead packs during products.
          for (dim_t step = 0; step < here; ++step) {
            std::int32_t* const at = panel + (keeps ? step * tile_size : 0);
            b.pack_tiles(at, columns > tile_side ? 2 : 1, b_step, p + step * per_step, jc + j);
            kernel.add(rows, columns, strip, step, step + 1, at, b_step);
          }
          if (result.wants_sums())
            for (dim_t v = 0; v < columns; v += tile_side)
              sum_words<Per, 1>(here * tile_side, panel + v / tile_side * b_step, sums + j + v);
        }
        if (whole != nullptr) {
          kernel.store(rows, columns, whole, result.ldc);
        } else {
          kernel.store(rows, columns, tile, tile_pair);
          result.take(tile, sums + j, i, jc + j, rows, columns, block == 0);
        }
        if (block == blocks - 1) result.finish(i, jc + j, rows, columns);
      }
    }
  }
  kernel.restore(before);
}

#endif
