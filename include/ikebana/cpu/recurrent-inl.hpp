/// All lanes or, at the end of a row, the first of them.
template <class T>
struct some_lanes {
  dim_t count;
  IKEBANA_CPU_INLINE vec<T> load(const T* p) const {
    return count >= vec<T>::size ? vec<T>::load(p) : vec<T>::load(p, count);
  }
  IKEBANA_CPU_INLINE void store(vec<T> v, T* p) const {
    count >= vec<T>::size ? v.store(p) : v.store(p, count);
  }
};

/// f(lanes, i) for i = 0, size, 2 size, ... below n.
template <class T, class F>
IKEBANA_CPU_INLINE void along_row(dim_t n, F f) {
  for (dim_t i = 0; i < n; i += vec<T>::size) f(some_lanes<T>{n - i}, i);
}

#define IKEBANA_CPU_ALONG [=](some_lanes<T> lanes, dim_t i) __attribute__((always_inline))

/// dh with dy, where there is one.
template <class T>
IKEBANA_CPU_INLINE vec<T> with(some_lanes<T> lanes, const T* dh, const T* dy, dim_t i) {
  const vec<T> d = lanes.load(dh + i);
  return dy == nullptr ? d : d + lanes.load(dy + i);
}
template <class T>
IKEBANA_CPU_INLINE const T* row_or_null(rows_of<const T> rows, dim_t b) {
  return rows ? rows[b] : nullptr;
}

/// Row b of y, or where there is none, what is written anyway.
template <class T>
IKEBANA_CPU_INLINE T* also_to(rows_of<T> y, dim_t b, T* h) {
  return y ? y[b] : h;
}

template <class T>
void simple_gates(dim_t m, dim_t n, bool rectified, rows_of<T> gates, rows_of<T> h, rows_of<T> y) {
  for (dim_t b = 0; b < m; ++b) {
    T *const g = gates[b], *const to = h[b], *const also = also_to(y, b, to);
    along_row<T>(
        n, IKEBANA_CPU_ALONG {
          const vec<T> a = lanes.load(g + i);
          const vec<T> v = rectified ? max(vec<T>::zero(), a) : tanh(a);
          lanes.store(v, g + i);
          lanes.store(v, to + i);
          lanes.store(v, also + i);
        });
  }
}
template <class T>
void simple_gates_backward(dim_t m, dim_t n, bool rectified, rows_of<const T> gates,
                           rows_of<const T> dh, rows_of<const T> dy, rows_of<T> dgates) {
  for (dim_t b = 0; b < m; ++b) {
    const T *const g = gates[b], *const above = dh[b], *const beside = row_or_null(dy, b);
    T* const to = dgates[b];
    along_row<T>(
        n, IKEBANA_CPU_ALONG {
          const vec<T> d = with(lanes, above, beside, i), y = lanes.load(g + i);
          lanes.store(
              rectified ? select(vec<T>::zero() >= y, vec<T>::zero(), d) : d * (T(1) - y * y),
              to + i);
        });
  }
}

template <class T>
void memory_gates(dim_t m, dim_t n, rows_of<T> gates, rows_of<T> c, rows_of<T> c_before,
                  rows_of<T> tanh_c, rows_of<T> h, rows_of<T> y) {
  for (dim_t b = 0; b < m; ++b) {
    T *const g = gates[b], *const cell = c[b], *const kept = c_before[b], *const curbed = tanh_c[b],
             *const to = h[b], *const also = also_to(y, b, to);
    along_row<T>(
        n, IKEBANA_CPU_ALONG {
          const vec<T> in = sigmoid_of_sum(lanes.load(g + i)),
                       forget = sigmoid_of_sum(lanes.load(g + n + i)),
                       fresh = tanh(lanes.load(g + 2 * n + i)),
                       out = sigmoid_of_sum(lanes.load(g + 3 * n + i)),
                       before = lanes.load(cell + i);
          const vec<T> now = fma(forget, before, in * fresh), squashed = tanh(now);
          lanes.store(in, g + i);
          lanes.store(forget, g + n + i);
          lanes.store(fresh, g + 2 * n + i);
          lanes.store(out, g + 3 * n + i);
          lanes.store(before, kept + i);
          lanes.store(now, cell + i);
          lanes.store(squashed, curbed + i);
          lanes.store(out * squashed, to + i);
          lanes.store(out * squashed, also + i);
        });
  }
}
template <class T>
void memory_gates_backward(dim_t m, dim_t n, rows_of<const T> gates, rows_of<const T> c_before,
                           rows_of<const T> tanh_c, rows_of<const T> dh, rows_of<const T> dy,
                           rows_of<T> dc, rows_of<T> dgates) {
  for (dim_t b = 0; b < m; ++b) {
    const T *const g = gates[b], *const kept = c_before[b], *const curbed = tanh_c[b],
                   *const above = dh[b], *const beside = row_or_null(dy, b);
    T *const dcell = dc[b], *const to = dgates[b];
    along_row<T>(
        n, IKEBANA_CPU_ALONG {
          const vec<T> in = lanes.load(g + i), forget = lanes.load(g + n + i),
                       fresh = lanes.load(g + 2 * n + i), out = lanes.load(g + 3 * n + i),
                       y = lanes.load(curbed + i), d = with(lanes, above, beside, i);
          const vec<T> dnow = fma(d * out, T(1) - y * y, lanes.load(dcell + i));
          lanes.store(dnow * fresh * in * (T(1) - in), to + i);
          lanes.store(dnow * lanes.load(kept + i) * forget * (T(1) - forget), to + n + i);
          lanes.store(dnow * in * (T(1) - fresh * fresh), to + 2 * n + i);
          lanes.store(d * y * out * (T(1) - out), to + 3 * n + i);
          lanes.store(dnow * forget, dcell + i);
        });
  }
}

template <class T>
void gated_unit(dim_t m, dim_t n, rows_of<T> gates, rows_of<const T> from_h, rows_of<T> new_from_h,
                rows_of<const T> h_before, rows_of<T> h, rows_of<T> y) {
  for (dim_t b = 0; b < m; ++b) {
    T *const g = gates[b], *const kept = new_from_h[b], *const state = h[b],
             *const also = also_to(y, b, state);
    const T *const a = from_h[b], *const before = h_before[b];
    along_row<T>(
        n, IKEBANA_CPU_ALONG {
          const vec<T> r = sigmoid_of_sum(lanes.load(g + i) + lanes.load(a + i)),
                       z = sigmoid_of_sum(lanes.load(g + n + i) + lanes.load(a + n + i)),
                       inner = lanes.load(a + 2 * n + i),
                       fresh = tanh(fma(r, inner, lanes.load(g + 2 * n + i)));
          lanes.store(r, g + i);
          lanes.store(z, g + n + i);
          lanes.store(fresh, g + 2 * n + i);
          lanes.store(inner, kept + i);
          const vec<T> now = fma(z, lanes.load(before + i) - fresh, fresh);
          lanes.store(now, state + i);
          lanes.store(now, also + i);
        });
  }
}
template <class T>
void gated_unit_backward(dim_t m, dim_t n, rows_of<const T> gates, rows_of<const T> new_from_h,
                         rows_of<const T> h_before, rows_of<T> dh, rows_of<const T> dy,
                         rows_of<T> dgates, rows_of<T> dfrom_h) {
  for (dim_t b = 0; b < m; ++b) {
    const T *const g = gates[b], *const inner = new_from_h[b], *const before = h_before[b],
                   *const beside = row_or_null(dy, b);
    T *const state = dh[b], *const to = dgates[b], *const to_h = dfrom_h[b];
    along_row<T>(
        n, IKEBANA_CPU_ALONG {
          const vec<T> r = lanes.load(g + i), z = lanes.load(g + n + i),
                       fresh = lanes.load(g + 2 * n + i), d = with(lanes, state, beside, i);
          const vec<T> dz = d * (lanes.load(before + i) - fresh) * z * (T(1) - z),
                       dfresh = d * (T(1) - z) * (T(1) - fresh * fresh),
                       dr = dfresh * lanes.load(inner + i) * r * (T(1) - r);
          lanes.store(dr, to + i);
          lanes.store(dz, to + n + i);
          lanes.store(dfresh, to + 2 * n + i);
          lanes.store(dr, to_h + i);
          lanes.store(dz, to_h + n + i);
          lanes.store(dfresh * r, to_h + 2 * n + i);
          lanes.store(d * z, state + i);
        });
  }
}

template <class T>
void copy_state_rows(dim_t m, dim_t n, rows_of<const T> from, rows_of<T> to, bool adds) {
  for (dim_t b = 0; b < m; ++b) {
    const T* const x = from[b];
    T* const y = to[b];
    along_row<T>(
        n, IKEBANA_CPU_ALONG {
          const vec<T> v = lanes.load(x + i);
          lanes.store(adds ? v + lanes.load(y + i) : v, y + i);
        });
  }
}

#undef IKEBANA_CPU_ALONG
