// What is added up of channels, and what they are scaled by.

#define IKEBANA_CPU_TERMS [=](dim_t i, dim_t lanes) __attribute__((always_inline))

/// Adds up by s = f(i, lanes, s) over `rows` rows of n, `step` apart.
template <class T, class F>
IKEBANA_CPU_INLINE vec<T> sum_rows(dim_t rows, dim_t step, dim_t n, F f) {
  constexpr dim_t w = vec<T>::size;
  vec<T> s0 = vec<T>::zero(), s1 = s0, s2 = s0, s3 = s0;
  // Known outside of the loop, as the mask that is made of it.
  const dim_t rest = n % w;
  dim_t r = 0;
  // Nor do rows of which there is little wait for the one before.
  if (n < 2 * w)
    for (; r + 2 <= rows; r += 2) {
      const dim_t i = r * step, next = i + step;
      if (n >= w) {
        s0 = f(i, w, s0);
        s1 = f(next, w, s1);
      }
      if (rest > 0) {
        s2 = f(i + n - rest, rest, s2);
        s3 = f(next + n - rest, rest, s3);
      }
    }
  for (; r < rows; ++r) {
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
  return (s0 + s1) + (s2 + s3);
}

/// The sums, by lanes, over `rows` rows of n, `step` apart: of x, and of (x - center)^2.
template <class T>
[[gnu::noinline]] vec<T> values_of_rows(dim_t rows, dim_t step, dim_t n, const T* x) {
  return sum_rows<T>(
      rows, step, n, [=](dim_t i, dim_t lanes, vec<T> s) __attribute__((always_inline)) {
        return s + load_lanes(x + i, lanes);
      });
}
template <class T>
[[gnu::noinline]] vec<T> squares_of_rows(dim_t rows, dim_t step, dim_t n, const T* x, T center) {
  const vec<T> middle = vec<T>::broadcast(center);
  const bits_of<T> kept = last_lanes<T>(n);
  return sum_rows<T>(
      rows, step, n, [=](dim_t i, dim_t lanes, vec<T> s) __attribute__((always_inline)) {
        vec<T> d = load_lanes(x + i, lanes) - middle;
        if (lanes != vec<T>::size) d = keep_lanes(d, kept);
        return fma(d, d, s);
      });
}

/// The same of dy, and of dy (x - center).
template <class T>
struct gradient_sums {
  vec<T> dy, dy_x;
};
template <class T>
[[gnu::noinline]] gradient_sums<T> sum_gradients(dim_t rows, dim_t step, dim_t n, const T* x,
                                                 const T* dy, vec<T> center) {
  constexpr dim_t w = vec<T>::size;
  const vec<T> zero = vec<T>::zero();
  vec<T> s0 = zero, s1 = zero, s2 = zero, s3 = zero, t0 = zero, t1 = zero, t2 = zero, t3 = zero;
  const auto add = [&](vec<T> & s, vec<T> & t, dim_t at, dim_t lanes)
      __attribute__((always_inline)) {
    const vec<T> g = load_lanes(dy + at, lanes);
    s = s + g;
    t = fma(g, load_lanes(x + at, lanes) - center, t);
  };
  for (dim_t r = 0; r < rows; ++r) {
    dim_t i = r * step;
    const dim_t end = i + n;
    for (; i + 4 * w <= end; i += 4 * w) {
      add(s0, t0, i, w);
      add(s1, t1, i + w, w);
      add(s2, t2, i + 2 * w, w);
      add(s3, t3, i + 3 * w, w);
    }
    // No two of a short row's wait for each other.
    if (i + w <= end) {
      add(s0, t0, i, w);
      i += w;
    }
    if (i + w <= end) {
      add(s1, t1, i, w);
      i += w;
    }
    if (i + w <= end) {
      add(s2, t2, i, w);
      i += w;
    }
    if (i < end) add(s3, t3, i, end - i);
  }
  return {(s0 + s1) + (s2 + s3), (t0 + t1) + (t2 + t3)};
}

/// 1 / sqrt(variance + eps) in T.
template <class T>
IKEBANA_CPU_INLINE T inverse_of_running(T variance, T eps) {
  return T(1) / static_cast<T>(__builtin_sqrt(static_cast<double>(variance + eps)));
}

/// y = function(factor (x - center) + offset) for channel c.
template <class T>
[[gnu::noinline]] void scale_channel(dim_t batch, dim_t channels, dim_t inner, dim_t c, const T* x,
                                     T center, T factor, T offset, final_activation<T> function,
                                     T* y) {
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
  if (function != activation::none) function(batch, inner, y + c * inner, step);
}

#undef IKEBANA_CPU_TERMS
