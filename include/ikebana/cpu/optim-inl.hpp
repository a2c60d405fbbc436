/// update(i, lanes) for the elements first to last, by whole registers.
template <class T, class F>
IKEBANA_CPU_INLINE void update_lanes(dim_t first, dim_t last, F update) {
  constexpr dim_t w = vec<T>::size;
  dim_t i = first;
#pragma GCC unroll 2
  for (; i + w <= last; i += w) update(i, w);
  if (i < last) update(i, last - i);
}

template <class T>
void sgd_update(dim_t first, dim_t last, T* params, const T* grads, T* momentum_buffer, T lr,
                T momentum, T dampening, T weight_decay, bool nesterov, bool first_step,
                T gradient_scale) {
  const vec<T> rate = vec<T>::broadcast(-lr), mu = vec<T>::broadcast(momentum),
               part = vec<T>::broadcast(first_step ? T(1) : T(1) - dampening),
               decay = vec<T>::broadcast(weight_decay), scale = vec<T>::broadcast(gradient_scale);
  // Without decay no product, which of an infinite parameter would be no number.
  const bool decays = weight_decay != T(0);
  const auto gradient = [=](dim_t i, dim_t lanes, vec<T> p) __attribute__((always_inline)) {
    const vec<T> g = load_lanes(grads + i, lanes) * scale;
    return decays ? fma(p, decay, g) : g;
  };
  if (momentum == T(0) || momentum_buffer == nullptr)
    return update_lanes<T>(
        first, last, [=](dim_t i, dim_t lanes) __attribute__((always_inline)) {
          const vec<T> p = load_lanes(params + i, lanes);
          store_lanes(fma(rate, gradient(i, lanes, p), p), params + i, lanes);
        });
  for (dim_t i = first; first_step && i < last; ++i) momentum_buffer[i] = T(0);
  update_lanes<T>(
      first, last, [=](dim_t i, dim_t lanes) __attribute__((always_inline)) {
        const vec<T> p = load_lanes(params + i, lanes), g = gradient(i, lanes, p);
        const vec<T> b = fma(mu, load_lanes(momentum_buffer + i, lanes), g * part);
        store_lanes(b, momentum_buffer + i, lanes);
        store_lanes(fma(rate, nesterov ? fma(mu, b, g) : b, p), params + i, lanes);
      });
}

template <class T>
void adam_update(dim_t first, dim_t last, T* params, const T* grads, T* m, T* v, T* vmax,
                 const detail::adam_factors<T>& f) {
  const vec<T> scale = vec<T>::broadcast(f.gradient_scale),
               decay = vec<T>::broadcast(f.weight_decay);
  const vec<T> kept = vec<T>::broadcast(f.parameter_scale);
  const vec<T> beta1 = vec<T>::broadcast(f.beta1), fresh1 = vec<T>::broadcast(f.one_minus_beta1);
  const vec<T> beta2 = vec<T>::broadcast(f.beta2), fresh2 = vec<T>::broadcast(f.one_minus_beta2);
  const vec<T> eps = vec<T>::broadcast(f.eps), rate = vec<T>::broadcast(-f.step_size);
  const vec<T> inverse_sqrt = vec<T>::broadcast(f.inverse_correction2_sqrt);
  const bool decays = f.weight_decay != T(0);
  update_lanes<T>(
      first, last, [&](dim_t i, dim_t lanes) __attribute__((always_inline)) {
        const vec<T> p = load_lanes(params + i, lanes);
        vec<T> g = load_lanes(grads + i, lanes) * scale;
        if (decays) g = fma(p, decay, g);
        const vec<T> mean = fma(beta1, load_lanes(m + i, lanes), fresh1 * g);
        const vec<T> second = fma(beta2, load_lanes(v + i, lanes), fresh2 * (g * g));
        store_lanes(mean, m + i, lanes);
        store_lanes(second, v + i, lanes);
        vec<T> largest = second;
        if (vmax != nullptr) {
          largest = max(load_lanes(vmax + i, lanes), second);
          store_lanes(largest, vmax + i, lanes);
        }
        store_lanes(fma(rate, mean / fma(sqrt(largest), inverse_sqrt, eps), p * kept), params + i,
                    lanes);
      });
}
