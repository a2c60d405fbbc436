// What averages give back, row by row.

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
detail::window_rows_kernel<T> kernel_for_row_spreads() {
  return {vec<T>::size, &average_by_spreading<Stride, T>};
}
