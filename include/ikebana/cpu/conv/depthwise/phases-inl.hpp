// Rows of depthwise convolutions from copies of them (depthwise/phases.hpp).

#if IKEBANA_CPU_WIDTH == 32 || IKEBANA_CPU_WIDTH == 64
/// sums[R] += the terms of one kind, a register of positions each.
template <class T, std::size_t... R>
IKEBANA_CPU_INLINE void add_terms(const detail::depthwise_copies<T>& job, int kind, const T* x,
                                  const T* w, vec<T>* sums, std::index_sequence<R...>) {
  constexpr dim_t size = vec<T>::size;
  const auto* const end = job.terms[kind] + job.counts[kind];
  for (const auto* t = job.terms[kind]; t < end; ++t) {
    const vec<T> factor = vec<T>::broadcast(w[t->b]);
    const T* const met = x + t->a;
    ((sums[R] = fma(factor, vec<T>::load(met + static_cast<dim_t>(R) * size), sums[R])), ...);
  }
}
/// A register of results for each of R, from j on.
template <class T, std::size_t... R>
IKEBANA_CPU_INLINE void convolve_copied(const detail::depthwise_copies<T>& job, const T* x,
                                        const T* w, vec<T> start, T* out, dim_t lanes,
                                        std::index_sequence<R...> all) {
  constexpr dim_t size = vec<T>::size;
  vec<T> sums[] = {(static_cast<void>(R), start)...};
  add_terms(job, 0, x, w, sums, all);
  if (job.relu) ((sums[R] = max(vec<T>::zero(), sums[R])), ...);
  if (lanes >= static_cast<dim_t>(sizeof...(R)) * size)
    (sums[R].store(out + static_cast<dim_t>(R) * size), ...);
  else
    sums[0].store(out, lanes);
}
template <class T>
[[gnu::noinline]] void convolve_copies(const detail::depthwise_copies<T>& job) {
  constexpr dim_t w = vec<T>::size;
  for (dim_t row = 0; row < job.rows; ++row) {
    const T *x = job.x + row * job.x_step, *factors = job.w + row * job.w_step;
    T* out = job.out + row * job.out_step;
    const vec<T> start = vec<T>::broadcast(job.bias != nullptr ? job.bias[row] : T(0));
    const auto convolve = [&](dim_t left, auto registers) __attribute__((always_inline)) {
      constexpr std::size_t n = decltype(registers)::value;
      convolve_copied(job, x, factors, start, out, left, std::make_index_sequence<n>{});
      x += static_cast<dim_t>(n) * w;
      out += static_cast<dim_t>(n) * w;
    };
    using std::integral_constant;
    dim_t left = job.length;
    for (; left >= 8 * w; left -= 8 * w) convolve(left, integral_constant<std::size_t, 8>{});
    for (; left >= 3 * w; left -= 3 * w) convolve(left, integral_constant<std::size_t, 3>{});
    for (; left > 0; left -= w) convolve(left, integral_constant<std::size_t, 1>{});
  }
}

/// Registers of even and odd results, put side by side.
template <class T, std::size_t... R>
IKEBANA_CPU_INLINE void spread_copied(const detail::depthwise_copies<T>& job, const T* x,
                                      const T* w, vec<T> start, T* out, dim_t lanes,
                                      std::index_sequence<R...> all) {
  constexpr dim_t size = vec<T>::size;
  vec<T> even[] = {(static_cast<void>(R), start)...}, odd[] = {(static_cast<void>(R), start)...};
  add_terms(job, 0, x, w, even, all);
  add_terms(job, 1, x, w, odd, all);
  const auto put = [&](dim_t r, vec<T> a, vec<T> b) __attribute__((always_inline)) {
    const auto both = interleave_pairs(a, b, lane_sequence<T>{});
    T* const at = out + 2 * r * size;
    if (lanes >= 2 * static_cast<dim_t>(sizeof...(R)) * size) {
      both.even.store(at);
      both.odd.store(at + size);
    } else if (lanes > size) {
      both.even.store(at);
      both.odd.store(at + size, lanes - size);
    } else {
      both.even.store(at, lanes);
    }
  };
  (put(static_cast<dim_t>(R), even[R], odd[R]), ...);
}
template <class T>
[[gnu::noinline]] void spread_copies(const detail::depthwise_copies<T>& job) {
  constexpr dim_t w = vec<T>::size;
  for (dim_t row = 0; row < job.rows; ++row) {
    const T *x = job.x + row * job.x_step, *factors = job.w + row * job.w_step;
    T* out = job.out + row * job.out_step;
    const vec<T> start = vec<T>::broadcast(job.bias != nullptr ? job.bias[row] : T(0));
    const auto spread = [&](dim_t left, auto registers) __attribute__((always_inline)) {
      constexpr std::size_t n = decltype(registers)::value;
      spread_copied(job, x, factors, start, out, left, std::make_index_sequence<n>{});
      x += static_cast<dim_t>(n) * w;
      out += static_cast<dim_t>(2 * n) * w;
    };
    using std::integral_constant;
    dim_t left = job.length;
    for (; left >= 8 * w; left -= 8 * w) spread(left, integral_constant<std::size_t, 4>{});
    for (; left > 0; left -= 2 * w) spread(left, integral_constant<std::size_t, 1>{});
  }
}

/// sums of as many terms as K, of which the first `count` are wanted.
template <class T, std::size_t... K>
IKEBANA_CPU_INLINE void add_copied(dim_t length, const T* dy, const T* x,
                                   const detail::lane_term* terms, dim_t count, T* to,
                                   std::index_sequence<K...>) {
  constexpr dim_t w = vec<T>::size;
  const auto at = [&](std::size_t k) {
    const auto i = static_cast<dim_t>(k);
    return i < count ? i : count - 1;
  };
  const T* const met[] = {x + terms[at(K)].a...};
  vec<T> sums[] = {vec<T>::load(to + at(K) * w)...},
         more[] = {(static_cast<void>(K), vec<T>::zero())...};
  dim_t j = 0;
  for (; j + 2 * w <= length; j += 2 * w) {
    const vec<T> given = vec<T>::load(dy + j), next = vec<T>::load(dy + j + w);
    ((sums[K] = fma(given, vec<T>::load(met[K] + j), sums[K])), ...);
    ((more[K] = fma(next, vec<T>::load(met[K] + j + w), more[K])), ...);
  }
  for (; j < length; j += w) {
    const dim_t lanes = length - j;
    const vec<T> given = load_some(dy + j, lanes);
    ((sums[K] = fma(given, load_some(met[K] + j, lanes), sums[K])), ...);
  }
  const auto put = [&](std::size_t k) __attribute__((always_inline)) {
    if (static_cast<dim_t>(k) < count) (sums[k] + more[k]).store(to + static_cast<dim_t>(k) * w);
  };
  (put(K), ...);
}
template <class T>
[[gnu::noinline]] void gradients_of_copies(const detail::depthwise_copies<T>& job) {
  const dim_t taps = job.counts[0];
  for (dim_t row = 0; row < job.rows; ++row) {
    const T *x = job.x + row * job.x_step, *dy = job.dy + row * job.out_step;
    T* sums = job.sums + row * taps * vec<T>::size;
    const auto* terms = job.terms[0];
    for (dim_t left = taps; left > 0;) {
      const dim_t some = left <= 3 ? 3 : 5;
      if (some == 3)
        add_copied(job.length, dy, x, terms, left, sums, std::make_index_sequence<3>{});
      else
        add_copied(job.length, dy, x, terms, left, sums, std::make_index_sequence<5>{});
      left -= some;
      terms += some;
      sums += some * vec<T>::size;
    }
  }
}
#endif
