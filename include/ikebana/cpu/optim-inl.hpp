template <class T>
void sgd_update(dim_t n, T* params, const T* grads, T* momentum_buffer, T lr, T momentum,
                T dampening, T weight_decay, bool nesterov, bool first_step, bool maximize) {
  constexpr dim_t w = vec<T>::size;
  const vec<T> rate = vec<T>::broadcast(-lr), decay = vec<T>::broadcast(weight_decay),
               mu = vec<T>::broadcast(momentum);
  const vec<T> sign = vec<T>::broadcast(maximize ? T(-1) : T(1));
  const vec<T> fresh = vec<T>::broadcast(first_step ? T(1) : T(1) - dampening);
  const bool has_momentum = momentum != T(0) && momentum_buffer != nullptr;
  for (dim_t i = 0; i < n; i += w) {
    const dim_t lanes = n - i < w ? n - i : w;
    const auto load = [lanes](const T* p) __attribute__((always_inline)) {
      return lanes == w ? vec<T>::load(p) : vec<T>::load(p, lanes);
    };
    const auto store = [lanes](vec<T> x, T * p) __attribute__((always_inline)) {
      lanes == w ? x.store(p) : x.store(p, lanes);
    };
    const vec<T> p = load(params + i);
    vec<T> g = fma(p, decay, load(grads + i) * sign);
    if (has_momentum) {
      const vec<T> b = first_step ? g : fma(mu, load(momentum_buffer + i), g * fresh);
      store(b, momentum_buffer + i);
      g = nesterov ? fma(mu, b, g) : b;
    }
    store(fma(rate, g, p), params + i);
  }
}

template <class T>
void adam_update(dim_t n, T* params, const T* grads, T* m, T* v, T* vmax,
                 const detail::adam_factors<T>& f) {
  constexpr dim_t w = vec<T>::size;
  const vec<T> sign = vec<T>::broadcast(f.gradient_sign), decay = vec<T>::broadcast(f.weight_decay);
  const vec<T> kept = vec<T>::broadcast(f.parameter_scale);
  const vec<T> beta1 = vec<T>::broadcast(f.beta1), fresh1 = vec<T>::broadcast(f.one_minus_beta1);
  const vec<T> beta2 = vec<T>::broadcast(f.beta2), fresh2 = vec<T>::broadcast(f.one_minus_beta2);
  const vec<T> eps = vec<T>::broadcast(f.eps), rate = vec<T>::broadcast(-f.step_size);
  const vec<T> inverse_sqrt = vec<T>::broadcast(f.inverse_correction2_sqrt);
  for (dim_t i = 0; i < n; i += w) {
    const dim_t lanes = n - i < w ? n - i : w;
    const auto load = [lanes](const T* p) __attribute__((always_inline)) {
      return lanes == w ? vec<T>::load(p) : vec<T>::load(p, lanes);
    };
    const auto store = [lanes](vec<T> x, T * p) __attribute__((always_inline)) {
      lanes == w ? x.store(p) : x.store(p, lanes);
    };
    vec<T> p = load(params + i);
    const vec<T> g = fma(p, decay, load(grads + i) * sign);
    p = p * kept;
    const vec<T> first = fma(beta1, load(m + i), fresh1 * g);
    const vec<T> second = fma(beta2, load(v + i), fresh2 * (g * g));
    store(first, m + i);
    store(second, v + i);
    vec<T> largest = second;
    if (vmax != nullptr) {
      largest = max(load(vmax + i), second);
      store(largest, vmax + i);
    }
    const vec<T> denominator = fma(sqrt(largest), inverse_sqrt, eps);
    store(fma(rate, first / denominator, p), params + i);
  }
}
