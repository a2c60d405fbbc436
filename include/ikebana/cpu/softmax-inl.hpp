/// exp(x - maximum) into y and its sum; -infinity past the end of x adds nothing.
template <class T>
IKEBANA_CPU_INLINE T exp_shifted(dim_t n, const T* x, T* y, vec<T> shift) {
  constexpr dim_t w = vec<T>::size;
  vec<T> total = vec<T>::zero();
  dim_t i = 0;
  for (; i + w <= n; i += w) {
    const vec<T> e = exp(vec<T>::load(x + i) - shift);
    if (y != nullptr) e.store(y + i);
    total = total + e;
  }
  T last = T(0);
  if (i < n) {
    const vec<T> e = exp(vec<T>::load(x + i, n - i) - shift);
    T lanes[w];
    e.store(lanes);
    if (y != nullptr) e.store(y + i, n - i);
    for (dim_t j = 0; j < n - i; ++j) last += lanes[j];
  }
  return sum(total) + last;
}

/// The largest of n > 0 elements; not-a-number if any is.
template <class T>
IKEBANA_CPU_INLINE T row_maximum(dim_t n, const T* x) {
  constexpr dim_t w = vec<T>::size;
  T best = x[0];
  dim_t i = 0;
  if (n >= w) {
    vec<T> m = vec<T>::load(x);
    for (i = w; i + w <= n; i += w) m = max(m, vec<T>::load(x + i));
    best = maximum(m);
  }
  for (; i < n; ++i) best = x[i] > best ? x[i] : best;
  return best;
}

template <class T>
IKEBANA_CPU_INLINE T log_one(T x) {
  T lanes[vec<T>::size];
  log(vec<T>::broadcast(x)).store(lanes);
  return lanes[0];
}

template <class T>
IKEBANA_CPU_INLINE void scale_row(dim_t n, T* y, T factor) {
  constexpr dim_t w = vec<T>::size;
  const vec<T> f = vec<T>::broadcast(factor);
  dim_t i = 0;
  for (; i + w <= n; i += w) (vec<T>::load(y + i) * f).store(y + i);
  if (i < n) (vec<T>::load(y + i, n - i) * f).store(y + i, n - i);
}
template <class T>
IKEBANA_CPU_INLINE void shift_row(dim_t n, const T* x, T* y, T most, T log_total) {
  constexpr dim_t w = vec<T>::size;
  const vec<T> m = vec<T>::broadcast(most), s = vec<T>::broadcast(log_total);
  dim_t i = 0;
  for (; i + w <= n; i += w) (vec<T>::load(x + i) - m - s).store(y + i);
  if (i < n) (vec<T>::load(x + i, n - i) - m - s).store(y + i, n - i);
}

/// Along a strided dimension, registers hold neighbouring columns of `inner`.
template <class T>
IKEBANA_CPU_INLINE void softmax_columns(dim_t n, dim_t inner, const T* x, T* y, bool logarithm,
                                        dim_t lanes) {
  vec<T> most = vec<T>::load(x, lanes);
  for (dim_t i = 1; i < n; ++i) most = max(most, vec<T>::load(x + i * inner, lanes));
  vec<T> total = vec<T>::zero();
  for (dim_t i = 0; i < n; ++i) {
    const vec<T> e = exp(vec<T>::load(x + i * inner, lanes) - most);
    total = total + e;
    if (!logarithm) e.store(y + i * inner, lanes);
  }
  const vec<T> shift = log(total), factor = T(1) / total;
  for (dim_t i = 0; i < n; ++i)
    (logarithm ? vec<T>::load(x + i * inner, lanes) - most - shift
               : vec<T>::load(y + i * inner, lanes) * factor)
        .store(y + i * inner, lanes);
}

template <class T>
void softmax_rows(dim_t outer, dim_t n, dim_t inner, const T* x, T* y, bool logarithm) {
  if (n == 0) return;
  constexpr dim_t w = vec<T>::size;
  for (dim_t o = 0; o < outer; ++o, x += n * inner, y += n * inner) {
    if (inner == 1) {
      const T most = row_maximum(n, x);
      const T total = exp_shifted(n, x, logarithm ? nullptr : y, vec<T>::broadcast(most));
      if (logarithm)
        shift_row(n, x, y, most, log_one(total));
      else
        scale_row(n, y, T(1) / total);
    } else {
      for (dim_t j = 0; j < inner; j += w)
        softmax_columns(n, inner, x + j, y + j, logarithm, inner - j < w ? inner - j : w);
    }
  }
}

template <class T>
void softmax_rows_backward(dim_t outer, dim_t n, dim_t inner, const T* y, const T* dy, T* dx,
                           bool logarithm) {
  constexpr dim_t w = vec<T>::size;
  const dim_t step = inner == 1 ? w : 1;
  for (dim_t o = 0; o < outer; ++o, y += n * inner, dy += n * inner, dx += n * inner)
    for (dim_t j = 0; j < inner; j += w) {
      // One row of neighbours along n, or a column in each lane.
      const auto lanes = [=](dim_t i) __attribute__((always_inline)) {
        const dim_t left = inner == 1 ? n - i : inner - j;
        return left < w ? left : w;
      };
      vec<T> total = vec<T>::zero();
      for (dim_t i = 0; i < n; i += step) {
        const vec<T> d = vec<T>::load(dy + i * inner + j, lanes(i));
        total = logarithm ? total + d : fma(d, vec<T>::load(y + i * inner + j, lanes(i)), total);
      }
      if (inner == 1) total = vec<T>::broadcast(sum(total));
      for (dim_t i = 0; i < n; i += step) {
        const vec<T> d = vec<T>::load(dy + i * inner + j, lanes(i)),
                     v = vec<T>::load(y + i * inner + j, lanes(i));
        (logarithm ? d - exp(v) * total : v * (d - total)).store(dx + i * inner + j, lanes(i));
      }
    }
}

template <class T>
void cross_entropy_rows(dim_t rows, dim_t classes, const T* logits, const std::int64_t* target,
                        T label_smoothing, std::int64_t ignore_index, T* losses_sum,
                        std::int64_t* counted, T* dlogits, T grad_scale) {
  constexpr dim_t w = vec<T>::size;
  T losses = T(0);
  std::int64_t count = 0;
  for (dim_t r = 0; r < rows; ++r, logits += classes) {
    T* const d = dlogits == nullptr ? nullptr : dlogits + r * classes;
    if (target[r] == ignore_index) {
      if (d != nullptr)
        for (dim_t i = 0; i < classes; i += w)
          vec<T>::zero().store(d + i, classes - i < w ? classes - i : w);
      continue;
    }
    ++count;
    const T most = row_maximum(classes, logits);
    const T of_target = logits[target[r]];
    T mean = T(0);
    if (label_smoothing != T(0)) {
      for (dim_t i = 0; i < classes; ++i) mean += logits[i] - most;
      mean /= static_cast<T>(classes);
    }
    const T total = exp_shifted(classes, logits, d, vec<T>::broadcast(most));
    const T log_total = log_one(total);
    losses += (T(1) - label_smoothing) * (log_total - (of_target - most)) +
              label_smoothing * (log_total - mean);
    if (d != nullptr) {
      const vec<T> factor = vec<T>::broadcast(grad_scale / total);
      const vec<T> smooth =
          vec<T>::broadcast(grad_scale * label_smoothing / static_cast<T>(classes));
      for (dim_t i = 0; i < classes; i += w) {
        const dim_t lanes = classes - i < w ? classes - i : w;
        (vec<T>::load(d + i, lanes) * factor - smooth).store(d + i, lanes);
      }
      d[target[r]] -= grad_scale * (T(1) - label_smoothing);
    }
  }
  *losses_sum = losses;
  *counted = count;
}
