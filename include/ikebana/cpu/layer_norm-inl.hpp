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

/// 1 / sqrt(variance + eps), and not a number where the variance is above all numbers: 0 would make
/// a row of one overflow finite and wrong.
template <class T>
IKEBANA_CPU_INLINE vec<T> inverse_deviation(vec<T> variance, T eps) {
  return fma(variance, vec<T>::zero(), vec<T>::broadcast(T(1))) /
         sqrt(variance + vec<T>::broadcast(eps));
}

/// sum_by_lanes of a row, which may be less than a register.
template <class T, class F>
IKEBANA_CPU_INLINE vec<T> sum_of_row(dim_t n, F f) {
  return n < vec<T>::size ? f(dim_t{0}, n) : sum_by_lanes<T>(n, f);
}

template <class T>
IKEBANA_CPU_INLINE void normalize_row(dim_t n, const T* x, const T* gamma, const T* beta,
                                      vec<T> center, vec<T> factor, T* y) {
  const auto scaled = IKEBANA_CPU_TERMS { return (load_lanes(x + i, lanes) - center) * factor; };
  if (gamma != nullptr && beta != nullptr)
    return map_terms(
        n, y, IKEBANA_CPU_TERMS {
          return fma(scaled(i, lanes), load_lanes(gamma + i, lanes), load_lanes(beta + i, lanes));
        });
  map_terms(
      n, y, IKEBANA_CPU_TERMS {
        const vec<T> v = scaled(i, lanes);
        return gamma != nullptr  ? v * load_lanes(gamma + i, lanes)
               : beta != nullptr ? v + load_lanes(beta + i, lanes)
                                 : v;
      });
}

/// Of x, or of total = x + residual. Root mean square norm where `means` is null.
template <class T>
void normalize_rows(dim_t rows, dim_t n, dim_t groups, const T* x, const T* residual, T* total,
                    const T* gamma, const T* beta, T eps, T* y, T* means, T* invstds) {
  if (n == 0) return;
  constexpr dim_t w = vec<T>::size;
  const dim_t together = rows_together<T>(n);
  const vec<T> count = vec<T>::broadcast(static_cast<T>(n));
  const bits_of<T> kept = last_lanes<T>(n);
  const T* const values = residual == nullptr ? x : total;
  vec<T> parts[w];
  T mean[2][w] = {}, invstd[w] = {};
  // The sums of the next rows come before the last pass over these, which then waits for nothing.
  for (dim_t first = -together, turn = 0; first < rows; first += together, turn ^= 1) {
    const dim_t left = rows - first, here = first < 0 ? 0 : left < together ? left : together;
    for (dim_t r = 0; r < here; ++r) {
      const T* row = values + (first + r) * n;
      const vec<T> center = vec<T>::broadcast(mean[turn][r]);
      parts[r] = sum_of_row<T>(
          n, IKEBANA_CPU_TERMS {
            vec<T> d = load_lanes(row + i, lanes) - center;
            if (lanes != w) d = keep_lanes(d, kept);
            return d * d;
          });
    }
    if (here > 0) {
      const vec<T> inverse = inverse_deviation(sum_each(parts, together, here) / count, eps);
      inverse.store(invstd);
      store_lanes(inverse, invstds + first, here);
    }
    const dim_t next = first + together;
    const dim_t coming = rows - next < together ? rows - next : together;
    if (coming > 0 && residual != nullptr) {
      const T *a = x + next * n, *b = residual + next * n;
      map_terms(
          coming * n, total + next * n,
          IKEBANA_CPU_TERMS { return load_lanes(a + i, lanes) + load_lanes(b + i, lanes); });
    }
    if (coming > 0 && means != nullptr) {
      for (dim_t r = 0; r < coming; ++r) {
        const T* row = values + (next + r) * n;
        parts[r] = sum_of_row<T>(
            n, IKEBANA_CPU_TERMS { return load_lanes(row + i, lanes); });
      }
      const vec<T> m = sum_each(parts, together, coming) / count;
      m.store(mean[turn ^ 1]);
      store_lanes(m, means + next, coming);
    }
    for (dim_t r = 0; r < here; ++r) {
      const T* row = values + (first + r) * n;
      const vec<T> center = vec<T>::broadcast(mean[turn][r]), factor = vec<T>::broadcast(invstd[r]);
      const dim_t part = groups == 1 ? 0 : (first + r) % groups * n;
      const T* weight = gamma == nullptr ? nullptr : gamma + part;
      const T* offset = beta == nullptr ? nullptr : beta + part;
      normalize_row(n, row, weight, offset, center, factor, y + (first + r) * n);
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
    // As inverse_deviation.
    invstds[r] = static_cast<T>((1 + squares * 0) /
                                __builtin_sqrt(squares / count + static_cast<double>(eps)));
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
#undef IKEBANA_CPU_TERMS
