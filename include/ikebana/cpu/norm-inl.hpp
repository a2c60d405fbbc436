/// The sum of f over all elements of channel c; rows are added in double, so that many of them lose
/// nothing.
template <class T, class F>
IKEBANA_CPU_INLINE double sum_channel(dim_t batch, dim_t channels, dim_t inner, dim_t c, F f) {
  double total = 0;
  for (dim_t b = 0; b < batch; ++b) {
    const dim_t row = (b * channels + c) * inner;
    total += static_cast<double>(sum_terms<T>(
        inner, [=](dim_t i, dim_t lanes)
                   __attribute__((always_inline)) { return f(row + i, lanes); }));
  }
  return total;
}

/// y[i] = f(i) for i < n; `f(i, lanes)` yields the elements i to i + lanes.
template <class T, class F>
IKEBANA_CPU_INLINE void map_terms(dim_t n, T* y, F f) {
  constexpr dim_t w = vec<T>::size;
  dim_t i = 0;
  for (; i + w <= n; i += w) f(i, w).store(y + i);
  if (i < n) f(i, n - i).store(y + i, n - i);
}

template <class T, class F>
IKEBANA_CPU_INLINE void map_channel(dim_t batch, dim_t channels, dim_t inner, dim_t c, T* y, F f) {
  for (dim_t b = 0; b < batch; ++b) {
    const dim_t row = (b * channels + c) * inner;
    map_terms(
        inner, y + row, [=](dim_t i, dim_t lanes) __attribute__((always_inline)) {
          return f(row + i, lanes);
        });
  }
}

#define IKEBANA_CPU_TERMS [=](dim_t i, dim_t lanes) __attribute__((always_inline))

template <class T>
void normalize_batch(dim_t batch, dim_t channels, dim_t inner, const T* x, const T* gamma,
                     const T* beta, T eps, T* y, T* save_mean, T* save_invstd, T* running_mean,
                     T* running_var, T momentum) {
  const double count = static_cast<double>(batch * inner);
  for (dim_t c = 0; c < channels; ++c) {
    const double mean =
        sum_channel<T>(
            batch, channels, inner, c, IKEBANA_CPU_TERMS { return load_lanes(x + i, lanes); }) /
        count;
    const vec<T> center = vec<T>::broadcast(static_cast<T>(mean));
    const double squares = sum_channel<T>(
        batch, channels, inner, c, IKEBANA_CPU_TERMS {
          const vec<T> d = load_lanes(x + i, lanes) - center;
          // Lanes past the end hold -center.
          const vec<T> s = d * d;
          return lanes == vec<T>::size ? s : first_of(s, lanes);
        });
    const double variance = squares / count;
    const double invstd = 1 / __builtin_sqrt(variance + static_cast<double>(eps));
    save_mean[c] = static_cast<T>(mean);
    save_invstd[c] = static_cast<T>(invstd);
    if (running_mean != nullptr)
      running_mean[c] = (T(1) - momentum) * running_mean[c] + momentum * static_cast<T>(mean);
    if (running_var != nullptr)
      running_var[c] = (T(1) - momentum) * running_var[c] +
                       momentum * static_cast<T>(squares / (count > 1 ? count - 1 : 1));
    const vec<T> factor = vec<T>::broadcast((gamma != nullptr ? gamma[c] : T(1)) * save_invstd[c]);
    const vec<T> offset = vec<T>::broadcast(beta != nullptr ? beta[c] : T(0));
    map_channel(
        batch, channels, inner, c, y,
        IKEBANA_CPU_TERMS { return fma(load_lanes(x + i, lanes) - center, factor, offset); });
  }
}

template <class T>
void normalize_by_running(dim_t batch, dim_t channels, dim_t inner, const T* x, const T* gamma,
                          const T* beta, T eps, const T* running_mean, const T* running_var, T* y) {
  for (dim_t c = 0; c < channels; ++c) {
    const double invstd =
        1 / __builtin_sqrt(static_cast<double>(running_var[c]) + static_cast<double>(eps));
    const vec<T> center = vec<T>::broadcast(running_mean[c]);
    const vec<T> factor =
        vec<T>::broadcast((gamma != nullptr ? gamma[c] : T(1)) * static_cast<T>(invstd));
    const vec<T> offset = vec<T>::broadcast(beta != nullptr ? beta[c] : T(0));
    map_channel(
        batch, channels, inner, c, y,
        IKEBANA_CPU_TERMS { return fma(load_lanes(x + i, lanes) - center, factor, offset); });
  }
}

/// `spread` is 1 / sqrt(variance + eps) where `through_batch`, else the running variance.
template <class T>
void normalize_backward(dim_t batch, dim_t channels, dim_t inner, const T* x, const T* dy,
                        const T* gamma, const T* means, const T* spread, T eps, bool through_batch,
                        T* dx, T* dgamma, T* dbeta, bool accumulate) {
  const double count = static_cast<double>(batch * inner);
  for (dim_t c = 0; c < channels; ++c) {
    const vec<T> center = vec<T>::broadcast(means[c]);
    const double invstd =
        through_batch
            ? static_cast<double>(spread[c])
            : 1 / __builtin_sqrt(static_cast<double>(spread[c]) + static_cast<double>(eps));
    const double factor = (gamma != nullptr ? static_cast<double>(gamma[c]) : 1.0) * invstd;
    double total = 0, total_x = 0;
    if (through_batch || dgamma != nullptr || dbeta != nullptr) {
      total = sum_channel<T>(
          batch, channels, inner, c, IKEBANA_CPU_TERMS { return load_lanes(dy + i, lanes); });
      total_x = sum_channel<T>(
          batch, channels, inner, c, IKEBANA_CPU_TERMS {
            return load_lanes(dy + i, lanes) * (load_lanes(x + i, lanes) - center);
          });
    }
    if (dgamma != nullptr)
      dgamma[c] = static_cast<T>(total_x * invstd) + (accumulate ? dgamma[c] : T(0));
    if (dbeta != nullptr) dbeta[c] = static_cast<T>(total) + (accumulate ? dbeta[c] : T(0));
    if (dx == nullptr) continue;
    const vec<T> scale = vec<T>::broadcast(static_cast<T>(factor));
    if (through_batch) {
      const vec<T> mean_dy = vec<T>::broadcast(static_cast<T>(total / count));
      const vec<T> slope = vec<T>::broadcast(static_cast<T>(-total_x / count * invstd * invstd));
      map_channel(
          batch, channels, inner, c, dx, IKEBANA_CPU_TERMS {
            return scale * fma(load_lanes(x + i, lanes) - center, slope,
                               load_lanes(dy + i, lanes) - mean_dy);
          });
    } else {
      map_channel(
          batch, channels, inner, c, dx,
          IKEBANA_CPU_TERMS { return scale * load_lanes(dy + i, lanes); });
    }
  }
}
#undef IKEBANA_CPU_TERMS
