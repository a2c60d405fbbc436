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

/// x is read from memory once: each part of it a second time while it is in the first-level cache.
template <class T>
IKEBANA_CPU_INLINE channel_moments moments_of_channel(dim_t batch, dim_t channels, dim_t inner,
                                                      dim_t c, const T* x) {
  channel_moments all{0, 0, 0};
  for_each_part<T>(batch, inner, [&](dim_t first, dim_t last, dim_t begin, dim_t n) {
    const T* const from = x + (first * channels + c) * inner + begin;
    const dim_t rows = last - first, step = channels * inner;
    const double share = 1 / static_cast<double>(rows * n),
                 mean = static_cast<double>(sum(values_of_rows(rows, step, n, from))) * share;
    const T center = static_cast<T>(mean);
    const double off = mean - static_cast<double>(center),
                 squares = static_cast<double>(sum(squares_of_rows(rows, step, n, from, center)));
    all.join(static_cast<double>(rows * n), mean,
             squares - static_cast<double>(rows * n) * off * off);
  });
  return all;
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
                             const T* beta, T eps, final_activation<T> function, T* y, T* save_mean,
                             T* save_invstd, T* running_mean, T* running_var, T momentum) {
  constexpr dim_t w = vec<T>::size;
  const double count = static_cast<double>(rows);
  for (dim_t c = 0; c < wanted; c += w) {
    const dim_t n = wanted - c < w ? wanted - c : w;
    const T* const from = x + c;
    double means[w], squares[w];
    T centers[w], factors[w], offsets[w];
    // `{}` makes g++ 12 hand two zeros through an MMX register, which leaves the x87 unusable.
    for (T* lanes : {centers, factors, offsets}) vec<T>::zero().store(lanes);
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
    function(rows, n, y + c, channels);
  }
}

/// The first `wanted` of the channels.
template <class T>
void normalize_batch(dim_t batch, dim_t channels, dim_t wanted, dim_t inner, const T* x,
                     const T* gamma, const T* beta, T eps, final_activation<T> function, T* y,
                     T* save_mean, T* save_invstd, T* running_mean, T* running_var, T momentum) {
  if (inner == 1)
    return normalize_batch_columns(batch, channels, wanted, x, gamma, beta, eps, function, y,
                                   save_mean, save_invstd, running_mean, running_var, momentum);
  const double count = static_cast<double>(batch * inner);
  for (dim_t c = 0; c < wanted; ++c) {
    const channel_moments m = moments_of_channel(batch, channels, inner, c, x);
    const channel_scale<T> s = scale_by_batch<T>(
        c, m.mean, m.squares / count, m.squares / (count > 1 ? count - 1 : 1), gamma, beta, eps,
        save_mean, save_invstd, running_mean, running_var, momentum);
    scale_channel(batch, channels, inner, c, x, s.center, s.factor, s.offset, function, y);
  }
}

template <class T>
void normalize_by_running(dim_t batch, dim_t channels, dim_t wanted, dim_t inner, const T* x,
                          const T* gamma, const T* beta, T eps, const T* running_mean,
                          const T* running_var, final_activation<T> function, T* y) {
  constexpr dim_t w = vec<T>::size;
  const auto factor_of = [=](dim_t c) {
    return (gamma != nullptr ? gamma[c] : T(1)) * inverse_of_running(running_var[c], eps);
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
    function(batch, n, y + c, channels);
  }
}
#undef IKEBANA_CPU_TERMS
