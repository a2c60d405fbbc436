// The parts of fused attention: products by tiles, blocks that are transposed on their way,
// and the words that dropout takes. Scores stand with a key in each row and a query in each lane,
// so that what belongs to a query (its maximum, its sum) needs nothing across lanes.

/// How many queries a block has, and how many keys.
template <class T>
inline constexpr dim_t attention_lanes = 2 * vec<T>::size;
inline constexpr dim_t attention_keys = 64;
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

// ---- dropout ----

#if IKEBANA_CPU_WIDTH == 0
IKEBANA_CPU_INLINE void multiply_lanes(vec<std::uint32_t> a, std::uint32_t b,
                                       vec<std::uint32_t>& high, vec<std::uint32_t>& low) {
  const std::uint64_t p = std::uint64_t{a.v} * b;
  high.v = static_cast<std::uint32_t>(p >> 32);
  low.v = static_cast<std::uint32_t>(p);
}
#else
IKEBANA_CPU_INLINE void multiply_lanes(vec<std::uint32_t> a, std::uint32_t b,
                                       vec<std::uint32_t>& high, vec<std::uint32_t>& low) {
  multiply_wide(a, b, high, low);
}
#endif

/// words[8 g + i]: word i of block block[g] of the stream, for each lane. Several registers side by
/// side, for one alone would wait for its own products.
template <std::size_t... G>
IKEBANA_CPU_INLINE void lanes_words(const random_stream& stream, const vec<std::uint32_t>* block,
                                    vec<std::uint32_t>* words, std::index_sequence<G...>) {
  using V = vec<std::uint32_t>;
  const auto start = stream.counter(0);
  V c0[] = {block[G]...}, c1[] = {(static_cast<void>(G), V::broadcast(start[1]))...},
    c2[] = {(static_cast<void>(G), V::broadcast(start[2]))...},
    c3[] = {(static_cast<void>(G), V::broadcast(start[3]))...};
  std::uint32_t k0 = stream.key[0], k1 = stream.key[1];
  for (int r = 0; r < philox4x32::rounds; ++r) {
    V high0[sizeof...(G)], low0[sizeof...(G)], high1[sizeof...(G)], low1[sizeof...(G)];
    (multiply_lanes(c0[G], philox4x32::multiplier0, high0[G], low0[G]), ...);
    (multiply_lanes(c2[G], philox4x32::multiplier1, high1[G], low1[G]), ...);
    ((c0[G] = high1[G] ^ c1[G] ^ V::broadcast(k0)), ...);
    ((c2[G] = high0[G] ^ c3[G] ^ V::broadcast(k1)), ...);
    ((c1[G] = low1[G], c3[G] = low0[G]), ...);
    k0 += philox4x32::weyl0;
    k1 += philox4x32::weyl1;
  }
  ((words[8 * G] = c0[G], words[8 * G + 1] = c1[G], words[8 * G + 2] = c2[G],
    words[8 * G + 3] = c3[G]),
   ...);
}

/// words[j * Lanes + i] = word first + i * step + j of the stream, for j < count.
template <dim_t Lanes>
[[gnu::noinline]] void words_across(const random_stream& stream, std::uint64_t first, dim_t step,
                                    dim_t count, std::uint32_t* words) {
  using V = vec<std::uint32_t>;
  constexpr auto groups = static_cast<std::size_t>(Lanes / V::size);
  constexpr auto each = std::make_index_sequence<groups>{};
  std::uint32_t blocks[Lanes], phases[Lanes];
  bool aligned = true;
  for (dim_t i = 0; i < Lanes; ++i) {
    const std::uint64_t element = first + static_cast<std::uint64_t>(i * step);
    blocks[i] = static_cast<std::uint32_t>(element / 4);
    phases[i] = static_cast<std::uint32_t>(element % 4);
    aligned = aligned && phases[i] == 0;
  }
  V block[groups], phase[groups], w[8 * groups] = {};
  for (std::size_t g = 0; g < groups; ++g) {
    block[g] = V::load(blocks + static_cast<dim_t>(g) * V::size);
    phase[g] = V::load(phases + static_cast<dim_t>(g) * V::size);
  }
  const auto draw = [&](V * to) __attribute__((always_inline)) {
    lanes_words(stream, block, to, each);
    for (V& b : block) b = b + 1u;
  };
  if (!aligned) draw(w + 4);
  for (dim_t j = 0; j < count; j += 4) {
    if (!aligned)
      for (std::size_t g = 0; g < groups; ++g)
        for (std::size_t u = 0; u < 4; ++u) w[8 * g + u] = w[8 * g + 4 + u];
    draw(aligned ? w : w + 4);
    for (std::size_t g = 0; g < groups; ++g)
      for (std::size_t u = 0; u < 4; ++u) {
        const V* const of = w + 8 * g + u;
        V word = of[0];
        if (!aligned)
          word = select(phase[g] == V::broadcast(3), of[3],
                        select(phase[g] == V::broadcast(2), of[2],
                               select(phase[g] == V::broadcast(1), of[1], word)));
        const dim_t key = j + static_cast<dim_t>(u);
        if (key < count) word.store(words + key * Lanes + static_cast<dim_t>(g) * V::size);
      }
  }
}
