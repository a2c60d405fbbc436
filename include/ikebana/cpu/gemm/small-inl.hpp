// The choice among products: first those so small that a call takes as long as the arithmetic.

#if IKEBANA_CPU_WIDTH != 0
template <class T>
IKEBANA_CPU_INLINE bool finishes_tiny(const gemm_epilogue<T>& then) {
  return then.function > activation::relu || then.slope_of != nullptr;
}
template <class T>
IKEBANA_CPU_INLINE void finish_tiny(const gemm_epilogue<T>& then, dim_t m, dim_t n, T* c,
                                    dim_t ldc) {
  if (then.function > activation::relu) activate_block(then.function, m, n, c, ldc);
  if (then.slope_of != nullptr) slope_block(then.slope, m, n, c, ldc, then.slope_of, then.ld_slope);
}

#endif

#if IKEBANA_CPU_WIDTH >= 32 || (IKEBANA_CPU_WIDTH == 16 && !IKEBANA_CPU_X86)
/// Whether tiles of few registers do where there are more columns than they have: of short sums,
/// larger ones would spend more time on their way. On AVX-512 they read B too fast for it to come
/// from the second-level cache again and again.
template <class T>
IKEBANA_CPU_INLINE bool by_tiny_blocks([[maybe_unused]] dim_t m, [[maybe_unused]] dim_t n,
                                       [[maybe_unused]] dim_t k) {
#if IKEBANA_CPU_WIDTH == 64
  if (m <= 16) return m > 1 && k <= (m > 4 || n <= 3 * vec<T>::size ? 64 : 32);
  return k <= 16 || (k <= 24 && k * n * dim_t{sizeof(T)} <= 32 * 1024);
#elif IKEBANA_CPU_WIDTH == 32
  return k <= 48 && m > 1;
#else
  return false;
#endif
}

/// As by_tiny_blocks, where B must be turned first, which leaves so many bytes.
template <class T>
IKEBANA_CPU_INLINE bool by_turned_blocks(dim_t m, dim_t n, dim_t k, dim_t bytes) {
  return by_tiny_blocks<T>(m, n, k) && (k <= 8 || (k <= 16 && m > few_rows && m <= 12) ||
                                        (k <= 24 && m > 4 && bytes <= detail::caches().first / 2));
}

template <class T>
IKEBANA_CPU_INLINE void run_tiny_product(const gemm_call<T>& call) {
  tiny_product<T>(call.a, call.b, call.c, {call.m, call.n, call.k, call.ta == transpose::yes},
                  {call.lda, call.ldb, call.ldc}, call.then);
}
template <class T>
[[gnu::noinline]] void tiny_product_and_finish(const gemm_call<T>& call) {
  run_tiny_product(call);
  finish_tiny(*call.then, call.m, call.n, call.c, call.ldc);
}
template <class T>
IKEBANA_CPU_INLINE void tiny_product(const gemm_call<T>& call) {
  if (finishes_tiny(*call.then)) return tiny_product_and_finish(call);
  run_tiny_product(call);
}

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
[[gnu::noinline]] void tiny_product_turned(gemm_call<T>& call) {
  constexpr dim_t w = vec<T>::size;
  alignas(64) T rows[static_cast<std::size_t>((turned_depth + 4) * 2 * w)];
  const dim_t width = call.n <= w ? w : 2 * w;
  turn_few(rows, width, call.b, call.ldb, call.n, call.k,
           std::make_index_sequence<static_cast<std::size_t>(w < 4 ? 1 : w / 4)>{});
  call.b = rows;
  call.ldb = width;
  tiny_product(call);
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

#if IKEBANA_CPU_WIDTH != 0
/// Whether two rows or three go by rows of B: four registers' sums are more than tiles have. What
/// is not four registers wide reads some twice, which long sums feel on AVX-512.
template <class T>
IKEBANA_CPU_INLINE bool by_few_rows(dim_t m, dim_t n, dim_t k) {
  constexpr dim_t w = vec<T>::size;
  if (m < 2 || m > few_rows || n <= (IKEBANA_CPU_WIDTH == 64 && k > 64 ? 3 : 2) * w) return false;
#if IKEBANA_CPU_WIDTH >= 32
  if (n > 3 * w && (IKEBANA_CPU_WIDTH == 64 || n < 4 * w))
    return k > (IKEBANA_CPU_WIDTH == 64 ? 24 : 16);
  if (by_tiny_blocks<T>(m, n, k)) return false;
#endif
  return k > 8;
}

/// A row times a column, both without gaps: as many sums side by side as hide an addition's
/// latency.
template <class T>
[[gnu::noinline]] void one_dot(const gemm_call<T>& call) {
  constexpr dim_t w = vec<T>::size;
  const T *const x = call.a, *const y = call.b;
  const dim_t k = call.alpha == T(0) ? 0 : call.k;
  const auto term = [&](dim_t p, vec<T> sum) __attribute__((always_inline)) {
    return fma(vec<T>::load(x + p), vec<T>::load(y + p), sum);
  };
  vec<T> s0 = vec<T>::zero(), s1 = s0, s2 = s0, s3 = s0;
  dim_t p = 0;
  for (; p + 4 * w <= k; p += 4 * w) {
    s0 = term(p, s0);
    s1 = term(p + w, s1);
    s2 = term(p + 2 * w, s2);
    s3 = term(p + 3 * w, s3);
  }
  for (; p + w <= k; p += w) s0 = term(p, s0);
  if (p < k) s1 = fma(vec<T>::load(x + p, k - p), vec<T>::load(y + p, k - p), s1);
  T c = call.alpha * sum((s0 + s1) + (s2 + s3));
  const gemm_epilogue<T>& then = *call.then;
  if (call.beta != T(0)) c += call.beta * *call.c;
  if (then.bias != nullptr) c += *then.bias;
  if (then.residual != nullptr) c += *then.residual;
  *call.c = c;
  if (then.function != activation::none) activate_block(then.function, 1, 1, call.c, call.ldc);
  if (then.slope_of != nullptr)
    slope_block(then.slope, 1, 1, call.c, call.ldc, then.slope_of, then.ld_slope);
}
#endif

/// What `gemm` calls.
template <class T>
void product(gemm_call<T>& call) {
#if IKEBANA_CPU_WIDTH == 0
  plain_product(call);
#else
  if (call.m == 1 && call.n == 1 && (call.ta == transpose::no || call.lda == 1) &&
      (call.tb == transpose::yes || call.ldb == 1))
    return one_dot(call);
  // What has one step along the summed dimension has it in either order.
  if (call.k == 1) {
    if (call.ta == transpose::no && call.lda == 1) {
      call.ta = transpose::yes;
      call.lda = call.m;
    }
    if (call.tb == transpose::yes && call.ldb == 1) {
      call.tb = transpose::no;
      call.ldb = call.n;
    }
  }
  if (call.alpha == T(1) && call.beta == T(0) && call.then->residual == nullptr && call.k > 0) {
    const bool turned_a = call.ta == transpose::yes, turned_b = call.tb == transpose::yes;
    const bool down = turned_a && multiply_few_columns(call.m, call.n, call.k, call.a, call.lda,
                                                       call.b, turned_b ? dim_t{1} : call.ldb,
                                                       turned_b ? call.ldb : dim_t{1}, call.c,
                                                       call.ldc, *call.then);
    const bool across = !down && !turned_b && by_few_rows<T>(call.m, call.n, call.k);
    if (across)
      multiply_few_rows(call.m, call.n, call.k, call.a, turned_a ? dim_t{1} : call.lda,
                        turned_a ? call.lda : dim_t{1}, call.b, call.ldb, call.c, call.ldc,
                        *call.then);
    if (down || across) {
      if (finishes_tiny(*call.then)) finish_tiny(*call.then, call.m, call.n, call.c, call.ldc);
      return;
    }
  }
#if IKEBANA_CPU_WIDTH >= 32 || (IKEBANA_CPU_WIDTH == 16 && !IKEBANA_CPU_X86)
  using bits = typename number<T>::bits;
  using size = std::uint64_t;
  constexpr dim_t w = vec<T>::size, deep = 128;
  const bool fits = detail::tiny_steps::hold(call.lda, call.ldb, call.ldc) &&
                    detail::tiny_sizes::hold(call.m, call.n, call.k);
  if (call.n > 2 * w && call.tb == transpose::no && call.k > 0 && fits &&
      by_tiny_blocks<T>(call.m, call.n, call.k) && call.alpha == T(1) && call.beta == T(0) &&
      call.then->residual == nullptr)
    return tiny_product(call);
  // More rows where the others' preparations do not pay.
  const bool few = static_cast<size>(call.m) - 1 < 32 &&
                   !(call.n <= 4 && call.m >= (sizeof(T) == 4 ? 2 : 4) && call.k >= deep &&
                     call.m * call.k >= 2048 && call.ta == transpose::no),
             simple =
                 call.n > 1 &&
                 (call.k <= 24 || call.k < (call.n > 4 ? 3 : 2) * w ||
                  (IKEBANA_CPU_WIDTH == 64 && call.n > w && call.k <= 256) ||
                  (call.n <= w &&
                   (call.ta == transpose::no ? 2 * call.n > w : 4 * call.n > w && call.k <= 48)));
  if ((few ? call.n > 1 || call.m * call.k <= 64 : simple && call.m > 0) && call.n > 0 &&
      __builtin_bit_cast(bits, call.alpha) == __builtin_bit_cast(bits, T(1)) &&
      __builtin_bit_cast(bits, call.beta) == 0 && call.then->residual == nullptr && fits) {
    const bool rows_by_rows = call.ta == transpose::no && call.tb == transpose::yes;
    if (rows_by_rows && call.m <= 2 && call.k <= w && w >= 4) return tiny_dots(call);
    if (call.n <= 2 * w) {
      if (call.tb == transpose::no) return tiny_product(call);
      if (rows_by_rows && call.n <= 4 && call.n < call.m && call.k >= 32)
        return multiply_by_dots(call.n, call.m, call.k, T(1), call.b, call.ldb, call.a, call.lda,
                                matrix_result<T>{call.c, call.ldc, T(0), *call.then}, true);
      if (rows_by_rows && call.m <= 4 && call.k > (call.m <= 2 ? 1 : 2) * w)
        return multiply_by_dots(call.m, call.n, call.k, T(1), call.a, call.lda, call.b, call.ldb,
                                matrix_result<T>{call.c, call.ldc, T(0), *call.then}, false);
      if (call.k <= turned_depth && !(call.ta == transpose::yes && call.m <= 4 && call.k >= 32))
        return tiny_product_turned(call);
    }
  }
  // Short rows of B are turned one by one. Of the shortest, tiles lose where much is written.
  const dim_t width = (call.n + w - 1) / w * w,
              turned_bytes = (call.k + 4) * width * dim_t{sizeof(T)};
  const bool blocks =
      fits && by_turned_blocks<T>(call.m, call.n, call.k, turned_bytes) && call.alpha == T(1) &&
      (call.k >= turned<T> || call.m * call.n * dim_t{sizeof(T)} <= detail::caches().first) &&
      call.beta == T(0) && call.then->residual == nullptr;
  if (call.tb == transpose::yes && (call.k < turned<T> || blocks) && call.n > w && call.m > 1) {
    if (turned_bytes <= detail::caches().second / 4) {
      T* const rows = reinterpret_cast<T*>(detail::thread_scratch());
      turn_few(rows, width, call.b, call.ldb, call.n, call.k,
               std::make_index_sequence<static_cast<std::size_t>(w < 4 ? 1 : w / 4)>{});
      call.b = rows;
      call.ldb = width;
      call.tb = transpose::no;
      if (blocks) return tiny_product(call);
    }
  }
#endif
  matrix_product(call.ta, call.tb, call.m, call.n, call.k, call.alpha, call.a, call.lda, call.b,
                 call.ldb, call.beta, call.c, call.ldc, *call.then);
#endif
}

template <class T>
[[gnu::noinline]] void product_of_tiny(const T* a, const T* b, T* c, detail::tiny_sizes s,
                                       detail::tiny_steps steps, const gemm_epilogue<T>* then) {
  gemm_call<T> call{s.m(),
                    s.n(),
                    s.k(),
                    a,
                    steps.a(),
                    b,
                    steps.b(),
                    c,
                    steps.c(),
                    then,
                    T(1),
                    T(0),
                    s.ta() ? transpose::yes : transpose::no,
                    transpose::no};
  product(call);
}

#if IKEBANA_CPU_WIDTH >= 32 || (IKEBANA_CPU_WIDTH == 16 && !IKEBANA_CPU_X86)
template <class T>
[[gnu::noinline]] void few_tiny_product(const T* a, const T* b, T* c, detail::tiny_sizes s,
                                        detail::tiny_steps steps, const gemm_epilogue<T>* then) {
  multiply_few_rows(s.m(), s.n(), s.k(), a, s.ta() ? dim_t{1} : steps.a(),
                    s.ta() ? steps.a() : dim_t{1}, b, steps.b(), c, steps.c(), *then);
}

/// What has more columns than two registers.
template <class T>
[[gnu::noinline]] void tiny_blocks(const T* a, const T* b, T* c, detail::tiny_sizes s,
                                   detail::tiny_steps steps, const gemm_epilogue<T>* then) {
  if (by_few_rows<T>(s.m(), s.n(), s.k())) return few_tiny_product(a, b, c, s, steps, then);
  if (by_tiny_blocks<T>(s.m(), s.n(), s.k())) [[likely]]
    return wide_tiny_product(a, b, c, s, steps, then);
  product_of_tiny(a, b, c, s, steps, then);
}
#endif

/// A product of few tiles goes to them by a jump.
template <class T>
void tiny(const T* a, const T* b, T* c, detail::tiny_sizes s, detail::tiny_steps steps,
          const gemm_epilogue<T>* then) {
#if IKEBANA_CPU_WIDTH >= 32 || (IKEBANA_CPU_WIDTH == 16 && !IKEBANA_CPU_X86)
  if (s.n() > 2 * vec<T>::size) return tiny_blocks(a, b, c, s, steps, then);
  tiny_product(a, b, c, s, steps, then);
#else
  product_of_tiny(a, b, c, s, steps, then);
#endif
}

/// As many products of one size, from one to the next as far as the steps say.
template <class T>
void product_batch(dim_t count, const gemm_call<T>& first, dim_t step_a, dim_t step_b,
                   dim_t step_c) {
  gemm_call<T> next = first;
  for (; count > 0; --count) {
    gemm_call<T> call = next;
    product(call);
    next.a += step_a;
    next.b += step_b;
    next.c += step_c;
  }
}
