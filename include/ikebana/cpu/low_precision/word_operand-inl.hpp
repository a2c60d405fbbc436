// The factors of products of words (see detail/word_kernel.hpp), and how they are packed.

/// Matrices of E as words of Per numbers; bytes two to a word are widened, floats rounded.
template <class E, int Per>
struct word_operand {
  const E* data;
  dim_t ld;
  bool across;         // number (p, i), p along the summed dimension, is at i * ld + p
  dim_t depth, count;  // numbers along the summed dimension, and the other
  std::int32_t flip;   // every word is changed by these bits
  const E* end;

  word_operand(const E* at, dim_t step, bool is_across, dim_t p, dim_t i, std::int32_t bits = 0)
      : data{at},
        ld{step},
        across{is_across},
        depth{p},
        count{i},
        flip{bits},
        end{p == 0 || i == 0 ? at : at + (is_across ? (i - 1) * step + p : (p - 1) * step + i)} {}

#if IKEBANA_CPU_WIDTH == 64
  IKEBANA_CPU_INLINE static word_vec whole_along(const E* at, dim_t step) {
    if constexpr (Per == 4) {
      byte_row rows[4];
      __builtin_memcpy(&rows[0], at, 16);
      __builtin_memcpy(&rows[1], at + step, 16);
      __builtin_memcpy(&rows[2], at + 2 * step, 16);
      __builtin_memcpy(&rows[3], at + 3 * step, 16);
      return interleaved(rows[0], rows[1], rows[2], rows[3]);
    } else if constexpr (sizeof(E) == 4) {
      word_vec::raw rows[2];
      __builtin_memcpy(&rows[0], at, 64);
      __builtin_memcpy(&rows[1], at + step, 64);
      return alternating(rounded(rows[0], rows[1]), std::make_index_sequence<32>{});
    } else {
      half_row rows[2];
      __builtin_memcpy(&rows[0], at, 32);
      __builtin_memcpy(&rows[1], at + step, 32);
      return interleaved(rows[0], rows[1]);
    }
  }
#endif
  /// Numbers (p, i), (p, i + 1), ...
  template <class V>
  IKEBANA_CPU_INLINE V row(dim_t p, dim_t i) const {
    if (p >= depth) return V{};
    return load_bytes<V>(data + p * ld + i, (count - i) * static_cast<dim_t>(sizeof(E)), end);
  }
  /// Word p of columns i, i + 1, ...
  IKEBANA_CPU_INLINE word_vec along(dim_t p, dim_t i) const {
    word_vec w;
#if IKEBANA_CPU_WIDTH == 64
    if constexpr (Per * sizeof(E) >= 4)
      if (p + Per <= depth && i + word_vec::size <= count) {
        w = whole_along(data + p * ld + i, ld);
        return w ^ word_vec::broadcast(flip);
      }
    if constexpr (Per == 4)
      w = interleaved(row<byte_row>(p, i), row<byte_row>(p + 1, i), row<byte_row>(p + 2, i),
                      row<byte_row>(p + 3, i));
    else if constexpr (sizeof(E) == 2)
      w = interleaved(row<half_row>(p, i), row<half_row>(p + 1, i));
    else if constexpr (sizeof(E) == 4)
      w = alternating(rounded(row<word_vec::raw>(p, i), row<word_vec::raw>(p + 1, i)),
                      std::make_index_sequence<32>{});
    else
#endif
    {
      using bytes = typename narrow_register<E, sizeof(word_vec) / 4>::type;
      w = (widened(row<bytes>(p, i)) & word_vec::broadcast(0xFFFF)) |
          (widened(row<bytes>(p + 1, i)) << 16);
    }
    return w ^ word_vec::broadcast(flip);
  }
  /// Words p, p + Per, ... of column i.
  IKEBANA_CPU_INLINE word_vec along_depth(dim_t p, dim_t i) const {
    if (i >= count || p >= depth) return word_vec::zero();
    const E* const at = data + i * ld + p;
    const dim_t bytes = (depth - p) * static_cast<dim_t>(sizeof(E));
    word_vec w;
    if constexpr (Per * sizeof(E) == 4) {
      w = {load_bytes<word_vec::raw>(at, bytes, end)};
    } else if constexpr (sizeof(E) == 4) {
#if IKEBANA_CPU_WIDTH == 64
      w = {__builtin_bit_cast(
          word_vec::raw, rounded(load_bytes<word_vec::raw>(at, bytes, end),
                                 bytes > 64 ? load_bytes<word_vec::raw>(at + 16, bytes - 64, end)
                                            : word_vec::raw{}))};
#endif
    } else {
#if IKEBANA_CPU_WIDTH == 0
      const E second = bytes > 1 ? at[1] : E{};
      w = {(static_cast<std::int32_t>(at[0]) & 0xFFFF) | (static_cast<std::int32_t>(second) << 16)};
#else
      using narrow = typename narrow_register<E, sizeof(word_vec) / 2>::type;
      using wide = typename narrow_register<std::int16_t, sizeof(word_vec)>::type;
      w = {__builtin_bit_cast(word_vec::raw,
                              __builtin_convertvector(load_bytes<narrow>(at, bytes, end), wide))};
#endif
    }
    return w ^ word_vec::broadcast(flip);
  }

#if IKEBANA_CPU_WIDTH == 64
  /// The same where a register of words is left.
  IKEBANA_CPU_INLINE static word_vec whole_along_depth(const E* at) {
    word_vec::raw x[sizeof(E)];
    __builtin_memcpy(x, at, sizeof(E) * Per * 16);
    if constexpr (Per * sizeof(E) == 4)
      return {x[0]};
    else
      return {__builtin_bit_cast(word_vec::raw, rounded(x[0], x[1]))};
  }
#endif

  template <std::size_t... R>
  IKEBANA_CPU_INLINE void pack_block(std::int32_t* to, dim_t width, dim_t p, dim_t left, dim_t i,
                                     std::index_sequence<R...>) const {
#if IKEBANA_CPU_WIDTH == 64
    constexpr auto all = static_cast<dim_t>(sizeof...(R));
    if constexpr (Per * sizeof(E) >= 4)
      if (left >= all && p + all * Per <= depth && i + all <= count) {
        const E* const at = data + i * ld + p;
        const word_vec bits = word_vec::broadcast(flip);
        word_vec rows[] = {whole_along_depth(at + static_cast<dim_t>(R) * ld) ^ bits...};
        transpose_block(rows);
        (rows[R].store(to + static_cast<dim_t>(R) * width), ...);
        return;
      }
#endif
    word_vec rows[] = {along_depth(p, i + static_cast<dim_t>(R))...};
    transpose_block(rows);
    ((static_cast<dim_t>(R) < left ? rows[R].store(to + static_cast<dim_t>(R) * width)
                                   : static_cast<void>(0)),
     ...);
  }
  /// to[q * width + j] = word p + Per q of column i + j, for q < depth_words, j < width. May write
  /// up to a register past the end.
  [[gnu::noinline]] void pack(std::int32_t* to, dim_t width, dim_t p, dim_t depth_words,
                              dim_t i) const {
    constexpr dim_t w = word_vec::size;
    if (!across) {
      // What a register spills into the next row is written later.
      for (dim_t q = 0; q < depth_words; ++q)
        for (dim_t j = 0; j < width; j += w) {
          // Rows far apart are nothing that the processor foresees.
          if constexpr (sizeof(E) == 4)
            for (dim_t r = 0; r < Per; ++r)
              __builtin_prefetch(data + (p + (q + 16) * Per + r) * ld + i + j);
          along(p + q * Per, i + j).store(to + q * width + j);
        }
      return;
    }
    for (dim_t j = (width - 1) / w * w; j >= 0; j -= w)
      for (dim_t q = 0; q < depth_words; q += w)
        pack_block(to + q * width + j, width, p + q * Per, depth_words - q, i + j,
                   std::make_index_sequence<static_cast<std::size_t>(w)>{});
  }

#if IKEBANA_CPU_WIDTH == 64
  /// One or two tiles of B, `to_step` words apart: 16 words of 16 columns each.
  [[gnu::noinline]] void pack_tiles(std::int32_t* to, dim_t tiles, dim_t to_step, dim_t p,
                                    dim_t i) const {
    constexpr dim_t w = word_vec::size;
    if (!across && tiles == 2 && p + w * Per <= depth && i + 2 * w <= count) {
      const dim_t step = ld;
      const word_vec bits = word_vec::broadcast(flip);
      const E* from = data + p * step + i;
      // Rows far apart are nothing that the processor foresees.
      const bool far = step * dim_t{sizeof(E)} >= 1024;
      for (dim_t q = 0; q < w; ++q, from += Per * step) {
        if (far)
          for (dim_t r = 0; r < Per; ++r)
            for (dim_t line = 0; line < 2 * w * dim_t{sizeof(E)}; line += 64)
              __builtin_prefetch(from + (w * Per + r) * step + line / dim_t{sizeof(E)});
        (whole_along(from, step) ^ bits).store(to + q * w);
        (whole_along(from + w, step) ^ bits).store(to + to_step + q * w);
      }
      return;
    }
    for (; tiles > 0; --tiles, to += to_step, i += w) pack(to, w, p, w, i);
  }
#endif

  template <std::size_t... R>
  IKEBANA_CPU_INLINE void pack_square(std::int32_t* to, dim_t rows, dim_t p, dim_t i,
                                      std::index_sequence<R...>) const {
    word_vec square[] = {along(p + static_cast<dim_t>(R) * Per, i)...};
    transpose_block(square);
    ((static_cast<dim_t>(R) < rows ? square[R].store(to + R * sizeof...(R)) : static_cast<void>(0)),
     ...);
  }
  /// For as many words as a register has: those of column i, of i + 1, ... to i + rows; then for
  /// the next as many, and so on.
  [[gnu::noinline]] void pack_rows(std::int32_t* to, dim_t rows, dim_t p, dim_t depth_words,
                                   dim_t i) const {
    constexpr dim_t w = word_vec::size;
    if (across) {
      for (dim_t r = 0; r < rows; ++r)
        for (dim_t q = 0; q < depth_words; q += w)
          along_depth(p + q * Per, i + r).store(to + q * rows + r * w);
      return;
    }
    for (dim_t q = 0; q < depth_words; q += w) {
      for (dim_t r = 0; r < rows; r += w)
        pack_square(to + r * w, rows - r, p + q * Per, i + r,
                    std::make_index_sequence<static_cast<std::size_t>(w)>{});
      to += rows * w;
    }
  }

#if IKEBANA_CPU_WIDTH == 64
  /// Rows i to i + rows for tiles, depth_words (whole tiles) each: where they are, but for the last
  /// words of each, if it can be, else packed to `to`, unless they already are there.
  detail::tile_strip strip(std::int32_t* to, dim_t rows, dim_t p, dim_t depth_words, dim_t i,
                           bool packed) const {
    constexpr dim_t w = word_vec::size;
    // Rows of tiles that lie across two lines take two reads, every time.
    const bool aligned =
        (reinterpret_cast<std::uintptr_t>(data) | static_cast<std::uintptr_t>(ld) * sizeof(E)) %
            32 ==
        0;
    if (Per * sizeof(E) == 4 && across && flip == 0 && aligned && depth > 0) {
      const dim_t left = (depth - p) / (w * Per), steps = depth_words / w;
      if (left >= steps) return {data + i * ld + p, ld * dim_t{sizeof(E)}, 64, steps, nullptr};
      if (!packed) pack_rows(to, rows, p + left * w * Per, w, i);
      return {data + i * ld + p, ld * dim_t{sizeof(E)}, 64, left, to};
    }
    if (!packed) pack_rows(to, rows, p, depth_words, i);
    return {to, 64, rows * 64, depth_words / w, nullptr};
  }
#endif
};
