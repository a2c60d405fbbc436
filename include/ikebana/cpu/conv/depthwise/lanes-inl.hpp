// Depthwise convolutions with channels as lanes (depthwise/lanes.hpp).

/// Two groups of results at a time, so that no sum waits for the one before.
template <class T, std::size_t... R>
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
  sum_lanes(job, std::make_index_sequence<std::size_t{detail::lane_results::most}>{});
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
