// The kernels of cpu/tensor_ops.hpp but exp, log and erf of arrays (elementwise-inl.hpp).

#define IKEBANA_CPU_LAMBDA(...) [=](__VA_ARGS__) __attribute__((always_inline))
#define IKEBANA_CPU_CASE1(op, ...) \
  case tensor_op::op:              \
    return light_lanes(            \
        n, y, IKEBANA_CPU_LAMBDA(vec<T> a)->vec<T> { return __VA_ARGS__; }, pa);
#define IKEBANA_CPU_CASE2(op, ...) \
  case tensor_op::op:              \
    return light_lanes(            \
        n, y, IKEBANA_CPU_LAMBDA(vec<T> a, vec<T> b)->vec<T> { return __VA_ARGS__; }, pa, pb);

/// The sign of x; x itself if it is zero or not a number.
template <class T>
IKEBANA_CPU_INLINE vec<T> sign_like(vec<T> x) {
  return select(x == vec<T>::zero(), x, select(x != x, x, copysign(vec<T>::broadcast(T(1)), x)));
}

template <class T>
void map_tensor_op(tensor_op f, dim_t n, const T* pa, const T* pb, const T* pc, T* y) {
  const vec<T> zero = vec<T>::zero(), one = vec<T>::broadcast(T(1));
  switch (f) {
    IKEBANA_CPU_CASE1(neg, -a)
    IKEBANA_CPU_CASE1(sqrt, sqrt(a))
    IKEBANA_CPU_CASE1(rsqrt, one / sqrt(a))
    IKEBANA_CPU_CASE1(square, a * a)
    IKEBANA_CPU_CASE1(reciprocal, one / a)
    IKEBANA_CPU_CASE1(abs, abs(a))
    IKEBANA_CPU_CASE1(sign, sign_like(a))
    IKEBANA_CPU_CASE2(add, a + b)
    IKEBANA_CPU_CASE2(sub, a - b)
    IKEBANA_CPU_CASE2(mul, a * b)
    IKEBANA_CPU_CASE2(div, a / b)
    IKEBANA_CPU_CASE2(minimum, select(a != a, a, min(a, b)))
    IKEBANA_CPU_CASE2(maximum, select(a != a, a, max(a, b)))
    IKEBANA_CPU_CASE2(eq, select(a == b, one, zero))
    IKEBANA_CPU_CASE2(ne, select(a != b, one, zero))
    IKEBANA_CPU_CASE2(lt, select(a < b, one, zero))
    IKEBANA_CPU_CASE2(le, select(b >= a, one, zero))
    IKEBANA_CPU_CASE2(gt, select(a > b, one, zero))
    IKEBANA_CPU_CASE2(ge, select(a >= b, one, zero))
    case tensor_op::exp:
    case tensor_op::log:
    case tensor_op::erf:
      return;  // elementwise.hpp
    case tensor_op::pow:
      for (dim_t i = 0; i < n; ++i) y[i] = std::pow(pa[i], pb[i]);
      return;
    case tensor_op::where:
      return light_lanes(
          n, y,
          IKEBANA_CPU_LAMBDA(vec<T> a, vec<T> b, vec<T> c) { return select(a != zero, b, c); }, pa,
          pb, pc);
    case tensor_op::clamp:
      return light_lanes(
          n, y, IKEBANA_CPU_LAMBDA(vec<T> a, vec<T> b, vec<T> c) { return min(c, max(b, a)); }, pa,
          pb, pc);
  }
}
#undef IKEBANA_CPU_CASE1
#undef IKEBANA_CPU_CASE2

// d = g(dy, u) or g(dy, u, v), of the two arrays that follow.
#define IKEBANA_CPU_BY(u, ...)                                                          \
  return light_lanes(                                                                   \
      n, d, IKEBANA_CPU_LAMBDA(vec<T> g, vec<T> u)->vec<T> { return __VA_ARGS__; }, dy, \
      IKEBANA_CPU_CONCAT(p, u))
#define IKEBANA_CPU_CASE(op, ...) \
  case tensor_op::op:             \
    IKEBANA_CPU_BY(__VA_ARGS__);
#define IKEBANA_CPU_BY2(u, v, ...)                                                                \
  return light_lanes(                                                                             \
      n, d, IKEBANA_CPU_LAMBDA(vec<T> g, vec<T> u, vec<T> v)->vec<T> { return __VA_ARGS__; }, dy, \
      IKEBANA_CPU_CONCAT(p, u), IKEBANA_CPU_CONCAT(p, v))
#define IKEBANA_CPU_CONCAT(p, u) p##u

template <class T>
void map_tensor_op_backward(tensor_op f, int by, dim_t n, const T* pa, const T* pb, const T* pc,
                            const T* py, const T* dy, T* d) {
  const vec<T> zero = vec<T>::zero(), half = vec<T>::broadcast(T(0.5));
  switch (f) {
    case tensor_op::neg:
      return light_lanes(
          n, d, IKEBANA_CPU_LAMBDA(vec<T> g) { return -g; }, dy);
      IKEBANA_CPU_CASE(exp, y, g * y)
      IKEBANA_CPU_CASE(log, a, g / a)
      IKEBANA_CPU_CASE(sqrt, y, g / (y + y))
      IKEBANA_CPU_CASE(rsqrt, y, g * (y * y * y) * T(-0.5))
      IKEBANA_CPU_CASE(square, a, g * (a + a))
      IKEBANA_CPU_CASE(reciprocal, y, -(g * (y * y)))
      IKEBANA_CPU_CASE(abs, a, g * sign_like(a))
      IKEBANA_CPU_CASE(erf, a, g * (exp(-(a * a)) * T(1.1283791670955125739)))
    case tensor_op::add:
      return light_lanes(
          n, d, IKEBANA_CPU_LAMBDA(vec<T> g) { return g; }, dy);
    case tensor_op::sub:
      if (by == 0) return map_tensor_op_backward(tensor_op::add, 0, n, pa, pb, pc, py, dy, d);
      return map_tensor_op_backward(tensor_op::neg, 0, n, pa, pb, pc, py, dy, d);
    case tensor_op::mul:
      if (by == 1) pb = pa;
      IKEBANA_CPU_BY(b, g * b);
    case tensor_op::div:
      if (by == 0) IKEBANA_CPU_BY(b, g / b);
      IKEBANA_CPU_BY2(b, y, -(g * (y / b)));
    case tensor_op::pow:
      for (dim_t i = 0; i < n; ++i)
        if (by == 0)
          d[i] = pb[i] == 0 ? T(0) : dy[i] * (pb[i] * std::pow(pa[i], pb[i] - 1));
        else
          d[i] = pa[i] == 0 && pb[i] >= 0 ? T(0) : dy[i] * (py[i] * std::log(pa[i]));
      return;
    case tensor_op::minimum:
      if (by == 1) std::swap(pa, pb);
      IKEBANA_CPU_BY2(a, b, select(a == b, g * half, select(a > b, zero, g)));
    case tensor_op::maximum:
      if (by == 1) std::swap(pa, pb);
      IKEBANA_CPU_BY2(a, b, select(a == b, g * half, select(a < b, zero, g)));
    case tensor_op::where:
      if (by == 0) break;
      if (by == 1) IKEBANA_CPU_BY(a, select(a != zero, g, zero));
      IKEBANA_CPU_BY(a, select(a != zero, zero, g));
    case tensor_op::clamp:
      if (by != 0) break;
      return light_lanes(
          n, d,
          IKEBANA_CPU_LAMBDA(vec<T> g, vec<T> a, vec<T> b, vec<T> c) {
            return select((a < b) | (a > c), zero, g);
          },
          dy, pa, pb, pc);
    default:
      break;
  }
  for (dim_t i = 0; i < n; ++i) d[i] = T(0);
}
#undef IKEBANA_CPU_BY
#undef IKEBANA_CPU_CASE
#undef IKEBANA_CPU_BY2
#undef IKEBANA_CPU_CONCAT

// ---- reductions ----

template <class T>
IKEBANA_CPU_INLINE vec<T> power_of(vec<T> x, T p) {
  T lanes[vec<T>::size];
  x.store(lanes);
  for (T& l : lanes) l = std::pow(l, p);
  return vec<T>::load(lanes);
}
/// Not-a-number stays in acc.
template <class T>
IKEBANA_CPU_INLINE vec<T> larger(vec<T> x, vec<T> acc) {
  return select(x != x, x, max(x, acc));
}
template <class T>
IKEBANA_CPU_INLINE vec<T> lesser(vec<T> x, vec<T> acc) {
  return select(x != x, x, min(x, acc));
}

/// Calls run(g) with g(x, m, acc), the next acc, and the least number of acc.
template <class T, class Run>
IKEBANA_CPU_INLINE void with_fold(fold_op f, T p, Run run) {
  const vec<T> zero = vec<T>::zero(), one = vec<T>::broadcast(T(1));
#define IKEBANA_CPU_FOLD(op, ...)                                                            \
  case fold_op::op:                                                                          \
    return run(IKEBANA_CPU_LAMBDA(vec<T> x, [[maybe_unused]] vec<T> m, vec<T> acc)->vec<T> { \
      return __VA_ARGS__;                                                                    \
    });
  switch (f) {
    IKEBANA_CPU_FOLD(sum, acc + x)
    IKEBANA_CPU_FOLD(deviation, fma(x - m, x - m, acc))
    IKEBANA_CPU_FOLD(exp, acc + exp(x - m))
    IKEBANA_CPU_FOLD(abs, acc + abs(x))
    IKEBANA_CPU_FOLD(square, fma(x, x, acc))
    IKEBANA_CPU_FOLD(power, acc + power_of(abs(x), p))
    IKEBANA_CPU_FOLD(equal, acc + select(x == m, one, zero))
    IKEBANA_CPU_FOLD(equal_abs, acc + select(abs(x) == m, one, zero))
    IKEBANA_CPU_FOLD(max, larger(x, acc))
    IKEBANA_CPU_FOLD(min, lesser(x, acc))
    IKEBANA_CPU_FOLD(max_abs, larger(abs(x), acc))
  }
#undef IKEBANA_CPU_FOLD
}

// One function for each fold, so that none spills what another needs.
template <class T, class G>
[[gnu::noinline]] void fold_columns_by(dim_t n, dim_t columns, const T* x, dim_t ldx, const T* m,
                                       T* acc, G g) {
  constexpr dim_t w = vec<T>::size;
  dim_t j = 0;
  for (; j + 2 * w <= columns; j += 2 * w) {
    const vec<T> m0 = m == nullptr ? vec<T>::zero() : vec<T>::load(m + j),
                 m1 = m == nullptr ? m0 : vec<T>::load(m + j + w);
    vec<T> a0 = vec<T>::load(acc + j), a1 = vec<T>::load(acc + j + w);
    const T* from = x + j;
    for (dim_t i = 0; i < n; ++i, from += ldx) {
      a0 = g(vec<T>::load(from), m0, a0);
      a1 = g(vec<T>::load(from + w), m1, a1);
    }
    a0.store(acc + j);
    a1.store(acc + j + w);
  }
  for (; j < columns; j += w) {
    const dim_t lanes = columns - j < w ? columns - j : w;
    const vec<T> mean = m == nullptr ? vec<T>::zero() : vec<T>::load(m + j, lanes);
    vec<T> a = vec<T>::load(acc + j, lanes);
    const T* from = x + j;
    for (dim_t i = 0; i < n; ++i, from += ldx)
      a = g(lanes == w ? vec<T>::load(from) : vec<T>::load(from, lanes), mean, a);
    a.store(acc + j, lanes);
  }
}
template <class T>
void fold_columns_of(fold_op f, dim_t n, dim_t columns, const T* x, dim_t ldx, const T* m, T p,
                     T* acc) {
  with_fold<T>(
      f, p, [=](auto g) __attribute__((always_inline)) {
        fold_columns_by(n, columns, x, ldx, m, acc, g);
      });
}

/// Four vectors from a[0] on, each of which starts as it is.
template <class T, class G>
[[gnu::noinline]] void fold_row_by(dim_t n, const T* x, T m, T* a, G g) {
  using B = typename number<T>::bits;
  constexpr dim_t w = vec<T>::size;
  const vec<T> mean = vec<T>::broadcast(m);
  vec<T> a0 = vec<T>::load(a), a1 = vec<T>::load(a + w), a2 = vec<T>::load(a + 2 * w),
         a3 = vec<T>::load(a + 3 * w);
  dim_t i = 0;
  for (; i + 4 * w <= n; i += 4 * w) {
    a0 = g(vec<T>::load(x + i), mean, a0);
    a1 = g(vec<T>::load(x + i + w), mean, a1);
    a2 = g(vec<T>::load(x + i + 2 * w), mean, a2);
    a3 = g(vec<T>::load(x + i + 3 * w), mean, a3);
  }
  // Lanes past the end stay as they are.
  for (; i < n; i += w) {
    const dim_t left = n - i < w ? n - i : w;
    const auto is_there = lane_numbers<T>() < bits_of<T>::broadcast(static_cast<B>(left));
    a0 = select(lane_mask<T>{is_there.m}, g(vec<T>::load(x + i, left), mean, a0), a0);
  }
  a0.store(a), a1.store(a + w), a2.store(a + 2 * w), a3.store(a + 3 * w);
}
template <class T>
T fold_row_of(fold_op f, dim_t n, const T* x, T m, T p, T acc) {
  constexpr dim_t w = vec<T>::size;
  const bool is_sum = f < fold_op::max;
  T lanes[4 * w];
  for (T& l : lanes) l = is_sum ? T(0) : acc;
  with_fold<T>(
      f, p,
      [ =, &lanes ](auto g) __attribute__((always_inline)) { fold_row_by(n, x, m, lanes, g); });
  const auto part = [&](dim_t i) __attribute__((always_inline)) {
    return vec<T>::load(lanes + i * w);
  };
  if (is_sum) return acc + sum((part(0) + part(1)) + (part(2) + part(3)));
  if (f == fold_op::min)
    lesser(lesser(part(0), part(1)), lesser(part(2), part(3))).store(lanes);
  else
    larger(larger(part(0), part(1)), larger(part(2), part(3))).store(lanes);
  for (dim_t i = 0; i < w; ++i)
    if (const T l = lanes[i]; l != l || (f == fold_op::min ? l < acc : l > acc)) acc = l;
  return acc;
}

template <class T>
void map_fold_backward(fold_op f, dim_t n, const T* x, const T* m, const T* g, T p, T factor,
                       T* dx) {
  const vec<T> by = vec<T>::broadcast(factor), zero = vec<T>::zero();
#define IKEBANA_CPU_FOLD(op, ...)                                                               \
  case fold_op::op:                                                                             \
    return light_lanes(                                                                         \
        n, dx,                                                                                  \
        IKEBANA_CPU_LAMBDA(vec<T> u, vec<T> v)->vec<T> { return (v * by) * (__VA_ARGS__); }, x, \
        g);
#define IKEBANA_CPU_FOLD_OF_M(op, ...)                                                           \
  case fold_op::op:                                                                              \
    return light_lanes(                                                                          \
        n, dx, IKEBANA_CPU_LAMBDA(vec<T> u, vec<T> v, vec<T> s)->vec<T> { return __VA_ARGS__; }, \
        x, g, m);
  switch (f) {
    case fold_op::sum:
      return light_lanes(
          n, dx, IKEBANA_CPU_LAMBDA(vec<T> v) { return v * by; }, g);
      IKEBANA_CPU_FOLD(abs, sign_like(u))
      IKEBANA_CPU_FOLD(square, u)
    case fold_op::power:
      for (dim_t i = 0; i < n; ++i)
        dx[i] = x[i] == 0 ? T(0) : g[i] * factor * x[i] * std::pow(std::abs(x[i]), p - 2);
      return;
      IKEBANA_CPU_FOLD_OF_M(exp, (v * by) * exp(u - s))
      IKEBANA_CPU_FOLD_OF_M(deviation, (v * by) * (u - s))
    case fold_op::min:
    case fold_op::equal:
      IKEBANA_CPU_FOLD_OF_M(max, select(u == s, v * by, zero))
    case fold_op::equal_abs:
      IKEBANA_CPU_FOLD_OF_M(max_abs, select(abs(u) == s, (v * by) * sign_like(u), zero))
  }
#undef IKEBANA_CPU_FOLD
#undef IKEBANA_CPU_FOLD_OF_M
}
#undef IKEBANA_CPU_LAMBDA
