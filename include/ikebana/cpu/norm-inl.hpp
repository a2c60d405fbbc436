// ---- sums over `rows` rows of n, `step` apart ----

/// Of the terms f(i, lanes) of each row, i counted from the first one's begin.
template <class T, class F>
IKEBANA_CPU_INLINE T sum_rows(dim_t rows, dim_t step, dim_t n, F f) {
  vec<T> total = vec<T>::zero();
  for (dim_t r = 0; r < rows; ++r)
    total = total + join_terms<T>(
                        n, vec<T>::zero(), lane_sum{},
                        IKEBANA_CPU_TERMS { return f(r * step + i, lanes); });
  return sum(total);
}
template <class T>
[[gnu::noinline]] double sum_of_rows(dim_t rows, dim_t step, dim_t n, const T* x) {
  return static_cast<double>(sum_rows<T>(
      rows, step, n, IKEBANA_CPU_TERMS { return load_lanes(x + i, lanes); }));
}
/// Of (x - center)^2.
template <class T>
[[gnu::noinline]] double squares_of_rows(dim_t rows, dim_t step, dim_t n, const T* x, T center) {
  const vec<T> middle = vec<T>::broadcast(center);
  return static_cast<double>(sum_rows<T>(
      rows, step, n, IKEBANA_CPU_TERMS {
        const vec<T> d = load_lanes(x + i, lanes, middle) - middle;
        return d * d;
      }));
}
/// Of dy (x - center).
template <class T>
[[gnu::noinline]] double products_of_rows(dim_t rows, dim_t step, dim_t n, const T* x, const T* dy,
                                          T center) {
  const vec<T> middle = vec<T>::broadcast(center);
  return static_cast<double>(sum_rows<T>(
      rows, step, n, IKEBANA_CPU_TERMS {
        return load_lanes(dy + i, lanes) * (load_lanes(x + i, lanes) - middle);
      }));
}
/// to[lane] = the sum over rows of f(row), by parts added in double: channels that are columns of a
/// matrix, as many at once as a register holds.
template <class T, class F>
IKEBANA_CPU_INLINE void sum_columns_of(dim_t rows, double* to, F f) {
  constexpr dim_t w = vec<T>::size, part = 64;
  for (dim_t l = 0; l < w; ++l) to[l] = 0;
  for (dim_t first = 0; first < rows; first += part) {
    vec<T> s = vec<T>::zero();
    for (dim_t r = first; r < rows && r < first + part; ++r) s = s + f(r);
    T each[w];
    s.store(each);
    for (dim_t l = 0; l < w; ++l) to[l] += static_cast<double>(each[l]);
  }
}

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
    const double count = static_cast<double>(rows * n),
                 mean = sum_of_rows(rows, step, n, from) / count;
    const T center = static_cast<T>(mean);
    const double off = mean - static_cast<double>(center);
    all.join(count, mean, squares_of_rows(rows, step, n, from, center) - count * off * off);
  });
  return all;
}

/// The factor of channel c in evaluation.
template <class T>
IKEBANA_CPU_INLINE T inverse_of_running(T variance, T eps) {
  return T(1) / static_cast<T>(__builtin_sqrt(static_cast<double>(variance + eps)));
}

/// What the result of a norm is at least, if its function is relu.
template <class T>
IKEBANA_CPU_INLINE vec<T> least_of(activation function) {
  return vec<T>::broadcast(function == activation::relu ? T(0) : -static_cast<T>(__builtin_inff()));
}
/// y = max(factor (x - center) + offset, least) of n elements.
template <class T>
IKEBANA_CPU_INLINE void scale_plane(dim_t n, const T* x, T center, T factor, T offset, vec<T> least,
                                    T* y) {
  const vec<T> middle = vec<T>::broadcast(center), scale = vec<T>::broadcast(factor),
               shift = vec<T>::broadcast(offset);
  map_terms(
      n, y, IKEBANA_CPU_TERMS {
        return max(least, fma(load_lanes(x + i, lanes) - middle, scale, shift));
      });
}
/// y = function(factor (x - center) + offset) where channels are columns: of n from c on.
template <class T>
IKEBANA_CPU_INLINE void scale_columns(dim_t rows, dim_t channels, dim_t c, dim_t n, const T* x,
                                      vec<T> center, vec<T> factor, vec<T> offset,
                                      final_activation<T> function, T* y) {
  for (dim_t at = c; at < c + rows * channels; at += channels)
    store_lanes(fma(load_lanes(x + at, n) - center, factor, offset), y + at, n);
  function(rows, n, y + c, channels);
}

// ---- the channels from `first` to `last` ----

template <class T>
void normalize_batch(dim_t first, dim_t last, dim_t batch, dim_t channels, dim_t inner, const T* x,
                     const T* gamma, const T* beta, T eps, final_activation<T> function, T* y,
                     T* save_mean, T* save_invstd, T* running_mean, T* running_var, T momentum) {
  constexpr dim_t w = vec<T>::size;
  const dim_t size = channels * inner;
  const vec<T> least = least_of<T>(function);
  const double count = static_cast<double>(batch * inner);
  // Stores what is kept of channel c; returns its factor.
  const auto keep = [&](dim_t c, double mean, double squares) {
    save_mean[c] = static_cast<T>(mean);
    save_invstd[c] = static_cast<T>(1 / __builtin_sqrt(squares / count + static_cast<double>(eps)));
    if (running_mean != nullptr)
      running_mean[c] = (T(1) - momentum) * running_mean[c] + momentum * save_mean[c];
    if (running_var != nullptr)
      running_var[c] = (T(1) - momentum) * running_var[c] +
                       momentum * static_cast<T>(squares / (count > 1 ? count - 1 : 1));
    return (gamma != nullptr ? gamma[c] : T(1)) * save_invstd[c];
  };
  for (dim_t c = first; inner != 1 && c < last; ++c) {
    const channel_moments m = moments_of_channel(batch, channels, inner, c, x);
    const T factor = keep(c, m.mean, m.squares);
    for (dim_t at = c * inner; at < batch * size; at += size)
      scale_plane(inner, x + at, save_mean[c], factor, beta != nullptr ? beta[c] : T(0), least,
                  y + at);
    if (function != activation::relu) function(batch, inner, y + c * inner, size);
  }
  for (dim_t c = first; inner == 1 && c < last; c += w) {
    const dim_t n = last - c < w ? last - c : w;
    double means[w], squares[w];
    T factors[w];
    vec<T>::zero().store(factors);
    const auto row = [=](dim_t r) __attribute__((always_inline)) {
      return load_lanes(x + r * channels + c, n);
    };
    sum_columns_of<T>(batch, means, row);
    for (dim_t l = 0; l < n; ++l) save_mean[c + l] = static_cast<T>(means[l] /= count);
    const vec<T> center = load_lanes(save_mean + c, n);
    sum_columns_of<T>(
        batch, squares, [=](dim_t r) __attribute__((always_inline)) {
          const vec<T> d = row(r) - center;
          return d * d;
        });
    for (dim_t l = 0; l < n; ++l) factors[l] = keep(c + l, means[l], squares[l]);
    scale_columns(batch, channels, c, n, x, center, vec<T>::load(factors),
                  beta != nullptr ? load_lanes(beta + c, n) : vec<T>::zero(), function, y);
  }
}

template <class T>
void normalize_by_running(dim_t first, dim_t last, dim_t batch, dim_t channels, dim_t inner,
                          const T* x, const T* gamma, const T* beta, T eps, const T* running_mean,
                          const T* running_var, final_activation<T> function, T* y) {
  constexpr dim_t w = vec<T>::size;
  const auto factor_of = [=](dim_t c) {
    return (gamma != nullptr ? gamma[c] : T(1)) * inverse_of_running(running_var[c], eps);
  };
  const dim_t size = channels * inner;
  const vec<T> least = least_of<T>(function);
  // Some channels image by image, in the order of memory.
  constexpr dim_t most = 64;
  for (dim_t begin = first; inner != 1 && begin < last; begin += most) {
    const dim_t end = last - begin < most ? last : begin + most;
    T factors[most];
    for (dim_t c = begin; c < end; ++c) factors[c - begin] = factor_of(c);
    for (dim_t at = 0; at < batch * size; at += size) {
      for (dim_t c = begin; c < end; ++c)
        scale_plane(inner, x + at + c * inner, running_mean[c], factors[c - begin],
                    beta != nullptr ? beta[c] : T(0), least, y + at + c * inner);
      if (function != activation::relu)
        function(1, (end - begin) * inner, y + at + begin * inner, 0);
    }
  }
  for (dim_t c = first; inner == 1 && c < last; c += w) {
    const dim_t n = last - c < w ? last - c : w;
    T factors[w];
    vec<T>::zero().store(factors);
    for (dim_t l = 0; l < n; ++l) factors[l] = factor_of(c + l);
    scale_columns(batch, channels, c, n, x, load_lanes(running_mean + c, n), vec<T>::load(factors),
                  beta != nullptr ? load_lanes(beta + c, n) : vec<T>::zero(), function, y);
  }
}

/// dx = scale (slope (x - center) + dy - mean_dy) for n elements, or scale dy.
template <class T>
[[gnu::noinline]] void pass_row(dim_t n, const T* x, const T* dy, T center, T scale, T slope,
                                T mean_dy, bool through_batch, T* dx) {
  const vec<T> by = vec<T>::broadcast(scale), rise = vec<T>::broadcast(slope),
               less = vec<T>::broadcast(mean_dy), middle = vec<T>::broadcast(center);
  map_terms(
      n, dx, IKEBANA_CPU_TERMS {
        const vec<T> g = load_lanes(dy + i, lanes) - less;
        return by * (through_batch ? fma(load_lanes(x + i, lanes) - middle, rise, g) : g);
      });
}

/// `spread` is 1 / sqrt(variance + eps) where `through_batch`, else the running variance.
template <class T>
void normalize_backward(dim_t first, dim_t last, dim_t batch, dim_t channels, dim_t inner,
                        const T* x, const T* dy, const T* gamma, const T* means, const T* spread,
                        T eps, bool through_batch, T* dx, T* dgamma, T* dbeta, bool accumulate) {
  constexpr dim_t w = vec<T>::size;
  const bool needs_sums = through_batch || dgamma != nullptr || dbeta != nullptr;
  const double count = static_cast<double>(batch * inner);
  // The gradients of channel c's gamma and beta, and the factors of pass_row.
  struct factors {
    T scale, slope, mean_dy;
  };
  const auto finish = [=](dim_t c, double total, double total_x) -> factors {
    const auto invstd =
        static_cast<double>(through_batch ? spread[c] : inverse_of_running(spread[c], eps));
    if (dgamma != nullptr)
      dgamma[c] = static_cast<T>(total_x * invstd) + (accumulate ? dgamma[c] : T(0));
    if (dbeta != nullptr) dbeta[c] = static_cast<T>(total) + (accumulate ? dbeta[c] : T(0));
    const double factor = (gamma != nullptr ? static_cast<double>(gamma[c]) : 1.0) * invstd;
    if (!through_batch) return {static_cast<T>(factor), T(0), T(0)};
    return {static_cast<T>(factor), static_cast<T>(-total_x / count * invstd * invstd),
            static_cast<T>(total / count)};
  };
  for (dim_t c = first; inner != 1 && c < last; ++c) {
    double total = 0, total_x = 0;
    if (needs_sums)
      for_each_part<T>(batch, inner, [&](dim_t from, dim_t to, dim_t begin, dim_t n) {
        const dim_t at = (from * channels + c) * inner + begin;
        total += sum_of_rows(to - from, channels * inner, n, dy + at);
        total_x += products_of_rows(to - from, channels * inner, n, x + at, dy + at, means[c]);
      });
    const factors f = finish(c, total, total_x);
    for (dim_t b = 0; dx != nullptr && b < batch; ++b) {
      const dim_t at = (b * channels + c) * inner;
      pass_row(inner, x + at, dy + at, means[c], f.scale, f.slope, f.mean_dy, through_batch,
               dx + at);
    }
  }
  for (dim_t c = first; inner == 1 && c < last; c += w) {
    const dim_t n = last - c < w ? last - c : w;
    const vec<T> center = load_lanes(means + c, n);
    double total[w]{}, total_x[w]{};
    const auto row = [=](const T* p, dim_t r) __attribute__((always_inline)) {
      return load_lanes(p + r * channels + c, n);
    };
    if (needs_sums) {
      sum_columns_of<T>(
          batch, total, [=](dim_t r) __attribute__((always_inline)) { return row(dy, r); });
      sum_columns_of<T>(
          batch, total_x, [=](dim_t r) __attribute__((always_inline)) {
            return row(dy, r) * (row(x, r) - center);
          });
    }
    T scales[w]{}, slopes[w]{}, mean_dys[w]{};
    for (dim_t l = 0; l < n; ++l) {
      const factors f = finish(c + l, total[l], total_x[l]);
      scales[l] = f.scale, slopes[l] = f.slope, mean_dys[l] = f.mean_dy;
    }
    const vec<T> scale = vec<T>::load(scales), slope = vec<T>::load(slopes),
                 mean_dy = vec<T>::load(mean_dys);
    for (dim_t r = 0; dx != nullptr && r < batch; ++r) {
      const vec<T> g = row(dy, r) - mean_dy;
      store_lanes(scale * (through_batch ? fma(row(x, r) - center, slope, g) : g),
                  dx + r * channels + c, n);
    }
  }
}
