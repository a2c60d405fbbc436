// Depthwise convolutions with channels as lanes (depthwise/lanes.hpp).

#if IKEBANA_CPU_WIDTH == 64
/// Four results each meet what the next one met before: each is loaded once, as processors load
/// less than they multiply.
template <class T>
IKEBANA_CPU_INLINE void add_sliding(const T* x, const T* y, const T* b, dim_t step, dim_t b_step,
                                    dim_t n, vec<T>* sums, vec<T>* more) {
  vec<T> u[] = {vec<T>::load(x), vec<T>::load(x + step), vec<T>::load(x + 2 * step),
                vec<T>::zero()},
         v[] = {vec<T>::load(y), vec<T>::load(y + step), vec<T>::load(y + 2 * step),
                vec<T>::zero()};
  x += 3 * step;
  y += 3 * step;
  const auto meet = [&](auto turn) __attribute__((always_inline)) {
    constexpr int k = decltype(turn)::value;
    const vec<T> factor = vec<T>::load(b);
    u[(k + 3) % 4] = vec<T>::load(x);
    v[(k + 3) % 4] = vec<T>::load(y);
    x += step;
    y += step;
    b += b_step;
    const auto add = [&]<int... R>(std::integer_sequence<int, R...>)
        __attribute__((always_inline)) {
      ((sums[R] = fma(factor, u[(R + k) % 4], sums[R])), ...);
      ((more[R] = fma(factor, v[(R + k) % 4], more[R])), ...);
    };
    add(std::make_integer_sequence<int, 4>{});
  };
  using std::integral_constant;
  for (; n >= 4; n -= 4) {
    meet(integral_constant<int, 0>{});
    meet(integral_constant<int, 1>{});
    meet(integral_constant<int, 2>{});
    meet(integral_constant<int, 3>{});
  }
  if (n > 0) meet(integral_constant<int, 0>{});
  if (n > 1) meet(integral_constant<int, 1>{});
  if (n > 2) meet(integral_constant<int, 2>{});
}
#endif

/// Two groups of results at a time, so that no sum waits for the one before.
template <bool Slides, class T, std::size_t... R>
IKEBANA_CPU_INLINE void sum_lanes(const detail::lanes_job<T>& job, std::index_sequence<R...>) {
  const dim_t step = job.a_step, to_step = job.to_step, a_inner = job.a_inner,
              b_inner = job.b_inner, inner = job.inner;
  constexpr auto n = static_cast<std::int32_t>(sizeof...(R));
  const detail::lane_term* const terms = job.terms;
  const T *const a = job.a, *const factors = job.b;
  T* const to = job.to;
  const bool adds = job.start == nullptr, relu = job.relu;
  const vec<T> start = adds ? vec<T>::zero() : vec<T>::load(job.start);
  const auto* const end = job.results + job.count;
  for (const auto* s = job.results; s < end; s += 2) {
    const auto& other = s[s + 1 < end];
    const std::int32_t first = s->first < other.first ? s->first : other.first,
                       last = s->last > other.last ? s->last : other.last;
    vec<T> sums[] = {(static_cast<void>(R), start)...}, more[] = {(static_cast<void>(R), start)...};
    const T *const a0 = a + s->a, *const a1 = a + other.a;
    for (const auto *t = terms + first, *const stop = terms + last; t < stop; ++t) {
      const T *x = a0 + t->a, *y = a1 + t->a, *b = factors + t->b;
      if constexpr (Slides) {
        add_sliding(x, y, b, step, b_inner, inner, sums, more);
        continue;
      }
      for (dim_t i = inner; i > 0; --i, x += a_inner, y += a_inner, b += b_inner) {
        const vec<T> factor = vec<T>::load(b);
        ((sums[R] = fma(factor, vec<T>::load(x + static_cast<dim_t>(R) * step), sums[R])), ...);
        ((more[R] = fma(factor, vec<T>::load(y + static_cast<dim_t>(R) * step), more[R])), ...);
      }
    }
    if (relu) {
      ((sums[R] = max(vec<T>::zero(), sums[R])), ...);
      ((more[R] = max(vec<T>::zero(), more[R])), ...);
    }
    T *const to0 = to + s->to, *const to1 = to + other.to;
    if (!adds && s->count == n && other.count == n) {
      (sums[R].store(to0 + static_cast<dim_t>(R) * to_step), ...);
      (more[R].store(to1 + static_cast<dim_t>(R) * to_step), ...);
      continue;
    }
    const auto put = [&](vec<T> sum, std::int32_t r, std::int32_t count, T * at)
        __attribute__((always_inline)) {
      if (r < count) (adds ? vec<T>::load(at + r * to_step) + sum : sum).store(at + r * to_step);
    };
    (put(sums[R], static_cast<std::int32_t>(R), s->count, to0), ...);
    if (&other != s) (put(more[R], static_cast<std::int32_t>(R), other.count, to1), ...);
  }
}
template <class T>
[[gnu::noinline]] void sum_lanes(const detail::lanes_job<T>& job) {
  constexpr auto all = std::make_index_sequence<std::size_t{detail::lane_results::most}>{};
#if IKEBANA_CPU_WIDTH == 64
  if (job.a_step == job.a_inner) return sum_lanes<true>(job, all);
#endif
  sum_lanes<false>(job, all);
}

template <class T>
void pack_window(const detail::lanes_window<T>& job) {
  const dim_t w = job.width, length = job.length, row = job.pitch * w, rows = job.rows;
  T* to = job.to;
  const T* from = job.from;
  if (length == job.pitch && length == job.from_row)
    return pack_across(to, w, from, job.next, rows * length, job.count);
  const dim_t lead = job.lead * w, gap = row - length * w;
  for (dim_t i = 0; i < rows; ++i, to += row, from += job.from_row) {
    clear_array(to, lead);
    pack_across(to + lead, w, from, job.next, length, job.count);
    clear_array(to + row + lead - gap, gap - lead);
  }
}
