// The matrix product. The driver walks blocks of k and n whose packed part of B stays in the
// second-level cache, packs a few rows of A at a time into the first, and multiplies tiles in
// registers. Where operands come from and where tiles go are template parameters, so that a
// convolution is a matrix product whose packer reads the image.

/// The tile held in registers: `rows` of A times two registers of B's columns.
template <class T>
struct gemm_tile {
#if IKEBANA_CPU_WIDTH == 64
  static constexpr int rows = 14;
#elif IKEBANA_CPU_WIDTH == 32
  static constexpr int rows = 6;
#else
  static constexpr int rows = 4;
#endif
  static constexpr dim_t columns = 2 * vec<T>::size;
  static constexpr dim_t depth = 256;
  static constexpr dim_t block_columns =
      static_cast<dim_t>(detail::packed_b_bytes / sizeof(T)) / depth;
};

/// out[i * out_step + j] (+)= sum over p of a[p * a_step + i] * b[p * b_step + j], for i < Rows, j
/// < Registers * size.
template <class T, int Rows, int Registers, std::size_t... J, std::size_t... I>
IKEBANA_CPU_INLINE void multiply_tile(dim_t depth, const T* a, dim_t a_step, const T* b,
                                      dim_t b_step, T* out, dim_t out_step, bool adds,
                                      std::index_sequence<J...>, std::index_sequence<I...>) {
  constexpr std::size_t n = Registers, width = static_cast<std::size_t>(vec<T>::size);
  // Indexed by constants only, so that no compiler keeps the sums in memory.
  vec<T> sums[sizeof...(I)] = {(static_cast<void>(I), vec<T>::zero())...};
  for (; depth > 0; --depth) {
    const vec<T> columns[n] = {vec<T>::load(b + J * width)...};
    ((sums[I] = fma(vec<T>::broadcast(a[I / n]), columns[I % n], sums[I])), ...);
    a += a_step;
    b += b_step;
  }
  T* const rows[] = {out + static_cast<dim_t>(I / n) * out_step + (I % n) * width...};
  if (adds) ((sums[I] = sums[I] + vec<T>::load(rows[I])), ...);
  (sums[I].store(rows[I]), ...);
}

// Not inlined, so that all products share one copy of the tiles.
template <class T, int Rows, int Registers>
[[gnu::noinline]] void multiply_tile(dim_t depth, const T* a, dim_t a_step, const T* b,
                                     dim_t b_step, T* out, dim_t out_step, bool adds) {
  multiply_tile<T, Rows, Registers>(depth, a, a_step, b, b_step, out, out_step, adds,
                                    std::make_index_sequence<Registers>{},
                                    std::make_index_sequence<std::size_t{Rows} * Registers>{});
}

/// The rows of the tile to use where `left` rows are left; those past `left` are padding. There are
/// few kinds of tile, for each costs compile time: one with fewer than 4 rows would take as long as
/// 4, waiting for its sums.
template <class T>
constexpr int tile_rows(dim_t left) {
  constexpr int most = gemm_tile<T>::rows;
  if (left <= 4) return 4;
  if constexpr (most > 8) {
    if (left <= 10) return 8;
  }
  return most;
}

/// The product of a panel of `rows` rows and one of `columns` columns.
template <class T>
IKEBANA_CPU_INLINE void multiply_panels(int rows, dim_t columns, dim_t depth, const T* a,
                                        dim_t a_step, const T* b, dim_t b_step, T* out,
                                        dim_t out_step, bool adds) {
  constexpr int most = gemm_tile<T>::rows;
  if constexpr (most > 8) {
    const bool narrow = columns <= vec<T>::size;
    if (rows == 8)
      return narrow ? multiply_tile<T, 8, 1>(depth, a, a_step, b, b_step, out, out_step, adds)
                    : multiply_tile<T, 8, 2>(depth, a, a_step, b, b_step, out, out_step, adds);
    if (rows == most && narrow)
      return multiply_tile<T, most, 1>(depth, a, a_step, b, b_step, out, out_step, adds);
  }
  if constexpr (most > 4) {
    if (rows == most)
      return multiply_tile<T, most, 2>(depth, a, a_step, b, b_step, out, out_step, adds);
  }
  multiply_tile<T, 4, 2>(depth, a, a_step, b, b_step, out, out_step, adds);
}

template <class T>
IKEBANA_CPU_INLINE dim_t lanes_left(dim_t left) {
  return left < 0 ? 0 : left < vec<T>::size ? left : vec<T>::size;
}

/// to[p * width + i] = from[p * ld + i] for p < depth, i < count; zero for count <= i < width. May
/// write up to a register past the end of `to`.
template <class T>
[[gnu::noinline]] void pack_along(T* to, dim_t width, const T* from, dim_t ld, dim_t depth,
                                  dim_t count) {
  constexpr dim_t w = vec<T>::size;
  // A full register spills into the next row, which is written later.
  for (dim_t p = 0; p < depth; ++p, to += width, from += ld)
    for (dim_t i = 0; i < width; i += w) {
      const dim_t n = lanes_left<T>(count - i);
      (n == w ? vec<T>::load(from + i) : vec<T>::load(from + (n > 0 ? i : 0), n)).store(to + i);
    }
}

template <class T, std::size_t... R>
IKEBANA_CPU_INLINE void pack_block(T* to, dim_t width, const T* from, dim_t ld, dim_t depth,
                                   dim_t count, std::index_sequence<R...>) {
  constexpr dim_t w = vec<T>::size;
  vec<T> rows[w];
  if (depth == w && count == w)
    ((rows[R] = vec<T>::load(from + static_cast<dim_t>(R) * ld)), ...);
  else
    ((rows[R] = static_cast<dim_t>(R) < count
                    ? vec<T>::load(from + static_cast<dim_t>(R) * ld, depth)
                    : vec<T>::zero()),
     ...);
  transpose_block(rows);
  ((static_cast<dim_t>(R) < depth ? rows[R].store(to + static_cast<dim_t>(R) * width)
                                  : static_cast<void>(0)),
   ...);
}

/// to[p * width + i] = from[i * ld + p], else as pack_along.
template <class T>
[[gnu::noinline]] void pack_across(T* to, dim_t width, const T* from, dim_t ld, dim_t depth,
                                   dim_t count) {
  constexpr dim_t w = vec<T>::size;
  // The last group first: what it spills into the next row is written later.
  for (dim_t i = (width - 1) / w * w; i >= 0; i -= w)
    for (dim_t p = 0; p < depth; p += w)
      pack_block(to + p * width + i, width, from + (i < count ? i * ld + p : 0), ld,
                 lanes_left<T>(depth - p), lanes_left<T>(count - i),
                 std::make_index_sequence<static_cast<std::size_t>(w)>{});
}

/// The base of factors whose panels cannot be read where they stand.
template <class T>
struct always_packed {
  static constexpr dim_t ld = 0;
  bool direct(dim_t, dim_t, dim_t) const { return false; }
  const T* source(dim_t, dim_t) const { return nullptr; }
};

/// One factor of a product as stored: element (p, i), p along the summed dimension, at p * ld + i
/// or (across) i * ld + p.
template <class T>
struct matrix_operand {
  const T* data;
  dim_t ld;
  bool across;
  bool may_be_direct;

  /// The panel can be read where it stands, with `ld` between its rows.
  bool direct(dim_t /*i*/, dim_t width, dim_t count) const {
    return may_be_direct && !across && width == count;
  }
  const T* source(dim_t p, dim_t i) const { return data + p * ld + i; }
  void pack(T* to, dim_t width, dim_t p, dim_t depth, dim_t i, dim_t count) const {
    if (across)
      pack_across(to, width, data + i * ld + p, ld, depth, count);
    else
      pack_along(to, width, data + p * ld + i, ld, depth, count);
  }
};

/// Where a whole tile goes, if it may be stored there without further ado; else null.
template <class T>
struct placement {
  T* at;
  dim_t step;
  bool adds;
};

/// Where tiles of a product go: a matrix with leading dimension.
template <class T>
struct matrix_result {
  T* c;
  dim_t ldc;
  T alpha, beta;
  const T* bias;

  placement<T> place(dim_t i, dim_t j, bool first) const {
    if (alpha != T(1) || (first && (bias != nullptr || (beta != T(0) && beta != T(1))))) return {};
    return {c + i * ldc + j, ldc, !first || beta == T(1)};
  }

  /// Takes `rows` x `columns` of a tile at (i, j); `first` for the first block of the summed
  /// dimension.
  void take(const T* tile, dim_t i, dim_t j, dim_t rows, dim_t columns, bool first) const {
    constexpr dim_t w = vec<T>::size;
    const vec<T> a = vec<T>::broadcast(alpha), b = vec<T>::broadcast(first ? beta : T(1));
    const bool reads = !first || beta != T(0), adds = first && bias != nullptr;
    for (dim_t v = 0; v < columns; v += w) {
      const dim_t n = lanes_left<T>(columns - v);
      const vec<T> offset = adds ? vec<T>::load(bias + j + v, n) : vec<T>::zero();
      T* to = c + i * ldc + j + v;
      const T* from = tile + v;
      if (n == w)
        for (dim_t r = 0; r < rows; ++r, to += ldc, from += gemm_tile<T>::columns) {
          const vec<T> x = fma(a, vec<T>::load(from), offset);
          (reads ? fma(b, vec<T>::load(to), x) : x).store(to);
        }
      else
        for (dim_t r = 0; r < rows; ++r, to += ldc, from += gemm_tile<T>::columns) {
          const vec<T> x = fma(a, vec<T>::load(from), offset);
          (reads ? fma(b, vec<T>::load(to, n), x) : x).store(to, n);
        }
    }
  }
};

/// Multiplies op(a) of m x k by op(b) of k x n and hands the tiles to `result`.
template <class T, class A, class B, class Result>
void multiply(dim_t m, dim_t n, dim_t k, const A& a, const B& b, const Result& result) {
  using shape = gemm_tile<T>;
  constexpr dim_t width = shape::columns;
  T* const packed_b = reinterpret_cast<T*>(detail::thread_scratch());
  T* const packed_a = packed_b + detail::packed_b_bytes / sizeof(T);
  alignas(64) T tile[static_cast<std::size_t>(shape::rows * width)];

  const dim_t depth_blocks = k == 0 ? 1 : (k + shape::depth - 1) / shape::depth;
  // Whole registers along the summed dimension, for the packers that transpose.
  const dim_t depth_step = ((k + depth_blocks - 1) / depth_blocks + 15) / 16 * 16;
  for (dim_t jc = 0; jc < n; jc += shape::block_columns) {
    const dim_t nc = n - jc < shape::block_columns ? n - jc : shape::block_columns;
    for (dim_t block = 0; block < depth_blocks; ++block) {
      const dim_t p = block * depth_step;
      const dim_t depth = k - p < depth_step ? k - p : depth_step;
      for (dim_t j = 0; j < nc; j += width) {
        const dim_t columns = nc - j < width ? nc - j : width;
        if (!b.direct(jc + j, width, columns))
          b.pack(packed_b + j * depth, width, p, depth, jc + j, columns);
      }
      for (dim_t i = 0; i < m;) {
        const int rows = tile_rows<T>(m - i);
        const dim_t used = m - i < rows ? m - i : rows;
        const bool a_direct = a.direct(i, rows, used);
        if (!a_direct) a.pack(packed_a, rows, p, depth, i, used);
        const T* const a_panel = a_direct ? a.source(p, i) : packed_a;
        const dim_t a_step = a_direct ? a.ld : rows;
        for (dim_t j = 0; j < nc; j += width) {
          const dim_t columns = nc - j < width ? nc - j : width;
          const bool b_direct = b.direct(jc + j, width, columns);
          const T* const b_panel = b_direct ? b.source(p, jc + j) : packed_b + j * depth;
          const dim_t b_step = b_direct ? b.ld : width;
          // A whole tile goes straight to its place where nothing but a sum is asked.
          placement<T> whole{};
          if (used == rows && columns == width) whole = result.place(i, jc + j, block == 0);
          if (whole.at != nullptr) {
            multiply_panels<T>(rows, columns, depth, a_panel, a_step, b_panel, b_step, whole.at,
                               whole.step, whole.adds);
          } else {
            multiply_panels<T>(rows, columns, depth, a_panel, a_step, b_panel, b_step, tile, width,
                               false);
            result.take(tile, i, jc + j, used, columns, block == 0);
          }
        }
        i += used;
      }
    }
  }
}

/// out[r] = sum over p of x[p] * rows[r * ld + p]. Each sum is taken in the same order whatever
/// Rows is.
template <class T, std::size_t... R>
IKEBANA_CPU_INLINE void dot_rows(dim_t k, const T* x, const T* rows, dim_t ld, T* out,
                                 std::index_sequence<R...>) {
  constexpr dim_t w = vec<T>::size;
  constexpr std::size_t n = sizeof...(R);
  vec<T> even[n] = {(static_cast<void>(R), vec<T>::zero())...},
         odd[n] = {(static_cast<void>(R), vec<T>::zero())...};
  dim_t p = 0;
  for (; p + 2 * w <= k; p += 2 * w) {
    const vec<T> x0 = vec<T>::load(x + p), x1 = vec<T>::load(x + p + w);
    ((even[R] = fma(x0, vec<T>::load(rows + static_cast<dim_t>(R) * ld + p), even[R]),
      odd[R] = fma(x1, vec<T>::load(rows + static_cast<dim_t>(R) * ld + p + w), odd[R])),
     ...);
  }
  for (; p < k; p += w) {
    const dim_t left = lanes_left<T>(k - p);
    const vec<T> x0 = vec<T>::load(x + p, left);
    ((even[R] = fma(x0, vec<T>::load(rows + static_cast<dim_t>(R) * ld + p, left), even[R])), ...);
  }
  ((out[R] = sum(even[R] + odd[R])), ...);
}

/// y[j * step] = alpha * dot(x, row j of b) + beta * y[j * step] + bias[j * bias_step], for j < n.
template <class T>
void matrix_times_vector(dim_t n, dim_t k, T alpha, const T* x, const T* b, dim_t ldb, T beta, T* y,
                         dim_t step, const T* bias, dim_t bias_step) {
  T dots[4];
  for (dim_t j = 0; j < n;) {
    const dim_t count = n - j >= 4 ? 4 : 1;
    if (count == 4)
      dot_rows(k, x, b + j * ldb, ldb, dots, std::make_index_sequence<4>{});
    else
      dot_rows(k, x, b + j * ldb, ldb, dots, std::make_index_sequence<1>{});
    for (dim_t r = 0; r < count; ++r, ++j) {
      const T value = alpha * dots[r] + (bias != nullptr ? bias[j * bias_step] : T(0));
      y[j * step] = beta == T(0) ? value : value + beta * y[j * step];
    }
  }
}

/// y[j] += sum over R rows p of scale * x[p * x_step] * b[p * ldb + j].
template <class T, std::size_t... R>
IKEBANA_CPU_INLINE void add_rows(dim_t n, T scale, const T* x, dim_t x_step, const T* b, dim_t ldb,
                                 T* y, std::index_sequence<R...>) {
  constexpr dim_t w = vec<T>::size;
  const vec<T> factor[] = {vec<T>::broadcast(scale * x[static_cast<dim_t>(R) * x_step])...};
  dim_t j = 0;
  for (; j + w <= n; j += w) {
    vec<T> s = vec<T>::load(y + j);
    ((s = fma(factor[R], vec<T>::load(b + static_cast<dim_t>(R) * ldb + j), s)), ...);
    s.store(y + j);
  }
  if (j < n) {
    vec<T> s = vec<T>::load(y + j, n - j);
    ((s = fma(factor[R], vec<T>::load(b + static_cast<dim_t>(R) * ldb + j, n - j), s)), ...);
    s.store(y + j, n - j);
  }
}

/// y = alpha * x * b + beta * y + bias, x of 1 x k (its elements x_step apart), b of k x n: b is
/// read once, row after row.
template <class T>
void vector_times_matrix(dim_t n, dim_t k, T alpha, const T* x, dim_t x_step, const T* b, dim_t ldb,
                         T beta, T* y, const T* bias) {
  for (dim_t j = 0; j < n; ++j) {
    const T kept = beta == T(0) ? T(0) : beta * y[j];
    y[j] = bias != nullptr ? kept + bias[j] : kept;
  }
  dim_t p = 0;
  for (; p + 8 <= k; p += 8)
    add_rows(n, alpha, x + p * x_step, x_step, b + p * ldb, ldb, y, std::make_index_sequence<8>{});
  for (; p < k; ++p)
    add_rows(n, alpha, x + p * x_step, x_step, b + p * ldb, ldb, y, std::make_index_sequence<1>{});
}

template <class T>
void matrix_product(transpose ta, transpose tb, dim_t m, dim_t n, dim_t k, T alpha, const T* a,
                    dim_t lda, const T* b, dim_t ldb, T beta, T* c, dim_t ldc, const T* bias) {
  if (m == 0 || n == 0) return;
  const bool a_across = ta == transpose::no, b_across = tb == transpose::yes;
  if (m <= 3 && (a_across || lda == 1)) {
    if (b_across) {
      for (dim_t i = 0; i < m; ++i)
        matrix_times_vector(n, k, alpha, a + (a_across ? i * lda : i), b, ldb, beta, c + i * ldc,
                            dim_t{1}, bias, dim_t{1});
      return;
    }
    if (m == 1) return vector_times_matrix(n, k, alpha, a, dim_t{1}, b, ldb, beta, c, bias);
  }
  if (n == 1 && a_across && (b_across || ldb == 1)) {
    return matrix_times_vector(m, k, alpha, b, a, lda, beta, c, ldc, bias, dim_t{0});
  }
  if (n == 1 && !a_across && ldc == 1 && bias == nullptr)
    return vector_times_matrix(m, k, alpha, b, b_across ? dim_t{1} : ldb, a, lda, beta, c,
                               static_cast<const T*>(nullptr));
  constexpr dim_t few = 4 * gemm_tile<T>::rows;
  multiply<T>(m, n, k, matrix_operand<T>{a, lda, a_across, n <= 2 * gemm_tile<T>::columns},
              matrix_operand<T>{b, ldb, b_across, m <= few},
              matrix_result<T>{c, ldc, alpha, beta, bias});
}
