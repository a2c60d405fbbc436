#define IKEBANA_CPU_TERMS [=](dim_t i, dim_t lanes) __attribute__((always_inline))

template <class T>
IKEBANA_CPU_INLINE void add_lanes(vec<T> x, T* to, dim_t lanes) {
  store_lanes(load_lanes(to, lanes) + x, to, lanes);
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
    if (dgamma != nullptr) add_lanes(slope, dgamma + j, lanes);
    if (dbeta != nullptr) add_lanes(total, dbeta + j, lanes);
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
  const dim_t together = rows_together<T>(n);
  const vec<T> count = vec<T>::broadcast(static_cast<T>(n));
  vec<T> parts[vec<T>::size], slopes[vec<T>::size];
  T mean_dy[vec<T>::size] = {}, slope[vec<T>::size];
  for (dim_t first = 0; first < rows; first += step) {
    const dim_t last = rows - first < step ? rows : first + step;
    if (dgamma != nullptr || dbeta != nullptr)
      for (dim_t g = 0; g < groups; ++g)
        add_row_gradients<T>(first + g, last, groups, n, x, dy, means, invstds,
                             dgamma == nullptr ? nullptr : dgamma + g * n,
                             dbeta == nullptr ? nullptr : dbeta + g * n);
    if (dx == nullptr) continue;
    for (dim_t from = first; from < last; from += together) {
      const dim_t here = last - from < together ? last - from : together;
      const auto part = [=](dim_t r) __attribute__((always_inline)) {
        return gamma == nullptr ? nullptr : gamma + (groups == 1 ? 0 : (from + r) % groups * n);
      };
      const auto center = [=](dim_t r) __attribute__((always_inline)) {
        return vec<T>::broadcast(means == nullptr ? T(0) : means[from + r]);
      };
      for (dim_t r = 0; r < here; ++r) {
        const T *row = x + (from + r) * n, *given = dy + (from + r) * n, *weight = part(r);
        const vec<T> middle = center(r);
        vec<T> all = vec<T>::zero();
        slopes[r] = sum_by_lanes<T>(
            n, [&](dim_t i, dim_t lanes) __attribute__((always_inline)) {
              vec<T> g = load_lanes(given + i, lanes);
              if (weight != nullptr) g = g * load_lanes(weight + i, lanes);
              all = all + g;
              return g * (load_lanes(row + i, lanes) - middle);
            });
        parts[r] = all;
      }
      const vec<T> inverse = load_lanes(invstds + from, here);
      const vec<T> mean_slope = sum_each(slopes, together, here) / count;
      (-(mean_slope * inverse * inverse)).store(slope);
      if (means != nullptr) (sum_each(parts, together, here) / count).store(mean_dy);
      for (dim_t r = 0; r < here; ++r) {
        const T *row = x + (from + r) * n, *given = dy + (from + r) * n, *weight = part(r);
        const vec<T> middle = center(r), scale = vec<T>::broadcast(invstds[from + r]);
        const vec<T> by = vec<T>::broadcast(slope[r]), less = vec<T>::broadcast(mean_dy[r]);
        map_terms(
            n, dx + (from + r) * n, IKEBANA_CPU_TERMS {
              vec<T> g = load_lanes(given + i, lanes);
              if (weight != nullptr) g = g * load_lanes(weight + i, lanes);
              return scale * fma(load_lanes(row + i, lanes) - middle, by, g - less);
            });
      }
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
      const auto sums = sum_gradients(1, 0, inner, row, given, center);
      const double sum_dy = static_cast<double>(sum(sums.dy)),
                   sum_x = static_cast<double>(sum(sums.dy_x));
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
