/// The largest number of a row by lanes.
template <class T>
IKEBANA_CPU_INLINE vec<T> row_maximum(dim_t n, const T* x) {
  const vec<T> least = vec<T>::broadcast(-static_cast<T>(__builtin_inff()));
  return join_terms<T>(
      n, least, lane_maximum{}, IKEBANA_CPU_TERMS { return load_lanes(x + i, lanes, least); });
}
/// The sum of exp(x - shift) by lanes; the exponentials become y where that is given, in whole
/// registers if `padded`.
template <class T>
IKEBANA_CPU_INLINE vec<T> exp_shifted(dim_t n, const T* x, T* y, T shift, bool padded = false) {
  constexpr dim_t w = vec<T>::size;
  const vec<T> least = vec<T>::broadcast(-static_cast<T>(__builtin_inff()));
  vec<T> total = vec<T>::zero();
  for (dim_t i = 0; i < n; i += w) {
    const dim_t lanes = n - i < w ? n - i : w;
    const vec<T> e = exp_of_difference(load_lanes(x + i, lanes, least) - shift);
    if (y != nullptr) padded ? e.store(y + i) : store_lanes(e, y + i, lanes);
    total = total + e;
  }
  return total;
}
/// Where the exponentials of rows that are taken together are kept, `step` apart: in whole
/// registers in the thread's scratch memory, or where the results come to stand if they do not fit.
template <class T>
struct kept_rows {
  T* apart;
  dim_t step;
  IKEBANA_CPU_INLINE kept_rows(dim_t together, dim_t n, T* parts) : apart(nullptr), step(n) {
    constexpr dim_t w = vec<T>::size;
    const dim_t whole = (n + w - 1) / w * w;
    if (together * whole > static_cast<dim_t>(detail::packed_b_bytes / sizeof(T))) return;
    apart = n <= w ? parts : detail::thread_scratch<T>();
    step = whole;
  }
  IKEBANA_CPU_INLINE T* of(T* results) const { return apart != nullptr ? apart : results; }
};
/// The largest number of each row, of as many `together` as they are joined.
template <class T>
[[gnu::noinline]] void row_maxima(dim_t rows, dim_t together, dim_t n, const T* x, T* parts,
                                  T* most) {
  constexpr dim_t w = vec<T>::size;
  const vec<T> least = vec<T>::broadcast(-static_cast<T>(__builtin_inff()));
  for (dim_t r = 0; r < rows; ++r)
    (n <= w ? load_lanes(x + r * n, n, least) : row_maximum(n, x + r * n)).store(parts + r * w);
  joined_rows<lane_maximum>(together, static_cast<const T*>(parts)).store(most);
}
/// The sums of their exponentials, which become `kept`, if that is given, `step` apart.
template <class T>
[[gnu::noinline]] void row_sums(dim_t rows, dim_t together, dim_t n, const T* x, const T* most,
                                T* kept, dim_t step, T* parts, T* sums) {
  constexpr dim_t w = vec<T>::size;
  const vec<T> least = vec<T>::broadcast(-static_cast<T>(__builtin_inff()));
  for (dim_t r = 0; r < rows; ++r)
    (n <= w
         ? exp_of_difference(load_lanes(x + r * n, n, least) - most[r])
         : exp_shifted(n, x + r * n, kept == nullptr ? kept : kept + r * step, most[r], step > n))
        .store(parts + r * w);
  joined_rows<lane_sum>(together, static_cast<const T*>(parts)).store(sums);
}
template <class T>
IKEBANA_CPU_INLINE void scale_row(dim_t n, T* y, T factor) {
  const vec<T> f = vec<T>::broadcast(factor);
  map_terms(
      n, y, IKEBANA_CPU_TERMS { return load_lanes(y + i, lanes) * f; });
}

/// Along a strided dimension, registers hold neighbouring columns of `inner`.
template <class T>
IKEBANA_CPU_INLINE void softmax_columns(dim_t n, dim_t inner, const T* x, T* y, bool logarithm,
                                        dim_t lanes) {
  vec<T> most = vec<T>::load(x, lanes);
  for (dim_t i = 1; i < n; ++i) most = max(most, vec<T>::load(x + i * inner, lanes));
  vec<T> total = vec<T>::zero();
  for (dim_t i = 0; i < n; ++i) {
    const vec<T> e = exp_of_difference(vec<T>::load(x + i * inner, lanes) - most);
    total = total + e;
    if (!logarithm) e.store(y + i * inner, lanes);
  }
  const vec<T> shift = log(total), factor = T(1) / total;
  for (dim_t i = 0; i < n; ++i)
    (logarithm ? vec<T>::load(x + i * inner, lanes) - most - shift
               : vec<T>::load(y + i * inner, lanes) * factor)
        .store(y + i * inner, lanes);
}

/// Of long rows: one loop over the exponentials of a row, the maximum of the row after the next,
/// and the last pass of the row before the last: what waits for memory beside what computes, and no
/// row waits for its own sum.
template <class T>
[[gnu::noinline]] void softmax_long_rows(dim_t rows, dim_t n, const T* x, T* y, bool logarithm) {
  constexpr dim_t w = vec<T>::size, early = 2;
  const vec<T> least = vec<T>::broadcast(-static_cast<T>(__builtin_inff()));
  vec<T> most[2 * early] = {}, after[2 * early] = {};
  for (dim_t r = -early; r < rows + early; ++r) {
    const T* const next = r + early < rows ? x + (r + early) * n : nullptr;
    const T* const here = r >= 0 && r < rows ? x + r * n : nullptr;
    T* const now = y + r * n;
    T* const before = r >= early ? y + (r - early) * n : nullptr;
    const T* const kept = logarithm ? x + (r - early) * n : before;
    const vec<T> shift = most[r & 3], shift_before = most[(r - early) & 3],
                 by = after[(r - early) & 3];
    vec<T> largest = least, total = vec<T>::zero();
    const auto step = [&](dim_t i, dim_t lanes) __attribute__((always_inline)) {
      // What is stored comes last, for it may lie a multiple of a page from what is read.
      if (next != nullptr) largest = max(largest, load_lanes(next + i, lanes, least));
      const vec<T> v = before != nullptr ? load_lanes(kept + i, lanes) : vec<T>::zero();
      if (here != nullptr) {
        const vec<T> e = exp_of_difference(load_lanes(here + i, lanes, least) - shift);
        if (!logarithm) store_lanes(e, now + i, lanes);
        total = total + e;
      }
      if (before != nullptr)
        store_lanes(logarithm ? v - shift_before - by : v * by, before + i, lanes);
    };
    dim_t i = 0;
    for (; i + w <= n; i += w) step(i, w);
    if (i < n) step(i, n - i);
    const vec<T> all = vec<T>::broadcast(sum(total));
    after[r & 3] = logarithm ? log(all) : T(1) / all;
    most[(r + early) & 3] = vec<T>::broadcast(maximum(largest));
  }
}

template <class T>
void softmax_rows(dim_t first, dim_t last, dim_t n, dim_t inner, const T* x, T* y, bool logarithm) {
  constexpr dim_t w = vec<T>::size;
  if (n == 0) return;
  const dim_t size = n * inner;
  if (inner != 1) {
    for (; first < last; ++first)
      for (dim_t j = 0; j < inner; j += w)
        softmax_columns(n, inner, x + first * size + j, y + first * size + j, logarithm,
                        inner - j < w ? inner - j : w);
    return;
  }
  x += first * n, y += first * n;
  dim_t rows = last - first;
  const dim_t together = n > 16 * w ? 1 : w;
  if (together == 1 && rows >= 4) return softmax_long_rows(rows, n, x, y, logarithm);
  alignas(64) T parts[w * w] = {}, ahead[w * w] = {}, most[2][w], sums[w], after[w];
  const kept_rows<T> kept(together, n, parts);
  row_maxima(rows < together ? rows : together, together, n, x, ahead, most[0]);
  for (int turn = 0; rows > 0; turn ^= 1, x += together * n, y += together * n) {
    const dim_t here = rows < together ? rows : together;
    rows -= here;
    T* const powers = logarithm ? nullptr : kept.of(y);
    row_sums(here, together, n, x, most[turn], powers, kept.step, parts, sums);
    const vec<T> totals = vec<T>::load(sums);
    (logarithm ? log(totals) : T(1) / totals).store(after);
    // The next ones, so that the last pass over these waits for nothing.
    if (rows > 0)
      row_maxima(rows < together ? rows : together, together, n, x + together * n, ahead,
                 most[turn ^ 1]);
    for (dim_t r = 0; r < here; ++r) {
      const T* const from = x + r * n;
      const vec<T> shift = vec<T>::broadcast(most[turn][r]), by = vec<T>::broadcast(after[r]);
      if (logarithm)
        map_terms(
            n, y + r * n, IKEBANA_CPU_TERMS { return load_lanes(from + i, lanes) - shift - by; });
      else
        map_terms(
            n, y + r * n,
            IKEBANA_CPU_TERMS { return load_lanes(powers + r * kept.step + i, lanes) * by; });
    }
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
void softmax_rows_backward(dim_t first, dim_t last, dim_t n, dim_t inner, const T* y, const T* dy,
                           T* dx, bool logarithm) {
  constexpr dim_t w = vec<T>::size;
  const dim_t size = n * inner;
  if (n == 0) return;
  y += first * size, dy += first * size, dx += first * size;
  for (; first < last; ++first, y += size, dy += size, dx += size) {
    if (inner != 1) {
      for (dim_t j = 0; j < inner; j += w)
        softmax_columns_backward(n, inner, y + j, dy + j, dx + j, logarithm,
                                 inner - j < w ? inner - j : w);
      continue;
    }
    const vec<T> total = vec<T>::broadcast(logarithm ? sum_array(n, dy) : dot_arrays(n, dy, y));
    if (logarithm)
      map_terms(
          n, dx, IKEBANA_CPU_TERMS {
            return load_lanes(dy + i, lanes) - exp(load_lanes(y + i, lanes)) * total;
          });
    else
      map_terms(
          n, dx, IKEBANA_CPU_TERMS {
            return load_lanes(y + i, lanes) * (load_lanes(dy + i, lanes) - total);
          });
  }
}

// ---- cross entropy ----

template <class T>
void cross_entropy_rows(dim_t rows, dim_t classes, const T* logits, const std::int64_t* target,
                        T label_smoothing, std::int64_t ignore_index, T* losses_sum,
                        std::int64_t* counted, T* dlogits, T grad_scale) {
  const T rest = T(1) - label_smoothing;
  const T smoothed = label_smoothing / static_cast<T>(classes);
  const vec<T> smooth = vec<T>::broadcast(grad_scale * smoothed);
  // In double, so that many rows lose nothing.
  double losses = 0;
  std::int64_t count = 0;
  constexpr dim_t w = vec<T>::size;
  const dim_t step = rows_together<T>(classes);
  alignas(64) T parts[w * w] = {}, most[w], sums[w], logs[w], factors[w];
  T of_target[w] = {}, mean[w] = {};
  const kept_rows<T> kept(step, classes, parts);
  for (dim_t first = 0; first < rows; first += step) {
    const dim_t here = rows - first < step ? rows - first : step;
    const T* const x = logits + first * classes;
    T* const dx = dlogits == nullptr ? nullptr : dlogits + first * classes;
    row_maxima(here, step, classes, x, parts, most);
    // From here on the logits may be overwritten.
    for (dim_t r = 0; r < here; ++r) {
      const T* const row = x + r * classes;
      if (target[first + r] == ignore_index) continue;
      of_target[r] = row[target[first + r]] - most[r];
      const vec<T> shift = vec<T>::broadcast(most[r]);
      if (label_smoothing != T(0))
        mean[r] =
            sum_terms<T>(
                classes, IKEBANA_CPU_TERMS { return load_lanes(row + i, lanes, shift) - shift; }) /
            static_cast<T>(classes);
    }
    T* const powers = dx == nullptr ? nullptr : kept.of(dx);
    row_sums(here, step, classes, x, most, powers, kept.step, parts, sums);
    const vec<T> totals = vec<T>::load(sums);
    log(totals).store(logs);
    (grad_scale / totals).store(factors);
    for (dim_t r = 0; r < here; ++r) {
      const std::int64_t label = target[first + r];
      T* const d = dx == nullptr ? nullptr : dx + r * classes;
      if (label == ignore_index) {
        for (dim_t i = 0; d != nullptr && i < classes; ++i) d[i] = T(0);
        continue;
      }
      ++count;
      losses += static_cast<double>((logs[r] - of_target[r]) * rest +
                                    (logs[r] - mean[r]) * label_smoothing);
      if (d == nullptr) continue;
      const vec<T> factor = vec<T>::broadcast(factors[r]);
      const T* const power = powers + r * kept.step;
      const T of_label = power[label] * factors[r];
      map_terms(
          classes, d, IKEBANA_CPU_TERMS { return load_lanes(power + i, lanes) * factor - smooth; });
      d[label] = of_label - grad_scale * (smoothed + rest);
    }
  }
  *losses_sum = static_cast<T>(losses);
  *counted = count;
}
