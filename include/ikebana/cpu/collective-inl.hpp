template <class T>
void average_ranks(dim_t n, T* const* ranks, int world, dim_t offset, T scale) {
  constexpr dim_t w = vec<T>::size;
  const vec<T> factor = vec<T>::broadcast(scale);
  for (dim_t i = offset; i < offset + n; i += w) {
    const dim_t lanes = offset + n - i < w ? offset + n - i : w;
    vec<T> s = load_lanes(static_cast<const T*>(ranks[0]) + i, lanes);
    for (int r = 1; r < world; ++r) s = s + load_lanes(static_cast<const T*>(ranks[r]) + i, lanes);
    s = s * factor;
    for (int r = 0; r < world; ++r) store_lanes(s, ranks[r] + i, lanes);
  }
}

/// f(chunk, lanes) on floats converted from x by chunks that stay in the first-level cache.
template <class T, class F>
IKEBANA_CPU_INLINE void by_float_chunks(dim_t n, const T* x, F f) {
  constexpr dim_t chunk = 256;
  alignas(64) float buffer[chunk];
  for (dim_t i = 0; i < n; i += chunk) {
    const dim_t count = n - i < chunk ? n - i : chunk;
    for (dim_t j = 0; j < count; ++j) buffer[j] = static_cast<float>(x[i + j]);
    for (dim_t j = count; j % 16 != 0; ++j) buffer[j] = 0;
    for (dim_t j = 0; j < count; j += vec<float>::size)
      rounded_to_bf16(vec<float>::load(buffer + j)).store(buffer + j);
    f(i, count, buffer);
  }
}

#if IKEBANA_CPU_WIDTH != 0
/// As many numbers of 16 bits as a register has floats.
typedef std::uint16_t half_register __attribute__((vector_size(IKEBANA_CPU_WIDTH / 2)));
#endif

template <class T>
void narrow_to_bf16(dim_t n, const T* x, std::uint16_t* y) {
  dim_t done = 0;
#if IKEBANA_CPU_WIDTH != 0
  if constexpr (sizeof(T) == 4)
    for (; done + vec<T>::size <= n; done += vec<T>::size) {
      const auto bits = as<std::uint32_t>(rounded_to_bf16(vec<T>::load(x + done))) >> 16;
      const half_register half = __builtin_convertvector(bits.v, half_register);
      __builtin_memcpy(y + done, &half, sizeof(half));
    }
#endif
  by_float_chunks(
      n - done,
      x + done, [=](dim_t i, dim_t count, const float* rounded) __attribute__((always_inline)) {
        for (dim_t j = 0; j < count; ++j)
          y[done + i + j] =
              static_cast<std::uint16_t>(__builtin_bit_cast(std::uint32_t, rounded[j]) >> 16);
      });
}
template <class T>
void round_array_to_bf16(dim_t n, T* x) {
  if constexpr (sizeof(T) == 4) {
    constexpr dim_t w = vec<T>::size;
    dim_t i = 0;
    for (; i + w <= n; i += w) rounded_to_bf16(vec<T>::load(x + i)).store(x + i);
    if (i < n) rounded_to_bf16(vec<T>::load(x + i, n - i)).store(x + i, n - i);
  } else {
    by_float_chunks(
        n, static_cast<const T*>(x),
        [=](dim_t i, dim_t count, const float* rounded) __attribute__((always_inline)) {
          for (dim_t j = 0; j < count; ++j) x[i + j] = static_cast<T>(rounded[j]);
        });
  }
}
template <class T>
void widen_from_bf16(dim_t n, const std::uint16_t* x, T* y) {
  dim_t i = 0;
#if IKEBANA_CPU_WIDTH != 0
  if constexpr (sizeof(T) == 4)
    for (; i + vec<T>::size <= n; i += vec<T>::size) {
      half_register half;
      __builtin_memcpy(&half, x + i, sizeof(half));
      const vec<std::uint32_t> bits{__builtin_convertvector(half, vec<std::uint32_t>::raw)};
      as<T>(bits << 16).store(y + i);
    }
#endif
  for (; i < n; ++i) y[i] = static_cast<T>(__builtin_bit_cast(float, std::uint32_t{x[i]} << 16));
}
