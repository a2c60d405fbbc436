/// 1, 0 or -1; 0 for NaN.
template <class T>
IKEBANA_CPU_INLINE vec<T> sign_of(vec<T> x) {
  const vec<T> zero = vec<T>::broadcast(T(0));
  return select(x > zero, vec<T>::broadcast(T(1)),
                select(x < zero, vec<T>::broadcast(T(-1)), zero));
}

template <class T>
void rmsprop_update(const optimizer_arrays<T>& a) {
  const vec<T> rate = -factor_at(a, 0), alpha = factor_at(a, 1), fresh = factor_at(a, 2),
               eps = factor_at(a, 3), momentum = factor_at(a, 4);
  const bool has_momentum = a.state[1] != nullptr, centered = a.state[2] != nullptr;
  apply_rule(
      a, [&](vec<T> p, vec<T> g, auto load, auto store) __attribute__((always_inline)) {
        const vec<T> square = fma(alpha, load(0), fresh * (g * g));
        store(0, square);
        vec<T> variance = square;
        if (centered) {
          const vec<T> mean = fma(alpha, load(2), fresh * g);
          store(2, mean);
          variance = fma(-mean, mean, square);
        }
        const vec<T> step = g / (sqrt(variance) + eps);
        if (!has_momentum) return fma(rate, step, p);
        const vec<T> buffer = fma(momentum, load(1), step);
        store(1, buffer);
        return fma(rate, buffer, p);
      });
}

template <class T>
void adagrad_update(const optimizer_arrays<T>& a) {
  const vec<T> rate = -factor_at(a, 0), eps = factor_at(a, 1);
  apply_rule(
      a, [&](vec<T> p, vec<T> g, auto load, auto store) __attribute__((always_inline)) {
        const vec<T> sum = fma(g, g, load(0));
        store(0, sum);
        return fma(rate, g / (sqrt(sum) + eps), p);
      });
}

template <class T>
void adadelta_update(const optimizer_arrays<T>& a) {
  const vec<T> rate = -factor_at(a, 0), rho = factor_at(a, 1), fresh = factor_at(a, 2),
               eps = factor_at(a, 3);
  apply_rule(
      a, [&](vec<T> p, vec<T> g, auto load, auto store) __attribute__((always_inline)) {
        const vec<T> square = fma(rho, load(0), fresh * (g * g)), before = load(1);
        const vec<T> delta = sqrt(before + eps) / sqrt(square + eps) * g;
        store(0, square);
        store(1, fma(rho, before, fresh * (delta * delta)));
        return fma(rate, delta, p);
      });
}

template <class T>
void adamax_update(const optimizer_arrays<T>& a) {
  const vec<T> rate = -factor_at(a, 0), beta1 = factor_at(a, 1), fresh = factor_at(a, 2),
               beta2 = factor_at(a, 3), eps = factor_at(a, 4);
  apply_rule(
      a, [&](vec<T> p, vec<T> g, auto load, auto store) __attribute__((always_inline)) {
        const vec<T> mean = fma(beta1, load(0), fresh * g),
                     largest = max(beta2 * load(1), abs(g) + eps);
        store(0, mean);
        store(1, largest);
        return fma(rate, mean / largest, p);
      });
}

template <class T>
void mixed_adam_update(const optimizer_arrays<T>& a) {
  const vec<T> of_gradient = -factor_at(a, 0), of_mean = -factor_at(a, 1), root = factor_at(a, 2),
               beta1 = factor_at(a, 3), fresh1 = factor_at(a, 4), beta2 = factor_at(a, 5),
               fresh2 = factor_at(a, 6), eps = factor_at(a, 7), kept = factor_at(a, 8);
  const bool is_adaptive = a.factor[2] != T(0);
  apply_rule(
      a, [&](vec<T> p, vec<T> g, auto load, auto store) __attribute__((always_inline)) {
        const vec<T> mean = fma(beta1, load(0), fresh1 * g),
                     square = fma(beta2, load(1), fresh2 * (g * g));
        store(0, mean);
        store(1, square);
        const vec<T> step = fma(of_gradient, g, of_mean * mean);
        return fma(p, kept, is_adaptive ? step / fma(sqrt(square), root, eps) : step);
      });
}

template <class T>
void asgd_update(const optimizer_arrays<T>& a) {
  const vec<T> rate = -factor_at(a, 0), kept = factor_at(a, 1), mu = factor_at(a, 2);
  const bool averages = a.factor[2] != T(1);
  apply_rule(
      a, [&](vec<T> p, vec<T> g, auto load, auto store) __attribute__((always_inline)) {
        const vec<T> next = fma(rate, g, p * kept);
        if (averages) {
          const vec<T> average = load(0);
          store(0, fma(next - average, mu, average));
        } else {
          store(0, next);
        }
        return next;
      });
}

template <class T>
void rprop_update(const optimizer_arrays<T>& a) {
  const vec<T> shrink = factor_at(a, 0), grow = factor_at(a, 1), least = factor_at(a, 2),
               most = factor_at(a, 3);
  const vec<T> zero = vec<T>::broadcast(T(0)), one = vec<T>::broadcast(T(1));
  apply_rule(
      a, [&](vec<T> p, vec<T> g, auto load, auto store) __attribute__((always_inline)) {
        const vec<T> agreement = sign_of(g) * sign_of(load(0));
        const vec<T> factor = select(agreement > zero, grow, select(agreement < zero, shrink, one));
        const vec<T> size = min(max(load(1) * factor, least), most);
        const vec<T> used = select(agreement < zero, zero, g);
        store(0, used);
        store(1, size);
        return p - sign_of(used) * size;
      });
}

template <class T>
void lion_update(const optimizer_arrays<T>& a) {
  const vec<T> rate = -factor_at(a, 0), kept = factor_at(a, 1), beta1 = factor_at(a, 2),
               fresh1 = factor_at(a, 3), beta2 = factor_at(a, 4), fresh2 = factor_at(a, 5);
  apply_rule(
      a, [&](vec<T> p, vec<T> g, auto load, auto store) __attribute__((always_inline)) {
        const vec<T> mean = load(0);
        store(0, fma(beta2, mean, fresh2 * g));
        return fma(rate, sign_of(fma(beta1, mean, fresh1 * g)), p * kept);
      });
}

template <class T>
void lamb_direction(const optimizer_arrays<T>& a) {
  const vec<T> correction = factor_at(a, 0), root = factor_at(a, 1), beta1 = factor_at(a, 2),
               fresh1 = factor_at(a, 3), beta2 = factor_at(a, 4), fresh2 = factor_at(a, 5),
               eps = factor_at(a, 6), decay = factor_at(a, 7);
  apply_rule(
      a, [&](vec<T> p, vec<T> g, auto load, auto store) __attribute__((always_inline)) {
        const vec<T> mean = fma(beta1, load(0), fresh1 * g),
                     square = fma(beta2, load(1), fresh2 * (g * g));
        store(0, mean);
        store(1, square);
        store(2, fma(decay, p, correction * mean / fma(sqrt(square), root, eps)));
        return p;
      });
}

template <class T>
void square_means(const optimizer_arrays<T>& a) {
  const vec<T> kept = factor_at(a, 0), fresh = factor_at(a, 1);
  apply_rule(
      a, [&](vec<T> p, vec<T> g, auto load, auto store) __attribute__((always_inline)) {
        store(0, fma(kept, load(0), fresh * (g * g)));
        return p;
      });
}

template <class T>
void adafactor_direction(const optimizer_arrays<T>& a) {
  const vec<T> row = factor_at(a, 0), least = factor_at(a, 1);
  apply_rule(
      a, [&](vec<T> p, vec<T> g, auto load, auto store) __attribute__((always_inline)) {
        const vec<T> variance = row * load(0);
        store(1, g / sqrt(select(variance < least, least, variance)));
        return p;
      });
}
