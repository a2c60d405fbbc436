// The innermost loop of products of words by tiles (see detail/tile_kernel.hpp).

#if IKEBANA_CPU_EXTENSION == IKEBANA_CPU_AMX

// Tiles 0 to 3 hold sums (row by row), 4 and 5 A, 6 and 7 B.

template <class R>
void begin_tiles(dim_t rows, dim_t columns, const R* out, dim_t out_step) {
  // g++'s intrinsics of tiles do not say what memory they read.
  asm volatile("" ::: "memory");
  const bool right = columns > 16, lower = rows > 16;
  if (out == nullptr) {
    _tile_zero(0);
    if (right) _tile_zero(1);
    if (lower) _tile_zero(2);
    if (lower && right) _tile_zero(3);
    return;
  }
  const auto step = static_cast<std::size_t>(out_step) * 4;
  const R* const below = out + 16 * out_step;
  _tile_loadd(0, out, step);
  if (right) _tile_loadd(1, out + 16, step);
  if (lower) _tile_loadd(2, below, step);
  if (lower && right) _tile_loadd(3, below + 16, step);
}

template <class R>
void store_tiles(dim_t rows, dim_t columns, R* out, dim_t out_step) {
  const bool right = columns > 16, lower = rows > 16;
  const auto step = static_cast<std::size_t>(out_step) * 4;
  R* const below = out + 16 * out_step;
  _tile_stored(0, out, step);
  if (right) _tile_stored(1, out + 16, step);
  if (lower) _tile_stored(2, below, step);
  if (lower && right) _tile_stored(3, below + 16, step);
  asm volatile("" ::: "memory");
}

/// Rows, Columns: how many tiles of sums.
template <class R, int Rows, int Columns>
void multiply_tiles(const detail::tile_strip& a, dim_t from, dim_t to, const std::int32_t* b,
                    dim_t b_step) {
  asm volatile("" ::: "memory");
#define IKEBANA_CPU_MULTIPLY_TILES(c, a, b) \
  if constexpr (R(1) / 2 != 0)              \
    _tile_dpbf16ps(c, a, b);                \
  else                                      \
    _tile_dpbusd(c, a, b)
  const char* upper = static_cast<const char*>(a.data) + from * a.step_bytes;
  dim_t row = a.row_bytes;
  for (; from < to; ++from, upper += a.step_bytes, b += 256) {
    if (from == a.steps) {
      upper = reinterpret_cast<const char*>(a.rest);
      row = 64;
    }
    _tile_loadd(6, b, 64);
    _tile_loadd(4, upper, static_cast<std::size_t>(row));
    IKEBANA_CPU_MULTIPLY_TILES(0, 4, 6);
    if constexpr (Columns > 1) {
      _tile_loadd(7, b + b_step, 64);
      IKEBANA_CPU_MULTIPLY_TILES(1, 4, 7);
    }
    if constexpr (Rows > 1) {
      _tile_loadd(5, upper + 16 * row, static_cast<std::size_t>(row));
      IKEBANA_CPU_MULTIPLY_TILES(2, 5, 6);
    }
    if constexpr (Rows > 1 && Columns > 1) {
      IKEBANA_CPU_MULTIPLY_TILES(3, 5, 7);
    }
  }
#undef IKEBANA_CPU_MULTIPLY_TILES
}

template <class R>
void multiply_tile_panels(dim_t rows, dim_t columns, const detail::tile_strip& a, dim_t from,
                          dim_t to, const std::int32_t* b, dim_t b_step) {
  if (rows > 16)
    columns > 16 ? multiply_tiles<R, 2, 2>(a, from, to, b, b_step)
                 : multiply_tiles<R, 2, 1>(a, from, to, b, b_step);
  else
    columns > 16 ? multiply_tiles<R, 1, 2>(a, from, to, b, b_step)
                 : multiply_tiles<R, 1, 1>(a, from, to, b, b_step);
}

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

template <class R>
inline constexpr detail::tile_kernel<R> tiles{&begin_tiles<R>, &multiply_tile_panels<R>,
                                              &store_tiles<R>, &configure_tiles,
                                              &save_tiles,     &restore_tiles};

#endif
