// Products as dot products: rows of both factors are contiguous along the summed dimension.

#if IKEBANA_CPU_WIDTH != 0
/// Four elements in memory.
template <class T>
struct in_fours {
  typedef T type __attribute__((vector_size(4 * sizeof(T)), aligned(alignof(T)), may_alias));
};
template <class T>
using four_of = typename in_fours<T>::type;

template <class T, std::size_t N, class R>
IKEBANA_CPU_INLINE auto sum_to_four(R a) {
  if constexpr (N == 4) {
    return a;
  } else {
    using half = std::make_index_sequence<N / 2>;
    return sum_to_four<T, N / 2>(lower_half(a, half{}) + upper_half(a, half{}));
  }
}

/// Sums of lanes that are D apart: those of a where a lane's number has no bit D, else those of b.
template <int D, class R, std::size_t... L>
IKEBANA_CPU_INLINE R sum_apart(R a, R b, std::index_sequence<L...>) {
  constexpr int n = static_cast<int>(sizeof...(L)), d = D;
  return __builtin_shufflevector(
             a, b,
             ((static_cast<int>(L) & d) == 0 ? static_cast<int>(L) : static_cast<int>(L) + n)...) +
         __builtin_shufflevector(a, b,
                                 ((static_cast<int>(L) & d) == 0 ? static_cast<int>(L) + d
                                                                 : static_cast<int>(L) - d + n)...);
}
#endif

/// out[p * step + q]: the sums of the lanes of four registers for each p of P, in an order that
/// depends on the width alone.
template <class T, std::size_t... P>
IKEBANA_CPU_INLINE void sum_fours(const vec<T>* a, T* out, dim_t step, std::index_sequence<P...>) {
  constexpr std::size_t w = static_cast<std::size_t>(vec<T>::size), n = sizeof...(P);
  if constexpr (w < 4) {
    for (std::size_t i = 0; i < 4 * n; ++i)
      out[static_cast<dim_t>(i / 4) * step + static_cast<dim_t>(i % 4)] = sum(a[i]);
  } else {
#if IKEBANA_CPU_WIDTH != 0
    using lanes = std::make_index_sequence<w>;
    using four = four_of<T>;
    const auto store = [=](std::size_t p, four x) __attribute__((always_inline)) {
      *reinterpret_cast<four*>(out + static_cast<dim_t>(p) * step) = x;
    };
    const typename vec<T>::raw x[] = {
        sum_apart<2>(sum_apart<1>(a[P * 4].v, a[P * 4 + 1].v, lanes{}),
                     sum_apart<1>(a[P * 4 + 2].v, a[P * 4 + 3].v, lanes{}), lanes{})...};
    if constexpr (w == 16 && n == 4) {
      const auto y = sum_apart<4>(sum_apart<8>(x[0], x[2], lanes{}),
                                  sum_apart<8>(x[1], x[3], lanes{}), lanes{});
      (store(P, __builtin_shufflevector(y, y, P * 4, P * 4 + 1, P * 4 + 2, P * 4 + 3)), ...);
    } else {
      (store(P, sum_to_four<T, w>(x[P])), ...);
    }
#endif
  }
}

/// The most rows of x at once.
#if IKEBANA_CPU_WIDTH == 64 || (IKEBANA_CPU_WIDTH == 16 && !IKEBANA_CPU_X86)
inline constexpr dim_t dot_rows = 4;
#else
inline constexpr dim_t dot_rows = 2;
#endif
/// The most rows of y.
inline constexpr dim_t dot_strip = 64;

/// Rows of y, four at a time, times as many of x as there are P: out[i * dot_strip + j] =
/// x[i] . y[j] for j < count. Rows of x past `last_x` are that once more; up to three results more
/// are written.
template <class T, std::size_t... P>
IKEBANA_CPU_INLINE void dot_tiles_inline(dim_t count, dim_t k, const T* x, dim_t ldx, dim_t last_x,
                                         const T* y, dim_t ldy, T* out, std::index_sequence<P...>) {
  constexpr dim_t w = vec<T>::size;
  const T* const xs[] = {x + (static_cast<dim_t>(P) < last_x ? static_cast<dim_t>(P) : last_x) *
                                 ldx...};
  for (dim_t j = 0; j < count; j += 4, y += 4 * ldy) {
    const dim_t last_y = count - 1 - j;
    const T *const y1 = last_y < 1 ? y : y + ldy, *const y2 = last_y < 2 ? y1 : y1 + ldy,
                   *const y3 = last_y < 3 ? y2 : y2 + ldy;
    vec<T> sums[sizeof...(P) * 4];
    ((sums[P * 4] = sums[P * 4 + 1] = sums[P * 4 + 2] = sums[P * 4 + 3] = vec<T>::zero()), ...);
    const auto step = [&](vec<T> b0, vec<T> b1, vec<T> b2, vec<T> b3, const vec<T>* a)
        __attribute__((always_inline)) {
      if constexpr (sizeof...(P) == 2)
        b0 = opaque(b0), b1 = opaque(b1), b2 = opaque(b2), b3 = opaque(b3);
      ((sums[P * 4] = fma(a[P], b0, sums[P * 4]), sums[P * 4 + 1] = fma(a[P], b1, sums[P * 4 + 1]),
        sums[P * 4 + 2] = fma(a[P], b2, sums[P * 4 + 2]),
        sums[P * 4 + 3] = fma(a[P], b3, sums[P * 4 + 3])),
       ...);
    };
    dim_t p = 0;
    for (; p + w <= k; p += w) {
      const vec<T> a[] = {vec<T>::load(xs[P] + p)...};
      step(vec<T>::load(y + p), vec<T>::load(y1 + p), vec<T>::load(y2 + p), vec<T>::load(y3 + p),
           a);
    }
    if (const dim_t left = k - p; left > 0) {
      const vec<T> a[] = {vec<T>::load(xs[P] + p, left)...};
      step(vec<T>::load(y + p, left), vec<T>::load(y1 + p, left), vec<T>::load(y2 + p, left),
           vec<T>::load(y3 + p, left), a);
    }
    sum_fours(sums, out + j, dot_strip, std::index_sequence<P...>{});
  }
}

template <class T, std::size_t Rows>
[[gnu::noinline]] void dot_tiles(dim_t count, dim_t k, const T* x, dim_t ldx, dim_t last_x,
                                 const T* y, dim_t ldy, T* out) {
  dot_tiles_inline(count, k, x, ldx, last_x, y, ldy, out, std::make_index_sequence<Rows>{});
}

/// The rows of a factor that stands by columns: row j of k elements from columns `from`, ld apart.
template <class T>
[[gnu::noinline]] const T* copy_to_rows(const T* from, dim_t& ld, dim_t count, dim_t k) {
  constexpr dim_t w = vec<T>::size;
  const dim_t step = (k + w - 1) / w * w;
  T* const rows = detail::thread_scratch<T>();
  turn(rows, step, from, ld, count, k);
  ld = step;
  return rows;
}

/// c[i, j + q] = alpha * dots[q] + bias + residual + beta * c for q < count, and ReLU. Whole
/// vectors of dots are read.
template <class T>
[[gnu::noinline]] void finish_dots(const gemm_call<T>& call, dim_t i, dim_t j, dim_t count,
                                   const T* dots) {
  constexpr dim_t w = vec<T>::size;
  const gemm_epilogue<T>& then = *call.then;
  T* const to = call.c + i * call.ldc + j;
  for (dim_t q = 0; q < count; q += w) {
    const dim_t n = count - q < w ? count - q : w;
    vec<T> x = vec<T>::load(dots + q);
    if (call.alpha != T(1)) x = x * call.alpha;
    if (then.bias != nullptr) x = x + vec<T>::load(then.bias + j + q, n);
    if (then.row_bias != nullptr) x = x + then.row_bias[i];
    if (then.residual != nullptr)
      x = x + vec<T>::load(then.residual + i * then.ld_residual + j + q, n);
    if (call.beta != T(0)) x = x + vec<T>::load(to + q, n) * call.beta;
    if (then.function == activation::relu) x = max(vec<T>::zero(), x);
    x.store(to + q, n);
  }
}

/// The same of c[i + q, j].
template <class T>
[[gnu::noinline]] void finish_dots_below(const gemm_call<T>& call, dim_t i, dim_t j, dim_t count,
                                         const T* dots) {
  const gemm_epilogue<T>& then = *call.then;
  T* to = call.c + i * call.ldc + j;
  if (call.alpha == T(1) && call.beta == T(0) && then.bias == nullptr && then.row_bias == nullptr &&
      then.residual == nullptr && then.function != activation::relu) {
    for (; count > 0; --count, to += call.ldc) *to = *dots++;
    return;
  }
  for (const dim_t end = i + count; i < end; ++i, to += call.ldc) {
    T x = *dots++ * call.alpha;
    if (then.bias != nullptr) x += then.bias[j];
    if (then.row_bias != nullptr) x += then.row_bias[i];
    if (then.residual != nullptr) x += then.residual[i * then.ld_residual + j];
    // Not one expression, which a compiler may contract.
    const T kept = call.beta == T(0) ? T(0) : call.beta * *to;
    if (call.beta != T(0)) x += kept;
    *to = then.function == activation::relu && x < T(0) ? T(0) : x;
  }
}

/// c = alpha * (dot products) + bias + residual + beta * c. Of few columns, these are the rows of
/// the dot products, so that many rows of op(a) share their loads.
template <class T>
[[gnu::noinline]] void multiply_by_dots(const gemm_problem& problem, gemm_algorithm,
                                        const gemm_call<T>& call) {
  dim_t m = call.m, n = call.n;
  const dim_t k = call.alpha == T(0) ? 0 : call.k;
  const T *x = call.a, *y = call.b;
  dim_t ldx = call.ta == transpose::no ? call.lda : k,
        ldy = call.tb == transpose::yes ? call.ldb : k;
  if (!problem.a_by_rows()) x = copy_to_rows(x, ldx = call.lda, m, k);
  if (!problem.b_by_rows()) y = copy_to_rows(y, ldy = call.ldb, n, k);
  const bool below = n < m;
  if (below) {
    std::swap(m, n);
    std::swap(x, y);
    std::swap(ldx, ldy);
  }
  alignas(64) T out[static_cast<std::size_t>(dot_rows * dot_strip)];
  // What several rows of x meet stays near.
  const dim_t near = detail::caches().first / 2 / dim_t{sizeof(T)},
              strip = m <= dot_rows || (n < dot_strip ? n : dot_strip) * k <= near ? dot_strip
                                                                                   : 4 * dot_rows;
  for (dim_t j = 0; j < n; j += strip) {
    const dim_t count = n - j < strip ? n - j : strip;
    for (dim_t i = 0; i < m; i += dot_rows) {
      const dim_t rows = m - i < dot_rows ? m - i : dot_rows;
      const auto run = rows == 1   ? &dot_tiles<T, 1>
                       : rows == 2 ? &dot_tiles<T, 2>
                                   : &dot_tiles<T, static_cast<std::size_t>(dot_rows)>;
      run(count, k, x + i * ldx, ldx, rows - 1, y + j * ldy, ldy, out);
      for (dim_t r = 0; r < rows; ++r) {
        const T* const dots = out + r * dot_strip;
        below ? finish_dots_below(call, j, i + r, count, dots)
              : finish_dots(call, i + r, j, count, dots);
      }
    }
  }
  const matrix_result<T> result{call.c, call.ldc, call.beta, *call.then};
  if (result.finishes()) result.finish(0, 0, call.m, call.n);
}
