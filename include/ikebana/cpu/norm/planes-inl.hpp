// Batch norm of planes so small that registers would often be idle: those of some channels stand
// side by side in an image, and go as one row, each element of which has the factors of its
// channel.

/// Whether such planes of an image are read so, and those of a batch, some channels together, where
/// it spares registers.
template <class T>
constexpr bool are_planes_joined(dim_t inner) {
  return vec<T>::size >= 8 && inner <= 256 / static_cast<dim_t>(sizeof(T));
}
template <class T>
constexpr bool are_planes_joined(dim_t batch, dim_t inner, dim_t together) {
  using detail::parts;
  constexpr dim_t w = vec<T>::size;
  return batch > 1 && are_planes_joined<T>(2 * inner) &&
         5 * parts(together * inner, w) <= 4 * together * parts(inner, w);
}
/// How many elements of a list of them: planes of as many channels as a register has lanes, and
/// what is written behind them.
template <class T>
inline constexpr dim_t most_joined =
    vec<T>::size*(256 / static_cast<dim_t>(sizeof(T))) + vec<T>::size;

/// some(i, lanes, registers...) for n elements.
template <class T, class F>
IKEBANA_CPU_INLINE void for_each_joined(dim_t n, F some) {
  constexpr dim_t w = vec<T>::size;
  dim_t i = 0;
  for (; i + 4 * w <= n; i += 4 * w) some(i, w, dim_t{0}, dim_t{1}, dim_t{2}, dim_t{3});
  for (; i + w <= n; i += w) some(i, w, dim_t{0});
  if (i < n) some(i, n - i, dim_t{0});
}

template <class T>
IKEBANA_CPU_INLINE vec<T> sum_of_plane(dim_t inner, const T* x) {
  constexpr dim_t w = vec<T>::size;
  const dim_t rest = inner % w, whole = inner - rest;
  vec<T> s = rest > 0 ? vec<T>::load(x + whole, rest) : vec<T>::zero();
  for (dim_t i = 0; i < whole; i += w) s = s + vec<T>::load(x + i);
  return s;
}

/// to[i] = the sum over images, `step` apart, of x[i], or of (x[i] - centers[i])^2.
template <bool Squares, class T>
[[gnu::noinline]] void sum_images(dim_t batch, dim_t step, dim_t n, const T* x, const T* centers,
                                  T* to) {
  constexpr dim_t w = vec<T>::size;
  for_each_joined<T>(
      n, [=](dim_t i, dim_t lanes, auto... k) __attribute__((always_inline)) {
        const vec<T> middle[] = {Squares ? vec<T>::load(centers + i + k * w) : vec<T>::zero()...};
        vec<T> s[] = {(static_cast<void>(k), vec<T>::zero())...};
        const T* from = x + i;
        for (dim_t b = 0; b < batch; ++b, from += step) {
          const vec<T> v[] = {load_lanes(from + k * w, lanes) - middle[k]...};
          ((s[k] = Squares ? fma(v[k], v[k], s[k]) : s[k] + v[k]), ...);
        }
        (s[k].store(to + i + k * w), ...);
      });
}
/// The same of dy, and of dy (x - centers).
template <class T>
[[gnu::noinline]] void sum_gradient_images(dim_t batch, dim_t step, dim_t n, const T* x,
                                           const T* dy, const T* centers, T* to, T* to_x) {
  constexpr dim_t w = vec<T>::size;
  for_each_joined<T>(
      n, [=](dim_t i, dim_t lanes, auto... k) __attribute__((always_inline)) {
        const vec<T> middle[] = {vec<T>::load(centers + i + k * w)...};
        vec<T> s[] = {(static_cast<void>(k), vec<T>::zero())...},
               t[] = {(static_cast<void>(k), vec<T>::zero())...};
        dim_t at = i;
        for (dim_t b = 0; b < batch; ++b, at += step) {
          const vec<T> g[] = {load_lanes(dy + at + k * w, lanes)...};
          ((t[k] = fma(g[k], load_lanes(x + at + k * w, lanes) - middle[k], t[k])), ...);
          ((s[k] = s[k] + g[k]), ...);
        }
        (s[k].store(to + i + k * w), ...);
        (t[k].store(to_x + i + k * w), ...);
      });
}

/// y = function(factors (x - centers) + offsets).
template <class T>
[[gnu::noinline]] void scale_images(dim_t batch, dim_t step, dim_t n, const T* x, const T* centers,
                                    const T* factors, const T* offsets,
                                    final_activation<T> function, T* y) {
  constexpr dim_t w = vec<T>::size;
  const auto scale = [=](auto finish) __attribute__((always_inline)) {
    for_each_joined<T>(
        n, [=](dim_t i, dim_t lanes, auto... k) __attribute__((always_inline)) {
          const vec<T> middle[] = {vec<T>::load(centers + i + k * w)...},
                       by[] = {vec<T>::load(factors + i + k * w)...},
                       shift[] = {vec<T>::load(offsets + i + k * w)...};
          dim_t at = i;
          for (dim_t b = 0; b < batch; ++b, at += step)
            (store_lanes(
                 finish(fma(load_lanes(x + at + k * w, lanes) - middle[k], by[k], shift[k])),
                 y + at + k * w, lanes),
             ...);
        });
  };
  if (function == activation::relu)
    return scale([](vec<T> v) __attribute__((always_inline)) { return max(vec<T>::zero(), v); });
  scale([](vec<T> v) __attribute__((always_inline)) { return v; });
  if (function != activation::none) function(batch, n, y, step);
}
/// dx = scales (slopes (x - centers) + dy - means_dy).
template <class T>
[[gnu::noinline]] void pass_images(dim_t batch, dim_t step, dim_t n, const T* x, const T* dy,
                                   const T* centers, const T* scales, const T* slopes,
                                   const T* means_dy, T* dx) {
  constexpr dim_t w = vec<T>::size;
  for_each_joined<T>(
      n, [=](dim_t i, dim_t lanes, auto... k) __attribute__((always_inline)) {
        const vec<T> middle[] = {vec<T>::load(centers + i + k * w)...},
                     by[] = {vec<T>::load(scales + i + k * w)...},
                     rise[] = {vec<T>::load(slopes + i + k * w)...},
                     less[] = {vec<T>::load(means_dy + i + k * w)...};
        dim_t at = i;
        for (dim_t b = 0; b < batch; ++b, at += step)
          (store_lanes(by[k] * fma(load_lanes(x + at + k * w, lanes) - middle[k], rise[k],
                                   load_lanes(dy + at + k * w, lanes) - less[k]),
                       dx + at + k * w, lanes),
           ...);
      });
}

/// Where lists of elements stand, in the thread's scratch.
template <class T>
IKEBANA_CPU_INLINE T* joined_list(dim_t which) {
  return detail::thread_scratch<T>() + which * most_joined<T>;
}

/// Batch norm by running statistics.
template <class T>
void normalize_joined_by_running(dim_t batch, dim_t channels, dim_t wanted, dim_t inner, const T* x,
                                 const T* gamma, const T* beta, T eps, const T* running_mean,
                                 const T* running_var, final_activation<T> function, T* y) {
  constexpr dim_t w = vec<T>::size;
  T *const centers = joined_list<T>(0), *const factors = joined_list<T>(1),
           *const offsets = joined_list<T>(2);
  T each[w];
  for (dim_t first = 0; first < wanted; first += w) {
    const dim_t here = wanted - first < w ? wanted - first : w;
    spread_over_planes(here, inner, running_mean + first, centers);
    const vec<T> invstd =
        T(1) / sqrt(load_lanes(running_var + first, here) + vec<T>::broadcast(eps));
    (gamma != nullptr ? load_lanes(gamma + first, here) * invstd : invstd).store(each);
    spread_over_planes(here, inner, static_cast<const T*>(each), factors);
    (beta != nullptr ? load_lanes(beta + first, here) : vec<T>::zero()).store(each);
    spread_over_planes(here, inner, static_cast<const T*>(each), offsets);
    scale_images<T>(batch, channels * inner, here * inner, x + first * inner, centers, factors,
                    offsets, function, y + first * inner);
  }
}
