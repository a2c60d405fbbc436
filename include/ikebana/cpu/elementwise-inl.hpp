#if IKEBANA_CPU_WIDTH >= 32
/// Arrays from which no cache holds much: what is written goes past them, so that its lines need
/// not be read first.
inline constexpr dim_t streamed_bytes = dim_t{32} * 1024 * 1024;
template <class T>
IKEBANA_CPU_INLINE void store_past_caches(vec<T> x, T* p) {
#if IKEBANA_CPU_WIDTH == 64
  _mm512_stream_si512(reinterpret_cast<__m512i*>(p), (__m512i)x.v);
#else
  _mm256_stream_si256(reinterpret_cast<__m256i*>(p), (__m256i)x.v);
#endif
}
#endif

// y[i] = f(operands[i]...) for f of an instruction or two.
template <class T, class F, class... Operand>
IKEBANA_CPU_INLINE void stream_lanes(dim_t n, T* y, F f, const Operand*... operands) {
  constexpr dim_t w = vec<T>::size;
  dim_t i = 0;
#if IKEBANA_CPU_WIDTH >= 32
  if (n * static_cast<dim_t>(sizeof(T)) >= streamed_bytes &&
      reinterpret_cast<std::uintptr_t>(y) % IKEBANA_CPU_WIDTH == 0) [[unlikely]] {
    for (; i + w <= n; i += w) store_past_caches(f(vec<T>::load(operands + i)...), y + i);
    _mm_sfence();
  }
#endif
  for (; i + 4 * w <= n; i += 4 * w) {
    const vec<T> a = f(vec<T>::load(operands + i)...), b = f(vec<T>::load(operands + i + w)...);
    const vec<T> c = f(vec<T>::load(operands + i + 2 * w)...),
                 d = f(vec<T>::load(operands + i + 3 * w)...);
    a.store(y + i);
    b.store(y + i + w);
    c.store(y + i + 2 * w);
    d.store(y + i + 3 * w);
  }
  for (; i + w <= n; i += w) f(vec<T>::load(operands + i)...).store(y + i);
  if (i < n) f(vec<T>::load(operands + i, n - i)...).store(y + i, n - i);
}

#define IKEBANA_CPU_LAMBDA(...) [=](__VA_ARGS__) __attribute__((always_inline))

template <class T>
void map_relu(dim_t n, const T* x, T* y) {
  stream_lanes(
      n, y, IKEBANA_CPU_LAMBDA(vec<T> a) { return max(vec<T>::zero(), a); }, x);
}
template <class T>
void map_relu_backward(dim_t n, const T* y, const T* dy, T* dx) {
  stream_lanes(
      n, dx,
      IKEBANA_CPU_LAMBDA(vec<T> a, vec<T> d) {
        return select(a > vec<T>::zero(), d, vec<T>::zero());
      },
      y, dy);
}

template <class T>
void map_tanh(dim_t n, const T* x, T* y) {
  map_array<T, tanh_function>(n, x, y);
}
template <class T>
void map_tanh_backward(dim_t n, const T* y, const T* dy, T* dx) {
  stream_lanes(
      n, dx,
      IKEBANA_CPU_LAMBDA(vec<T> a, vec<T> d) { return d * fma(-a, a, vec<T>::broadcast(T(1))); }, y,
      dy);
}

template <class T>
void map_sigmoid(dim_t n, const T* x, T* y) {
  map_array<T, sigmoid_function>(n, x, y);
}
template <class T>
void map_sigmoid_backward(dim_t n, const T* y, const T* dy, T* dx) {
  stream_lanes(
      n, dx, IKEBANA_CPU_LAMBDA(vec<T> a, vec<T> d) { return d * (T(1) - a) * a; }, y, dy);
}

template <class T>
void map_gelu(dim_t n, const T* x, T* y) {
  map_array<T, gelu_function>(n, x, y);
}
template <class T>
void map_gelu_backward(dim_t n, const T* x, const T* dy, T* dx) {
  map_lanes(
      n, dx, IKEBANA_CPU_LAMBDA(vec<T> a, vec<T> d) { return d * gelu_slope(a); }, x, dy);
}

template <class T>
void map_gelu_tanh(dim_t n, const T* x, T* y) {
  map_array<T, gelu_tanh_function>(n, x, y);
}
template <class T>
void map_gelu_tanh_backward(dim_t n, const T* x, const T* dy, T* dx) {
  map_lanes(
      n, dx, IKEBANA_CPU_LAMBDA(vec<T> a, vec<T> d) { return d * gelu_tanh_slope(a); }, x, dy);
}

template <class T>
void map_silu(dim_t n, const T* x, T* y) {
  map_array<T, silu_function>(n, x, y);
}
template <class T>
void map_silu_backward(dim_t n, const T* x, const T* dy, T* dx) {
  map_lanes(
      n, dx, IKEBANA_CPU_LAMBDA(vec<T> a, vec<T> d) { return d * silu_slope(a); }, x, dy);
}

template <class T>
void map_exp(dim_t n, const T* x, T* y) {
  map_array<T, exp_function>(n, x, y);
}
template <class T>
void map_log(dim_t n, const T* x, T* y) {
  map_array<T, log_function>(n, x, y);
}
template <class T>
void map_erf(dim_t n, const T* x, T* y) {
  map_array<T, erf_function>(n, x, y);
}

template <class T>
void map_add(dim_t n, const T* a, const T* b, T* y) {
  stream_lanes(
      n, y, IKEBANA_CPU_LAMBDA(vec<T> u, vec<T> v) { return u + v; }, a, b);
}
template <class T>
void map_multiply(dim_t n, const T* a, const T* b, T* y) {
  stream_lanes(
      n, y, IKEBANA_CPU_LAMBDA(vec<T> u, vec<T> v) { return u * v; }, a, b);
}
template <class T>
void map_axpy(dim_t n, T alpha, const T* x, T* y) {
  const vec<T> factor = vec<T>::broadcast(alpha);
  stream_lanes(
      n, y, IKEBANA_CPU_LAMBDA(vec<T> u, vec<T> v) { return fma(factor, u, v); }, x, y);
}
template <class T>
void map_scale(dim_t n, T alpha, T* x) {
  const vec<T> factor = vec<T>::broadcast(alpha);
  stream_lanes(
      n, x, IKEBANA_CPU_LAMBDA(vec<T> u) { return factor * u; }, x);
}
template <class T>
void map_fill(dim_t n, T* x, T value) {
  constexpr dim_t w = vec<T>::size;
  const vec<T> v = vec<T>::broadcast(value);
  dim_t i = 0;
  for (; i + w <= n; i += w) v.store(x + i);
  if (i < n) v.store(x + i, n - i);
}

// ---- dropout ----

#if IKEBANA_CPU_WIDTH == 0
inline constexpr dim_t random_words = 4;
IKEBANA_CPU_INLINE void random_block(const random_stream& stream, std::uint32_t block,
                                     std::uint32_t* words) {
  const auto w = stream.words(block);
  for (std::size_t i = 0; i < 4; ++i) words[i] = w[i];
}
#else
using words_vec = vec<std::uint32_t>;
using wide_vec = vec<std::uint64_t>;
inline constexpr dim_t random_words = 4 * words_vec::size;

/// The high and the low words of a * b. Words change their places by shuffles, for the multiplier
/// shares its port with shifts.
template <std::size_t... L>
IKEBANA_CPU_INLINE void multiply_wide(words_vec a, std::uint32_t b, words_vec& high, words_vec& low,
                                      std::index_sequence<L...>) {
  constexpr std::size_t n = sizeof...(L);
  const words_vec factor = words_vec::broadcast(b);
  const auto even = as<std::uint32_t>(multiply_even(a, factor)).v;
  const words_vec odd_lanes{__builtin_shufflevector(a.v, a.v, static_cast<int>(L | 1)...)};
  const auto odd = as<std::uint32_t>(multiply_even(odd_lanes, factor)).v;
  low.v = __builtin_shufflevector(even, odd, static_cast<int>(L % 2 == 0 ? L : n + L - 1)...);
  high.v = __builtin_shufflevector(even, odd, static_cast<int>(L % 2 == 0 ? L + 1 : n + L)...);
}
IKEBANA_CPU_INLINE void multiply_wide(words_vec a, std::uint32_t b, words_vec& high,
                                      words_vec& low) {
  multiply_wide(a, b, high, low,
                std::make_index_sequence<static_cast<std::size_t>(words_vec::size)>{});
}
template <std::size_t... L>
IKEBANA_CPU_INLINE words_vec block_offsets(std::index_sequence<L...>) {
  // After the transpose, row r holds the words of its blocks in order if lane 4 g + r generates
  // block r * groups + g.
  constexpr std::uint32_t groups = sizeof...(L) / 4;
  return {words_vec::raw{static_cast<std::uint32_t>(L % 4 * groups + L / 4)...}};
}
/// The words of the blocks from `block`, in order.
inline void random_block(const random_stream& stream, std::uint32_t block, std::uint32_t* words) {
  const auto start = stream.counter(block);
  constexpr auto lanes = static_cast<std::size_t>(words_vec::size);
  words_vec c0 = block_offsets(std::make_index_sequence<lanes>{}) + start[0];
  words_vec c1 = words_vec::broadcast(start[1]), c2 = words_vec::broadcast(start[2]),
            c3 = words_vec::broadcast(start[3]);
  std::uint32_t k0 = stream.key[0], k1 = stream.key[1];
  for (int r = 0; r < philox4x32::rounds; ++r) {
    words_vec high0, low0, high1, low1;
    multiply_wide(c0, philox4x32::multiplier0, high0, low0);
    multiply_wide(c2, philox4x32::multiplier1, high1, low1);
    c0 = high1 ^ c1 ^ words_vec::broadcast(k0);
    c1 = low1;
    c2 = high0 ^ c3 ^ words_vec::broadcast(k1);
    c3 = low0;
    k0 += philox4x32::weyl0;
    k1 += philox4x32::weyl1;
  }
  using order = std::make_index_sequence<lanes>;
  exchange<1>(c0.v, c1.v, order{});
  exchange<1>(c2.v, c3.v, order{});
  exchange<2>(c0.v, c2.v, order{});
  exchange<2>(c1.v, c3.v, order{});
  c0.store(words);
  c1.store(words + words_vec::size);
  c2.store(words + 2 * words_vec::size);
  c3.store(words + 3 * words_vec::size);
}
#endif

/// Which of the words at `words` are at least `threshold`.
template <class T>
IKEBANA_CPU_INLINE lane_mask<T> at_least(const std::uint32_t* words, std::uint32_t threshold) {
#if IKEBANA_CPU_WIDTH != 0
  if constexpr (sizeof(T) == 8) {
    typedef std::uint32_t half
        __attribute__((vector_size(IKEBANA_CPU_WIDTH / 2), aligned(4), may_alias));
    const wide_vec w{__builtin_convertvector(*reinterpret_cast<const half*>(words), wide_vec::raw)};
    return {as<std::int64_t>(w).v >= vec<std::int64_t>::broadcast(threshold).v};
  } else
#endif
    return {vec<std::uint32_t>::load(words).v >= vec<std::uint32_t>::broadcast(threshold).v};
}

template <class T>
void map_dropout(dim_t n, const T* x, T* y, double p, const random_stream& stream,
                 std::uint64_t offset) {
  constexpr dim_t w = vec<T>::size;
  const double bound = p * 0x1p32;
  if (bound >= 0x1p32) return map_fill(n, y, T(0));
  const auto threshold = static_cast<std::uint32_t>(bound);
  const vec<T> factor = vec<T>::broadcast(static_cast<T>(1 / (1 - p)));
  alignas(64) std::uint32_t words[random_words + 16];
  for (dim_t i = random_words; i < random_words + 16; ++i) words[i] = 0;
  for (dim_t i = 0; i < n;) {
    const std::uint64_t element = offset + static_cast<std::uint64_t>(i);
    random_block(stream, static_cast<std::uint32_t>(element / 4), words);
    const auto skip = static_cast<dim_t>(element % 4);
    const dim_t count = n - i < random_words - skip ? n - i : random_words - skip;
    for (dim_t j = 0; j < count; j += w) {
      const dim_t left = count - j < w ? count - j : w;
      const lane_mask<T> kept = at_least<T>(words + skip + j, threshold);
      select(kept, vec<T>::load(x + i + j, left) * factor, vec<T>::zero()).store(y + i + j, left);
    }
    i += count;
  }
}

#undef IKEBANA_CPU_LAMBDA
