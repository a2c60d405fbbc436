// The parts of fused attention: products by tiles, copies of blocks, and the words that dropout
// takes. Scores stand with a key in each row and a query in each lane, so that what belongs to a
// query (its maximum, its sum) needs nothing across lanes.

/// How many queries a block has.
template <class T>
inline constexpr dim_t attention_lanes = 2 * vec<T>::size;
/// out[r * out_step + j] (+)= sum over p of a[p * a_step + r * a_row] * b[p * b_step + j] for r <
/// m, j < n. A sum is taken in the order of p whatever m and n are.
template <class T>
void small_product(dim_t m, dim_t n, dim_t depth, const T* a, dim_t a_step, dim_t a_row, const T* b,
                   dim_t b_step, T* out, dim_t out_step, bool adds) {
  if (m == 0 || n == 0) return;
  tile_task<T> t;
  t.a = a;
  t.a_row = a_row;
  t.a_step = a_step;
  t.b = b;
  t.b_step = b_step;
  t.init = t.c = out;
  t.init_row = t.c_row = out_step;
  t.depth = depth;
  t.start = adds ? tile_start::matrix : tile_start::zero;
  t.relu = false;
  multiply_strips(t, m, n);
}

template <class T>
void copy_block(dim_t m, dim_t n, const T* from, dim_t step, T* to, dim_t to_step) {
  constexpr dim_t w = vec<T>::size;
  for (dim_t r = 0; r < m; ++r, from += step, to += to_step) {
    dim_t i = 0;
    for (; i + w <= n; i += w) vec<T>::load(from + i).store(to + i);
    if (i < n) vec<T>::load(from + i, n - i).store(to + i, n - i);
  }
}
template <class T>
void clear_block(dim_t m, dim_t n, T* to, dim_t step) {
  constexpr dim_t w = vec<T>::size;
  for (dim_t r = 0; r < m; ++r, to += step)
    for (dim_t i = 0; i < n; i += w) vec<T>::zero().store(to + i, n - i < w ? n - i : w);
}

/// words[j * Lanes + i] = word first + i * step + j of the stream, for j < count.
template <dim_t Lanes>
[[gnu::noinline]] void words_across(const random_stream& stream, std::uint64_t first, dim_t step,
                                    dim_t count, std::uint32_t* words) {
  alignas(64) std::uint32_t row[random_words];
  for (dim_t i = 0; i < Lanes; ++i, first += static_cast<std::uint64_t>(step)) {
    std::uint32_t* to = words + i;
    // Blocks of the stream begin at multiples of four words.
    auto skip = static_cast<dim_t>(first % 4);
    auto block = static_cast<std::uint32_t>(first / 4);
    for (dim_t j = 0, n; j < count; j += n, skip = 0, block += random_words / 4) {
      random_block(stream, block, row);
      n = count - j < random_words - skip ? count - j : random_words - skip;
#pragma GCC unroll 4
      for (dim_t q = skip; q < skip + n; ++q, to += Lanes) *to = row[q];
    }
  }
}
