using detail::average_rows, detail::rounded_up;

template <class T>
IKEBANA_CPU_INLINE void store_some(vec<T> s, T* to, dim_t left) {
  if (left >= vec<T>::size) [[likely]]
    s.store(to);
  else
    s.store(to, left);
}

/// The rows of the source that each row of the result meets, in a register more than there are N,
/// the last of which has `last` lanes. What that has too much is zero, and the next row writes over
/// it, where rows are short.
template <class T, std::size_t... N>
[[gnu::noinline]] void add_rows(const average_rows<T>& t, dim_t j, dim_t last,
                                std::index_sequence<N...>) {
  constexpr dim_t w = vec<T>::size, more = sizeof...(N);
  const dim_t step = t.row_step, slab_step = t.slab_step;
  T* to = t.line + t.lead + j;
  for (const auto *row = t.rows, *end = row + t.row_count; row != end; ++row, to += t.line_pitch) {
    vec<T> total[more + 1] = {};
    const T* slab = row->from + j;
    for (dim_t z = row->slabs; z > 0; --z, slab += slab_step) {
      const T* from = slab;
      for (dim_t r = row->count; r > 0; --r, from += step) {
        ((total[N] = total[N] + vec<T>::load(from + static_cast<dim_t>(N) * w)), ...);
        total[more] = total[more] + vec<T>::load(from + more * w, last);
      }
    }
    (total[N].store(to + static_cast<dim_t>(N) * w), ...);
    store_some(total[more], to + more * w, j == 0 ? w : last);
  }
}
template <class T>
void add_rows(const average_rows<T>& t) {
  constexpr dim_t w = vec<T>::size;
  for (dim_t j = 0; j < t.length; j += 4 * w) {
    const dim_t left = t.length - j;
    if (left > 3 * w)
      add_rows(t, j, left < 4 * w ? left - 3 * w : w, std::make_index_sequence<3>{});
    else if (left > 2 * w)
      add_rows(t, j, left - 2 * w, std::make_index_sequence<2>{});
    else if (left > w)
      add_rows(t, j, left - w, std::make_index_sequence<1>{});
    else
      add_rows(t, j, left, std::make_index_sequence<0>{});
  }
}

/// Sums of windows of columns that share nothing.
template <class T, std::size_t... I>
[[gnu::noinline]] void add_neighbours(const average_rows<T>& t, std::index_sequence<I...>) {
  constexpr dim_t w = vec<T>::size, stride = sizeof...(I) + 1;
  const dim_t count = t.row_count * t.sums_pitch, kernel = t.kernel;
  const vec<T> by = vec<T>::broadcast(t.factor);
  for (dim_t f = 0; f < count; f += w) {
    vec<T> phases[stride];
    load_phases<stride>(t.line + stride * f, phases);
    vec<T> total = phases[0];
    ((total = static_cast<dim_t>(I) + 1 < kernel ? total + phases[I + 1] : total), ...);
    store_some(total * by, t.sums + f, count - f);
  }
}
/// Columns sorted by remainder.
template <class T, std::size_t... I>
[[gnu::noinline]] void sort_columns(const average_rows<T>& t, std::index_sequence<I...>) {
  constexpr dim_t w = vec<T>::size, stride = sizeof...(I);
  const dim_t count = t.row_count * t.sums_pitch + t.shift, size = t.phase_size;
  for (dim_t f = 0; f < count; f += w) {
    vec<T> phases[stride];
    load_phases<stride>(t.line + stride * f, phases);
    (phases[I].store(t.phases + static_cast<dim_t>(I) * size + f), ...);
  }
}
/// Sums of windows of columns, which `taps` names.
template <class T>
[[gnu::noinline]] void add_columns(const average_rows<T>& t) {
  constexpr dim_t w = vec<T>::size;
  const dim_t count = t.row_count * t.sums_pitch, kernel = t.kernel;
  const vec<T> by = vec<T>::broadcast(t.factor);
  const dim_t* const taps = t.taps;
  const auto columns = [&](dim_t f, auto... n) __attribute__((always_inline)) {
    const T* const x = t.phases + f;
    vec<T> total[] = {vec<T>::load(x + n * w)...};
    for (dim_t k = 1; k < kernel; ++k)
      ((total[n] = total[n] + vec<T>::load(x + taps[k] + n * w)), ...);
    (store_some(total[n] * by, t.sums + f + n * w, count - f - n * w), ...);
  };
  dim_t f = 0;
  for (; f + 3 * w < count; f += 4 * w) columns(f, dim_t{0}, dim_t{1}, dim_t{2}, dim_t{3});
  for (; f < count; f += w) columns(f, dim_t{0});
}

/// The sums of the windows that meet each column: of `shift`, and of one more for some.
template <class T, std::size_t... I>
[[gnu::noinline]] void spread_columns(const average_rows<T>& t, std::index_sequence<I...>) {
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
[[gnu::noinline]] void spread_columns(const average_rows<T>& t) {
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

/// From lines that have room between their rows to the result.
template <class T>
[[gnu::noinline]] void put_rows(const average_rows<T>& t) {
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

template <class T>
void average_by_gathering(const average_rows<T>& t) {
  add_rows(t);
  if (t.stride > 4) {
    const T* from = t.line;
    for (dim_t f = 0; f < t.row_count * t.sums_pitch + t.shift; ++f)
      for (dim_t k = 0; k < t.stride; ++k) t.phases[k * t.phase_size + f] = *from++;
    add_columns(t);
  } else {
    with_phases(t.stride, [&](auto stride) {
      constexpr std::size_t phases = stride;
      if constexpr (phases > 1) {
        if (t.kernel <= t.stride) return add_neighbours(t, std::make_index_sequence<phases - 1>{});
        sort_columns(t, std::make_index_sequence<phases>{});
      }
      add_columns(t);
    });
  }
  if (!t.is_direct) put_rows(t);
}
template <class T>
void average_by_spreading(const average_rows<T>& t) {
  add_rows(t);
  if (t.stride > 4)
    spread_columns(t);
  else
    with_phases(t.stride, [&](auto stride) {
      spread_columns(t, std::make_index_sequence<std::size_t{stride}>{});
    });
  put_rows(t);
}

template <class T>
const detail::average_rows_kernels<T>& kernels_for_average_rows() {
  static constexpr detail::average_rows_kernels<T> all{vec<T>::size, &average_by_gathering<T>,
                                                       &average_by_spreading<T>};
  return all;
}
