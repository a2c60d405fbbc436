// Dot products of many rows by register tiles: the terms that a dot product adds in one lane are a
// product of their own, and the lanes' products are added up as the lanes are.
// Needs: dots-inl.hpp, tiles-inl.hpp.

/// The lane whose product comes at a place of the pairwise sum of all lanes (see sum_fours).
template <class T>
constexpr dim_t lane_at(dim_t place) {
  return vec<T>::size == 16 ? (place & 3) | (place & 4) << 1 | (place & 8) >> 1 : place;
}

/// Rows of which every w-th element is a term of the same lane, lane after lane:
/// to[(l * step + q) * width + j] = from[j * ld + q * w + l].
template <class T>
IKEBANA_CPU_INLINE void pack_lanes(T* to, dim_t step, dim_t width, const T* from, dim_t ld,
                                   dim_t rows, dim_t k) {
  constexpr dim_t w = vec<T>::size;
  for (dim_t p = 0; p < k; p += w, to += width, from += w)
    turn(to, step * width, from, ld, k - p < w ? k - p : w, rows);
}

/// The bits of multiply_by_dots, where rows of both factors stand along the summed dimension and
/// the scratch memory holds a panel of op(b)' and a strip of op(a) (see applies).
template <class T>
[[gnu::noinline]] void multiply_lane_tiles(const gemm_problem&, gemm_algorithm,
                                           const gemm_call<T>& call) {
  constexpr dim_t w = vec<T>::size, panel = gemm_tile<T>::columns, e = sizeof(T);
  constexpr int most = gemm_tile<T>::most_rows[2];
  const dim_t k = call.k, step = (k + w - 1) / w;
  T* const packed_b = detail::thread_scratch<T>();
  const auto room = detail::scratch_bytes();
  T* const packed_a = packed_b + room.b / sizeof(T);
  const dim_t fit = static_cast<dim_t>(room.a) / e / (w * step),
              block = static_cast<dim_t>(room.b) / e / (panel * w * step) * panel;
  const dealt_rows strips(call.m, fit < most ? static_cast<int>(fit) : most);
  // Of 16 lanes, four sums wait for another at most; the fifth is the last product.
  alignas(64) T sums[5][static_cast<std::size_t>(most * panel)];
  tile_task<T> t;
  t.start = tile_start::zero;
  t.relu = false;
  t.init_row = 0;
  t.init = nullptr;
  t.next = {};
  t.a_row = step;
  t.a_step = 1;
  t.b_step = panel;
  t.c_row = panel;
  for (dim_t jc = 0; jc < call.n; jc += block) {
    const dim_t columns = call.n - jc < block ? call.n - jc : block;
    for (dim_t j = 0; j < columns; j += panel)
      pack_lanes(packed_b + j * w * step, step, panel, call.b + (jc + j) * call.ldb, call.ldb,
                 columns - j < panel ? columns - j : panel, k);
    dim_t i = 0, rows;
    for (std::uint32_t s = 0; s < strips.parts; ++s, i += rows) {
      rows = strips[s];
      for (dim_t r = 0; r < rows; ++r) {
        const T* const from = call.a + (i + r) * call.lda;
        T* const to = packed_a + r * step;
        turn(to, rows * step, from, w, w, k / w);
        for (dim_t p = k / w * w; p < k; ++p) to[p % w * rows * step + p / w] = from[p];
      }
      for (dim_t j = 0; j < columns; j += panel) {
        const dim_t count = columns - j < panel ? columns - j : panel;
        int level = 0;
        for (dim_t place = 0; place < w; ++place) {
          const dim_t lane = lane_at<T>(place);
          t.a = packed_a + lane * rows * step;
          t.b = packed_b + (j * w + lane * panel) * step;
          t.c = sums[level];
          t.depth = (k - lane + w - 1) / w;
          multiply_row(t, rows, count);
          for (dim_t pairs = place + 1; pairs % 2 == 0; pairs /= 2, --level)
            map_block(
                rows, count, sums[level - 1], panel, static_cast<const T*>(sums[level]), panel,
                [](vec<T> x, vec<T> y) __attribute__((always_inline)) { return x + y; });
          ++level;
        }
        for (dim_t r = 0; r < rows; ++r)
          finish_dots(call, i + r, jc + j, count, static_cast<const T*>(sums[0] + r * panel));
      }
    }
  }
  const matrix_result<T> result{call.c, call.ldc, call.beta, *call.then};
  if (result.finishes()) result.finish(0, 0, call.m, call.n);
}
