#define IKEBANA_CPU_TERMS [=](dim_t i, dim_t lanes) __attribute__((always_inline))

/// What is added up of x about a centre, in double so that many parts lose nothing.
struct channel_moments {
  double count, mean, squares;

  /// Chan, Golub, LeVeque, Updating formulae and a pairwise algorithm, 1979.
  void join(double n, double mean_of, double squares_of) {
    const double all = count + n, apart = mean_of - mean;
    mean += apart * n / all;
    squares += squares_of + apart * apart * count * n / all;
    count = all;
  }
};

/// Calls f(first image, last image, begin, length) for parts of a channel that stay in the
/// first-level cache: images' planes together, or stretches of one.
template <class T, class F>
IKEBANA_CPU_INLINE void for_each_part(dim_t batch, dim_t inner, F f) {
  constexpr dim_t most = dim_t{16} * 1024 / static_cast<dim_t>(sizeof(T));
  if (inner <= most) {
    const dim_t together = inner > 0 ? most / inner : 1;
    for (dim_t b = 0; b < batch; b += together)
      f(b, batch - b < together ? batch : b + together, dim_t{0}, inner);
    return;
  }
  for (dim_t b = 0; b < batch; ++b)
    for (dim_t i = 0; i < inner;) {
      // Not a short last part.
      const dim_t left = inner - i, n = left >= 2 * most ? most : left > most ? left / 2 : left;
      f(b, b + 1, i, n);
      i += n;
    }
}

/// Adds up by s = f(i, lanes, s) over `rows` rows of n, `step` apart.
template <class T, class F>
IKEBANA_CPU_INLINE T sum_rows(dim_t rows, dim_t step, dim_t n, F f) {
  constexpr dim_t w = vec<T>::size;
  vec<T> s0 = vec<T>::zero(), s1 = s0, s2 = s0, s3 = s0;
  // Known outside of the loop, as the mask that is made of it.
  const dim_t rest = n % w;
  for (dim_t r = 0; r < rows; ++r) {
    dim_t i = r * step;
    const dim_t end = i + n;
    for (; i + 4 * w <= end; i += 4 * w) {
      s0 = f(i, w, s0);
      s1 = f(i + w, w, s1);
      s2 = f(i + 2 * w, w, s2);
      s3 = f(i + 3 * w, w, s3);
    }
    // No two of a short row's wait for each other.
    if (i + w <= end) {
      s0 = f(i, w, s0);
      i += w;
    }
    if (i + w <= end) {
      s1 = f(i, w, s1);
      i += w;
    }
    if (i + w <= end) {
      s2 = f(i, w, s2);
      i += w;
    }
    if (rest > 0) s3 = f(end - rest, rest, s3);
  }
  return sum((s0 + s1) + (s2 + s3));
}

/// Of `rows` rows of n, `step` apart.
template <class T>
[[gnu::noinline]] double mean_of_rows(dim_t rows, dim_t step, dim_t n, const T* x) {
  const double share = 1 / static_cast<double>(rows * n);  // while the sums are on their way
  const T total = sum_rows<T>(
      rows, step, n, [=](dim_t i, dim_t lanes, vec<T> s) __attribute__((always_inline)) {
        return s + load_lanes(x + i, lanes);
      });
  return static_cast<double>(total) * share;
}
template <class T>
[[gnu::noinline]] double squares_of_rows(dim_t rows, dim_t step, dim_t n, const T* x, double mean) {
  const T center = static_cast<T>(mean);
  const vec<T> middle = vec<T>::broadcast(center);
  T middles[vec<T>::size];
  middle.store(middles);
  const T* const masked = middles;
  const T squares = sum_rows<T>(
      rows, step, n, [=](dim_t i, dim_t lanes, vec<T> s) __attribute__((always_inline)) {
        const vec<T> d = load_lanes(x + i, lanes) - load_lanes(masked, lanes);
        return fma(d, d, s);
      });
  const double off = mean - static_cast<double>(center);
  return static_cast<double>(squares) - static_cast<double>(rows * n) * off * off;
}

/// x is read from memory once: each part of it a second time while it is in the first-level cache.
template <class T>
IKEBANA_CPU_INLINE channel_moments moments_of_channel(dim_t batch, dim_t channels, dim_t inner,
                                                      dim_t c, const T* x) {
  channel_moments all{0, 0, 0};
  for_each_part<T>(batch, inner, [&](dim_t first, dim_t last, dim_t begin, dim_t n) {
    const T* const from = x + (first * channels + c) * inner + begin;
    const dim_t rows = last - first, step = channels * inner;
    const double mean = mean_of_rows(rows, step, n, from);
    all.join(static_cast<double>(rows * n), mean, squares_of_rows(rows, step, n, from, mean));
  });
  return all;
}
/// How many channels go together: where they are short several, so that none waits for its own
/// sums.
inline constexpr dim_t most_channels_together = 4;
IKEBANA_CPU_INLINE dim_t channels_together(dim_t batch, dim_t inner) {
  const dim_t size = batch * inner;
  return size > 0 && size <= 2048 ? most_channels_together : 1;
}

/// y = function(factor (x - center) + offset) for channel c.
template <class T>
IKEBANA_CPU_INLINE void scale_channel(dim_t batch, dim_t channels, dim_t inner, dim_t c, const T* x,
                                      T center, T factor, T offset, activation function, T* y) {
  const dim_t step = channels * inner;
  const vec<T> middle = vec<T>::broadcast(center), scale = vec<T>::broadcast(factor),
               shift = vec<T>::broadcast(offset);
  const auto scale_rows = [=](auto finish) __attribute__((always_inline)) {
    for (dim_t b = 0; b < batch; ++b) {
      const dim_t row = b * step + c * inner;
      map_terms(
          inner, y + row, IKEBANA_CPU_TERMS {
            return finish(fma(load_lanes(x + row + i, lanes) - middle, scale, shift));
          });
    }
  };
  if (function == activation::relu)
    return scale_rows([](vec<T> v)
                          __attribute__((always_inline)) { return max(vec<T>::zero(), v); });
  scale_rows([](vec<T> v) __attribute__((always_inline)) { return v; });
  if (function != activation::none) activate_block(function, batch, inner, y + c * inner, step);
}

/// What normalizes one channel.
template <class T>
struct channel_scale {
  T center, factor, offset;
};
template <class T>
IKEBANA_CPU_INLINE channel_scale<T> scale_by_batch(dim_t c, double mean, double variance,
                                                   double unbiased, const T* gamma, const T* beta,
                                                   T eps, T* save_mean, T* save_invstd,
                                                   T* running_mean, T* running_var, T momentum) {
  save_mean[c] = static_cast<T>(mean);
  save_invstd[c] = static_cast<T>(1 / __builtin_sqrt(variance + static_cast<double>(eps)));
  if (running_mean != nullptr)
    running_mean[c] = (T(1) - momentum) * running_mean[c] + momentum * static_cast<T>(mean);
  if (running_var != nullptr)
    running_var[c] = (T(1) - momentum) * running_var[c] + momentum * static_cast<T>(unbiased);
  return {save_mean[c], (gamma != nullptr ? gamma[c] : T(1)) * save_invstd[c],
          beta != nullptr ? beta[c] : T(0)};
}

/// Channels that are columns of a matrix of `rows`: as many at once as a register holds.
template <class T>
struct lane_columns {
  static constexpr dim_t w = vec<T>::size;

  /// to[lane] = the sum over rows of f(row, lanes), by parts added in double.
  template <class F>
  IKEBANA_CPU_INLINE static void sums(dim_t rows, dim_t lanes, double* to, F f) {
    constexpr dim_t part = 64;
    for (dim_t lane = 0; lane < w; ++lane) to[lane] = 0;
    for (dim_t first = 0; first < rows; first += part) {
      const dim_t last = rows - first < part ? rows : first + part;
      vec<T> s0 = vec<T>::zero(), s1 = s0;
      dim_t r = first;
      for (; r + 2 <= last; r += 2) {
        s0 = s0 + f(r, lanes);
        s1 = s1 + f(r + 1, lanes);
      }
      if (r < last) s0 = s0 + f(r, lanes);
      T each[w];
      (s0 + s1).store(each);
      for (dim_t lane = 0; lane < w; ++lane) to[lane] += static_cast<double>(each[lane]);
    }
  }
};

template <class T>
void normalize_batch_columns(dim_t rows, dim_t channels, dim_t wanted, const T* x, const T* gamma,
                             const T* beta, T eps, activation function, T* y, T* save_mean,
                             T* save_invstd, T* running_mean, T* running_var, T momentum) {
  constexpr dim_t w = vec<T>::size;
  const double count = static_cast<double>(rows);
  for (dim_t c = 0; c < wanted; c += w) {
    const dim_t n = wanted - c < w ? wanted - c : w;
    const T* const from = x + c;
    double means[w], squares[w];
    T centers[w]{}, factors[w]{}, offsets[w]{};
    lane_columns<T>::sums(
        rows, n, means, [=](dim_t r, dim_t lanes) __attribute__((always_inline)) {
          return load_lanes(from + r * channels, lanes);
        });
    for (dim_t l = 0; l < n; ++l) centers[l] = static_cast<T>(means[l] /= count);
    const vec<T> center = vec<T>::load(centers);
    lane_columns<T>::sums(
        rows, n, squares, [=](dim_t r, dim_t lanes) __attribute__((always_inline)) {
          const vec<T> d = load_lanes(from + r * channels, lanes) - center;
          return d * d;
        });
    for (dim_t l = 0; l < n; ++l) {
      const auto s = scale_by_batch<T>(c + l, means[l], squares[l] / count,
                                       squares[l] / (count > 1 ? count - 1 : 1), gamma, beta, eps,
                                       save_mean, save_invstd, running_mean, running_var, momentum);
      factors[l] = s.factor;
      offsets[l] = s.offset;
    }
    const vec<T> factor = vec<T>::load(factors), offset = vec<T>::load(offsets);
    for (dim_t r = 0; r < rows; ++r)
      store_lanes(fma(load_lanes(from + r * channels, n) - center, factor, offset),
                  y + r * channels + c, n);
    activate_block(function, rows, n, y + c, channels);
  }
}

/// The first `wanted` of the channels.
template <class T>
void normalize_batch(dim_t batch, dim_t channels, dim_t wanted, dim_t inner, const T* x,
                     const T* gamma, const T* beta, T eps, activation function, T* y, T* save_mean,
                     T* save_invstd, T* running_mean, T* running_var, T momentum) {
  if (inner == 1)
    return normalize_batch_columns(batch, channels, wanted, x, gamma, beta, eps, function, y,
                                   save_mean, save_invstd, running_mean, running_var, momentum);
  const dim_t together = channels_together(batch, inner), step = channels * inner;
  const double count = static_cast<double>(batch * inner), share = 1 / count,
               unbiased = 1 / (count > 1 ? count - 1 : 1);
  channel_moments m[most_channels_together];
  channel_scale<T> scales[most_channels_together];
  for (dim_t first = 0; first < wanted; first += together) {
    const dim_t here = wanted - first < together ? wanted - first : together;
    const T* const from = x + first * inner;
    if (together == 1) {
      m[0] = moments_of_channel(batch, channels, inner, first, x);
    } else {
      for (dim_t k = 0; k < here; ++k)
        m[k].mean = mean_of_rows(batch, step, inner, from + k * inner);
      for (dim_t k = 0; k < here; ++k)
        m[k].squares = squares_of_rows(batch, step, inner, from + k * inner, m[k].mean);
    }
    for (dim_t k = 0; k < here; ++k)
      scales[k] = scale_by_batch<T>(first + k, m[k].mean, m[k].squares * share,
                                    m[k].squares * unbiased, gamma, beta, eps, save_mean,
                                    save_invstd, running_mean, running_var, momentum);
    for (dim_t k = 0; k < here; ++k)
      scale_channel(batch, channels, inner, first + k, x, scales[k].center, scales[k].factor,
                    scales[k].offset, function, y);
  }
}

template <class T>
void normalize_by_running(dim_t batch, dim_t channels, dim_t wanted, dim_t inner, const T* x,
                          const T* gamma, const T* beta, T eps, const T* running_mean,
                          const T* running_var, activation function, T* y) {
  constexpr dim_t w = vec<T>::size;
  const auto factor_of = [=](dim_t c) {
    const double invstd =
        1 / __builtin_sqrt(static_cast<double>(running_var[c]) + static_cast<double>(eps));
    return (gamma != nullptr ? gamma[c] : T(1)) * static_cast<T>(invstd);
  };
  if (inner != 1) {
    // Image by image, in the order of memory; some channels at a time, whose factors serve for all.
    constexpr dim_t most = 64;
    T factors[most];
    for (dim_t first = 0; first < wanted; first += most) {
      const dim_t last = wanted - first < most ? wanted : first + most;
      for (dim_t c = first; c < last; ++c) factors[c - first] = factor_of(c);
      for (dim_t b = 0; b < batch; ++b)
        for (dim_t c = first; c < last; ++c)
          scale_channel(1, channels, inner, c, x + b * channels * inner, running_mean[c],
                        factors[c - first], beta != nullptr ? beta[c] : T(0), function,
                        y + b * channels * inner);
    }
    return;
  }
  for (dim_t c = 0; c < wanted; c += w) {
    const dim_t n = wanted - c < w ? wanted - c : w;
    T factors[w]{};
    for (dim_t l = 0; l < n; ++l) factors[l] = factor_of(c + l);
    const vec<T> factor = vec<T>::load(factors), center = load_lanes(running_mean + c, n),
                 offset = beta != nullptr ? load_lanes(beta + c, n) : vec<T>::zero();
    for (dim_t r = 0; r < batch; ++r)
      store_lanes(fma(load_lanes(x + r * channels + c, n) - center, factor, offset),
                  y + r * channels + c, n);
    activate_block(function, batch, n, y + c, channels);
  }
}
#undef IKEBANA_CPU_TERMS
