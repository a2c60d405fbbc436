#define IKEBANA_CPU_TERMS [=](dim_t i, dim_t lanes) __attribute__((always_inline))

/// The gradients of one channel's gamma and beta, and dx = scale (slope (x - center) + dy -
/// mean_dy) as its factors.
template <class T>
struct channel_slope {
  T scale, slope, mean_dy;
};
template <class T>
IKEBANA_CPU_INLINE channel_slope<T> slope_of_channel(dim_t c, double count, double total,
                                                     double total_x, const T* gamma,
                                                     const T* spread, T eps, bool through_batch,
                                                     T* dgamma, T* dbeta, bool accumulate) {
  const auto invstd =
      static_cast<double>(through_batch ? spread[c] : inverse_of_running(spread[c], eps));
  if (dgamma != nullptr)
    dgamma[c] = static_cast<T>(total_x * invstd) + (accumulate ? dgamma[c] : T(0));
  if (dbeta != nullptr) dbeta[c] = static_cast<T>(total) + (accumulate ? dbeta[c] : T(0));
  const double factor = (gamma != nullptr ? static_cast<double>(gamma[c]) : 1.0) * invstd;
  if (!through_batch) return {static_cast<T>(factor), T(0), T(0)};
  return {static_cast<T>(factor), static_cast<T>(-total_x / count * invstd * invstd),
          static_cast<T>(total / count)};
}

/// dx = scale (slope (x - center) + dy - mean_dy) for channel c, or scale dy.
template <class T>
[[gnu::noinline]] void pass_channel(dim_t batch, dim_t channels, dim_t inner, dim_t c, const T* x,
                                    const T* dy, T center, T scale, T slope, T mean_dy,
                                    bool through_batch, T* dx) {
  const vec<T> by = vec<T>::broadcast(scale), rise = vec<T>::broadcast(slope),
               less = vec<T>::broadcast(mean_dy), middle = vec<T>::broadcast(center);
  for (dim_t b = 0; b < batch; ++b) {
    const dim_t row = (b * channels + c) * inner;
    const T *const from = x + row, *const given = dy + row;
    if (through_batch)
      map_terms(
          inner, dx + row, IKEBANA_CPU_TERMS {
            return by * fma(load_lanes(from + i, lanes) - middle, rise,
                            load_lanes(given + i, lanes) - less);
          });
    else
      map_terms(
          inner, dx + row, IKEBANA_CPU_TERMS { return by * load_lanes(given + i, lanes); });
  }
}

template <class T>
void normalize_columns_backward(dim_t rows, dim_t channels, dim_t wanted, const T* x, const T* dy,
                                const T* gamma, const T* means, const T* spread, T eps,
                                bool through_batch, T* dx, T* dgamma, T* dbeta, bool accumulate) {
  constexpr dim_t w = vec<T>::size;
  for (dim_t c = 0; c < wanted; c += w) {
    const dim_t n = wanted - c < w ? wanted - c : w;
    const T *const from = x + c, *const given = dy + c;
    const vec<T> center = load_lanes(means + c, n);
    double total[w]{}, total_x[w]{};
    if (through_batch || dgamma != nullptr || dbeta != nullptr) {
      lane_columns<T>::sums(
          rows, n, total, [=](dim_t r, dim_t lanes) __attribute__((always_inline)) {
            return load_lanes(given + r * channels, lanes);
          });
      lane_columns<T>::sums(
          rows, n, total_x, [=](dim_t r, dim_t lanes) __attribute__((always_inline)) {
            return load_lanes(given + r * channels, lanes) *
                   (load_lanes(from + r * channels, lanes) - center);
          });
    }
    T scales[w]{}, slopes[w]{}, mean_dys[w]{};
    for (dim_t l = 0; l < n; ++l) {
      const auto s =
          slope_of_channel<T>(c + l, static_cast<double>(rows), total[l], total_x[l], gamma, spread,
                              eps, through_batch, dgamma, dbeta, accumulate);
      scales[l] = s.scale;
      slopes[l] = s.slope;
      mean_dys[l] = s.mean_dy;
    }
    if (dx == nullptr) continue;
    const vec<T> scale = vec<T>::load(scales), slope = vec<T>::load(slopes),
                 mean_dy = vec<T>::load(mean_dys);
    for (dim_t r = 0; r < rows; ++r) {
      vec<T> g = load_lanes(given + r * channels, n);
      if (through_batch) g = fma(load_lanes(from + r * channels, n) - center, slope, g - mean_dy);
      store_lanes(scale * g, dx + r * channels + c, n);
    }
  }
}

/// `spread` is 1 / sqrt(variance + eps) where `through_batch`, else the running variance.
template <class T>
void normalize_backward(dim_t batch, dim_t channels, dim_t wanted, dim_t inner, const T* x,
                        const T* dy, const T* gamma, const T* means, const T* spread, T eps,
                        bool through_batch, T* dx, T* dgamma, T* dbeta, bool accumulate) {
  if (inner == 1)
    return normalize_columns_backward(batch, channels, wanted, x, dy, gamma, means, spread, eps,
                                      through_batch, dx, dgamma, dbeta, accumulate);
  for (dim_t c = 0; c < wanted; ++c) {
    const T center = means[c];
    double total = 0, total_x = 0;
    if (through_batch || dgamma != nullptr || dbeta != nullptr)
      for_each_part<T>(batch, inner, [&](dim_t first, dim_t last, dim_t begin, dim_t n) {
        const dim_t at = (first * channels + c) * inner + begin;
        const auto sums = sum_gradients(last - first, channels * inner, n, x + at, dy + at,
                                        vec<T>::broadcast(center));
        total += static_cast<double>(sum(sums.dy));
        total_x += static_cast<double>(sum(sums.dy_x));
      });
    const auto s = slope_of_channel<T>(c, static_cast<double>(batch * inner), total, total_x, gamma,
                                       spread, eps, through_batch, dgamma, dbeta, accumulate);
    if (dx != nullptr)
      pass_channel(batch, channels, inner, c, x, dy, center, s.scale, s.slope, s.mean_dy,
                   through_batch, dx);
  }
}
#undef IKEBANA_CPU_TERMS
