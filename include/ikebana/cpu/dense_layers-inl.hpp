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

/// Of more than a register.
template <class T>
[[gnu::noinline]] void wide_packed_layer(const dense_layer<T>& l, const T* x) {
  constexpr dim_t w = vec<T>::size;
  const dim_t row = l.packed_row();
  for (dim_t j = 0; j < l.out; j += 2 * w) {
    vec<T> sums[2];
    packed_columns<T, 1, 2>(l.in, x, dim_t{0}, dim_t{0}, l.packed + j, row, sums);
    sums[0].store(l.y + j);
    if (j + w < l.out) sums[1].store(l.y + j + w);
  }
  l.function(1, l.out, l.y, l.out);
}

/// Lane P of x in all lanes, in two steps, of which the first serves four of them.
template <int P, class R, std::size_t... L>
IKEBANA_CPU_INLINE R spread_four(R x, std::index_sequence<L...>) {
  return __builtin_shufflevector(x, x, (P / 4 * 4 + static_cast<int>(L) % 4)...);
}
template <int P, class R, std::size_t... L>
IKEBANA_CPU_INLINE R spread_one(R four, std::index_sequence<L...>) {
  return __builtin_shufflevector(four, four, (static_cast<int>(L) / 4 * 4 + P % 4)...);
}

/// The first n lanes of x, and zeros.
template <class T>
IKEBANA_CPU_INLINE vec<T> with_zeros(vec<T> x, dim_t n) {
  using B = typename number<T>::bits;
  static constexpr struct masks {
    alignas(64) B bits[static_cast<std::size_t>(2 * vec<T>::size)] = {};
    constexpr masks() {
      for (std::size_t i = 0; i < static_cast<std::size_t>(vec<T>::size); ++i) bits[i] = -1;
    }
  } all;
  return as<T>(as<B>(x) & bits_of<T>::load(all.bits + (vec<T>::size - n)));
}

/// As packed_columns, of a register, of k elements that are in one: four at a time, which must be
/// zero beyond k, as their weights are.
template <class T, std::size_t... Fours>
IKEBANA_CPU_INLINE vec<T> held_columns(dim_t k, vec<T> x, const T* packed,
                                       std::index_sequence<Fours...>) {
  using lanes = std::make_index_sequence<static_cast<std::size_t>(vec<T>::size)>;
  constexpr dim_t row = 16;
  vec<T> s = vec<T>::load(packed), t = vec<T>::zero(), u = t, v = t;
  packed += row;
  const auto add = [&](auto four) __attribute__((always_inline)) {
    constexpr int p = decltype(four)::value * 4;
    if (p > 0 && k <= p) return false;
    const auto spread = spread_four<p>(x.v, lanes{});
    const vec<T> x0{spread_one<p>(spread, lanes{})}, x1{spread_one<p + 1>(spread, lanes{})},
        x2{spread_one<p + 2>(spread, lanes{})}, x3{spread_one<p + 3>(spread, lanes{})};
    const auto weights = [=](dim_t q) __attribute__((always_inline)) {
      return vec<T>::load(packed + (p + q) * row);
    };
    s = fma(x0, weights(0), s);
    t = fma(x1, weights(1), t);
    u = fma(x2, weights(2), u);
    v = fma(x3, weights(3), v);
    return true;
  };
  static_cast<void>((add(std::integral_constant<int, static_cast<int>(Fours)>{}) && ...));
  return (s + t) + (u + v);
}

/// Whether a layer gives the sum of one register: a sum of its own order.
template <class T>
IKEBANA_CPU_INLINE bool is_one_sum(const dense_layer<T>& l) {
  return l.out == 1 && l.in <= vec<T>::size;
}

template <class T>
IKEBANA_CPU_INLINE vec<T> one_sum(const T* packed, dim_t k, vec<T> x) {
  constexpr auto w = static_cast<std::size_t>(vec<T>::size);
  const vec<T> terms = with_zeros(x, k) * vec<T>::load(packed + 16);
  if (w == 16 && k <= 8)
    return vec<T>::broadcast(*packed + fold_halves<static_cast<int>(w / 2)>(
                                           lower_half(terms.v, std::make_index_sequence<w / 2>{}),
                                           [](auto a, auto b)
                                               __attribute__((always_inline)) { return a + b; }));
  return vec<T>::broadcast(*packed + sum(terms));
}

/// A layer of one register, of k elements that are in one.
template <class T>
IKEBANA_CPU_INLINE vec<T> held_layer(const dense_layer<T>& l, dim_t k, vec<T> x) {
  if (l.out == 1) return one_sum(static_cast<const T*>(l.packed), k, x);
  return held_columns(k, k % 4 == 0 ? x : with_zeros(x, k), static_cast<const T*>(l.packed),
                      std::make_index_sequence<static_cast<std::size_t>(vec<T>::size / 4)>{});
}

template <class T>
[[gnu::noinline]] void other_layers(const T* x, const dense_layer<T>* l, const dense_layer<T>* end);
template <class T>
[[gnu::noinline]] void finish_layer(const dense_layer<T>* l, const dense_layer<T>* end);

/// Layers one after another: what is of one register stays in it from each to the next.
template <class T>
[[gnu::noinline]] void run_layers(const T* x, const dense_layer<T>* l, const dense_layer<T>* end) {
  constexpr dim_t w = vec<T>::size;
  if (l->narrow > w) return other_layers(x, l, end);
  vec<T> y;
  if (is_one_sum(*l)) [[unlikely]]
    y = one_sum(static_cast<const T*>(l->packed), l->in, vec<T>::load(x, l->in));
  else
    packed_columns<T, 1, 1>(l->in, x, dim_t{0}, dim_t{0}, l->packed, dim_t{16}, &y);
  // What the loop keeps in registers, one layer alone need not load.
  if (l + 1 == end && l->function == activation::none) return y.store(l->y);
  for (;;) {
    if (l->function == activation::tanh)
      y = tanh(y);
    else if (l->function == activation::relu)
      y = max(vec<T>::zero(), y);
    y.store(l->y);
    if (l->function > activation::tanh) return finish_layer(l, end);
    const dim_t k = l->out;
    if (++l == end) return;
    if (l->narrow > w) return other_layers(static_cast<const T*>(l[-1].y), l, end);
    y = held_layer(*l, k, y);
  }
}

/// The same where the first needs more than one register.
template <class T>
void other_layers(const T* x, const dense_layer<T>* l, const dense_layer<T>* end) {
  if (l->packed != nullptr)
    wide_packed_layer(*l, x);
  else
    detail::run_plain_layer(*l, x);
  if (l + 1 != end) run_layers(static_cast<const T*>(l->y), l + 1, end);
}

/// The same where the first lacks its function alone.
template <class T>
void finish_layer(const dense_layer<T>* l, const dense_layer<T>* end) {
  l->function(1, l->out, l->y, l->out);
  if (l + 1 != end) run_layers(static_cast<const T*>(l->y), l + 1, end);
}

/// A packed layer of several rows: each has the bits that it has alone.
template <class T>
[[gnu::noinline]] void packed_rows(const dense_layer<T>& l, const T* x) {
  constexpr dim_t w = vec<T>::size;
  constexpr int most = IKEBANA_CPU_WIDTH == 64 ? 6 : 3;
  if (is_one_sum(l)) {
    for (dim_t i = 0; i < l.rows; ++i, x += l.in)
      one_sum(static_cast<const T*>(l.packed), l.in, vec<T>::load(x, l.in)).store(l.y + i, 1);
  } else {
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
  }
  l.function(l.rows, l.out, l.y, l.out);
}

template <class T>
[[gnu::noinline]] void run_batch(const T* x, const dense_layer<T>* l, const dense_layer<T>* end) {
  for (; l != end; x = l->y, ++l)
    if (l->packed != nullptr)
      packed_rows(*l, x);
    else
      detail::run_plain_layer(*l, x);
}

template <class T>
IKEBANA_CPU_INLINE void run_chain(const T* x, const dense_chain<T>& chain) {
  const dense_layer<T>* const end = chain.layers + chain.count;
  if (chain.layers->rows != 1) return run_batch<T>(x, chain.layers, end);
  run_layers<T>(x, chain.layers, end);
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
