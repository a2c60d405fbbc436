#define IKEBANA_CPU_LAMBDA(...) [=](__VA_ARGS__) __attribute__((always_inline))

template <class T>
void map_relu(dim_t n, const T* x, T* y) {
  light_lanes(n, y, relu_function{}, x);
}
#define IKEBANA_CPU_MAP(function)                  \
  template <class T>                               \
  void map_##function(dim_t n, const T* x, T* y) { \
    map_array<T, function##_function>(n, x, y);    \
  }
IKEBANA_CPU_MAP(tanh)
IKEBANA_CPU_MAP(sigmoid)
IKEBANA_CPU_MAP(gelu)
IKEBANA_CPU_MAP(gelu_tanh)
IKEBANA_CPU_MAP(silu)
IKEBANA_CPU_MAP(exp)
IKEBANA_CPU_MAP(log)
IKEBANA_CPU_MAP(erf)
#undef IKEBANA_CPU_MAP

// y = f(a, b), by `loop`.
#define IKEBANA_CPU_MAP(name, loop, ...)                                                      \
  template <class T>                                                                          \
  void map_##name(dim_t n, const T* first, const T* second, T* y) {                           \
    loop(                                                                                     \
        n, y, IKEBANA_CPU_LAMBDA(vec<T> a, vec<T> b) { return __VA_ARGS__; }, first, second); \
  }
IKEBANA_CPU_MAP(relu_backward, light_lanes, select(vec<T>::zero() >= a, vec<T>::zero(), b))
IKEBANA_CPU_MAP(tanh_backward, light_lanes, b* fma(-a, a, vec<T>::broadcast(T(1))))
IKEBANA_CPU_MAP(sigmoid_backward, light_lanes, b*(T(1) - a) * a)
IKEBANA_CPU_MAP(gelu_backward, map_lanes, b* gelu_slope(a))
IKEBANA_CPU_MAP(gelu_tanh_backward, map_lanes, b* gelu_tanh_slope(a))
IKEBANA_CPU_MAP(silu_backward, map_lanes, b* silu_slope(a))
IKEBANA_CPU_MAP(add, light_lanes, a + b)
IKEBANA_CPU_MAP(multiply, light_lanes, a* b)
#undef IKEBANA_CPU_MAP

template <class T>
void map_axpy(dim_t first, dim_t last, T alpha, const T* x, T* y) {
  const vec<T> factor = vec<T>::broadcast(alpha);
  light_lanes(
      last - first, y + first, IKEBANA_CPU_LAMBDA(vec<T> u, vec<T> v) { return fma(factor, u, v); },
      x + first, y + first);
}
template <class T>
void map_scale(dim_t first, dim_t last, T alpha, T* x) {
  const vec<T> factor = vec<T>::broadcast(alpha);
  light_lanes(
      last - first, x + first, IKEBANA_CPU_LAMBDA(vec<T> u) { return factor * u; }, x + first);
}
template <class T>
void map_fill(dim_t first, dim_t last, T* x, T value) {
  const vec<T> v = vec<T>::broadcast(value);
  map_terms(
      last - first, x + first, IKEBANA_CPU_LAMBDA(dim_t, dim_t) { return v; });
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
void map_dropout(dim_t first, dim_t last, const T* x, T* y, double p, const random_stream& stream,
                 std::uint64_t offset) {
  constexpr dim_t w = vec<T>::size;
  const double bound = p * 0x1p32;
  if (bound >= 0x1p32) return map_fill(first, last, y, T(0));
  const auto threshold = static_cast<std::uint32_t>(bound);
  const vec<T> factor = vec<T>::broadcast(static_cast<T>(1 / (1 - p)));
  alignas(64) std::uint32_t words[random_words + 16];
  for (dim_t i = random_words; i < random_words + 16; ++i) words[i] = 0;
  for (dim_t i = first; i < last;) {
    const std::uint64_t element = offset + static_cast<std::uint64_t>(i);
    random_block(stream, static_cast<std::uint32_t>(element / 4), words);
    const auto skip = static_cast<dim_t>(element % 4);
    const dim_t count = last - i < random_words - skip ? last - i : random_words - skip;
    for (dim_t j = 0; j < count; j += w) {
      const dim_t left = count - j < w ? count - j : w;
      const lane_mask<T> kept = at_least<T>(words + skip + j, threshold);
      select(kept, vec<T>::load(x + i + j, left) * factor, vec<T>::zero()).store(y + i + j, left);
    }
    i += count;
  }
}

#undef IKEBANA_CPU_LAMBDA
