#define IKEBANA_CPU_TERMS [=](dim_t i, dim_t lanes) __attribute__((always_inline))

/// The sum of (x - center)^2.
template <class T>
IKEBANA_CPU_INLINE double squared_distance(dim_t n, const T* x, T center) {
  const vec<T> middle = vec<T>::broadcast(center);
  return static_cast<double>(sum_terms<T>(
      n, IKEBANA_CPU_TERMS {
        const vec<T> d = load_lanes(x + i, lanes) - middle;
        // Lanes past the end hold -center.
        const vec<T> s = d * d;
        return lanes == vec<T>::size ? s : first_of(s, lanes);
      }));
}

/// Root mean square norm where `means` is null.
template <class T>
void normalize_rows(dim_t rows, dim_t n, dim_t groups, const T* x, const T* gamma, const T* beta,
                    T eps, T* y, T* means, T* invstds) {
  if (n == 0) return;
  const double count = static_cast<double>(n);
  for (dim_t r = 0; r < rows; ++r, x += n, y += n) {
    T mean{};
    if (means != nullptr)
      means[r] = mean = static_cast<T>(static_cast<double>(sum_array<T>(n, x)) / count);
    invstds[r] = static_cast<T>(
        1 / __builtin_sqrt(squared_distance<T>(n, x, mean) / count + static_cast<double>(eps)));
    const vec<T> center = vec<T>::broadcast(mean), factor = vec<T>::broadcast(invstds[r]);
    const T* weight = gamma == nullptr ? nullptr : gamma + r % groups * n;
    const T* offset = beta == nullptr ? nullptr : beta + r % groups * n;
    map_terms(
        n, y, IKEBANA_CPU_TERMS {
          vec<T> v = (load_lanes(x + i, lanes) - center) * factor;
          if (weight != nullptr) v = v * load_lanes(weight + i, lanes);
          return offset == nullptr ? v : v + load_lanes(offset + i, lanes);
        });
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

template <class T>
void normalize_rows_backward(dim_t rows, dim_t n, dim_t groups, const T* x, const T* dy,
                             const T* gamma, const T* means, const T* invstds, T* dx, T* dgamma,
                             T* dbeta, bool accumulate) {
  if (n == 0) return;
  if (!accumulate)
    for (T* gradient : {dgamma, dbeta})
      if (gradient != nullptr)
        map_terms(
            groups * n, gradient,
            [](dim_t, dim_t) __attribute__((always_inline)) { return vec<T>::zero(); });
  // Some rows at a time, so that they are still near for dx, and that partial sums stay small.
  const dim_t step = 32 * groups;
  const double count = static_cast<double>(n);
  for (dim_t first = 0; first < rows; first += step) {
    const dim_t last = rows - first < step ? rows : first + step;
    if (dgamma != nullptr || dbeta != nullptr)
      for (dim_t g = 0; g < groups; ++g)
        add_row_gradients<T>(first + g, last, groups, n, x, dy, means, invstds,
                             dgamma == nullptr ? nullptr : dgamma + g * n,
                             dbeta == nullptr ? nullptr : dbeta + g * n);
    if (dx == nullptr) continue;
    for (dim_t r = first; r < last; ++r) {
      const T *row = x + r * n, *given = dy + r * n;
      const T* weight = gamma == nullptr ? nullptr : gamma + r % groups * n;
      const vec<T> center = vec<T>::broadcast(means == nullptr ? T(0) : means[r]);
      const auto term = IKEBANA_CPU_TERMS {
        const vec<T> g = load_lanes(given + i, lanes);
        return weight == nullptr ? g : g * load_lanes(weight + i, lanes);
      };
      const double total = means == nullptr ? 0 : static_cast<double>(sum_terms<T>(n, term));
      const double total_x = static_cast<double>(sum_terms<T>(
          n, IKEBANA_CPU_TERMS { return term(i, lanes) * (load_lanes(row + i, lanes) - center); }));
      const double invstd = static_cast<double>(invstds[r]);
      const vec<T> scale = vec<T>::broadcast(invstds[r]);
      const vec<T> mean_dy = vec<T>::broadcast(static_cast<T>(total / count));
      const vec<T> slope = vec<T>::broadcast(static_cast<T>(-total_x / count * invstd * invstd));
      map_terms(
          n, dx + r * n, IKEBANA_CPU_TERMS {
            return scale *
                   fma(load_lanes(row + i, lanes) - center, slope, term(i, lanes) - mean_dy);
          });
    }
  }
}

template <class T>
void normalize_groups(dim_t batch, dim_t channels, dim_t inner, dim_t groups, const T* x,
                      const T* gamma, const T* beta, T eps, T* y, T* means, T* invstds,
                      T* variances) {
  const dim_t each = groups == 0 ? 0 : channels / groups, n = each * inner;
  if (n == 0) return;
  const double count = static_cast<double>(n);
  for (dim_t r = 0; r < batch * groups; ++r) {
    const T mean = static_cast<T>(static_cast<double>(sum_array<T>(n, x + r * n)) / count);
    const double squares = squared_distance<T>(n, x + r * n, mean);
    means[r] = mean;
    invstds[r] = static_cast<T>(1 / __builtin_sqrt(squares / count + static_cast<double>(eps)));
    if (variances != nullptr) variances[r] = static_cast<T>(squares / (n > 1 ? count - 1 : 1));
    const vec<T> center = vec<T>::broadcast(mean);
    for (dim_t k = 0; k < each; ++k) {
      const dim_t c = r % groups * each + k;
      const T* row = x + r * n + k * inner;
      const vec<T> factor = vec<T>::broadcast((gamma != nullptr ? gamma[c] : T(1)) * invstds[r]);
      const vec<T> offset = vec<T>::broadcast(beta != nullptr ? beta[c] : T(0));
      map_terms(
          inner, y + r * n + k * inner,
          IKEBANA_CPU_TERMS { return fma(load_lanes(row + i, lanes) - center, factor, offset); });
    }
  }
}

template <class T>
void normalize_groups_backward(dim_t batch, dim_t channels, dim_t inner, dim_t groups, const T* x,
                               const T* dy, const T* gamma, const T* means, const T* invstds, T* dx,
                               T* dgamma, T* dbeta, bool accumulate) {
  if (!accumulate)
    for (T* gradient : {dgamma, dbeta})
      for (dim_t c = 0; gradient != nullptr && c < channels; ++c) gradient[c] = T(0);
  const dim_t each = groups == 0 ? 0 : channels / groups, n = each * inner;
  if (n == 0) return;
  const double count = static_cast<double>(n);
  for (dim_t r = 0; r < batch * groups; ++r) {
    const vec<T> center = vec<T>::broadcast(means[r]);
    const double invstd = static_cast<double>(invstds[r]);
    double total = 0, total_x = 0;
    for (dim_t k = 0; k < each; ++k) {
      const dim_t c = r % groups * each + k;
      const T *row = x + r * n + k * inner, *given = dy + r * n + k * inner;
      const double sum_dy = static_cast<double>(sum_array<T>(inner, given));
      const double sum_x = static_cast<double>(sum_terms<T>(
          inner, IKEBANA_CPU_TERMS {
            return load_lanes(given + i, lanes) * (load_lanes(row + i, lanes) - center);
          }));
      const double weight = gamma != nullptr ? static_cast<double>(gamma[c]) : 1.0;
      total += weight * sum_dy;
      total_x += weight * sum_x;
      if (dgamma != nullptr) dgamma[c] += static_cast<T>(sum_x * invstd);
      if (dbeta != nullptr) dbeta[c] += static_cast<T>(sum_dy);
    }
    if (dx == nullptr) continue;
    const vec<T> scale = vec<T>::broadcast(invstds[r]);
    const vec<T> mean_dy = vec<T>::broadcast(static_cast<T>(total / count));
    const vec<T> slope = vec<T>::broadcast(static_cast<T>(-total_x / count * invstd * invstd));
    for (dim_t k = 0; k < each; ++k) {
      const dim_t c = r % groups * each + k;
      const T *row = x + r * n + k * inner, *given = dy + r * n + k * inner;
      const vec<T> weight = vec<T>::broadcast(gamma != nullptr ? gamma[c] : T(1));
      map_terms(
          inner, dx + r * n + k * inner, IKEBANA_CPU_TERMS {
            return scale * fma(load_lanes(row + i, lanes) - center, slope,
                               fma(load_lanes(given + i, lanes), weight, -mean_dy));
          });
    }
  }
}
#undef IKEBANA_CPU_TERMS
