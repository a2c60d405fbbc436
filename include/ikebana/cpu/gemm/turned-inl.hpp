// Small products whose right factor is transposed: it is turned first, or they are dot products.

#if IKEBANA_CPU_WIDTH >= 32 || (IKEBANA_CPU_WIDTH == 16 && !IKEBANA_CPU_X86)
template <int Group, class T>
IKEBANA_CPU_INLINE void store_four(vec<T> x, T* to) {
  typedef T four __attribute__((vector_size(4 * sizeof(T)), aligned(alignof(T)), may_alias));
  *reinterpret_cast<four*>(to) =
      __builtin_shufflevector(x.v, x.v, Group * 4, Group * 4 + 1, Group * 4 + 2, Group * 4 + 3);
}

/// to[p * width + j] = from[j * ld + p] for j < n, p < k. Up to three columns and rows more are
/// written.
template <class T, std::size_t... L>
[[gnu::noinline]] void turn_few(T* to, dim_t width, const T* from, dim_t ld, dim_t n, dim_t k,
                                std::index_sequence<L...>) {
  constexpr dim_t w = vec<T>::size;
  if constexpr (w < 4) {
    for (dim_t j = 0; j < n; ++j)
      for (dim_t p = 0; p < k; ++p) to[p * width + j] = from[j * ld + p];
  } else {
    using all = std::make_index_sequence<static_cast<std::size_t>(w)>;
    for (dim_t j = 0; j < n; j += 4) {
      const dim_t last = n - 1 - j;
      const T *r0 = from + j * ld, *r1 = r0 + (last < 1 ? last : 1) * ld,
              *r2 = r0 + (last < 2 ? last : 2) * ld, *r3 = r0 + (last < 3 ? last : 3) * ld;
      for (dim_t p = 0; p < k; p += w) {
        const dim_t lanes = k - p < w ? k - p : w;
        vec<T> x[] = {vec<T>::load(r0 + p, lanes), vec<T>::load(r1 + p, lanes),
                      vec<T>::load(r2 + p, lanes), vec<T>::load(r3 + p, lanes)};
        exchange<1>(x[0].v, x[1].v, all{});
        exchange<1>(x[2].v, x[3].v, all{});
        exchange<2>(x[0].v, x[2].v, all{});
        exchange<2>(x[1].v, x[3].v, all{});
        T* const at = to + p * width + j;
        const auto store = [&](auto group) __attribute__((always_inline)) {
          constexpr int g = decltype(group)::value;
          if (g * 4 >= lanes) return;
          store_four<g>(x[0], at + g * 4 * width);
          store_four<g>(x[1], at + (g * 4 + 1) * width);
          store_four<g>(x[2], at + (g * 4 + 2) * width);
          store_four<g>(x[3], at + (g * 4 + 3) * width);
        };
        (store(std::integral_constant<int, static_cast<int>(L)>{}), ...);
      }
    }
  }
}

/// With B transposed: it is turned on the stack.
inline constexpr dim_t turned_depth = 64;
template <class T>
[[gnu::noinline]] void tiny_product_turned(gemm_call<T>& call, detail::narrow_table<T> narrow) {
  constexpr dim_t w = vec<T>::size;
  alignas(64) T rows[static_cast<std::size_t>((turned_depth + 4) * 2 * w)];
  const dim_t width = call.n <= w ? w : 2 * w;
  turn_few(rows, width, call.b, call.ldb, call.n, call.k,
           std::make_index_sequence<static_cast<std::size_t>(w < 4 ? 1 : w / 4)>{});
  call.b = rows;
  call.ldb = width;
  if (finishes_tiny(*call.then)) return tiny_product(call, narrow);
  detail::tiny_shape<T> s = shape_of(call, narrow);
  narrow_tiles_product(call.a, call.b, call.c, tiny_lda(call), call.ldb, s, narrow);
}

/// Few rows of A, with B transposed, where a row of either fits into a V: dot products, four at a
/// time.
template <class T, class V>
[[gnu::noinline]] void tiny_dots(const gemm_call<T>& call) {
  constexpr auto size = static_cast<std::size_t>(V::size);
  using lanes = std::make_index_sequence<size>;
  const dim_t n = call.n, k = call.k, ldb = call.ldb;
  const gemm_epilogue<T>& then = *call.then;
  const bool relu = then.function == activation::relu;
  for (dim_t i = 0; i < call.m; ++i) {
    const V x = V::load(call.a + i * call.lda, k);
    T* const to = call.c + i * call.ldc;
    for (dim_t j = 0; j < n; j += 4) {
      // Those that are left over overlap the ones before.
      if (n >= 4 && j + 4 > n) j = n - 4;
      const T* const y = call.b + j * ldb;
      const auto s0 = x.v * V::load(y, k).v, s1 = x.v * V::load(n > 1 ? y + ldb : y, k).v,
                 s2 = x.v * V::load(n > 2 ? y + 2 * ldb : y, k).v,
                 s3 = x.v * V::load(n > 3 ? y + 3 * ldb : y, k).v;
      four_of<T> sum = sum_to_four<T, size>(
          sum_apart<2>(sum_apart<1>(s0, s1, lanes{}), sum_apart<1>(s2, s3, lanes{}), lanes{}));
      if (n >= 4) {
        if (then.bias != nullptr) sum += *reinterpret_cast<const four_of<T>*>(then.bias + j);
        if (relu) sum = sum < T(0) ? four_of<T>{} : sum;
        *reinterpret_cast<four_of<T>*>(to + j) = sum;
      } else {
        for (dim_t q = 0; q < n; ++q) {
          const T v = then.bias != nullptr ? sum[q] + then.bias[q] : sum[q];
          to[q] = relu && v < T(0) ? T(0) : v;
        }
      }
    }
  }
  finish_tiny(then, call.m, n, call.c, call.ldc);
}
template <class T>
IKEBANA_CPU_INLINE void tiny_dots(const gemm_call<T>& call) {
#if IKEBANA_CPU_WIDTH == 64
  if (call.k <= half_vec<T>::size) return tiny_dots<T, half_vec<T>>(call);
#endif
  if constexpr (vec<T>::size >= 4) tiny_dots<T, vec<T>>(call);
}
#endif
