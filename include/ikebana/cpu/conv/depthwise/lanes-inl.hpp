// Depthwise convolutions with channels as lanes (depthwise/lanes.hpp).

/// Two groups of results at a time, so that no sum waits for the one before.
template <class T, std::size_t... R>
IKEBANA_CPU_INLINE void sum_lanes(const detail::lanes_job<T>& job, std::index_sequence<R...>) {
  const dim_t step = job.a_column, to_step = job.to_column, a_inner = job.a_inner,
              b_inner = job.b_inner, inner = job.inner, a_step = job.a_step, b_step = job.b_step,
              rows = job.columns > 0 ? job.rows : 0;
  constexpr auto n = static_cast<dim_t>(sizeof...(R));
  const bool adds = job.start == nullptr, relu = job.relu;
  const vec<T> start = adds ? vec<T>::zero() : vec<T>::load(job.start);
  struct place {
    dim_t row, column;
  };
  const auto after = [&](place p) __attribute__((always_inline)) {
    return p.column + n < job.columns ? place{p.row, p.column + n} : place{p.row + 1, 0};
  };
  // The first step of a row that meets one of so many.
  const auto first_of = [&](place p, dim_t extent) __attribute__((always_inline)) {
    const dim_t left = extent - job.top - p.row * job.down;
    return left <= 0
               ? 0
               : detail::least(job.along == 1 ? left : detail::parts(left, job.along), job.steps);
  };
  for (place p{0, 0}; p.row < rows;) {
    const place next = after(p);
    const bool two = next.row < rows;
    const place q = two ? next : p;
    // Later rows meet the source earlier.
    const dim_t first = first_of(q, 0), last = first_of(p, job.extent);
    vec<T> sums[] = {(static_cast<void>(R), start)...}, more[] = {(static_cast<void>(R), start)...};
    const T *a0 = job.a + p.row * job.a_row + p.column * step + first * a_step,
            *a1 = job.a + q.row * job.a_row + q.column * step + first * a_step,
            *b_source = job.b + first * b_step;
    for (dim_t s = job.sources; s > 0; --s, b_source += job.b_source) {
      const T* b_plane = b_source;
      for (dim_t k = job.planes; k > 0; --k, b_plane += job.b_plane) {
        const T *x_row = a0, *y_row = a1, *b_row = b_plane;
        a0 += job.a_plane;
        a1 += job.a_plane;
        for (dim_t t = first; t < last; ++t, x_row += a_step, y_row += a_step, b_row += b_step) {
          const T *x = x_row, *y = y_row, *b = b_row;
          for (dim_t i = inner; i > 0; --i, x += a_inner, y += a_inner, b += b_inner) {
            const vec<T> factor = vec<T>::load(b);
            ((sums[R] = fma(factor, vec<T>::load(x + static_cast<dim_t>(R) * step), sums[R])), ...);
            ((more[R] = fma(factor, vec<T>::load(y + static_cast<dim_t>(R) * step), more[R])), ...);
          }
        }
      }
    }
    if (relu) {
      ((sums[R] = max(vec<T>::zero(), sums[R])), ...);
      ((more[R] = max(vec<T>::zero(), more[R])), ...);
    }
    const auto put = [&](place at, const vec<T>* all) __attribute__((always_inline)) {
      T* const to = job.to + at.row * job.to_row + at.column * to_step;
      const dim_t left = job.columns - at.column;
      const auto put_one = [&](vec<T> sum, dim_t r) __attribute__((always_inline)) {
        if (r < left) (adds ? vec<T>::load(to + r * to_step) + sum : sum).store(to + r * to_step);
      };
      if (!adds && left >= n)
        (all[R].store(to + static_cast<dim_t>(R) * to_step), ...);
      else
        (put_one(all[R], static_cast<dim_t>(R)), ...);
    };
    put(p, sums);
    if (two) put(q, more);
    p = two ? after(q) : next;
  }
}
template <class T>
[[gnu::noinline]] void sum_lanes(const detail::lanes_job<T>& job) {
  sum_lanes(job, std::make_index_sequence<std::size_t{detail::lanes_job<T>::together}>{});
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
