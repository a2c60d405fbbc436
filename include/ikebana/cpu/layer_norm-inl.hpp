/// Mean and 1 / sqrt(variance + eps) of n elements.
template <class T>
struct row_statistics {
  T mean, invstd, squares;
};
template <class T>
IKEBANA_CPU_INLINE row_statistics<T> statistics_of(dim_t n, const T* x, T eps) {
  const T count = static_cast<T>(n), mean = sum_array(n, x) / count;
  const vec<T> center = vec<T>::broadcast(mean);
  const T squares = sum_terms<T>(
      n, IKEBANA_CPU_TERMS {
        const vec<T> d = load_lanes(x + i, lanes, center) - center;
        return d * d;
      });
  // Not a number where the variance is above all numbers: 0 would make a row of one overflow finite
  // and wrong.
  const double variance = static_cast<double>(squares / count);
  return {mean,
          static_cast<T>((1 + variance * 0) / __builtin_sqrt(variance + static_cast<double>(eps))),
          squares};
}

/// Of x, or of total = x + residual. Root mean square norm where `means` is null.
template <class T>
void normalize_rows(dim_t first, dim_t last, dim_t n, dim_t groups, const T* x, const T* residual,
                    T* total, const T* gamma, const T* beta, T eps, T* y, T* means, T* invstds) {
  constexpr dim_t w = vec<T>::size;
  const dim_t step = rows_together<T>(n);
  const vec<T> count = vec<T>::broadcast(static_cast<T>(n));
  const T* const values = residual == nullptr ? x : total;
  alignas(64) T parts[w * w] = {}, mean[w] = {}, invstd[w];
  for (; n != 0 && first < last; first += step) {
    const dim_t rows = last - first < step ? last - first : step;
    if (residual != nullptr) {
      const T *const a = x + first * n, *const b = residual + first * n;
      map_terms(
          rows * n, total + first * n,
          IKEBANA_CPU_TERMS { return load_lanes(a + i, lanes) + load_lanes(b + i, lanes); });
    }
    const auto mean_of_rows = [&](auto term) __attribute__((always_inline)) {
      for (dim_t r = 0; r < rows; ++r) {
        const T* const row = values + (first + r) * n;
        const vec<T> center = vec<T>::broadcast(mean[r]);
        const auto terms = IKEBANA_CPU_TERMS {
          return term(load_lanes(row + i, lanes, center), center);
        };
        (n <= w ? terms(0, n) : join_terms<T>(n, vec<T>::zero(), lane_sum{}, terms))
            .store(parts + r * w);
      }
      return joined_rows<lane_sum>(step, static_cast<const T*>(parts)) / count;
    };
    if (means != nullptr) {
      vec<T>::zero().store(mean);
      const vec<T> m =
          mean_of_rows([](vec<T> v, vec<T>) __attribute__((always_inline)) { return v; });
      m.store(mean);
      store_lanes(m, means + first, rows);
    }
    const vec<T> variance =
        mean_of_rows([](vec<T> v, vec<T> center) __attribute__((always_inline)) {
          const vec<T> d = v - center;
          return d * d;
        });
    // Not a number where the variance is above all numbers: 0 would make a row of one overflow
    // finite and wrong.
    const vec<T> inverse = fma(variance, vec<T>::zero(), vec<T>::broadcast(T(1))) /
                           sqrt(variance + vec<T>::broadcast(eps));
    inverse.store(invstd);
    store_lanes(inverse, invstds + first, rows);
    for (dim_t r = 0; r < rows; ++r) {
      const T* const row = values + (first + r) * n;
      const vec<T> center = vec<T>::broadcast(mean[r]), factor = vec<T>::broadcast(invstd[r]);
      const dim_t part = groups == 1 ? 0 : (first + r) % groups * n;
      map_terms(
          n, y + (first + r) * n, IKEBANA_CPU_TERMS {
            vec<T> v = (load_lanes(row + i, lanes) - center) * factor;
            if (gamma != nullptr) v = v * load_lanes(gamma + part + i, lanes);
            return beta != nullptr ? v + load_lanes(beta + part + i, lanes) : v;
          });
    }
  }
}

template <class T>
void normalize_groups(dim_t first, dim_t last, dim_t channels, dim_t inner, dim_t groups,
                      const T* x, const T* gamma, const T* beta, T eps, T* y, T* means, T* invstds,
                      T* variances) {
  const dim_t each = groups == 0 ? 0 : channels / groups, n = each * inner;
  for (dim_t r = first * groups; n != 0 && r < last * groups; ++r) {
    const row_statistics<T> s = statistics_of(n, x + r * n, eps);
    means[r] = s.mean;
    invstds[r] = s.invstd;
    if (variances != nullptr) variances[r] = s.squares / static_cast<T>(n > 1 ? n - 1 : 1);
    for (dim_t k = 0, c = r % groups * each; k < each; ++k, ++c)
      scale_plane(inner, x + r * n + k * inner, s.mean,
                  (gamma != nullptr ? gamma[c] : T(1)) * s.invstd, beta != nullptr ? beta[c] : T(0),
                  least_of<T>(activation::none), y + r * n + k * inner);
  }
}

/// dgamma and dbeta of rows first, first + step, ... < last, added to what is there.
template <class T>
IKEBANA_CPU_INLINE void add_row_gradients(dim_t first, dim_t last, dim_t step, dim_t n, const T* x,
                                          const T* dy, const T* means, const T* invstds, T* dgamma,
                                          T* dbeta) {
  constexpr dim_t w = vec<T>::size;
  for (dim_t j = 0; j < n; j += w) {
    const dim_t lanes = n - j < w ? n - j : w;
    vec<T> slope = vec<T>::zero(), total = slope;
    for (dim_t r = first; r < last; r += step) {
      const vec<T> g = load_lanes(dy + r * n + j, lanes);
      const vec<T> center = vec<T>::broadcast(means == nullptr ? T(0) : means[r]);
      slope = fma(g * (load_lanes(x + r * n + j, lanes) - center), vec<T>::broadcast(invstds[r]),
                  slope);
      total = total + g;
    }
    if (dgamma != nullptr) store_lanes(load_lanes(dgamma + j, lanes) + slope, dgamma + j, lanes);
    if (dbeta != nullptr) store_lanes(load_lanes(dbeta + j, lanes) + total, dbeta + j, lanes);
  }
}

/// Sums of gradients that start anew.
template <class T>
IKEBANA_CPU_INLINE void clear_sums(dim_t n, T* dgamma, T* dbeta) {
  for (T* gradient : {dgamma, dbeta})
    for (dim_t i = 0; gradient != nullptr && i < n; ++i) gradient[i] = T(0);
}

template <class T>
void normalize_rows_backward(dim_t begin, dim_t end, dim_t n, dim_t groups, const T* x, const T* dy,
                             const T* gamma, const T* means, const T* invstds, T* dx, T* dgamma,
                             T* dbeta, bool accumulate) {
  if (!accumulate) clear_sums(groups * n, dgamma, dbeta);
  // Some rows at a time, so that they are still near for dx, and that partial sums stay small.
  const dim_t step = 32 * groups;
  const T count = static_cast<T>(n);
  for (dim_t first = begin; n != 0 && first < end; first += step) {
    const dim_t last = end - first < step ? end : first + step;
    if (dgamma != nullptr || dbeta != nullptr)
      for (dim_t g = 0; g < groups; ++g)
        add_row_gradients<T>(first + g, last, groups, n, x, dy, means, invstds,
                             dgamma == nullptr ? nullptr : dgamma + g * n,
                             dbeta == nullptr ? nullptr : dbeta + g * n);
    for (dim_t r = first; dx != nullptr && r < last; ++r) {
      const T *const row = x + r * n, *const given = dy + r * n;
      const T* const weight = gamma == nullptr ? nullptr : gamma + r % groups * n;
      const vec<T> middle = vec<T>::broadcast(means == nullptr ? T(0) : means[r]);
      const auto gradient = IKEBANA_CPU_TERMS {
        const vec<T> g = load_lanes(given + i, lanes);
        return weight != nullptr ? g * load_lanes(weight + i, lanes) : g;
      };
      vec<T> all = vec<T>::zero();
      const T slope = sum_terms<T>(
                          n,
                          [&](dim_t i, dim_t lanes) __attribute__((always_inline)) {
                            const vec<T> g = gradient(i, lanes);
                            all = all + g;
                            return g * (load_lanes(row + i, lanes) - middle);
                          }) /
                      count;
      const vec<T> scale = vec<T>::broadcast(invstds[r]),
                   by = vec<T>::broadcast(-(slope * invstds[r] * invstds[r])),
                   less = vec<T>::broadcast(means == nullptr ? T(0) : sum(all) / count);
      map_terms(
          n, dx + r * n, IKEBANA_CPU_TERMS {
            return scale * fma(load_lanes(row + i, lanes) - middle, by, gradient(i, lanes) - less);
          });
    }
  }
}

template <class T>
void normalize_groups_backward(dim_t first, dim_t last, dim_t channels, dim_t inner, dim_t groups,
                               const T* x, const T* dy, const T* gamma, const T* means,
                               const T* invstds, T* dx, T* dgamma, T* dbeta, bool accumulate) {
  if (!accumulate) clear_sums(channels, dgamma, dbeta);
  const dim_t each = groups == 0 ? 0 : channels / groups, n = each * inner;
  const double count = static_cast<double>(n);
  for (dim_t r = first * groups; n != 0 && r < last * groups; ++r) {
    const double invstd = static_cast<double>(invstds[r]);
    double total = 0, total_x = 0;
    for (dim_t at = r * n, c = r % groups * each; at < (r + 1) * n; at += inner, ++c) {
      const double sum_dy = sum_of_rows(1, 0, inner, dy + at),
                   sum_x = products_of_rows(1, 0, inner, x + at, dy + at, means[r]),
                   weight = gamma != nullptr ? static_cast<double>(gamma[c]) : 1.0;
      total += weight * sum_dy;
      total_x += weight * sum_x;
      if (dgamma != nullptr) dgamma[c] += static_cast<T>(sum_x * invstd);
      if (dbeta != nullptr) dbeta[c] += static_cast<T>(sum_dy);
    }
    const vec<T> scale = vec<T>::broadcast(invstds[r]), center = vec<T>::broadcast(means[r]),
                 mean_dy = vec<T>::broadcast(static_cast<T>(total / count)),
                 slope = vec<T>::broadcast(static_cast<T>(-total_x / count * invstd * invstd));
    for (dim_t k = 0, c = r % groups * each; dx != nullptr && k < each; ++k, ++c) {
      const T *const row = x + r * n + k * inner, *const given = dy + r * n + k * inner;
      const vec<T> weight = vec<T>::broadcast(gamma != nullptr ? gamma[c] : T(1));
      map_terms(
          inner, dx + r * n + k * inner, IKEBANA_CPU_TERMS {
            return scale * fma(load_lanes(row + i, lanes) - center, slope,
                               fma(load_lanes(given + i, lanes), weight, -mean_dy));
          });
    }
  }
}
