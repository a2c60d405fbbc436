// Layers one after another.

#if IKEBANA_CPU_WIDTH >= 32
/// Registers of a packed layer for rows of x from x on, ldx apart; those past `last` are that once
/// more. Term p is added to sum p % 4, for one sum would wait for itself, whatever the rows and
/// registers beside it.
template <class T, int Rows, int Registers>
IKEBANA_CPU_INLINE void packed_columns(dim_t k, const T* x, dim_t ldx, dim_t last, const T* packed,
                                       dim_t row, vec<T>* to) {
  constexpr dim_t w = vec<T>::size;
  constexpr int n = Rows * Registers;
  const T* xs[Rows];
  vec<T> s[n], t[n], u[n], v[n];
#pragma GCC unroll 8
  for (int r = 0; r < Rows; ++r) xs[r] = x + (r < last ? r : last) * ldx;
#pragma GCC unroll 8
  for (int i = 0; i < n; ++i) {
    s[i] = vec<T>::load(packed + i % Registers * w);
    t[i] = u[i] = v[i] = vec<T>::zero();
  }
  const auto add = [&](dim_t p, vec<T> * sums) __attribute__((always_inline)) {
    vec<T> weights[Registers];
    packed += row;
#pragma GCC unroll 8
    for (int j = 0; j < Registers; ++j) weights[j] = vec<T>::load(packed + j * w);
#pragma GCC unroll 8
    for (int i = 0; i < n; ++i)
      sums[i] = fma(vec<T>::broadcast(xs[i / Registers][p]), weights[i % Registers], sums[i]);
  };
  dim_t p = 0;
  for (; p + 4 <= k; p += 4) {
    add(p, s);
    add(p + 1, t);
    add(p + 2, u);
    add(p + 3, v);
  }
  if (p < k) add(p, s);
  if (p + 1 < k) add(p + 1, t);
  if (p + 2 < k) add(p + 2, u);
#pragma GCC unroll 8
  for (int i = 0; i < n; ++i) to[i] = (s[i] + t[i]) + (u[i] + v[i]);
}

/// A packed layer of one row. The usual functions are applied in registers, for a call takes as
/// long as a small layer.
template <class T>
[[gnu::noinline]] void one_packed_row(const dense_layer<T>& l, const T* x) {
  constexpr dim_t w = vec<T>::size;
  const activation f = l.function;
  const auto store = [=](vec<T> y, T * to) __attribute__((always_inline)) {
    (f == activation::relu   ? max(vec<T>::zero(), y)
     : f == activation::tanh ? tanh(y)
                             : y)
        .store(to);
  };
  vec<T> sums[2];
  for (dim_t j = 0; j < l.out; j += 2 * w)
    if (j + w < l.out) {
      packed_columns<T, 1, 2>(l.in, x, dim_t{0}, dim_t{0}, l.packed + j, l.packed_row(), sums);
      store(sums[0], l.y + j);
      store(sums[1], l.y + j + w);
    } else {
      packed_columns<T, 1, 1>(l.in, x, dim_t{0}, dim_t{0}, l.packed + j, l.packed_row(), sums);
      store(sums[0], l.y + j);
    }
  if (f > activation::tanh) l.function(1, l.out, l.y, l.out);
}

/// Of several rows: each has the bits that it has alone.
template <class T>
[[gnu::noinline]] void packed_rows(const dense_layer<T>& l, const T* x) {
  constexpr dim_t w = vec<T>::size;
  constexpr int most = IKEBANA_CPU_WIDTH == 64 ? 6 : 3;
  const dim_t row = l.packed_row();
  vec<T> sums[most];
  for (dim_t i = 0; i < l.rows; i += most)
    for (dim_t j = 0; j < l.out; j += w) {
      const dim_t last = (l.rows - i < most ? l.rows - i : most) - 1;
      packed_columns<T, most, 1>(l.in, x + i * l.in, l.in, last, l.packed + j, row, sums);
#pragma GCC unroll 8
      for (int r = 0; r < most; ++r)
        if (r <= last) sums[r].store(l.y + (i + r) * l.out + j, lanes_left<T>(l.out - j));
    }
  l.function(l.rows, l.out, l.y, l.out);
}

template <class T>
[[gnu::noinline]] void run_chain(const T* x, const dense_chain<T>& chain) {
  const dense_layer<T>* l = chain.layers;
  for (dim_t count = chain.count; count > 0; --count, x = l->y, ++l)
    if (l->packed == nullptr)
      detail::run_plain_layer(*l, x);
    else if (l->rows == 1)
      one_packed_row(*l, x);
    else
      packed_rows(*l, x);
}

/// Whether n elements are the same bits; n is a multiple of a register.
template <class T>
[[gnu::noinline]] bool are_same(const T* a, const T* b, dim_t n) {
  using B = typename number<T>::bits;
  bits_of<T> differs = bits_of<T>::zero();
  for (; n > 0; n -= vec<T>::size, a += vec<T>::size, b += vec<T>::size)
    differs = differs | (as<B>(vec<T>::load(a)) ^ as<B>(vec<T>::load(b)));
#if IKEBANA_CPU_WIDTH == 64
  const __m512i x = __builtin_bit_cast(__m512i, differs.v);
  return _mm512_test_epi32_mask(x, x) == 0;
#else
  const __m256i x = __builtin_bit_cast(__m256i, differs.v);
  return _mm256_testz_si256(x, x) != 0;
#endif
}

/// Of weights that may be others than the last time.
template <class T>
[[gnu::noinline]] void compared_layers(const T* x, dense_chain<T>& chain, std::uint64_t stamp) {
  if (!are_same(chain.weights, static_cast<const T*>(chain.seen), chain.size)) [[unlikely]]
    detail::pack_dense_layers(chain);
  for (dim_t i = 0; i < chain.count; ++i) {
    dense_layer<T>& l = chain.layers[i];
    if (l.turned_stamp == stamp) continue;
    // Long sums of the weights as they stand are in lanes (sums_in_lanes), those of their transpose
    // in order: the bits must not depend on whether a transpose may be kept.
    const bool in_order = l.in < detail::gemm_costs::least_lane_terms * vec<T>::size;
    l.turned_stamp = l.turned != nullptr && in_order ? stamp : 0;
    if (l.is_turned()) pack_across(l.turned, l.turned_row(), l.weight, l.in, l.in, l.out);
  }
  chain.stamp = stamp;
  run_chain(x, chain);
}
#endif

template <class T>
void dense_layers(const T* x, dense_chain<T>& chain, [[maybe_unused]] std::uint64_t stamp) {
#if IKEBANA_CPU_WIDTH >= 32
  if (chain.count == 0) return;
  if (stamp == 0 || chain.stamp != stamp) return compared_layers(x, chain, stamp);
  run_chain(x, chain);
#else
  const dense_layer<T>* l = chain.layers;
  for (dim_t count = chain.count; count > 0; --count, x = l->y, ++l) detail::run_plain_layer(*l, x);
#endif
}
