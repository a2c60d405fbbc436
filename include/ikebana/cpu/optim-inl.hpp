/// update(i, lanes) for the elements first to last, by whole registers.
template <class T, class F>
IKEBANA_CPU_INLINE void update_lanes(dim_t first, dim_t last, F update) {
  constexpr dim_t w = vec<T>::size;
  dim_t i = first;
#pragma GCC unroll 2
  for (; i + w <= last; i += w) update(i, w);
  if (i < last) update(i, last - i);
}

/// Gradients times a scale, and parameters times a decay: without decay not even infinite ones.
template <class T>
struct scaled_gradients {
  vec<T> scale, decay;
  bits_of<T> decays;
  IKEBANA_CPU_INLINE scaled_gradients(T gradient_scale, T weight_decay)
      : scale(vec<T>::broadcast(gradient_scale)),
        decay(vec<T>::broadcast(weight_decay)),
        decays(bits_of<T>::broadcast(weight_decay != T(0) ? -1 : 0)) {}
  IKEBANA_CPU_INLINE vec<T> operator()(const T* grads, dim_t lanes, vec<T> p) const {
    return fma(as<T>(as<typename number<T>::bits>(p) & decays), decay,
               load_lanes(grads, lanes) * scale);
  }
};

template <class T>
void sgd_update(dim_t first, dim_t last, T* params, const T* grads, T* momentum_buffer, T lr,
                T momentum, T dampening, T weight_decay, bool nesterov, bool first_step,
                T gradient_scale) {
  const vec<T> rate = vec<T>::broadcast(-lr), mu = vec<T>::broadcast(momentum),
               part = vec<T>::broadcast(first_step ? T(1) : T(1) - dampening);
  const scaled_gradients<T> gradient(gradient_scale, weight_decay);
  if (momentum == T(0) || momentum_buffer == nullptr)
    return update_lanes<T>(
        first, last, [=](dim_t i, dim_t lanes) __attribute__((always_inline)) {
          const vec<T> p = load_lanes(params + i, lanes);
          store_lanes(fma(rate, gradient(grads + i, lanes, p), p), params + i, lanes);
        });
  for (dim_t i = first; first_step && i < last; ++i) momentum_buffer[i] = T(0);
  update_lanes<T>(
      first, last, [=](dim_t i, dim_t lanes) __attribute__((always_inline)) {
        const vec<T> p = load_lanes(params + i, lanes), g = gradient(grads + i, lanes, p);
        const vec<T> b = fma(mu, load_lanes(momentum_buffer + i, lanes), g * part);
        store_lanes(b, momentum_buffer + i, lanes);
        store_lanes(fma(rate, nesterov ? fma(mu, b, g) : b, p), params + i, lanes);
      });
}

template <class T>
IKEBANA_CPU_INLINE vec<T> factor_at(const optimizer_arrays<T>& a, int k) {
  return vec<T>::broadcast(a.factor[k]);
}
/// rule(p, g, load, store) gives the new parameters; load(k) and store(k, x) are of state k.
template <class T, class F>
IKEBANA_CPU_INLINE void apply_rule(const optimizer_arrays<T>& a, F rule) {
  const scaled_gradients<T> gradient(a.gradient_scale, a.weight_decay);
  // Copies, since what is stored might else be taken for the pointers.
  T *const params = a.params, *const state[]{a.state[0], a.state[1], a.state[2]};
  const T* const grads = a.grads;
  update_lanes<T>(
      0, a.n, [&](dim_t i, dim_t lanes) __attribute__((always_inline)) {
        const vec<T> p = load_lanes(params + i, lanes), g = gradient(grads + i, lanes, p);
        const auto load = [&](int k) __attribute__((always_inline)) {
          return load_lanes(state[k] + i, lanes);
        };
        const auto store = [&](int k, vec<T> x) __attribute__((always_inline)) {
          store_lanes(x, state[k] + i, lanes);
        };
        store_lanes(rule(p, g, load, store), params + i, lanes);
      });
}

template <class T>
void adam_update(const optimizer_arrays<T>& a) {
  const vec<T> rate = -factor_at(a, 0), root = factor_at(a, 1), beta1 = factor_at(a, 2),
               fresh1 = factor_at(a, 3), beta2 = factor_at(a, 4), fresh2 = factor_at(a, 5),
               eps = factor_at(a, 6), kept = factor_at(a, 7);
  const bool keeps_largest = a.state[2] != nullptr;
  apply_rule(
      a, [&](vec<T> p, vec<T> g, auto load, auto store) __attribute__((always_inline)) {
        const vec<T> mean = fma(beta1, load(0), fresh1 * g),
                     square = fma(beta2, load(1), fresh2 * (g * g));
        store(0, mean);
        store(1, square);
        vec<T> largest = square;
        if (keeps_largest) {
          largest = max(load(2), square);
          store(2, largest);
        }
        return fma(rate, mean / fma(sqrt(largest), root, eps), p * kept);
      });
}
