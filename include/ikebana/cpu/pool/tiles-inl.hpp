using detail::window_tile;

/// The larger of what was met, and where it was: the first of equals. Not for what is not a number.
template <class T>
struct running_maximum {
  using place = typename number<T>::bits;
  vec<T> best;
  bits_of<T> where;

  IKEBANA_CPU_INLINE void meet(vec<T> x, bits_of<T> at) {
    const lane_mask<T> wins = x > best;
    best = max(x, best);
    where = select(lane_mask<place>{wins.m}, at, where);
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
  for (dim_t s = 0; s < t.slab_count; ++s) {
    dim_t from = t.slabs[s], phase = t.first_row % t.row_phases,
          line = s * t.slab_size + t.first_row / t.row_phases * pitch;
    for (dim_t r = 0; r < height; ++r, from += step) {
      if (phase < t.used_row_phases) copy(from, line + phase * t.row_phase_size);
      if (++phase < t.row_phases) continue;
      phase = 0;
      line += pitch;
    }
  }
}

/// Copies the source's rows, each of which writes over what the one before left in its place.
/// Stride is 0 where it is not known.
template <dim_t Stride, class T>
[[gnu::noinline]] bool copy_rows_of_windows(const window_tile<T>& t) {
  constexpr dim_t w = vec<T>::size;
  bits_of<T> watched = bits_of<T>::zero();
  if (t.is_new)
    for (dim_t i = 0; i < t.phases * t.phase_size; i += w) around_planes<T>().store(t.copies + i);
  // Times zero, what is not finite is not a number, and everything else zero of either sign. Sums
  // would wait for each other.
  const auto watch = [&](vec<T> x) __attribute__((always_inline)) {
    watched = watched | as<typename number<T>::bits>(x * vec<T>::zero());
  };
  const dim_t skip = t.skip, phases = Stride > 0 && Stride <= 4 ? Stride : t.phases,
              length = t.length, phase_size = t.phase_size;
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
  } else if (w > 1 && phases <= 4) {
    const auto sorted = [&](auto s) __attribute__((always_inline)) {
      constexpr int stride = decltype(s)::value;
      T* to[stride];
      for (int p = 0; p < stride; ++p) to[p] = column(skip + p);
      for_each_copied_row(
          t, [&](dim_t at, dim_t row) __attribute__((always_inline)) {
            for (dim_t c = 0; c < length; c += stride * w, row += w) {
              const T* const from = source + at + c;
              vec<T> met[stride], split[stride];
              if (c + stride * w <= length) {
                for (int p = 0; p < stride; ++p) watch(met[p] = vec<T>::load(from + p * w));
              } else {
                for (int p = 0; p < stride; ++p) {
                  const dim_t left = length - c - p * w, n = left < 0 ? 0 : left < w ? left : w;
                  met[p] = vec<T>::load(from + p * w, n);
                  watch(met[p]);
                  met[p] = keep_first(met[p], n);
                }
              }
              split_phases<stride>(static_cast<const vec<T>*>(met), split);
              for (int p = 0; p < stride; ++p) split[p].store(to[p] + row);
            }
          });
    };
    if constexpr (w > 1 && Stride > 1 && Stride <= 4)
      sorted(std::integral_constant<int, static_cast<int>(Stride)>{});
    else if constexpr (w > 1 && Stride == 0)
      with_phases(
          phases, [&](auto s) __attribute__((always_inline)) {
            if constexpr (s > 1) sorted(s);
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
  return sum(as<T>(watched)) == T(0);
}

/// The maxima of windows from place `at` of the copies on.
template <class T, std::size_t... N>
IKEBANA_CPU_INLINE void meet_taps(const window_tile<T>& t, const T* at, running_maximum<T>* m,
                                  std::index_sequence<N...>) {
  using B = typename number<T>::bits;
  constexpr dim_t w = vec<T>::size;
  for (const auto *tap = t.taps, *end = tap + t.tap_count; tap != end; ++tap) {
    const bits_of<T> place = bits_of<T>::broadcast(static_cast<B>(tap->place));
    (m[N].meet(vec<T>::load(at + tap->from + static_cast<dim_t>(N) * w), place), ...);
  }
}

/// Stores the maxima of a register of windows, from the j-th of a row on.
template <class T>
struct put_maxima {
  using place = typename number<T>::bits;
  const window_tile<T>& t;
  dim_t length = t.result_length, stride = t.phases;
  bits_of<T> lanes = bits_of<T>::zero();

  IKEBANA_CPU_INLINE explicit put_maxima(const window_tile<T>& tile) : t{tile} {
    for (dim_t s = 0; s < stride; ++s) lanes = lanes + lane_numbers<T>();
  }
  IKEBANA_CPU_INLINE void operator()(running_maximum<T> m, dim_t at, dim_t j) const {
    constexpr dim_t w = vec<T>::size;
    const dim_t n = length - j < w ? length - j : w;
    if (n <= 0) return;
    if (n == w)
      m.best.store(t.result + at + j);
    else
      m.best.store(t.result + at + j, n);
    store_indices<T>(m.where + (lanes + static_cast<place>(j * stride)), t.indices + at + j, n);
  }
};

/// Windows of three by three.
template <dim_t Stride, class T>
[[gnu::noinline]] bool sweep_tile(const window_tile<T>& t) {
  using B = typename number<T>::bits;
  using maximum = running_maximum<T>;
  constexpr dim_t w = vec<T>::size;
  if (!copy_rows_of_windows<Stride>(t)) return false;
  const maximum none{around_planes<T>(), bits_of<T>::zero()};
  const dim_t length = t.result_length, step = t.result_step;
  const put_maxima<T> put_windows(t);
  const dim_t last = t.top + (t.row_count - 1) * t.row_stride + 3;
  const dim_t taps[] = {t.taps[0].from, t.taps[1].from, t.taps[2].from};
  const B near = static_cast<B>(t.taps[1].place);
  for (dim_t j = 0; j < length; j += w) {
    maximum upper = none, middle = none, lower = none;
    dim_t missing = 3, at = 0, place = t.first_place;
    for (dim_t r = t.top; r < last; ++r, place += t.source_step) {
      upper = middle;
      middle = lower;
      lower = none;
      if (r >= 0 && r < t.height) {
        const T* const x = t.copies + r * t.pitch + j;
        const bits_of<T> first = bits_of<T>::broadcast(static_cast<B>(place));
        lower = {vec<T>::load(x + taps[0]), first};
        lower.meet(vec<T>::load(x + taps[1]), first + near);
        lower.meet(vec<T>::load(x + taps[2]), first + near + near);
      }
      if (--missing > 0) continue;
      missing = t.row_stride;
      maximum m = upper;
      m.meet(middle.best, middle.where);
      m.meet(lower.best, lower.where);
      put_windows(m, at, j);
      at += step;
    }
  }
  return true;
}

template <dim_t Stride, class T>
[[gnu::noinline]] bool maximum_of_tile(const window_tile<T>& t) {
  using B = typename number<T>::bits;
  using maximum = running_maximum<T>;
  constexpr dim_t w = vec<T>::size;
  if (!copy_rows_of_windows<Stride>(t)) return false;
  const maximum none{around_planes<T>(), bits_of<T>::zero()};
  const dim_t length = t.result_length, step = t.result_step;
  const put_maxima<T> put_windows(t);
  const auto each = [&](dim_t end, dim_t begin, auto put) __attribute__((always_inline)) {
    const auto some = [&](dim_t j, auto... n) __attribute__((always_inline)) {
      maximum m[] = {(static_cast<void>(n), none)...};
      meet_taps(t, t.copies + begin + j, m, std::make_index_sequence<sizeof...(n)>{});
      (put(m[n], j + n * w), ...);
    };
    dim_t j = 0;
    for (; end - j > 2 * w; j += 4 * w) some(j, 0, 1, 2, 3);
    for (; j < end; j += w) some(j, 0);
  };
  if (t.places == nullptr) {
    dim_t place = t.first_place;
    for (dim_t r = 0; r < t.row_count; ++r, place += t.row_stride * t.source_step)
      each(
          length, r * t.pitch, [&](maximum m, dim_t j) __attribute__((always_inline)) {
            m.where = m.where + static_cast<B>(place);
            put_windows(m, r * step, j);
          });
    return true;
  }
  const dim_t count = (t.row_count - 1) * t.pitch + length;
  const bool is_direct = t.pitch == step && length == step;
  T* const maxima = is_direct ? t.result : t.maxima;
  std::int32_t* const places = is_direct ? t.indices : t.maxima_places;
  each(
      count, 0, [&](maximum m, dim_t f) __attribute__((always_inline)) {
        const dim_t n = count - f < w ? count - f : w;
        if (n <= 0) return;
        if (n == w)
          m.best.store(maxima + f);
        else
          m.best.store(maxima + f, n);
        store_indices<T>(m.where + load_indices<T>(t.places + f, n), places + f, n);
      });
  if (is_direct) return true;
  const auto copy = [&]<class U>(const U* from, U* to) __attribute__((always_inline)) {
    constexpr dim_t width = vec<U>::size;
    for (dim_t r = 0; r < t.row_count; ++r, from += t.pitch, to += step)
      for (dim_t j = 0; j < length; j += width)
        if (j + width <= length)
          vec<U>::load(from + j).store(to + j);
        else
          vec<U>::load(from + j).store(to + j, length - j);
  };
  copy(static_cast<const T*>(t.maxima), t.result);
  copy(static_cast<const std::int32_t*>(t.maxima_places), t.indices);
  return true;
}

template <class T, dim_t Stride>
detail::window_kernel<T> kernel_for_windows() {
  return {vec<T>::size, &maximum_of_tile<Stride, T>};
}
template <class T, dim_t Stride>
detail::window_kernel<T> kernel_for_sweeps() {
  return {vec<T>::size, &sweep_tile<Stride, T>};
}
