// Products of a tile or a few, where what is done once for each call takes as long as the
// arithmetic: one function hands over to the next by a jump. Sums are made in the same order as in
// larger tiles.

#if IKEBANA_CPU_WIDTH == 64
/// Half a register, which is twice as fast where the other half would be idle: loads of whole ones,
/// broadcasts too, are what these processors have least of.
template <class T>
struct half_vec {
  typedef T raw __attribute__((vector_size(32)));
  typedef T in_memory __attribute__((vector_size(32), aligned(alignof(T)), may_alias));
  static constexpr dim_t size = vec<T>::size / 2;
  raw v;

  IKEBANA_CPU_INLINE static half_vec zero() { return {raw{}}; }
  IKEBANA_CPU_INLINE static half_vec broadcast(T x) { return {x - raw{}}; }
  IKEBANA_CPU_INLINE static half_vec load(const T* p) {
    return {*reinterpret_cast<const in_memory*>(p)};
  }
  IKEBANA_CPU_INLINE void store(T* p) const { *reinterpret_cast<in_memory*>(p) = v; }
  // By the builtins of intrinsics whose header takes long to compile.
  IKEBANA_CPU_INLINE static half_vec load(const T* p, dim_t n) {
    if constexpr (sizeof(T) == 4)
      return {__builtin_ia32_loadups256_mask(at(p), raw{}, first(n))};
    else
      return {__builtin_ia32_loadupd256_mask(at(p), raw{}, first(n))};
  }
  IKEBANA_CPU_INLINE void store(T* p, dim_t n) const {
    if constexpr (sizeof(T) == 4)
      __builtin_ia32_storeups256_mask(at(p), v, first(n));
    else
      __builtin_ia32_storeupd256_mask(at(p), v, first(n));
  }
  IKEBANA_CPU_INLINE static __mmask8 first(dim_t n) {
    return static_cast<__mmask8>(first_lanes(n));
  }
  template <class P>
  IKEBANA_CPU_INLINE static auto at(P* p) {
#ifdef __clang__
    return reinterpret_cast<std::conditional_t<std::is_const_v<P>, const raw, raw>*>(p);
#else
    return p;
#endif
  }
  IKEBANA_CPU_INLINE friend half_vec fma(half_vec a, half_vec b, half_vec c) {
    if constexpr (sizeof(T) == 4)
      return {__builtin_bit_cast(
          raw, _mm256_fmadd_ps(__builtin_bit_cast(__m256, a.v), __builtin_bit_cast(__m256, b.v),
                               __builtin_bit_cast(__m256, c.v)))};
    else
      return {__builtin_bit_cast(
          raw, _mm256_fmadd_pd(__builtin_bit_cast(__m256d, a.v), __builtin_bit_cast(__m256d, b.v),
                               __builtin_bit_cast(__m256d, c.v)))};
  }
  IKEBANA_CPU_INLINE friend half_vec max(half_vec a, half_vec b) {
    if constexpr (sizeof(T) == 4)
      return {__builtin_bit_cast(
          raw, _mm256_max_ps(__builtin_bit_cast(__m256, a.v), __builtin_bit_cast(__m256, b.v)))};
    else
      return {__builtin_bit_cast(
          raw, _mm256_max_pd(__builtin_bit_cast(__m256d, a.v), __builtin_bit_cast(__m256d, b.v)))};
  }
};
#endif

#if IKEBANA_CPU_WIDTH >= 32 || (IKEBANA_CPU_WIDTH == 16 && !IKEBANA_CPU_X86)
/// Two registers.
template <class T>
struct pair_vec {
  static constexpr dim_t size = 2 * vec<T>::size;
  vec<T> low, high;

  IKEBANA_CPU_INLINE static pair_vec zero() { return {vec<T>::zero(), vec<T>::zero()}; }
  IKEBANA_CPU_INLINE static pair_vec broadcast(T x) {
    const vec<T> v = vec<T>::broadcast(x);
    return {v, v};
  }
  IKEBANA_CPU_INLINE static pair_vec load(const T* p) {
    return {vec<T>::load(p), vec<T>::load(p + vec<T>::size)};
  }
  IKEBANA_CPU_INLINE void store(T* p) const {
    low.store(p);
    high.store(p + vec<T>::size);
  }
  IKEBANA_CPU_INLINE static pair_vec load(const T* p, dim_t n) {
    return {vec<T>::load(p), vec<T>::load(p + vec<T>::size, n - vec<T>::size)};
  }
  IKEBANA_CPU_INLINE void store(T* p, dim_t n) const {
    low.store(p);
    high.store(p + vec<T>::size, n - vec<T>::size);
  }
  IKEBANA_CPU_INLINE friend pair_vec fma(pair_vec a, pair_vec b, pair_vec c) {
    return {fma(a.low, b.low, c.low), fma(a.high, b.high, c.high)};
  }
  IKEBANA_CPU_INLINE friend pair_vec max(pair_vec a, pair_vec b) {
    return {max(a.low, b.low), max(a.high, b.high)};
  }
};

/// The most rows of a tile of up to a register of columns, and of two.
#if IKEBANA_CPU_WIDTH == 64
inline constexpr std::size_t tiny_rows = 16, tiny_pair_rows = 12;
#elif IKEBANA_CPU_WIDTH == 32
inline constexpr std::size_t tiny_rows = 8, tiny_pair_rows = 6;
#else
inline constexpr std::size_t tiny_rows = 8, tiny_pair_rows = 8;
#endif

template <class T>
using product_function = void (*)(const T*, const T*, T*, detail::tiny_sizes, detail::tiny_steps,
                                  const gemm_epilogue<T>*);
template <class T>
IKEBANA_CPU_INLINE product_function<T> find_narrow_tiny(dim_t m, dim_t n, bool turned);
template <class T>
IKEBANA_CPU_INLINE product_function<T> find_wide_tiny(dim_t m);
/// So many bytes on.
template <class T>
IKEBANA_CPU_INLINE const T* at(const T* p, dim_t bytes) {
  return reinterpret_cast<const T*>(reinterpret_cast<const char*>(p) + bytes);
}
/// Moves a pointer by an addition alone.
template <class T>
IKEBANA_CPU_INLINE void step_by(const T*& p, dim_t bytes) {
  p = at(p, bytes);
  keep_in_register(p);
}

/// Up to a register of columns. Instructions that multiply by what they load must not have to add
/// up two registers for its address, which splits them: rows follow each other at distances that
/// the compiler knows (`Turned`), or a pointer goes from each to the next, for several terms at a
/// time.
template <class T, class V, bool Turned, std::size_t... R>
IKEBANA_CPU_INLINE void narrow_tiny_product(const T* a, const T* b, T* c, detail::tiny_sizes s,
                                            detail::tiny_steps steps, const gemm_epilogue<T>* then,
                                            std::index_sequence<R...>) {
  constexpr std::size_t rows = sizeof...(R);
  constexpr bool down = 2 * rows > tiny_rows;
  constexpr dim_t bytes = sizeof(T);
  const dim_t n = s.n(), ldc = steps.c();
  dim_t lda = steps.a() * bytes, ldb = steps.b() * bytes;
  keep_in_register(lda);
  keep_in_register(ldb);
  for (dim_t below = s.m() - dim_t{rows};;) {
    V sums[rows];
    sums[0] = V::zero();
    if (then->bias != nullptr) sums[0] = V::load(then->bias, n);
    ((sums[R] = sums[0]), ...);
    const T *from = a, *with = b;
    dim_t k = s.k();
    if constexpr (Turned) {
      for (; k > 0; --k) {
        const V columns = V::load(with, n);
        ((sums[R] = fma(V::broadcast(from[R]), columns, sums[R])), ...);
        step_by(with, ldb);
        step_by(from, lda);
      }
    } else {
      const auto add = [&]<std::size_t... P>(std::index_sequence<P...>)
          __attribute__((always_inline)) {
        V columns[sizeof...(P)];
        ((columns[P] = V::load(with, n), step_by(with, ldb)), ...);
        const T* x = from;
        const auto add_row = [&](V & sum) __attribute__((always_inline)) {
          ((sum = fma(V::broadcast(x[P]), columns[P], sum)), ...);
          step_by(x, lda);
        };
        (add_row(sums[R]), ...);
        step_by(from, dim_t{sizeof...(P)} * bytes);
        k -= sizeof...(P);
        keep_in_register(k);
      };
      while (k >= 4) add(std::make_index_sequence<4>{});
      while (k > 0) add(std::index_sequence<0>{});
    }
    if (then->function == activation::relu) ((sums[R] = max(V::zero(), sums[R])), ...);
    T* to = c;
    ((sums[R].store(to, n), to += ldc), ...);
    if (!down || below <= 0) return;
    step_by(a, dim_t{rows} * (Turned ? bytes : lda));
    c = to;
    if (below < dim_t{rows})
      return find_narrow_tiny<T>(below, n, Turned)(a, b, c, {below, n, s.k(), Turned}, steps, then);
    below -= dim_t{rows};
  }
}
template <class T, class V, bool Turned, std::size_t Rows>
void narrow_tiny_product(const T* a, const T* b, T* c, detail::tiny_sizes s,
                         detail::tiny_steps steps, const gemm_epilogue<T>* then) {
  narrow_tiny_product<T, V, Turned>(a, b, c, s, steps, then, std::make_index_sequence<Rows>{});
}

/// Two registers of columns, and more of them to the right: the last ones are one register, or
/// overlap those before. Tiles of more than half as many rows as can be follow each other
/// downwards, too.
template <class T, std::size_t... R>
IKEBANA_CPU_INLINE void wide_tiny_product(const T* a, const T* b, T* c, detail::tiny_sizes s,
                                          detail::tiny_steps steps, const gemm_epilogue<T>* then,
                                          std::index_sequence<R...>) {
  using V = pair_vec<T>;
  constexpr auto rows = static_cast<dim_t>(sizeof...(R));
  constexpr dim_t bytes = sizeof(T), width = V::size;
  constexpr bool down = 2 * sizeof...(R) > tiny_pair_rows;
  dim_t row = bytes, step = steps.a() * bytes, ldb = steps.b() * bytes, below = s.m() - rows;
  if (!s.ta()) std::swap(row, step);
  keep_in_register(row);
  keep_in_register(step);
  keep_in_register(ldb);
  const dim_t beyond = s.n() - width, n = beyond > 0 ? width : s.n(), ldc = steps.c();
  for (;;) {
    for (dim_t j = 0;;) {
      V sums[sizeof...(R)];
      sums[0] = V::zero();
      if (then->bias != nullptr) sums[0] = V::load(then->bias + j, n);
      ((sums[R] = sums[0]), ...);
      // A pointer for each three rows.
      constexpr auto pointers = static_cast<std::size_t>(rows + 2) / 3;
      const T* from[] = {(R < pointers ? at(a, static_cast<dim_t>(R * 3) * row) : nullptr)...};
      const T* with = b + j;
      for (dim_t k = s.k(); k > 0; --k) {
        const V columns = V::load(with, n);
        step_by(with, ldb);
        ((sums[R] = fma(V::broadcast(*at(from[R / 3], static_cast<dim_t>(R % 3) * row)), columns,
                        sums[R])),
         ...);
        ((R < pointers ? step_by(from[R], step) : void()), ...);
      }
      if (then->function == activation::relu) ((sums[R] = max(V::zero(), sums[R])), ...);
      T* to = c + j;
      ((sums[R].store(to, n), to += ldc), ...);
      const dim_t left = beyond - j;
      if (left <= 0) break;
      if (left <= vec<T>::size && s.k() >= 4 && then->bias == nullptr) {
        find_narrow_tiny<T>(rows, left, s.ta())(a, b + j + width, c + j + width,
                                                {rows, left, s.k(), s.ta()}, steps, then);
        break;
      }
      j += left < width ? left : width;
    }
    if (!down || below <= 0) return;
    step_by(a, rows * row);
    c += rows * ldc;
    if (below < rows)
      return find_wide_tiny<T>(below)(a, b, c, {below, s.n(), s.k(), s.ta()}, steps, then);
    below -= rows;
  }
}
template <class T, std::size_t Rows>
void wide_tiny_product(const T* a, const T* b, T* c, detail::tiny_sizes s, detail::tiny_steps steps,
                       const gemm_epilogue<T>* then) {
  wide_tiny_product<T>(a, b, c, s, steps, then, std::make_index_sequence<Rows>{});
}

template <class T, class V, std::size_t... M>
IKEBANA_CPU_INLINE product_function<T> find_narrow_tiny(dim_t m, bool turned,
                                                        std::index_sequence<M...>) {
  static constexpr product_function<T> all[][sizeof...(M)] = {
      {&narrow_tiny_product<T, V, false, M + 1>...}, {&narrow_tiny_product<T, V, true, M + 1>...}};
  return all[turned][m - 1];
}
template <class T>
IKEBANA_CPU_INLINE product_function<T> find_narrow_tiny(dim_t m, [[maybe_unused]] dim_t n,
                                                        bool turned) {
  constexpr auto most = static_cast<dim_t>(tiny_rows);
#if IKEBANA_CPU_WIDTH == 64
  if (n <= half_vec<T>::size && m <= 8)
    return find_narrow_tiny<T, half_vec<T>>(m, turned, std::make_index_sequence<8>{});
#endif
  if (m > most) m = m <= 2 * most ? (m + 1) / 2 : most;
  return find_narrow_tiny<T, vec<T>>(m, turned, std::make_index_sequence<tiny_rows>{});
}

/// Of more rows than a tile has: few columns of what is turned may be made the other way.
template <class T>
[[gnu::noinline]] void long_tiny_product(const T* a, const T* b, T* c, detail::tiny_sizes s,
                                         detail::tiny_steps steps, const gemm_epilogue<T>* then) {
  if (s.ta() && multiply_few_columns(s.m(), s.n(), s.k(), a, steps.a(), b, steps.b(), dim_t{1}, c,
                                     steps.c(), *then))
    return;
  find_narrow_tiny<T>(s.m(), s.n(), s.ta())(a, b, c, s, steps, then);
}

template <class T, std::size_t... M>
IKEBANA_CPU_INLINE product_function<T> find_wide_tiny(dim_t m, std::index_sequence<M...>) {
  static constexpr product_function<T> all[] = {&wide_tiny_product<T, M + 1>...};
  return all[m - 1];
}
template <class T>
IKEBANA_CPU_INLINE product_function<T> find_wide_tiny(dim_t m) {
  constexpr auto most = static_cast<dim_t>(tiny_pair_rows);
  if (m > most) {
    // As many each where they are few. Narrow divisions take half the time.
    const auto rows = static_cast<std::uint32_t>(m - 1),
               tiles = rows / static_cast<std::uint32_t>(most) + 1;
    m = tiles < 6 ? rows / tiles + 1 : most;
  }
  return find_wide_tiny<T>(m, std::make_index_sequence<tiny_pair_rows>{});
}

/// Sums of K terms, one or two, as is_outer says: row after row.
template <class T, std::size_t K>
[[gnu::noinline]] void outer_product(const T* a, const T* b, T* c, detail::tiny_sizes s,
                                     detail::tiny_steps steps, const gemm_epilogue<T>* then) {
  if (then->bias != nullptr || then->function != activation::none)
    return find_wide_tiny<T>(s.m())(a, b, c, s, steps, then);
  constexpr dim_t w = vec<T>::size;
  const dim_t row = s.ta() ? 1 : steps.a(), step = s.ta() ? steps.a() : 1, last = s.n() - w,
              ldc = steps.c();
  const T* const second = b + (K > 1 ? steps.b() : 0);
  for (dim_t m = s.m(); m > 0; --m, a += row, c += ldc) {
    const vec<T> x = vec<T>::broadcast(a[0]), y = vec<T>::broadcast(a[K > 1 ? step : 0]);
    const auto put = [&](dim_t j) __attribute__((always_inline)) {
      vec<T> sum = fma(x, vec<T>::load(b + j), vec<T>::zero());
      if (K > 1) sum = fma(y, vec<T>::load(second + j), sum);
      sum.store(c + j);
    };
    for (dim_t j = 0; j < last; j += w) put(j);
    put(last);
  }
}
inline constexpr std::size_t most_outer = IKEBANA_CPU_WIDTH == 64 ? 2 : 1;
/// Few terms and many columns: where the result is beyond the first-level cache, time goes into
/// writing it.
template <class T>
[[gnu::noinline]] void flat_tiny_product(const T* a, const T* b, T* c, detail::tiny_sizes s,
                                         detail::tiny_steps steps, const gemm_epilogue<T>* then) {
  const product_function<T> f = s.m() * s.n() * dim_t{sizeof(T)} <= detail::caches().first
                                    ? find_wide_tiny<T>(s.m())
                                : s.k() == 1 ? &outer_product<T, 1>
                                             : &outer_product<T, most_outer>;
  f(a, b, c, s, steps, then);
}

/// Of more columns than a register has: goes to the tiles by a jump.
template <class T>
[[gnu::noinline]] void wide_tiny_product(const T* a, const T* b, T* c, detail::tiny_sizes s,
                                         detail::tiny_steps steps, const gemm_epilogue<T>* then) {
#if IKEBANA_CPU_WIDTH >= 32
  if (s.n() >= 4 * vec<T>::size && s.k() <= dim_t{most_outer} && s.k() > 0) [[unlikely]]
    return flat_tiny_product(a, b, c, s, steps, then);
#endif
  return find_wide_tiny<T>(s.m())(a, b, c, s, steps, then);
}

template <class T>
IKEBANA_CPU_INLINE void tiny_product(const T* a, const T* b, T* c, detail::tiny_sizes s,
                                     detail::tiny_steps steps, const gemm_epilogue<T>* then) {
  const dim_t m = s.m(), n = s.n();
  if (n > vec<T>::size) return wide_tiny_product(a, b, c, s, steps, then);
  if (m > dim_t{tiny_rows}) return long_tiny_product(a, b, c, s, steps, then);
  return find_narrow_tiny<T>(m, n, s.ta())(a, b, c, s, steps, then);
}
#endif
