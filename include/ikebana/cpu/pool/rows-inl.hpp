using detail::window_rows, detail::rounded_up;

template <class T>
IKEBANA_CPU_INLINE void store_some(vec<T> s, T* to, dim_t left) {
  if (left >= vec<T>::size) [[likely]]
    s.store(to);
  else
    s.store(to, left);
}

/// How elements are joined: what there is around them, and what is watched of them.
struct by_sum {
  template <class T>
  IKEBANA_CPU_INLINE static vec<T> none() {
    return vec<T>::zero();
  }
  template <class T>
  IKEBANA_CPU_INLINE static vec<T> join(vec<T> some, vec<T> x) {
    return some + x;
  }
  template <class T>
  static T join(T some, T x) {
    return some + x;
  }
  template <class T>
  IKEBANA_CPU_INLINE static vec<T> first_lanes(vec<T> x, dim_t) {
    return x;
  }
  template <class T>
  IKEBANA_CPU_INLINE static vec<T> watch(vec<T> watched, vec<T>) {
    return watched;
  }
};
struct by_maximum {
  /// The least that is finite: what is not is refused.
  template <class T>
  IKEBANA_CPU_INLINE static vec<T> none() {
    return as<T>(bits_of<T>::broadcast((number<T>::infinity - 1) | number<T>::sign));
  }
  template <class T>
  IKEBANA_CPU_INLINE static vec<T> join(vec<T> some, vec<T> x) {
    return max(x, some);
  }
  template <class T>
  static T join(T some, T x) {
    return x > some ? x : some;
  }
  template <class T>
  IKEBANA_CPU_INLINE static vec<T> first_lanes(vec<T> x, dim_t n) {
    using B = typename number<T>::bits;
    const auto kept = lane_numbers<T>() < bits_of<T>::broadcast(static_cast<B>(n));
    return select(lane_mask<T>{kept.m}, x, none<T>());
  }
  /// Times zero, what is not finite is not a number, and everything else zero.
  template <class T>
  IKEBANA_CPU_INLINE static vec<T> watch(vec<T> watched, vec<T> x) {
    return fma(x, vec<T>::zero(), watched);
  }
};

/// The rows of the source that each row of the result meets, in a register more than there are N,
/// the last of which has `last` lanes. What that has too much is nothing, and the next row writes
/// over it, where rows are short. Whether all that is watched was finite.
template <class By, class T, std::size_t... N>
[[gnu::noinline]] bool join_rows(const window_rows<T>& t, dim_t j, dim_t last,
                                 std::index_sequence<N...>) {
  constexpr dim_t w = vec<T>::size, more = sizeof...(N);
  const dim_t step = t.row_step, slab_step = t.slab_step;
  vec<T> watched = vec<T>::zero();
  T* to = t.line + t.lead + j;
  for (const auto *row = t.rows, *end = row + t.row_count; row != end; ++row, to += t.line_pitch) {
    vec<T> total[] = {(static_cast<void>(N), By::template none<T>())..., By::template none<T>()};
    const auto meet = [&](vec<T> & some, vec<T> x) __attribute__((always_inline)) {
      watched = By::watch(watched, x);
      some = By::join(some, x);
    };
    const T* slab = row->from + j;
    for (dim_t z = row->slabs; z > 0; --z, slab += slab_step) {
      const T* from = slab;
      for (dim_t r = row->count; r > 0; --r, from += step) {
        (meet(total[N], vec<T>::load(from + static_cast<dim_t>(N) * w)), ...);
        meet(total[more], vec<T>::load(from + more * w, last));
      }
    }
    (total[N].store(to + static_cast<dim_t>(N) * w), ...);
    store_some(By::first_lanes(total[more], last), to + more * w, j == 0 ? w : last);
  }
  return sum(watched) == T(0);
}
/// The first `whole` columns of long rows, a multiple of four registers.
template <class By, class T, std::size_t... N>
[[gnu::noinline]] bool join_long_rows(const window_rows<T>& t, dim_t whole,
                                      std::index_sequence<N...>) {
  constexpr dim_t w = vec<T>::size, step = static_cast<dim_t>(sizeof...(N)) * w;
  vec<T> watched = vec<T>::zero();
  T* to = t.line + t.lead;
  for (const auto *row = t.rows, *end = row + t.row_count; row != end; ++row, to += t.line_pitch)
    for (dim_t j = 0; j < whole; j += step) {
      vec<T> total[] = {(static_cast<void>(N), By::template none<T>())...};
      for (dim_t z = 0; z < row->slabs; ++z) {
        const T* from = row->from + z * t.slab_step + j;
        for (dim_t r = row->count; r > 0; --r, from += t.row_step) {
          const vec<T> x[] = {vec<T>::load(from + static_cast<dim_t>(N) * w)...};
          ((watched = By::watch(watched, x[N])), ...);
          ((total[N] = By::join(total[N], x[N])), ...);
        }
      }
      (total[N].store(to + j + static_cast<dim_t>(N) * w), ...);
    }
  return sum(watched) == T(0);
}
template <class By, class T>
bool join_rows(const window_rows<T>& t) {
  constexpr dim_t w = vec<T>::size;
  const dim_t j = t.length / (4 * w) * (4 * w), left = t.length - j;
  const bool long_finite = j == 0 || join_long_rows<By>(t, j, std::make_index_sequence<4>{});
  const auto some = [&](auto registers) {
    return join_rows<By>(t, j, left - static_cast<dim_t>(registers.size()) * w, registers);
  };
  const bool rest_finite = left > 3 * w   ? some(std::make_index_sequence<3>{})
                           : left > 2 * w ? some(std::make_index_sequence<2>{})
                           : left > w     ? some(std::make_index_sequence<1>{})
                           : left > 0     ? some(std::make_index_sequence<0>{})
                                          : true;
  return long_finite && rest_finite;
}

/// Windows of columns that share nothing.
template <class By, class T, std::size_t... I>
[[gnu::noinline]] void join_neighbours(const window_rows<T>& t, std::index_sequence<I...>) {
  constexpr dim_t w = vec<T>::size, stride = sizeof...(I) + 1;
  const dim_t count = t.sums_count(), kernel = t.kernel;
  const vec<T> by = vec<T>::broadcast(t.factor);
  for (dim_t f = 0; f < count; f += w) {
    vec<T> phases[stride];
    load_phases<stride>(t.line + stride * f, phases);
    vec<T> total = phases[0];
    ((total = static_cast<dim_t>(I) + 1 < kernel ? By::join(total, phases[I + 1]) : total), ...);
    store_some(total * by, t.sums + f, count - f);
  }
}
/// Columns sorted by remainder.
template <class By, class T, std::size_t... I>
[[gnu::noinline]] void sort_columns(const window_rows<T>& t, std::index_sequence<I...>) {
  constexpr dim_t w = vec<T>::size, stride = sizeof...(I);
  const dim_t count = t.row_count * t.sums_pitch + t.shift, size = t.phase_size, kept = t.kept;
  for (dim_t f = 0; f < count; f += w) {
    vec<T> phases[stride];
    load_phases<stride>(t.line + stride * f, phases);
    ((static_cast<dim_t>(I) < kept ? phases[I].store(t.phases + static_cast<dim_t>(I) * size + f)
                                   : static_cast<void>(0)),
     ...);
    if (!t.is_grouped) continue;
    vec<T> all = phases[0];
    ((all = I == 0 ? all : By::join(all, phases[I])), ...);
    all.store(t.phases + kept * size + f);
  }
}
/// Of any stride.
template <class By, class T>
[[gnu::noinline]] void sort_columns(const window_rows<T>& t) {
  const dim_t count = t.row_count * t.sums_pitch + t.shift, size = t.phase_size, kept = t.kept,
              stride = t.stride;
  const T* from = t.line;
  for (dim_t f = 0; f < count; ++f, from += stride) {
    for (dim_t k = 0; k < kept; ++k) t.phases[k * size + f] = from[k];
    if (!t.is_grouped) continue;
    T all = from[0];
    for (dim_t k = 1; k < stride; ++k) all = By::join(all, from[k]);
    t.phases[kept * size + f] = all;
  }
}
/// Windows of columns, which `taps` names.
template <class By, class T>
[[gnu::noinline]] void join_columns(const window_rows<T>& t) {
  constexpr dim_t w = vec<T>::size;
  const dim_t count = t.sums_count(), tap_count = t.tap_count;
  const vec<T> by = vec<T>::broadcast(t.factor);
  const dim_t* const taps = t.taps;
  const auto columns = [&](dim_t f, auto... n) __attribute__((always_inline)) {
    const T* const x = t.phases + f;
    vec<T> total[] = {vec<T>::load(x + taps[0] + n * w)...};
    for (dim_t k = 1; k < tap_count; ++k)
      ((total[n] = By::join(total[n], vec<T>::load(x + taps[k] + n * w))), ...);
    (store_some(total[n] * by, t.sums + f + n * w, count - f - n * w), ...);
  };
  dim_t f = 0;
  for (; f + 3 * w < count; f += 4 * w) columns(f, dim_t{0}, dim_t{1}, dim_t{2}, dim_t{3});
  for (; f < count; f += w) columns(f, dim_t{0});
}

/// From lines that have room between their rows to the result.
template <class T>
[[gnu::noinline]] void put_rows(const window_rows<T>& t) {
  constexpr dim_t w = vec<T>::size;
  const dim_t length = t.result_length, step = t.result_step;
  T* to = t.result;
  const auto* from = t.results;
  const auto* const end = from + t.result_count;
  if (t.is_whole && t.column_factors == nullptr)
    // What is too much the next row writes over.
    for (; from != end && t.result_end - to >= rounded_up(length, w); ++from, to += step)
      for (dim_t j = 0; j < length; j += w) vec<T>::load(t.sums + from->from + j).store(to + j);
  for (; from != end; ++from, to += step)
    for (dim_t j = 0; j < length; j += w) {
      vec<T> v = vec<T>::load(t.sums + from->from + j);
      if (t.column_factors != nullptr) v = v * (vec<T>::load(t.column_factors + j) * from->factor);
      store_some(v, to + j, length - j);
    }
}

/// f(integral_constant) of a stride that has code of its own, which may be the one known.
template <dim_t Stride, class T, class F>
IKEBANA_CPU_INLINE bool with_stride(dim_t stride, F f) {
  constexpr dim_t most = vec<T>::size > 1 ? 4 : 1;
  if constexpr (Stride > most) return false;
  if constexpr (Stride > 0 && Stride <= most) {
    f(std::integral_constant<int, static_cast<int>(Stride)>{});
  } else if constexpr (Stride == 0) {
    if (stride > most) return false;
    if constexpr (most > 1)
      with_phases(stride, f);
    else
      f(std::integral_constant<int, 1>{});
  }
  return true;
}

/// Stride is 0 where it is not known.
template <class By, dim_t Stride, class T>
bool windows_by_gathering(const window_rows<T>& t) {
  const bool all_finite = join_rows<By>(t);
  bool is_done = false;
  const bool is_sorted = with_stride<Stride, T>(t.stride, [&](auto stride) {
    constexpr std::size_t phases = stride;
    if constexpr (phases > 1) {
      is_done = t.shares_nothing;
      if (is_done)
        join_neighbours<By>(t, std::make_index_sequence<phases - 1>{});
      else
        sort_columns<By>(t, std::make_index_sequence<phases>{});
    }
  });
  if (!is_sorted) sort_columns<By>(t);
  if (!is_done) join_columns<By>(t);
  if (!t.is_direct) put_rows(t);
  return all_finite;
}
/// The sums of the windows that meet each column: of `shift`, and of one more for some.
template <class T, std::size_t... I>
[[gnu::noinline]] void spread_columns(const window_rows<T>& t, std::index_sequence<I...>) {
  constexpr dim_t w = vec<T>::size, stride = sizeof...(I);
  const dim_t count = t.row_count * t.line_pitch, shift = t.shift,
              one_more = t.kernel - shift * stride;
  const vec<T> by = vec<T>::broadcast(t.factor);
  for (dim_t f = 0; f < count; f += w) {
    const T* const from = t.line + f;
    vec<T> some = vec<T>::zero();
    for (dim_t i = shift; i > 0; --i) some = some + vec<T>::load(from + i);
    const vec<T> all = (some + vec<T>::load(from)) * by;
    some = some * by;
    const vec<T> phases[] = {static_cast<dim_t>(I) < one_more ? all : some...};
    store_phases<stride>(phases, t.sums + stride * f);
  }
}
template <class T>
[[gnu::noinline]] void spread_columns(const window_rows<T>& t) {
  const dim_t count = t.row_count * t.line_pitch, shift = t.shift;
  T* to = t.sums;
  for (dim_t f = 0; f < count; ++f) {
    const T* const from = t.line + f;
    T some = T(0);
    for (dim_t i = shift; i > 0; --i) some += from[i];
    const T all = (some + from[0]) * t.factor;
    some *= t.factor;
    for (dim_t p = 0; p < t.stride; ++p) *to++ = p < t.kernel - shift * t.stride ? all : some;
  }
}

template <dim_t Stride, class T>
bool average_by_spreading(const window_rows<T>& t) {
  join_rows<by_sum>(t);
  if (!with_stride<Stride, T>(t.stride, [&](auto stride) {
        spread_columns(t, std::make_index_sequence<std::size_t{stride}>{});
      }))
    spread_columns(t);
  put_rows(t);
  return true;
}

template <class T, dim_t Stride>
detail::window_rows_kernel<T> kernel_for_row_averages() {
  return {vec<T>::size, &windows_by_gathering<by_sum, Stride, T>};
}
template <class T, dim_t Stride>
detail::window_rows_kernel<T> kernel_for_row_maxima() {
  return {vec<T>::size, &windows_by_gathering<by_maximum, Stride, T>};
}
template <class T, dim_t Stride>
detail::window_rows_kernel<T> kernel_for_row_spreads() {
  return {vec<T>::size, &average_by_spreading<Stride, T>};
}

/// dy of windows of different sizes, each divided by its own: row_factors of all rows of a plane's
/// windows, column_factors of those of a row.
template <class T>
void divide_windows(dim_t planes, dim_t rows, dim_t width, const T* row_factors,
                    const T* column_factors, const T* dy, T* to) {
  constexpr dim_t w = vec<T>::size;
  for (; planes > 0; --planes)
    for (dim_t r = 0; r < rows; ++r, dy += width, to += width)
      for (dim_t c = 0; c < width; c += w) {
        const dim_t n = width - c < w ? width - c : w;
        const vec<T> v =
            vec<T>::load(dy + c, n) * vec<T>::load(column_factors + c, n) * row_factors[r];
        v.store(to + c, n);
      }
}
