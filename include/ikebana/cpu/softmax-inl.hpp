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
    const vec<T> e = exp_or_zero(v - shift);
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

/// Along a strided dimension, registers hold neighbouring columns of `inner`.
template <class T>
IKEBANA_CPU_INLINE void softmax_columns(dim_t n, dim_t inner, const T* x, T* y, bool logarithm,
                                        dim_t lanes) {
  vec<T> most = vec<T>::load(x, lanes);
  for (dim_t i = 1; i < n; ++i) most = max(most, vec<T>::load(x + i * inner, lanes));
  vec<T> total = vec<T>::zero();
  for (dim_t i = 0; i < n; ++i) {
    const vec<T> e = exp_or_zero(vec<T>::load(x + i * inner, lanes) - most);
    total = total + e;
    if (!logarithm) e.store(y + i * inner, lanes);
  }
  const vec<T> shift = log(total), factor = T(1) / total;
  for (dim_t i = 0; i < n; ++i)
    (logarithm ? vec<T>::load(x + i * inner, lanes) - most - shift
               : vec<T>::load(y + i * inner, lanes) * factor)
        .store(y + i * inner, lanes);
}

/// Rows no longer than a register are turned over: lane r of columns[j] is element j of row r. A
/// row stored in part and read back at once would wait for its way to the cache.
template <class T>
IKEBANA_CPU_INLINE void load_columns(dim_t rows, dim_t n, const T* x, vec<T>* columns) {
  for (dim_t r = 0; r < rows; ++r) columns[r] = vec<T>::load(x + r * n, n);
  for (dim_t r = rows; r < vec<T>::size; ++r) columns[r] = vec<T>::zero();
  transpose_block(columns);
}
template <class T>
IKEBANA_CPU_INLINE void store_columns(dim_t rows, dim_t n, vec<T>* columns, T* y) {
  transpose_block(columns);
  for (dim_t r = 0; r < rows; ++r) columns[r].store(y + r * n, n);
}
template <class T>
IKEBANA_CPU_INLINE vec<T> maximum_of_columns(dim_t n, const vec<T>* columns) {
  vec<T> most = columns[0];
  for (dim_t j = 1; j < n; ++j) most = max(most, columns[j]);
  return most;
}

template <class T>
void softmax_short_rows(dim_t rows, dim_t n, const T* x, T* y, bool logarithm) {
  constexpr dim_t w = vec<T>::size;
  vec<T> columns[w], e[w];
  for (dim_t first = 0; first < rows; first += w, x += w * n, y += w * n) {
    const dim_t here = rows - first < w ? rows - first : w;
    load_columns(here, n, x, columns);
    const vec<T> most = maximum_of_columns(n, columns);
    vec<T> total = vec<T>::zero();
    for (dim_t j = 0; j < n; ++j) {
      e[j] = exp_or_zero(columns[j] - most);
      total = total + e[j];
    }
    if (logarithm) {
      const vec<T> l = log(total);
      for (dim_t j = 0; j < n; ++j) columns[j] = columns[j] - most - l;
    } else {
      const vec<T> f = T(1) / total;
      for (dim_t j = 0; j < n; ++j) columns[j] = e[j] * f;
    }
    store_columns(here, n, columns, y);
  }
}

/// Rows of two registers, as many together as a register has lanes.
template <class T>
void softmax_rows_of_two(dim_t rows, dim_t n, const T* x, T* y, bool logarithm) {
  constexpr dim_t w = vec<T>::size;
  const dim_t last = n - w;
  const vec<T> absent = last == w ? vec<T>::zero() : absent_lanes<T>(n);
  vec<T> values[w][2], parts[w];
  T most[w], after[w];
  for (dim_t first = 0; first < rows; first += w, x += w * n, y += w * n) {
    const dim_t here = rows - first < w ? rows - first : w;
    for (dim_t r = 0; r < here; ++r) {
      values[r][0] = vec<T>::load(x + r * n);
      values[r][1] = vec<T>::load(x + r * n + w, last) + absent;
      parts[r] = max(values[r][0], values[r][1]);
    }
    maximum_each(parts, w, here).store(most);
    for (dim_t r = 0; r < here; ++r) {
      const vec<T> m = vec<T>::broadcast(most[r]);
      vec<T> total = vec<T>::zero();
      for (int k = 0; k < 2; ++k) {
        const vec<T> d = values[r][k] - m, e = exp_or_zero(d);
        values[r][k] = logarithm ? d : e;
        total = total + e;
      }
      parts[r] = total;
    }
    const vec<T> total = sum_each(parts, w, here);
    (logarithm ? log(total) : T(1) / total).store(after);
    for (dim_t r = 0; r < here; ++r) {
      const vec<T> l = vec<T>::broadcast(after[r]);
      vec<T>* const v = values[r];
      (logarithm ? v[0] - l : v[0] * l).store(y + r * n);
      (logarithm ? v[1] - l : v[1] * l).store(y + r * n + w, last);
    }
  }
}

template <class T>
void softmax_rows(dim_t outer, dim_t n, dim_t inner, const T* x, T* y, bool logarithm) {
  if (n == 0) return;
  constexpr dim_t w = vec<T>::size;
  if (inner != 1) {
    for (dim_t o = 0; o < outer; ++o, x += n * inner, y += n * inner)
      for (dim_t j = 0; j < inner; j += w)
        softmax_columns(n, inner, x + j, y + j, logarithm, inner - j < w ? inner - j : w);
    return;
  }
  if (w > 1 && n <= w) return softmax_short_rows(outer, n, x, y, logarithm);
  if constexpr (w >= 8)
    if (n <= 2 * w) return softmax_rows_of_two(outer, n, x, y, logarithm);
  const dim_t together = rows_together<T>(n);
  const vec<T> absent = absent_lanes<T>(n);
  vec<T> parts[w];
  T most[w], last[w];
  // Exponentials of short rows, each padded to whole registers.
  T near[w * most_together<T>];
  const bool is_short = n <= most_together<T>;
  const dim_t step = is_short ? (n + w - 1) / w * w : n;
  for (dim_t first = 0; first < outer; first += together, x += together * n, y += together * n) {
    const dim_t here = outer - first < together ? outer - first : together;
    for (dim_t r = 0; r < here; ++r) parts[r] = row_maximum(n, x + r * n, absent);
    maximum_each(parts, together, here).store(most);
    T* const kept = logarithm ? nullptr : is_short ? near : y;
    for (dim_t r = 0; r < here; ++r)
      parts[r] = exp_shifted(n, x + r * n, kept == nullptr ? kept : kept + r * step,
                             vec<T>::broadcast(most[r]), absent, is_short);
    const vec<T> total = sum_each(parts, together, here);
    (logarithm ? log(total) : T(1) / total).store(last);
    for (dim_t r = 0; r < here; ++r) {
      const T* const from = logarithm ? x + r * n : kept + r * step;
      const vec<T> l = vec<T>::broadcast(last[r]), m = vec<T>::broadcast(most[r]);
      if (logarithm)
        map_terms(
            n, y + r * n, IKEBANA_CPU_TERMS { return load_lanes(from + i, lanes) - m - l; });
      else
        map_terms(
            n, y + r * n, IKEBANA_CPU_TERMS { return load_lanes(from + i, lanes) * l; });
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
  const dim_t together = rows_together<T>(n);
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
      if (logarithm)
        map_terms(
            n, dx + r * n, IKEBANA_CPU_TERMS {
              return load_lanes(given + i, lanes) - exp(load_lanes(value + i, lanes)) * total;
            });
      else
        map_terms(
            n, dx + r * n, IKEBANA_CPU_TERMS {
              return load_lanes(value + i, lanes) * (load_lanes(given + i, lanes) - total);
            });
    }
  }
}
#undef IKEBANA_CPU_TERMS
