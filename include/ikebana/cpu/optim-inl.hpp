/// update(i, lanes) for all of n elements of p and of other arrays, by whole registers.
template <class T, class F>
IKEBANA_CPU_INLINE void update_lanes(dim_t n, [[maybe_unused]] const T* p, F update) {
#if IKEBANA_CPU_WIDTH == 0
  for (dim_t i = 0; i < n; ++i) update(i, dim_t{1});
#else
  constexpr dim_t w = vec<T>::size;
  dim_t i = lanes_to_line(n, p);
  if (i != 0) [[unlikely]]
    update(0, i);
#pragma GCC unroll 2
  for (; i + w <= n; i += w) update(i, w);
  if (i < n) update(i, n - i);
#endif
}

/// gradient(i, lanes, parameters) is what the rate is for.
template <class T, class G>
IKEBANA_CPU_INLINE void sgd_loop(dim_t n, T* params, T* momentum_buffer, T lr, T momentum, T fresh,
                                 bool nesterov, G gradient) {
  const vec<T> rate = vec<T>::broadcast(-lr), mu = vec<T>::broadcast(momentum),
               part = vec<T>::broadcast(fresh);
  if (momentum_buffer == nullptr)
    return update_lanes<T>(
        n, params, [=](dim_t i, dim_t lanes) __attribute__((always_inline)) {
          const vec<T> p = load_lanes(params + i, lanes);
          store_lanes(fma(rate, gradient(i, lanes, p), p), params + i, lanes);
        });
  update_lanes<T>(
      n, params, [=](dim_t i, dim_t lanes) __attribute__((always_inline)) {
        const vec<T> p = load_lanes(params + i, lanes), g = gradient(i, lanes, p);
        const vec<T> b = fma(mu, load_lanes(momentum_buffer + i, lanes), g * part);
        store_lanes(b, momentum_buffer + i, lanes);
        store_lanes(fma(rate, nesterov ? fma(mu, b, g) : b, p), params + i, lanes);
      });
}

template <class T>
void sgd_update(dim_t n, T* params, const T* grads, T* momentum_buffer, T lr, T momentum,
                T dampening, T weight_decay, bool nesterov, bool first_step, T gradient_scale) {
  T* const buffer = momentum != T(0) ? momentum_buffer : nullptr;
  if (first_step && buffer != nullptr && n > 0)
    std::memset(static_cast<void*>(buffer), 0, static_cast<std::size_t>(n) * sizeof(T));
  const T fresh = first_step ? T(1) : T(1) - dampening;
  if (weight_decay == T(0) && gradient_scale == T(1))
    return sgd_loop(
        n, params, buffer, lr, momentum, fresh,
        nesterov, [=](dim_t i, dim_t lanes, vec<T>) __attribute__((always_inline)) {
          return load_lanes(grads + i, lanes);
        });
  const vec<T> decay = vec<T>::broadcast(weight_decay), scale = vec<T>::broadcast(gradient_scale);
  sgd_loop(
      n, params, buffer, lr, momentum, fresh,
      nesterov, [=](dim_t i, dim_t lanes, vec<T> p) __attribute__((always_inline)) {
        return fma(p, decay, load_lanes(grads + i, lanes) * scale);
      });
}

/// a / (sqrt(v) scale + eps) for v >= 0.
template <class T>
IKEBANA_CPU_INLINE vec<T> over_root(vec<T> a, vec<T> v, vec<T> scale, vec<T> eps) {
  const vec<T> denominator = fma(sqrt(v), scale, eps);
#if IKEBANA_CPU_WIDTH == 64
  if constexpr (sizeof(T) == 4) {
    // A root and a quotient would wait for the same divider. One step of Newton's from 14 bits is
    // right to about a unit in the last place.
    const vec<T> r{_mm512_maskz_rcp14_ps(all16, denominator.v)};
    const vec<T> q = a * r;
    const vec<T> quotient = fma(fma(-q, denominator, a), r, q);
    // What overflows or divides by nothing: not a number, 0, infinite or denormal.
    const __mmask16 unusual = __builtin_ia32_fpclassps512_mask(denominator.v, 0x3F, all16);
    if (unusual != 0) [[unlikely]]
      return {_mm512_mask_blend_ps(unusual, quotient.v, (a / denominator).v)};
    return quotient;
  }
#endif
  return a / denominator;
}

template <class T, bool Decays>
IKEBANA_CPU_INLINE void adam_loop(dim_t n, T* params, const T* grads, T* m, T* v, T* vmax,
                                  const detail::adam_factors<T>& f) {
  constexpr dim_t w = vec<T>::size;
  const vec<T> scale = vec<T>::broadcast(f.gradient_scale),
               decay = vec<T>::broadcast(f.weight_decay);
  const vec<T> kept = vec<T>::broadcast(f.parameter_scale);
  const vec<T> beta1 = vec<T>::broadcast(f.beta1), fresh1 = vec<T>::broadcast(f.one_minus_beta1);
  const vec<T> beta2 = vec<T>::broadcast(f.beta2), fresh2 = vec<T>::broadcast(f.one_minus_beta2);
  const vec<T> eps = vec<T>::broadcast(f.eps), rate = vec<T>::broadcast(-f.step_size);
  const vec<T> inverse_sqrt = vec<T>::broadcast(f.inverse_correction2_sqrt);
  const auto update = [&](dim_t i, dim_t lanes) __attribute__((always_inline)) {
    vec<T> p = load_lanes(params + i, lanes);
    vec<T> g = load_lanes(grads + i, lanes) * scale;
    if constexpr (Decays) {
      g = fma(p, decay, g);
      p = p * kept;
    }
    const vec<T> first = fma(beta1, load_lanes(m + i, lanes), fresh1 * g);
    const vec<T> second = fma(beta2, load_lanes(v + i, lanes), fresh2 * (g * g));
    store_lanes(first, m + i, lanes);
    store_lanes(second, v + i, lanes);
    vec<T> largest = second;
    if (vmax != nullptr) {
      largest = max(load_lanes(vmax + i, lanes), second);
      store_lanes(largest, vmax + i, lanes);
    }
    store_lanes(fma(rate, over_root(first, largest, inverse_sqrt, eps), p), params + i, lanes);
  };
  dim_t i = 0;
  for (; i + w <= n; i += w) update(i, w);
  if (i < n) update(i, n - i);
}

template <class T>
void adam_update(dim_t n, T* params, const T* grads, T* m, T* v, T* vmax,
                 const detail::adam_factors<T>& f) {
  if (f.weight_decay == T(0) && f.parameter_scale == T(1))
    adam_loop<T, false>(n, params, grads, m, v, vmax, f);
  else
    adam_loop<T, true>(n, params, grads, m, v, vmax, f);
}
