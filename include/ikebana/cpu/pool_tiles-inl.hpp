using detail::window_tile;

#if IKEBANA_CPU_WIDTH == 0
template <class T>
IKEBANA_CPU_INLINE void store_indices(bits_of<T> i, std::int32_t* p, dim_t) {
  *p = static_cast<std::int32_t>(i.v);
}
template <class T>
IKEBANA_CPU_INLINE bits_of<T> load_indices(const std::int32_t* p, dim_t) {
  return {static_cast<typename number<T>::bits>(*p)};
}
/// The first n of what load_pairs loads.
template <class T>
IKEBANA_CPU_INLINE even_odd<T> load_neighbours(const T* p, dim_t n) {
  return {{p[0]}, {n > 1 ? p[1] : T(0)}};
}
#else
template <class T>
IKEBANA_CPU_INLINE void store_indices(bits_of<T> i, std::int32_t* p, dim_t n) {
  if constexpr (sizeof(T) == 4) {
    if (n == vec<T>::size)
      i.store(p);
    else
      i.store(p, n);
  } else {
    for (dim_t lane = 0; lane < n; ++lane) p[lane] = static_cast<std::int32_t>(i.v[lane]);
  }
}
template <class T>
IKEBANA_CPU_INLINE bits_of<T> load_indices(const std::int32_t* p, dim_t n) {
  if constexpr (sizeof(T) == 4) {
    return n == vec<T>::size ? bits_of<T>::load(p) : bits_of<T>::load(p, n);
  } else {
    bits_of<T> i = bits_of<T>::zero();
    for (dim_t lane = 0; lane < n; ++lane) i.v[lane] = p[lane];
    return i;
  }
}
template <class T>
IKEBANA_CPU_INLINE even_odd<T> load_neighbours(const T* p, dim_t n) {
  constexpr dim_t w = vec<T>::size;
  if (n >= 2 * w) return load_pairs(p);
  const dim_t first = n < w ? n : w;
  return split_pairs(vec<T>::load(p, first), vec<T>::load(p + first, n - first),
                     lane_sequence<T>{});
}
#endif

/// The larger of what was met, and where it was: the first of equals. Not for what is not a number.
template <class T>
struct running_maximum {
  using place = typename number<T>::bits;
  vec<T> best;
  bits_of<T> where;

  template <bool Placed = true>
  IKEBANA_CPU_INLINE void meet(vec<T> x, bits_of<T> at) {
    if constexpr (Placed) {
      const lane_mask<T> wins = x > best;
      best = select(wins, x, best);
      where = select(lane_mask<place>{wins.m}, at, where);
    } else {
      best = max(x, best);
    }
  }
};

template <class T>
IKEBANA_CPU_INLINE vec<T> around_planes() {
  return as<T>(bits_of<T>::broadcast(number<T>::infinity | number<T>::sign));
}
/// The first n lanes, and then what stands around a plane.
template <class T>
IKEBANA_CPU_INLINE vec<T> keep_first(vec<T> x, dim_t n) {
  using B = typename number<T>::bits;
  const auto kept = lane_numbers<T>() < bits_of<T>::broadcast(static_cast<B>(n));
  return select(lane_mask<T>{kept.m}, x, around_planes<T>());
}

/// copy(row of the source, of the copies) for each.
template <class T, class F>
IKEBANA_CPU_INLINE void for_each_copied_row(const window_tile<T>& t, F copy) {
  const dim_t height = t.height, step = t.source_step, pitch = t.pitch;
  dim_t to = 0;
  for (dim_t s = 0; s < t.slab_count; ++s) {
    dim_t from = t.slabs[s];
    for (dim_t r = 0; r < height; ++r, from += step, to += pitch) copy(from, to);
  }
}

/// Copies the source's rows, each of which writes over what the one before left in its place.
template <class T>
[[gnu::noinline]] bool copy_rows_of_windows(const window_tile<T>& t) {
  constexpr dim_t w = vec<T>::size;
  vec<T> watched = vec<T>::zero();
  if (t.is_new)
    for (dim_t i = 0; i < t.phases * t.phase_size; i += w) around_planes<T>().store(t.copies + i);
  // Times zero, what is not finite is not a number, and everything else zero.
  const auto watch = [&](vec<T> x) __attribute__((always_inline)) {
    watched = fma(x, vec<T>::zero(), watched);
  };
  const dim_t skip = t.skip, phases = t.phases, length = t.length, phase_size = t.phase_size;
  const T* const source = t.source;
  const auto column = [&](dim_t c) { return t.copies + c % phases * phase_size + c / phases; };
  if (phases == 1) {
    T* const copies = t.copies + skip;
    const dim_t whole = length / w * w, rest = length - whole;
    for_each_copied_row(
        t, [&](dim_t at, dim_t row) __attribute__((always_inline)) {
          const T* const from = source + at;
          T* const to = copies + row;
          for (dim_t c = 0; c < whole; c += w) {
            const vec<T> x = vec<T>::load(from + c);
            watch(x);
            x.store(to + c);
          }
          if (rest > 0) {
            const vec<T> x = vec<T>::load(from + whole, rest);
            watch(x);
            keep_first(x, rest).store(to + whole);
          }
        });
  } else if (phases == 2) {
    T *const evens = column(skip), *const odds = column(skip + 1);
    for_each_copied_row(
        t, [&](dim_t at, dim_t row) __attribute__((always_inline)) {
          for (dim_t c = 0; c < length; c += 2 * w) {
            const dim_t n = length - c;
            auto x = load_neighbours(source + at + c, n);
            watch(x.even);
            watch(x.odd);
            if (n < 2 * w) {
              x.even = keep_first(x.even, (n + 1) / 2);
              x.odd = keep_first(x.odd, n / 2);
            }
            x.even.store(evens + row + c / 2);
            x.odd.store(odds + row + c / 2);
          }
        });
  } else {
    for_each_copied_row(
        t, [&](dim_t at, dim_t row) __attribute__((always_inline)) {
          for (dim_t p = 0; p < phases && p < length; ++p) {
            const dim_t count = (length - p + phases - 1) / phases;
            T* const to = column(skip + p) + row;
            for (dim_t c = 0; c < count; c += w) {
              const dim_t n = count - c < w ? count - c : w;
              const vec<T> x = load_strided(source + at + p + c * phases, phases, n);
              watch(x);
              (n < w ? keep_first(x, n) : x).store(to + c);
            }
          }
        });
  }
  return sum(watched) == T(0);
}

/// The maxima of kernel columns, in a row from x on whose first one's place is `place`.
template <bool Placed, class T, std::size_t... N>
IKEBANA_CPU_INLINE void meet_columns(const window_tile<T>& t, const T* x, dim_t place,
                                     running_maximum<T>* m, std::index_sequence<N...>) {
  using B = typename number<T>::bits;
  constexpr dim_t w = vec<T>::size;
  bits_of<T> at = bits_of<T>::broadcast(static_cast<B>(place));
  for (dim_t k = 0; k < t.tap_count; ++k) {
    const T* const from = x + t.taps[k];
    (m[N].template meet<Placed>(vec<T>::load(from + static_cast<dim_t>(N) * w), at), ...);
    if constexpr (Placed) at = at + static_cast<B>(t.tap_places);
  }
}

template <bool Placed, class T>
IKEBANA_CPU_INLINE bool maximum_of_tile(const window_tile<T>& t) {
  using B = typename number<T>::bits;
  using maximum = running_maximum<T>;
  constexpr dim_t w = vec<T>::size;
  if (!copy_rows_of_windows(t)) return false;
  const maximum none{around_planes<T>(), bits_of<T>::zero()};
  const dim_t stride = t.phases, length = t.result_length, step = t.result_step;
  bits_of<T> lanes = bits_of<T>::zero();
  for (dim_t s = 0; Placed && s < stride; ++s) lanes = lanes + lane_numbers<T>();
  const auto finish = [&](maximum m, dim_t at, dim_t j) __attribute__((always_inline)) {
    const dim_t n = length - j < w ? length - j : w;
    if (n <= 0) return;
    if (n == w)
      m.best.store(t.result + at + j);
    else
      m.best.store(t.result + at + j, n);
    if constexpr (Placed)
      store_indices<T>(m.where + (lanes + static_cast<B>(j * stride)), t.indices + at + j, n);
  };
  if (t.is_swept) {
    const dim_t last = t.top + (t.row_count - 1) * t.row_stride + 3;
    const dim_t taps[] = {t.taps[0], t.taps[1], t.taps[2]};
    const B near = static_cast<B>(t.tap_places);
    for (dim_t j = 0; j < length; j += w) {
      maximum upper = none, middle = none, lower = none;
      dim_t missing = 3, at = 0, place = t.top_place;
      for (dim_t r = t.top; r < last; ++r, place += t.source_step) {
        upper = middle;
        middle = lower;
        lower = none;
        if (r >= 0 && r < t.height) {
          const T* const x = t.copies + r * t.pitch + j;
          const bits_of<T> first = bits_of<T>::broadcast(static_cast<B>(place));
          lower = {vec<T>::load(x + taps[0]), first};
          lower.template meet<Placed>(vec<T>::load(x + taps[1]), first + near);
          lower.template meet<Placed>(vec<T>::load(x + taps[2]), first + near + near);
        }
        if (--missing > 0) continue;
        missing = t.row_stride;
        maximum m = upper;
        m.template meet<Placed>(middle.best, middle.where);
        m.template meet<Placed>(lower.best, lower.where);
        finish(m, at, j);
        at += step;
      }
    }
    return true;
  }
  const auto* rows = t.rows;
  for (dim_t r = 0; r < t.row_count; rows += t.row_counts[r++]) {
    const auto* const end = rows + t.row_counts[r];
    const auto columns = [&](dim_t j, auto... n) __attribute__((always_inline)) {
      maximum m[] = {(static_cast<void>(n), none)...};
      for (const auto* row = rows; row != end; ++row)
        meet_columns<Placed>(t, t.copies + row->from + j, row->place, m,
                             std::make_index_sequence<sizeof...(n)>{});
      (finish(m[n], r * step, j + n * w), ...);
    };
    dim_t j = 0;
    for (; length - j > 2 * w; j += 4 * w) columns(j, 0, 1, 2, 3);
    for (; j < length; j += w) columns(j, 0);
  }
  return true;
}
template <class T>
[[gnu::noinline]] bool maximum_of_tile(const window_tile<T>& t) {
  return t.indices == nullptr ? maximum_of_tile<false>(t) : maximum_of_tile<true>(t);
}

template <class T>
const detail::window_kernels<T>& kernels_for_windows() {
  static constexpr detail::window_kernels<T> all{vec<T>::size, &maximum_of_tile<T>};
  return all;
}
