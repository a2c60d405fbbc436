// Layers one after another.

#if IKEBANA_CPU_WIDTH >= 32
/// As many registers of a packed layer as there are R; of two sums each, for one would wait for
/// itself.
template <class T, std::size_t... R>
IKEBANA_CPU_INLINE void packed_columns(dim_t k, const T* x, const T* packed, dim_t row, vec<T>* to,
                                       std::index_sequence<R...>) {
  constexpr std::size_t w = static_cast<std::size_t>(vec<T>::size);
  vec<T> s[] = {vec<T>::load(packed + R * w)...}, t[] = {(static_cast<void>(R), vec<T>::zero())...};
  const auto add = [&](dim_t p, vec<T> * sums) __attribute__((always_inline)) {
    const vec<T> a = vec<T>::broadcast(x[p]);
    ((sums[R] = fma(a, vec<T>::load(packed + p * row + R * w), sums[R])), ...);
  };
  const T* const end = x + k;
  for (packed += row; k % 4 != 0; --k, ++x, packed += row) add(0, s);
  if (x == end) {
    ((to[R] = s[R]), ...);
    return;
  }
  if constexpr (sizeof...(R) > 1) {
    for (; x != end; x += 4, packed += 4 * row) {
      add(0, t);
      add(1, s);
      add(2, t);
      add(3, s);
    }
  } else {
    vec<T> u[] = {vec<T>::zero()}, v[] = {vec<T>::zero()};
    for (; x != end; x += 4, packed += 4 * row) {
      add(0, t);
      add(1, s);
      add(2, u);
      add(3, v);
    }
    s[0] = s[0] + u[0];
    t[0] = t[0] + v[0];
  }
  ((to[R] = s[R] + t[R]), ...);
}

/// Of more than a register.
template <class T>
[[gnu::noinline]] void wide_packed_layer(const dense_layer<T>& l, const T* x) {
  constexpr dim_t w = vec<T>::size;
  const dim_t row = l.packed_row();
  for (dim_t j = 0; j < l.out; j += 2 * w) {
    vec<T> sums[2];
    packed_columns(l.in, x, static_cast<const T*>(l.packed) + j, row, sums,
                   std::make_index_sequence<2>{});
    sums[0].store(l.y + j);
    if (j + w < l.out) sums[1].store(l.y + j + w);
  }
  activate_block(l.function, 1, l.out, l.y, l.out);
}

/// Of one.
template <class T>
IKEBANA_CPU_INLINE void narrow_packed_layer(const dense_layer<T>& l, const T* x) {
  vec<T> y[1];
  packed_columns(l.in, x, static_cast<const T*>(l.packed), dim_t{16}, y,
                 std::make_index_sequence<1>{});
  if (l.function == activation::tanh) {
    y[0] = tanh(y[0]);
  } else if (l.function == activation::relu) {
    y[0] = max(vec<T>::zero(), y[0]);
  } else if (l.function != activation::none) {
    y[0].store(l.y);
    return activate_block(l.function, 1, l.out, l.y, l.out);
  }
  y[0].store(l.y);
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
#endif

template <class T>
void dense_layers(const T* x, dense_chain<T>& chain, [[maybe_unused]] std::uint64_t stamp) {
#if IKEBANA_CPU_WIDTH >= 32
  if (stamp == 0 || chain.stamp != stamp) {
    if (!are_same(chain.weights, static_cast<const T*>(chain.seen), chain.size)) [[unlikely]]
      detail::pack_dense_layers(chain);
    chain.stamp = stamp;
  }
#endif
  const dense_layer<T>* l = chain.layers;
  for (dim_t count = chain.count; count > 0; --count, x = l->y, ++l) {
#if IKEBANA_CPU_WIDTH >= 32
    if (l->narrow <= vec<T>::size) {
      narrow_packed_layer(*l, x);
      continue;
    }
    if (l->packed != nullptr) {
      wide_packed_layer(*l, x);
      continue;
    }
#endif
    detail::run_plain_layer(*l, x);
  }
}
