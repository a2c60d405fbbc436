// Batch norm of channels so short that what is computed of each, and the way from its sums to its
// factors, would take longer than its elements: some go together, as the lanes of registers.

#define IKEBANA_CPU_TERMS [=](dim_t i, dim_t lanes) __attribute__((always_inline))

/// How many channels of so many elements; 1 for long ones.
template <class T>
IKEBANA_CPU_INLINE dim_t channels_together(dim_t size) {
  constexpr dim_t w = vec<T>::size, near = dim_t{16} * 1024 / static_cast<dim_t>(sizeof(T));
  if (size == 0 || size > near / 2) return 1;
  return near / size < w ? near / size : w;
}
/// Lane k: the sum of the lanes of parts[k], for k < here. Few are added up one by one.
template <class T>
IKEBANA_CPU_INLINE vec<T> sum_channels(vec<T>* parts, dim_t here) {
  constexpr dim_t w = vec<T>::size;
  return sum_each(parts, here > w / 4 ? w : here, here);
}

template <class T>
void normalize_short_channels(dim_t batch, dim_t channels, dim_t wanted, dim_t inner,
                              dim_t together, const T* x, const T* gamma, const T* beta, T eps,
                              final_activation<T> function, T* y, T* save_mean, T* save_invstd,
                              T* running_mean, T* running_var, T momentum) {
  constexpr dim_t w = vec<T>::size;
  const dim_t step = channels * inner, size = batch * inner;
  const vec<T> count = vec<T>::broadcast(static_cast<T>(size)),
               others = vec<T>::broadcast(static_cast<T>(size > 1 ? size - 1 : 1));
  const bool joined = are_planes_joined<T>(batch, inner, together);
  T* const sums = joined_list<T>(0);
  vec<T> parts[w];
  T centers[w], factors[w], offsets[w];
  for (dim_t first = 0; first < wanted; first += together) {
    const dim_t here = wanted - first < together ? wanted - first : together, n = here * inner,
                begin = first * inner;
    const auto sum_planes = [&]() __attribute__((always_inline)) {
      for (dim_t k = 0; k < here; ++k)
        parts[k] = sum_of_plane(inner, static_cast<const T*>(sums + k * inner));
    };
    if (joined) {
      sum_images<false, T>(batch, step, n, x + begin, nullptr, sums);
      sum_planes();
    } else {
      for (dim_t k = 0; k < here; ++k)
        parts[k] = values_of_rows(batch, step, inner, x + begin + k * inner);
    }
    const vec<T> mean = sum_channels(parts, here) / count;
    mean.store(centers);
    if (joined) {
      spread_over_planes(here, inner, static_cast<const T*>(centers), joined_list<T>(1));
      sum_images<true, T>(batch, step, n, x + begin, joined_list<T>(1), sums);
      sum_planes();
    } else {
      for (dim_t k = 0; k < here; ++k)
        parts[k] = squares_of_rows(batch, step, inner, x + begin + k * inner, centers[k]);
    }
    const vec<T> squares = sum_channels(parts, here),
                 invstd = T(1) / sqrt(squares / count + vec<T>::broadcast(eps));
    const auto move = [=](T * running, vec<T> towards) __attribute__((always_inline)) {
      if (running != nullptr)
        store_lanes(load_lanes(running + first, here) * (T(1) - momentum) + towards * momentum,
                    running + first, here);
    };
    move(running_mean, mean);
    move(running_var, squares / others);
    store_lanes(mean, save_mean + first, here);
    store_lanes(invstd, save_invstd + first, here);
    (gamma != nullptr ? load_lanes(gamma + first, here) * invstd : invstd).store(factors);
    (beta != nullptr ? load_lanes(beta + first, here) : vec<T>::zero()).store(offsets);
    if (joined) {
      spread_over_planes(here, inner, static_cast<const T*>(factors), joined_list<T>(2));
      spread_over_planes(here, inner, static_cast<const T*>(offsets), joined_list<T>(3));
      scale_images<T>(batch, step, n, x + begin, joined_list<T>(1), joined_list<T>(2),
                      joined_list<T>(3), function, y + begin);
      continue;
    }
    for (dim_t k = 0; k < here; ++k)
      scale_channel(batch, channels, inner, first + k, x, centers[k], factors[k], offsets[k],
                    function, y);
  }
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
void short_channels_backward(dim_t batch, dim_t channels, dim_t wanted, dim_t inner, dim_t together,
                             const T* x, const T* dy, const T* gamma, const T* means,
                             const T* spread, T eps, bool through_batch, T* dx, T* dgamma, T* dbeta,
                             bool accumulate) {
  constexpr dim_t w = vec<T>::size;
  const vec<T> count = vec<T>::broadcast(static_cast<T>(batch * inner));
  const bool joined = are_planes_joined<T>(batch, inner, together);
  vec<T> parts[w], parts_x[w];
  T scales[w], slopes[w], means_dy[w];
  for (dim_t first = 0; first < wanted; first += together) {
    const dim_t here = wanted - first < together ? wanted - first : together, begin = first * inner;
    if (joined) {
      const T *const sums = joined_list<T>(1), *const sums_x = joined_list<T>(2);
      spread_over_planes(here, inner, means + first, joined_list<T>(0));
      sum_gradient_images<T>(batch, channels * inner, here * inner, x + begin, dy + begin,
                             joined_list<T>(0), joined_list<T>(1), joined_list<T>(2));
      for (dim_t k = 0; k < here; ++k) {
        parts[k] = sum_of_plane(inner, sums + k * inner);
        parts_x[k] = sum_of_plane(inner, sums_x + k * inner);
      }
    }
    for (dim_t k = 0; !joined && k < here; ++k) {
      const dim_t at = (first + k) * inner;
      const auto sums = sum_gradients(batch, channels * inner, inner, x + at, dy + at,
                                      vec<T>::broadcast(means[first + k]));
      parts[k] = sums.dy;
      parts_x[k] = sums.dy_x;
    }
    const vec<T> total = sum_channels(parts, here), total_x = sum_channels(parts_x, here);
    vec<T> invstd = load_lanes(spread + first, here);
    if (!through_batch) invstd = T(1) / sqrt(invstd + vec<T>::broadcast(eps));
    const auto add = [=](vec<T> s, T * to) __attribute__((always_inline)) {
      if (to != nullptr)
        store_lanes(accumulate ? s + load_lanes(to + first, here) : s, to + first, here);
    };
    add(total_x * invstd, dgamma);
    add(total, dbeta);
    if (dx == nullptr) continue;
    (gamma != nullptr ? load_lanes(gamma + first, here) * invstd : invstd).store(scales);
    (-(total_x / count * invstd * invstd)).store(slopes);
    (total / count).store(means_dy);
    if (joined && through_batch) {
      spread_over_planes(here, inner, static_cast<const T*>(scales), joined_list<T>(1));
      spread_over_planes(here, inner, static_cast<const T*>(slopes), joined_list<T>(2));
      spread_over_planes(here, inner, static_cast<const T*>(means_dy), joined_list<T>(3));
      pass_images<T>(batch, channels * inner, here * inner, x + begin, dy + begin,
                     joined_list<T>(0), joined_list<T>(1), joined_list<T>(2), joined_list<T>(3),
                     dx + begin);
      continue;
    }
    for (dim_t k = 0; k < here; ++k)
      pass_channel(batch, channels, inner, first + k, x, dy, means[first + k], scales[k], slopes[k],
                   means_dy[k], through_batch, dx);
  }
}
#undef IKEBANA_CPU_TERMS
