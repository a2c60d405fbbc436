#define IKEBANA_CPU_TERMS [=](dim_t i, dim_t lanes) __attribute__((always_inline))

/// 0 in the first n % size lanes and -infinity in the others: added to the end of a row, it takes
/// them out of a maximum, and of a sum of exponentials.
template <class T>
IKEBANA_CPU_INLINE vec<T> absent_lanes(dim_t n) {
  const bits_of<T> kept = last_lanes<T>(n);
  return as<T>(bits_of<T>::broadcast(number<T>::infinity | number<T>::sign) &
               (kept ^ bits_of<T>::broadcast(-1)));
}

template <class T>
IKEBANA_CPU_INLINE vec<T> row_maximum(dim_t n, const T* x, vec<T> absent) {
  constexpr dim_t w = vec<T>::size;
  if (n < w) return vec<T>::load(x, n) + absent;
  const vec<T> least = -as<T>(bits_of<T>::broadcast(number<T>::infinity));
  return fold_lanes<T>(
      n, least, [](vec<T> a, vec<T> b) __attribute__((always_inline)) { return max(a, b); },
      IKEBANA_CPU_TERMS {
        return lanes == w ? vec<T>::load(x + i) : vec<T>::load(x + i, lanes) + absent;
      });
}
/// The sum of exp(x - shift), which becomes y where that is given, in whole registers if `padded`.
template <class T>
IKEBANA_CPU_INLINE vec<T> exp_shifted(dim_t n, const T* x, T* y, vec<T> shift, vec<T> absent,
                                      bool padded = false) {
  constexpr dim_t w = vec<T>::size;
  vec<T> total = vec<T>::zero();
  for (dim_t i = 0; i < n; i += w) {
    const dim_t lanes = n - i;
    const vec<T> v = lanes >= w ? vec<T>::load(x + i) : vec<T>::load(x + i, lanes) + absent;
    const vec<T> e = exp_of_difference(v - shift);
    if (y != nullptr) lanes >= w || padded ? e.store(y + i) : e.store(y + i, lanes);
    total = total + e;
  }
  return total;
}
// One row alone.
template <class T>
IKEBANA_CPU_INLINE T row_maximum(dim_t n, const T* x) {
  return maximum(row_maximum(n, x, absent_lanes<T>(n)));
}
template <class T>
IKEBANA_CPU_INLINE T exp_shifted(dim_t n, const T* x, T* y, vec<T> shift) {
  return sum(exp_shifted(n, x, y, shift, absent_lanes<T>(n)));
}
template <class T>
IKEBANA_CPU_INLINE void scale_row(dim_t n, T* y, T factor) {
  const vec<T> f = vec<T>::broadcast(factor);
  map_terms(
      n, y, IKEBANA_CPU_TERMS { return load_lanes(y + i, lanes) * f; });
}

/// How many exponentials may be kept beside their place.
template <class T>
inline constexpr dim_t most_apart = static_cast<dim_t>(detail::packed_b_bytes) /
                                    static_cast<dim_t>(sizeof(T));

/// Along a strided dimension, registers hold neighbouring columns of `inner`. Exponentials are kept
/// `step` apart: not in y where that has but some lanes of a register, for there each would wait
/// for the one before to be written.
template <class T>
IKEBANA_CPU_INLINE void softmax_columns(dim_t n, dim_t inner, const T* x, T* y, bool logarithm,
                                        dim_t lanes, T* kept, dim_t step) {
  vec<T> most = vec<T>::load(x, lanes);
  for (dim_t i = 1; i < n; ++i) most = max(most, vec<T>::load(x + i * inner, lanes));
  vec<T> total = vec<T>::zero();
  for (dim_t i = 0; i < n; ++i) {
    const vec<T> e = exp_of_difference(vec<T>::load(x + i * inner, lanes) - most);
    total = total + e;
    if (!logarithm) e.store(kept + i * step, lanes);
  }
  const vec<T> shift = log(total), factor = T(1) / total;
  for (dim_t i = 0; i < n; ++i)
    (logarithm ? vec<T>::load(x + i * inner, lanes) - most - shift
               : vec<T>::load(kept + i * step, lanes) * factor)
        .store(y + i * inner, lanes);
}

/// Rows of K registers, as many together as a register has lanes. The largest numbers of the next
/// ones are looked for before the last pass over these, which then waits for nothing.
template <class T, int K>
void softmax_short_rows(dim_t rows, dim_t n, const T* x, T* y, bool logarithm) {
  constexpr dim_t w = vec<T>::size;
  const dim_t last = n - (K - 1) * w;
  const vec<T> absent = last == w ? vec<T>::zero() : absent_lanes<T>(n);
  vec<T> given[2][w][K], powers[w][K];
  T most[2][w], after[w];
  for (dim_t turn = 0, done = 0;; turn ^= 1) {
    // given[turn], most[turn]: of these rows.
    for (dim_t r = 0; r < done; ++r)
      for (int k = 0; k < K; ++k)
        powers[r][k] = exp_of_difference(given[turn][r][k] - vec<T>::broadcast(most[turn][r]));
    for (dim_t r = done; r < w; ++r)
      for (int k = 0; k < K; ++k) powers[r][k] = vec<T>::zero();
    rows -= done;
    const dim_t next = rows < w ? rows : w;
    for (dim_t r = 0; r < next; ++r, x += n) {
      vec<T>* const v = given[turn ^ 1][r];
      if constexpr (K > 1) v[0] = vec<T>::load(x);
      v[K - 1] = vec<T>::load(x + (K - 1) * w, last) + absent;
    }
    for (dim_t r = next; r < w; ++r)
      for (int k = 0; k < K; ++k) given[turn ^ 1][r][k] = vec<T>::zero();
    if (next > 0)
      largest_lanes<T>([&](dim_t r) __attribute__((always_inline)) {
        const vec<T>* const v = given[turn ^ 1][r];
        return K == 1 ? v[0] : max(v[0], v[K - 1]);
      }).store(most[turn ^ 1]);
    if (done > 0) {
      const vec<T> total = sum_lanes<T>([&](dim_t r) __attribute__((always_inline)) {
        return K == 1 ? powers[r][0] : powers[r][0] + powers[r][K - 1];
      });
      (logarithm ? log(total) : T(1) / total).store(after);
      for (dim_t r = 0; r < done; ++r, y += n) {
        const vec<T> by = vec<T>::broadcast(after[r]), shift = vec<T>::broadcast(most[turn][r]);
        const auto result = [&](int k) __attribute__((always_inline)) {
          return logarithm ? given[turn][r][k] - shift - by : powers[r][k] * by;
        };
        if constexpr (K > 1) result(0).store(y);
        result(K - 1).store(y + (K - 1) * w, last);
      }
    }
    if (next == 0) return;
    done = next;
  }
}

template <class T>
void softmax_rows(dim_t outer, dim_t n, dim_t inner, const T* x, T* y, bool logarithm) {
  if (n == 0) return;
  constexpr dim_t w = vec<T>::size;
  if (inner != 1) {
    T* const apart =
        inner % w != 0 && n * w <= most_apart<T> ? detail::thread_scratch<T>() : nullptr;
    for (dim_t o = 0; o < outer; ++o, x += n * inner, y += n * inner)
      for (dim_t j = 0; j < inner; j += w) {
        const bool whole = inner - j >= w, in_place = whole || apart == nullptr;
        softmax_columns(n, inner, x + j, y + j, logarithm, whole ? w : inner - j,
                        in_place ? y + j : apart, in_place ? inner : w);
      }
    return;
  }
  if constexpr (w >= 8) {
    if (n <= w) return softmax_short_rows<T, 1>(outer, n, x, y, logarithm);
    if (n <= 2 * w) return softmax_short_rows<T, 2>(outer, n, x, y, logarithm);
  }
  // One loop over the exponentials of a row, the maximum of the row after the next, and the last
  // pass of the row before the last: what waits for memory beside what computes, and no row waits
  // for its own sum.
  const dim_t last = (n - 1) % w + 1, full = n - last;
  const vec<T> absent = last == w ? vec<T>::zero() : absent_lanes<T>(n);
  constexpr dim_t early = 2;
  vec<T> most[2 * early], after[2 * early];
  for (dim_t r = 0; r < early && r < outer; ++r)
    most[r] = vec<T>::broadcast(row_maximum(n, x + r * n));
  for (dim_t r = 0; r < outer + early; ++r) {
    const T* const next = r + early < outer ? x + (r + early) * n : nullptr;
    const T* const here = r < outer ? x + r * n : nullptr;
    T* const now = y + r * n;
    T* const before = r >= early ? y + (r - early) * n : nullptr;
    const T* const kept = logarithm ? x + (r - early) * n : before;
    const vec<T> shift = most[r & 3], shift_before = most[(r - early) & 3],
                 by = after[(r - early) & 3];
    vec<T> largest = -as<T>(bits_of<T>::broadcast(number<T>::infinity)), total = vec<T>::zero();
    const auto step = [&](dim_t i, dim_t lanes) __attribute__((always_inline)) {
      const auto read = [&](const T* row) __attribute__((always_inline)) {
        const vec<T> v = load_lanes(row + i, lanes);
        return lanes == w ? v : v + absent;
      };
      // What is stored comes last, for it may lie a multiple of a page from what is read.
      if (next != nullptr) largest = max(largest, read(next));
      const vec<T> v = before != nullptr ? load_lanes(kept + i, lanes) : vec<T>::zero();
      if (here != nullptr) {
        const vec<T> e = exp_of_difference(read(here) - shift);
        if (!logarithm) store_lanes(e, now + i, lanes);
        total = total + e;
      }
      if (before != nullptr)
        store_lanes(logarithm ? v - shift_before - by : v * by, before + i, lanes);
    };
    for (dim_t i = 0; i < full; i += w) step(i, w);
    step(full, last);
    const T all = sum(total);
    after[r & 3] = logarithm ? log(vec<T>::broadcast(all)) : vec<T>::broadcast(1 / all);
    most[(r + early) & 3] = vec<T>::broadcast(maximum(largest));
  }
}

template <class T>
IKEBANA_CPU_INLINE void softmax_columns_backward(dim_t n, dim_t inner, const T* y, const T* dy,
                                                 T* dx, bool logarithm, dim_t lanes) {
  vec<T> total = vec<T>::zero();
  for (dim_t i = 0; i < n; ++i) {
    const vec<T> d = vec<T>::load(dy + i * inner, lanes);
    total = logarithm ? total + d : fma(d, vec<T>::load(y + i * inner, lanes), total);
  }
  for (dim_t i = 0; i < n; ++i) {
    const vec<T> d = vec<T>::load(dy + i * inner, lanes), v = vec<T>::load(y + i * inner, lanes);
    (logarithm ? d - exp(v) * total : v * (d - total)).store(dx + i * inner, lanes);
  }
}

template <class T>
void softmax_rows_backward(dim_t outer, dim_t n, dim_t inner, const T* y, const T* dy, T* dx,
                           bool logarithm) {
  if (n == 0) return;
  constexpr dim_t w = vec<T>::size;
  if (inner != 1) {
    for (dim_t o = 0; o < outer; ++o, y += n * inner, dy += n * inner, dx += n * inner)
      for (dim_t j = 0; j < inner; j += w)
        softmax_columns_backward(n, inner, y + j, dy + j, dx + j, logarithm,
                                 inner - j < w ? inner - j : w);
    return;
  }
  // Rows that stay, with what becomes of them, in the first-level cache.
  constexpr dim_t near = dim_t{32} * 1024 / static_cast<dim_t>(sizeof(T));
  dim_t together = rows_together<T>(n);
  while (together > 1 && together < w && 3 * together * n > near) together /= 2;
  vec<T> parts[w];
  T totals[w];
  for (dim_t first = 0; first < outer;
       first += together, y += together * n, dy += together * n, dx += together * n) {
    const dim_t here = outer - first < together ? outer - first : together;
    for (dim_t r = 0; r < here; ++r) {
      const T *given = dy + r * n, *value = y + r * n;
      parts[r] = logarithm
                     ? sum_by_lanes<T>(
                           n, IKEBANA_CPU_TERMS { return load_lanes(given + i, lanes); })
                     : sum_by_lanes<T>(
                           n, IKEBANA_CPU_TERMS {
                             return load_lanes(given + i, lanes) * load_lanes(value + i, lanes);
                           });
    }
    sum_each(parts, together, here).store(totals);
    for (dim_t r = 0; r < here; ++r) {
      const T *given = dy + r * n, *value = y + r * n;
      const vec<T> total = vec<T>::broadcast(totals[r]);
      if (logarithm) {
        map_terms(
            n, dx + r * n, IKEBANA_CPU_TERMS {
              return load_lanes(given + i, lanes) - exp(load_lanes(value + i, lanes)) * total;
            });
      } else {
        T* result = dx + r * n;
        dim_t left = n;
#if IKEBANA_CPU_WIDTH == 64
        if (const dim_t lead = lanes_to_line(n, static_cast<const T*>(result)); lead != 0)
            [[unlikely]] {
          (load_lanes(value, lead) * (load_lanes(given, lead) - total)).store(result, lead);
          value += lead, given += lead, result += lead, left -= lead;
        }
#endif
        map_terms(
            left, result, IKEBANA_CPU_TERMS {
              return load_lanes(value + i, lanes) * (load_lanes(given + i, lanes) - total);
            });
      }
    }
  }
}
#undef IKEBANA_CPU_TERMS
