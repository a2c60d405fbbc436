// Winograd's convolution F(4x4, 3x3) (winograd.hpp): tiles of 6x6 elements
// of the source and the weights are carried over to where a convolution is a
// product of 36 numbers each, by interpolation at 0, a, -a, b, -b and infinity.
// a and b are such that all numbers made of them are exact, and errors small.

#if IKEBANA_CPU_WIDTH >= 32 || (IKEBANA_CPU_ARM64 && IKEBANA_CPU_WIDTH != 0)
struct winograd_point {
  static constexpr float a = 0.625F, b = 1.5F;
  static constexpr float a2 = a * a, b2 = b * b, sum = a2 + b2, product = a2 * b2;
};

template <class T>
struct six_registers {
  vec<T> at0, at1, at2, at3, at4, at5;
};
template <class T>
IKEBANA_CPU_INLINE void store_six(const six_registers<T>& s, T* to, dim_t step, dim_t lanes) {
  s.at0.store(to, lanes);
  s.at1.store(to + step, lanes);
  s.at2.store(to + 2 * step, lanes);
  s.at3.store(to + 3 * step, lanes);
  s.at4.store(to + 4 * step, lanes);
  s.at5.store(to + 5 * step, lanes);
}
template <class T>
IKEBANA_CPU_INLINE six_registers<T> winograd_source(const six_registers<T>& d) {
  using p = winograd_point;
  const auto times = [](float x, vec<T> y, vec<T> z) __attribute__((always_inline)) {
    return fma(vec<T>::broadcast(x), y, z);
  };
  const vec<T> even_a = times(-p::b2, d.at2, d.at4), odd_a = times(-p::b2, d.at1, d.at3);
  const vec<T> even_b = times(-p::a2, d.at2, d.at4), odd_b = times(-p::a2, d.at1, d.at3);
  return {times(p::product, d.at0, times(-p::sum, d.at2, d.at4)),
          times(p::a, odd_a, even_a),
          times(-p::a, odd_a, even_a),
          times(p::b, odd_b, even_b),
          times(-p::b, odd_b, even_b),
          times(p::product, d.at1, times(-p::sum, d.at3, d.at5))};
}

template <class T, std::size_t... L>
IKEBANA_CPU_INLINE vec<T> next_lanes(vec<T> a, T last, std::index_sequence<L...>) {
  return {__builtin_shufflevector(a.v, vec<T>::broadcast(last).v, static_cast<int>(L + 1)...)};
}

/// Columns first, along rows as they lie; then rows, whose every fourth element
/// makes a lane.
template <class T>
void winograd_take(const detail::winograd_input<T>& job) {
  constexpr dim_t w = vec<T>::size;
  const dim_t pitch = job.pitch, step = job.position_step;
  for (dim_t j = 0; j < job.length; j += w) {
    const dim_t left = job.length - j;
    const auto at = [&](dim_t i) __attribute__((always_inline)) {
      const T* const from = job.rows[i] + j;
      return left >= w ? vec<T>::load(from) : vec<T>::load(from, left);
    };
    store_six(winograd_source<T>({at(0), at(1), at(2), at(3), at(4), at(5)}),
              job.buffer + job.lead + j, pitch, w);
  }
  for (dim_t i = 0; i < 6; ++i) {
    const T* from = job.buffer + i * pitch;
    T* at = job.to + 6 * i * step;
    for (dim_t left = job.tiles; left > 0; left -= w, from += 4 * w, at += w) {
      const even_odd<T> low = load_pairs(from), high = load_pairs(from + 2 * w);
      const even_odd<T> even = split_pairs(low.even, high.even, lane_sequence<T>{}),
                        odd = split_pairs(low.odd, high.odd, lane_sequence<T>{});
      store_six(winograd_source<T>({even.even, odd.even, even.odd, odd.odd,
                                    next_lanes(even.even, from[4 * w], lane_sequence<T>{}),
                                    next_lanes(odd.even, from[4 * w + 1], lane_sequence<T>{})}),
                at, step, left < w ? left : w);
    }
  }
}

template <class T>
IKEBANA_CPU_INLINE six_registers<T> winograd_taps(vec<T> g0, vec<T> g1, vec<T> g2) {
  using p = winograd_point;
  constexpr double na = 2.0 * p::a2 * (p::a2 - p::b2), nb = 2.0 * p::b2 * (p::b2 - p::a2);
  const auto k = [](double x) __attribute__((always_inline)) {
    return vec<T>::broadcast(static_cast<T>(x));
  };
  const vec<T> even_a = fma(k(p::a2 / na), g2, k(1 / na) * g0), odd_a = k(p::a / na) * g1;
  const vec<T> even_b = fma(k(p::b2 / nb), g2, k(1 / nb) * g0), odd_b = k(p::b / nb) * g1;
  return {k(1.0 / p::product) * g0, even_a + odd_a, even_a - odd_a,
          even_b + odd_b,           even_b - odd_b, g2};
}
/// to[p * position_step + i] for the 36 positions p, from from[t * step + i]
/// for the 9 taps t.
template <class T>
void winograd_weigh(dim_t sources, dim_t width, bool turned, const T* from, T* to,
                    dim_t position_step) {
  constexpr dim_t w = vec<T>::size;
  const dim_t tap = turned ? -width : width;
  T columns[static_cast<std::size_t>(18 * w)];
  for (dim_t c = 0; c < sources; ++c, from += 9 * width, to += width)
    for (dim_t l = 0; l < width; l += w) {
      const T* const first = from + l + (turned ? 8 * width : 0);
      for (dim_t x = 0; x < 3; ++x) {
        const T* const at = first + x * tap;
        const six_registers<T> s =
            winograd_taps(vec<T>::load(at), vec<T>::load(at + 3 * tap), vec<T>::load(at + 6 * tap));
        store_six(s, columns + x * w, 3 * w, w);
      }
      for (dim_t y = 0; y < 6; ++y) {
        const T* const row = columns + 3 * y * w;
        const six_registers<T> s =
            winograd_taps(vec<T>::load(row), vec<T>::load(row + w), vec<T>::load(row + 2 * w));
        store_six(s, to + 6 * y * position_step + l, position_step, w);
      }
    }
}

/// At each position a product of matrices.
template <class T>
void winograd_multiply(const detail::winograd_product<T>& job) {
  constexpr dim_t w = vec<T>::size;
  tile_task<T> t;
  t.depth = job.depth;
  t.a_row = job.source_row;
  t.a_step = job.source_step;
  t.b_step = t.c_row = t.init_row = job.width;
  t.start = job.adds ? tile_start::matrix : tile_start::zero;
  t.relu = false;
  const dealt_rows strips(job.rows, gemm_tile<T>::most_rows[job.width <= w ? 1 : 2]);
  for (dim_t p = 0; p < 36; ++p) {
    t.a = job.source + p * job.source_position;
    t.b = job.weights + p * job.weight_position;
    t.init = t.c = job.to + p * job.to_position;
    multiply_column(t, strips, job.width);
  }
}

template <class T>
struct four_registers {
  vec<T> at0, at1, at2, at3;
};
template <class T>
IKEBANA_CPU_INLINE four_registers<T> winograd_result(const T* m, dim_t step) {
  using p = winograd_point;
  const auto at = [=](dim_t i) __attribute__((always_inline)) {
    return vec<T>::load(m + i * step);
  };
  const auto k = [](float x) __attribute__((always_inline)) { return vec<T>::broadcast(x); };
  const vec<T> a = at(1), minus_a = at(2), b = at(3), minus_b = at(4);
  const vec<T> even_a = a + minus_a, odd_a = a - minus_a, even_b = b + minus_b, odd_b = b - minus_b;
  return {(at(0) + even_a) + even_b, fma(k(p::a), odd_a, k(p::b) * odd_b),
          fma(k(p::a2), even_a, k(p::b2) * even_b),
          fma(k(p::a2 * p::a), odd_a, fma(k(p::b2 * p::b), odd_b, at(5)))};
}
/// to[(y * 4 tiles + 4 t + x) * width + i] for the 4x4 results (y, x) of each
/// tile t.
template <class T>
void winograd_put(dim_t tiles, dim_t width, const T* from, dim_t position_step, T* to) {
  constexpr dim_t w = vec<T>::size;
  const dim_t row = 4 * tiles * width;
  T columns[static_cast<std::size_t>(24 * w)];
  for (dim_t t = 0; t < tiles; ++t, from += width, to += 4 * width)
    for (dim_t l = 0; l < width; l += w) {
      for (dim_t x = 0; x < 6; ++x) {
        const four_registers<T> s =
            winograd_result(from + l + x * position_step, 6 * position_step);
        T* const column = columns + x * w;
        s.at0.store(column);
        s.at1.store(column + 6 * w);
        s.at2.store(column + 12 * w);
        s.at3.store(column + 18 * w);
      }
      for (dim_t y = 0; y < 4; ++y) {
        const four_registers<T> s = winograd_result<T>(columns + 6 * y * w, w);
        T* const at = to + y * row + l;
        s.at0.store(at);
        s.at1.store(at + width);
        s.at2.store(at + 2 * width);
        s.at3.store(at + 3 * width);
      }
    }
}

template <class T>
IKEBANA_CPU_INLINE six_registers<T> spread_four(const T* y, dim_t step) {
  using p = winograd_point;
  const auto times = [](float x, vec<T> a, vec<T> b) __attribute__((always_inline)) {
    return fma(vec<T>::broadcast(x), a, b);
  };
  const vec<T> first = vec<T>::load(y), second = vec<T>::load(y + step),
               third = vec<T>::load(y + 2 * step), last = vec<T>::load(y + 3 * step);
  const vec<T> even_a = times(p::a2, third, first), odd_a = times(p::a2, last, second);
  const vec<T> even_b = times(p::b2, third, first), odd_b = times(p::b2, last, second);
  return {first,
          times(p::a, odd_a, even_a),
          times(-p::a, odd_a, even_a),
          times(p::b, odd_b, even_b),
          times(-p::b, odd_b, even_b),
          last};
}
/// The transpose of winograd_put, for a register of results.
template <class T>
void winograd_spread(dim_t tiles, const T* from, T* to, dim_t tile_step, dim_t position_step) {
  constexpr dim_t w = vec<T>::size;
  T columns[static_cast<std::size_t>(24 * w)];
  for (dim_t t = 0; t < tiles; ++t, to += tile_step) {
    for (dim_t x = 0; x < 4; ++x, from += w)
      store_six(spread_four<T>(from, 4 * tiles * w), columns + x * w, 4 * w, w);
    for (dim_t y = 0; y < 6; ++y)
      store_six(spread_four<T>(columns + 4 * y * w, w), to + 6 * y * position_step, position_step,
                w);
  }
}

template <class T>
struct three_registers {
  vec<T> at0, at1, at2;
};
template <class T>
IKEBANA_CPU_INLINE three_registers<T> gather_six(const T* m, dim_t step) {
  using p = winograd_point;
  constexpr double na = 2.0 * p::a2 * (p::a2 - p::b2), nb = 2.0 * p::b2 * (p::b2 - p::a2);
  const auto at = [=](dim_t i) __attribute__((always_inline)) {
    return vec<T>::load(m + i * step);
  };
  const auto k = [](double x) __attribute__((always_inline)) {
    return vec<T>::broadcast(static_cast<T>(x));
  };
  const vec<T> a = at(1), minus_a = at(2), b = at(3), minus_b = at(4);
  const vec<T> even_a = a + minus_a, odd_a = a - minus_a, even_b = b + minus_b, odd_b = b - minus_b;
  return {fma(k(1.0 / p::product), at(0), fma(k(1 / na), even_a, k(1 / nb) * even_b)),
          fma(k(p::a / na), odd_a, k(p::b / nb) * odd_b),
          fma(k(p::a2 / na), even_a, fma(k(p::b2 / nb), even_b, at(5)))};
}
/// The transpose of winograd_weigh: to[(9 c + t) * width + i] for the 9 taps t of each source c, or
/// what is added to it.
template <class T>
void winograd_gather(dim_t sources, dim_t width, const T* from, dim_t position_step, T* to,
                     bool adds) {
  constexpr dim_t w = vec<T>::size;
  T columns[static_cast<std::size_t>(18 * w)];
  for (dim_t c = 0; c < sources; ++c, from += width, to += 9 * width)
    for (dim_t l = 0; l < width; l += w) {
      for (dim_t x = 0; x < 6; ++x) {
        const three_registers<T> s = gather_six<T>(from + l + x * position_step, 6 * position_step);
        T* const column = columns + x * w;
        s.at0.store(column);
        s.at1.store(column + 6 * w);
        s.at2.store(column + 12 * w);
      }
      for (dim_t y = 0; y < 3; ++y) {
        three_registers<T> s = gather_six<T>(columns + 6 * y * w, w);
        T* const at = to + 3 * y * width + l;
        if (adds)
          s = {vec<T>::load(at) + s.at0, vec<T>::load(at + width) + s.at1,
               vec<T>::load(at + 2 * width) + s.at2};
        s.at0.store(at);
        s.at1.store(at + width);
        s.at2.store(at + 2 * width);
      }
    }
}
#endif

/// Null where there is no such way.
template <class T>
const detail::winograd_kernels<T>* kernels_for_winograd() {
#if IKEBANA_CPU_WIDTH >= 32 || (IKEBANA_CPU_ARM64 && IKEBANA_CPU_WIDTH != 0)
  if constexpr (std::is_same_v<T, float>) {
    static constexpr detail::winograd_kernels<T> all{
        vec<T>::size,          gemm_tile<T>::vectors, &winograd_take<T>,   &winograd_weigh<T>,
        &winograd_multiply<T>, &winograd_put<T>,      &winograd_spread<T>, &winograd_gather<T>};
    return &all;
  }
#endif
  return nullptr;
}
